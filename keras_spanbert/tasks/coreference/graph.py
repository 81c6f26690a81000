"""The resolver's layers and how they are connected.

B = documents, N = candidate spans, K = spans that are kept, M = spans in memory,
A = antecedents of each, T = tokens of a document, H = the encoder's width, D = size
of a span's embedding.
"""

import keras
from keras import ops

from keras_spanbert.tasks.coreference.scoring import CoarseScorer, FineScorer, MentionScorer
from keras_spanbert.tasks.coreference.span_layers import (
    DocumentTokens,
    Gate,
    SegmentRows,
    SpanEmbeddings,
    SpanHeads,
    SpanValues,
    SpanWidths,
)
from keras_spanbert.tasks.coreference.spans import SpanSelector


def inputs_of(model_type: str) -> dict:
    """The model's inputs: see `document_inputs`."""
    shapes = {
        "token_ids": (None, None),
        "padding_mask": (None, None),
        "token_places": (None,),
        "speaker_ids": (None,),
        "segment_index": (None,),
        "starts": (None,),
        "ends": (None,),
        "top_span_mask": (None,),
        "genre": (),
    }
    if model_type == "overlap":
        shapes |= {
            "overlap_token_ids": (None, None),
            "overlap_padding_mask": (None, None),
            "overlap_places": (None,),
        }
    return {name: keras.Input(shape, dtype="int32", name=name) for name, shape in shapes.items()}


def memory_inputs(num_levels: int, embedding_dim: int) -> dict:
    """The inputs with the spans of a document that came before: see `scoring`.

    `next_index` is the number of spans that came before in all.
    """
    shapes = {"mention_scores": "float32", "index": "int32", "speakers": "int32"}
    shapes["segments"] = "int32"
    memory = {
        name: keras.Input((None,), dtype=dtype, name=f"memory_{name}")
        for name, dtype in shapes.items()
    }
    shape = (num_levels, None, embedding_dim)
    memory["embeddings"] = keras.Input(shape, dtype="float32", name="memory_embeddings")
    memory["next_index"] = keras.Input((), dtype="int32", name="next_index")
    return memory


class ResolverLayers:
    """The layers of a resolver.

    Args:
        backbone: `SpanBertBackbone`.
        settings: dict of the resolver's arguments.
    """

    def __init__(self, backbone, settings: dict):
        hidden_dim, feature_size = backbone.hidden_dim, settings["feature_size"]
        max_span_width = settings["max_span_width"]
        uses = {name: settings[name] for name in ["use_features", "model_heads", "use_prior"]}
        embedding_dim = (
            2 * hidden_dim + feature_size * uses["use_features"] + hidden_dim * uses["model_heads"]
        )
        plain = {"initializer_range": backbone.initializer_range, "dtype": backbone.dtype_policy}
        with_dropout = {"dropout_rate": settings["dropout_rate"], **plain}
        network = {name: settings[name] for name in ["ffnn_size", "ffnn_depth", "feature_size"]}
        self.model_type = settings["model_type"]
        self.embedding_dim = embedding_dim
        self.num_levels = settings["coref_depth"] if settings["fine_grained"] else 1
        self.backbone = backbone
        self.gate = self.widths = self.heads = self.fine = None
        if self.model_type == "overlap":
            self.gate = Gate(hidden_dim, 0, name="token_gate", **plain)
        if uses["use_features"]:
            self.widths = SpanWidths(
                max_span_width, feature_size, name="span_widths", **with_dropout
            )
        if uses["model_heads"]:
            self.heads = SpanHeads(hidden_dim, max_span_width, name="span_heads", **plain)
        self.mention = MentionScorer(
            hidden_dim,
            max_span_width=max_span_width,
            name="mention_scores",
            **uses,
            **network,
            **with_dropout,
        )
        self.selector = SpanSelector(max_span_width, name="span_selector")
        self.embeddings = SpanEmbeddings(
            max_span_width, dtype=backbone.dtype_policy, name="span_embeddings"
        )
        self.coarse = CoarseScorer(
            embedding_dim,
            settings["max_top_antecedents"],
            feature_size,
            uses["use_prior"],
            name="coarse_scores",
            **with_dropout,
        )
        if settings["fine_grained"]:
            counts_segments = settings["use_segment_distance"]
            self.fine = FineScorer(
                embedding_dim,
                coref_depth=settings["coref_depth"],
                use_metadata=settings["use_metadata"],
                use_features=settings["use_features"],
                num_segment_distances=settings["max_training_sentences"] * counts_segments,
                num_genres=len(settings["genres"]),
                name="fine_scores",
                **network,
                **with_dropout,
            )

    def outputs(self, inputs: dict, memory: dict | None = None) -> dict:
        """The model's outputs: see `SpanBertCoreferenceResolver`.

        With a memory the inputs are of a part of a document, antecedents are
        places among the M spans in memory and the K that are kept, and there are
        `span_embeddings`, float `[B, levels, K, D]`, `span_speakers` and
        `span_segments`, int32 `[B, K]`, to remember.
        """
        tokens = self._encoded(inputs, "token_ids", "padding_mask", "token_places")
        if self.gate is not None:
            names = "overlap_token_ids", "overlap_padding_mask", "overlap_places"
            tokens = self.gate(tokens, self._encoded(inputs, *names))  # [B, T, H]
        starts, ends, top_span_mask = (inputs[n] for n in ["starts", "ends", "top_span_mask"])
        parts = {}
        if self.widths is not None:
            parts["widths"] = self.widths(starts, ends)
        if self.heads is not None:
            parts["heads"] = self.heads(tokens)
        mention_scores = self.mention(starts, ends, tokens, **parts)  # [B, N]
        top_spans = self.selector(
            mention_scores, starts, ends, top_span_mask, inputs["token_places"]
        )  # [B, K]
        values = SpanValues(name="span_values")
        top_starts = values(starts, top_spans)
        index = ops.cumsum(top_span_mask, axis=1) - 1
        spans = {
            "embeddings": self.embeddings(top_spans, starts, ends, tokens, **parts),
            "mention_scores": values(mention_scores, top_spans),
            "index": index if memory is None else index + memory["next_index"][:, None],
            "speakers": values(inputs["speaker_ids"], top_starts),
            "segments": values(inputs["segment_index"], top_starts),
            "mask": top_span_mask,
        }
        antecedents, scores = self.coarse(spans, memory)  # [B, K, A]
        embeddings = spans["embeddings"][:, None]
        if self.fine is not None:
            scores, embeddings = self.fine(spans, antecedents, scores, inputs["genre"], memory)
        no_antecedent = ops.zeros_like(scores[:, :, :1])
        outputs = {
            "candidate_mention_scores": mention_scores,
            "top_spans": top_spans,
            "top_antecedents": antecedents,
            "top_antecedent_scores": ops.concatenate([no_antecedent, scores], axis=-1),
        }
        if memory is not None:
            outputs["span_embeddings"] = embeddings
            outputs["span_speakers"], outputs["span_segments"] = (
                spans["speakers"],
                spans["segments"],
            )
        return outputs

    def part_model(self):
        """The model of a part of a document, with what came before as a memory."""
        inputs = inputs_of(self.model_type)
        memory = memory_inputs(self.num_levels, self.embedding_dim)
        return keras.Model({**inputs, "memory": memory}, self.outputs(inputs, memory))

    def _encoded(self, inputs, token_ids, padding_mask, places):
        """The encoder's output at the tokens of documents, `[B, T, H]`."""
        rows = SegmentRows(name=f"{token_ids}_rows")(inputs[token_ids])
        encoded = self.backbone(
            {
                "token_ids": rows,
                "segment_ids": ops.zeros_like(rows),
                "padding_mask": SegmentRows(name=f"{padding_mask}_rows")(inputs[padding_mask]),
            }
        )
        tokens = DocumentTokens(dtype=self.backbone.dtype_policy, name=f"{places}_tokens")
        return tokens(encoded, inputs[places])

"""The resolver's layers and how they are connected.

B = documents, N = candidate spans, K = spans that are kept, A = antecedents of
each, T = tokens of a document, H = the encoder's width.
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
        self.backbone = backbone
        self.gate = self.widths = self.heads = self.fine = None
        if settings["model_type"] == "overlap":
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

    def outputs(self, inputs: dict) -> dict:
        """The model's outputs: see `SpanBertCoreferenceResolver`."""
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
        embeddings = self.embeddings(top_spans, starts, ends, tokens, **parts)
        antecedents, scores = self.coarse(
            embeddings, mention_scores, top_spans, top_span_mask
        )  # [B, K, A]
        if self.fine is not None:
            values = SpanValues(name="span_values")
            top_starts = values(starts, top_spans)
            scores = self.fine(
                embeddings,
                antecedents,
                scores,
                values(inputs["speaker_ids"], top_starts),
                values(inputs["segment_index"], top_starts),
                inputs["genre"],
            )
        no_antecedent = ops.zeros_like(scores[:, :, :1])
        return {
            "candidate_mention_scores": mention_scores,
            "top_spans": top_spans,
            "top_antecedents": antecedents,
            "top_antecedent_scores": ops.concatenate([no_antecedent, scores], axis=-1),
        }

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

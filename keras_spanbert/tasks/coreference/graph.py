"""The resolver's layers and their connections.

B = documents, N = candidate spans, K = spans that are kept, M = spans in memory,
A = antecedents per span, T = tokens of a document, H = the encoder's width, D = size
of a span's embedding.
"""

import functools

import keras
import numpy as np
from keras import ops

from keras_spanbert.tasks.coreference.scoring import CoarseScorer, FineScorer, MentionScorer
from keras_spanbert.tasks.coreference.span_layers import (
    DocumentTokens,
    Gate,
    SegmentRows,
    SpanHeads,
    SpanWidths,
)


def model_inputs(model_type: str) -> dict:
    """Returns the model's inputs: see `document_inputs`."""
    rows = ["token_ids", "padding_mask"]
    tokens = ["token_places", "speaker_ids", "segment_index", "starts", "ends", "top_span_mask"]
    shapes = {**dict.fromkeys(rows, (None, None)), **dict.fromkeys(tokens, (None,)), "genre": ()}
    if model_type == "overlap":
        shapes.update({f"overlap_{name}": (None, None) for name in rows}, overlap_places=(None,))
    return {name: keras.Input(shape, dtype="int32", name=name) for name, shape in shapes.items()}


class ResolverLayers:
    """The layers of a resolver. `settings` are its arguments."""

    def __init__(self, backbone, settings: dict):
        hidden_dim = backbone.hidden_dim
        common = {
            "settings": settings,
            "initializer_range": backbone.initializer_range,
            "dtype": backbone.dtype_policy,
        }
        self.settings = settings
        own_size = settings["feature_size"] * settings["use_features"]
        own_size += hidden_dim * settings["model_heads"]
        self.embedding_dim = 2 * hidden_dim + own_size
        self.num_levels = settings["coref_depth"] if settings["fine_grained"] else 1
        self.backbone = backbone
        self.gate = self.widths = self.heads = self.fine = None
        if settings["model_type"] == "overlap":
            self.gate = Gate(hidden_dim, 0, name="token_gate", **common)
        if settings["use_features"]:
            self.widths = SpanWidths(name="span_widths", **common)
        if settings["model_heads"]:
            self.heads = SpanHeads(hidden_dim, name="span_heads", **common)
        self.mention = MentionScorer(hidden_dim, name="mention_scores", **common)
        self.coarse = CoarseScorer(self.embedding_dim, name="coarse_scores", **common)
        if settings["fine_grained"]:
            self.fine = FineScorer(self.embedding_dim, name="fine_scores", **common)

    def outputs(self, inputs: dict, memory: dict | None = None) -> dict:
        """Computes the model's outputs: see `SpanBertCoreferenceResolver`.

        With a memory, the inputs belong to a chunk of a document. Antecedents are then
        indices into the M spans in memory followed by the K that are kept, and there
        is an additional output, `spans`, what a memory remembers of the spans.
        """
        tokens = self._encode(inputs, "token_ids", "padding_mask", "token_places")  # [B, T, H]
        if self.gate is not None:
            names = "overlap_token_ids", "overlap_padding_mask", "overlap_places"
            tokens = self.gate(tokens, self._encode(inputs, *names))
        parts = {}
        if self.widths is not None:
            parts["widths"] = self.widths(inputs["starts"], inputs["ends"])
        if self.heads is not None:
            parts["heads"] = self.heads(tokens)
        names = ["starts", "ends", "top_span_mask", "speaker_ids", "segment_index"]
        own_inputs = {name: inputs[name] for name in names}
        mention_scores, top_spans, spans = self.mention(own_inputs, tokens, **parts)
        antecedents, scores = self.coarse(spans, memory)  # [B, K, A]
        embeddings = spans["embeddings"][:, :, None]
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
            spans["embeddings"] = ops.cast(embeddings, "float32")
            outputs["spans"] = {name: spans[name] for name in memory}
        return outputs

    @functools.cached_property
    def chunk_model(self):
        """The model of a chunk of a document, with a memory of the earlier spans.

        It shares the resolver's weights. The inputs of the memory are described in
        `scoring`.
        """
        shapes = {
            "mention_scores": ((None,), "float32"),
            **dict.fromkeys(["index", "speakers", "segments"], ((None,), "int32")),
            "embeddings": ((None, self.num_levels, self.embedding_dim), "float32"),
        }
        memory = {
            name: keras.Input(shape, dtype=dtype, name=f"memory_{name}")
            for name, (shape, dtype) in shapes.items()
        }
        inputs = model_inputs(self.settings["model_type"])
        return keras.Model({**inputs, "memory": memory}, self.outputs(inputs, memory))

    def _encode(self, inputs, token_ids, padding_mask, places):
        """Returns the encoder's output at the tokens of documents, `[B, T, H]`."""
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

    def flops(self) -> float:
        """Returns the FLOPs of the heads' matrix products for one segment in the forward pass.

        Counts a segment's share of a document of `max_training_sentences` segments.
        """
        settings, size = self.settings, self.embedding_dim
        tokens = settings["max_segment_len"]
        candidates, kept = tokens * settings["max_span_width"], tokens * settings["top_span_ratio"]
        pairs = kept * min(kept, settings["max_top_antecedents"])

        def network(layer, num_shared, num_rows):
            """Counts a network whose first two pieces are multiplied once for each span."""
            sizes = [int(np.prod(x.kernel.shape)) for x in [*layer.pieces, *layer.hidden]]
            return num_shared * sum(sizes[:2]) + num_rows * sum(sizes[2:])

        products = network(self.mention.mention, tokens, candidates)
        if self.heads is not None:
            hidden_dim = self.backbone.hidden_dim
            products += (
                tokens * hidden_dim + candidates * 2 * settings["max_span_width"] * hidden_dim
            )
        products += kept * size * size + kept * kept * settings["max_training_sentences"] * size
        if self.fine is not None:
            products += self.num_levels * network(self.fine.pair, kept, pairs)
            products += (self.num_levels - 1) * (pairs * size + kept * 2 * size * size)
        return 2.0 * products

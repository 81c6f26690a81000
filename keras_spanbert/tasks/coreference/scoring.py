"""Scores mentions and pairs of mentions, and connects the resolver's layers.

B = documents, T = tokens of a document, N = candidate spans, K = spans that are kept, M = spans in
memory, A = antecedents per span, H = the encoder's width, D = size of a span's embedding, F = width
of a feature. Each span is scored with those of a memory and the earlier ones of the same inputs.
Spans and memory are dicts:

- `embeddings`: float `[B, K, D]`. In a memory `[B, M, levels, D]`, first the original ones.
- `mention_scores`: float32 `[B, K]`.
- `index`: int32 `[B, K]`, the number of each span in its inputs, in order. In a memory it is
  negative, and counts back from the first span of the inputs, or is `NO_SPAN`.
- `speakers`, `segments`: int32 `[B, K]`, of each span's first token.
- `mask`: int32 `[B, K]`, 1 for spans of the document. A memory has no mask.
"""

import functools

import keras
import numpy as np
from keras import ops

from keras_spanbert.tasks.coreference.layers import (
    DocumentTokens,
    Gate,
    SegmentRows,
    SpanHeads,
    SpanWidths,
    WeightedLayer,
    as_scores,
    gather_rows,
    map_in_chunks,
    select_spans,
)

# Distances 0, 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64+.
NUM_DISTANCES = 10
# An index that is not before any span.
NO_SPAN = 1 << 30
# Value of `top_span_mask` at candidates that are all kept, although they may cross.
GIVEN = 2
# Values from which the features of a pair are computed.
_FEATURES = ("index", "speakers", "segments")
# Number of candidates and of pairs that are scored at once outside of training.
_ROWS = 1024


def distance_bucket(distance):
    """Returns the bucket of a distance between spans, counted in spans."""
    bucket = ops.clip(distance, 0, 4)
    for first in (5, 8, 16, 32, 64):
        bucket += ops.cast(distance >= first, bucket.dtype)
    return bucket


def feature_rows(settings: dict) -> dict[str, int]:
    """Returns the number of embeddings of each feature of a pair that the settings use."""
    rows = {
        "same_speaker": 2 * settings["use_metadata"],
        "genre": len(settings["genres"]) * settings["use_metadata"],
        "distance": NUM_DISTANCES * settings["use_features"],
        "segment_distance": settings["max_training_sentences"] * settings["use_segment_distance"],
    }
    return {name: number for name, number in rows.items() if number}


class FeedForward(WeightedLayer):
    """A feed-forward network with one output, whose input is passed in pieces of `sizes`.

    Pieces of size 0 are skipped. `call` takes float `[..., ffnn_size]`, the sum of the results of
    the layers `pieces`, and returns float32 `[...]`.
    """

    def __init__(self, sizes, **kwargs):
        super().__init__(**kwargs)
        # The first product of a concatenation is the sum of the products of its pieces. A piece
        # that many inputs share, such as a span in all its pairs, is multiplied once. Pieces that
        # no inputs share are combined: each product makes an array as large as the hidden layer's.
        self.sizes = [size for size in sizes if size]
        outputs = [self.settings["ffnn_size"]] * self.settings["ffnn_depth"] + [1]
        self.pieces = [
            self.dense(f"input_{i}", outputs[0], use_bias=not i) for i in range(len(self.sizes))
        ]
        self.hidden = [self.dense(f"hidden_{i + 1}", size) for i, size in enumerate(outputs[1:])]

    def build(self, *_):
        for layer, size in zip(self.pieces, self.sizes):
            layer.build((None, size))
        for layer in self.hidden:
            layer.build((None, self.settings["ffnn_size"]))

    def call(self, projected, training=None):
        x = projected
        for layer in self.hidden:
            x = layer(self.dropout(ops.relu(x), training=training))
        return as_scores(ops.squeeze(x, axis=-1))


class MentionScorer(WeightedLayer):
    """Scores all candidates, and selects the spans that are kept with their values.

    A span's embedding is its start, its end, and optionally its width and its head. `tokens` are
    float `[B, T, H]`, `widths` `[B, N, F]` those of `SpanWidths` and `heads` `[B, T * W, H]` of
    `SpanHeads`. Returns scores float32 `[B, N]`, int32 `[B, K]`, indices of candidates, and the
    spans.
    """

    def __init__(self, hidden_dim: int, **kwargs):
        super().__init__(**kwargs)
        self.hidden_dim = hidden_dim
        settings, kwargs = self.settings, self.arguments()
        self.max_span_width = settings["max_span_width"]
        feature_size = settings["feature_size"]
        own = feature_size * settings["use_features"] + hidden_dim * settings["model_heads"]
        self.mention = FeedForward([hidden_dim, hidden_dim, own], name="mention", **kwargs)
        self.width = None
        if settings["use_prior"]:
            self.width = FeedForward([feature_size], name="width", **kwargs)

    def build(self, *_):
        self.mention.build()
        if self.width is not None:
            shape = self.max_span_width, self.settings["feature_size"]
            self.widths = self.add_matrix("width_embeddings", *shape)
            self.width.build()

    def call(self, inputs, tokens, widths=None, heads=None, training=None):
        # In a document's padding, the end is before the start.
        starts, ends = inputs["starts"], ops.maximum(inputs["ends"], inputs["starts"])
        by_start, by_end = (piece(tokens) for piece in self.mention.pieces[:2])

        def own_parts(starts, ends, *widths):
            if heads is None:
                return [*widths]
            return [*widths, gather_rows(heads, starts * self.max_span_width + ends - starts)]

        def compute_scores(spans):
            starts, ends, *_ = spans
            projected = gather_rows(by_start, starts) + gather_rows(by_end, ends)
            if own := own_parts(*spans):
                projected = projected + self.mention.pieces[2](ops.concatenate(own, axis=-1))
            return self.mention(projected, training=training)

        spans = [starts, ends] if widths is None else [starts, ends, widths]
        scores = map_in_chunks(compute_scores, spans, _ROWS, training)
        if self.width is not None:
            # A slice is a tensor. On TensorFlow, a quantized layer does not accept variables.
            by_width = self.width.pieces[0](self.widths[:])
            by_width = self.width(by_width, training=training)
            scores = scores + ops.take(by_width, ends - starts, axis=0)

        is_given = inputs["top_span_mask"] == GIVEN
        mask, num_tokens = ops.minimum(inputs["top_span_mask"], 1), ops.shape(tokens)[1]
        top_spans = select_spans(
            scores, starts, inputs["ends"], mask, num_tokens, self.max_span_width
        )
        number = ops.cumsum(ops.ones_like(mask), axis=1) - 1
        top_spans = ops.where(is_given, number, top_spans)
        starts, ends, *widths = (gather_rows(x, top_spans) for x in spans)
        parts = [gather_rows(tokens, starts), gather_rows(tokens, ends)]
        spans = {
            "embeddings": ops.concatenate([*parts, *own_parts(starts, ends, *widths)], axis=-1),
            "mention_scores": gather_rows(scores, top_spans),
            "index": ops.cumsum(mask, axis=1) - 1,
            "speakers": gather_rows(inputs["speaker_ids"], starts),
            "segments": gather_rows(inputs["segment_index"], starts),
            "mask": mask,
        }
        return scores, top_spans, spans

    def compute_output_spec(self, inputs, tokens, widths=None, heads=None, training=None):
        candidates, shape = inputs["starts"].shape, inputs["top_span_mask"].shape
        size = sum(x.shape[-1] for x in (tokens, tokens, widths, heads) if x is not None)
        integers = ["index", "speakers", "segments", "mask"]
        spans = {  # In the order of `call`.
            "embeddings": keras.KerasTensor((*shape, size), dtype=tokens.dtype),
            "mention_scores": keras.KerasTensor(shape, dtype="float32"),
            **{name: keras.KerasTensor(shape, dtype="int32") for name in integers},
        }
        top_spans = keras.KerasTensor(shape, dtype="int32")
        return keras.KerasTensor(candidates, dtype="float32"), top_spans, spans


class CoarseScorer(WeightedLayer):
    """Selects the possible antecedents of each span with a cheap score of all pairs.

    K must be at least A. Returns antecedents and scores, int32 and float32 `[B, K, A]`: indices
    into the M spans in memory followed by the K spans, and the scores of the pairs, -inf for
    missing ones.
    """

    def __init__(self, embedding_dim: int, **kwargs):
        # Casts its other inputs itself, because the scores must stay float32.
        super().__init__(autocast=False, **kwargs)
        self.embedding_dim = embedding_dim
        self.max_top_antecedents = self.settings["max_top_antecedents"]
        self.projection = self.dense("source", embedding_dim)
        self.distance = self.dense("distance", 1) if self.settings["use_prior"] else None

    def build(self, *_):
        self.projection.build((None, self.embedding_dim))
        if self.distance is not None:
            size = self.settings["feature_size"]
            self.distances = self.add_matrix("distance_embeddings", NUM_DISTANCES, size)
            self.distance.build((None, size))

    def call(self, spans, memory=None, training=None):
        embeddings = self.cast(spans["embeddings"])
        source = self.dropout(self.projection(embeddings), training=training)
        target = _embeddings_at_level(embeddings, memory, 0)
        target = self.dropout(target, training=training)
        scores = as_scores(ops.matmul(source, ops.transpose(target, (0, 2, 1))))  # [B, K, M + K]
        mention = _prepend_memory("mention_scores", spans, memory)
        scores = scores + spans["mention_scores"][:, :, None] + mention[:, None, :]
        distance = spans["index"][:, :, None] - _prepend_memory("index", spans, memory)[:, None, :]
        if self.distance is not None:
            table = self.dropout(self.cast(self.distances[:]), training=training)
            by_distance = as_scores(self.distance(table)[:, 0])
            prior = ops.take(by_distance, distance_bucket(distance), axis=0)
            scores = scores + prior
        is_antecedent = (distance > 0) & (spans["mask"][:, :, None] > 0)
        scores = ops.where(is_antecedent, scores, -np.inf)
        _, antecedents = ops.top_k(ops.stop_gradient(scores), self.max_top_antecedents)
        antecedents = ops.cast(antecedents, "int32")
        # Indices into the whole matrix, because `take_along_axis` is slow on TensorFlow.
        num_documents, num_spans, num_keys = ops.shape(scores)
        places = antecedents + ops.arange(num_spans, dtype="int32")[:, None] * num_keys
        return antecedents, gather_rows(ops.reshape(scores, (num_documents, -1)), places)

    def compute_output_spec(self, spans, memory=None, training=None):
        shape = (*spans["index"].shape, self.max_top_antecedents)
        return keras.KerasTensor(shape, dtype="int32"), keras.KerasTensor(shape, dtype="float32")


def _prepend_memory(name, spans, memory):
    """Returns a value of the spans in memory, then of the other spans, `[B, M + K]`."""
    return spans[name] if memory is None else ops.concatenate([memory[name], spans[name]], axis=1)


def _embeddings_at_level(embeddings, memory, level):
    """Returns embeddings of one level, those in memory first, `[B, M + K, D]`."""
    if memory is None:
        return embeddings
    remembered = ops.cast(memory["embeddings"][:, :, level], embeddings.dtype)
    return ops.concatenate([remembered, embeddings], axis=1)


class FineScorer(WeightedLayer):
    """Scores pairs with a network of both spans and the features of the pair.

    With a depth of more than 1, a span's embedding is then mixed with those of its likely
    antecedents, and pairs are scored again. Takes the results of `CoarseScorer` and `genre`, int32
    `[B]`. Returns scores float32 `[B, K, A]`, and the embeddings that were used each time, float
    `[B, K, coref_depth, D]`.
    """

    def __init__(self, embedding_dim: int, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.embedding_dim = embedding_dim
        settings, kwargs = self.settings, self.arguments()
        self.coref_depth = settings["coref_depth"]
        self.feature_rows = feature_rows(settings)
        of_pair = embedding_dim + len(self.feature_rows) * settings["feature_size"]
        sizes = [embedding_dim, embedding_dim, of_pair]
        self.pair = FeedForward(sizes, name="pair", **kwargs)
        if self.coref_depth > 1:
            self.refinement = Gate(embedding_dim, 1, name="refinement", **kwargs)

    def build(self, *_):
        size = self.settings["feature_size"]
        self.tables = {
            name: self.add_matrix(f"{name}_embeddings", number, size)
            for name, number in self.feature_rows.items()
        }
        self.pair.build()
        if self.coref_depth > 1:
            self.refinement.build()

    def call(self, spans, antecedents, coarse_scores, genre, memory=None, training=None):
        embeddings = self.cast(spans["embeddings"])
        keys = {name: _prepend_memory(name, spans, memory) for name in _FEATURES}
        rows = [antecedents, coarse_scores, *(spans[name] for name in _FEATURES)]
        num_rows = max(_ROWS // antecedents.shape[2], 1)

        def score_pairs(rows):
            """Returns scores of the pairs of some spans, and refined embeddings."""
            embeddings, antecedents, coarse_scores, *values = rows
            antecedent_embeddings = gather_rows(keys["embeddings"], antecedents)  # [B, K, A, D]
            own = [embeddings[:, :, None, :] * antecedent_embeddings]
            if self.tables:
                features = self._features(dict(zip(_FEATURES, values)), keys, antecedents, genre)
                own.append(self.dropout(self.cast(features), training=training))
            projected = self.pair.pieces[2](ops.concatenate(own, axis=-1))
            projected = projected + gather_rows(keys["projected"], antecedents)
            projected = projected + self.pair.pieces[0](embeddings)[:, :, None, :]
            scores = coarse_scores + self.pair(projected, training=training)
            # The released graph refines once more without effect.
            if len(levels) == self.coref_depth:
                return scores, embeddings
            # Each span's embedding is mixed with those of its antecedents and with itself.
            weights = ops.concatenate([ops.zeros_like(scores[:, :, :1]), scores], axis=2)
            weights = ops.cast(ops.softmax(weights, axis=-1), embeddings.dtype)
            attended = weights[:, :, :1] * embeddings
            others = ops.matmul(weights[:, :, None, 1:], antecedent_embeddings)
            return scores, self.refinement(embeddings, attended + others[:, :, 0, :])

        levels = []
        while len(levels) < self.coref_depth:
            keys["embeddings"] = _embeddings_at_level(embeddings, memory, len(levels))
            keys["projected"] = self.pair.pieces[1](keys["embeddings"])
            levels.append(embeddings)
            scores, embeddings = map_in_chunks(score_pairs, [embeddings, *rows], num_rows, training)
        return scores, ops.stack(levels, axis=2)

    def _features(self, spans, others, antecedents, genre):
        """Returns the features `[B, K, A, features * F]`."""

        def difference(name):
            return spans[name][:, :, None] - gather_rows(others[name], antecedents)

        num_segments = self.settings["max_training_sentences"]
        indices = {
            "same_speaker": ops.cast(difference("speakers") == 0, "int32"),
            "genre": genre[:, None, None],
            "distance": distance_bucket(difference("index")),
            "segment_distance": ops.clip(difference("segments"), 0, num_segments - 1),
        }
        shape = ops.shape(antecedents)
        features = []
        for name, table in self.tables.items():
            rows = ops.take(table, indices[name], axis=0)
            # All pairs of a document have the same genre.
            features.append(ops.broadcast_to(rows, (*shape, rows.shape[-1])))
        return ops.concatenate(features, axis=-1)

    def compute_output_spec(self, spans, antecedents, coarse_scores, *args, **kwargs):
        batch, num_spans, size = spans["embeddings"].shape
        return (
            keras.KerasTensor(coarse_scores.shape, dtype="float32"),
            keras.KerasTensor((batch, num_spans, self.coref_depth, size), dtype=self.compute_dtype),
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

        With a memory, the inputs belong to a chunk of a document. Antecedents are then indices into
        the M spans in memory followed by the K that are kept, and `spans` is what a memory
        remembers.
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
        mention_scores, top_spans, spans = self.mention(inputs, tokens, **parts)
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
        """The model of a chunk of a document. It shares the weights, and has a memory of spans."""
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
        tokens = DocumentTokens(dtype=self.backbone.compute_dtype, name=f"{places}_tokens")
        return tokens(encoded, inputs[places])

"""Scores of mentions, and of pairs of them.

B = documents, T = tokens of a document, N = candidate spans, K = spans that are
kept, M = spans in memory, A = antecedents of each, D = size of a span's
embedding, F = width of a feature.

Pairs are scored between spans, the queries, and those that come before them: the
spans themselves, behind those of a memory where there is one. Either is a dict:

- `embeddings`: float `[B, K, D]`; of a memory `[B, levels, M, D]`, first as they
  were made, then as they were refined;
- `mention_scores`: float32 `[B, K]`;
- `index`: int32 `[B, K]`, the number of each span in its document, in order;
- `speakers`, `segments`: int32 `[B, K]`, of each span's first token;
- `mask`: int32 `[B, K]`, 1 for spans of the document. A memory has none: of
  places without a span the index is `NO_SPAN`.

Layers that take scores cast by themselves what is computed in another dtype: Keras
would cast the scores too, and they stay float32.
"""

import functools

import keras
import numpy as np
from keras import ops

from keras_spanbert.tasks.coreference.feed_forward import FeedForward, as_scores
from keras_spanbert.tasks.coreference.span_layers import Gate, WeightedLayer
from keras_spanbert.tasks.coreference.spans import gather_rows, in_blocks

# Distances 0, 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64+.
NUM_DISTANCES = 10
# An index that comes before no span.
NO_SPAN = 1 << 30
# What the features of a pair are made of.
_FEATURES = ("index", "speakers", "segments")
# Candidates, and pairs, that are scored at once where nothing is trained.
_ROWS = 1024


def distance_bucket(distance):
    """The bucket of a distance between spans, counted in spans."""
    bucket = ops.clip(distance, 0, 4)
    for first in (5, 8, 16, 32, 64):
        bucket += ops.cast(distance >= first, bucket.dtype)
    return bucket


class _Scorer(WeightedLayer):
    """A layer with feed-forward networks of the same settings."""

    def feed_forward(self, name, sizes, ffnn_size, ffnn_depth):
        return FeedForward(sizes, ffnn_size, ffnn_depth, name=name, **self.settings())

    def settings(self):
        return {
            "dropout_rate": self.dropout_rate,
            "initializer_range": self.initializer_range,
            "dtype": self.dtype_policy,
        }


class MentionScorer(_Scorer):
    """How much each candidate looks like a mention, `[B, N]`.

    Args:
        hidden_dim: int, H.
        ffnn_size, ffnn_depth: ints, of the hidden layers.
        max_span_width: int.
        feature_size: int, F.
        use_features, model_heads, use_prior: bools: whether a span's width, its
            head, and a score of its width alone count.
        **kwargs: of `WeightedLayer`.

    Call arguments:
        starts, ends: int32 `[B, N]`.
        tokens, widths, heads: see `SpanEmbeddings`.
    """

    def __init__(
        self,
        hidden_dim: int,
        ffnn_size: int,
        ffnn_depth: int,
        max_span_width: int,
        feature_size: int,
        use_features: bool,
        model_heads: bool,
        use_prior: bool,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.max_span_width = max_span_width
        self.use_prior = use_prior
        sizes = [hidden_dim, hidden_dim, feature_size * use_features, hidden_dim * model_heads]
        self.mention = self.feed_forward("mention", sizes, ffnn_size, ffnn_depth)
        self.feature_size = feature_size
        if use_prior:
            self.width = self.feed_forward("width", [feature_size], ffnn_size, ffnn_depth)

    def build(self, *_):
        self.mention.build()
        if self.use_prior:
            shape = self.max_span_width, self.feature_size
            self.widths = self.add_matrix("width_embeddings", *shape)
            self.width.build()
        self.built = True

    def call(self, starts, ends, tokens, widths=None, heads=None, training=None):
        ends = ops.maximum(ends, starts)
        by_start, by_end = (self.mention.project(part, tokens) for part in (0, 1))

        def scores_of(spans):
            starts, ends, *widths = spans
            projected = gather_rows(by_start, starts) + gather_rows(by_end, ends)
            own = [*widths]
            if heads is not None:
                own.append(gather_rows(heads, starts * self.max_span_width + ends - starts))
            if own:
                projected = projected + self.mention.project(2, ops.concatenate(own, axis=-1))
            return self.mention(projected, training=training)

        spans = [starts, ends] if widths is None else [starts, ends, widths]
        scores = in_blocks(scores_of, spans, _ROWS, training)
        if self.use_prior:
            by_width = self.width(self.width.project(0, self.widths), training=training)
            scores = scores + ops.take(by_width, ends - starts, axis=0)
        return scores

    def compute_output_spec(self, starts, ends, tokens, widths=None, heads=None, training=None):
        return keras.KerasTensor(starts.shape, dtype="float32")


class CoarseScorer(WeightedLayer):
    """Chooses the antecedents of each span by a cheap score of all pairs.

    Args:
        embedding_dim: int, D.
        max_top_antecedents: int, A.
        feature_size: int.
        use_prior: bool. Whether a score of the distance counts.
        **kwargs: of `WeightedLayer`.

    Call arguments:
        spans: dict, see the module; K is A or more.
        memory: dict, or `None`.

    Returns:
        `(antecedents, scores)`, int32 and float32 `[B, K, A]`: places among the
        M spans in memory and the K spans, and the pair's score, -inf where there
        is none.
    """

    def __init__(
        self,
        embedding_dim: int,
        max_top_antecedents: int,
        feature_size: int,
        use_prior: bool,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        self.max_top_antecedents = max_top_antecedents
        self.embedding_dim = embedding_dim
        self.feature_size = feature_size
        self.use_prior = use_prior

    def build(self, *_):
        size = self.embedding_dim
        self.projection = self.add_matrix("source_weights", size, size)
        self.projection_bias = self.add_bias("source_bias", size)
        if self.use_prior:
            size = self.feature_size
            self.distances = self.add_matrix("distance_embeddings", NUM_DISTANCES, size)
            self.distance = self.add_matrix("distance_weights", size, 1)
            self.distance_bias = self.add_bias("distance_bias", 1)
        self.built = True

    def call(self, spans, memory=None, training=None):
        embeddings = self.cast(spans["embeddings"])
        source = ops.matmul(embeddings, self.cast(self.projection))
        source = self.dropout(source + self.cast(self.projection_bias), training=training)
        target = _with_level(embeddings, memory, 0)
        target = self.dropout(target, training=training)
        scores = as_scores(ops.matmul(source, ops.transpose(target, (0, 2, 1))))  # [B, K, M + K]
        mention = _with_memory("mention_scores", spans, memory)
        scores = scores + spans["mention_scores"][:, :, None] + mention[:, None, :]
        distance = spans["index"][:, :, None] - _with_memory("index", spans, memory)[:, None, :]
        if self.use_prior:
            table = self.dropout(self.cast(self.distances), training=training)
            by_distance = ops.matmul(table, self.cast(self.distance))
            by_distance = by_distance + self.cast(self.distance_bias)
            prior = ops.take(as_scores(by_distance[:, 0]), distance_bucket(distance), axis=0)
            scores = scores + prior
        is_antecedent = (distance > 0) & (spans["mask"][:, :, None] > 0)
        scores = ops.where(is_antecedent, scores, -np.inf)
        _, antecedents = ops.top_k(ops.stop_gradient(scores), self.max_top_antecedents)
        antecedents = ops.cast(antecedents, "int32")
        # By places in the whole matrix: `take_along_axis` is slow on TensorFlow.
        num_documents, num_spans, num_keys = ops.shape(scores)
        places = antecedents + ops.arange(num_spans, dtype="int32")[:, None] * num_keys
        return antecedents, gather_rows(ops.reshape(scores, (num_documents, -1)), places)

    def compute_output_spec(self, spans, memory=None, training=None):
        shape = (*spans["index"].shape, self.max_top_antecedents)
        return keras.KerasTensor(shape, dtype="int32"), keras.KerasTensor(shape, dtype="float32")


def _with_memory(name, spans, memory):
    """A value of the spans in memory, and of the spans behind them, `[B, M + K]`."""
    return spans[name] if memory is None else ops.concatenate([memory[name], spans[name]], axis=1)


def _with_level(embeddings, memory, level):
    """Embeddings of spans behind those in memory that are refined as often, `[B, M + K, D]`."""
    if memory is None:
        return embeddings
    remembered = ops.cast(memory["embeddings"][:, level], embeddings.dtype)
    return ops.concatenate([remembered, embeddings], axis=1)


class FineScorer(_Scorer):
    """Scores pairs by a network on both spans and the features of the pair.

    With a depth of more than 1 a span's embedding is then mixed with those of
    its likely antecedents, and pairs are scored again.

    Args:
        embedding_dim: int, D.
        ffnn_size, ffnn_depth: ints, of the hidden layers.
        feature_size: int, F.
        coref_depth: int. How often pairs are scored.
        use_metadata: bool. Whether speakers and genre count.
        use_features: bool. Whether the distance in spans counts.
        num_segment_distances: int. How many distances in segments there are; 0
            where they do not count.
        num_genres: int.
        **kwargs: of `WeightedLayer`.

    Call arguments:
        spans: dict, see the module.
        antecedents: int32 `[B, K, A]`.
        coarse_scores: float32 `[B, K, A]`.
        genre: int32 `[B]`.
        memory: dict, or `None`.

    Returns:
        `(scores, embeddings)`, float32 `[B, K, A]`, and float
        `[B, coref_depth, K, D]`, as the pairs were scored by them each time.
    """

    def __init__(
        self,
        embedding_dim: int,
        ffnn_size: int,
        ffnn_depth: int,
        feature_size: int,
        coref_depth: int,
        use_metadata: bool,
        use_features: bool,
        num_segment_distances: int,
        num_genres: int,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)
        self.coref_depth = coref_depth
        self.use_metadata = use_metadata
        self.use_features = use_features
        self.num_segment_distances = num_segment_distances
        self.num_genres = num_genres
        self.feature_size = feature_size
        num_features = 2 * use_metadata + use_features + bool(num_segment_distances)
        sizes = [embedding_dim, embedding_dim, embedding_dim, num_features * feature_size]
        self.pair = self.feed_forward("pair", sizes, ffnn_size, ffnn_depth)
        if coref_depth > 1:
            self.refinement = Gate(embedding_dim, 1, name="refinement", **self.settings())

    def build(self, *_):
        size = self.feature_size
        if self.use_metadata:
            self.same_speaker = self.add_matrix("same_speaker_embeddings", 2, size)
            self.genres = self.add_matrix("genre_embeddings", self.num_genres, size)
        if self.use_features:
            self.distances = self.add_matrix("distance_embeddings", NUM_DISTANCES, size)
        if self.num_segment_distances:
            name = "segment_distance_embeddings"
            self.segments = self.add_matrix(name, self.num_segment_distances, size)
        self.pair.build()
        if self.coref_depth > 1:
            self.refinement.build()
        self.built = True

    def call(self, spans, antecedents, coarse_scores, genre, memory=None, training=None):
        embeddings = self.cast(spans["embeddings"])
        others = {name: _with_memory(name, spans, memory) for name in _FEATURES}
        rows = [antecedents, coarse_scores, *(spans[name] for name in _FEATURES)]
        levels = [embeddings]
        for depth in range(1, self.coref_depth + 1):
            keys = _with_level(embeddings, memory, depth - 1)
            # The released graph refines once more, to no effect.
            is_last = depth == self.coref_depth
            scored = functools.partial(
                self._scored, keys, self.pair.project(1, keys), others, genre, is_last, training
            )
            num_rows = max(_ROWS // antecedents.shape[2], 1)
            found = in_blocks(scored, [embeddings, *rows], num_rows, training)
            if is_last:
                return found, ops.stack(levels, axis=1)
            _, embeddings = found
            levels.append(embeddings)

    def _scored(self, keys, projected_keys, others, genre, is_last, training, rows):
        """Scores of the pairs of some spans, and their refined embeddings where it is not last."""
        embeddings, antecedents, coarse_scores, *values = rows
        spans = dict(zip(_FEATURES, values))
        antecedent_embeddings = gather_rows(keys, antecedents)  # [B, K, A, D]
        own = [embeddings[:, :, None, :] * antecedent_embeddings]
        features = self._features(spans, others, antecedents, genre)
        if features is not None:
            own.append(self.dropout(features, training=training))
        projected = self.pair.project(2, ops.concatenate(own, axis=-1))
        projected = projected + gather_rows(projected_keys, antecedents)
        projected = projected + self.pair.project(0, embeddings)[:, :, None, :]
        scores = coarse_scores + self.pair(projected, training=training)
        if is_last:
            return scores
        return scores, self._refined(embeddings, antecedent_embeddings, scores)

    def _features(self, spans, others, antecedents, genre):
        """`[B, K, A, features * F]`, or `None` where there are none."""
        rows = []
        if self.use_metadata:
            same = gather_rows(others["speakers"], antecedents) == spans["speakers"][:, :, None]
            rows.append(ops.take(self.same_speaker, ops.cast(same, "int32"), axis=0))
            of_genre = ops.take(self.genres, genre, axis=0)[:, None, None, :]
            rows.append(ops.broadcast_to(of_genre, (*ops.shape(antecedents), self.feature_size)))
        if self.use_features:
            distance = spans["index"][:, :, None] - gather_rows(others["index"], antecedents)
            rows.append(ops.take(self.distances, distance_bucket(distance), axis=0))
        if self.num_segment_distances:
            distance = spans["segments"][:, :, None] - gather_rows(others["segments"], antecedents)
            distance = ops.clip(distance, 0, self.num_segment_distances - 1)
            rows.append(ops.take(self.segments, distance, axis=0))
        if not rows:
            return None
        return self.cast(ops.concatenate(rows, axis=-1))

    def _refined(self, embeddings, others, scores):
        """Each span's embedding, mixed with those that it may refer to, itself for none."""
        scores = ops.concatenate([ops.zeros_like(scores[:, :, :1]), scores], axis=2)
        weights = ops.cast(ops.softmax(scores, axis=-1), embeddings.dtype)
        attended = weights[:, :, :1] * embeddings
        attended = attended + ops.matmul(weights[:, :, None, 1:], others)[:, :, 0, :]
        return self.refinement(embeddings, attended)

    def compute_output_spec(self, spans, antecedents, coarse_scores, *args, **kwargs):
        batch, *shape = spans["embeddings"].shape
        return (
            keras.KerasTensor(coarse_scores.shape, dtype="float32"),
            keras.KerasTensor((batch, self.coref_depth, *shape), dtype=self.compute_dtype),
        )

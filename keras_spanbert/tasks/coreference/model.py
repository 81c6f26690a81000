"""Coreference resolution: the model, its arguments, losses, and weights in checkpoints."""

import inspect
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from keras_spanbert.checks import check_in
from keras_spanbert.models.checkpoint_entries import Checkpoint, Entry, TensorGroup
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.serving.saved_model import strings
from keras_spanbert.tasks.coreference.inference import serve_clusters
from keras_spanbert.tasks.coreference.layers import gather_rows
from keras_spanbert.tasks.coreference.preprocessor import (
    GENRES,
    SpanBertCoreferenceResolverPreprocessor,
    check_arguments,
)
from keras_spanbert.tasks.coreference.resolving import DocumentInputs
from keras_spanbert.tasks.coreference.scoring import (
    NUM_DISTANCES,
    ResolverLayers,
    feature_rows,
    model_inputs,
)
from keras_spanbert.training.losses import WeightedMean
from keras_spanbert.training.optimizer import TwoRateAdam

# Arguments that change neither which weights exist nor what they mean.
_FREE = {
    "max_segment_len", "top_span_ratio", "max_top_antecedents", "max_num_speakers",
    "dropout_rate", "singletons",
}  # fmt: skip
# Arguments that the preprocessor has too, with its name for them.
SHARED = {
    "max_segment_len": "sequence_length",
    "model_type": "model_type",
    "max_num_speakers": "max_num_speakers",
    "genres": "genres",
}


# Released tables of the features of a pair.
_FEATURES = {
    "same_speaker": "coref_layer.same_speaker_emb",
    "genre": "genre_embeddings.weight",
    "distance": "coref_layer.antecedent_distance_emb",
    "segment_distance": "coref_layer.segment_distance.segment_distance_embeddings.weight",
}


def head_entries(settings: dict) -> Iterator[Entry]:
    """Yields the tensors outside the encoder, for settings of the encoder and the resolver."""
    H, F, W = settings["hidden_size"], settings["feature_size"], settings["max_span_width"]
    uses = {name: bool(settings[f"use_{name}"]) for name in ("features", "metadata", "prior")}
    heads = bool(settings["model_heads"])
    D = 2 * H + F * uses["features"] + H * heads  # Size of a span's embedding.

    def feed_forward(name, path, pieces):
        pieces = [size for size in pieces if size]
        size, depth = settings["ffnn_size"], settings["ffnn_depth"]
        for i in range(depth + 1):
            is_last = i == depth
            rows, columns = size if i else sum(pieces), 1 if is_last else size
            layers = [f"hidden_{i}"] if i else [f"input_{j}" for j in range(len(pieces))]
            kernels = tuple(f"{path}/{layer}/kernel" for layer in layers)
            weights, bias = f"hidden_weights_{i}", f"hidden_bias_{i}"
            if is_last:
                weights, bias = "output_weights", "bias"
            yield Entry(f"{name}.{weights}", kernels, (rows, columns))
            yield Entry(f"{name}.{bias}", f"{path}/{layers[0]}/bias", (columns,))

    def dense(name, path, rows, columns):
        yield Entry(f"{name}.output_weights", f"{path}/kernel", (rows, columns))
        yield Entry(f"{name}.bias", f"{path}/bias", (columns,))

    if settings["model_type"] == "overlap":
        yield from dense("combo", "token_gate/gate", 2 * H, H)
    if uses["features"]:
        yield Entry("span_width_embeddings.weight", "span_widths/embeddings", (W, F))
    if heads:
        yield from dense("mention_word_attn", "span_heads/attention", H, 1)
    yield from feed_forward("mention_scores", "mention_scores/mention", [H, H, D - 2 * H])
    if uses["prior"]:
        path = "mention_scores/width_embeddings"
        yield Entry("span_width_prior_embeddings.weight", path, (W, F))
        yield from feed_forward("width_scores", "mention_scores/width", [F])
    yield from dense("src_projection", "coarse_scores/source", D, D)
    if uses["prior"]:
        path = "coarse_scores/distance_embeddings"
        yield Entry("antecedent_distance_emb", path, (NUM_DISTANCES, F))
        yield Entry("output_weights", "coarse_scores/distance/kernel", (F, 1))
        yield Entry("output_bias", "coarse_scores/distance/bias", (1,))
    if not settings["fine_grained"]:
        return
    features = feature_rows(settings)
    for feature, rows in features.items():
        yield Entry(_FEATURES[feature], f"fine_scores/{feature}_embeddings", (rows, F))
    name = "coref_layer.slow_antecedent_scores"
    yield from feed_forward(name, "fine_scores/pair", [D, D, D + len(features) * F])
    if settings["coref_depth"] > 1:
        yield from dense("coref_layer.f", "fine_scores/refinement/gate", 2 * D, D)


def infer_arguments(tensors: dict) -> dict:
    """Infers the resolver's arguments from the `Tensor`s of a checkpoint, by name."""
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    hidden = [name for name in shapes if name.startswith("mention_scores.hidden_weights_")]
    widths, prior = "span_width_embeddings.weight", "span_width_prior_embeddings.weight"
    arguments = {
        "use_features": widths in shapes,
        "use_metadata": _FEATURES["same_speaker"] in shapes,
        "use_prior": prior in shapes,
        "use_segment_distance": _FEATURES["segment_distance"] in shapes,
        "model_heads": "mention_word_attn.output_weights" in shapes,
        "fine_grained": "coref_layer.slow_antecedent_scores.output_weights" in shapes,
        "ffnn_depth": len(hidden),
    }
    if hidden:
        arguments["ffnn_size"] = shapes[hidden[0]][-1]
    for name in (widths, prior):
        if name in shapes:
            arguments["max_span_width"], arguments["feature_size"] = shapes[name]
    if arguments["use_segment_distance"]:
        distances = shapes[_FEATURES["segment_distance"]]
        arguments["max_training_sentences"], arguments["feature_size"] = distances
    return arguments


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertCoreferenceResolver(DocumentInputs, SpanBertTask):
    """Finds the mentions of a document and clusters those that refer to the same thing.

    Every span of a sentence gets a mention score. The best spans that do not cross are kept. A
    cheap score of all pairs selects possible antecedents of each span. A better score, which also
    uses a mention's likely antecedents, then chooses one of them, or none.

    `fit`, its `validation_data` and `evaluate` take a list of documents, in the format
    of `SpanBertCoreferenceResolverPreprocessor.segment`, or batches of arrays. By
    default a batch is one document. `fit` cuts documents with more than
    `max_training_sentences` segments to that many, at another place in each epoch.

    Args:
        backbone: `SpanBertBackbone`.
        preprocessor: `SpanBertCoreferenceResolverPreprocessor`. Defaults to `None`.
        model_type: "independent" or "overlap", see the preprocessor. Defaults to `"independent"`.
        max_segment_len: int. Longest segment, in tokens. Defaults to `384`.
        max_training_sentences: int. Maximum number of segments of a document in
            training, and number of segment distances. Defaults to `3`.
        max_span_width: int. Longest mention, in tokens. Defaults to `30`.
        top_span_ratio: float. Number of spans to keep per token. Defaults to `0.4`.
        max_top_antecedents: int. Number of possible antecedents of a mention. Defaults to `50`.
        ffnn_size: int. Size of the hidden layers of scores. Defaults to `3000`.
        ffnn_depth: int. Number of hidden layers of scores. Defaults to `1`.
        feature_size: int. Size of the embeddings of features. Defaults to `20`.
        coref_depth: int. Number of times that pairs are scored. Before the second,
            mentions are mixed with their likely antecedents. Defaults to `2`.
        fine_grained: bool. Whether to score pairs with a network. Otherwise the
            cheap score decides. Defaults to `True`.
        use_prior: bool. Whether to use scores that depend only on the width and
            the distance. Defaults to `True`.
        use_metadata: bool. Whether to use speakers and genre. Defaults to `True`.
        use_features: bool. Whether to use width and distance. Defaults to `True`.
        use_segment_distance: bool. Whether to use the distance in segments. Defaults to `True`.
        model_heads: bool. Whether a span's embedding includes its attended head.
            Defaults to `True`.
        max_num_speakers: int. See the preprocessor. Defaults to `20`.
        genres: strings. See the preprocessor. Defaults to those of OntoNotes.
        dropout_rate: float. Dropout rate of the heads. The encoder has its own. Defaults to `0.3`.
        singletons: bool. Whether to find mentions that are in no cluster with
            another, trained with a loss of mention scores (Xu and Choi 2021).
            OntoNotes has no such mentions. Defaults to `False`.

    Call shapes:
        The arrays that `preprocess` returns, to a dict of `candidate_mention_scores` float
        `[B, N]`, `top_spans` int32 `[B, K]`, indices of candidates, `top_antecedents` int32
        `[B, K, A]`, and `top_antecedent_scores` float `[B, K, 1 + A]`.

    Raises:
        ValueError: if an argument is out of its range, or differs from the preprocessor's.

    Example:
    ```python
    resolver = keras_spanbert.SpanBertCoreferenceResolver.from_preset("spanbert_hf_base.tar.gz")
    document = {
        "sentences": [["Ann", "left", "."], ["She", "was", "tired", "."]],
        "clusters": [[(0, 0), (3, 3)]],
    }
    resolver.fit([document])
    resolver.score_document(document)["clusters"]
    ```

    Reference:
        [Joshi et al. 2019](https://arxiv.org/abs/1908.09091),
        [Lee et al. 2018](https://arxiv.org/abs/1804.05392), and
        [Xu and Choi 2021](https://arxiv.org/abs/2109.00185).
    """

    preprocessor_cls = SpanBertCoreferenceResolverPreprocessor
    tensor_groups = (TensorGroup("mention_scores.", head_entries),)
    scores = {"average_f1": "average F1"}
    best_score = "average_f1"
    loss_unit = "nats per document"

    def __init__(
        self,
        backbone,
        preprocessor=None,
        model_type: str = "independent",
        max_segment_len: int = 384,
        max_training_sentences: int = 3,
        max_span_width: int = 30,
        top_span_ratio: float = 0.4,
        max_top_antecedents: int = 50,
        ffnn_size: int = 3000,
        ffnn_depth: int = 1,
        feature_size: int = 20,
        coref_depth: int = 2,
        fine_grained: bool = True,
        use_prior: bool = True,
        use_metadata: bool = True,
        use_features: bool = True,
        use_segment_distance: bool = True,
        model_heads: bool = True,
        max_num_speakers: int = 20,
        genres=GENRES,
        dropout_rate: float = 0.3,
        singletons: bool = False,
        **kwargs,
    ):
        values = locals()
        config = {name: values[name] for name in DEFAULTS}
        check_arguments(**config)
        config["genres"] = tuple(genres)
        self.backbone = backbone
        longest = backbone.max_sequence_length
        rule = f"at most the backbone's {longest}"
        check_in("max_segment_len", max_segment_len, max_segment_len <= longest, rule)
        if use_metadata and not config["genres"]:
            raise ValueError("`genres` must have at least one with `use_metadata`. Received: none")
        # === Config ===
        for name, value in config.items():
            setattr(self, name, value)
        self.preprocessor = preprocessor

        # === Layers ===
        self.resolver_layers = ResolverLayers(backbone, config)

        # === Functional Model ===
        inputs = model_inputs(model_type)
        super().__init__(inputs=inputs, outputs=self.resolver_layers.outputs(inputs), **kwargs)

    @classmethod
    def from_source(cls, source, load_weights: bool = True, **kwargs):
        fixed = source.saved(cls) if load_weights else None
        if isinstance(source, Checkpoint) and cls.is_in(source):
            # Sizes must match. Weights of a feature that is switched off are not used.
            found = infer_arguments(source.tensors)
            fixed = {name: value for name, value in found.items() if not isinstance(value, bool)}
        for name in sorted(kwargs.keys() & (fixed or {}).keys() & DEFAULTS.keys() - _FREE):
            given, of_weights = kwargs[name], fixed[name]
            if name == "genres":
                given, of_weights = given and list(given), list(of_weights)
            check_in(name, given, given == of_weights, f"that of the weights, {of_weights!r}")
        shared = {SHARED[name]: kwargs[name] for name in SHARED if name in kwargs}
        is_own = source.saved(cls.preprocessor_cls) is not None
        if source.has_vocabulary and "preprocessor" not in kwargs and (shared or not is_own):
            kwargs["preprocessor"] = cls.preprocessor_cls.from_source(source, **shared)
            of_it = {n: getattr(kwargs["preprocessor"], own) for n, own in SHARED.items()}
            kwargs = {**of_it, **kwargs}
        return super().from_source(source, load_weights, **kwargs)

    @classmethod
    def arguments_in(cls, checkpoint: Checkpoint) -> dict:
        longest = checkpoint.settings["max_position_embeddings"]
        found = infer_arguments(checkpoint.tensors) if cls.is_in(checkpoint) else {}
        length = min(longest, DEFAULTS["max_segment_len"])
        return {**DEFAULTS, "max_segment_len": length, **found}

    def head_flops(self, num_predictions: int = 0) -> float:
        # Counts a segment's share of a document of `max_training_sentences` segments.
        layers, tokens = self.resolver_layers, self.max_segment_len
        size, hidden_dim = layers.embedding_dim, self.backbone.hidden_dim
        candidates, kept = tokens * self.max_span_width, tokens * self.top_span_ratio
        pairs = kept * min(kept, self.max_top_antecedents)

        def network(layer, num_shared, num_rows):
            """Counts a network whose first two pieces are multiplied once for each span."""
            sizes = [int(np.prod(x.kernel.shape)) for x in [*layer.pieces, *layer.hidden]]
            return num_shared * sum(sizes[:2]) + num_rows * sum(sizes[2:])

        products = network(layers.mention.mention, tokens, candidates)
        if self.model_heads:
            products += tokens * hidden_dim + candidates * 2 * self.max_span_width * hidden_dim
        products += kept * size * size + kept * kept * self.max_training_sentences * size
        if self.fine_grained:
            products += layers.num_levels * network(layers.fine.pair, kept, pairs)
            products += (layers.num_levels - 1) * (pairs * size + kept * 2 * size * size)
        return 2.0 * products

    def serving_function(self):
        """Returns the function from texts to mentions for a SavedModel, and its input specs."""
        self.check_preprocessor()
        return lambda text: serve_clusters(self, text), strings("text")

    def compile(self, optimizer="auto", loss="auto", **kwargs):
        """Configures training.

        Args:
            optimizer: `"auto"`, a Keras optimizer or its name. Defaults to
                `"auto"`, `TwoRateAdam` with learning rates 2e-5 for the encoder and
                1e-4 for the heads. The gradients of each are clipped to norm 1.
            loss: `"auto"`. The loss is the negative marginal log-likelihood of the
                right antecedents, summed over the spans of a document. With
                `singletons`, the loss of mention scores is added.
            **kwargs: see `keras.Model.compile`.
        """
        # Keras saves the default loss, and earlier versions saved none.
        if loss not in ("auto", None) and not isinstance(loss, WeightedMean):
            raise ValueError(f'`loss` must be "auto". Received: loss={loss}')
        super().compile(optimizer=optimizer, **kwargs)
        self.build_loss(ops.zeros((1,)))

    def default_optimizer(self):
        return TwoRateAdam(heads=self.head_names())

    def default_loss(self):
        return WeightedMean()  # `compute_loss` passes the losses of documents.

    def head_names(self) -> list[str]:
        """Returns the names of the layers outside the encoder: see `TwoRateAdam`."""
        return [name for name, layer in self.head_layers().items() if layer.trainable_weights]

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Returns the mean over documents of weight x loss, summed over their spans."""
        if y is None:
            raise ValueError(
                "Documents to train on must have `clusters`, and batches of arrays `cluster_ids`. "
                "Received: y=None"
            )
        labels = gather_rows(y["cluster_ids"], y_pred["top_spans"])
        mention_scores = gather_rows(y_pred["candidate_mention_scores"], y_pred["top_spans"])
        losses = self.span_losses(
            y_pred["top_antecedent_scores"], y_pred["top_antecedents"], mention_scores, labels
        )
        # Spans that fill up the kept spans are padding.
        losses = losses * ops.cast(x["top_span_mask"], losses.dtype)
        losses = ops.sum(losses, axis=-1)
        if isinstance(sample_weight, dict):  # By the names of the labels, if `fit` gets arrays.
            sample_weight = sample_weight["cluster_ids"]
        return super().compute_loss(x, losses, losses, sample_weight, training)

    def span_losses(self, scores, antecedents, mention_scores, labels):
        """Returns the loss of each span that is kept, nats `[B, K]`.

        It is the negative log-likelihood of the right antecedents, plus that of mention scores with
        `singletons`. `scores` are `[B, K, 1 + A]`, first of no antecedent, -inf for a missing one;
        `antecedents` int `[B, K, A]`; `labels` int `[B, K]`, each span's gold cluster, 0 for none.
        """
        # https://arxiv.org/abs/1707.07045, section 4.
        labels, shape = ops.convert_to_tensor(labels), ops.shape(antecedents)
        flat = ops.reshape(antecedents, (shape[0], shape[1] * shape[2]))
        is_right = (
            ops.reshape(ops.take_along_axis(labels, flat, axis=1), shape) == labels[..., None]
        )
        is_right = is_right & (labels[..., None] > 0) & (scores[..., 1:] > -np.inf)
        has_none = ops.logical_not(ops.any(is_right, axis=-1, keepdims=True))
        is_right = ops.concatenate([has_none, is_right], axis=-1)
        right = ops.logsumexp(ops.where(is_right, scores, -np.inf), axis=-1)
        losses = ops.logsumexp(scores, axis=-1) - right
        if self.singletons:  # The binary cross-entropy of each span being a gold mention or not.
            scores = ops.where(labels > 0, -mention_scores, mention_scores)
            losses = losses + ops.softplus(scores)
        return losses

    def set_up_preprocessor(self) -> None:
        if self.preprocessor is not None:
            for name, of_it in SHARED.items():
                given, value = getattr(self, name), getattr(self.preprocessor, of_it)
                check_in(name, given, given == value, f"the preprocessor's, {value!r}")


_PARAMETERS = inspect.signature(SpanBertCoreferenceResolver.__init__).parameters.values()
# The arguments with defaults, except the preprocessor.
DEFAULTS = {
    p.name: p.default
    for p in _PARAMETERS
    if p.default is not inspect.Parameter.empty and p.name != "preprocessor"
}
SpanBertCoreferenceResolver.config_names = tuple(DEFAULTS)

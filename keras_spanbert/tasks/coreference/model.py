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

# Arguments that determine which weights exist and what they mean.
_FIXED_BY_WEIGHTS = (
    "model_type", "max_training_sentences", "max_span_width", "ffnn_size", "ffnn_depth",
    "feature_size", "coref_depth", "fine_grained", "use_prior", "use_metadata", "use_features",
    "use_segment_distance", "model_heads", "genres",
)  # fmt: skip
# Arguments that the preprocessor has too, with its name for them.
SHARED = {
    "max_segment_len": "sequence_length",
    "model_type": "model_type",
    "max_num_speakers": "max_num_speakers",
    "genres": "genres",
}


def check_shared(arguments: dict, preprocessor) -> None:
    """Raises a `ValueError` if a resolver's arguments differ from its preprocessor's."""
    for name, of_it in SHARED.items():
        given, value = arguments[name], getattr(preprocessor, of_it)
        check_in(name, given, given == value, f"the preprocessor's, {value!r}")


def marginal_loss(scores, antecedents, labels):
    """Returns the negative log-likelihood of the right antecedents of each span, nats `[..., K]`.

    `scores` are `[..., K, 1 + A]`, first of no antecedent, -inf for a missing one; `antecedents`
    int `[..., K, A]`; and `labels` int `[..., K]`, each span's gold cluster, 0 for none.
    """
    # https://arxiv.org/abs/1707.07045, section 4.
    shape = ops.shape(antecedents)
    flat = ops.reshape(antecedents, (*shape[:-2], shape[-2] * shape[-1]))
    of_antecedents = ops.reshape(ops.take_along_axis(labels, flat, axis=-1), shape)
    is_right = (of_antecedents == labels[..., None]) & (labels[..., None] > 0)
    is_right = is_right & (scores[..., 1:] > -np.inf)
    has_none = ops.logical_not(ops.any(is_right, axis=-1, keepdims=True))
    is_right = ops.concatenate([has_none, is_right], axis=-1)
    right = ops.logsumexp(ops.where(is_right, scores, -np.inf), axis=-1)
    return ops.logsumexp(scores, axis=-1) - right


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

    def shape(name):
        return tensors[name].shape if name in tensors else None

    hidden = [name for name in tensors if name.startswith("mention_scores.hidden_weights_")]
    arguments = {
        "use_features": "span_width_embeddings.weight" in tensors,
        "use_metadata": _FEATURES["same_speaker"] in tensors,
        "use_prior": "span_width_prior_embeddings.weight" in tensors,
        "model_heads": "mention_word_attn.output_weights" in tensors,
        "fine_grained": "coref_layer.slow_antecedent_scores.output_weights" in tensors,
        "ffnn_depth": len(hidden),
    }
    if hidden:
        arguments["ffnn_size"] = shape(hidden[0])[-1]
    widths = shape("span_width_embeddings.weight") or shape("span_width_prior_embeddings.weight")
    if widths:
        arguments["max_span_width"], arguments["feature_size"] = widths
    distances = shape(_FEATURES["segment_distance"])
    arguments["use_segment_distance"] = bool(distances)
    if distances:
        arguments["max_training_sentences"], arguments["feature_size"] = distances
    return arguments


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertCoreferenceResolver(DocumentInputs, SpanBertTask):
    """Finds the mentions of a document and clusters those that refer to the same thing.

    Every span of a sentence gets a mention score. The best spans that do not cross
    are kept. A cheap score of all pairs selects possible antecedents of each span. A
    better score then chooses one of them, or none. It also uses what is known
    about a mention's likely antecedents.

    `fit` and `evaluate` take a list of documents, in the format of
    `SpanBertCoreferenceResolverPreprocessor.segment`, or batches of arrays.
    `validation_data` of `fit` can be a list of documents too. By default a batch is
    one document. `fit` cuts documents with more than `max_training_sentences`
    segments to that many, at another place in each epoch.

    Args:
        backbone: `SpanBertBackbone`.
        preprocessor: `SpanBertCoreferenceResolverPreprocessor`. Defaults to
            `None`.
        model_type: "independent", segments that are encoded independently, or
            "overlap", where each token is encoded in two segments. Defaults to
            `"independent"`.
        max_segment_len: int. Longest segment, in tokens. Defaults to `384`.
        max_training_sentences: int. Maximum number of segments of a document in
            training, and number of segment distances. Defaults to `3`.
        max_span_width: int. Longest mention, in tokens. Defaults to `30`.
        top_span_ratio: float. Number of spans to keep per token. Defaults to
            `0.4`.
        max_top_antecedents: int. Number of possible antecedents of a mention.
            Defaults to `50`.
        ffnn_size: int. Size of the hidden layers of scores. Defaults to `3000`.
        ffnn_depth: int. Number of hidden layers of scores. Defaults to `1`.
        feature_size: int. Size of the embeddings of features. Defaults to `20`.
        coref_depth: int. Number of times that pairs are scored. With 2, they are
            scored again after mentions were mixed with their likely antecedents.
            Defaults to `2`.
        fine_grained: bool. Whether to score pairs with a network. Otherwise the
            cheap score decides. Defaults to `True`.
        use_prior: bool. Whether to use scores that depend only on the width and
            the distance. Defaults to `True`.
        use_metadata: bool. Whether to use speakers and genre. Defaults to `True`.
        use_features: bool. Whether to use width and distance. Defaults to `True`.
        use_segment_distance: bool. Whether to use the distance in segments.
            Defaults to `True`.
        model_heads: bool. Whether a span's embedding includes its attended head.
            Defaults to `True`.
        max_num_speakers: int. See the preprocessor. Defaults to `20`.
        genres: strings. See the preprocessor. Defaults to those of OntoNotes.
        dropout_rate: float. Dropout rate of the heads. The encoder has its own.
            Defaults to `0.3`.
        singletons: bool. Whether to find mentions that are in no cluster with
            another, trained with a loss of mention scores (Xu and Choi 2021).
            OntoNotes has no such mentions. Defaults to `False`.

    Call shapes:
        The arrays that `preprocess` returns, to a dict of
        `candidate_mention_scores` float `[B, N]`, `top_spans` int32 `[B, K]`,
        indices of candidates,
        `top_antecedents` int32 `[B, K, A]`, and `top_antecedent_scores` float
        `[B, K, 1 + A]`.

    Raises:
        ValueError: if an argument is out of its range, or differs from the
            preprocessor's.

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
        # === Layers ===
        self.preprocessor = preprocessor
        if preprocessor is not None:
            check_shared(config, preprocessor)
        self.resolver_layers = ResolverLayers(backbone, config)

        # === Functional Model ===
        inputs = model_inputs(model_type)
        super().__init__(inputs=inputs, outputs=self.resolver_layers.outputs(inputs), **kwargs)

        # === Config ===
        for name, value in config.items():
            setattr(self, name, value)

    @classmethod
    def from_source(cls, source, load_weights: bool = True, **kwargs):
        fixed = source.saved(cls) if load_weights else None
        if isinstance(source, Checkpoint) and cls.is_in(source):
            # Sizes must match. Weights of a feature that is switched off are not used.
            found = infer_arguments(source.tensors)
            fixed = {name: value for name, value in found.items() if not isinstance(value, bool)}
        for name in _FIXED_BY_WEIGHTS:
            if name in kwargs and name in (fixed or {}):
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
        return self.resolver_layers.flops()

    def serving_function(self):
        """Returns the function from texts to mentions for a SavedModel, and its input specs."""
        self.check_preprocessor()
        return serve_clusters(self), strings("text")

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
        """Returns the loss of each span that is kept, `[..., K]`: see `marginal_loss`."""
        labels = ops.convert_to_tensor(labels)
        losses = marginal_loss(scores, antecedents, labels)
        if self.singletons:  # The binary cross-entropy of each span being a gold mention or not.
            scores = ops.where(labels > 0, -mention_scores, mention_scores)
            losses = losses + ops.softplus(scores)
        return losses

    def check_preprocessor(self) -> None:
        super().check_preprocessor()
        check_shared({name: getattr(self, name) for name in SHARED}, self.preprocessor)


_PARAMETERS = inspect.signature(SpanBertCoreferenceResolver.__init__).parameters.values()
# The arguments with defaults, except the preprocessor.
DEFAULTS = {
    p.name: p.default
    for p in _PARAMETERS
    if p.default is not inspect.Parameter.empty and p.name != "preprocessor"
}
SpanBertCoreferenceResolver.config_names = tuple(DEFAULTS)

"""Coreference resolution."""

import inspect

import keras
from keras import ops

from keras_spanbert.checks import check_in
from keras_spanbert.models.checkpoint_entries import Checkpoint, TensorGroup
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.serving.signature import strings
from keras_spanbert.tasks.coreference.arguments import (
    SHARED,
    check_arguments,
    check_shared,
    check_weights_fit,
    shared_arguments,
)
from keras_spanbert.tasks.coreference.checkpoint_entries import head_entries, infer_arguments
from keras_spanbert.tasks.coreference.decoding import marginal_loss, mention_loss
from keras_spanbert.tasks.coreference.documents import DocumentInputs
from keras_spanbert.tasks.coreference.graph import ResolverLayers, model_inputs
from keras_spanbert.tasks.coreference.preprocessor import (
    GENRES,
    SpanBertCoreferenceResolverPreprocessor,
)
from keras_spanbert.tasks.coreference.serving import clusters
from keras_spanbert.tasks.coreference.spans import gather_rows
from keras_spanbert.training.losses import WeightedMean
from keras_spanbert.training.two_rate_adam import TwoRateAdam


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
    demo_page = "keras_spanbert.demo.clusters:page"
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
        longest = backbone.max_sequence_length
        rule = f"at most the backbone's {longest}"
        check_in("max_segment_len", max_segment_len, max_segment_len <= longest, rule)
        if use_metadata and not config["genres"]:
            raise ValueError("`genres` must have at least one with `use_metadata`. Received: none")
        # === Layers ===
        self.backbone = backbone
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
        check_weights_fit(kwargs, fixed or {})
        shared = {SHARED[name]: kwargs[name] for name in SHARED if name in kwargs}
        is_own = source.saved(cls.preprocessor_cls) is not None
        if source.has_vocabulary and "preprocessor" not in kwargs and (shared or not is_own):
            kwargs["preprocessor"] = cls.preprocessor_cls.from_source(source, **shared)
            kwargs = {**shared_arguments(kwargs["preprocessor"]), **kwargs}
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
        return clusters(self), strings("text")

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
        if loss not in ("auto", None):
            raise ValueError(f'`loss` must be "auto". Received: loss={loss}')
        super().compile(optimizer=optimizer, **kwargs)

    def default_optimizer(self):
        return TwoRateAdam(heads=self.head_names())

    def head_names(self) -> list[str]:
        """Returns the names of the layers outside the encoder: see `TwoRateAdam`."""
        heads = [layer for layer in self.layers if layer.trainable_weights]
        return [layer.name for layer in heads if layer is not self.backbone]

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Returns the weighted mean over documents of the loss, summed over their spans."""
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
        return WeightedMean()(losses, losses, sample_weight) + sum(self.losses)

    def span_losses(self, scores, antecedents, mention_scores, labels):
        """Returns the loss of each span that is kept, `[..., K]`: see `decoding`."""
        losses = marginal_loss(scores, antecedents, labels)
        return losses + mention_loss(mention_scores, labels) if self.singletons else losses

    def check_preprocessor(self) -> None:
        super().check_preprocessor()
        check_shared({name: getattr(self, name) for name in SHARED}, self.preprocessor)

    def quantize(self, mode=None, **kwargs) -> None:
        super().quantize(mode, **kwargs)
        # It was compiled with the old weights.
        self.resolver_layers.__dict__.pop("chunk_model", None)

    def get_config(self):
        config = super().get_config()
        config.update({name: getattr(self, name) for name in DEFAULTS})
        config["genres"] = list(self.genres)
        return config


_PARAMETERS = inspect.signature(SpanBertCoreferenceResolver.__init__).parameters.values()
# The arguments with defaults, except the preprocessor.
DEFAULTS = {
    p.name: p.default
    for p in _PARAMETERS
    if p.default is not inspect.Parameter.empty and p.name != "preprocessor"
}

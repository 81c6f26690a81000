"""The SpanBERT pretraining task: masked language model and span boundaries."""

from collections.abc import Callable

import keras
import numpy as np

from keras_spanbert.data.masked_batches import EVALUATION_SEED
from keras_spanbert.distribution import check_rows
from keras_spanbert.layers.initializers import kernel_initializer
from keras_spanbert.layers.masked_lm_head import MaskedLMHead
from keras_spanbert.layers.span_boundary_head import SpanBoundaryHead
from keras_spanbert.models import batches
from keras_spanbert.models.checkpoint_entries import Part
from keras_spanbert.models.strings import as_strings, well_formed
from keras_spanbert.models.task import SpanBertTask, weights_of
from keras_spanbert.serving.embeddings import embeddings
from keras_spanbert.serving.signature import strings
from keras_spanbert.tasks.pretrain.checkpoint_entries import mlm_entries, sbo_entries
from keras_spanbert.tasks.pretrain.filling import fill, score
from keras_spanbert.tasks.pretrain.masked_strings import CountSteps, masked_strings
from keras_spanbert.tasks.pretrain.preprocessor import SpanBertPretrainerPreprocessor
from keras_spanbert.training.losses import WeightedMeanCrossentropy, sparse_crossentropy
from keras_spanbert.training.optimizer import AdamW

HEADS = ("mlm", "sbo")


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertPretrainer(SpanBertTask):
    """Pretrains SpanBERT with both of its objectives, and fills blanks with it.

    The loss is the mean MLM cross-entropy over masked tokens plus `sbo_weight`
    times the mean SBO cross-entropy over tokens with an SBO target, in nats.
    Compiled by default with AdamW, this loss, and accuracy and cross-entropy of
    both heads, each weighted so that padding does not count.

    With a preprocessor, `fit`, `evaluate` and `predict` take strings: a list,
    tuple, array or tensor of them, or batches of such. `fit` masks afresh in
    each epoch, `evaluate` and `predict` always the same, both fixed by the
    preprocessor's `seed` whatever the parallelism. All also take what the
    preprocessor returns, and batches of that: see `fit`.

    Args:
        backbone: `SpanBertBackbone`.
        preprocessor: `SpanBertPretrainerPreprocessor`. Defaults to `None`.
        max_span_tokens: int. Number of offsets in a span that SBO predicts.
            Defaults to `15`.
        position_dim: int. Size of SBO's offset embedding. Defaults to `200`.
        sbo_weight: float. Weight of the SBO loss. Defaults to `1.0`.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[B, L]` with
        `{"mask_positions", "span_left", "span_right", "span_offsets"}` int32
        `[B, M]`, to logits `{"mlm", "sbo"}`, each `[B, M, V]`.

    Example:
    ```python
    pretrainer = keras_spanbert.SpanBertPretrainer(
        keras_spanbert.SpanBertBackbone(
            vocabulary_size=tokenizer.vocabulary_size(),
            **keras_spanbert.SpanBertBackbone.SIZES["tiny"],
        ),
        keras_spanbert.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=64),
    )
    pretrainer.fit(["The quick brown fox jumped."] * 32)
    pretrainer.fill("The [MASK] [MASK] jumped.", top_k=2)
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 3.
    """

    preprocessor_cls = SpanBertPretrainerPreprocessor
    checkpoint_parts = (
        Part("cls.predictions.", mlm_entries),
        Part("cls.pair_target_predictions.", sbo_entries),
    )
    huggingface_class = "BertForMaskedLM"
    serves_heads = False
    sharding_layout = {
        r"mlm_head/intermediate_dense/kernel": (None, "model"),
        r"sbo_head/dense_\d/kernel": (None, "model"),
    }
    progress_labels = {f"{head}_cross_entropy": head.upper() for head in HEADS}

    def __init__(
        self,
        backbone,
        preprocessor=None,
        max_span_tokens: int = 15,
        position_dim: int = 200,
        sbo_weight: float = 1.0,
        **kwargs,
    ):
        vocabulary_size = getattr(preprocessor, "tokenizer", None) and (
            len(preprocessor.tokenizer.vocabulary or [])
        )
        if vocabulary_size and vocabulary_size > backbone.vocabulary_size:
            raise ValueError(
                f"The vocabulary must fit the backbone's {backbone.vocabulary_size} embeddings. "
                f"Received: {vocabulary_size} tokens"
            )
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.mlm_head = MaskedLMHead(
            token_embedding=backbone.token_embedding,
            activation=backbone.activation,
            layer_norm_epsilon=backbone.layer_norm_epsilon,
            kernel_initializer=kernel_initializer(backbone.initializer_range),
            dtype=backbone.dtype_policy,
            name="mlm_head",
        )
        self.sbo_head = SpanBoundaryHead(
            token_embedding=backbone.token_embedding,
            max_span_tokens=max_span_tokens,
            position_dim=position_dim,
            kernel_initializer=kernel_initializer(backbone.initializer_range),
            dtype=backbone.dtype_policy,
            name="sbo_head",
        )

        # === Functional Model ===
        masks = {
            name: keras.Input(shape=(None,), dtype="int32", name=name)
            for name in ["mask_positions", "span_left", "span_right", "span_offsets"]
        }
        sequence_output = backbone(backbone.input)
        # Set before the base class compiles the model.
        self.sbo_weight = sbo_weight
        super().__init__(
            inputs={**backbone.input, **masks},
            outputs={
                "mlm": self.mlm_head(sequence_output, masks["mask_positions"]),
                "sbo": self.sbo_head(
                    sequence_output,
                    masks["span_left"],
                    masks["span_right"],
                    masks["span_offsets"],
                ),
            },
            **kwargs,
        )

        # === Config ===
        self.max_span_tokens = max_span_tokens
        self.position_dim = position_dim
        self._steps_so_far = 0

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        names = ["max_span_tokens", "position_dim"]
        return {name: settings[name] for name in names if name in settings}

    def set_output_biases(self, log_probabilities: np.ndarray) -> None:
        """Sets the output biases of both heads.

        A new model whose biases are the log-probabilities of the tokens in the
        training text need not learn them first: it starts at the unigram
        distribution's cross-entropy.

        Args:
            log_probabilities: float `[V]`, nats.

        Example:
        ```python
        pretrainer.set_output_biases(np.log(counts / counts.sum()))
        ```
        """
        for bias in self.weights:
            if bias.path.endswith("head/output_bias"):
                bias.assign(log_probabilities)

    def checkpoint_settings(self) -> dict:
        sizes = {"max_span_tokens": self.max_span_tokens, "position_dim": self.position_dim}
        return {**super().checkpoint_settings(), **sizes}

    def head_flops(self, num_predictions: int) -> float:
        hidden = self.backbone.hidden_dim
        mlm = 2 * hidden**2
        sbo = 2 * (2 * hidden + self.position_dim) * hidden + 2 * hidden**2
        vocabulary = 2 * hidden * self.backbone.vocabulary_size
        return float(num_predictions * (mlm + sbo + 2 * vocabulary))

    @classmethod
    def describe(cls, row: dict) -> str:
        return (
            f"held-out MLM {row['val_mlm_cross_entropy']:.3f}  "
            f"SBO {row['val_sbo_cross_entropy']:.3f} nats a token"
        )

    def serving_function(self):
        """The function from strings to embeddings that a SavedModel serves, and their names."""
        longest = min(self.backbone.max_sequence_length, self.preprocessor.sequence_length)
        return embeddings(self.backbone, self.preprocessor.tokenizer, longest), strings("text")

    def compile(
        self,
        optimizer="auto",
        loss="auto",
        *,
        loss_weights="auto",
        weighted_metrics="auto",
        jit_compile="auto",
        **kwargs,
    ):
        """Configures training.

        Args:
            optimizer: `"auto"`, a Keras optimizer or its name. Defaults to
                `"auto"`, AdamW with learning rate 1e-4, weight decay 0.01 and
                gradients clipped to norm 1. To train from nothing, pass one
                with a warm-up: `AdamW(LinearWarmupDecay(...))`.
            loss: `"auto"`, a dict of losses, or one for both heads. Defaults
                to `"auto"`.
            loss_weights: `"auto"` or a dict. Defaults to `"auto"`, 1 and
                `sbo_weight`; none where `loss` is no dict.
            weighted_metrics: `"auto"` or a dict. Defaults to `"auto"`.
            jit_compile: `"auto"` or bool. Defaults to `"auto"`: as Keras
                chooses, but not on TensorFlow without a GPU or TPU, where XLA
                is slower.
            **kwargs: see `keras.Model.compile`.
        """
        if optimizer == "auto":
            optimizer = AdamW()
        if loss == "auto":
            loss = {name: WeightedMeanCrossentropy(from_logits=True) for name in HEADS}
        if loss_weights == "auto":
            loss_weights = weights_of(loss, {"mlm": 1.0, "sbo": self.sbo_weight})
        if weighted_metrics == "auto":
            weighted_metrics = {
                name: [
                    keras.metrics.MeanMetricWrapper(
                        sparse_crossentropy, name="cross_entropy", from_logits=True
                    ),
                    keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
                ]
                for name in HEADS
            }
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            weighted_metrics=weighted_metrics,
            jit_compile=jit_compile,
            **kwargs,
        )

    def check_preprocessor(self) -> None:
        super().check_preprocessor()
        value = self.preprocessor.masking_config["max_span_tokens"]
        if value > self.max_span_tokens:
            raise ValueError(
                "The preprocessor's `max_span_tokens` must be at most the model's "
                f"{self.max_span_tokens}. Received: max_span_tokens={value}"
            )

    def preprocess(self, x, y=None, sample_weight=None, seed=(EVALUATION_SEED, 0)) -> tuple:
        """Strings, masked: see `SpanBertTask.preprocess`. The `seed` fixes the masks."""
        if y is not None or sample_weight is not None:
            raise ValueError(
                "Strings are labels and weights to themselves, so that `y` and `sample_weight` "
                f"must be None. Received: y={y!r:.80}, sample_weight={sample_weight!r:.80}"
            )
        self.check_preprocessor()
        return self.preprocessor(as_strings(x=x), seed=seed)

    def start_preprocessing(self, is_training: bool) -> Callable:
        first = self._steps_so_far if is_training else 0

        def mask(number, x, y, sample_weight):
            self.check_preprocessor()
            seed = self.preprocessor.masking.base_seed if is_training else EVALUATION_SEED
            return self.preprocess(x, y, sample_weight, seed=(seed, first + number))

        return mask

    def preprocess_rows(
        self, x, y, sample_weight, batch_size, shuffle, is_training, needs_labels=True
    ) -> tuple:
        # Batches and not arrays, so that masks are fresh in each epoch.
        if y is not None or sample_weight is not None:
            self.preprocess(x, y, sample_weight)  # Says so.
        texts = [well_formed(text) for text in as_strings(x=x)]
        batch_size = batch_size or 32
        check_rows(len(texts), batch_size)
        try:
            import tensorflow as tf
        except ImportError:
            dataset = batches.Rows(texts, batch_size)
        else:
            dataset = tf.data.Dataset.from_tensor_slices(texts)
            dataset = dataset.shuffle(len(texts)) if shuffle else dataset
            dataset = dataset.batch(batch_size)
        return self._preprocessed(dataset, is_training=is_training)

    def preprocess_dataset(self, dataset, is_training: bool):
        return masked_strings(self, dataset, is_training)

    def string_callbacks(self) -> list[keras.callbacks.Callback]:
        return [CountSteps()]

    def fill(
        self,
        texts: str | list[str],
        top_k: int = 5,
        score: str = "both",
        batch_size: int = 32,
    ) -> list:
        """Fills the blanks of texts: runs of `[MASK]`, one for each token.

        A candidate's score is the log-probability (nats) that the MLM head
        gives its tokens plus that of the SBO head, each token on its own.
        Tokens from offset `max_span_tokens` on have no SBO part. Special tokens
        are no candidates.

        Args:
            texts: string or list of strings, each with one `[MASK]` or more.
            top_k: int. Number of candidates a blank. Defaults to `5`.
            score: "both", "mlm" or "sbo", what candidates are ranked by.
                Defaults to `"both"`.
            batch_size: int. Defaults to `32`.

        Returns:
            For each text (of a list) a list with one item a blank: a list of
            candidates, best first, `{"text", "token_ids", "score", "mlm",
            "sbo"}`.

        Raises:
            ValueError: where the model has no preprocessor, a text has no
                `[MASK]` or is too long, `top_k` is below 1 or `score` unknown.

        Example:
        ```python
        pretrainer.fill("The United [MASK] of America")[0][0]["text"]
        ```
        """
        self.warn_if_untrained()
        return fill(self, texts, top_k, score, batch_size)

    def score(
        self, texts: str | list[str], fillings: list, batch_size: int = 32
    ) -> list[dict] | list[list[dict]]:
        """Scores given fillings of the blanks of texts, as `fill` scores its own.

        Args:
            texts: string or list of strings, each with one `[MASK]` or more.
            fillings: list with a string for each blank of the text; for a list
                of texts a list of such lists. A filling has as many tokens as
                its blank has masks.
            batch_size: int. Defaults to `32`.

        Returns:
            For each text (of a list) a list with one item a blank: `{"text",
            "token_ids", "score", "mlm", "sbo"}`, where `score` is the sum of
            both heads' log-probabilities (nats).

        Raises:
            ValueError: where the model has no preprocessor, a text has no
                `[MASK]` or is too long, or the fillings do not fit the blanks.

        Example:
        ```python
        pretrainer.score("The United [MASK] of America", ["States"])[0]["mlm"]
        ```
        """
        self.warn_if_untrained()
        return score(self, texts, fillings, batch_size)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "max_span_tokens": self.max_span_tokens,
                "position_dim": self.position_dim,
                "sbo_weight": self.sbo_weight,
            }
        )
        return config

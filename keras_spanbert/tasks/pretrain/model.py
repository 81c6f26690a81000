"""The SpanBERT pretraining task: masked language model, span boundaries, next sentence."""

from collections.abc import Iterator

import keras
import numpy as np

from keras_spanbert.checks import accepts_datasets, check_counts, check_flags, check_in, check_range
from keras_spanbert.data.batches import Batches
from keras_spanbert.data.training_stream import EVALUATION_SEED
from keras_spanbert.distribution import check_even_rows
from keras_spanbert.layers.sublayers import kernel_initializer
from keras_spanbert.layers.tied_head import MaskedLMHead, SpanBoundaryHead
from keras_spanbert.models.backbone import POOLER, dense_layer, pooler
from keras_spanbert.models.checkpoint_entries import (
    Checkpoint,
    Entry,
    TensorGroup,
    dense,
    layer_norm,
)
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.optional import tf
from keras_spanbert.serving.saved_model import embeddings, strings
from keras_spanbert.tasks.pretrain import objectives
from keras_spanbert.tasks.pretrain.filling import fill, score
from keras_spanbert.tasks.pretrain.preprocessor import SpanBertPretrainerPreprocessor
from keras_spanbert.text.strings import as_strings, replace_surrogates
from keras_spanbert.training.losses import WeightedMeanCrossentropy, sparse_crossentropy
from keras_spanbert.training.optimizer import AdamW
from keras_spanbert.wording import LOG


# Tensors of the heads in a checkpoint, and their weights.
def _mlm_entries(settings: dict) -> Iterator[Entry]:
    H = settings["hidden_size"]
    yield Entry("cls.predictions.bias", "mlm_head/output_bias", (settings["vocab_size"],))
    name = "cls.predictions.transform"
    yield from dense(f"{name}.dense", "mlm_head/intermediate_dense", H, H)
    yield from layer_norm(f"{name}.LayerNorm", "mlm_head/intermediate_layer_norm", H)


def _sbo_entries(settings: dict) -> Iterator[Entry]:
    H, P = settings["hidden_size"], settings["position_dim"]
    name = "cls.pair_target_predictions"
    yield Entry(f"{name}.bias", "sbo_head/output_bias", (settings["vocab_size"],))
    yield Entry(
        f"{name}.position_embeddings.weight",
        "sbo_head/position_embedding/embeddings",
        (settings["max_span_tokens"], P),
    )
    for i, inputs in [(1, 2 * H + P), (2, H)]:
        mlp = f"{name}.mlp_layer_norm"
        yield from dense(f"{mlp}.linear{i}", f"sbo_head/dense_{i}", inputs, H)
        yield from layer_norm(f"{mlp}.layer_norm{i}", f"sbo_head/layer_norm_{i}", H)


_NSP = TensorGroup(
    "cls.seq_relationship.",
    lambda x: dense("cls.seq_relationship", "nsp_head", x["hidden_size"], 2),
)


class CountSteps(keras.callbacks.Callback):
    """Counts the steps of all calls of `fit`.

    On JAX, the optimizer's `iterations` have no value within an epoch.
    """

    def set_model(self, model):
        super().set_model(model)
        # `self.model` would update JAX's state, which is slow at each step.
        self._trained = model

    def on_epoch_begin(self, epoch, logs=None):
        # A recompiled model has a new optimizer. A restored optimizer is ahead.
        optimizer = self.model.optimizer
        updates = int(keras.ops.convert_to_numpy(optimizer.iterations))
        steps = updates * (optimizer.gradient_accumulation_steps or 1)
        self._trained.steps_so_far = max(self._trained.steps_so_far, steps)
        self._batches = 0

    def on_train_batch_end(self, batch, logs=None):
        # With `steps_per_execution`, Keras calls this once for several batches.
        self._trained.steps_so_far += batch + 1 - self._batches
        self._batches = batch + 1


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertPretrainer(SpanBertTask):
    """Pretrains SpanBERT, or a BERT from its ablations, and fills blanks.

    The loss, in nats, is the mean MLM cross-entropy over masked tokens, plus `sbo_weight` times
    that of SBO over tokens with an SBO target and, with `next_sentence`, `nsp_weight` times that of
    the pairs. By default the model is compiled with AdamW (learning rate 1e-4), this loss, and
    accuracy and cross-entropy of each head, in which padding does not count. To train from scratch,
    compile it with a warm-up: `AdamW(LinearWarmupDecay(...))`.

    `fit`, `evaluate` and `predict` take a list, tuple, array or tensor of strings,
    results of the preprocessor, or batches of either: see `fit`. `fit` draws new
    masks in each epoch. `evaluate` and `predict` always use the same masks. All masks
    depend only on the preprocessor's `seed`, not on the parallelism.

    Args:
        backbone: `SpanBertBackbone`.
        preprocessor: `SpanBertPretrainerPreprocessor`. Defaults to `None`.
        max_span_tokens: int. Number of offsets in a span that SBO predicts. Defaults to `15`.
        position_dim: int. Size of SBO's offset embedding. Defaults to `200`.
        sbo_weight: float. Weight of the SBO loss. Defaults to `1.0`.
        span_boundary: bool. Whether to add an SBO head and its inputs. Must equal the
            preprocessor's. Defaults to `True`.
        next_sentence: bool. Whether to add BERT's next-sentence head, the pooler over `[CLS]` and a
            dense layer. Must equal the preprocessor's. Defaults to `False`.
        nsp_weight: float. Weight of the next-sentence loss. Defaults to `1.0`.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[B, L]` with
        `{"mask_positions", "span_left", "span_right", "span_offsets"}` int32
        `[B, M]` (only the first without SBO), to logits `{"mlm", "sbo"}`, each
        `[B, M, V]`, and `"nsp"` `[B, 2]`: follows, comes from elsewhere.

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
    tensor_groups = (
        TensorGroup("cls.predictions.", _mlm_entries),
        TensorGroup("cls.pair_target_predictions.", _sbo_entries),
    )
    huggingface_class = "BertForMaskedLM"
    string_callbacks = (CountSteps,)
    serves_heads = False
    weights_mark_targets = True
    config_names = (
        *("max_span_tokens", "position_dim", "sbo_weight", "nsp_weight"),
        *objectives.CHOICES,
    )
    sharding_layout = {
        r"mlm_head/intermediate_dense/kernel": (None, "model"),
        r"sbo_head/dense_\d/kernel": (None, "model"),
    }
    progress_labels = {f"{n}_cross_entropy": n.upper() for n in objectives.OBJECTIVES}

    def __init__(
        self,
        backbone,
        preprocessor=None,
        max_span_tokens: int = 15,
        position_dim: int = 200,
        sbo_weight: float = 1.0,
        span_boundary: bool = True,
        next_sentence: bool = False,
        nsp_weight: float = 1.0,
        **kwargs,
    ):
        self.backbone = backbone
        tokenizer = getattr(preprocessor, "tokenizer", None)
        vocabulary_size = len(getattr(tokenizer, "vocabulary", None) or [])
        if vocabulary_size > backbone.vocabulary_size:
            raise ValueError(
                f"The vocabulary must fit the backbone's {backbone.vocabulary_size} embeddings. "
                f"Received: {vocabulary_size} tokens"
            )
        check_counts(max_span_tokens=max_span_tokens, position_dim=position_dim)
        check_range("[0, inf)", sbo_weight=sbo_weight, nsp_weight=nsp_weight)
        check_flags(span_boundary=span_boundary, next_sentence=next_sentence)
        # === Layers ===
        self.preprocessor = preprocessor
        self.mlm_head = MaskedLMHead(
            token_embedding=backbone.token_embedding,
            activation=backbone.activation,
            layer_norm_epsilon=backbone.layer_norm_epsilon,
            kernel_initializer=kernel_initializer(backbone.initializer_range),
            dtype=backbone.dtype_policy,
            name="mlm_head",
        )
        self.sbo_head = self.pooler = self.nsp_head = None
        if span_boundary:
            self.sbo_head = SpanBoundaryHead(
                token_embedding=backbone.token_embedding,
                max_span_tokens=max_span_tokens,
                position_dim=position_dim,
                kernel_initializer=kernel_initializer(backbone.initializer_range),
                dtype=backbone.dtype_policy,
                name="sbo_head",
            )
        if next_sentence:
            self.pooler = pooler(backbone)
            self.nsp_head = dense_layer(backbone, 2, "nsp_head")
            self.huggingface_class = "BertForPreTraining"

        # === Functional Model ===
        masks = {
            name: keras.Input(shape=(None,), dtype="int32", name=name)
            for name in objectives.MASK_INPUTS[: 4 if span_boundary else 1]
        }
        sequence_output = backbone(backbone.input)
        positions, *boundaries = masks.values()
        outputs = {"mlm": self.mlm_head(sequence_output, positions)}
        if span_boundary:
            outputs["sbo"] = self.sbo_head(sequence_output, *boundaries)
        if next_sentence:
            outputs["nsp"] = self.nsp_head(self.pooler(sequence_output[:, 0, :]))
        # Set before the base class compiles the model.
        self.span_boundary = bool(span_boundary)
        self.next_sentence = bool(next_sentence)
        self.sbo_weight = sbo_weight
        self.nsp_weight = nsp_weight
        super().__init__(inputs={**backbone.input, **masks}, outputs=outputs, **kwargs)

        # === Config ===
        self.max_span_tokens = max_span_tokens
        self.position_dim = position_dim

    @property
    def objectives(self) -> tuple[str, ...]:
        """Names of the model's objectives and outputs."""
        chosen = {"mlm": True, "sbo": self.span_boundary, "nsp": self.next_sentence}
        return tuple(name for name in objectives.OBJECTIVES if chosen[name])

    @classmethod
    def from_source(cls, source, load_weights: bool = True, **kwargs):
        """Builds the task, optionally with other objectives than those of a preset."""
        saved = source.saved(cls)
        if saved is None:
            return super().from_source(source, load_weights, **kwargs)
        given = {name: kwargs.pop(name) for name in objectives.CHOICES if name in kwargs}
        task = super().from_source(source, load_weights, **kwargs)
        if all({**objectives.CHOICES, **saved}[name] == value for name, value in given.items()):
            return task
        preprocessor = task.preprocessor
        if preprocessor is not None and "preprocessor" not in kwargs:
            config = {**preprocessor.get_config(), **given, "tokenizer": preprocessor.tokenizer}
            preprocessor = type(preprocessor)(**config)
        layers = None if load_weights else ()
        other = task.rebuilt(layers=layers, preprocessor=preprocessor, **given)
        if load_weights:
            old, new = task.head_layers(), other.head_layers()
            added = " and ".join(n for n in new if n not in old)
            removed = " and ".join(n for n in old if n not in new)
            notes = []
            if added:
                notes.append(f"has no weights for {added}, which start from random weights")
            if removed:
                notes.append(f"has weights for {removed}, which are not used")
            LOG.warning("%s %s", source.name, "; ".join(notes))
        return other

    @classmethod
    def tensor_groups_for(cls, arguments: dict) -> tuple[TensorGroup, ...]:
        chosen = {**objectives.CHOICES, **arguments}
        groups = cls.tensor_groups if chosen["span_boundary"] else cls.tensor_groups[:1]
        return (*groups, POOLER, _NSP) if chosen["next_sentence"] else groups

    @classmethod
    def arguments_in(cls, checkpoint: Checkpoint) -> dict:
        names, settings = ["max_span_tokens", "position_dim"], checkpoint.settings
        return {name: settings[name] for name in names if name in settings}

    def set_output_biases(self, log_probabilities: np.ndarray) -> None:
        """Sets the output biases of the heads that predict tokens.

        With those of the training text, a new model starts at the cross-entropy of
        the unigram distribution and does not have to learn it.

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
        settings = super().checkpoint_settings()
        if self.span_boundary:
            settings.update(max_span_tokens=self.max_span_tokens, position_dim=self.position_dim)
        return settings

    def head_flops(self, num_predictions: int) -> float:
        hidden = self.backbone.hidden_dim
        vocabulary = 2 * hidden * self.backbone.vocabulary_size
        flops = num_predictions * (2 * hidden**2 + vocabulary)
        if self.span_boundary:
            mlp = 2 * (2 * hidden + self.position_dim) * hidden + 2 * hidden**2
            flops += num_predictions * (mlp + vocabulary)
        if self.next_sentence:
            flops += 2 * hidden**2 + 4 * hidden
        return float(flops)

    def describe(self, row: dict) -> str:
        labels = {f"val_{metric}": label for metric, label in self.progress_labels.items()}
        shown = [f"{label} {row[name]:.3f}" for name, label in labels.items() if name in row]
        return f"held-out {', '.join(shown)} nats"

    def serving_function(self):
        """Returns the function from strings to embeddings for a SavedModel, and its input specs."""
        longest = min(self.backbone.max_sequence_length, self.preprocessor.sequence_length)
        return embeddings(self.backbone, self.preprocessor.tokenizer, longest), strings("text")

    def default_optimizer(self):
        return AdamW(1e-4)

    def default_loss(self):
        return {name: WeightedMeanCrossentropy(from_logits=True) for name in self.objectives}

    def default_loss_weights(self):
        return {"mlm": 1.0, "sbo": self.sbo_weight, "nsp": self.nsp_weight}

    def default_metrics(self):
        # If there are several outputs, Keras puts the output's name before the metric's. Histories
        # always have `mlm_accuracy`.
        names = self.objectives
        prefix = "" if len(names) > 1 else f"{names[0]}_"
        return {
            name: [
                keras.metrics.MeanMetricWrapper(
                    sparse_crossentropy, name=f"{prefix}cross_entropy", from_logits=True
                ),
                keras.metrics.SparseCategoricalAccuracy(name=f"{prefix}accuracy"),
            ]
            for name in names
        }

    def label_limits(self, x) -> dict:
        size = self.backbone.vocabulary_size
        limits = {name: (size, f"`{name}` must be ids below {size}") for name in ("mlm", "sbo")}
        return {**limits, "nsp": (2, "`nsp` must be 0 or 1")}

    def check_preprocessor(self) -> None:
        super().check_preprocessor()
        for name in objectives.CHOICES:
            theirs, mine = getattr(self.preprocessor, name), getattr(self, name)
            check_in(f"preprocessor.{name}", theirs, theirs == mine, f"the model's, {mine}")
        value, most = self.preprocessor.masking_config["max_span_tokens"], self.max_span_tokens
        rule = f"at most the model's {most}"
        check_in("preprocessor.max_span_tokens", value, value <= most, rule)

    # === Strings, with new masks in each epoch of `fit` ===
    @accepts_datasets
    def preprocess(self, x, y=None, sample_weight=None, seed=(EVALUATION_SEED, 0)) -> tuple:
        """Masks strings: see `SpanBertTask.preprocess`. The `seed` determines the masks."""
        self.check_preprocessor()
        return self.preprocessor.call(as_strings("x", x), y, sample_weight, seed=seed)

    def preprocess_batch(self, x, y, sample_weight, number: int, mode: str) -> tuple:
        self.check_preprocessor()
        seed = self.preprocessor.masking.base_seed if mode == "fit" else EVALUATION_SEED
        return self.preprocess(x, y, sample_weight, seed=(seed, number))

    def preprocess_rows(self, x, y, sample_weight, batch_size, shuffle, mode: str) -> tuple:
        # Batches instead of arrays, so that masks are new in each epoch.
        if y is not None or sample_weight is not None:
            return self.preprocess(x, y, sample_weight)  # Raises an error.
        texts = [replace_surrogates(text) for text in as_strings("x", x)]
        batch_size = batch_size or 32
        if self.next_sentence and (len(texts) - 1) % batch_size == 0:
            raise ValueError(
                "Batches must have at least 2 texts with `next_sentence`, because half of the rows "
                f"take their second segment from another row. Received: batch_size={batch_size} of "
                f"{len(texts)} texts, which leaves one alone"
            )
        check_even_rows(len(texts), batch_size)
        shuffle = mode == "fit" and shuffle
        try:
            import tensorflow as tf
        except ImportError:
            # Keras's `set_random_seed` determines the order.
            seed, texts = int(np.random.randint(2**31)), np.array(texts, object)
            rows = Batches(texts, batch_size, seed, whole_epochs=True, shuffle=shuffle, pad=False)
            return self.preprocess_stream("py_dataset", rows, mode), None, None
        dataset = tf.data.Dataset.from_tensor_slices(texts)
        dataset = dataset.shuffle(len(texts)) if shuffle else dataset
        return self.preprocess_dataset(dataset.batch(batch_size), mode), None, None

    def preprocess_dataset(self, dataset, mode: str):
        text, *others = keras.utils.unpack_x_y_sample_weight(dataset.element_spec)
        is_text = getattr(text, "dtype", None) == tf.string and text.shape.rank == 1
        if not is_text or others != [None, None]:
            raise ValueError(
                "A dataset for pretraining must have batches `[B]` of strings, or results of the "
                f"preprocessor. Received: element_spec={dataset.element_spec}"
            )
        # Checked here and not in the constructor, because a backbone's preset comes with
        # a preprocessor that has default settings.
        self.check_preprocessor()
        seed = self.preprocessor.masking.base_seed if mode == "fit" else EVALUATION_SEED

        @tf.autograph.experimental.do_not_convert  # AutoGraph would change error messages.
        def preprocess(number, batch):
            text, *_ = keras.utils.unpack_x_y_sample_weight(batch)
            return self.preprocessor.call(text, seed=tf.stack([np.int64(seed), number]))

        # Read when an iterator is created, at the start of an epoch. Masks are then new in
        # each epoch, and a resumed run gets the same masks as an uninterrupted one.
        first_step = tf.data.Dataset.from_tensors(np.int64(0))
        if mode == "fit":
            first_step = first_step.map(
                lambda _: tf.numpy_function(lambda: np.int64(self.steps_so_far), [], tf.int64)
            )
        steps = first_step.flat_map(
            lambda first: dataset.enumerate(first).map(
                preprocess, tf.data.AUTOTUNE, deterministic=True
            )
        )
        # The number of batches of a text file is unknown until it has been read.
        if (num_batches := int(dataset.cardinality())) != tf.data.UNKNOWN_CARDINALITY:
            steps = steps.apply(tf.data.experimental.assert_cardinality(num_batches))
        return steps.prefetch(tf.data.AUTOTUNE)

    # === Blanks ===
    @accepts_datasets
    def fill(
        self, texts: str | list[str], top_k: int = 5, score: str = "both", batch_size: int = 32
    ) -> list:
        """Fills the blanks of texts. A blank is a run of `[MASK]`, one per token.

        A candidate's score is the sum of the log-probabilities (nats) that the MLM
        and SBO heads give its tokens, each token independently. Tokens at offset
        `max_span_tokens` or later have no SBO score. Special tokens are not candidates.

        Args:
            texts: string or list of strings, each with at least one `[MASK]`.
            top_k: int. Number of candidates per blank. Defaults to `5`.
            score: "both", "mlm" or "sbo", the heads to rank candidates by.
                Defaults to `"both"`, or MLM alone without an SBO head.
            batch_size: int. Defaults to `32`.

        Returns:
            For each text (of a list) a list with one item per blank: a list of
            candidates, best first, `{"text", "token_ids", "score", "mlm",
            "sbo"}`. `"sbo"` is `None` without an SBO head.

        Raises:
            ValueError: if the model has no preprocessor, a text has no `[MASK]` or is too long,
                `top_k` is below 1, `score` is unknown, or it is "sbo" without an SBO head.

        Example:
        ```python
        pretrainer.fill("The United [MASK] of America")[0][0]["text"]
        ```
        """
        self.warn_if_untrained()
        return fill(self, texts, top_k, score, batch_size)

    @accepts_datasets
    def score(
        self, texts: str | list[str], fillings: list, batch_size: int = 32
    ) -> list[dict] | list[list[dict]]:
        """Scores given fillings of blanks, as `fill` scores its candidates.

        Args:
            texts: string or list of strings, each with at least one `[MASK]`.
            fillings: list with a string for each blank of the text. For a list of texts, a list of
                these lists. A filling has as many tokens as its blank has masks.
            batch_size: int. Defaults to `32`.

        Returns:
            For each text (of a list) a list with one item per blank: `{"text",
            "token_ids", "score", "mlm", "sbo"}`, as `fill` returns with "both".

        Raises:
            ValueError: if the model has no preprocessor, a text has no
                `[MASK]` or is too long, or the fillings do not fit the blanks.

        Example:
        ```python
        pretrainer.score("The United [MASK] of America", ["States"])[0]["mlm"]
        ```
        """
        self.warn_if_untrained()
        return score(self, texts, fillings, batch_size)

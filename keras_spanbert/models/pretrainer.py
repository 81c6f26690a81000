"""The SpanBERT pretraining task: masked language model and span boundaries."""

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_spanbert.layers.span_boundary_head import SpanBoundaryHead
from keras_spanbert.models.backbone import SpanBertBackbone, kernel_initializer
from keras_spanbert.models.pretrainer_preprocessor import SpanBertPretrainerPreprocessor
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.training.losses import WeightedMeanCrossentropy, sparse_crossentropy
from keras_spanbert.training.optimizer import AdamW

_SCORES = ("both", "mlm", "sbo")
# `fill` pads texts to multiples of this, so that few shapes are compiled.
_FILL_BUCKET = 32


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertPretrainer(SpanBertTask):
    """Pretrains SpanBERT with both of its objectives, and fills blanks with it.

    The loss is the mean MLM cross-entropy over masked tokens plus `sbo_weight`
    times the mean SBO cross-entropy over tokens with an SBO target, in nats.
    Compiled by default with AdamW, this loss, and accuracy and cross-entropy of
    both heads, each weighted so that padding does not count.

    With a preprocessor, `fit` and `evaluate` take strings: lists, or
    `tf.data` datasets of batches. `fit` masks afresh in each epoch, `evaluate`
    always the same, both fixed by the preprocessor's `seed` whatever the
    parallelism. Both also take what the preprocessor returns, and datasets of
    that.

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

    backbone_cls = SpanBertBackbone
    preprocessor_cls = SpanBertPretrainerPreprocessor

    def __init__(
        self,
        backbone,
        preprocessor=None,
        max_span_tokens=15,
        position_dim=200,
        sbo_weight=1.0,
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
        self.mlm_head = keras_hub.layers.MaskedLMHead(
            token_embedding=backbone.token_embedding,
            intermediate_activation=backbone.activation,
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
        self._num_epochs = None

    @classmethod
    def arguments_for(cls, config):
        names = ["max_span_tokens", "position_dim"]
        return {name: config[name] for name in names if name in config}

    def set_output_biases(self, log_probabilities):
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
        biases = [w for w in self.weights if w.path.endswith("head/output_bias")]
        for bias in biases:
            bias.assign(log_probabilities)

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
            loss: `"auto"` or a dict of losses. Defaults to `"auto"`.
            loss_weights: `"auto"` or a dict. Defaults to `"auto"`, 1 and
                `sbo_weight`.
            weighted_metrics: `"auto"` or a dict. Defaults to `"auto"`.
            jit_compile: `"auto"` or bool. Defaults to `"auto"`: as Keras
                chooses, but not on TensorFlow without a GPU or TPU, where XLA
                is slower.
            **kwargs: see `keras.Model.compile`.
        """
        if optimizer == "auto":
            optimizer = AdamW()
        if loss == "auto":
            loss = {name: WeightedMeanCrossentropy(from_logits=True) for name in ["mlm", "sbo"]}
        if loss_weights == "auto":
            loss_weights = {"mlm": 1.0, "sbo": self.sbo_weight}
        if weighted_metrics == "auto":
            weighted_metrics = {
                name: [
                    keras.metrics.MeanMetricWrapper(
                        sparse_crossentropy, name="cross_entropy", from_logits=True
                    ),
                    keras.metrics.SparseCategoricalAccuracy(name="accuracy"),
                ]
                for name in ["mlm", "sbo"]
            }
        super().compile(
            optimizer=optimizer,
            loss=loss,
            loss_weights=loss_weights,
            weighted_metrics=weighted_metrics,
            jit_compile=jit_compile,
            **kwargs,
        )

    def fit(self, x=None, y=None, batch_size=None, validation_data=None, **kwargs):
        """Trains the model: see `keras.Model.fit` and the class."""
        if self.preprocessor is not None and not _is_masked(x):
            x, batch_size = self._masked_dataset(x, batch_size, is_training=True), None
            if validation_data is not None and not _is_masked(validation_data):
                validation_data = self._masked_dataset(validation_data)
            kwargs["callbacks"] = [*(kwargs.get("callbacks") or []), _CountEpochs()]
        if hasattr(x, "element_spec"):
            kwargs["shuffle"] = False  # Keras warns about it for datasets.
        # Not keras-hub's `fit`: its preprocessing knows no seeds, and without a
        # preprocessor it still demands tf.data or grain.
        return keras.Model.fit(
            self, x, y, batch_size=batch_size, validation_data=validation_data, **kwargs
        )

    def evaluate(self, x=None, y=None, batch_size=None, **kwargs):
        """Evaluates the model: see `keras.Model.evaluate` and the class."""
        if self.preprocessor is not None and not _is_masked(x):
            x, batch_size = self._masked_dataset(x, batch_size), None
        return keras.Model.evaluate(self, x, y, batch_size=batch_size, **kwargs)

    def _masked_dataset(self, x, batch_size=None, is_training=False):
        import tensorflow as tf

        # Here and not in the constructor: a backbone's preset brings a
        # preprocessor with defaults of its own.
        for name, value, most in [
            (
                "sequence_length",
                self.preprocessor.sequence_length,
                self.backbone.max_sequence_length,
            ),
            (
                "max_span_tokens",
                self.preprocessor.masking_config["max_span_tokens"],
                self.max_span_tokens,
            ),
        ]:
            if value > most:
                raise ValueError(
                    f"The preprocessor's `{name}` must be at most the model's {most}. "
                    f"Received: {name}={value}"
                )
        if not isinstance(x, tf.data.Dataset):
            x = tf.data.Dataset.from_tensor_slices(x).batch(batch_size or 32)
        base_seed = self.preprocessor.masking.base_seed
        if is_training and self._num_epochs is None:
            with tf.device("cpu"):
                self._num_epochs = tf.Variable(0, dtype=tf.int64, trainable=False)

        def epoch_dataset(epoch):
            # A seed for each element fixes its masks whatever the parallelism.
            return x.enumerate().map(
                lambda i, text: self.preprocessor(
                    text, seed=tf.random.fold_in([base_seed, epoch], i)
                ),
                num_parallel_calls=tf.data.AUTOTUNE,
            )

        # Each iterator reads the epoch's number once, before any element. That
        # of evaluation is one that training never has.
        epochs = tf.data.Dataset.from_tensors(tf.constant(-1, tf.int64))
        if is_training:
            epochs = epochs.map(lambda _: self._num_epochs.read_value())
        dataset = epochs.flat_map(epoch_dataset)
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(x.cardinality()))
        return dataset.prefetch(tf.data.AUTOTUNE)

    def fill(self, texts, top_k=5, score="both", batch_size=32):
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
        if self.preprocessor is None:
            raise ValueError("`fill` needs a preprocessor. Received: preprocessor=None")
        if score not in _SCORES:
            raise ValueError(f"`score` must be one of {_SCORES}. Received: score={score!r}")
        if top_k < 1:
            raise ValueError(f"`top_k` must be at least 1. Received: top_k={top_k}")
        if isinstance(texts, str):
            return self.fill([texts], top_k, score, batch_size)[0]
        rows = [self._tokenize_blanks(text) for text in texts]
        return [
            [self._candidates(mlm, sbo, top_k, score) for mlm, sbo in blanks]
            for blanks in self._predict_blanks(rows, batch_size)
        ]

    def score(self, texts, fillings, batch_size=32):
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
        if self.preprocessor is None:
            raise ValueError("`score` needs a preprocessor. Received: preprocessor=None")
        if isinstance(texts, str):
            return self.score([texts], [fillings], batch_size)[0]
        if len(fillings) != len(texts):
            raise ValueError(
                "`fillings` must hold a list for each text. Received: "
                f"{len(fillings)} for {len(texts)} texts"
            )
        rows = [self._tokenize_blanks(text) for text in texts]
        ids = [
            self._tokenize_fillings(row, of_text, text)
            for row, of_text, text in zip(rows, fillings, texts)
        ]
        return [
            [self._candidate(*heads, of_blank) for heads, of_blank in zip(blanks, of_text)]
            for blanks, of_text in zip(self._predict_blanks(rows, batch_size), ids)
        ]

    def _tokenize_blanks(self, text):
        tokenizer = self.preprocessor.tokenizer
        pieces = text.split(tokenizer.mask_token)
        ids = [tokenizer.cls_token_id, *tokenizer(pieces[0])]
        for piece in pieces[1:]:
            ids += [tokenizer.mask_token_id, *tokenizer(piece)]
        ids.append(tokenizer.sep_token_id)
        if len(pieces) == 1 or len(ids) > self.backbone.max_sequence_length:
            raise ValueError(
                f"A text to fill must hold {tokenizer.mask_token} and at most "
                f"{self.backbone.max_sequence_length - 2} tokens. Received: "
                f"{len(pieces) - 1} masks and {len(ids) - 2} tokens in {text[:80]!r}"
            )
        return np.array(ids, "int32")

    def _tokenize_fillings(self, row, fillings, text):
        """Token ids of the fillings of a text's blanks."""
        tokenizer = self.preprocessor.tokenizer
        lengths = [stop - start for start, stop in _runs(row == tokenizer.mask_token_id)]
        ids = [np.asarray(tokenizer(filling)).tolist() for filling in fillings]
        if isinstance(fillings, str) or [len(i) for i in ids] != lengths:
            raise ValueError(
                f"`fillings` must have as many tokens as the blanks have masks, {lengths} in "
                f"{text[:80]!r}. Received: {fillings!r}, of {[len(i) for i in ids]} tokens"
            )
        return ids

    def _predict_blanks(self, rows, batch_size):
        """For each row of token ids, its blanks' log-probabilities `(mlm, sbo)`, `[tokens, V]`."""
        predicted = []
        for start in range(0, len(rows), batch_size):
            predicted += self._predict_batch(rows[start : start + batch_size])
        return predicted

    def _predict_batch(self, rows):
        tokenizer = self.preprocessor.tokenizer
        runs = [_runs(row == tokenizer.mask_token_id) for row in rows]
        length = -(-max(map(len, rows)) // _FILL_BUCKET) * _FILL_BUCKET
        length = min(length, self.backbone.max_sequence_length)
        slots = max(sum(stop - start for start, stop in row) for row in runs)
        slots = -(-slots // 4) * 4

        token_ids = np.full((len(rows), length), tokenizer.pad_token_id, "int32")
        masks = np.zeros((4, len(rows), slots), "int32")
        for i, (row, blanks) in enumerate(zip(rows, runs)):
            token_ids[i, : len(row)] = row
            columns = [
                (position, start - 1, stop, position - start)
                for start, stop in blanks
                for position in range(start, stop)
            ]
            masks[:, i, : len(columns)] = np.transpose(columns)
        names = ["mask_positions", "span_left", "span_right", "span_offsets"]
        logits = self.predict_on_batch(
            {
                "token_ids": token_ids,
                "segment_ids": np.zeros_like(token_ids),
                "padding_mask": (token_ids != tokenizer.pad_token_id).astype("int32"),
                **dict(zip(names, masks)),
            },
        )
        mlm, sbo = (self._log_probabilities(logits[name]) for name in ["mlm", "sbo"])
        # The released model has no SBO target there.
        sbo[masks[3] >= self.max_span_tokens] = 0.0

        predicted = []
        for i, blanks in enumerate(runs):
            predicted.append([])
            slot = 0
            for start, stop in blanks:
                predicted[-1].append([h[i, slot : slot + stop - start] for h in (mlm, sbo)])
                slot += stop - start
        return predicted

    def _log_probabilities(self, logits):
        log_probabilities = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
        return np.array(ops.convert_to_numpy(log_probabilities))

    def _candidates(self, mlm, sbo, top_k, score):
        """The best fillings of one blank, from log-probabilities `[tokens, V]`."""
        total = {"both": mlm + sbo, "mlm": mlm.copy(), "sbo": sbo.copy()}[score]
        tokenizer = self.preprocessor.tokenizer
        total[:, tokenizer.special_token_ids] = -np.inf
        total[:, tokenizer.vocabulary_size() :] = -np.inf  # Padding of the embedding.
        # Tokens are scored on their own, so the best k prefixes suffice.
        best = [(0.0, ())]
        for row in total:
            tokens = np.argpartition(-row, min(top_k, len(row) - 1))[:top_k]
            tokens = tokens[np.isfinite(row[tokens])]
            best = [(s + row[t], (*ids, int(t))) for s, ids in best for t in tokens]
            best = sorted(best, key=lambda item: (-item[0], item[1]))[:top_k]
        return [self._candidate(mlm, sbo, list(ids), float(value)) for value, ids in best]

    def _candidate(self, mlm, sbo, token_ids, score=None):
        """A filling and its log-probabilities; its score is their sum where none is given."""
        positions = np.arange(len(token_ids))
        mlm, sbo = (float(head[positions, token_ids].sum()) for head in [mlm, sbo])
        return {
            "text": self.preprocessor.tokenizer.detokenize(token_ids),
            "token_ids": token_ids,
            "score": mlm + sbo if score is None else score,
            "mlm": mlm,
            "sbo": sbo,
        }

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


class _CountEpochs(keras.callbacks.Callback):
    """Counts the epochs of all calls of `fit`, to mask afresh in each."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model._num_epochs.assign_add(1)


def _is_masked(x):
    """Whether `x` is what the preprocessor returns, or a dataset of that."""
    x = getattr(x, "element_spec", x)
    return isinstance(x, dict) or (isinstance(x, tuple) and isinstance(x[0], dict))


def _runs(flags):
    """Runs of true flags as (start, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags, [0]]).astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))

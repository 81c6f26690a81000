"""Classification of texts and of pairs of texts, and regression."""

import keras
import numpy as np
from keras import ops

from keras_spanbert.checks import accepts_datasets, check_counts, check_flags, check_in
from keras_spanbert.metrics.counts import accuracy_and_macro_f1, f1_scores
from keras_spanbert.metrics.glue import CLASSES, glue, task_name
from keras_spanbert.models.backbone import dense_layer, pooler
from keras_spanbert.models.checkpoint_entries import Checkpoint
from keras_spanbert.models.classifier import ClassifierTask, dropout_layer, probabilities
from keras_spanbert.optional import tf
from keras_spanbert.serving.saved_model import strings, trim_padding
from keras_spanbert.tasks.classification.preprocessor import SpanBertTextClassifierPreprocessor
from keras_spanbert.text.labels import check_names
from keras_spanbert.text.strings import check_examples
from keras_spanbert.training.losses import WeightedMeanBinaryCrossentropy, WeightedMeanSquaredError


def is_assigned(logits):
    """Returns whether a row gets each class: its probability, the sigmoid, is at least 0.5."""
    return logits >= 0.0


@keras.saving.register_keras_serializable(package="keras_spanbert")
def binary_accuracy(y_true, y_pred):
    """Returns the share of each row's classes that are right: labels, logits `[N, C]` to `[N]`."""
    are_right = ops.equal(ops.cast(y_true, "bool"), is_assigned(y_pred))
    return ops.mean(ops.cast(are_right, "float32"), axis=-1)


# Values of `problem_type` in the settings of `transformers`.
_REGRESSION = "regression"
_SINGLE_LABEL = "single_label_classification"
_MULTI_LABEL = "multi_label_classification"


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTextClassifier(ClassifierTask):
    """Assigns a class, several classes or a number to texts or pairs of texts.

    The head is BERT's pooler over `[CLS]`, dropout, and a dense layer. By default
    the model is compiled with AdamW (learning rate 2e-5), cross-entropy and
    accuracy. With `multi_label` it uses the mean binary cross-entropy and the
    binary accuracy, and for a regression the mean squared error.

    `fit`, `evaluate` and `predict` take a list, array or tensor of strings, or a
    dict of two, `{"text", "text_pair"}`, with labels `y`; examples from
    `keras_spanbert.data.glue.read`; arrays from `preprocess`; or batches of any of
    these: see `fit`. Labels are names or numbers of classes, or, with `multi_label`,
    an array `[N, C]` of 0 and 1 or a list of names for each row.

    Args:
        backbone: `SpanBertBackbone`.
        num_classes: int. Number C of classes. 1 means regression, unless
            `multi_label`. Can be left out if `class_names` is given.
        preprocessor: `SpanBertTextClassifierPreprocessor`. Defaults to `None`.
        class_names: list of C strings. Defaults to `None`: `"0"`, `"1"`, ...
        dropout: float. Rate before the last layer. Defaults to `0.1`.
        multi_label: bool. Whether a text can have any number of classes, each with
            its own probability. Defaults to `False`: a text has one class.

    Raises:
        ValueError: if the numbers of names and classes differ, `class_names` has
            one name without `multi_label` or `num_classes=1`, or a value is out of range.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[N, L]` to logits `[N, C]`.

    Example:
    ```python
    model = keras_spanbert.SpanBertTextClassifier.from_preset(
        "spanbert_hf_base.tar.gz", num_classes=2, class_names=["dull", "good"]
    )
    model.fit(["A fine film.", "Two long hours."], ["good", "dull"])
    model.classify(["What a film!"])[0]["label"]
    ```

    To assign several labels to a text:
    ```python
    tagger = keras_spanbert.SpanBertTextClassifier.from_preset(
        "spanbert_hf_base.tar.gz", class_names=["long", "sad"], multi_label=True
    )
    tagger.fit(["Two long, sad hours.", "A fine film."], [["long", "sad"], []])
    tagger.classify(["What a film!"])[0]["labels"]
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.1, and
        [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 4.1.
    """

    preprocessor_cls = SpanBertTextClassifierPreprocessor
    huggingface_class = "BertForSequenceClassification"
    names_argument = "class_names"
    labels_arguments = ("num_classes", "class_names")
    config_names = ("num_classes", "class_names", "dropout", "multi_label")
    scores = {
        "score": "score",
        "accuracy": "accuracy",
        "f1": "F1",
        "micro_f1": "micro F1",
        "macro_f1": "macro F1",
        "matthews_correlation": "Matthews correlation",
        "pearson": "Pearson",
        "spearman": "Spearman",
    }
    best_score = "score"

    def __init__(
        self,
        backbone,
        num_classes: int | None = None,
        preprocessor=None,
        class_names: list[str] | None = None,
        dropout: float = 0.1,
        multi_label: bool = False,
        **kwargs,
    ):
        names = None if class_names is None else check_names("class_names", class_names)
        check_flags(multi_label=multi_label)
        _check_is_classification(names, num_classes, multi_label)
        num_classes = len(names or ()) if num_classes is None else num_classes
        check_counts(num_classes=num_classes)
        rule = f"a list of {num_classes} names, as `num_classes`"
        check_in("class_names", names, not names or len(names) == num_classes, rule)
        # The preprocessor and Keras's constructor read these.
        self.num_classes = int(num_classes)
        self.multi_label = bool(multi_label)
        self.class_names = names or [str(i) for i in range(num_classes)]
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.pooler = pooler(backbone)
        self.output_dropout = dropout_layer(backbone, dropout)
        self.classifier = dense_layer(backbone, num_classes, "classifier")

        # === Functional Model ===
        pooled = self.pooler(backbone(backbone.input)[:, 0, :])
        logits = self.classifier(self.output_dropout(pooled))
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)

        # === Config ===
        self.dropout = dropout

    @property
    def is_regression(self) -> bool:
        """Whether the model predicts a number."""
        return self.num_classes == 1 and not self.multi_label

    @property
    def loss_unit(self) -> str:
        """The unit of the default loss of `compile`."""
        return "squared error" if self.is_regression else super().loss_unit

    @classmethod
    def arguments_in(cls, checkpoint: Checkpoint) -> dict:
        arguments, settings = super().arguments_in(checkpoint), checkpoint.settings
        count = settings.get("num_labels")
        if count is None:
            return arguments
        kind = settings.get("problem_type")
        if kind not in (None, _MULTI_LABEL, _REGRESSION if count == 1 else _SINGLE_LABEL):
            raise ValueError(
                f"The setting `problem_type` must be {_MULTI_LABEL}, {_REGRESSION} with one label, "
                f"{_SINGLE_LABEL} with several, or none. Received: {kind!r} with {count} labels"
            )
        return {**arguments, "num_classes": count, "multi_label": kind == _MULTI_LABEL}

    @classmethod
    def from_source(cls, source, load_weights: bool = True, **given):
        is_multi_label = source.arguments_of(cls, **given).get("multi_label")
        _check_is_classification(given.get("class_names"), given.get("num_classes"), is_multi_label)
        return super().from_source(source, load_weights, **given)

    @classmethod
    def labels_of(cls, arguments: dict) -> list[str] | None:
        names = super().labels_of(arguments)
        count = arguments.get("num_classes")
        return [str(i) for i in range(count)] if names is None and count else names

    @classmethod
    def head_kind(cls, arguments: dict) -> str:
        if arguments.get("multi_label"):
            return "multi-label"
        return _REGRESSION if len(cls.labels_of(arguments) or ()) == 1 else super().head_kind({})

    def checkpoint_settings(self) -> dict:
        kind = _REGRESSION if self.is_regression else _SINGLE_LABEL
        kind = _MULTI_LABEL if self.multi_label else kind
        return {**super().checkpoint_settings(), "problem_type": kind}

    def default_loss(self):
        if self.multi_label:
            return WeightedMeanBinaryCrossentropy(from_logits=True)
        return WeightedMeanSquaredError() if self.is_regression else super().default_loss()

    def default_metrics(self) -> list:
        if self.multi_label:
            return [keras.metrics.MeanMetricWrapper(binary_accuracy, name="binary_accuracy")]
        return [] if self.is_regression else super().default_metrics()

    def label_limits(self, x) -> dict:
        if self.is_regression:
            return {}
        rule = f"Labels must be a 0 or 1 for each of the model's {self.num_classes} classes"
        return {"": (2, rule)} if self.multi_label else super().label_limits(x)

    def set_up_preprocessor(self) -> None:
        if self.preprocessor is not None:
            self.preprocessor.label_names = None if self.is_regression else self.class_names
            self.preprocessor.multi_label = self.multi_label

    def serving_endpoints(self) -> dict:
        self.check_preprocessor()
        names = tf.constant(self.class_names)

        def serve_pairs(text, text_pair):
            inputs = trim_padding(self.preprocessor.inputs(text, text_pair))
            logits = tf.cast(self(inputs, training=False), tf.float32)
            if self.is_regression:
                return {"score": logits[:, 0]}
            scores = tf.sigmoid(logits) if self.multi_label else tf.nn.softmax(logits)
            answers = {
                # From the logits, because the sigmoids of large logits are all 1.
                "label": tf.gather(names, tf.argmax(logits, axis=1)),
                "score": tf.reduce_max(scores, axis=1),
                "scores": scores,
            }
            if self.multi_label:  # Each class has its own column, with "" if it is not assigned.
                answers["labels"] = tf.where(is_assigned(logits), names, "")
            return answers

        return {
            "serving_default": (lambda text: serve_pairs(text, None), strings("text")),
            "pairs": (serve_pairs, strings("text", "text_pair")),
        }

    @property
    def has_class_weights(self) -> bool:
        return not (self.multi_label or self.is_regression)

    # === Answers ===
    def classify(self, texts, text_pairs=None, batch_size: int = 32) -> list[dict] | dict:
        """Classifies texts or pairs of texts.

        Args:
            texts: string, or list, tuple, array or tensor of N strings, or list of examples.
            text_pairs: the second texts, N strings. Defaults to `None`: single texts.
            batch_size: int. Number of rows per batch. Defaults to `32`.

        Returns:
            List with a dict for each text, or one dict for a string. `"label"` is the likeliest
            class, `"score"` its probability, and `"scores"` the probabilities of all classes by
            name. With `multi_label`, `"labels"` are all classes with a probability of at least 0.5,
            in the model's order, or none. A regression returns only `"score"`, the number.

        Raises:
            ValueError: if the model has no preprocessor, or `texts` are something else.

        Example:
        ```python
        model.classify(["What a film!", "Two long hours."])
        ```
        """
        if isinstance(texts, str):
            pairs = None if text_pairs is None else [text_pairs]
            return self.classify([texts], pairs, batch_size)[0]
        x = texts if text_pairs is None else {"text": texts, "text_pair": text_pairs}
        logits = self.logits_of(x, batch_size)
        if self.is_regression:
            return [{"score": float(value)} for value in logits[:, 0]]
        found = []
        # From the logits, because the sigmoids of large logits are all 1.
        for best, row in zip(logits.argmax(axis=1), probabilities(logits, self.multi_label)):
            row = row.tolist()
            scores = dict(zip(self.class_names, row))
            found.append({"label": self.class_names[best], "score": row[best], "scores": scores})
        if self.multi_label:
            for answer, row in zip(found, is_assigned(logits)):
                answer["labels"] = [self.class_names[i] for i in np.flatnonzero(row)]
        return found

    @accepts_datasets
    def evaluate_texts(
        self,
        examples: list[dict],
        task: str | None = None,
        batch_size: int = 32,
        selection_metric: str | None = None,
    ) -> dict:
        """Scores the classes of examples.

        Args:
            examples: list of labelled dicts from `keras_spanbert.data.glue.read` or
                `keras_spanbert.data.columns.read_texts`.
            task: string. A GLUE task, to compute its official scores: see
                `keras_spanbert.metrics.glue`. Defaults to `None`, other data.
            batch_size: int. Number of rows per batch. Defaults to `32`.
            selection_metric: string. Without a `task` or a regression, the score to
                return as `score`: `"accuracy"`, `"macro_f1"` or, with `multi_label`, `"micro_f1"`.
                Defaults to `None`: accuracy, or micro F1 with `multi_label`.

        Returns:
            Dict of scores in percent, and `total`, the number of examples. The scores are those of
            the `task`, or `accuracy` and `macro_f1`, with two classes also `f1` of the second one.
            `multi_label` also has `micro_f1`, and its `accuracy` is the share of texts with exactly
            the right labels. F1 scores are defined as in scikit-learn. A regression has `pearson`
            and `spearman`. `score` is the number to compare models by: the `selection_metric`, or,
            with a `task` or a regression, the mean of the scores, 0 if one is not defined.

        Raises:
            ValueError: if an example has no label or one that the model does not
                know, or `selection_metric` is not a score of the model.

        Example:
        ```python
        examples = keras_spanbert.data.glue.read("glue_data/RTE", "rte", "dev")
        model.evaluate_texts(examples, "rte")["accuracy"]
        ```
        """
        check_examples(examples)
        if task is not None:
            self.check_task(task)
        # The scores that `score` can be, the default first. There are none if it is a mean.
        known = ("accuracy", "macro_f1")
        if self.multi_label:
            known = ("micro_f1", "macro_f1", "accuracy")
        if task is not None or self.is_regression:
            known = ()
        rule = f"{' or '.join(known) or 'None'} here"
        check_in("selection_metric", selection_metric, selection_metric in (None, *known), rule)
        labels = self.label_ids([example.get("label") for example in examples])
        logits = self.logits_of(examples, batch_size)
        if self.multi_label:
            predictions = is_assigned(logits).astype("int32")
        else:
            predictions = logits[:, 0] if self.is_regression else np.argmax(logits, axis=1)
        if task is not None and not self.is_regression:  # By name, as the order may differ.
            names = np.array(self.class_names)
            labels, predictions = names[labels].tolist(), names[predictions].tolist()
        scores = self._scores(labels, predictions, task)
        values = [scores[selection_metric or known[0]]] if known else list(scores.values())
        scores["score"] = float(np.mean(values)) if np.all(np.isfinite(values)) else 0.0
        return {**{n: 100.0 * value for n, value in scores.items()}, "total": len(examples)}

    def _scores(self, labels, predictions, task) -> dict:
        """Returns scores as fractions, by name."""
        if self.is_regression and len(labels) < 2:  # The correlation is undefined.
            return dict.fromkeys(["pearson", "spearman"], float("nan"))
        if task is not None or self.is_regression:
            return glue(task or "sts-b", labels, predictions)
        if self.multi_label:
            are_right = np.all(labels == predictions, axis=1)
            return {"accuracy": float(np.mean(are_right)), **f1_scores(labels, predictions)}
        scores = glue("mrpc", labels, predictions) if self.num_classes == 2 else {}
        return {**scores, **accuracy_and_macro_f1(labels, predictions)}

    def check_task(self, task: str) -> None:
        """Raises a `ValueError` unless the model has the classes of a GLUE task.

        Args:
            task: string. See `keras_spanbert.metrics.glue`. The classes can be in
                any order. STS-B requires a regression. Multi-label models are rejected.

        Example:
        ```python
        model.check_task("rte")
        ```
        """
        classes = CLASSES[task_name(task)] or ("a number",)
        own = ["a number"] if self.is_regression else self.class_names
        if set(own) != set(classes) or self.multi_label:
            several = ", several of them per text" if self.multi_label else ""
            raise ValueError(
                f"The model must have the classes of {task}, {', '.join(classes)}. Received: "
                f"{', '.join(own)}{several}"
            )


def _check_is_classification(class_names, num_classes, multi_label):
    has_one = class_names is not None and len(class_names) == 1
    # In settings of other libraries, the number of a regression has a name.
    if has_one and num_classes != 1 and not multi_label:
        raise ValueError(
            "`class_names` must have at least two names. num_classes=1 makes a regression. "
            f"Received: class_names={class_names!r:.80}"
        )

"""Classification of texts and of pairs of texts, and regression."""

import keras
import numpy as np

from keras_spanbert.metrics.glue import CLASSES, glue, task_name
from keras_spanbert.models.arguments import check_counts
from keras_spanbert.models.classifier import (
    ClassifierTask,
    checked_dropout,
    checked_names,
    classifier,
    is_examples,
    pooler,
    probabilities,
)
from keras_spanbert.tasks.classification.preprocessor import SpanBertTextClassifierPreprocessor
from keras_spanbert.tasks.classification.serving import labels_of_texts


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertTextClassifier(ClassifierTask):
    """Gives texts, or pairs of texts, a class or a number.

    BERT's pooler over `[CLS]`, dropout, and a dense layer. Compiled by default with
    AdamW (learning rate 2e-5), cross-entropy and accuracy; with one class, as a
    regression, with the mean squared error.

    `fit`, `evaluate` and `predict` take `x`, a list, array or tensor of strings,
    or a dict of such, `{"text", "text_pair"}`, with labels `y`, names or numbers;
    or examples as `keras_spanbert.data.glue.read` gives them, with their labels;
    or the arrays that `preprocess` gives; or batches of any of these: see `fit`.

    Args:
        backbone: `SpanBertBackbone`.
        num_classes: int. Number C of classes; 1 is regression. May be left out
            where `class_names` is given.
        preprocessor: `SpanBertTextClassifierPreprocessor`. Defaults to `None`.
        class_names: list of C strings. Defaults to `None`: `"0"`, `"1"`, ...
        dropout: float. Rate before the last layer. Defaults to `0.1`.

    Raises:
        ValueError: where the names are not as many as the classes, or a value is
            out of range.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[N, L]` to logits
        `[N, C]`.

    Example:
    ```python
    model = keras_spanbert.SpanBertTextClassifier.from_preset(
        "spanbert_hf_base.tar.gz", num_classes=2, class_names=["dull", "good"]
    )
    model.fit(["A fine film.", "Two long hours."], ["good", "dull"])
    model.classify(["What a film!"])[0]["label"]
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.1;
        [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 4.1.
    """

    preprocessor_cls = SpanBertTextClassifierPreprocessor
    huggingface_class = "BertForSequenceClassification"
    names_argument = "class_names"
    scores = {
        "score": "score",
        "accuracy": "accuracy",
        "f1": "F1",
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
        **kwargs,
    ):
        names = None if class_names is None else checked_names(class_names=class_names)
        num_classes = len(names or ()) if num_classes is None else num_classes
        check_counts(num_classes=num_classes)
        if names and len(names) != num_classes:
            raise ValueError(
                f"`class_names` must be as many as `num_classes`, {num_classes}. Received: "
                f"{len(names)}, {class_names!r:.80}"
            )
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.pooler = pooler(backbone)
        self.output_dropout = checked_dropout(backbone, dropout)
        self.classifier = classifier(backbone, num_classes)

        # === Functional Model ===
        pooled = self.pooler(backbone(backbone.input)[:, 0, :])
        logits = self.classifier(self.output_dropout(pooled))
        # Read by `compile`, which Keras's constructor calls.
        self.num_classes = int(num_classes)
        super().__init__(inputs=backbone.input, outputs=logits, **kwargs)

        # === Config ===
        self.class_names = names or [str(i) for i in range(num_classes)]
        self.dropout = dropout

    @property
    def is_regression(self) -> bool:
        """Whether it gives texts a number."""
        return self.num_classes == 1

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        arguments = super().arguments_for(settings)
        count = settings.get("num_labels")
        return arguments if count is None else {**arguments, "num_classes": count}

    @classmethod
    def labels_of(cls, arguments: dict) -> list[str] | None:
        names = super().labels_of(arguments)
        count = arguments.get("num_classes")
        return [str(i) for i in range(count)] if names is None and count else names

    @classmethod
    def labels_arguments(cls) -> tuple[str, ...]:
        return ("num_classes", "class_names")

    def checkpoint_settings(self) -> dict:
        kind = "regression" if self.is_regression else "single_label_classification"
        return {**super().checkpoint_settings(), "problem_type": kind}

    def default_loss(self):
        return keras.losses.MeanSquaredError() if self.is_regression else super().default_loss()

    def default_metrics(self) -> list:
        return [] if self.is_regression else super().default_metrics()

    def label_ids(self, labels) -> np.ndarray:
        if not self.is_regression:
            return super().label_ids(labels)
        try:
            values = np.asarray(labels, "float32")
        except (TypeError, ValueError):
            values = np.full((), np.nan)
        if values.ndim != 1 or not np.isfinite(values).all():
            raise ValueError(
                f"Labels must be finite numbers: the model has one class. Received: {labels!r:.80}"
            )
        return values

    def serving_endpoints(self) -> dict:
        self.check_preprocessor()
        return labels_of_texts(self)

    # === Answers ===
    def logits_of(self, x, batch_size: int = 32) -> np.ndarray:
        """Logits float32 `[N, C]` of strings, as `fit` takes them."""
        self.check_preprocessor()
        return self.logits_of_rows(self.preprocessor.call(x), batch_size)

    def classify(self, texts, text_pairs=None, batch_size: int = 32) -> list[dict] | dict:
        """The classes of texts, or of pairs.

        Args:
            texts: string, or list, tuple, array or tensor of N strings; or
                examples.
            text_pairs: likewise, as many. Defaults to `None`: single texts.
            batch_size: int, rows at once. Defaults to `32`.

        Returns:
            For each text `{"label", "score", "scores"}`: the likeliest class, its
            probability, and those of all by name; of regression `{"score"}`. One
            text gives one of them.

        Raises:
            ValueError: where the model has no preprocessor, or the texts are
                something else.

        Example:
        ```python
        model.classify(["What a film!", "Two long hours."])
        ```
        """
        if isinstance(texts, str):
            pairs = None if text_pairs is None else [text_pairs]
            return self.classify([texts], pairs, batch_size)[0]
        is_alone = text_pairs is None
        logits = self.logits_of(
            texts if is_alone else {"text": texts, "text_pair": text_pairs}, batch_size
        )
        if self.is_regression:
            return [{"score": float(value)} for value in logits[:, 0]]
        found = []
        for row in probabilities(logits).tolist():
            best = int(np.argmax(row))
            scores = dict(zip(self.class_names, row))
            found.append({"label": self.class_names[best], "score": row[best], "scores": scores})
        return found

    def evaluate_texts(self, examples: list[dict], task: str | None = None, batch_size: int = 32):
        """Scores the classes of examples.

        Args:
            examples: list of dicts, as `keras_spanbert.data.glue.read` gives them,
                with labels.
            task: string. A task of GLUE, whose official scores to give: see
                `keras_spanbert.metrics.glue`. Defaults to `None`: accuracy, of two
                classes also F1 of the second, of regression the correlations.
            batch_size: int, rows at once. Defaults to `32`.

        Returns:
            Dict of scores in percent: those of the task, and `score`, their mean,
            0 where one is not defined; with `total`, how many examples.

        Raises:
            ValueError: where an example has no label, or one that the model does
                not know.

        Example:
        ```python
        examples = keras_spanbert.data.glue.read("glue_data/RTE", "rte", "dev")
        model.evaluate_texts(examples, "rte")["accuracy"]
        ```
        """
        if not is_examples(examples):
            raise ValueError(
                "`examples` must be what `keras_spanbert.data.glue.read` gives. Received: "
                f"{examples!r:.80}"
            )
        if task is not None:
            self.check_task(task)
        labels = self.label_ids([example.get("label") for example in examples])
        logits = self.logits_of(examples, batch_size)
        predictions = logits[:, 0] if self.is_regression else np.argmax(logits, axis=1)
        if task is not None and not self.is_regression:  # By name: the order may be another one.
            names = np.array(self.class_names)
            labels, predictions = names[labels].tolist(), names[predictions].tolist()
        scores = _scores(labels, predictions, task, self.num_classes)
        values = list(scores.values())
        scores["score"] = float(np.mean(values)) if np.all(np.isfinite(values)) else 0.0
        return {**{n: 100.0 * value for n, value in scores.items()}, "total": len(examples)}

    def check_task(self, task: str) -> None:
        """Raises a ValueError where the model does not have the classes of a task of GLUE.

        Args:
            task: string: see `keras_spanbert.metrics.glue`. The classes may be in
                any order; STS-B takes a regression.

        Example:
        ```python
        model.check_task("rte")
        ```
        """
        classes = CLASSES[task_name(task)] or ("a number",)
        own = ["a number"] if self.is_regression else self.class_names
        if set(own) != set(classes):
            raise ValueError(
                f"The model must have the classes of {task}, {', '.join(classes)}. Received: "
                f"{', '.join(own)}"
            )

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "num_classes": self.num_classes,
                "class_names": self.class_names,
                "dropout": self.dropout,
            }
        )
        return config


def _scores(labels, predictions, task, num_classes):
    """Fractions, by name."""
    if task is not None and num_classes > 1:
        return glue(task, labels, predictions)
    if num_classes == 1 and len(labels) < 2:  # One alone has no correlation.
        return dict.fromkeys(["pearson", "spearman"], float("nan"))
    if num_classes == 1:
        return glue("sts-b", labels, predictions)
    if num_classes == 2:
        return glue("mrpc", labels, predictions)
    return {"accuracy": float(np.mean(labels == predictions))}

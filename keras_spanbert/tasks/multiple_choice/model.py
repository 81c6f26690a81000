"""Choosing among the answers to a question, or the endings of a text."""

import numbers
from collections.abc import Iterator

import keras
import numpy as np
from scipy.special import softmax

from keras_spanbert.models.arguments import check_counts
from keras_spanbert.models.checkpoint_entries import Entry, Part, dense
from keras_spanbert.models.classifier import (
    POOLER,
    ClassifierTask,
    as_scalar,
    checked_dropout,
    classifier,
    is_examples,
    pooler,
)
from keras_spanbert.models.length_batches import predict_by_length
from keras_spanbert.tasks.multiple_choice.layers import NO_CHOICE, ChoiceLogits, ChoicesAsRows
from keras_spanbert.tasks.multiple_choice.preprocessor import SpanBertMultipleChoicePreprocessor
from keras_spanbert.tasks.multiple_choice.questions import is_one
from keras_spanbert.tasks.multiple_choice.serving import chosen

INPUTS = ("token_ids", "segment_ids", "padding_mask")


def _score_entries(settings: dict) -> Iterator[Entry]:
    if settings["num_labels"] == 1:  # Another task's classifier gives no scores of choices.
        yield from dense("classifier", "classifier", settings["hidden_size"], 1)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertMultipleChoice(ClassifierTask):
    """Chooses among the answers to a question, or the endings of a text.

    Each choice is a sequence of its own, with one score: BERT's pooler over
    `[CLS]`, dropout, and a dense layer; a softmax goes over a question's choices,
    of which there may be any number. Compiled by default with AdamW (learning
    rate 2e-5), cross-entropy and accuracy.

    `fit`, `evaluate` and `predict` take `x={"prompt", "choices"}`, and
    `"context"` where there is one, as `choose` takes them, with labels `y`, the
    right choices' numbers from 0; or examples as
    `keras_spanbert.data.swag.read` gives them, with their labels; or the arrays
    that `preprocess` gives; or batches of any of these: see `fit`. A question of
    less choices than another one is padded.

    Args:
        backbone: `SpanBertBackbone`.
        preprocessor: `SpanBertMultipleChoicePreprocessor`. Defaults to `None`.
        dropout: float. Rate before the last layer. Defaults to `0.1`.

    Raises:
        ValueError: where `dropout` is not in [0, 1).

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[N, C, L]`, and
        `"choice_mask"` int32 `[N, C]` where some are no choices, to logits float
        `[N, C]`: -1e9 where there is no choice.

    Example:
    ```python
    model = keras_spanbert.SpanBertMultipleChoice.from_preset("spanbert_hf_base.tar.gz")
    model.fit(
        {"prompt": ["A dog barks. It"], "choices": [["is a cat.", "is awake."]]}, [1]
    )
    model.choose("The guitarist sits down. She", ["plays.", "is a chair."])["choice"]
    ```

    Reference:
        [Devlin et al. 2019](https://arxiv.org/abs/1810.04805), section 4.4.
    """

    preprocessor_cls = SpanBertMultipleChoicePreprocessor
    checkpoint_parts = (POOLER, Part("classifier.", _score_entries))
    huggingface_class = "BertForMultipleChoice"
    scores = {"accuracy": "accuracy"}
    best_score = "accuracy"

    def __init__(self, backbone, preprocessor=None, dropout: float = 0.1, **kwargs):
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.choices_as_rows = ChoicesAsRows(dtype=backbone.dtype_policy, name="choices_as_rows")
        self.pooler = pooler(backbone)
        self.output_dropout = checked_dropout(backbone, dropout)
        self.classifier = classifier(backbone, 1)
        self.choice_logits = ChoiceLogits(dtype=backbone.dtype_policy, name="choice_logits")

        # === Functional Model ===
        inputs = {
            name: keras.Input(
                (None, None), dtype="int32", name=name, optional=name == "padding_mask"
            )
            for name in INPUTS
        }
        mask = keras.Input((None,), dtype="int32", name="choice_mask", optional=True)
        encoded = backbone(self.choices_as_rows(inputs))  # [N * C, L, H]
        pooled = self.pooler(encoded[:, 0, :])
        scores = self.classifier(self.output_dropout(pooled))  # [N * C, 1]
        logits = self.choice_logits(
            {"scores": scores, "token_ids": inputs["token_ids"], "choice_mask": mask}
        )
        super().__init__(inputs={**inputs, "choice_mask": mask}, outputs=logits, **kwargs)

        # === Config ===
        self.dropout = dropout

    # === Labels ===
    def preprocess(self, x, y=None, sample_weight=None) -> tuple:
        inputs, labels, weights = super().preprocess(x, y, sample_weight)
        for row, label in enumerate([] if labels is None else labels):
            mask = inputs["choice_mask"][row]
            if label >= len(mask) or not mask[label]:
                raise ValueError(
                    "A label must be the number of one of its question's choices. Received: "
                    f"{label} at {row}, a question of {mask.sum()} choices"
                )
        return inputs, labels, weights

    def label_ids(self, labels) -> np.ndarray:
        """The numbers of the right choices, int32 `[N]`."""
        labels = np.asarray(labels) if hasattr(labels, "__array__") else labels
        values = [as_scalar(value) for value in labels]
        for place, value in enumerate(values):
            is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
            if not is_integer or value < 0:
                raise ValueError(
                    "A label must be the number of a choice, from 0. Received: "
                    f"{value!r:.80} at {place}"
                )
        return np.array(values, np.int32)

    def serving_endpoints(self) -> dict:
        self.check_preprocessor()
        return chosen(self)

    # === Answers ===
    def logits_of(self, x, batch_size: int = 32) -> np.ndarray:
        """Logits float32 `[N, C]` of questions, as `fit` takes them; -1e9 where is no choice.

        What is no choice is not computed, and choices of like length are computed
        together.
        """
        self.check_preprocessor()
        return self._logits(self.preprocessor.call(x), batch_size)

    def _logits(self, inputs, batch_size):
        check_counts(batch_size=batch_size)
        self.warn_if_untrained()
        is_choice = inputs["choice_mask"] > 0
        # Each choice as a question of its own.
        rows = {name: inputs[name][is_choice][:, None, :] for name in INPUTS}
        found = np.empty(len(rows["token_ids"]), "float32")
        for places, outputs in predict_by_length(self, rows, batch_size):
            found[places] = outputs[:, 0]
        logits = np.full(is_choice.shape, NO_CHOICE, "float32")
        logits[is_choice] = found
        return logits

    def choose(
        self, prompts, choices=None, contexts=None, batch_size: int = 32
    ) -> list[dict] | dict:
        """Chooses for each question, or each text to go on with, one of its choices.

        Args:
            prompts: string, or list, tuple, array or tensor of N strings; or a
                pair of strings or list of such, the context and what stands
                before each choice. An empty context is none. Or a list of
                examples, alone.
            choices: list of N lists of two strings or more, or of one prompt a
                list of strings; or an array or tensor of strings `[N, C]`, of
                which `""` is no choice. Defaults to `None`, those of the
                examples.
            contexts: as many strings, where `prompts` are strings. Defaults to
                `None`, none.
            batch_size: int, choices at once. Defaults to `32`.

        Returns:
            For each question `{"choice", "scores"}`: the number from 0 of the
            likeliest choice, and the probabilities of all of them, 0 for what is
            no choice. One prompt gives one of these dicts.

        Raises:
            ValueError: where the model has no preprocessor, or prompts and
                choices are something else, differ in number, or a question has
                less than two choices.

        Example:
        ```python
        model.choose(["Who barks?"], [["A dog.", "A cat.", "A chair."]])
        model.choose("Who barks?", ["A dog.", "A cat."], "Ann has a dog and a cat.")
        ```
        """
        if is_one(prompts, choices):
            contexts = None if contexts is None else [contexts]
            return self.choose([prompts], [choices], contexts, batch_size)[0]
        self.check_preprocessor()
        inputs = self.preprocessor.inputs(prompts, choices, contexts)
        return [_answer(row) for row in self._logits(inputs, batch_size)]

    def evaluate_choices(self, examples: list[dict], batch_size: int = 32) -> dict:
        """Scores the choices for examples.

        Args:
            examples: list of dicts with labels, as
                `keras_spanbert.data.swag.read` gives them.
            batch_size: int, choices at once. Defaults to `32`.

        Returns:
            Dict of `accuracy` in percent, and `total`, how many examples.

        Raises:
            ValueError: where an example has no label, or one that is none of its
                choices.

        Example:
        ```python
        examples = keras_spanbert.data.codah.read("cv_split/fold_0/dev.tsv")
        model.evaluate_choices(examples)["accuracy"]
        ```
        """
        if not is_examples(examples):
            raise ValueError(
                "`examples` must be what `keras_spanbert.data.swag.read` gives. Received: "
                f"{examples!r:.80}"
            )
        inputs, labels, _ = self.preprocess(examples)
        if labels is None:
            raise ValueError("Examples must have labels, to be scored. Received: none")
        logits = self._logits(inputs, batch_size)
        is_right = np.argmax(logits, axis=1) == labels
        return {"accuracy": 100.0 * float(np.mean(is_right)), "total": len(examples)}

    def get_config(self):
        config = super().get_config()
        config["dropout"] = self.dropout
        return config


def _answer(logits):
    """The choice of one question, without what stands behind its last choice."""
    scores = softmax(logits[: 1 + np.flatnonzero(logits > NO_CHOICE)[-1]].astype("float64"))
    return {"choice": int(np.argmax(scores)), "scores": scores.tolist()}

"""Extractive question answering."""

import functools

import keras
import numpy as np

from keras_spanbert.checks import accepts_datasets, check_counts, check_kind, check_number_or_none
from keras_spanbert.data.batches import SEQUENCES, predict_by_length
from keras_spanbert.data.questions import Examples
from keras_spanbert.data.squad import to_dataset as squad_dataset
from keras_spanbert.metrics.squad import squad
from keras_spanbert.models.backbone import dense_layer
from keras_spanbert.models.checkpoint_entries import TensorGroup, dense
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.serving.saved_model import strings
from keras_spanbert.tasks.question_answering.decoding import N_BEST, answers, decode
from keras_spanbert.tasks.question_answering.preprocessor import (
    SpanBertQuestionAnswererPreprocessor,
)
from keras_spanbert.text.strings import as_strings
from keras_spanbert.training.losses import WeightedMeanCrossentropy

LABELS = ("start", "end")
_QA_OUTPUTS = TensorGroup(
    "qa_outputs.", lambda x: dense("qa_outputs", "qa_outputs", x["hidden_size"], 2)
)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertQuestionAnswerer(SpanBertTask):
    """Finds the answers to questions in contexts.

    Two softmaxes over a window's tokens predict the start and the end of the answer.
    Both are at `[CLS]` if there is no answer. By default the model is compiled with
    AdamW (learning rate 2e-5), the mean of both cross-entropies, and accuracies.

    `fit`, `evaluate` and `predict` take `x={"question", "context"}`, lists, tuples, arrays or
    tensors of strings, with answers `y` in the format of the preprocessor's `windows`; the arrays
    that `windows` returns; or batches of either: see `fit`. A batch of questions becomes the batch
    of their windows.

    Args:
        backbone: `SpanBertBackbone`.
        preprocessor: `SpanBertQuestionAnswererPreprocessor`. Defaults to `None`.
        null_threshold: float. `answer` returns no answer if the logits of no answer
            exceed those of the best answer by more than this. Defaults to `None`,
            always an answer. `evaluate_squad` finds the best value.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[B, L]` to logits
        `{"start", "end"}`, each `[B, L]`.

    Example:
    ```python
    answerer = keras_spanbert.SpanBertQuestionAnswerer.from_preset("spanbert_hf_base.tar.gz")
    answerer.fit(
        {"question": ["Who wrote it?"], "context": ["Bob wrote the letter."]},
        [{"text": "Bob", "answer_start": 0}],
    )
    answerer.answer(["Who wrote it?"], ["Bob wrote the letter."])[0][0]["answer"]
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.1.
    """

    preprocessor_cls = SpanBertQuestionAnswererPreprocessor
    tensor_groups = (_QA_OUTPUTS,)
    huggingface_class = "BertForQuestionAnswering"
    scores = {"exact": "exact match", "f1": "F1"}
    best_score = "f1"
    config_names = ("null_threshold",)

    def __init__(self, backbone, preprocessor=None, null_threshold: float | None = None, **kwargs):
        check_number_or_none(null_threshold=null_threshold)
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.qa_outputs = dense_layer(backbone, 2, "qa_outputs")

        # === Functional Model ===
        logits = self.qa_outputs(backbone(backbone.input))
        super().__init__(
            inputs=backbone.input,
            outputs={"start": logits[:, :, 0], "end": logits[:, :, 1]},
            **kwargs,
        )

        # === Config ===
        self.null_threshold = null_threshold

    def default_loss(self):
        return {name: WeightedMeanCrossentropy(from_logits=True) for name in LABELS}

    def default_loss_weights(self):
        return dict.fromkeys(LABELS, 0.5)

    def default_metrics(self):
        return {n: [keras.metrics.SparseCategoricalAccuracy(name="accuracy")] for n in LABELS}

    def label_limits(self, x) -> dict:
        length, rule = x["token_ids"].shape[-1], "must be the number of a token in its window"
        return {name: (length, f"`{name}` {rule}") for name in LABELS}

    def serving_function(self, max_answer_length: int = 30):
        """Returns the function from strings to answers for a SavedModel, and its input specs."""
        self.check_preprocessor()
        check_counts(max_answer_length=max_answer_length)
        return answers(self, max_answer_length), strings("question", "context")

    @accepts_datasets
    def answer(
        self,
        questions,
        contexts,
        top_k: int = 1,
        max_answer_length: int = 30,
        null_threshold: float | None = None,
        batch_size: int = 32,
    ) -> list:
        """Answers questions from their contexts, which can have any length.

        Args:
            questions: string, or list, tuple, array or tensor of strings.
            contexts: as many strings, in the same form.
            top_k: int. Number of answers per question. Defaults to `1`.
            max_answer_length: int, in tokens. Defaults to `30`.
            null_threshold: float. See the class. Defaults to `None`, the model's own.
            batch_size: int. Number of windows per batch. Defaults to `32`.

        Returns:
            For each question a list of up to `top_k` `{"answer", "score",
            "start", "end"}`, best first: the exact slice `context[start:end]`, and
            its probability among the 20 (or `top_k`, if larger) best candidates. No
            answer is `""` with -1, -1. Without tokens in the question or the
            context, its score is 0.

        Raises:
            ValueError: if the model has no preprocessor, the lists differ in length or contain
                other values, or `top_k`, `max_answer_length` or `batch_size` is not an integer of
                at least 1.

        Example:
        ```python
        answerer.answer("Who wrote it?", "Bob wrote the letter.", top_k=3)
        ```
        """
        if isinstance(questions, str):
            rule = "a list of strings, as `contexts`"
            check_kind("questions", questions, isinstance(contexts, str), rule)
            lengths = top_k, max_answer_length
            return self.answer([questions], [contexts], *lengths, null_threshold, batch_size)[0]
        check_counts(top_k=top_k)
        answers, _ = self._decode(
            questions, contexts, max_answer_length, null_threshold, batch_size, max(top_k, N_BEST)
        )
        return [candidates[:top_k] for candidates in answers]

    def evaluate_squad(
        self,
        examples,
        max_answer_length: int = 30,
        batch_size: int = 32,
        by_character: bool = False,
    ) -> dict:
        """Scores the answers to the questions of a data set.

        If some questions have no answer, finds the threshold with the best F1 as
        `keras_spanbert.metrics.squad` does, sets it as the model's
        `null_threshold`, and uses it for the scores.

        Args:
            examples: the result of `keras_spanbert.data.squad.read` or `mrqa.read`.
            max_answer_length: int, in tokens. Defaults to `30`.
            batch_size: int. Number of windows per batch. Defaults to `32`.
            by_character: bool. See `keras_spanbert.metrics.squad`. Defaults to `False`.

        Returns:
            Dict of the official scores: see `keras_spanbert.metrics.squad`.

        Raises:
            ValueError: if `examples` are something else, or the file did not give
                the answers to a question. See also `answer`.

        Example:
        ```python
        examples = keras_spanbert.data.squad.read("dev-v2.0.json", for_training=False)
        scores = answerer.evaluate_squad(examples)
        ```
        """
        rule = "the result of `keras_spanbert.data.squad.read(path, for_training=False)`"
        check_kind("examples", examples, isinstance(examples, Examples), rule)
        if None in examples.golds:
            raise ValueError(
                "`examples` for scoring must have answers. Received: none for the question with id "
                f"{examples.ids[examples.golds.index(None)]!r}"
            )
        has_all_answers = all(examples.golds)
        columns = examples.questions, examples.contexts
        threshold = None if has_all_answers else np.inf  # Always the best answer.
        answers, null_scores = self._decode(*columns, max_answer_length, threshold, batch_size)
        predictions = {name: found[0]["answer"] for name, found in zip(examples.ids, answers)}
        dataset = squad_dataset(examples)
        score = functools.partial(squad, dataset, predictions, by_character)
        if has_all_answers:
            return score()
        null_scores = dict(zip(examples.ids, null_scores))
        best = score(null_scores)
        self.null_threshold = best["best_f1_thresh"]
        return {**best, **score(null_scores, self.null_threshold)}

    def _decode(
        self, questions, contexts, max_answer_length, null_threshold, batch_size, n_best=N_BEST
    ):
        check_counts(max_answer_length=max_answer_length, batch_size=batch_size)
        check_number_or_none(null_threshold=null_threshold)
        questions, contexts = as_strings("questions", questions), as_strings("contexts", contexts)
        self.warn_if_untrained()
        self.check_preprocessor()
        windows = self.preprocessor.windows(questions, contexts)
        logits = self._logits(windows, batch_size)
        if null_threshold is None:
            null_threshold = self.null_threshold
        return decode(*logits, windows, contexts, n_best, max_answer_length, null_threshold)

    def _logits(self, windows, batch_size):
        """Returns logits of windows, minus infinity for padding."""
        inputs = {name: windows[name] for name in SEQUENCES}
        shape = inputs["padding_mask"].shape
        logits = {name: np.full(shape, -np.inf, "float32") for name in LABELS}
        for rows, outputs in predict_by_length(self, inputs, batch_size):
            for name, array in logits.items():
                array[rows, : outputs[name].shape[1]] = outputs[name]
        # Without this, values in the padding would depend on the other windows of the batch.
        is_token = inputs["padding_mask"] > 0
        return [np.where(is_token, logits[name], -np.inf) for name in LABELS]

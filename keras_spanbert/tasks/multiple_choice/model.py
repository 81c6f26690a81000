"""Chooses an answer to a question, or an ending of a text.

Legend: N = questions, C = choices, L = tokens of a sequence.
"""

import keras
import numpy as np
from keras import ops

from keras_spanbert.checks import accepts_datasets
from keras_spanbert.data.batches import SEQUENCES
from keras_spanbert.layers.array_functions import int32, namespace
from keras_spanbert.models.backbone import POOLER, dense_layer, pooler
from keras_spanbert.models.classifier import (
    CLASSIFIER,
    ClassifierTask,
    dropout_layer,
    probabilities,
)
from keras_spanbert.optional import tf
from keras_spanbert.serving.saved_model import outputs_by_length, strings
from keras_spanbert.tasks.multiple_choice.preprocessor import (
    LABEL_RULE,
    SpanBertMultipleChoicePreprocessor,
    is_one,
)
from keras_spanbert.text.strings import as_strings, check_examples, check_in_graph
from keras_spanbert.text.tokens import encode_pairs

# The logit of padding. Its probability is 0, and the loss stays finite.
NO_CHOICE = -1e9


@keras.saving.register_keras_serializable(package="keras_spanbert")
class ChoicesAsRows(keras.layers.Layer):
    """Flattens `[N, C, L]` in a dict to rows `[N * C, L]`. An optional input can be `None`."""

    def call(self, inputs):
        return {
            name: None if x is None else ops.reshape(x, (-1, ops.shape(x)[2]))
            for name, x in inputs.items()
        }


@keras.saving.register_keras_serializable(package="keras_spanbert")
class ChoiceLogits(keras.layers.Layer):
    """Reshapes `scores` `[N * C, 1]` to logits `[N, C]`, float32 or wider. Padding gets -1e9.

    A dict also has the `token_ids`, int `[N, C, L]`, and the `choice_mask`, int or bool `[N, C]`,
    or `None` for all ones.
    """

    def call(self, inputs):
        scores = inputs["scores"]
        dtype = keras.backend.result_type(scores.dtype, "float32")
        shape = ops.shape(inputs["token_ids"])[:2]
        logits = ops.reshape(ops.cast(scores, dtype), shape)
        mask = inputs.get("choice_mask")
        if mask is None:
            return logits
        return ops.where(ops.cast(mask, "bool"), logits, ops.cast(NO_CHOICE, dtype))

    def compute_output_spec(self, inputs):
        dtype = keras.backend.result_type(inputs["scores"].dtype, "float32")
        return keras.KerasTensor(inputs["token_ids"].shape[:2], dtype=dtype)


# A classifier of another task, with several labels, does not score choices.
_SCORER = CLASSIFIER._replace(
    entries=lambda x: CLASSIFIER.entries(x) if x["num_labels"] == 1 else ()
)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertMultipleChoice(ClassifierTask):
    """Chooses among the answers to a question, or the endings of a text.

    The model scores each choice in a sequence of its own, with BERT's pooler over `[CLS]`, dropout,
    and a dense layer. A softmax over the scores of a question's choices gives their probabilities.
    Questions can have any number of choices. By default it is compiled with AdamW (learning rate
    2e-5), cross-entropy and accuracy.

    `fit`, `evaluate` and `predict` take `x={"prompt", "choices"}`, optionally with
    `"context"`, in the same form as `choose`, with labels `y`, the indices of the
    right choices. They also take labelled examples from
    `keras_spanbert.data.swag.read`, arrays from `preprocess`, and batches of any of
    these: see `fit`. Questions with fewer choices than others are padded.

    Args:
        backbone: `SpanBertBackbone`.
        preprocessor: `SpanBertMultipleChoicePreprocessor`. Defaults to `None`.
        dropout: float. Rate before the last layer. Defaults to `0.1`.

    Raises:
        ValueError: if `dropout` is not in [0, 1).

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}` int32 `[N, C, L]`, and optionally
        `"choice_mask"` int32 `[N, C]`, 0 for padding, to logits float `[N, C]`, -1e9 for padding.

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
    tensor_groups = (POOLER, _SCORER)
    huggingface_class = "BertForMultipleChoice"
    scores = {"accuracy": "accuracy"}
    best_score = "accuracy"
    config_names = ("dropout",)

    def __init__(self, backbone, preprocessor=None, dropout: float = 0.1, **kwargs):
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor
        self.choices_as_rows = ChoicesAsRows(name="choices_as_rows")
        self.pooler = pooler(backbone)
        self.output_dropout = dropout_layer(backbone, dropout)
        self.classifier = dense_layer(backbone, 1, "classifier")
        self.choice_logits = ChoiceLogits(dtype=backbone.compute_dtype, name="choice_logits")

        # === Functional Model ===
        inputs = {
            name: keras.Input(
                (None, None), dtype="int32", name=name, optional=name == "padding_mask"
            )
            for name in SEQUENCES
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

    def serving_endpoints(self) -> dict:
        self.check_preprocessor()

        def compute_scores(rows):
            return self({name: x[:, None, :] for name, x in rows.items()}, training=False)

        def serve_contexts(context, prompt, choices):
            num_prompts, num_questions = tf.size(prompt), tf.shape(choices)[0]
            message = "`prompts` and `choices` must have the same length. Received:"
            is_right = num_prompts == num_questions
            choices = check_in_graph(choices, is_right, message, num_prompts, num_questions)
            is_choice = choices != ""  # [B, C]
            places = tf.where(is_choice)  # [R, 2], for R choices.
            choice = as_strings("choices", tf.boolean_mask(choices, is_choice))
            context, prompt = (
                as_strings("texts", tf.gather(texts, places[:, 0])) for texts in (context, prompt)
            )
            has_context = context != ""
            first = tf.where(has_context, context, prompt)
            longer = tf.strings.join([prompt, choice], " ")
            second = tf.where(has_context & (prompt != ""), longer, choice)
            rows = encode_pairs(self.preprocessor, first, second)
            found = outputs_by_length(compute_scores, rows, [1])[:, 0]  # [R]
            # A first column of padding, because there may be no choice.
            shape = tf.shape(choices, tf.int64) + [0, 1]
            logits = tf.fill(shape, tf.constant(NO_CHOICE))
            logits = tf.tensor_scatter_nd_update(logits, places + [0, 1], found)
            scores = tf.where(is_choice, tf.nn.softmax(logits, axis=1)[:, 1:], 0.0)
            return {"choice": tf.argmax(logits, axis=1, output_type=tf.int32) - 1, "scores": scores}

        def serve(prompt, choices):
            return serve_contexts(tf.zeros_like(prompt), prompt, choices)

        texts = strings("context", "prompt")
        choices = tf.TensorSpec([None, None], tf.string, name="choices")  # Padded with "".
        return {
            "serving_default": (serve, [texts[1], choices]),
            "contexts": (serve_contexts, [*texts, choices]),
        }

    def label_limits(self, x) -> dict:
        xp, mask, counts = namespace(x), x.get("choice_mask"), x["token_ids"].shape[1]
        if mask is not None:
            mask = keras.ops.convert_to_numpy(mask) if xp is np else mask
            counts = xp.sum(int32(xp, mask > 0), axis=1)
        return {"": (counts, LABEL_RULE)}

    # === Answers ===
    def logits_of_rows(self, inputs: dict, batch_size: int) -> np.ndarray:
        # Padding is not computed. Each choice becomes a question with one choice.
        is_choice = inputs["choice_mask"] > 0
        rows = {name: inputs[name][is_choice][:, None, :] for name in SEQUENCES}
        logits = np.full(is_choice.shape, NO_CHOICE, "float32")
        logits[is_choice] = super().logits_of_rows(rows, batch_size)[:, 0]
        return logits

    @accepts_datasets
    def choose(
        self, prompts, choices=None, contexts=None, batch_size: int = 32
    ) -> list[dict] | dict:
        """Chooses an answer to each question, or an ending of each text.

        Args:
            prompts: string, or list, tuple, array or tensor of N strings; or a pair of strings, the
                context and the text before each choice, or a list of N pairs. A context of `""`
                means no context. Or a list of examples, without the other arguments.
            choices: list of N lists of two or more strings. For a single prompt, a
                list of strings. Or an array or tensor of strings `[N, C]`, padded
                with `""`. Defaults to `None`: the choices of the examples.
            contexts: list of N strings, if `prompts` are strings. Defaults to `None`: no contexts.
            batch_size: int. Number of choices per batch. Defaults to `32`.

        Returns:
            For each question a dict: `"choice"` is the index of the likeliest
            choice, and `"scores"` are the probabilities of all choices, 0 for
            padding. A single prompt gives one dict.

        Raises:
            ValueError: if the model has no preprocessor, prompts and choices are something else or
                differ in number, or a question has fewer than two choices.

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
        answers = []
        for logits in self.logits_of_rows(inputs, batch_size):
            # Without padding after the last choice.
            logits = logits[: 1 + np.flatnonzero(logits > NO_CHOICE)[-1]]
            scores = probabilities(logits)
            answers.append({"choice": int(np.argmax(scores)), "scores": scores.tolist()})
        return answers

    @accepts_datasets
    def evaluate_choices(self, examples: list[dict], batch_size: int = 32) -> dict:
        """Scores the choices for examples.

        Args:
            examples: list of labelled dicts from `keras_spanbert.data.swag.read`.
            batch_size: int. Number of choices per batch. Defaults to `32`.

        Returns:
            Dict of `accuracy`, in percent, and `total`, the number of examples.

        Raises:
            ValueError: if an example has no label, or its label is not the index of
                one of its choices.

        Example:
        ```python
        examples = keras_spanbert.data.codah.read("cv_split/fold_0/dev.tsv")
        model.evaluate_choices(examples)["accuracy"]
        ```
        """
        check_examples(examples)
        inputs, labels, _ = self.preprocess(examples)
        if labels is None:
            raise ValueError("Examples to score must have labels. Received: none")
        logits = self.logits_of_rows(inputs, batch_size)
        is_right = np.argmax(logits, axis=1) == labels
        return {"accuracy": 100.0 * float(np.mean(is_right)), "total": len(examples)}

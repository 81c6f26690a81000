"""Converts questions with choices to arrays for `SpanBertMultipleChoice`."""

import keras
import numpy as np

from keras_spanbert.checks import accepts_datasets, check_length
from keras_spanbert.layers.array_functions import int32, namespace, take
from keras_spanbert.models.examples import columns_of, is_examples
from keras_spanbert.models.pairs import encode_pairs
from keras_spanbert.models.preprocessor import LabelledPreprocessor
from keras_spanbert.models.strings import check_in_graph
from keras_spanbert.tasks.multiple_choice.questions import check_questions, choice_texts


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertMultipleChoicePreprocessor(LabelledPreprocessor):
    """Makes a row of tokens for each choice of a question.

    A row is `[CLS] prompt [SEP] choice [SEP]`, or with a context
    `[CLS] context [SEP] prompt choice [SEP]`. Its segment is 0 up to the first
    `[SEP]`, then 1. A row that is too long loses tokens one at a time, from the end
    of the longer text, or of the second text if both are equally long.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a row. Defaults to `512`.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: if `sequence_length` is not an integer of at least 5.

    Call arguments:
        x: a dict of `"prompt"`, strings `[N]`; `"choices"`, N lists of strings or
            an array `[N, C]`, padded with `""`; and optionally `"context"`, strings
            `[N]`. Or a list of dicts with these keys, such as labelled examples from
            `keras_spanbert.data.swag.read`.
        y: integers `[N]`, the index of the right choice. Defaults to `None`: no
            labels.
        sample_weight: numbers `[N]`. Defaults to `None`.

    Returns:
        `x`, `(x, y)` or `(x, y, sample_weight)`. `x` is what `inputs` returns,
        `y` int32 and `sample_weight` float32.

    Examples:
    ```python
    preprocessor = keras_spanbert.SpanBertMultipleChoicePreprocessor(
        tokenizer, sequence_length=64
    )
    x = {"prompt": ["A dog barks. It"], "choices": [["is a cat.", "is awake."]]}
    x, y = preprocessor(x, [1])

    # Batches of a `tf.data.Dataset`, on every backend. Choices are padded with "" or ragged.
    x = {"prompt": ["A dog barks. It"], "choices": [["is a cat.", "is awake.", ""]]}
    dataset = tf.data.Dataset.from_tensor_slices((x, [1])).batch(2).map(preprocessor)
    ```

    Reference:
        [Zellers et al. 2018](https://aclanthology.org/D18-1009/), SWAG, with the
        input format of BERT's fine-tuning.
    """

    config_names = ("sequence_length",)

    def __init__(self, tokenizer, sequence_length: int = 512, **kwargs):
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.sequence_length = check_length(sequence_length, 5)

    def rows(self, x) -> dict:
        if is_examples(x):
            x = columns_of(x, ["prompt", "choices"], ["context"])
        if not isinstance(x, dict) or not {"prompt", "choices"} <= set(x):
            raise ValueError(
                '`x` must be a dict of "prompt" and "choices", a list of strings and a list of '
                f"lists of strings, or a list of examples. Received: x={x!r:.80}, of type "
                f"{type(x).__name__}"
            )
        return self.inputs(x["prompt"], x["choices"], x.get("context"))

    def labels(self, y, inputs=None):
        y = super().labels(y)
        if inputs is None:
            return y
        mask = inputs["choice_mask"]
        rule = "A label must be the number of one of its question's choices, from 0. Received:"
        if y.dtype != np.int32 or len(y.shape) != 1:
            raise ValueError(f"{rule} {y!r:.80}")
        xp = namespace(y)
        if xp is np and len(y) != len(mask):
            return y  # The call raises the error.
        choice = xp.cumsum(xp.ones_like(mask), axis=1, dtype=np.int32) - 1
        is_right = xp.any((choice == y[:, None]) & (mask > 0), axis=1)
        if xp is not np:
            return check_in_graph(y, is_right, rule, y)
        for row in np.flatnonzero(~is_right)[:1]:
            count = np.count_nonzero(mask[row])
            raise ValueError(f"{rule} {y[row]} at {row}, a question of {count} choices")
        return y

    @accepts_datasets
    def inputs(self, prompts, choices=None, contexts=None) -> dict:
        """Makes the model's arrays from questions with choices.

        Args:
            prompts: list, tuple, array or tensor of N strings; or a list of N pairs
                of strings, the context and the text before each choice. A context
                of `""` means no context. Or a list of examples from
                `keras_spanbert.data.swag.read`, without the other
                arguments.
            choices: list of N lists of two or more strings; or an array or tensor
                of strings `[N, C]`, padded with `""`. Defaults to `None`: the
                choices of the examples.
            contexts: list of N strings, if `prompts` are strings. Defaults to
                `None`: no contexts.

        Returns:
            Dict of int32 arrays: `token_ids`, `segment_ids`, `padding_mask`
            `[N, C, L]`, where C is the largest number of choices of a question;
            `choice_mask` `[N, C]`, 0 for padding.

        Raises:
            ValueError: if the lists differ in length or hold something else, or a
                question has fewer than two choices.
        """
        if choices is None and contexts is None and is_examples(prompts):
            return self.rows(prompts)
        questions = check_questions(prompts, choices, contexts)
        xp = namespace(questions.prompts)
        mask, first, second = choice_texts(questions)
        rows = encode_pairs(self, first, second)
        # The rows of the choices, after a first one of padding.
        is_choice = int32(xp, mask)
        in_row = xp.sum(is_choice, axis=1, dtype=np.int32)
        before = xp.cumsum(in_row, dtype=np.int32) - in_row
        number = xp.cumsum(is_choice, axis=1, dtype=np.int32) + before[:, None]
        inputs = {"choice_mask": is_choice}
        for name, array in rows.items():
            fill = self.tokenizer.pad_token_id if name == "token_ids" else 0
            padding = np.full((1, self.sequence_length), fill, np.int32)
            array = xp.concatenate([padding, array], axis=0)
            inputs[name] = take(xp, array, xp.where(mask, number, np.int32(0)))
        return inputs

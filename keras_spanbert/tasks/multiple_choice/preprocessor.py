"""Converts questions with choices to arrays for `SpanBertMultipleChoice`."""

import keras
import numpy as np

from keras_spanbert.checks import (
    accepts_datasets,
    check_kind,
    check_length,
    check_same_length,
    to_python,
)
from keras_spanbert.models.preprocessor import LabelledPreprocessor
from keras_spanbert.optional import tf
from keras_spanbert.text.strings import as_strings, columns_of, is_examples
from keras_spanbert.text.tokens import encode_pairs

MIN_CHOICES = 2  # Minimum number of choices of a question.
LABEL_RULE = "A label must be the number of one of its question's choices, from 0"


def check_questions(prompts, choices, contexts=None) -> tuple[list, list, list]:
    """Returns contexts, prompts and choices of the arguments of `inputs`.

    These are lists of N strings, `""` for no context, and a list of N lists of strings, `None` for
    a missing choice. Raises `ValueError` for other arguments.
    """
    is_list = isinstance(prompts, (list, tuple))
    pairs = [isinstance(prompt, (list, tuple)) for prompt in prompts] if is_list else []
    if any(pairs):
        if contexts is not None:
            raise ValueError(
                "`prompts` must be strings if `contexts` are given. Received: "
                f"prompts[{pairs.index(True)}]={prompts[pairs.index(True)]!r:.80}"
            )
        rule, found = "a string or a pair of strings, (context, prompt)", []
        for i, prompt in enumerate(prompts):
            pair = ("", prompt) if isinstance(prompt, str) else prompt
            is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2
            is_pair = is_pair and all(isinstance(text, str) for text in pair)
            check_kind(f"prompts[{i}]", prompt, is_pair, rule)
            found.append(pair)
        contexts, prompts = map(list, zip(*found))
    else:
        prompts = as_strings("prompts", prompts)
        if isinstance(contexts, (list, tuple)):
            contexts = ["" if context is None else context for context in contexts]
        contexts = [""] * len(prompts) if contexts is None else as_strings("contexts", contexts)
    choices = _as_choices(choices)
    check_same_length(prompts=prompts, choices=choices, contexts=contexts)
    return contexts, prompts, choices


def is_one(prompts, choices) -> bool:
    """Returns whether these are a single prompt, a string or pair, and its list of choices."""
    is_pair = isinstance(prompts, tuple) and len(prompts) == 2
    is_prompt = isinstance(prompts, str) or is_pair and all(isinstance(p, str) for p in prompts)
    is_list = isinstance(choices, (list, tuple, str))  # `check_questions` rejects a string.
    return is_prompt and is_list and all(isinstance(choice, str) for choice in choices)


def _as_choices(choices):
    """Converts choices to lists of two or more each."""
    is_ragged = hasattr(choices, "to_list")
    is_padded = not is_ragged and hasattr(choices, "__array__") and np.ndim(choices) == 2
    rows = to_python(choices)
    check_kind("choices", choices, isinstance(rows, list), "a list of lists of strings")
    for i, row in enumerate(rows):
        row = as_strings(f"choices[{i}]", row)
        rows[i] = row = [choice or None for choice in row] if is_padded else row
        count = sum(choice is not None for choice in row)
        if count < MIN_CHOICES:
            raise ValueError(
                f"A question must have at least {MIN_CHOICES} choices. Received: {count} in "
                f"choices[{i}]={row!r:.80}"
            )
    return rows


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
        x: a dict of `"prompt"`, strings `[N]`; `"choices"`, N lists of strings or an array
            `[N, C]`, padded with `""`; and optionally `"context"`, strings `[N]`. Or a list of
            dicts with these keys, such as labelled examples from `keras_spanbert.data.swag.read`.
        y: integers `[N]`, the index of the right choice. Defaults to `None`: no labels.
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
        rule = 'a dict of "prompt" and "choices", lists of strings, or a list of examples'
        check_kind("x", x, isinstance(x, dict) and {"prompt", "choices"} <= set(x), rule)
        return self.inputs(x["prompt"], x["choices"], x.get("context"))

    def row_specs(self, x, num_rows):
        shape = num_rows, x["choices"].shape[1]
        return {**self.sequence_specs(*shape), "choice_mask": tf.TensorSpec(shape, "int32")}

    def labels(self, y, inputs=None):
        y = super().labels(y)
        if inputs is None:
            return y
        if y.dtype != np.int32 or y.ndim != 1:
            raise ValueError(f"{LABEL_RULE}. Received: {y!r:.80}")
        mask = inputs["choice_mask"]
        if len(y) != len(mask):
            return y  # The call raises the error.
        choice = np.arange(mask.shape[1])
        is_right = ((choice == y[:, None]) & (mask > 0)).any(axis=1)
        if not is_right.all():
            row = np.argmin(is_right)
            received = f"{y[row]} at {row}, a question of {mask[row].sum()} choices"
            raise ValueError(f"{LABEL_RULE}. Received: {received}")
        return y

    @accepts_datasets
    def inputs(self, prompts, choices=None, contexts=None) -> dict:
        """Makes the model's arrays from questions with choices.

        Args:
            prompts: list, tuple, array or tensor of N strings; or a list of N pairs of strings, the
                context and the text before each choice. A context of `""` means no context. Or a
                list of examples from `keras_spanbert.data.swag.read`, without the other arguments.
            choices: list of N lists of two or more strings; or an array or tensor of strings
                `[N, C]`, padded with `""`. Defaults to `None`: the choices of the examples.
            contexts: list of N strings, if `prompts` are strings. Defaults to `None`: no contexts.

        Returns:
            Dict of int32 arrays: `token_ids`, `segment_ids`, `padding_mask` `[N, C, L]`, where C is
            the largest number of choices of a question; `choice_mask` `[N, C]`, 0 for padding.

        Raises:
            ValueError: if the lists differ in length or hold something else, or a
                question has fewer than two choices.
        """
        if choices is None and contexts is None and is_examples(prompts):
            return self.rows(prompts)
        contexts, prompts, choices = check_questions(prompts, choices, contexts)
        first, second = [], []
        mask = np.zeros((len(choices), max(map(len, choices), default=0)), bool)
        for i, (context, prompt, row) in enumerate(zip(contexts, prompts, choices)):
            for j, choice in enumerate(row):
                if choice is not None:
                    mask[i, j] = True
                    first.append(context or prompt)
                    second.append(f"{prompt} {choice}" if context and prompt else choice)
        inputs = {"choice_mask": mask.astype(np.int32)}
        for name, array in encode_pairs(self, first, second).items():
            padding = self.tokenizer.pad_token_id if name == "token_ids" else 0
            inputs[name] = np.full((*mask.shape, self.sequence_length), padding, np.int32)
            inputs[name][mask] = array
        return inputs

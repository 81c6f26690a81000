"""From questions with choices to arrays for `SpanBertMultipleChoice`."""

import keras
import numpy as np

from keras_spanbert.models.arguments import check_counts
from keras_spanbert.models.classifier import is_examples
from keras_spanbert.models.pairs import encode_pairs
from keras_spanbert.models.preprocessor import SpanBertPreprocessor
from keras_spanbert.tasks.multiple_choice.questions import as_questions, questions_of


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertMultipleChoicePreprocessor(SpanBertPreprocessor):
    """Makes a row of tokens of each choice of a question.

    A row is `[CLS] prompt [SEP] choice [SEP]`, or with a context
    `[CLS] context [SEP] prompt choice [SEP]`, segment 0 up to the first `[SEP]`,
    then 1. What is too long loses tokens at the end, one at a time, from the
    longer of both, from the second where they are equally long.

    Args:
        tokenizer: `SpanBertTokenizer`.
        sequence_length: int. Length L of a row. Defaults to `512`.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: where `sequence_length` is no integer of at least 5.

    Example:
    ```python
    preprocessor = keras_spanbert.SpanBertMultipleChoicePreprocessor(
        tokenizer, sequence_length=64
    )
    inputs = preprocessor.inputs(["A dog barks. It"], [["is a cat.", "is awake."]])
    ```

    Reference:
        [Zellers et al. 2018](https://aclanthology.org/D18-1009/), SWAG, in the
        form of BERT's fine-tuning on it.
    """

    def __init__(self, tokenizer, sequence_length: int = 512, **kwargs):
        super().__init__(**kwargs)
        check_counts(sequence_length=sequence_length)
        if sequence_length < 5:
            raise ValueError(
                "`sequence_length` must hold 3 special tokens and one of each text. Received: "
                f"sequence_length={sequence_length}"
            )
        self.tokenizer = tokenizer
        self.sequence_length = int(sequence_length)
        self.built = True

    def call(self, x) -> dict:
        """The arrays of whatever `fit` takes: see `SpanBertMultipleChoice`."""
        return self._arrays(questions_of(x))

    def inputs(self, prompts, choices=None, contexts=None) -> dict:
        """The model's arrays of questions with choices.

        Args:
            prompts: list, tuple, array or tensor of strings; or list of pairs
                of strings, the context and what stands before each choice. An
                empty context is none. Or, alone, a list of examples, as
                `keras_spanbert.data.swag.read` gives them.
            choices: list of as many lists of two strings or more; or an array
                or tensor of strings `[N, C]`, of which `""` is no choice.
                Defaults to `None`, those of the examples.
            contexts: as many strings, where `prompts` are strings. Defaults to
                `None`, none.

        Returns:
            Dict of int32 arrays: `token_ids`, `segment_ids`, `padding_mask`
            `[N, C, L]`, C the most choices that a question has; `choice_mask`
            `[N, C]`, 0 where there is no choice.

        Raises:
            ValueError: where the lists differ in length or hold something else,
                or a question has less than two choices.
        """
        if choices is None and contexts is None and is_examples(prompts):
            return self.call(prompts)
        return self._arrays(as_questions(prompts, choices, contexts))

    def _arrays(self, questions):
        first, second = [], []
        mask = np.zeros((len(questions.choices), max(map(len, questions.choices), default=0)), bool)
        for i, (context, prompt, choices) in enumerate(zip(*questions)):
            for j, choice in enumerate(choices):
                if choice is not None:
                    mask[i, j] = True
                    first.append(context or prompt)
                    second.append(f"{prompt} {choice}" if context and prompt else choice)
        rows = encode_pairs(self.tokenizer, first, second, self.sequence_length)
        inputs = {"choice_mask": mask.astype(np.int32)}
        for name, array in rows.items():
            fill = self.tokenizer.pad_token_id if name == "token_ids" else 0
            inputs[name] = np.full((*mask.shape, self.sequence_length), fill, np.int32)
            inputs[name][mask] = array
        return inputs

    def get_config(self):
        config = super().get_config()
        config["sequence_length"] = self.sequence_length
        return config

"""Reads questions with choices from any container."""

import collections

import numpy as np

from keras_spanbert.checks import check_same_length, to_python
from keras_spanbert.layers.array_functions import is_symbolic
from keras_spanbert.models.pairs import is_not_empty
from keras_spanbert.models.strings import as_strings, check_in_graph

# N questions: `contexts` and `prompts` are lists of N strings, `""` for no context. `choices` is a
# list of N lists of strings, `None` for a missing choice. In a graph these are string tensors, and
# `choices` is `[N, C]` or ragged.
Questions = collections.namedtuple("Questions", ["contexts", "prompts", "choices"])

MIN_CHOICES = 2  # Minimum number of choices of a question.


def check_questions(prompts, choices, contexts=None) -> Questions:
    """Checks questions.

    Args:
        prompts: list, tuple, array or tensor of strings; or a list of pairs of
            strings, `(context, prompt)`.
        choices: list of N lists of two or more strings; or an array or tensor of
            strings `[N, C]`, padded with `""`.
        contexts: list of N strings, if `prompts` are strings. Defaults to `None`:
            no contexts.

    Raises:
        ValueError: if they are something else or differ in number, or a question
            has fewer than two choices.
    """
    if is_symbolic(prompts):
        return _questions_in_graph(prompts, choices, contexts)
    is_list = isinstance(prompts, (list, tuple))
    pairs = [isinstance(prompt, (list, tuple)) for prompt in prompts] if is_list else []
    if any(pairs):
        if contexts is not None:
            raise ValueError(
                "`prompts` must be strings if `contexts` are given. Received: "
                f"prompts[{pairs.index(True)}]={prompts[pairs.index(True)]!r:.80}"
            )
        contexts, prompts = _split_pairs(prompts)
    else:
        prompts = as_strings("prompts", prompts)
        contexts = [""] * len(prompts) if contexts is None else as_strings("contexts", contexts)
    choices = _as_choices(choices)
    check_same_length(prompts=prompts, choices=choices, contexts=contexts)
    return Questions(contexts, prompts, choices)


def _questions_in_graph(prompts, choices, contexts):
    import tensorflow as tf

    prompts = as_strings("prompts", prompts)
    contexts = tf.zeros_like(prompts) if contexts is None else as_strings("contexts", contexts)
    if choices.dtype != tf.string or choices.shape.rank != 2:
        raise ValueError(f"`choices` must be strings [N, C]. Received: choices={choices!r:.80}")
    is_ragged = isinstance(choices, tf.RaggedTensor)
    num_questions = tf.cast(choices.nrows() if is_ragged else tf.shape(choices)[0], tf.int32)
    num_prompts = tf.size(prompts)
    message = "`prompts` and `choices` must have the same length. Received:"
    prompts = check_in_graph(
        prompts, num_prompts == num_questions, message, num_prompts, num_questions
    )
    return Questions(contexts, prompts, tf.strings.unicode_transcode(choices, "UTF-8", "UTF-8"))


def choice_texts(questions: Questions) -> tuple:
    """Returns the two texts of each choice.

    Returns:
        bool `[N, C]`, whether there is a choice, and the first and the second texts
        of these R choices in order, lists of R strings or, in a graph, string
        tensors `[R]`.
    """
    contexts, prompts, choices = questions
    if is_symbolic(prompts):
        return _texts_in_graph(contexts, prompts, choices)
    first, second = [], []
    mask = np.zeros((len(choices), max(map(len, choices), default=0)), bool)
    for i, (context, prompt, row) in enumerate(zip(contexts, prompts, choices)):
        for j, choice in enumerate(row):
            if choice is not None:
                mask[i, j] = True
                first.append(context or prompt)
                second.append(f"{prompt} {choice}" if context and prompt else choice)
    return mask, first, second


def _texts_in_graph(contexts, prompts, choices):
    import tensorflow as tf

    if isinstance(choices, tf.RaggedTensor):
        is_choice = tf.sequence_mask(choices.row_lengths())
        choices = choices.to_tensor("")
    else:
        is_choice = is_not_empty(choices)
    places = tf.where(is_choice)  # [R, 2]
    choices = tf.gather_nd(choices, places)
    context, prompt = (tf.gather(texts, places[:, 0]) for texts in (contexts, prompts))
    is_joined = is_not_empty(context) & is_not_empty(prompt)
    first = tf.where(is_not_empty(context), context, prompt)
    second = tf.where(is_joined, tf.strings.join([prompt, choices], " "), choices)
    return is_choice, first, second


def is_one(prompts, choices) -> bool:
    """Returns whether these are a single prompt, a string or pair, and its list of choices."""
    is_pair = isinstance(prompts, tuple) and len(prompts) == 2
    is_prompt = isinstance(prompts, str) or is_pair and all(isinstance(p, str) for p in prompts)
    is_list = isinstance(choices, (list, tuple, str))  # `check_questions` rejects a string.
    return is_prompt and is_list and all(isinstance(choice, str) for choice in choices)


def _split_pairs(prompts):
    """Returns contexts and the texts before each choice."""
    contexts, rest = [], []
    for i, prompt in enumerate(prompts):
        pair = ("", prompt) if isinstance(prompt, str) else prompt
        is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2
        if not is_pair or not all(isinstance(text, str) for text in pair):
            raise ValueError(
                "A prompt must be a string or a pair of strings, (context, prompt). Received: "
                f"prompts[{i}]={prompt!r:.80}, of type {type(prompt).__name__}"
            )
        contexts.append(pair[0])
        rest.append(pair[1])
    return contexts, rest


def _as_choices(choices):
    """Converts choices to lists of two or more each."""
    is_ragged = hasattr(choices, "to_list")
    is_padded = not is_ragged and hasattr(choices, "__array__") and np.ndim(choices) == 2
    rows = to_python(choices)
    if not isinstance(rows, list):
        raise ValueError(
            "`choices` must be a list of lists of strings. Received: "
            f"choices={choices!r:.80}, of type {type(choices).__name__}"
        )
    for i, row in enumerate(rows):
        if isinstance(row, str):
            raise ValueError(
                f"`choices` must be a list of at least {MIN_CHOICES} strings for each prompt. "
                f"Received: choices[{i}]={row!r:.80}, of type {type(row).__name__}"
            )
        row = as_strings(f"choices[{i}]", row)
        rows[i] = row = [choice or None for choice in row] if is_padded else row
        count = sum(choice is not None for choice in row)
        if count < MIN_CHOICES:
            raise ValueError(
                f"A question must have at least {MIN_CHOICES} choices. Received: {count} in "
                f"choices[{i}]={row!r:.80}"
            )
    return rows

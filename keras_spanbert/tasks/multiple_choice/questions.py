"""Questions with their choices, in any container that users have them in."""

import collections

import numpy as np

from keras_spanbert.models.classifier import is_examples
from keras_spanbert.models.strings import as_strings

# N questions: `contexts` and `prompts` are lists of N strings, a context of `""` is none; `choices`
# is a list of N lists of strings, `None` where there is no choice.
Questions = collections.namedtuple("Questions", ["contexts", "prompts", "choices"])

FEWEST = 2  # Choices of a question.


def questions_of(x) -> Questions:
    """The questions of whatever `SpanBertMultipleChoice.fit` takes as `x`.

    Args:
        x: list of examples as readers give them, dicts of `prompt` and
            `choices`; or a dict of columns of these, and of `context`.

    Raises:
        ValueError: where it is something else, or see `as_questions`.
    """
    if is_examples(x):
        for i, example in enumerate(x):
            for name in ["prompt", "choices"]:
                if name not in example:
                    raise ValueError(
                        f"An example must have a `{name}`. Received: x[{i}]={example!r:.80}"
                    )
        return as_questions([e["prompt"] for e in x], [e["choices"] for e in x])
    if not isinstance(x, dict) or not {"prompt", "choices"} <= set(x):
        raise ValueError(
            '`x` must be a dict of "prompt" and "choices", a list of strings and a list of lists '
            f"of strings, or a list of examples. Received: x={x!r:.80}, of type {type(x).__name__}"
        )
    return as_questions(x["prompt"], x["choices"], x.get("context"))


def as_questions(prompts, choices, contexts=None) -> Questions:
    """Questions, checked.

    Args:
        prompts: list, tuple, array or tensor of strings; or a list of pairs of
            strings, `(context, prompt)`.
        choices: list of as many lists of two strings or more; or an array or
            tensor of strings `[N, C]`, of which `""` is no choice.
        contexts: as many strings, where `prompts` are strings. Defaults to
            `None`, none.

    Raises:
        ValueError: where they are something else or not as many, or a question
            has less than two choices.
    """
    is_list = isinstance(prompts, (list, tuple))
    pairs = [isinstance(prompt, (list, tuple)) for prompt in prompts] if is_list else []
    if any(pairs):
        if contexts is not None:
            raise ValueError(
                "`prompts` must be strings where `contexts` are given. Received: "
                f"prompts[{pairs.index(True)}]={prompts[pairs.index(True)]!r:.80}"
            )
        contexts, prompts = _split_pairs(prompts)
    else:
        prompts = as_strings(prompts=prompts)
        contexts = [""] * len(prompts) if contexts is None else as_strings(contexts=contexts)
    choices = _as_choices(choices)
    if not len(prompts) == len(contexts) == len(choices):
        raise ValueError(
            "`prompts`, `choices` and `contexts` must be as many. Received: "
            f"{len(prompts)}, {len(choices)}, {len(contexts)}"
        )
    return Questions(contexts, prompts, choices)


def is_one(prompts, choices) -> bool:
    """Whether these are one prompt, a string or pair, with its own list of choices."""
    is_pair = isinstance(prompts, tuple) and len(prompts) == 2
    is_prompt = isinstance(prompts, str) or is_pair and all(isinstance(p, str) for p in prompts)
    is_list = isinstance(choices, (list, tuple, str))  # A string is told as no list of choices.
    return is_prompt and is_list and all(isinstance(choice, str) for choice in choices)


def _split_pairs(prompts):
    """Contexts and what stands before each choice."""
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
    """Lists of choices, each of two or more."""
    if hasattr(choices, "__array__") and np.ndim(choices) == 2:
        shape = np.shape(choices)
        flat = as_strings(choices=np.asarray(choices).ravel())
        rows = np.array([text or None for text in flat], object).reshape(shape).tolist()
    elif isinstance(choices, (list, tuple)) or hasattr(choices, "__array__"):
        rows = [_one_list(i, row) for i, row in enumerate(choices)]
    else:
        raise ValueError(
            "`choices` must be a list of lists of strings. Received: "
            f"choices={choices!r:.80}, of type {type(choices).__name__}"
        )
    for i, row in enumerate(rows):
        count = sum(choice is not None for choice in row)
        if count < FEWEST:
            raise ValueError(
                f"A question must have {FEWEST} choices or more. Received: {count} in "
                f"choices[{i}]={row!r:.80}"
            )
    return rows


def _one_list(number, row):
    if isinstance(row, (str, bytes)):
        raise ValueError(
            f"`choices` must be a list of strings for each prompt, {FEWEST} or more. Received: "
            f"choices[{number}]={row!r:.80}, of type {type(row).__name__}"
        )
    return as_strings(**{f"choices[{number}]": row})

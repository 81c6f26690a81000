"""Finds the tokens of answers in their contexts.

Uses only the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share.

Legend: N = questions, U = different contexts, A = characters of all contexts.
All integers are int64.
"""

import collections
import numbers

import numpy as np

from keras_spanbert.checks import to_python
from keras_spanbert.layers.array_functions import (
    is_symbolic,
    range_like,
    repeat,
    searchsorted,
    take,
)
from keras_spanbert.models.strings import as_strings, check_in_graph

# Characters at which the released script splits words.
_BLANKS = " \t\r\n\u202f"

Answers = collections.namedtuple(
    "Answers",
    [
        "texts",  # strings [N], "" for no answer
        "starts",  # [N], the answer's first character in its context, -1 for no answer
        "stops",  # [N], the character after its last, -1 for no answer
    ],
)


def as_answers(answers, contexts) -> Answers:
    """Converts answers in any form to columns. Checks that they are at their positions.

    Args:
        answers: see `SpanBertQuestionAnswererPreprocessor.windows`.
        contexts: list of strings, or string tensor of a graph `[N]`.

    Raises:
        ValueError: if they are something else. A graph raises
            `tf.errors.InvalidArgumentError` when it runs.
    """
    is_columns = isinstance(answers, dict) and set(answers) == {"text", "answer_start"}
    if is_symbolic(answers):
        return _answers_in_graph(answers, contexts, is_columns)
    if is_columns:
        columns = as_strings("text", answers["text"]), np.asarray(answers["answer_start"]).tolist()
        answers = [
            None if at == -1 else {"text": text, "answer_start": at} for text, at in zip(*columns)
        ]
    if not isinstance(answers, (list, tuple)):
        _raise_form(answers)
    answers = list(map(_first_answer, answers))
    for i, (answer, context) in enumerate(zip(answers, contexts)):
        is_answer = answer is None or (
            isinstance(answer, dict)
            and isinstance(answer.get("text"), str)
            and isinstance(answer.get("answer_start"), numbers.Integral)
        )
        if not is_answer:
            raise ValueError(
                "An answer must be {'text': string, 'answer_start': int} or None. Received: "
                f"answers[{i}]={answer!r:.80}"
            )
        if answer is None:
            continue
        text, at = answer["text"], answer["answer_start"]
        if not text or at < 0 or context[at : at + len(text)] != text:
            raise ValueError(
                f"An answer must be at its place in the context. Received: {text!r} at {at} "
                f"of question {i}, where the context has {context[at : at + len(text)]!r}"
            )
    texts = ["" if answer is None else answer["text"] for answer in answers]
    starts = [-1 if answer is None else answer["answer_start"] for answer in answers]
    starts = np.array(starts, np.int64)
    sizes = np.array([len(text) for text in texts], np.int64)
    return Answers(texts, starts, np.where(starts < 0, -1, starts + sizes))


def _first_answer(answer):
    """Returns the first of several answers, in the columns of Hugging Face's `datasets`."""
    if not isinstance(answer, dict):
        return answer
    columns = [to_python(answer.get(name)) for name in ["text", "answer_start"]]
    if not all(isinstance(x, list) for x in columns) or len(columns[0]) != len(columns[1]):
        return answer
    return next(({"text": text, "answer_start": at} for text, at in zip(*columns)), None)


def _raise_form(answers):
    raise ValueError(
        "`answers` must be a list of {'text', 'answer_start'} or None, or a dict of these "
        f"columns. Received: {answers!r:.80}, of type {type(answers).__name__}"
    )


def _answers_in_graph(answers, contexts, is_columns):
    import tensorflow as tf

    if not is_columns:
        _raise_form(answers)
    texts, starts = as_strings("text", answers["text"]), tf.cast(answers["answer_start"], tf.int64)
    has_answer = starts != -1
    texts = tf.where(has_answer, texts, "")
    sizes = tf.strings.length(texts, "UTF8_CHAR")
    places = tf.clip_by_value(
        starts, 0, tf.cast(tf.strings.length(contexts, "UTF8_CHAR"), tf.int64)
    )
    slices = tf.strings.substr(contexts, places, tf.cast(sizes, tf.int64), "UTF8_CHAR")
    is_right = ~has_answer | ((slices == texts) & (sizes > 0) & (starts >= 0))
    message = "An answer must be at its place in the context. Received:"
    starts = check_in_graph(starts, is_right, message, texts, starts)
    return Answers(texts, starts, starts + tf.cast(sizes, tf.int64))


def answer_tokens(xp, contexts, characters, context_of, answers):
    """Returns the first and the last token of each answer, counted in its context.

    These are the tokens that overlap the characters of the answer. If there are none,
    because the tokenizer drops these characters, they are the tokens of the words
    that contain the answer, as in the released script.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        contexts: `Tokens` of U contexts, with offsets.
        characters: `CodePoints` of the contexts.
        context_of: `[N]`, the context of each question.
        answers: `Answers`.

    Returns:
        `(first, last)`, `[N]` each, -1 for no answer and for one without tokens.
    """

    def int64(x):
        return xp.asarray(x, dtype=np.int64)

    # === Answers and tokens, in characters of all contexts ===
    has_answer = answers.starts >= 0
    shift = take(xp, characters.starts, context_of)
    start = xp.where(has_answer, answers.starts, np.int64(0)) + shift
    stop = xp.where(has_answer, answers.stops, np.int64(1)) + shift
    sizes = int64(contexts.sizes)
    shift = take(xp, characters.starts, repeat(xp, range_like(xp, sizes, np.int64), sizes))
    begins, ends = (int64(contexts.offsets[:-1, i]) + shift for i in range(2))

    def overlap(start, stop):
        first = searchsorted(xp, ends, start, "right")
        return int64(first), int64(searchsorted(xp, begins, stop)) - 1

    # === The whole words, for answers without tokens ===
    is_blank = characters.values == ord(_BLANKS[0])
    for blank in _BLANKS[1:]:
        is_blank |= characters.values == ord(blank)
    blanks = int64(xp.nonzero(is_blank)[0])
    before = int64(searchsorted(xp, blanks, start)) - 1
    word_start = xp.where(before < 0, np.int64(0), take(xp, blanks, xp.maximum(before, 0)) + 1)
    word_stop = xp.maximum(take(xp, blanks, searchsorted(xp, blanks, stop - 1)), stop)

    own, words = overlap(start, stop), overlap(word_start, word_stop)
    first, last = (xp.where(own[0] > own[1], word, x) for word, x in zip(words, own))
    before = take(xp, int64(contexts.starts), context_of)
    has_tokens = has_answer & (first <= last)
    return [xp.where(has_tokens, x - before, np.int64(-1)) for x in (first, last)]

"""Finds the tokens of answers in their contexts, as the released script does.

Uses only the part of the NumPy API that `numpy` and
`tensorflow.experimental.numpy` share.

Legend: N = questions, U = different contexts, A = characters of all contexts.
All integers are int64.
"""

import collections
import numbers

import numpy as np

from keras_spanbert.layers.array_functions import (
    is_symbolic,
    range_like,
    repeat,
    searchsorted,
    select,
    take,
)
from keras_spanbert.models.strings import as_strings, check_in_graph
from keras_spanbert.models.tokens import expand

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
        columns = as_strings(text=answers["text"]), np.asarray(answers["answer_start"]).tolist()
        answers = [
            None if at == -1 else {"text": text, "answer_start": at} for text, at in zip(*columns)
        ]
    if not isinstance(answers, (list, tuple)):
        _raise_form(answers)
    answers = [*map(_first, answers)]
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


def _first(answer):
    """Returns the first answer if there are lists of texts and starts. Other answers do not change.

    Empty lists mean no answer.
    """
    has_lists = isinstance(answer, dict) and isinstance(answer.get("text"), list)
    if not has_lists:
        return answer
    pairs = zip(answer["text"], answer.get("answer_start") or [])
    return next(({"text": text, "answer_start": at} for text, at in pairs), None)


def _raise_form(answers):
    raise ValueError(
        "`answers` must be a list of {'text', 'answer_start'} or None, or a dict of these "
        f"columns. Received: {answers!r:.80}, of type {type(answers).__name__}"
    )


def _answers_in_graph(answers, contexts, is_columns):
    import tensorflow as tf

    if not is_columns:
        _raise_form(answers)
    texts, starts = as_strings(text=answers["text"]), tf.cast(answers["answer_start"], tf.int64)
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


def answer_tokens(xp, contexts, characters, context_of, answers, starts, stops):
    """Returns the first and the last token of each answer, counted in its context.

    These are the tokens of the whole words that contain the answer. If the tokens of
    the answer alone are among them, only these are returned.

    Args:
        xp: `numpy` or `tensorflow.experimental.numpy`.
        contexts: `Tokens` of U contexts, with offsets.
        characters: `CodePoints` of the contexts.
        context_of: `[N]`, the context of each question.
        answers: `Tokens` of N answers.
        starts, stops: `[N]`, the answer's first character in its context and
            the one after its last, -1 for no answer.

    Returns:
        `(first, last)`, `[N]` each, -1 for no answer and for one without tokens.
    """

    def int64(x):
        return xp.asarray(x, dtype=np.int64)

    contexts, answers = (
        tokens._replace(starts=int64(tokens.starts), sizes=int64(tokens.sizes))
        for tokens in (contexts, answers)
    )
    has_answer = starts >= 0

    # === The whole words, in characters of all contexts ===
    is_blank = characters.values == ord(_BLANKS[0])
    for blank in _BLANKS[1:]:
        is_blank |= characters.values == ord(blank)
    blanks = int64(xp.nonzero(is_blank)[0])
    shift = take(xp, characters.starts, context_of)
    start = xp.where(has_answer, starts, np.int64(0)) + shift
    stop = xp.where(has_answer, stops, np.int64(1)) + shift
    blanks_before = int64(searchsorted(xp, blanks, start))
    last_before = take(xp, blanks, xp.maximum(blanks_before - 1, np.int64(0)))
    start = xp.where(blanks_before > 0, last_before + 1, np.int64(0))
    stop = xp.maximum(take(xp, blanks, searchsorted(xp, blanks, stop - 1)), stop)

    # === Their tokens, counted in all contexts ===
    context_of_token = repeat(xp, range_like(xp, contexts.sizes, np.int64), contexts.sizes)
    shift = take(xp, characters.starts, context_of_token)
    begins, ends = (int64(contexts.offsets[:-1, i]) + shift for i in range(2))
    first = int64(searchsorted(xp, ends, start, "right"))
    last = int64(searchsorted(xp, begins, stop)) - 1
    has_tokens = has_answer & (first <= last)

    # === Places where the answer by itself may begin, and those where it does ===
    has_own = has_tokens & (answers.sizes > 0)
    count = xp.where(has_own, xp.maximum(last - first + 2 - answers.sizes, 0), np.int64(0))
    answer, place = expand(xp, first, count, np.int64)
    first_id = take(xp, answers.ids, take(xp, answers.starts, answer))
    is_begin = take(xp, contexts.ids, place) == first_id
    answer, place = (select(xp, x, is_begin) for x in (answer, place))
    size = take(xp, answers.sizes, answer)
    _, token = expand(xp, place, size, np.int64)
    _, answer_token = expand(xp, take(xp, answers.starts, answer), size, np.int64)
    is_same = take(xp, contexts.ids, token) == take(xp, answers.ids, answer_token)
    num_same = xp.concatenate([np.zeros(1, np.int64), xp.cumsum(int64(is_same))], axis=0)
    after = xp.cumsum(size)
    is_whole = take(xp, num_same, after) - take(xp, num_same, after - size) == size
    answer, place = (select(xp, x, is_whole) for x in (answer, place))

    # === The first of these places ===
    numbers = range_like(xp, first, np.int64)
    index = searchsorted(xp, answer, numbers)
    answer, place = (xp.concatenate([x, np.full(1, -1)], axis=0) for x in (answer, place))
    is_found = take(xp, answer, index) == numbers
    found = take(xp, place, index)
    last = xp.where(is_found, found + answers.sizes - 1, last)
    first = xp.where(is_found, found, first)
    before = take(xp, contexts.starts, context_of)
    return [xp.where(has_tokens, x - before, np.int64(-1)) for x in (first, last)]

"""Files of SQuAD 1.1 and 2.0."""

import collections
import json
import logging
import os

Examples = collections.namedtuple("Examples", ["ids", "questions", "contexts", "answers", "golds"])


def read(paths, strict=False, for_training=True):
    """Reads and checks SQuAD files.

    A question whose first answer is not at its place in the context is left
    out of training, and the log names the first and counts them.

    Args:
        paths: string or list of strings. JSON files of SQuAD 1.1 or 2.0.
        strict: bool. Whether such an answer is an error. Defaults to `False`.
        for_training: bool. Whether to leave such questions out; to score, all
            are needed, and the place of none is. Defaults to `True`.

    Returns:
        `Examples` of lists, one item a question: `ids`, `questions`,
        `contexts`, `answers` (the first, as `{"text", "answer_start"}`, or
        `None`) and `golds` (the texts of all).

    Raises:
        ValueError: where the file is not JSON of this form (the place is
            named), an id comes twice, a question or context is empty, or,
            with `strict`, an answer is not at its place.

    Example:
    ```python
    examples = keras_spanbert.data.squad.read("train-v1.1.json")
    windows = preprocessor.windows(examples.questions, examples.contexts, examples.answers)
    ```

    Reference:
        [Rajpurkar et al. 2018](https://arxiv.org/abs/1806.03822).
    """
    examples = Examples([], [], [], [], [])
    seen, misplaced = set(), []
    paths = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    for place, context, question in (q for p in paths for q in _questions(p, _load(p))):
        name, text = (_string(question, key, place) for key in ["id", "question"])
        place = f"{place} (id {name})"
        if name in seen:
            raise ValueError(f"{place}: an id may stand once. Received: {name!r} again")
        seen.add(name)
        if not text.strip() or not context.strip():
            raise ValueError(f"{place}: question and context must not be empty. Received: {text!r}")
        answers = _list(question, "answers", place)
        for answer in answers:
            _string(answer, "text", place)
            if type(answer.get("answer_start")) is not int:
                raise ValueError(
                    f"{place}: `answer_start` must be an integer. "
                    f"Received: {answer.get('answer_start')!r}"
                )
        if question.get("is_impossible"):
            answers = []
        first = answers[0] if answers else None
        if first is not None and for_training:
            at, length = first["answer_start"], len(first["text"])
            if at < 0 or not length or context[at : at + length] != first["text"]:
                misplaced.append(f"{place}: {first['text']!r} is not at {at}")
                if strict:
                    raise ValueError(f"An answer must be at its place. Received: {misplaced[0]}")
                continue
        if first is not None:
            first = {name: first[name] for name in ["text", "answer_start"]}
        golds = [answer["text"] for answer in answers]
        for values, value in zip(examples, [name, text, context, first, golds]):
            values.append(value)
    if misplaced:
        logging.getLogger("keras_spanbert").warning(
            "Left out %d questions whose answers are not at their places, the first %s",
            len(misplaced),
            misplaced[0],
        )
    if not examples.ids:
        raise ValueError(f"{', '.join(map(str, paths))} must hold questions. Received: none")
    return examples


def to_dataset(examples):
    """The examples in the form of a SQuAD file, as `keras_spanbert.metrics.squad` takes it."""
    questions = [
        {"id": name, "answers": [{"text": text} for text in golds]}
        for name, golds in zip(examples.ids, examples.golds)
    ]
    return {"data": [{"paragraphs": [{"qas": questions}]}]}


def _load(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: must be JSON. Received: {error.msg}, "
            f"column {error.colno}"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8. Received: {error}") from None


def _questions(path, content):
    """Each question with its context and its place in the file, for messages."""
    for a, article in enumerate(_list(content, "data", path)):
        place = f"{path}, article {a}"
        for p, paragraph in enumerate(_list(article, "paragraphs", place)):
            place = f"{path}, article {a}, paragraph {p}"
            context = _string(paragraph, "context", place)
            for q, question in enumerate(_list(paragraph, "qas", place)):
                yield f"{place}, question {q}", context, question


def _list(value, key, place):
    return _item(value, key, place, list)


def _string(value, key, place):
    return _item(value, key, place, str)


def _item(value, key, place, kind):
    item = value.get(key) if isinstance(value, dict) else None
    if not isinstance(item, kind):
        raise ValueError(f"{place}: `{key}` must be a {kind.__name__}. Received: {item!r:.80}")
    return item

"""Reads questions with contexts and answers: code that the readers of SQuAD and MRQA share."""

import collections
import os
from collections.abc import Callable

import keras

from keras_spanbert.checks import check_in, check_paths, is_number
from keras_spanbert.data.examples import (
    add_id,
    check,
    check_label,
    check_not_empty,
    field,
    warn_left_out,
)

Examples = collections.namedtuple("Examples", ["ids", "questions", "contexts", "answers", "golds"])


def read_questions(
    paths,
    questions: Callable,
    answers: Callable,
    id_key: str,
    strict: bool,
    for_training: bool,
    needs_answers: bool,
) -> Examples:
    """Reads and checks the questions of files: see `keras_spanbert.data.squad.read`.

    `questions` is a function of a path that yields `(place, context, question)`, and a question is
    a dict with `id_key`, `question` and, if given, `answers`. `answers` is a function of such a
    question, its context and place. It returns the answer for training, `{"text", "answer_start"}`
    or `None`, and the list of texts for scoring or `None`. The start is `None` if it is missing.
    """
    paths = check_paths("paths", paths)
    rows, ids, misplaced = [], set(), []
    for place, context, question in (item for path in paths for item in questions(path)):
        text = field(question, "question", place, str)
        name = question.get(id_key)
        name = str(name) if is_number(name) else field(question, id_key, place, str)
        where, answer, golds = f"{place} (id {name})", None, None
        check_label(where, question.get("answers"), needs_answers, "`answers`")
        if question.get("answers") is not None:
            answer, golds = answers(question, context, place)
        add_id(ids, name, where)
        are_filled = text.strip() and context.strip()
        check(are_filled, where, "question and context must not be empty", text)
        if answer is not None and for_training:
            gold, at = answer["text"], answer["answer_start"]
            if at is None or at < 0 or not gold or not context.startswith(gold, at):
                found = "has no span" if at is None else f"is not at character {at}"
                misplaced.append(f"{where}: {gold!r} {found}")
                if strict:
                    raise ValueError(
                        f"An answer must be at its place in the context. Received: {misplaced[0]}"
                    )
                continue
        rows.append((name, text, context, answer, golds))
    warn_left_out(misplaced, "question", "with an answer that is not at its position")
    return Examples(*map(list, zip(*check_not_empty(rows, paths, "questions"))))


def download(name: str, files: dict, folder: str) -> str:
    """Returns the path of one of `files`, `{name: (URL, SHA-256)}`, in Keras's cache.

    A file that is not there is downloaded.
    """
    check_in("name", name, name in files, f"one of {', '.join(files)}")
    url, checksum = files[name]
    return keras.utils.get_file(
        fname=name.replace("/", "-"),
        origin=url,
        file_hash=checksum,
        hash_algorithm="sha256",
        cache_subdir=os.path.join("datasets", folder),
    )

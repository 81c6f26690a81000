"""Reads and writes files of SemEval-2010 Task 8: relations between two marked nominals."""

import itertools
import os
import re

from keras_spanbert.checks import check_paths
from keras_spanbert.data import tacred
from keras_spanbert.data.examples import add_id, check, check_label, check_not_empty
from keras_spanbert.data.tacred import example_of_text, relation_names
from keras_spanbert.data.text_files import read_lines
from keras_spanbert.metrics.relation import SEMEVAL2010_TASK8

__all__ = ["RELATIONS", "read", "read_answers", "relation_names", "write_predictions"]

# The 19 labels. `"Other"`, which means no relation, comes first.
RELATIONS = (
    "Other",
    *(f"{name}({order})" for name in SEMEVAL2010_TASK8 for order in ["e1,e2", "e2,e1"]),
)
_NAMES = ", ".join(RELATIONS)
_RELATION_RULE = (
    f"a sentence must be followed by its relation, one of {_NAMES}, and a line with `Comment:`"
)
_EXAMPLE = re.compile(r"(\d+)\t(.*)")
_TAG = re.compile(r"(</?e[12]>)")
_TAGS = ["</e1>", "</e2>", "<e1>", "<e2>"]


def read(paths, needs_labels: bool = True) -> list[dict]:
    """Reads and checks the task's text files.

    An example is `id`, a tab and the sentence in `"`, with `<e1>` and `<e2>` around the nominals.
    Next comes a line with the relation and one that begins with `Comment:`, which is ignored. The
    test file without labels lacks these two. There may be empty lines between examples.

    Args:
        paths: string or list of strings, such as `"TRAIN_FILE.TXT"`.
        needs_labels: bool. Whether each example must have a relation. Defaults to `True`.

    Returns:
        List of dicts as in `keras_spanbert.data.tacred.read`. e1 is the subject,
        e2 the object, both without types. The sentence is split into words at blanks
        and at the tags. Relations are written as in the file.

    Raises:
        ValueError: if a line is not in this order, a tag is missing, a nominal is
            empty, or a relation is unknown or missing (the message has path and
            line), an id is repeated, or there are no examples.

    Example:
    ```python
    examples = keras_spanbert.data.semeval2010.read("TRAIN_FILE.TXT")
    labels = [example["relation"] for example in examples]
    keras_spanbert.metrics.semeval2010_task8(labels, labels)["macro_f1"]  # 100.0
    ```

    Reference:
        [Hendrickx et al. 2010](https://aclanthology.org/S10-1006/).
    """
    examples, ids = [], set()
    for path in check_paths("paths", paths):
        found = {}  # Examples by their places.
        is_open = False  # Whether more lines of the last example may follow.
        for place, line in read_lines(path):
            start = _EXAMPLE.fullmatch(line)
            if not line.strip():
                is_open = False
            elif start:
                found[place] = last = _example(*start.groups(), place)
                is_open = True
            elif is_open and line.startswith("Comment:"):
                is_open = False
            else:
                rule = 'an example must begin with its id, a tab and the sentence in `"`'
                check(is_open, place, rule, line)
                is_right = last["relation"] is None and line.strip() in RELATIONS
                check(is_right, place, _RELATION_RULE, line)
                last["relation"] = line.strip()
        for place, example in found.items():
            check_label(place, example["relation"], needs_labels, "a relation")
            add_id(ids, example["id"], place)
        examples += found.values()
    return check_not_empty(examples, paths)


def _example(name, sentence, place):
    sentence = sentence.strip()
    is_quoted = len(sentence) > 1 and sentence.startswith('"') and sentence.endswith('"')
    check(is_quoted, place, 'a sentence must be in `"`', sentence)
    parts = _TAG.split(sentence[1:-1])
    texts, tags = parts[::2], parts[1::2]
    rule = "a sentence must have <e1>, </e1>, <e2> and </e2> once"
    check(sorted(tags) == _TAGS, place, rule, ", ".join(tags) or "none")
    edges = dict(zip(tags, itertools.accumulate(map(len, texts))))
    spans = [(edges[f"<e{n}>"], edges[f"</e{n}>"]) for n in [1, 2]]
    return example_of_text(name, "".join(texts), *spans, place=place)


def read_answers(path: str | os.PathLike) -> dict[str, str]:
    """Reads a key or a file of answers, with an id, a tab and a relation per line.

    Args:
        path: string, such as `"TEST_FILE_KEY.TXT"`.

    Returns:
        Dict from ids to relations, in the order of the file.

    Raises:
        ValueError: if a line is malformed, its relation is unknown or its id is
            repeated, as in the official scorer, or there are no lines.

    Example:
    ```python
    key = keras_spanbert.data.semeval2010.read_answers("TEST_FILE_KEY.TXT")
    answers = keras_spanbert.data.semeval2010.read_answers("answers.txt")
    predictions = [answers.get(name) for name in key]
    keras_spanbert.metrics.semeval2010_task8(list(key.values()), predictions)
    ```
    """
    answers = {}
    for place, line in read_lines(path):
        name, tab, relation = line.rstrip().partition("\t")
        is_right = name.isdecimal() and tab and relation in RELATIONS
        check(is_right, place, f"a line must be an id, a tab and one of {_NAMES}", line)
        check(name not in answers, place, "an id must not be repeated", name)
        answers[name] = relation
    return check_not_empty(answers, path, "answers")


def write_predictions(path: str | os.PathLike, examples, predictions) -> None:
    """Writes answers for the official scorer, atomically.

    Args:
        path, examples: see `keras_spanbert.data.tacred.write_predictions`.
        predictions: list of strings of `RELATIONS`, one for each example.

    Raises:
        ValueError: see there. Also if a prediction is not one of `RELATIONS`.
        OSError: if the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.semeval2010.read("TEST_FILE.TXT", needs_labels=False)
    predictions = ["Other"] * len(examples)
    keras_spanbert.data.semeval2010.write_predictions("answers.txt", examples, predictions)
    ```
    """
    for relation in predictions:
        if relation not in RELATIONS:
            raise ValueError(f"`predictions` must be from {_NAMES}. Received: {relation!r:.80}")
    tacred.write_predictions(path, examples, predictions)

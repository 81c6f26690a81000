"""Reads files of GLUE, its nine tasks and the diagnostic set, and writes submissions."""

import collections
import math
import numbers
import os

from keras_spanbert import stores
from keras_spanbert.checks import check_in, check_paths
from keras_spanbert.data.examples import (
    add_id,
    as_number,
    check,
    check_known,
    check_not_empty,
    warn_left_out,
    write_lines,
)
from keras_spanbert.data.tables import read_rows
from keras_spanbert.metrics.glue import CLASSES, task_name

_Columns = collections.namedtuple("_Columns", ["text", "text_pair", "label", "id"])
_PAIR = _Columns("sentence1", "sentence2", "label", "index")
# Columns of the files with labels. A test file has a column of ids and no labels.
_COLUMNS = {
    "cola": _Columns("sentence", None, "label", None),
    "sst-2": _Columns("sentence", None, "label", None),
    "mrpc": _Columns("#1 String", "#2 String", "Quality", None),
    "sts-b": _PAIR._replace(label="score"),
    "qqp": _Columns("question1", "question2", "is_duplicate", "id"),
    "mnli": _PAIR._replace(label="gold_label"),
    "qnli": _PAIR._replace(text="question", text_pair="sentence"),
    "rte": _PAIR,
    "wnli": _PAIR,
    "ax": _PAIR,
}
# CoLA's files with labels have no header. These are their columns.
_COLA = ("source", "label", "mark", "sentence")

_SPLITS = {
    "mnli": ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched", "ax"),
    "ax": ("test",),
}
_AX_FILES = ("ax.tsv", "diagnostic.tsv", "AX.tsv")


def read(path, task: str, split: str, strict: bool = False) -> list[dict]:
    """Reads and checks files of GLUE, as they were released.

    Quotes are ordinary characters, and empty lines are skipped. Columns are found
    by name. CoLA's training and development sets have no header. Some rows are left
    out, and the log counts them and names the first: rows of QQP with too few
    columns, as in the released SpanBERT, and rows with the label `-`, which the
    original MNLI gives to pairs on which the annotators did not agree.

    Args:
        path: string, or list of strings. Files, or the folder of a task with `train.tsv` and so on.
        task: string. See `keras_spanbert.metrics.glue`.
        split: string. `"train"`, `"dev"` or `"test"`. For MNLI `"train"`, `"dev_matched"`,
            `"dev_mismatched"`, `"test_matched"`, `"test_mismatched"` or `"ax"`, the diagnostic set.
            The task `"ax"` has only `"test"`.
        strict: bool. Whether such a row is an error instead. Defaults to `False`.

    Returns:
        List of dicts, one per row: `id`, a string, from the file or the number of the row; `text`;
        `text_pair`, `None` in tasks with single sentences; `label`, a class name of `CLASSES`, a
        float for STS-B, or `None` in test files.

    Raises:
        ValueError: if the task or split is unknown, a column is missing, a row is malformed or has
            an unknown label (the message has path, line and rule), or there are no rows.

    Example:
    ```python
    examples = keras_spanbert.data.glue.read("glue_data/RTE", "rte", "dev")
    labels = [example["label"] for example in examples]
    keras_spanbert.metrics.glue("rte", labels, ["entailment"] * len(examples))
    ```

    Reference:
        [Wang et al. 2019](https://arxiv.org/abs/1804.07461).
    """
    task = task_name(task)
    splits = splits_of(task)
    check_in("split", split, split in splits, f"one of {', '.join(splits)} for {task}")
    has_labels = split.startswith(("train", "dev"))
    if split == "ax":
        task, split = "ax", "test"
    columns = _COLUMNS[task]
    if not has_labels:
        columns = columns._replace(label=None, id=columns.id or "index")
    header = _COLA if task == "cola" and has_labels else None
    # Places of rows that are left out.
    examples, undecided, short = [], [], [] if task == "qqp" and not strict else None
    for one in check_paths("paths", path):
        file = one
        if stores.kind(one) == "directory":
            names = _AX_FILES if task == "ax" else (f"{split}.tsv",)
            found = [name for name in names if stores.kind(stores.join(one, name)) == "file"]
            if not found:
                raise ValueError(f"{one} must contain {' or '.join(names)}. Received: no such file")
            file = stores.join(one, found[0])
        for place, row in read_rows(file, filter(None, columns), header=header, short=short):
            example = {name: column and row[column] for name, column in columns._asdict().items()}
            if columns.id is None:
                example["id"] = str(len(examples))
            if task == "mnli" and has_labels and not strict and example["label"].strip() == "-":
                undecided.append(place)
                continue
            if has_labels:
                example["label"] = _label(example["label"], task, place)
            examples.append(example)
    warn_left_out(short or (), "row", "of QQP with too few columns")
    reason = "of MNLI with the label -, on which the annotators did not agree"
    warn_left_out(undecided, "row", reason)
    return check_not_empty(examples, path)


def write_predictions(path: str | os.PathLike, task: str, examples, predictions) -> None:
    """Writes predictions in the format of GLUE's site, atomically.

    Args:
        path: string. The site requires the task's name in GLUE's spelling, such as
            `CoLA.tsv`, `MNLI-m.tsv` or `MNLI-mm.tsv`.
        task: string. See `keras_spanbert.metrics.glue`.
        examples: list of dicts from `read`.
        predictions: class name or index for each example. For STS-B, a number,
            which is written with six decimals, as in the released SpanBERT.

    Raises:
        ValueError: if the numbers of predictions and examples differ, a prediction is not a class
            of the task or a finite number, or an id is repeated.
        OSError: if the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.glue.read("glue_data/RTE", "rte", "test")
    predictions = ["entailment"] * len(examples)
    keras_spanbert.data.glue.write_predictions("RTE.tsv", "rte", examples, predictions)
    ```
    """
    classes, ids = CLASSES[task_name(task)], set()

    def line(example, value, place):
        add_id(ids, example["id"], f"examples[{len(ids)}]")
        if classes and hasattr(value, "__index__") and value in range(len(classes)):
            value = classes[value]
        if classes is None and isinstance(value, numbers.Real) and math.isfinite(value):
            value = f"{value:.6f}"
        elif not isinstance(value, str) or value not in (classes or ()):
            rule = f"one of {', '.join(classes)}, or its index" if classes else "a finite number"
            check(False, place, f"a prediction must be {rule}", value)
        return f"{example['id']}\t{value}"

    write_lines(path, examples, predictions, line, header=["index\tprediction"])


def splits_of(task: str) -> tuple[str, ...]:
    """Returns the splits of a task."""
    return _SPLITS.get(task_name(task), ("train", "dev", "test"))


def _label(cell, task, place):
    cell = cell.strip()
    if CLASSES[task] is not None:
        check_known(place, f"a label of {task}", cell, CLASSES[task])
        return cell
    score = as_number(cell)
    check(0.0 <= score <= 5.0, place, f"a label of {task} must be a number from 0 to 5", cell)
    return score

"""Files of GLUE: its nine tasks and the diagnostic set, and predictions to submit."""

import collections
import logging
import math
import numbers
import os

from keras_spanbert import files, stores
from keras_spanbert.data.examples import as_list, check_some
from keras_spanbert.data.tables import read_rows, read_table
from keras_spanbert.metrics.glue import CLASSES, task_name

_Columns = collections.namedtuple("_Columns", ["text", "text_pair", "label", "id"])
_PAIR = _Columns("sentence1", "sentence2", "label", "index")
# Of the files with labels; a test file has a column of ids, and none of labels.
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
# Its files with labels have no header, but these four columns.
_COLA = ("source", "label", "mark", "sentence")

_SPLITS = {
    "mnli": (
        "train",
        "dev_matched",
        "dev_mismatched",
        "test_matched",
        "test_mismatched",
        "ax",
    ),
    "ax": ("test",),
}
_AX_FILES = ("ax.tsv", "diagnostic.tsv", "AX.tsv")
_SUBMISSIONS = {
    "cola": "CoLA.tsv",
    "sst-2": "SST-2.tsv",
    "mrpc": "MRPC.tsv",
    "sts-b": "STS-B.tsv",
    "qqp": "QQP.tsv",
    "qnli": "QNLI.tsv",
    "rte": "RTE.tsv",
    "wnli": "WNLI.tsv",
    "ax": "AX.tsv",
}


def read(path, task: str, split: str, strict: bool = False) -> list[dict]:
    """Reads and checks files of GLUE, as they were released.

    Quotes are characters as others are, empty lines none. Columns are found by
    their names; CoLA's training and development sets have no header. Rows of
    QQP that have not enough columns, of which its training set has some, are
    left out as in the released SpanBERT, and the log names the first and counts
    them; in all other tasks such a row is an error.

    Args:
        path: string, or list of strings. A file, or the folder of a task, with
            `train.tsv` and so on.
        task: string: see `keras_spanbert.metrics.glue`.
        split: string. `"train"`, `"dev"` or `"test"`; of MNLI `"train"`,
            `"dev_matched"`, `"dev_mismatched"`, `"test_matched"`,
            `"test_mismatched"` or `"ax"`, the diagnostic set; of `"ax"` `"test"`.
        strict: bool. Whether a row of QQP with not enough columns is an error.
            Defaults to `False`.

    Returns:
        List of dicts, one a row: `id`, a string, the file's or the number of the
        row; `text`; `text_pair`, `None` where the task has single sentences;
        `label`, a class name of `CLASSES` or, for STS-B, a float, and `None` in
        test files, which have none.

    Raises:
        ValueError: where task or split is unknown, a column is missing, or a row
            is malformed or of an unknown label (path, line and rule are named),
            or there are no rows.

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
    has_labels = _check_split(task, split)
    if split == "ax":
        task, split = "ax", "test"
    examples, short = [], []
    for one in as_list(path):
        one = _file(one, task, split)
        for place, row in _rows(one, task, has_labels, None if strict else short):
            examples.append(_example(row, task, has_labels, place, len(examples)))
    if short:
        logging.getLogger("keras_spanbert").warning(
            "Left out %d rows of QQP with not enough columns, the first %s", len(short), short[0]
        )
    return check_some(examples, path)


def submission_name(task: str, split: str = "test") -> str:
    """The name that the site of GLUE wants a file of predictions to have.

    Args:
        task: string: see `keras_spanbert.metrics.glue`.
        split: string, of MNLI `"test_matched"`, `"test_mismatched"` or `"ax"`.
            Defaults to `"test"`.

    Raises:
        ValueError: where there is no such task or test set.

    Example:
    ```python
    keras_spanbert.data.glue.submission_name("mnli", "test_mismatched")  # "MNLI-mm.tsv"
    ```
    """
    task = task_name(task)
    if _check_split(task, split):
        raise ValueError(f"`split` must be a test set. Received: split={split!r}")
    if task == "mnli" and split != "ax":
        return {"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"}[split]
    return _SUBMISSIONS["ax" if split == "ax" else task]


def write_predictions(path: str | os.PathLike, task: str, examples, predictions) -> None:
    """Writes predictions as the site of GLUE takes them, whole or not at all.

    Args:
        path: string; `submission_name` has the name that the site wants.
        task: string: see `keras_spanbert.metrics.glue`.
        examples: list of dicts, of `read`.
        predictions: for each a class name or index, of STS-B a number, which is
            written with six decimals, as in the released SpanBERT.

    Raises:
        ValueError: where predictions are not as many as examples, one is no
            class of the task or no finite number, or an id stands twice.
        OSError: where the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.glue.read("glue_data/RTE", "rte", "test")
    predictions = ["entailment"] * len(examples)
    keras_spanbert.data.glue.write_predictions("RTE.tsv", "rte", examples, predictions)
    ```
    """
    task = task_name(task)
    if len(examples) != len(predictions):
        raise ValueError(
            f"`predictions` must be one for each example. Received: {len(predictions)} for "
            f"{len(examples)} examples"
        )
    ids = [example["id"] for example in examples]
    twice = next((name for name, n in collections.Counter(ids).items() if n > 1), None)
    if twice is not None:
        raise ValueError(f"An id may stand once. Received: {twice!r} again")
    lines = [f"{name}\t{_written(task, value)}\n" for name, value in zip(ids, predictions)]
    with files.replacing(os.fspath(path)) as file:
        file.writelines(["index\tprediction\n", *lines])


def _written(task, value):
    classes = CLASSES[task]
    if isinstance(value, str) and classes and value in classes:
        return value
    if classes and hasattr(value, "__index__") and value in range(len(classes)):
        return classes[value]
    if classes is None and isinstance(value, numbers.Real) and math.isfinite(value):
        return f"{value:.6f}"
    rule = f"of {', '.join(classes)}, or their indices" if classes else "finite numbers"
    raise ValueError(f"`predictions` must be {rule}. Received: {value!r:.80}")


def splits_of(task: str) -> tuple[str, ...]:
    """The splits of a task."""
    return _SPLITS.get(task_name(task), ("train", "dev", "test"))


def _check_split(task, split):
    """Whether a split of a task has labels."""
    splits = splits_of(task)
    if split not in splits:
        raise ValueError(
            f"`split` must be one of {', '.join(splits)} for {task}. Received: split={split!r}"
        )
    return split.startswith(("train", "dev"))


def _file(path, task, split):
    if not stores.is_folder(path):
        return path
    names = _AX_FILES if task == "ax" else (f"{split}.tsv",)
    found = [name for name in names if stores.is_file(stores.join(path, name))]
    if not found:
        raise ValueError(f"{path} must hold {' or '.join(names)}. Received: no such file")
    return stores.join(path, found[0])


def _rows(path, task, has_labels, short):
    """Places and rows, as dicts; those of QQP that are short go to the list `short`."""
    if task == "cola" and has_labels:
        for place, cells in read_rows(path):
            if len(cells) != len(_COLA):
                raise ValueError(
                    f"{place}: a row of CoLA must have the {len(_COLA)} columns "
                    f"{', '.join(_COLA)}, between tabs. Received: {len(cells)}, {cells!r:.80}"
                )
            yield place, dict(zip(_COLA, cells))
        return
    columns = filter(None, _used_columns(task, has_labels))
    yield from read_table(path, columns, short=short if task == "qqp" else None)


def _used_columns(task, has_labels):
    columns = _COLUMNS[task]
    return columns if has_labels else columns._replace(label=None, id=columns.id or "index")


def _example(row, task, has_labels, place, number):
    columns = _used_columns(task, has_labels)
    return {
        "id": row[columns.id] if columns.id else str(number),
        "text": row[columns.text],
        "text_pair": row[columns.text_pair] if columns.text_pair else None,
        "label": _label(row[columns.label], task, place) if has_labels else None,
    }


def _label(cell, task, place):
    classes = CLASSES[task]
    if classes is not None:
        if cell not in classes:
            raise ValueError(
                f"{place}: a label of {task} must be one of {', '.join(classes)}. Received: "
                f"{cell!r:.80}"
            )
        return cell
    try:
        score = float(cell)
    except ValueError:
        score = -1.0
    if not 0.0 <= score <= 5.0:
        raise ValueError(
            f"{place}: a label of {task} must be a number from 0 to 5. Received: {cell!r:.80}"
        )
    return score

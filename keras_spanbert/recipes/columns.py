"""What recipes of labelled data share: released layouts, columns of one's own, predictions."""

import os

from keras_spanbert.recipes.checks import check_value
from keras_spanbert.recipes.flags import FLAGS, group
from keras_spanbert.recipes.names import BENCHMARKS
from keras_spanbert.recipes.terminal import log

# Endings of what predictions are written to, where no benchmark says its own.
ENDINGS = (".csv", ".tsv", ".jsonl")
_MOST_LABELS = 20  # That are shown.

string, integer, number, boolean, strings, choice = group("Labelled data")
choice(
    "benchmark",
    None,
    [name for names in BENCHMARKS.values() for name in names],
    "The released data set whose files they are, in its layout, with its scores, predictions in "
    "the form that it takes. Default: columns of your own.",
)
string("text_column", "text", "Column of the text in .csv, .tsv and .jsonl.")
string("label_column", None, "Column of the label. Default: label, relation or tags.")
string("id_column", None, "Column of an id, for --predictions. Default: the number of the row.")


def check(task: str, endings: tuple[str, ...] = ENDINGS) -> None:
    """Raises a ValueError where --benchmark or --predictions do not fit the task.

    Args:
        task: string.
        endings: of --predictions, where there is no benchmark.
    """
    known = BENCHMARKS[task]
    if FLAGS.benchmark is not None:
        rule = f"of {task}: one of {', '.join(known)}" if known else f"none with --task={task}"
        check_value("benchmark", FLAGS.benchmark in known, rule)
    elif FLAGS.predictions:
        check_value(
            "predictions",
            FLAGS.predictions.endswith(endings),
            f"a file that ends in {', '.join(endings)}",
        )


def check_labels(names: list[str], what: str) -> None:
    """Tells the labels of the data to train on, of which there must be two or more.

    Args:
        names: list of strings.
        what: string, what the task calls them.
    """
    if len(names) < 2:
        raise ValueError(
            f"`--train_data` must have two labels or more. Received: {', '.join(names)} alone"
        )
    shown = ", ".join(names[:_MOST_LABELS]) + (", ..." if names[_MOST_LABELS:] else "")
    log(f"{len(names)} {what}: {shown}")


def write_rows(rows: list[dict]) -> None:
    """Writes predictions, a row each, in the form that the ending of --predictions names."""
    from keras_spanbert import files

    ending = os.path.splitext(FLAGS.predictions)[1]
    if ending == ".jsonl":
        files.write_json_lines(FLAGS.predictions, rows)
    else:
        files.write_csv(FLAGS.predictions, rows, {".csv": ",", ".tsv": "\t"}[ending])

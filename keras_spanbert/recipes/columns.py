"""Code shared by the recipes of labelled data: benchmarks, columns and predictions."""

import functools

from keras_spanbert import files
from keras_spanbert.data.tables import check_endings
from keras_spanbert.files import ending
from keras_spanbert.recipes.checks import INPUTS, check_value, matching_files
from keras_spanbert.recipes.flags import FLAGS, Group
from keras_spanbert.recipes.recipe import find_recipe
from keras_spanbert.recipes.terminal import log
from keras_spanbert.wording import format_count

# Writers of --predictions without --dataset, by their endings.
_WRITERS = {
    ".csv": files.write_csv,
    ".tsv": functools.partial(files.write_csv, delimiter="\t"),
    ".jsonl": files.write_json_lines,
}
EXTENSIONS = tuple(_WRITERS)
_MAX_LABELS = 20  # The largest number of labels in the log.

group = Group("Labelled data", "not for pretraining, question answering and coreference.")
group.string(
    "dataset",
    "Name of the public data set that the files come from. They are read in its format and scored "
    "with its official metric, and predictions are written in its submission format, if it has "
    "one. Not for token classification. Default: none; the files are your own tables, with the "
    "columns that the flags below name.",
)
group.string(
    "text_column",
    "Column of the text in .csv, .tsv and .jsonl files. Not for multiple choice. Token "
    "classification expects words (--words_column) unless this flag is given. With it, and for "
    "relation extraction, .jsonl files may be exports of doccano, Label Studio or Prodigy. Token "
    "classification also reads Label Studio's .json and spaCy's .spacy.",
    default="text",
)
group.string(
    "label_column",
    "Column of the label. Default: label. For relation extraction: relation. For token "
    "classification: tags, or entities with --text_column. In files with one word per line, give "
    "the number of the column, counted from 0, or from the end with negative numbers. Default "
    "there: -1, the last column.",
)
group.string(
    "id_column",
    "Column of an ID that is copied to --predictions. Default: none; the number of the row is the "
    "ID.",
)
group.boolean(
    "quoted_tsv",
    'Whether cells in .tsv files may be in ", as pandas, R and spreadsheets write them: with tabs, '
    'line ends and doubled " inside them. By default, " is an ordinary character. In .csv files, '
    "cells may always be quoted.",
    default=False,
)


def check(only_tables: bool = False) -> None:
    """Checks these flags. With `only_tables`, files without --dataset must be tables."""
    if only_tables and FLAGS.dataset is None:
        for name in INPUTS:
            check_endings(matching_files(name))
    if FLAGS.dataset is not None:
        known = find_recipe(FLAGS.task).datasets
        of_task = f"one of {', '.join(known)} with --task={FLAGS.task}"
        rule = of_task if known else f"left out with --task={FLAGS.task}"
        check_value("dataset", FLAGS.dataset in known, rule)
    if FLAGS.quoted_tsv:
        has_tsv = any(ending(path) == ".tsv" for name in INPUTS for path in matching_files(name))
        rule = "left out unless there are .tsv files, and with --dataset"
        check_value("quoted_tsv", has_tsv and not FLAGS.dataset, rule)


def check_labels(names: list[str], what: str, plural: str | None = None, least: int = 2) -> None:
    """Logs the training data's labels, each a `what`, after checking that there are `least`."""
    if len(names) < least:
        raise ValueError(
            f"`--train_data` must have {['one', 'two'][least - 1]} or more labels. Received: "
            + (f"only {', '.join(names)}" if names else "none")
        )
    shown = ", ".join(names[:_MAX_LABELS]) + (", ..." if names[_MAX_LABELS:] else "")
    log(f"{format_count(len(names), what, plural)}: {shown}")


def write_rows(rows: list[dict], separator: str = " ") -> None:
    """Writes predictions, one per row, in the format of --predictions. Tables join lists."""
    kind = ending(FLAGS.predictions)
    for row in rows if kind != ".jsonl" else []:
        lists = {name: value for name, value in row.items() if isinstance(value, list)}
        row.update((name, separator.join(map(str, value))) for name, value in lists.items())
    _WRITERS[kind](FLAGS.predictions, rows)

"""Reads and writes files of GAP: pronouns, each with two names that it may refer to."""

import os

from keras_spanbert.checks import check_paths
from keras_spanbert.data.examples import check, check_not_empty, write_lines
from keras_spanbert.data.tables import read_table

_COLUMNS = (
    "ID", "Text", "Pronoun", "Pronoun-offset",
    "A", "A-offset", "A-coref", "B", "B-offset", "B-coref", "URL",
)  # fmt: skip
_LABELS = {"true": True, "false": False}


def read(paths) -> list[dict]:
    """Reads and checks GAP's files.

    Args:
        paths: string or list of strings. Tab-separated files with a header and
            without quoting, as they were released.

    Returns:
        List of dicts, one per row. Keys are the column names in lower case with
        `_` for `-`. Values are strings, except the offsets `pronoun_offset`,
        `a_offset` and `b_offset`, integers that count characters of `text`, and
        the labels `a_coref` and `b_coref`, bools.

    Raises:
        ValueError: if the header or a row is malformed (the message has path and
            line), a name or the pronoun is not at its offset, an id is repeated,
            or there are no rows.

    Example:
    ```python
    examples = keras_spanbert.data.gap.read("gap-development.tsv")
    clusters = resolver.resolve([example["text"] for example in examples])
    predictions = {
        example["id"]: keras_spanbert.data.gap.refers_to(example, result["clusters"])
        for example, result in zip(examples, clusters)
    }
    keras_spanbert.metrics.gap(examples, predictions)
    ```

    Reference:
        [Webster et al. 2018](https://aclanthology.org/Q18-1042/).
    """
    examples = {}
    for path in check_paths("paths", paths):
        for place, row in read_table(path, _COLUMNS):
            example = {name.lower().replace("-", "_"): cell for name, cell in row.items()}
            for name in ["pronoun", "a", "b"]:
                offset = example[f"{name}_offset"]
                start = int(offset) if offset.isdecimal() and len(offset) < 10 else -1
                is_there = start >= 0 and example["text"].startswith(example[name], start)
                if not (is_there and example[name]):
                    raise ValueError(
                        f"{place}: `{name}` must be in the text at its offset. Received: "
                        f"{example[name]!r:.80} at {offset!r:.20}"
                    )
                example[f"{name}_offset"] = start
            for name in ["a_coref", "b_coref"]:
                label = _LABELS.get(example[name].lower())
                check(label is not None, place, f"`{name}` must be TRUE or FALSE", example[name])
                example[name] = label
            check(row["ID"] not in examples, place, "an id must not be repeated", row["ID"])
            examples[row["ID"]] = example
    return check_not_empty([*examples.values()], paths)


def refers_to(example: dict, clusters) -> tuple[bool, bool]:
    """Returns whether the pronoun refers to A and to B, according to clusters of the text.

    As in SpanBERT's released coreference code, the pronoun refers to a name if a
    mention of the pronoun's cluster contains the name or is contained in it.

    Args:
        example: dict from `read`.
        clusters: list of clusters of the example's text, each a list of
            mentions with `start` and `end`, the first character and the one
            after the last.

    Returns:
        Two bools. Both are `False` if the pronoun is not a mention.

    Example:
    ```python
    clusters = [[{"start": 0, "end": 3}, {"start": 20, "end": 23}]]
    keras_spanbert.data.gap.refers_to(example, clusters)
    ```
    """
    pronoun = _span(example, "pronoun")
    places = [[(mention["start"], mention["end"]) for mention in cluster] for cluster in clusters]
    mentions = [place for cluster in places if pronoun in cluster for place in cluster]

    def is_in_cluster(name):
        first, last = _span(example, name)
        return any(
            start <= first and last <= end or first <= start and end <= last
            for start, end in mentions
        )

    return is_in_cluster("a"), is_in_cluster("b")


def write_predictions(path: str | os.PathLike, predictions: dict) -> None:
    """Writes predictions for the official scorer, atomically.

    Args:
        path: string.
        predictions: dict from ids to pairs of bools, whether the pronoun refers to A
            and to B.

    Raises:
        OSError: if the file cannot be written.

    Example:
    ```python
    keras_spanbert.data.gap.write_predictions("found.tsv", {"test-1": (True, False)})
    ```
    """

    def line(name, pair):
        return "\t".join([name, *(str(bool(label)).upper() for label in pair)])

    write_lines(path, predictions, predictions.values(), line)


def _span(example, name):
    start = example[f"{name}_offset"]
    return start, start + len(example[name])

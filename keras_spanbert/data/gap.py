"""Files of GAP, pronouns with two names that each may refer to."""

import os

from keras_spanbert import files
from keras_spanbert.data.examples import as_list, check_some
from keras_spanbert.data.text_files import read_lines

_COLUMNS = (
    "ID",
    "Text",
    "Pronoun",
    "Pronoun-offset",
    "A",
    "A-offset",
    "A-coref",
    "B",
    "B-offset",
    "B-coref",
    "URL",
)
_LABELS = {"true": True, "false": False}


def read(paths) -> list[dict]:
    """Reads and checks GAP's files.

    Args:
        paths: string or list of strings. Files between tabs, with a header and
            without quoting, as they were released.

    Returns:
        List of dicts, one a row, with the columns' names in small letters and
        `_` for `-`: strings, but for the offsets `pronoun_offset`, `a_offset`
        and `b_offset`, integers that count characters of `text`, and the labels
        `a_coref` and `b_coref`, bools.

    Raises:
        ValueError: where the header or a row is of another form (path and line
            are named), a name or the pronoun is not at its offset, an id comes
            twice, or there are no rows.

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
    examples, seen = [], set()
    for path in as_list(paths):
        for number, (place, line) in enumerate(read_lines(path)):
            cells = line.split("\t")
            if number == 0:
                if tuple(cells) != _COLUMNS:
                    raise ValueError(
                        f"{place}: the header must be {', '.join(_COLUMNS)}, between tabs. "
                        f"Received: {line!r:.80}"
                    )
            elif line.strip():
                example = _example(cells, place)
                if example["id"] in seen:
                    raise ValueError(
                        f"{place}: an id may stand once. Received: {example['id']!r} again"
                    )
                seen.add(example["id"])
                examples.append(example)
    return check_some(examples, paths)


def refers_to(example: dict, clusters) -> tuple[bool, bool]:
    """Whether the pronoun refers to A and whether to B, as clusters of a text say.

    As in the released system, it does where a mention of the pronoun's cluster
    contains the name or is contained in it.

    Args:
        example: dict of `read`.
        clusters: list of clusters of the example's text, each a list of
            mentions with `start` and `end`, the characters from the first to
            before the end.

    Returns:
        Two bools: both `False` where the pronoun is no mention.

    Example:
    ```python
    clusters = [[{"start": 0, "end": 3}, {"start": 20, "end": 23}]]
    keras_spanbert.data.gap.refers_to(example, clusters)
    ```
    """
    pronoun = _span(example, "pronoun")
    mentions = [
        (mention["start"], mention["end"])
        for cluster in clusters
        if pronoun in [(mention["start"], mention["end"]) for mention in cluster]
        for mention in cluster
    ]
    a, b = (
        any(
            start <= name[0] and name[1] <= end or name[0] <= start and end <= name[1]
            for start, end in mentions
        )
        for name in [_span(example, "a"), _span(example, "b")]
    )
    return a, b


def write_predictions(path: str | os.PathLike, predictions: dict) -> None:
    """Writes whom pronouns refer to, as the official scorer reads it, whole or not at all.

    Args:
        path: string.
        predictions: dict of id to a pair of bools, for A and B.

    Raises:
        OSError: where the file cannot be written.

    Example:
    ```python
    keras_spanbert.data.gap.write_predictions("found.tsv", {"test-1": (True, False)})
    ```
    """
    lines = [
        "\t".join([name, *(str(bool(label)).upper() for label in pair)]) + "\n"
        for name, pair in predictions.items()
    ]
    with files.replacing(os.fspath(path)) as file:
        file.writelines(lines)


def _span(example, name):
    start = example[f"{name}_offset"]
    return start, start + len(example[name])


def _example(cells, place):
    if len(cells) != len(_COLUMNS):
        raise ValueError(
            f"{place}: a row must have {len(_COLUMNS)} columns, between tabs. Received: "
            f"{len(cells)}"
        )
    example = {name.lower().replace("-", "_"): cell for name, cell in zip(_COLUMNS, cells)}
    for name in ["pronoun", "a", "b"]:
        offset = example[f"{name}_offset"]
        start = int(offset) if offset.isdecimal() and len(offset) < 10 else -1
        is_there = start >= 0 and example["text"].startswith(example[name], start)
        if not (is_there and example[name]):
            raise ValueError(
                f"{place}: `{name}` must stand in the text at its offset. Received: "
                f"{example[name]!r:.80} at {offset!r:.20}"
            )
        example[f"{name}_offset"] = start
    for name in ["a_coref", "b_coref"]:
        label = _LABELS.get(example[name].lower())
        if label is None:
            raise ValueError(
                f"{place}: `{name}` must be TRUE or FALSE. Received: {example[name]!r:.80}"
            )
        example[name] = label
    return example

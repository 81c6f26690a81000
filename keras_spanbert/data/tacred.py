"""Reads and writes files of TACRED: sentences with a subject, an object and their relation."""

import collections
import os
import re
from collections.abc import Sequence

from keras_spanbert.checks import check_paths
from keras_spanbert.data.examples import (
    add_id,
    check,
    check_known,
    check_label,
    check_not_empty,
    field,
    write_lines,
)
from keras_spanbert.data.text_files import read_json, read_json_lines
from keras_spanbert.files import ending

_SPANS = ("subj_start", "subj_end", "obj_start", "obj_end")
_TYPES = ("subj_type", "obj_type")
_WORD = re.compile(r"\S+")


def read(paths, needs_labels: bool = True, relations=None) -> list[dict]:
    """Reads and checks files in TACRED's format.

    Args:
        paths: string or list of strings. Files with a JSON list of objects, or
            `.jsonl` or `.jsonlines` files with one object per line, plain or gzip.
        needs_labels: bool. Whether each example must have a relation. Defaults to `True`.
        relations: list of strings. The allowed relations. Defaults to `None`, all.

    Returns:
        List of dicts, one per example. All readers of relations return this
        format: `id`; `token`, the list of words, as in the file; `subj_start`, `subj_end`,
        `obj_start`, `obj_end`, the first and the last word of subject and object, counted from 0;
        `subj_type`, `obj_type` and `relation`, strings or `None`.

    Raises:
        ValueError: if the file is not JSON in this format, a span is not in its
            sentence, a relation is unknown or missing (the message has path and
            example), an id is repeated, or there are no examples.

    Example:
    ```python
    examples = keras_spanbert.data.tacred.read("train.json")
    relations = keras_spanbert.data.tacred.relation_names(examples)
    evaluation = keras_spanbert.data.tacred.read("dev.json", relations=relations)
    ```

    Reference:
        [Zhang et al. 2017](https://aclanthology.org/D17-1004/).
    """
    examples, ids = [], set()
    for path in check_paths("paths", paths):
        is_lines = ending(path) in (".jsonl", ".jsonlines")
        for place, value in read_json_lines(path) if is_lines else _read_list(path):
            example = relation_example(value, place, needs_labels, relations)
            add_id(ids, example["id"], place)
            examples.append(example)
    return check_not_empty(examples, paths)


def _read_list(path):
    values = read_json(path)
    rule = "a file must contain a JSON list, or end in .jsonl"
    check(isinstance(values, list), path, rule, values)
    if any(isinstance(value, dict) and "annotations" in value for value in values[:1]):
        raise ValueError(
            f"{path}: Label Studio's export must be in JSON lines. `jq -c '.[]' {path} > "
            "export.jsonl` writes them. Received: a JSON list"
        )
    for number, value in enumerate(values):
        name = value.get("id") if isinstance(value, dict) else None
        yield f"{path}, example {number}" + (f" (id {name!r})" if name else ""), value


def relation_names(examples, no_relation: str = "no_relation") -> list[str]:
    """Returns the relations of examples in the released SpanBERT's order.

    Args:
        examples: list of dicts of the training set, all with a relation.
        no_relation: string. The label for no relation. Defaults to `"no_relation"`.

    Returns:
        List of strings: `no_relation`, then the others by decreasing frequency.
        Relations with the same frequency are in the order of `examples`.

    Raises:
        ValueError: if an example has no relation.

    Example:
    ```python
    examples = keras_spanbert.data.tacred.read("train.json")
    relations = keras_spanbert.data.tacred.relation_names(examples)
    ```
    """
    counts = collections.Counter(example["relation"] for example in examples)
    if None in counts:
        raise ValueError("`examples` must all have a relation. Received: one without")
    return [no_relation, *(name for name, _ in counts.most_common() if name != no_relation)]


def write_predictions(path: str | os.PathLike, examples, predictions) -> None:
    """Writes the id and the relation of each example, separated by a tab, atomically.

    Args:
        path: string.
        examples: list of dicts with `id`.
        predictions: list of strings, one for each example.

    Raises:
        ValueError: if the numbers of predictions and examples differ, or an item
            contains a tab or line end.
        OSError: if the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.tacred.read("test.json", needs_labels=False)
    predictions = ["no_relation"] * len(examples)
    keras_spanbert.data.tacred.write_predictions("predictions.txt", examples, predictions)
    ```
    """

    def line(example, relation, place):
        rule = "ids and relations must be strings without tabs or line ends"
        for cell in [example["id"], relation]:
            is_right = isinstance(cell, str) and cell and not re.search(r"[\t\r\n]", cell)
            check(is_right, place, rule, cell)
        return f"{example['id']}\t{relation}"

    write_lines(path, examples, predictions, line)


def relation_example(
    value: dict, place: str, needs_labels: bool, relations: Sequence[str] | None = None
) -> dict:
    """Checks a JSON object with TACRED's fields and returns it as an example: see `read`."""
    example = {"id": field(value, "id", place, str), "token": field(value, "token", place, list)}
    words = example["token"]
    are_words = words and all(isinstance(word, str) for word in words)
    check(are_words, place, "`token` must be a list of strings, one or more", words)
    for name in _SPANS:
        example[name] = field(value, name, place, int)
    rule = f"must be the first and the last word of a span within the {len(words)} words"
    for names in [_SPANS[:2], _SPANS[2:]]:
        start, end = span = [example[name] for name in names]
        is_inside = 0 <= start <= end < len(words)
        check(is_inside, place, f"`{names[0]}` and `{names[1]}` {rule}", span)
    for name in _TYPES:
        example[name] = _label(value, name, place)
    relation = example["relation"] = _label(value, "relation", place)
    check_label(place, relation, needs_labels, "a `relation`")
    if relation is not None:
        check_known(place, "`relation`", relation, relations)
    return example


def _label(value, name, place):
    """Returns a string without surrounding blanks, or `None` if it is missing or blank."""
    return None if value.get(name) is None else field(value, name, place, str).strip() or None


def example_of_text(
    id: str, text: str, subject: tuple, object: tuple, place: str = "text", **more
) -> dict:
    """Converts a sentence with spans in characters to an example.

    Words are separated by blanks and also cut where a span starts or ends, so that WordPiece finds
    the same pieces as in the text. The spans, pairs of the first character and the one after the
    last, may overlap. `more` are `subj_type`, `obj_type` and `relation`, strings or `None`. Raises
    a `ValueError` that begins with `place` if a span is not in the text, or is blank.
    """
    cuts = {*subject, *object}
    for (start, end), kind in [(subject, "subject"), (object, "object")]:
        if not 0 <= start < end <= len(text) or not text[start:end].strip():
            raise ValueError(
                f"{place}: the {kind} must be characters of the text, not all blank. Start and "
                f"end (excluded) must be from 0 to {len(text)}. Received: {start}, {end}"
            )
    pieces = []
    for word in _WORD.finditer(text):
        start, end = word.span()
        edges = sorted({start, end, *(cut for cut in cuts if start < cut < end)})
        pieces.extend(zip(edges, edges[1:]))
    example = {"id": id, "token": [text[start:end] for start, end in pieces]}
    for (start, end), kind in [(subject, "subj"), (object, "obj")]:
        inside = [i for i, piece in enumerate(pieces) if start <= piece[0] and piece[1] <= end]
        example[f"{kind}_start"], example[f"{kind}_end"] = inside[0], inside[-1]
    return {**example, **dict.fromkeys(_TYPES), "relation": None, **more}

"""Sentences with a subject and an object, checked as they are read."""

import collections
import os
import re
from collections.abc import Sequence

from keras_spanbert import files
from keras_spanbert.data.examples import check_text, field

_SPANS = ("subj_start", "subj_end", "obj_start", "obj_end")
_TYPES = ("subj_type", "obj_type")
_WORD = re.compile(r"\S+")


def relation_example(
    value: dict, place: str, needs_labels: bool, relations: Sequence[str] | None = None
) -> dict:
    """The example of a JSON object with TACRED's fields, or of a dict that has these.

    Args:
        value: dict.
        place: string, which messages begin with.
        needs_labels: bool. Whether `relation` must be there.
        relations: those that may be there. Defaults to `None`, all.

    Returns:
        Dict: see `keras_spanbert.data.tacred.read`.

    Raises:
        ValueError: where a field is missing or of another type, a span is not in
            the sentence, or the relation is unknown.
    """
    example = {"id": field(value, "id", place, str), "token": field(value, "token", place, list)}
    words = example["token"]
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{place}: `token` must be a list of strings. Received: {words!r:.80}")
    for name in _SPANS:
        example[name] = field(value, name, place, int)
    for start, end in [_SPANS[:2], _SPANS[2:]]:
        if not 0 <= example[start] <= example[end] < len(words):
            raise ValueError(
                f"{place}: `{start}` and `{end}` must be the first and the last word of a span "
                f"within the {len(words)} words. Received: {example[start]}, {example[end]}"
            )
    for name in _TYPES:
        example[name] = None if value.get(name) is None else field(value, name, place, str)
    relation = value.get("relation")
    if relation is not None:
        field(value, "relation", place, str)
    elif needs_labels:
        raise ValueError(
            f"{place}: an example to train or score on must have a `relation`. Received: none"
        )
    if relation is not None and relations is not None and relation not in relations:
        raise ValueError(
            f"{place}: `relation` must be one of {', '.join(relations)}. Received: {relation!r}"
        )
    example["relation"] = relation
    texts = {name: [example[name]] for name in ["id", *_TYPES, "relation"] if example[name]}
    check_text(place, token=words, **texts)
    return example


def example_of_text(
    name: str,
    text: str,
    subject: tuple[int, int],
    object: tuple[int, int],
    place: str = "text",
    **more,
) -> dict:
    """The example of a sentence as text, with spans in characters.

    Words are what stands between blanks, cut where a span starts or ends, so
    that WordPiece has the pieces that it has in the text.

    Args:
        name: string, its id.
        text: string.
        subject: pair of integers, the characters from the first to before the
            end.
        object: the same; it may overlap the subject.
        place: string, which messages begin with. Defaults to `"text"`.
        **more: `subj_type`, `obj_type` and `relation`, strings or `None`.

    Raises:
        ValueError: where a span is not in the text, or is blank.

    Example:
    ```python
    example = example_of_text("1", "Ann's dog, Bo", (0, 3), (11, 13))
    example["token"], example["obj_start"]  # (["Ann", "'s", "dog,", "Bo"], 3)
    ```
    """
    cuts = {*subject, *object}
    for span, kind in [(subject, "subject"), (object, "object")]:
        start, end = span
        if not 0 <= start < end <= len(text) or not text[start:end].strip():
            raise ValueError(
                f"{place}: the {kind} must be characters of the text, not all blank: its first and "
                f"the one after its last, from 0 to {len(text)}. Received: {start}, {end}"
            )
    pieces = []
    for word in _WORD.finditer(text):
        edges = [
            word.start(),
            *sorted(c for c in cuts if word.start() < c < word.end()),
            word.end(),
        ]
        pieces.extend(zip(edges, edges[1:]))
    example = {"id": name, "token": [text[start:end] for start, end in pieces]}
    for (start, end), kind in [(subject, "subj"), (object, "obj")]:
        inside = [i for i, piece in enumerate(pieces) if start <= piece[0] and piece[1] <= end]
        example[f"{kind}_start"], example[f"{kind}_end"] = inside[0], inside[-1]
    return {**example, **dict.fromkeys(_TYPES), "relation": None, **more}


def relation_names(examples, no_relation: str = "no_relation") -> list[str]:
    """The relations of examples in the released SpanBERT's order.

    Args:
        examples: list of dicts, of the training set, all with a relation.
        no_relation: string. The label that is no relation. Defaults to
            `"no_relation"`.

    Returns:
        List of strings: `no_relation` first, then the others by falling
        frequency; of those as frequent the one that comes first in `examples`.

    Raises:
        ValueError: where an example has no relation.

    Example:
    ```python
    examples = keras_spanbert.data.tacred.read("train.json")
    relations = keras_spanbert.data.tacred.relation_names(examples)
    ```
    """
    counts = collections.Counter(example["relation"] for example in examples)
    if None in counts:
        raise ValueError("`examples` must all have a relation. Received: one of None")
    return [no_relation, *(name for name, _ in counts.most_common() if name != no_relation)]


def write_relations(path: str | os.PathLike, examples, predictions) -> None:
    """Writes a line of id, tab and relation for each example, whole or not at all.

    Args:
        path: string.
        examples: list of dicts with `id`.
        predictions: list of strings, one for each example.

    Raises:
        ValueError: where there are not as many, or one has a tab or line end.
        OSError: where the file cannot be written.

    Example:
    ```python
    examples = keras_spanbert.data.tacred.read("test.json", needs_labels=False)
    predictions = ["no_relation"] * len(examples)
    keras_spanbert.data.tacred.write_predictions("predictions.txt", examples, predictions)
    ```
    """
    if len(examples) != len(predictions):
        raise ValueError(
            f"`predictions` must be one for each example. Received: {len(predictions)} for "
            f"{len(examples)} examples"
        )
    lines = []
    for example, relation in zip(examples, predictions):
        for cell in [example["id"], relation]:
            if not isinstance(cell, str) or not cell or re.search(r"[\t\r\n]", cell):
                raise ValueError(
                    "Ids and relations must be strings without tabs and line ends. Received: "
                    f"{cell!r:.80}"
                )
        lines.append(f"{example['id']}\t{relation}\n")
    with files.replacing(os.fspath(path)) as file:
        file.writelines(lines)

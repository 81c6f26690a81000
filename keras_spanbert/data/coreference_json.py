"""Converts the JSON of other coreference systems to documents."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from keras_spanbert.checks import is_integer
from keras_spanbert.data.examples import check, field


class _Format(NamedTuple):
    name: str
    keys: frozenset  # Keys that all objects of the format have.
    convert: Callable | None  # Function of an object and its place. `None`: cannot be read.


def to_document(row, place: str):
    """Converts an object of a known format to a document. Others do not change.

    Raises:
        ValueError: if the object is malformed, or its format cannot be read.
    """
    if not isinstance(row, dict) or {"doc_key", "sentences"} <= row.keys():
        return row
    format = next((format for format in _FORMATS if format.keys <= row.keys()), None)
    if format is None:
        return row
    if format.convert is None:
        raise ValueError(
            f"{place}: a document must have `doc_key`, `sentences` of words, and `clusters` of "
            f"mentions in words. Received: {format.name}, with the keys {', '.join(row)}. It does "
            "not say which words and sentences its text has"
        )
    return format.convert(row, f"{place} ({format.name})")


def _from_preco(row, place):
    sentences = field(row, "sentences", place, list)
    rule = "`sentences` must be lists of words"
    check(all(isinstance(sentence, list) for sentence in sentences), place, rule, sentences)
    sizes = [*map(len, sentences)]
    first_words = [0, *itertools.accumulate(sizes)]

    def mention(given):
        is_right = isinstance(given, list) and len(given) == 3 and all(map(is_integer, given))
        is_right = is_right and 0 <= given[0] < len(sizes)
        is_right = is_right and 0 <= given[1] < given[2] <= sizes[given[0]]
        rule = "a mention must be [sentence, begin, end], with the end excluded and in the sentence"
        check(is_right, place, rule, given)
        sentence, begin, end = given
        return [first_words[sentence] + begin, first_words[sentence] + end - 1]

    return {
        "doc_key": field(row, "id", place, str),
        "sentences": sentences,
        "speakers": [["-"] * size for size in sizes],
        "clusters": _clusters(row, "mention_clusters", mention, place),
    }


def _from_wl_coref(row, place):
    words = field(row, "cased_words", place, list)
    numbers = field(row, "sent_id", place, list)
    speakers = field(row, "speaker", place, list) if "speaker" in row else ["-"] * len(words)
    sizes = [len(words), len(numbers), len(speakers)]
    rule = "`cased_words`, `sent_id` and `speaker` must have the same length"
    check(len(set(sizes)) == 1, place, rule, sizes)
    are_ordered = all(map(is_integer, numbers)) and numbers == sorted(numbers)
    check(are_ordered, place, "`sent_id` must be integers that do not decrease", numbers)
    ends = [len([*group]) for _, group in itertools.groupby(numbers)]
    cuts = [*itertools.pairwise([0, *itertools.accumulate(ends)])]

    def mention(given):
        is_right = isinstance(given, list) and len(given) == 2 and all(map(is_integer, given))
        is_right = is_right and 0 <= given[0] < given[1] <= len(words)
        rule = "a mention must be [begin, end] in words, with the end excluded"
        check(is_right, place, rule, given)
        return [given[0], given[1] - 1]

    name = field(row, "document_id", place, str)
    document = {
        "doc_key": f"{name}_{field(row, 'part_id', place, int)}" if "part_id" in row else name,
        "sentences": [words[start:end] for start, end in cuts],
        "speakers": [speakers[start:end] for start, end in cuts],
    }
    # Files before and after the conversion to heads. Text to predict has neither.
    key = next((key for key in ["span_clusters", "clusters"] if key in row), None)
    if key is not None:
        document["clusters"] = _clusters(row, key, mention, place)
    return document


def _clusters(row, key, mention, place):
    clusters = field(row, key, place, list)
    rule = f"`{key}` must be lists of mentions"
    check(all(isinstance(cluster, list) for cluster in clusters), place, rule, clusters)
    return [[mention(given) for given in cluster] for cluster in clusters]


_FORMATS = (
    _Format("PreCo", frozenset({"sentences", "mention_clusters"}), _from_preco),
    _Format("wl-coref's JSON", frozenset({"cased_words", "sent_id"}), _from_wl_coref),
    _Format("fastcoref's JSON", frozenset({"text", "clusters"}), None),
    _Format("fastcoref's JSON", frozenset({"tokens", "clusters"}), None),
)

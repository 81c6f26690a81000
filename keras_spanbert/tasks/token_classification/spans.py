"""Converts entities, given as characters, to labels of words."""

import numpy as np

from keras_spanbert.checks import is_integer
from keras_spanbert.tasks.token_classification.decoding import is_of_entities
from keras_spanbert.tasks.token_classification.words import Words


def spans_to_labels(
    words: Words, texts: list[str], spans, labels: list[str], places: list | None = None
) -> np.ndarray:
    """Returns the numbers of all words' labels, one text after another: int32 `[S]`.

    Args:
        words: `Words` of the texts.
        texts: list of strings.
        spans: list with a list of `{"start", "end", "label"}` for each text.
        labels: list of strings, the model's.
        places: list of strings, the description of each text in messages, or `None`
            for its number. Defaults to `None`, for all.

    Raises:
        ValueError: if a span is malformed or not in its text, contains no word or
            only a part of one, shares a word with another span, or its label is
            unknown.
    """
    if len(spans) != len(texts):
        raise ValueError(
            f"`y` must have a list of entities for each text. Received: {len(spans)} for "
            f"{len(texts)} texts"
        )
    outside = labels.index("O") if "O" in labels else -1
    found = np.full(len(words.bounds), outside, np.int32)
    ends = np.cumsum(words.num_words)
    for i, (text, of_text) in enumerate(zip(texts, spans)):
        place = places and places[i] or f"text {i}"
        here = slice(ends[i] - words.num_words[i], ends[i])
        bounds, is_taken = words.bounds[here], np.zeros(words.num_words[i], bool)
        if not isinstance(of_text, (list, tuple)):
            raise ValueError(
                "The entities of a text must be a list of {'start', 'end', 'label'}. Received: "
                f"{of_text!r:.80} for {place}"
            )
        for span in of_text:
            start, end, label = _check_span(span, text, place)
            first = int(np.searchsorted(bounds[:, 1], start, side="right"))
            last = int(np.searchsorted(bounds[:, 0], end, side="left"))
            rule, received = None, f"{text[start:end]!r:.80}"
            if first >= last:
                rule = "contain a word"
            elif is_taken[first:last].any():
                rule = "have no word of another one"
            elif start > bounds[first, 0] or end < bounds[last - 1, 1]:
                rule = "begin and end where words do"
                received += f" of {text[bounds[first, 0] : bounds[last - 1, 1]]!r:.80}"
            if rule:
                raise ValueError(
                    f"An entity must {rule}. Received: {span!r:.80}, {received} in {place}"
                )
            is_taken[first:last] = True
            numbers_of_words = [
                _number(name, label, labels, place) for name in _names(label, last - first, labels)
            ]
            found[here][first:last] = numbers_of_words
        if outside < 0 and not is_taken.all():
            raise ValueError(
                f"Each word must have a label: the model has no 'O'. Received: none for a word of "
                f"{place}"
            )
    return found


def _check_span(span, text, place):
    """Returns start, end and label of an entity, checked."""
    values = [span.get(name) for name in ("start", "end")] if isinstance(span, dict) else []
    are_places = len(values) == 2 and all(map(is_integer, values))
    if not are_places or not isinstance(span.get("label"), str):
        raise ValueError(
            "An entity must be {'start', 'end', 'label'}, two integers and a string. Received: "
            f"{span!r:.80} in {place}"
        )
    start, end = map(int, values)
    if not 0 <= start < end <= len(text):
        raise ValueError(
            f"An entity must be in its text, of {len(text)} characters. Received: {span!r:.80} in "
            f"{place}"
        )
    return start, end, span["label"]


def _names(label, count, labels):
    """Returns the labels of the words of an entity."""
    if not is_of_entities(labels):
        return [label] * count
    known = set(labels)

    def of(prefixes):
        """Returns the first of these labels that the model has, or the last."""
        names = [f"{prefix}-{label}" for prefix in prefixes]
        return next((name for name in names if name in known), names[-1])

    begin = of("BI")
    if count == 1:
        return [of("SU" + begin[0])]
    return [begin, *[of("IB")] * (count - 2), of("ELI")]


def _number(name, label, labels, place):
    if name not in labels:
        raise ValueError(
            f"An entity's label must be a type of the model's labels, {', '.join(labels[:20])}. "
            f"Received: {label!r:.80} in {place}"
        )
    return labels.index(name)

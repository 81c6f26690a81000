"""What `SpanBertRelationExtractor` takes, as words with spans: examples, columns of texts."""

import collections
import numbers
from collections.abc import Sequence

import numpy as np

from keras_spanbert.data.relation_examples import example_of_text, relation_example
from keras_spanbert.models.strings import as_strings

# How the Penn Treebank writes brackets.
BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}
COLUMNS = ("text", "subject", "object")
TYPE_COLUMNS = ("subject_type", "object_type")
# A sentence: `words`, strings; `spans`, first and last word of the subject, then of the object;
# `types`, strings or `None`; `is_text`, whether it was a text, whose words are never special
# tokens; `place`, for messages.
Sentence = collections.namedtuple("Sentence", ["words", "spans", "types", "is_text", "place"])


def sentences(x) -> list[Sentence]:
    """The sentences of examples as readers give them, or of a dict of columns.

    Raises:
        ValueError: where `x` is neither, or a span is not in its sentence.
    """
    if isinstance(x, dict):
        if not set(COLUMNS) <= set(x) or set(x) - {*COLUMNS, *TYPE_COLUMNS}:
            raise ValueError(
                f"`x` must be a dict of {', '.join(COLUMNS)} and, where they are known, "
                f"{', '.join(TYPE_COLUMNS)}, or a list of examples. Received: keys "
                f"{', '.join(map(str, x))}"
            )
        return sentences_of_texts(*(x.get(name) for name in [*COLUMNS, *TYPE_COLUMNS]))
    if not isinstance(x, (list, tuple)):
        raise ValueError(
            "Examples must be a list of dicts, as `keras_spanbert.data.tacred.read` gives them. "
            f"Received: {x!r:.80}, of type {type(x).__name__}"
        )
    return [_of_example(example, i) for i, example in enumerate(x)]


def _of_example(example, number):
    if not isinstance(example, dict):
        raise ValueError(
            "Examples must be dicts, as `keras_spanbert.data.tacred.read` gives them. Received: "
            f"{example!r:.80} at {number}"
        )
    example = {"id": str(number), **example}
    place = f"example {number} (id {example['id']!r})"
    example = relation_example(example, place, needs_labels=False)
    spans = [example[name] for name in ("subj_start", "subj_end", "obj_start", "obj_end")]
    types = example["subj_type"], example["obj_type"]
    return Sentence(example["token"], spans, types, False, place)


def sentences_of_texts(
    texts, subjects, objects, subject_types=None, object_types=None
) -> list[Sentence]:
    """The sentences of texts with spans: see `SpanBertRelationExtractor.extract`.

    Raises:
        ValueError: where an argument is of another form or length, or a span is
            not in its text.
    """
    if _are_words(texts):
        texts = [text if isinstance(text, str) else as_strings(text=text) for text in texts]
    else:
        texts = as_strings(texts=texts)
    columns = {
        "subjects": _as_spans(subjects=subjects),
        "objects": _as_spans(objects=objects),
        "subject_types": _as_types(subject_types, "subject_types", len(texts)),
        "object_types": _as_types(object_types, "object_types", len(texts)),
    }
    for name, column in columns.items():
        if len(column) != len(texts):
            raise ValueError(
                f"`texts` and `{name}` must be as many. Received: {len(texts)}, {len(column)}"
            )
    return [_of_text(i, *values) for i, values in enumerate(zip(texts, *columns.values()))]


def _of_text(number, text, subject, object, *types):
    place = f"text {number}"
    if isinstance(text, str):
        example = example_of_text(str(number), text, subject, object, place)
        spans = [example[name] for name in ("subj_start", "subj_end", "obj_start", "obj_end")]
        return Sentence(example["token"], spans, types, True, place)
    for (start, end), kind in [(subject, "subject"), (object, "object")]:
        if not 0 <= start < end <= len(text):
            raise ValueError(
                f"{place}: the {kind} must be words of the text: its first and the one after its "
                f"last, from 0 to {len(text)}. Received: {start}, {end}"
            )
    return Sentence(
        text, [subject[0], subject[1] - 1, object[0], object[1] - 1], types, True, place
    )


def _are_words(texts):
    return isinstance(texts, (list, tuple)) and any(isinstance(t, (list, tuple)) for t in texts)


def _as_spans(**argument):
    ((name, spans),) = argument.items()
    if hasattr(spans, "__array__"):
        spans = np.asarray(spans).tolist()
    if not isinstance(spans, Sequence) or isinstance(spans, str):
        raise ValueError(
            f"`{name}` must be a list of (start, end). Received: {name}={spans!r:.80}, of type "
            f"{type(spans).__name__}"
        )
    for i, span in enumerate(spans):
        is_span = isinstance(span, (list, tuple, np.ndarray)) and len(span) == 2
        if not is_span or not all(
            isinstance(x, numbers.Integral) and not isinstance(x, bool) for x in span
        ):
            raise ValueError(
                f"`{name}` must be a list of (start, end), two integers each. Received: "
                f"{name}[{i}]={span!r:.80}"
            )
    return [(int(start), int(end)) for start, end in spans]


def _as_types(types, name, count):
    """A type or `None` for each text; an empty one is none."""
    if types is None:
        return [None] * count
    if isinstance(types, (list, tuple)):
        types = ["" if kind is None else kind for kind in types]
    return [kind or None for kind in as_strings(**{name: types})]

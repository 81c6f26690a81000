"""Entity F1 of tagged words, as in conlleval and seqeval."""

import collections
from collections.abc import Iterator

from keras_spanbert.checks import accepts_datasets, check_flags, to_python
from keras_spanbert.metrics.counts import precision_recall_f1

# Prefixes of tags and their meaning: BILOU writes L- and U- where IOBES writes E- and S-.
ROLES = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}
_STRICT_PREFIXES = ("B", "I")


@accepts_datasets
def entities(gold, predicted, strict: bool = False) -> dict:
    """Scores entities in tagged words. Type, first and last word must all be right.

    Without `strict`, tags are read as in conlleval and in seqeval's default mode: an `I-` that
    continues nothing, or an entity of another type, starts an entity. Papers on CoNLL-2003 and
    WNUT-17 report this F1. With `strict`, as in seqeval's strict mode of IOB2, an `I-` that
    continues no entity is ignored, so that the score of ill-formed tags may be higher. For
    well-formed tags both scores are equal. An entity never spans two lists.

    Args:
        gold: list of lists of tags, one list per sentence. A tag is `"O"`, or `B-`
            or `I-` and a type. Without `strict` also `E-` or `L-`, which end an
            entity, and `S-` or `U-`, for an entity of one word.
        predicted: the same, for the same words.
        strict: bool. Defaults to `False`.

    Returns:
        Dict of `precision`, `recall` and `f1` in percent over all entities, 0
        if there are none, and `by_type`, a dict of type to these three and to
        `support`, the number of entities in `gold`.

    Raises:
        ValueError: if there are no sentences, `gold` and `predicted` have
            different numbers of words, or a tag has another form.

    Example:
    ```python
    gold = [["B-person", "I-person", "O", "B-location"]]
    predicted = [["B-person", "I-person", "O", "O"]]
    keras_spanbert.metrics.entities(gold, predicted)["recall"]  # 50.0
    ```

    Reference:
        [Tjong Kim Sang and De Meulder 2003](https://aclanthology.org/W03-0419/);
        [seqeval](https://github.com/chakki-works/seqeval).
    """
    check_flags(strict=strict)
    gold, predicted = _sentences("gold", gold), _sentences("predicted", predicted)
    if len(gold) == 0 or len(gold) != len(predicted):
        raise ValueError(
            "`gold` and `predicted` must be of the same sentences, one or more. Received: "
            f"{len(gold)} and {len(predicted)}"
        )
    wanted, found, right = (collections.Counter() for _ in range(3))
    for i, (tags, others) in enumerate(zip(gold, predicted)):
        if len(tags) != len(others):
            raise ValueError(
                "`gold` and `predicted` must be of the same words. Received: "
                f"{len(tags)} and {len(others)} tags in sentence {i}"
            )
        # A type with its start and end occurs once per sentence.
        spans, other_spans = (
            set(read_tags(side, strict, f"{name}[{i}]"))
            for name, side in [("gold", tags), ("predicted", others)]
        )
        for counts, chosen in [(wanted, spans), (found, other_spans), (right, spans & other_spans)]:
            counts.update(kind for kind, _, _ in chosen)
    by_type = {
        kind: {
            **precision_recall_f1(right[kind], found[kind], wanted[kind]),
            "support": wanted[kind],
        }
        for kind in sorted({*wanted, *found})
    }
    return {**precision_recall_f1(right.total(), found.total(), wanted.total()), "by_type": by_type}


def _sentences(name, sentences):
    rows = to_python(sentences)
    if not isinstance(rows, list) or not all(isinstance(tags, list) for tags in rows):
        raise ValueError(f"`{name}` must be a list of lists of tags. Received: {sentences!r:.80}")
    return rows


def read_tags(tags, strict: bool = False, place: str = "tags") -> Iterator[tuple[str, int, int]]:
    """Yields the entities of a sentence: type, first word and the word after the last.

    Messages about tags of another form call the sentence `place`. See `entities` for `strict`.
    """
    allowed = _STRICT_PREFIXES if strict else ROLES
    kind, start, last = None, 0, "O"  # The type and start of the open entity, and the previous tag.
    for i, tag in enumerate(tags):
        prefix, dash, its_kind = str(tag).partition("-")
        is_outside = tag == "O"
        if not is_outside and not (prefix in allowed and dash and its_kind):
            raise ValueError(
                f"A tag must be O or {', '.join(f'{p}-type' for p in allowed)}. Received: "
                f"{place}[{i}]={tag!r:.80}"
            )
        prefix = ROLES.get(prefix, prefix)
        goes_on = prefix in ("I", "E") and its_kind == kind and last in ("B", "I")
        if not goes_on:
            if kind is not None:
                yield kind, start, i
            starts = not is_outside and (prefix == "B" or not strict)
            kind, start = (its_kind if starts else None), i
        last = prefix
    if kind is not None:
        yield kind, start, len(tags)

"""Texts with entities as characters of them, checked as they are read."""

from collections.abc import Sequence


def check_entities(
    entities, text: str, types: Sequence[str] | None, place: str, name: str = "entities"
) -> None:
    """Raises a ValueError where a text's entities are malformed, blank, overlap or unknown.

    Args:
        entities: what must be a list of `{"start", "end", "label"}`.
        text: string.
        types: list of the labels that there may be, `None` for all.
        place: string, which messages begin with.
        name: string, the column. Defaults to `"entities"`.
    """
    for entity in entities if isinstance(entities, list) else [entities]:
        span = entity if isinstance(entity, dict) else {}
        start, end = span.get("start"), span.get("end")
        is_place = type(start) is int and type(end) is int and 0 <= start < end <= len(text)
        if not is_place or not isinstance(span.get("label"), str):
            raise ValueError(
                f"{place}: `{name}` must be a list of {{start, end, label}}, in characters of the "
                f"text, which has {len(text)}. Received: {entity!r:.80}"
            )
    last_end = 0
    for entity in sorted(entities, key=lambda entity: entity["start"]):
        rule = None
        if entity["start"] < last_end:
            rule = "not overlap another one"
        elif not text[entity["start"] : entity["end"]].strip():
            rule = "not be blank"
        elif types is not None and entity["label"] not in types:
            rule = f"have a label of {', '.join(types)}"
        if rule:
            raise ValueError(f"{place}: an entity must {rule}. Received: {entity!r:.80}")
        last_end = entity["end"]

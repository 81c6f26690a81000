"""Texts with marked clusters, such as `[1* Ann] sold [1 her] book`."""

import re

_MARK = re.compile(r"(\[\d+\*? |\])")


def read(marked: str) -> tuple[str, list]:
    """Returns the text and its clusters as in `resolve`. A star marks the main mention."""
    text, is_open, clusters = "", [], {}
    for part in _MARK.split(marked):
        if part == "]":
            number, start = is_open.pop()
            mention = {"text": text[start:], "start": start, "end": len(text)}
            cluster = clusters.setdefault(number.rstrip("*"), [])
            cluster.insert(0 if number.endswith("*") else len(cluster), mention)
        elif _MARK.fullmatch(part):
            is_open.append((part[1:-1], len(text)))
        else:
            text += part
    return text, list(clusters.values())

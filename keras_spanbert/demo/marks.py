"""Texts as HTML, with parts of them marked."""

import html

# One colour, a shade for a score: red and green would read as wrong and right.
_COLOR, _FAINTEST, _STRONGEST = "59, 130, 246", 0.15, 0.6


def heading(title: str, name: str) -> str:
    """What a page begins with: what it does, and with which model."""
    model = f"<p>Model: <b>{html.escape(name)}</b></p>" if name else ""
    return f"<h1>{title}</h1>{model}"


def to_html(pieces) -> str:
    """The pieces as running text, those with a score marked in a shade of it.

    Args:
        pieces: iterable of `(text, score)`, a score `None` for what is not marked, or
            `(text, score, label)`, of which the label is shown behind the text.
    """
    shown = []
    for text, score, *label in pieces:
        text = html.escape(text)
        if score is not None:
            shade = _FAINTEST + (_STRONGEST - _FAINTEST) * score
            style = f"background: rgba({_COLOR}, {shade:.2f}); color: inherit"
            small = "".join(f" <small><b>{html.escape(x)}</b></small>" for x in label)
            text = f'<mark style="{style}" title="Score {score:.1%}">{text}{small}</mark>'
        shown.append(text)
    style = "white-space: pre-wrap; overflow-wrap: anywhere"
    return f'<div style="{style}">{"".join(shown)}</div>'

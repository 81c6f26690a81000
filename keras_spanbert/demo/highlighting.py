"""Converts texts with highlighted parts to HTML."""

import html

# One color in shades by score. Red and green would suggest wrong and right.
_COLOR, _FAINTEST, _STRONGEST = "59, 130, 246", 0.15, 0.6


def to_html(pieces) -> str:
    """Returns the pieces as HTML. Pieces with a score are highlighted, darker for higher scores.

    Pieces are `(text, score)` or `(text, score, label)`. If the score is `None`, the piece is not
    highlighted.
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
    style = "white-space: pre-wrap; overflow-wrap: anywhere; padding-top: 0.75em"
    return f'<div style="{style}">{"".join(shown)}</div>'

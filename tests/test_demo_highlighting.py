"""Texts in the demo are shown as text, never as HTML."""

import html
import re

import pytest

from keras_spanbert.demo.highlighting import to_html

pytestmark = pytest.mark.once


def test_plain_and_highlighted_parts_are_escaped():
    pieces = [
        ("<script>a()</script> & ", None),
        ("<img src=x onerror=b()>", 0.5),
        ("<u>c", 0.2, '<b onclick="d()">PER'),
        ("</mark>", None),
    ]
    shown = to_html(pieces)
    assert set(re.findall(r"</?(\w+)", shown)) == {"div", "mark", "small", "b"}
    text = html.unescape(re.sub("<[^>]*>", "", shown))
    expected = '<script>a()</script> & <img src=x onerror=b()><u>c <b onclick="d()">PER</mark>'
    assert text == expected

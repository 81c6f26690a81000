"""Extension of griffe, which reads docstrings for the site: text below `Returns:` stays text.

Griffe reads the words before a colon as a type. So a stand-in replaces the colons of the first
line, and `docs/site_hooks.py` puts them back.
"""

import re

import griffe

FIRST_LINE = re.compile(r"^ *(?:Returns|Yields):\n.*$", re.MULTILINE)
STAND_IN = "\ua789"


class ReturnsAsText(griffe.Extension):
    """Hides colons in the first line below `Returns:` and `Yields:`."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring:
            obj.docstring.value = FIRST_LINE.sub(without_colons, obj.docstring.value)


def without_colons(match):
    heading, line = match[0].split("\n")
    return f"{heading}\n{line.replace(':', STAND_IN)}"

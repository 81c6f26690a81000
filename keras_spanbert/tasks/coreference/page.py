"""Shows clusters as a web page, as HTML within another page, or as plain lines.

The text of the HTML is exactly the original text. Its style adds the numbers and
scores.
"""

import collections
import heapq
import html
import importlib.resources
import itertools
import string
from collections.abc import Sequence

from keras_spanbert.tasks.coreference.replacing import cluster_score, sort_mentions
from keras_spanbert.text.strings import replace_surrogates
from keras_spanbert.wording import format_count

# Boxes nested deeper than this are drawn at the same height.
_MAX_LEVELS = 6
_MAX_SHOWN = 60  # Maximum number of characters of a main mention in a list of clusters.
_GOLDEN_ANGLE = 137.508  # Consecutive numbers get very different hues.

_FILES = importlib.resources.files("keras_spanbert.tasks.coreference")
# The script is for an `element` that contains the result of `draw_clusters`, now or later.
STYLE, SCRIPT, _PAGE = (
    _FILES.joinpath(f"page.{end}").read_text("utf-8") for end in ["css", "js", "html"]
)


def cluster_page(text: str, clusters: Sequence, title: str = "Coreference") -> str:
    """Returns a self-contained page that shows a text with its clusters.

    Args:
        text: string.
        clusters: list of clusters from `resolve`.
        title: string. Defaults to `"Coreference"`.

    Returns:
        String of HTML.

    Raises:
        ValueError: if `clusters` are not lists of mentions, or a mention's text is not
            the slice of the text at its position.

    Example:
    ```python
    with open("out.html", "w", encoding="utf-8") as file:
        file.write(cluster_page(text, resolver.resolve([text])[0]["clusters"]))
    ```
    """
    return string.Template(_PAGE).substitute(
        title=html.escape(replace_surrogates(title)),
        drawn=draw_clusters(text, clusters),
        script=SCRIPT,
    )


def draw_clusters(text: str, clusters: Sequence) -> str:
    """Returns the part of a page that shows a text with its clusters.

    Each mention is a box with the number of its cluster. It contains the boxes of the
    mentions inside it. `SCRIPT` highlights the other mentions of a cluster. If
    mentions have scores (see `resolve`), a checkbox shows them. A box with a low
    `link_score` is paler, and its title names the antecedent. A mention without a link
    has the color of its cluster's score.

    Args:
        text: string.
        clusters: list of clusters from `resolve`.

    Returns:
        String of HTML, including its style.

    Raises:
        ValueError: if `clusters` are not lists of mentions, or a mention's text is not
            the slice of the text at its position.
    """
    mentions = sort_mentions(text, clusters)
    names = {m.cluster: _shorten(m.text) for m in mentions if m.is_main}
    counts = collections.Counter(mention.cluster for mention in mentions)
    certainties = [cluster_score(cluster) if cluster else None for cluster in clusters]
    drawn, levels = _draw_mentions(text, mentions, names, certainties)
    has_scores = any(mention.score is not None for mention in mentions)
    scores = '<label class="scores"><input type="checkbox"> Show scores</label>\n'
    return (
        f'<div class="coref"><style>\n{STYLE}</style>\n'
        f"<p>{format_count(len(names), 'cluster')}, {format_count(len(mentions), 'mention')}"
        + (": point at one, or tap it, to highlight its cluster" if mentions else "")
        + f"</p>\n{scores if has_scores else ''}{_list(names, counts, certainties)}"
        f'<div class="text" dir="auto" style="--levels:{min(levels, _MAX_LEVELS)}">{drawn}</div>'
        "</div>"
    )


def cluster_lines(text: str, clusters: Sequence) -> str:
    """Returns clusters as plain text for a terminal, one line each.

    Args:
        text: string.
        clusters: list of clusters from `resolve`.

    Returns:
        String. Each line has the number of a cluster, its main mention, the number of
        its mentions, and the other mentions with their positions. It contains no
        control characters that a terminal would execute.

    Raises:
        ValueError: if `clusters` are not lists of mentions, or a mention's text is not
            the slice of the text at its position.

    Example:
    ```python
    cluster_lines("Ann sold her book.", clusters)  # 1. Ann (0 to 3), 2 mentions: her (9 to 12)
    ```
    """
    mentions = sorted(sort_mentions(text, clusters), key=lambda m: (m.cluster, not m.is_main))
    lines = []
    for number, of_cluster in itertools.groupby(mentions, key=lambda m: m.cluster):
        main, *others = (
            f"{_shorten(mention.text)} ({mention.start} to {mention.end})" for mention in of_cluster
        )
        line = f"{number + 1}. {main}, {format_count(1 + len(others), 'mention')}"
        lines.append(line + (f": {', '.join(others)}" if others else ""))
    return "\n".join(lines) or "No clusters"


def _shorten(text):
    """Returns a mention's text in one line, shortened if it is long."""
    line = " ".join(text[:_MAX_SHOWN].split())
    shown = "".join(c if c.isprintable() else "\ufffd" for c in line)
    return shown + "…" if len(text) > _MAX_SHOWN else shown


def _list(names, counts, certainties):
    if not names:
        return ""
    items = [
        f'<li><button type="button" aria-pressed="false" data-cluster="{number + 1}" '
        f'style="--hue:{_hue(number)}">'
        f"{html.escape(name)}, {counts[number]:,}"
        f"{'' if certainties[number] is None else f' ({certainties[number]:.2f})'}</button></li>"
        for number, name in sorted(names.items())
    ]
    return (
        "<details><summary>All clusters, with their numbers of mentions</summary>\n"
        f"<ol>{' '.join(items)}</ol></details>\n"
    )


def _hue(number):
    return round(number * _GOLDEN_ANGLE) % 360


def _draw_mentions(text, mentions, names, certainties):
    """Returns a text with a box for each mention, and the number of levels of nested boxes.

    The rest of a mention that crosses the end of another is a second box.
    """
    written, is_open, at, levels = [], [], 0, 0
    waiting = [(m.start, -m.end, order) for order, m in enumerate(mentions)]  # A heap.

    def write_to(place):
        nonlocal at, levels
        while is_open and is_open[-1][0] <= place:
            end, mention, tag, level = is_open.pop()
            written.append(_escape(text[at:end]) + "</mark>")
            written[tag] = _open_tag(mention, end, level, names, certainties)
            at, levels = end, max(levels, level + 1)
            if is_open:
                is_open[-1][3] = max(is_open[-1][3], level + 1)
        piece = _escape(text[at:place])
        # Browsers lay out short paragraphs quickly. A novel in one takes half a minute.
        written.append(piece if is_open else piece.replace("\n", "\n</div><div>"))
        at = place

    while waiting:
        start, end, order = heapq.heappop(waiting)
        write_to(start)
        end = -end
        if is_open and end > is_open[-1][0]:
            heapq.heappush(waiting, (is_open[-1][0], -end, order))
            end = is_open[-1][0]
        is_open.append([end, mentions[order], len(written), 0])
        written.append("")  # The tag is known when the box is closed.
    write_to(len(text))
    return f"<div>{''.join(written)}</div>", levels


def _open_tag(mention, end, level, names, certainties):
    number = mention.cluster + 1
    title = f"{number}: {names[mention.cluster]}"
    # Only the last piece of a mention shows the number.
    attributes = ' class="cut"' if end < mention.end else ""
    if mention.score is not None:
        attributes += f' data-score="{mention.score:.2f}"'
    if mention.link_score is not None:
        attributes += f' data-link="{mention.link_score:.2f}"'
        title += f" (linked to {_shorten(mention.antecedent or '')!r}, {mention.link_score:.2f})"
    sure = certainties[mention.cluster] if mention.link_score is None else mention.link_score
    style = f"--hue:{_hue(mention.cluster)};--level:{min(level, _MAX_LEVELS - 1)}"
    style += f";--sure:{1 if sure is None else round(sure, 2)}"
    return (
        f'<mark{attributes} data-cluster="{number}" style="{style}" title="{html.escape(title)}">'
    )


def _escape(text):
    # HTML turns a carriage return into a line end, and has no null character.
    return html.escape(replace_surrogates(text)).replace("\r", "&#13;").replace("\0", "\ufffd")

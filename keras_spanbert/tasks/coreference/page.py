"""Shows clusters as a web page, as HTML within another page, or as plain lines.

The text of the HTML is exactly the original text. Its style adds the numbers and
scores.
"""

import collections
import heapq
import html
import itertools
from collections.abc import Sequence

from keras_spanbert.tasks.coreference.replacing import cluster_score, sort_mentions
from keras_spanbert.text.strings import replace_surrogates
from keras_spanbert.wording import format_count

# Boxes nested deeper than this are drawn at the same height.
_MAX_LEVELS = 6
_MAX_SHOWN = 60  # Maximum number of characters of a main mention in a list of clusters.
_GOLDEN_ANGLE = 137.508  # Consecutive numbers get very different hues.

STYLE = """
.coref { color: CanvasText; background: Canvas; padding: 0.25em; }
.dark .coref { color-scheme: dark; } /* Gradio's dark pages. */
.coref p { margin: 0.75em 0; }
.coref .text {
  white-space: pre-wrap; overflow-wrap: anywhere; margin: 0.75em 0;
  line-height: calc(1.5em + 0.3em * var(--levels));
}
.coref mark {
  --own: hsl(var(--hue) 75% 45%);
  /* Paler if the link is unsure. */
  color: CanvasText; background: color-mix(in srgb, var(--own) calc(16% * var(--sure)), Canvas);
  border: 1px solid color-mix(in srgb, var(--own) calc(15% + 85% * var(--sure)), Canvas);
  border-bottom-width: 2px; border-radius: 0.3em;
  padding: calc(0.08em + 0.15em * var(--level)) 0.15em; margin: 0 0.05em;
  box-decoration-break: clone; -webkit-box-decoration-break: clone; cursor: pointer;
}
.coref mark:not(.cut)::after, .coref button::before {
  content: attr(data-cluster); font-size: 0.65em; font-weight: 600; vertical-align: sub;
  line-height: 0; margin-left: 0.2em; color: color-mix(in srgb, var(--own) 55%, CanvasText);
}
.coref mark.lit {
  background: color-mix(in srgb, var(--own) 40%, Canvas);
  outline: 2px solid CanvasText; text-decoration: underline; text-decoration-thickness: 2px;
}
.coref .scores { display: block; }
.coref:has(.scores input:checked) mark[data-score]::after {
  content: attr(data-cluster) " \\2009(" attr(data-score) ")";
}
.coref:has(.scores input:checked) mark[data-link]::after {
  content: attr(data-cluster) " \\2009(" attr(data-score) ", link " attr(data-link) ")";
}
.coref ol { list-style: none; padding: 0; margin: 0.5em 0; max-height: 16em; overflow: auto; }
.coref li { display: inline; }
.coref button {
  --own: hsl(var(--hue) 75% 45%);
  font: inherit; text-align: left; max-width: 100%; overflow-wrap: anywhere; cursor: pointer;
  color: CanvasText; background: Canvas; margin: 0.15em; padding: 0.3em 0.5em;
  border: 1px solid var(--own); border-bottom-width: 2px; border-radius: 0.3em;
}
.coref button::before { margin: 0 0.4em 0 0; vertical-align: baseline; }
.coref button.lit { outline: 2px solid CanvasText; }
"""

# Code for an `element` that contains the result of `draw_clusters`, now or later.
SCRIPT = """
let chosen = null, shown = null;
const light = (number) => {
  if (number === shown) return;
  shown = number;
  for (const lit of element.querySelectorAll(".coref .lit")) lit.classList.remove("lit");
  if (number === null) return;
  for (const part of element.querySelectorAll(`.coref [data-cluster="${number}"]`))
    part.classList.add("lit");
};
const choose = (number) => {
  chosen = number;
  light(chosen);
  for (const button of element.querySelectorAll(".coref button"))
    button.setAttribute("aria-pressed", button.dataset.cluster === chosen);
};
const clusterAt = (event) => {
  const part = event.target.closest(".coref [data-cluster]");
  return part && part.dataset.cluster;
};
element.addEventListener("pointerover", (event) => light(clusterAt(event) ?? chosen));
element.addEventListener("pointerleave", () => light(chosen));
element.addEventListener("focusin", (event) => light(clusterAt(event) ?? chosen));
element.addEventListener("focusout", () => light(chosen));
element.addEventListener("click", (event) => {
  const number = clusterAt(event);
  if (number === null) return;
  choose(chosen === number ? null : number);
  if (chosen !== null && event.target.closest("button"))
    element.querySelector(`mark[data-cluster="${number}"]`).scrollIntoView({ block: "center" });
});
element.addEventListener("keydown", (event) => {
  if (event.key === "Escape") choose(null);
});
"""

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1.05rem/1.6 system-ui, sans-serif; max-width: 50rem; margin: 0 auto; padding: 1rem; }}
h1 {{ font-size: 1.4rem; overflow-wrap: anywhere; }}
</style>
</head>
<body>
<h1>{title}</h1>
{drawn}
<script>
(function (element) {{{script}}})(document.body);
</script>
</body>
</html>
"""


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
    return _PAGE.format(
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
        f'<div class="coref"><style>{STYLE}</style>\n'
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

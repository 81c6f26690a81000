"""Shows a text with its clusters as HTML."""

import collections
import html
from collections.abc import Sequence

from keras_spanbert.text.strings import replace_surrogates

_STYLE = """\
.coref { white-space: pre-wrap; overflow-wrap: anywhere; font: 1.05rem/2.2 system-ui, sans-serif; }
.coref mark { color: inherit; background: hsl(var(--hue) 75% 50% / var(--sure)); padding: 0.2em; }
.coref mark { border: 1px solid hsl(var(--hue) 75% 45%); border-radius: 0.3em; }
.coref mark::after { content: attr(data-cluster); font-size: 0.65em; vertical-align: sub; }
.coref mark.lit { outline: 3px solid currentColor; }"""
_SCRIPT = """\
document.body.addEventListener("pointerover", (event) => {
  const number = event.target.closest("mark")?.dataset.cluster;
  for (const mark of document.querySelectorAll("mark"))
    mark.classList.toggle("lit", mark.dataset.cluster === number);
});"""


def cluster_page(text: str, clusters: Sequence, title: str = "Coreference") -> str:
    """Returns a page that shows a text with its clusters: see `draw_clusters`."""
    title = html.escape(replace_surrogates(title))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<meta charset="utf-8">\n<meta name="viewport" '
        f'content="width=device-width">\n<title>{title}</title>\n'
        '<body style="max-width: 50rem; margin: auto">\n'
        f"{draw_clusters(text, clusters)}\n<script>\n{_SCRIPT}\n</script>\n</body>\n</html>\n"
    )


def draw_clusters(text: str, clusters: Sequence) -> str:
    """Returns HTML of a text, in which each mention of `resolve`'s clusters has a numbered box.

    With scores, boxes of unsure links are paler. Their titles name the antecedents.
    """
    starts, places = collections.defaultdict(list), {len(text)}
    for number, cluster in enumerate(clusters, 1):
        for m in cluster:
            sure, title = m.get("link_score"), f"{number}: {cluster[0]['text']}"
            if sure is not None:
                title += f", linked to {m['antecedent']['text']}, {sure:.2f}"
            style = f"--hue:{137 * number % 360};--sure:{0.35 if sure is None else sure / 2:.2f}"
            title = html.escape(replace_surrogates(title))
            tag = f'<mark data-cluster="{number}" style="{style}" title="{title}">'
            starts[m["start"]].append((m["end"], tag))
            places |= {m["start"], m["end"]}
    pieces, is_open, at = [], [], 0
    for place in sorted(places):
        piece, at = html.escape(replace_surrogates(text[at:place])), place
        # Browsers lay out short paragraphs quickly. A novel in one takes half a minute.
        pieces.append(piece if is_open else piece.replace("\n", "\n</div><div>"))
        first = next((i for i, (end, _) in enumerate(is_open) if end == place), len(is_open))
        pieces.append("</mark>" * (len(is_open) - first))
        # Mentions that cross the end of another are cut there.
        opened = [mark for mark in is_open[first:] if mark[0] > place] + starts[place]
        is_open[first:] = sorted(opened, key=lambda mark: -mark[0])
        pieces += [tag for _, tag in is_open[first:]]
    return f'<style>\n{_STYLE}\n</style><div class="coref"><div>{"".join(pieces)}</div></div>'

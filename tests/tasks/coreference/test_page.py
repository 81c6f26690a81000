import html.parser
import re

import pytest

from keras_spanbert.tasks.coreference.page import cluster_page, draw_clusters

NESTED = (
    "[1* Ann] told [3* [2* [1 her] brother] 's wife] that [4* [2 his] letter] came.\n\n"
    "[3 She] had read [4 it]."
)


_MARK = re.compile(r"(\[\d+\*? |\])")


def read(marked):
    """Returns a text and its clusters from marks as in `NESTED`. A star is the main mention."""
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


class Marks(html.parser.HTMLParser):
    """Parses the text of `draw_clusters`, and its marks: cluster, start, end and attributes."""

    def __init__(self, page):
        super().__init__()
        self.text, self.marks, self.is_open = "", [], []
        self.feed(page.split('<div class="coref">')[1].split("<script>")[0])

    def handle_starttag(self, tag, attributes):
        if tag == "mark":
            self.is_open.append((len(self.text), dict(attributes)))

    def handle_endtag(self, tag):
        if tag == "mark":
            start, attributes = self.is_open.pop()
            number = int(attributes["data-cluster"])
            self.marks.append((number, start, len(self.text), attributes))

    def handle_data(self, data):
        self.text += data


def test_marks_are_nested_and_the_text_is_exact():
    text, clusters = read(NESTED)
    page = cluster_page(text, clusters)
    # It loads no other files.
    assert not re.findall(r"https?:|\bsrc=|\bhref=|@import|url\(", page)
    found = Marks(page)
    assert found.text.rstrip("\n") == text and not found.is_open
    assert sorted(mark[:3] for mark in found.marks) == sorted(
        (number, m["start"], m["end"]) for number, c in enumerate(clusters, 1) for m in c
    )
    assert len({re.search(r"--hue:\d+", mark[3]["style"]).group() for mark in found.marks}) == 4


@pytest.mark.parametrize("text", ["</script></mark><b>&amp; <!-- \"Ann'", "a Ann\n\n $x \ud800"])
def test_text_is_escaped(text):
    start = text.index("Ann")
    clusters = [[{"text": text[start:], "start": start, "end": len(text)}]]
    page = cluster_page(text, clusters, title=text)
    page.encode()  # A file can be written.
    found = Marks(page)
    assert found.text.rstrip("\n") == text.replace("\ud800", "\ufffd") and len(found.marks) == 1
    assert page.count("<b>") == page.count("<!--") == 0 and page.count("</script>") == 1


def test_crossing_mentions_are_split():
    text = "abcdef"
    spans = [(0, 3), (2, 5), (2, 5), (4, 6)]
    found = Marks(draw_clusters(text, [[{"text": "", "start": s, "end": e}] for s, e in spans]))
    assert found.text == text
    assert sorted(mark[:3] for mark in found.marks) == [
        (1, 0, 3), (2, 2, 3), (2, 3, 5), (3, 2, 3), (3, 3, 5), (4, 4, 5), (4, 5, 6)
    ]  # fmt: skip


def test_unsure_links_are_paler_and_named():
    text, clusters = read("[1* Ann] saw [1 her].")
    clusters[0][0].update(link_score=None, antecedent=None)
    clusters[0][1].update(link_score=0.25, antecedent={"text": "<Ann>"})
    her, ann = sorted(Marks(draw_clusters(text, clusters)).marks, key=lambda mark: -mark[1])
    assert her[3]["title"] == "1: Ann, linked to <Ann>, 0.25" and ann[3]["title"] == "1: Ann"
    assert her[3]["style"].endswith("--sure:0.12") and ann[3]["style"].endswith("--sure:0.35")

import html.parser
import re

import pytest

from keras_spanbert.tasks.coreference.page import cluster_page, draw_clusters


def clusters_of(text, *clusters):
    """Returns clusters of the first places of phrases in a text."""
    return [
        [{"text": m, "start": text.index(m), "end": text.index(m) + len(m)} for m in cluster]
        for cluster in clusters
    ]


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
    text = "Ann told her brother's wife that his letter came.\n\nShe had read it."
    pairs = [("Ann", "her"), ("her brother", "his"), ("her brother's wife", "She")]
    clusters = clusters_of(text, *pairs, ("his letter", "it"))
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
    page = cluster_page(text, clusters_of(text, [text[text.index("Ann") :]]), title=text)
    page.encode()  # A file can be written.
    found = Marks(page)
    assert found.text.rstrip("\n") == text.replace("\ud800", "\ufffd") and len(found.marks) == 1
    assert page.count("<b>") == page.count("<!--") == 0 and page.count("</script>") == 1


def test_crossing_mentions_are_split():
    found = Marks(draw_clusters("abcdef", clusters_of("abcdef", ["abc"], ["cde"], ["cde"], ["ef"])))
    assert found.text == "abcdef"
    assert sorted(mark[:3] for mark in found.marks) == [
        (1, 0, 3), (2, 2, 3), (2, 3, 5), (3, 2, 3), (3, 3, 5), (4, 4, 5), (4, 5, 6)
    ]  # fmt: skip


def test_unsure_links_are_paler_and_named():
    text = "Ann saw her."
    clusters = clusters_of(text, ["Ann", "her"])
    clusters[0][0].update(link_score=None, antecedent=None)
    clusters[0][1].update(link_score=0.25, antecedent={"text": "<Ann>"})
    her, ann = sorted(Marks(draw_clusters(text, clusters)).marks, key=lambda mark: -mark[1])
    assert her[3]["title"] == "1: Ann, linked to <Ann>, 0.25" and ann[3]["title"] == "1: Ann"
    assert her[3]["style"].endswith("--sure:0.12") and ann[3]["style"].endswith("--sure:0.35")

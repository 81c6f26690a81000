import html.parser
import re
import time

import bracketed_clusters
import browsers
import pytest

from keras_spanbert.tasks.coreference.page import cluster_lines, cluster_page, draw_clusters

NESTED = (
    "[1* Ann] told [3* [2* [1 her] brother] 's wife] that [4* [2 his] letter] came.\n\n"
    "[3 She] had read [4 it]."
)


class Marks(html.parser.HTMLParser):
    """Parses the text, the marks with their positions, and whether tags close in order."""

    def __init__(self, page):
        super().__init__()
        self.text, self.marks, self.is_open, self.depth, self.tags = "", [], [], None, []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag not in ("meta", "input"):
            self.tags.append(tag)
        if attributes.get("class") == "text":
            self.depth = len(self.tags)
        if tag == "mark":
            self.is_open.append((len(self.text), attributes))

    def handle_endtag(self, tag):
        assert self.tags.pop() == tag
        if self.depth is not None and len(self.tags) < self.depth:
            self.depth = None
        if tag == "mark":
            start, attributes = self.is_open.pop()
            number, place = int(attributes["data-cluster"]), (start, len(self.text))
            self.marks.append((number, *place, attributes))

    def handle_data(self, data):
        if self.depth is not None:
            self.text += data


def places(marks):
    return [mark[:3] for mark in marks]


def test_marks_are_nested_and_the_text_is_exact():
    text, clusters = bracketed_clusters.read(NESTED)
    page = cluster_page(text, clusters)
    # It loads no other files.
    assert not re.findall(r"https?:|\bsrc=|\bhref=|@import|url\(", page)
    found = Marks(page)
    assert not found.tags and found.text == text
    assert sorted(places(found.marks)) == sorted(
        (number, m["start"], m["end"]) for number, c in enumerate(clusters, 1) for m in c
    )
    # Inner marks close first, and outer boxes are higher.
    marks = {text[start:end]: i for i, (_, start, end) in enumerate(places(found.marks))}
    indices = [marks[name] for name in ("her", "her brother", "her brother 's wife")]
    assert indices == sorted(indices)
    levels = [re.search(r"--level:(\d)", found.marks[i][3]["style"]).group(1) for i in indices]
    assert levels == ["0", "1", "2"]
    # Clusters differ by more than color.
    titles = {attributes["title"] for *_, attributes in found.marks}
    assert titles == {"1: Ann", "2: her brother", "3: her brother 's wife", "4: his letter"}
    assert len({re.search(r"--hue:\d+", mark[3]["style"]).group() for mark in found.marks}) == 4


@pytest.mark.parametrize(
    "text",
    [
        "</script></mark><b>&amp; <!-- \"Ann'", "a\r\nAnn\rb\n\n\n Ann \n",
        "${1} {{Ann}} {Ann} %s\\n", "\U0001f600 Ann \u202e e\u0301", "",
    ],
)  # fmt: skip
def test_text_is_escaped(text):
    start = text.find("Ann")
    clusters = [] if start < 0 else [[{"text": text[start:], "start": start, "end": len(text)}]]
    for page in [cluster_page(text, clusters, title=text), draw_clusters(text, clusters)]:
        found = Marks(page)
        assert not found.tags and found.text == text
        assert len(found.marks) == len(clusters)
        assert page.count("<b>") == page.count("<!--") == 0
        assert page.count("</script>") <= 1
    assert Marks(cluster_page("a\0b\ud800c", [])).text == "a\ufffdb\ufffdc"


def test_crossing_mentions_are_split():
    text = "abcdef"
    clusters = [
        [{"text": text[start:end], "start": start, "end": end}]
        for start, end in [(0, 3), (2, 5), (2, 5), (4, 6)]
    ]
    found = Marks(cluster_page(text, clusters))
    assert found.text == text
    pieces = {}
    for number, start, end, attributes in found.marks:
        pieces.setdefault(number, []).append((start, end, attributes.get("class")))
    assert {number: sorted(found) for number, found in pieces.items()} == {
        1: [(0, 3, None)],
        2: [(2, 3, "cut"), (3, 5, None)],
        3: [(2, 3, "cut"), (3, 5, None)],
        4: [(4, 5, "cut"), (5, 6, None)],
    }


def test_scores_are_optional():
    text, clusters = bracketed_clusters.read("[1* Ann] and [2* Bob]")
    assert "Show scores" not in cluster_page(text, clusters)
    clusters[0][0]["score"] = 0.125
    page = cluster_page(text, clusters)
    assert "Show scores" in page
    scores = {mark[0]: mark[3].get("data-score") for mark in Marks(page).marks}
    assert scores == {1: "0.12", 2: None}


def test_unsure_links_are_paler():
    text, clusters = bracketed_clusters.read(
        "[1* Ann] saw [1 her] <b>. [1 She] left; [2* Bob] too."
    )
    assert {mark[3]["style"][-8:] for mark in Marks(cluster_page(text, clusters)).marks} == {
        "--sure:1"
    }
    (ann, her, she), (bob,) = clusters
    ann.update(score=2.0, link_score=None, antecedent=None)
    her.update(score=1.0, link_score=0.9, antecedent={"text": "Ann", "start": 0, "end": 3})
    she.update(score=1.0, link_score=0.25, antecedent={"text": "'<b>'", "start": 0, "end": 5})
    bob.update(score=0.0, link_score=None, antecedent=None)
    page = cluster_page(text, clusters)
    found = Marks(page)
    marks = {text[start:end]: attributes for _, start, end, attributes in found.marks}
    sure = {name: re.search(r"--sure:([\d.]+)", m["style"]).group(1) for name, m in marks.items()}
    # The first mention and a single one are as sure as their cluster.
    assert found.text == text
    assert sure == {"Ann": "0.57", "her": "0.9", "She": "0.25", "Bob": "0.5"}
    assert {name: m.get("data-link") for name, m in marks.items()} == {
        "Ann": None, "her": "0.90", "She": "0.25", "Bob": None
    }  # fmt: skip
    assert marks["her"]["title"] == "1: Ann (linked to 'Ann', 0.90)"
    assert marks["She"]["title"] == "1: Ann (linked to \"'<b>'\", 0.25)"
    assert "Ann, 3 (0.57)</button>" in page and "Bob, 1 (0.50)</button>" in page


def test_page_of_a_novel_takes_seconds():
    text = "Ann met Bob, and saw it. " * 25_000
    clusters = [[] for _ in range(1_500)]
    for i in range(30_000):
        start = 20 * i
        mention = {"text": text[start : start + 15], "start": start, "end": start + 15}
        clusters[i % 1_500].append(mention)
    begun = time.process_time()
    page = cluster_page(text, clusters)
    assert time.process_time() - begun < 5
    assert page.count("<mark") == 30_000


def test_cluster_lines_have_no_control_characters():
    text, clusters = bracketed_clusters.read(
        "[2* Ann]\nsold [1* the\n\x1b[31mold] book. [2 She] [2 is\u202e]."
    )
    assert cluster_lines(text, clusters) == (
        "1. Ann (0 to 3), 3 mentions: She (28 to 31), is\ufffd (32 to 35)\n"
        "2. the \ufffd[31mold (9 to 21), 1 mention"
    )
    assert cluster_lines("Ann", []) == "No clusters"
    long = [[{"text": "x" * 99, "start": 0, "end": 99}]]
    assert cluster_lines("x" * 99, long) == f"1. {'x' * 60}… (0 to 99), 1 mention"


@pytest.mark.long
def test_clusters_are_highlighted_in_a_browser(tmp_path):
    text, clusters = bracketed_clusters.read(NESTED)
    clusters[0][0]["score"] = 0.5
    (tmp_path / "page.html").write_text(cluster_page(text, clusters), encoding="utf-8")
    with browsers.phone(tmp_path) as browser:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.by import By

        browser.get((tmp_path / "page.html").as_uri())

        def lit():
            return browser.execute_script(
                "return [...document.querySelectorAll('mark.lit')].map((m) => m.textContent)"
            )

        assert browser.execute_script("return document.querySelector('.text').textContent") == text
        assert browser.execute_script(
            "return document.documentElement.scrollWidth <= window.innerWidth"
        )
        marks = browser.find_elements(By.TAG_NAME, "mark")
        assert lit() == []
        ActionChains(browser).move_to_element(marks[0]).perform()
        assert lit() == ["Ann", "her"]
        number = "return getComputedStyle(document.querySelector('mark'), '::after').content"
        assert "0.50" not in browser.execute_script(number)
        browser.find_element(By.CSS_SELECTOR, ".scores input").click()
        assert "0.50" in browser.execute_script(number)
        browser.find_element(By.TAG_NAME, "summary").click()
        browser.find_element(By.CSS_SELECTOR, "button[data-cluster='4']").click()
        ActionChains(browser).move_to_element(browser.find_element(By.TAG_NAME, "h1")).perform()
        assert lit() == ["his letter", "it"]

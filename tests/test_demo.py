"""The demo page, through its API and in a browser."""

import contextlib
import html
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

import browsers
import own_task
import pytest
import stub_resolver
import tiny_chooser
import tiny_extractor
import tiny_tagger

import keras_spanbert as ks
from keras_spanbert import demo
from keras_spanbert.demo import answers, highlighting
from keras_spanbert.tasks.coreference.page import draw_clusters

pytest.importorskip("gradio", reason="gradio is not installed (extra [demo])")
ROOT = pathlib.Path(__file__).parent.parent
PASSAGE = "sold it and ann wrote it and sold it. eve read it."


@pytest.fixture(scope="module")
def models(trained_answerer):
    """Models for each page but that of coreference, by the names of their presets."""
    backbone = tiny_chooser.build().backbone
    tokenizer = ks.SpanBertTokenizer(tiny_chooser.VOCABULARY)
    of_texts = ks.SpanBertTextClassifierPreprocessor(tokenizer, 16)
    names = {"class_names": ["dull", "good"], "preprocessor": of_texts}
    found = {
        "choices": tiny_chooser.build(),
        "relations": tiny_extractor.build("ner"),
        "tags": ks.SpanBertTextClassifier(backbone, multi_label=True, **names),
        "texts": ks.SpanBertTextClassifier(backbone, **names),
        "words": tiny_tagger.build(),
    }
    found["relations"].preprocessor.adapt(tiny_extractor.examples(20))
    # Sets weights instead of training, which would be slow.
    for model in found.values():
        model.classifier.set_weights([10 * weight for weight in model.classifier.get_weights()])
    found["tags"].classifier.bias.assign([9.0, -9.0])
    found["blanks"] = ks.SpanBertPretrainer(
        tiny_chooser.build().backbone, ks.SpanBertPretrainerPreprocessor(tokenizer, 16)
    )
    for layer in [found["blanks"].mlm_head, found["blanks"].sbo_head]:
        layer.set_weights([2 * weight for weight in layer.get_weights()])
    return {**found, "my <answers>": trained_answerer}


@pytest.fixture(scope="module")
def address(models, tmp_path_factory):
    """The page in a new process with the default presets, which are those in saved_models/."""
    folder = tmp_path_factory.mktemp("demo")
    for name, model in models.items():
        model.save_to_preset(folder / "saved_models" / name)
    # Only presets that the demo supports.
    backbone = models["my <answers>"].backbone
    ks.SpanBertQuestionAnswerer(backbone).save_to_preset(folder / "saved_models" / "fresh")
    stub_resolver.save(folder / "saved_models" / "a resolver")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "stub_resolver.py"], env=environment, cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    with process:
        try:
            found = None
            while found is None:
                line = process.stdout.readline()
                assert line, "the page did not start"
                found = re.search(r"http://127\.0\.0\.1:\d+", line)
            yield found.group()
        finally:
            process.kill()


def test_api_returns_answers_of_the_model(models, address):
    from gradio_client import Client

    with contextlib.closing(Client(address, verbose=False)) as client:
        highlighted, best = client.predict(PASSAGE, "who wrote it", api_name="/ask")
        with pytest.raises(Exception, match="The passage must not be empty"):
            client.predict(" ", "who wrote it", api_name="/ask")
    expected = models["my <answers>"].answer("who wrote it", PASSAGE, top_k=answers.NUM_ANSWERS)
    assert [row[0] for row in best["data"]] == [a["answer"] for a in expected]
    assert best["data"][0] == ["ann", f"{expected[0]['score']:.1%}", "12 to 15"]
    assert best["headers"] == ["Answer", "Score", "Characters"]
    assert html.unescape(re.sub("<[^>]*>", "", highlighted)) == PASSAGE
    (title,) = re.findall(r'<mark [^>]*title="Score ([^"]*)">ann</mark>', highlighted)
    assert title == best["data"][0][1]


def test_lone_surrogates_are_accepted(address):
    data = json.dumps({"data": [f"\ud800{PASSAGE}", "who wrote\ud800 it"]}).encode()
    request = urllib.request.Request(
        f"{address}/gradio_api/call/ask", data, {"Content-Type": "application/json"}
    )
    event = json.load(urllib.request.urlopen(request, timeout=60))["event_id"]
    url = f"{address}/gradio_api/call/ask/{event}"
    lines = urllib.request.urlopen(url, timeout=60).read().decode().splitlines()
    assert lines[0] == "event: complete", lines
    highlighted, best = json.loads(lines[1].removeprefix("data: "))
    assert best["data"][0][0] == "ann" and best["data"][0][2] == "13 to 16"
    assert "\ufffdsold it and " in highlighted


def test_api_returns_labels_of_the_models(models, address):
    from gradio_client import Client

    text = "red is blue"
    with contextlib.closing(Client(address, verbose=False)) as client:
        chosen, tags = client.predict(text, "", api_name="/classify")
        with pytest.raises(Exception, match="The text must not be empty"):
            client.predict(" ", "", api_name="/classify")
        labels = client.predict(text, "", api_name="/classify_1")
        relations = client.predict(
            text="ann runs acme .",
            subject="ann",
            object="acme",
            subject_type="PERSON",
            object_type="COMPANY",
            api_name="/extract",
        )
        with pytest.raises(Exception, match="must occur in the text"):
            client.predict("ann runs .", "ann", "acme", "PERSON", "COMPANY", api_name="/extract")
        choices = client.predict("", "it is", "red\n\nblue and\n", api_name="/choose")
        with pytest.raises(Exception, match="Two choices"):
            client.predict("", "it is", "red", api_name="/choose")
        shown, rows = client.predict("ann met <b>", api_name="/tag")
        blanks = client.predict("red is [MASK]", api_name="/fill")
        with pytest.raises(Exception, match=r"must have a \[MASK\]"):
            client.predict("red is blue", api_name="/fill")
    (row, *_) = blanks["data"]
    assert len(blanks["data"]) == 5 and row[0] == 1 and row[2].endswith("%")
    best = models["relations"].extract("ann runs acme .", (0, 3), (9, 13), "PERSON", "COMPANY")
    assert (chosen, relations["label"]) == ("dull", best["relation"])
    scores = models["choices"].choose("it is", ["red", "blue and"])["scores"]
    for shown_labels, expected in [
        (labels, models["texts"].classify(text)["scores"]),
        (tags, models["tags"].classify(text)["scores"]),
        (choices, dict(zip(["red", "blue and"], scores))),
    ]:
        assert label_confidences(shown_labels) == pytest.approx(expected, abs=1e-4)
    assert label_confidences(relations)[best["relation"]] == pytest.approx(best["score"], abs=1e-4)
    found = models["words"].tag("ann met <b>")
    assert [row[:2] for row in rows["data"]] == [[e["text"], e["label"]] for e in found]
    assert shown.count("<mark") == len(found) > 0 and "&lt;" in shown and "<b>&" not in shown


def label_confidences(shown):
    return {row["label"]: row["confidence"] for row in shown["confidences"]}


COREFERENCE = "Ann sold her book. Bob </script><b>read</b> it ${1 + 1} {{value}}."


def test_page_with_several_models(address):
    from gradio_client import Client

    with contextlib.closing(Client(address, verbose=False)) as client:
        shown = client.predict(COREFERENCE, api_name="/resolve")
        with pytest.raises(Exception, match="The text must not be empty"):
            client.predict(" ", api_name="/resolve")
    assert shown == draw_clusters(
        COREFERENCE, stub_resolver.clusters_in_text(COREFERENCE, scores=True)
    )
    assert shown.count("<mark") == 5
    config = json.load(urllib.request.urlopen(f"{address}/config", timeout=60))
    properties = [component["props"] for component in config["components"]]
    assert any("my &lt;answers&gt;" in str(p.get("value")) for p in properties)
    (examples,) = [p for p in properties if p.get("sample_labels") == list(answers.QUESTIONS)]
    assert [row[0] for row in examples["samples"]] == [answers.PASSAGE] * 2
    tabs = [c["props"].get("label") for c in config["components"] if c["type"] == "tabitem"]
    names = ["a resolver", "blanks", "choices", "my <answers>"]
    names += ["relations", "tags", "texts", "words"]
    assert tabs == [f"{i}. {name}" for i, name in enumerate(names, start=1)]


def test_clusters_are_highlighted_in_a_browser(address, tmp_path):
    with browsers.phone(tmp_path) as browser:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys
        from selenium.webdriver.support.ui import WebDriverWait

        browser.get(address)
        wait = WebDriverWait(browser, 60)
        box = wait.until(lambda b: b.find_elements(By.TAG_NAME, "textarea"))[0]
        box.clear()
        box.send_keys(COREFERENCE)
        browser.find_element(By.XPATH, "//button[normalize-space()='Resolve']").click()
        marks = wait.until(
            lambda b: len(found := b.find_elements(By.TAG_NAME, "mark")) == 5 and found
        )
        shown = browser.execute_script("return document.querySelector('.coref .text').textContent")
        ActionChains(browser).move_to_element(marks[0]).perform()
        lit = browser.find_elements(By.CSS_SELECTOR, "mark.lit")
        browser.save_screenshot(os.environ.get("SCREENSHOT", str(tmp_path / "page.png")))
        assert [mark.text for mark in lit] == ["Ann", "her"]
        assert browser.execute_script(
            "return document.documentElement.scrollWidth <= window.innerWidth"
        )
        browser.find_element(By.CSS_SELECTOR, ".coref summary").click()
        button = browser.find_element(By.CSS_SELECTOR, ".coref button")
        states = []
        for action in [button.click, lambda: button.send_keys(Keys.ESCAPE)]:
            action()
            states.append(button.get_attribute("aria-pressed"))
    assert shown == COREFERENCE
    assert states == ["true", "false"]


def test_highlighting_of_answers():
    found = [
        {"answer": "cd", "score": 0.5, "start": 2, "end": 4},
        {"answer": "abc", "score": 0.25, "start": 0, "end": 3},
        {"answer": "", "score": 0.125, "start": -1, "end": -1},
        {"answer": "f", "score": 0.0625, "start": 5, "end": 6},
    ]
    assert answers.highlight("abcdef", found) == [
        ("ab", None), ("cd", 0.5), ("e", None), ("f", 0.0625)
    ]  # fmt: skip
    passage = 'a <b>&amp;</b>\n\n"c"  d'
    shown = highlighting.to_html([(passage[:2], None), (passage[2:5], 1.0), (passage[5:], 0.0)])
    assert html.unescape(re.sub("<[^>]*>", "", shown)) == passage
    assert "<b>" not in shown and "white-space: pre-wrap" in shown and "<br" not in shown
    colors = re.findall(r"rgba\((\d+), (\d+), (\d+), ([\d.]+)\)", shown)
    assert [color[:3] for color in colors] == [colors[0][:3]] * 2
    assert float(colors[0][3]) > float(colors[1][3]) > 0.1
    assert int(colors[0][2]) > max(int(colors[0][0]), int(colors[0][1]))  # Blue.


@pytest.mark.parametrize("preset", ["nothing", "empty", "encoder", "unknown"])
def test_errors_are_one_line_with_exit_code_2(preset, trained_answerer, tmp_path, capsys):
    answerer = trained_answerer
    tokenizer = answerer.preprocessor.tokenizer
    ks.checkpoints.to_huggingface(answerer.backbone, tmp_path / "encoder", tokenizer)
    (tmp_path / "empty").mkdir()
    (tmp_path / "unknown").mkdir()
    (tmp_path / "unknown" / "config.json").write_text('{"class_name": "SpanBertBackbone"}')
    task = {"class_name": "Similarity", "registered_name": "elsewhere>Similarity"}
    (tmp_path / "unknown" / "task.json").write_text(json.dumps(task))
    assert demo.main([str(tmp_path / preset)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("python -m keras_spanbert.demo: ") and str(tmp_path / preset) in err
    assert len(err.splitlines()) == 1
    if preset == "unknown":
        assert "a task that the demo supports" in err and "of class Similarity" in err


def test_missing_presets_are_an_error(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert demo.main([]) == 2
    assert "No presets in saved_models/. Name one: python -m" in capsys.readouterr().err
    preset = tmp_path / "saved_models" / "encoder"
    preset.mkdir(parents=True)
    (preset / "config.json").write_text('{"class_name": "SpanBertBackbone"}')
    (preset / "task.json").write_text('{"class_name": "Own", "registered_name": "own>Own"}')
    assert demo.main([]) == 2
    skipped, last = capsys.readouterr().err.splitlines()
    assert "Skipped saved_models/encoder: PRESET must have a trained head" in skipped
    assert "can show no preset in saved_models/" in last


def test_user_defined_task_needs_a_demo_page(monkeypatch):
    similarity = own_task.build()
    with pytest.raises(ValueError, match="`demo_page` names. Received: a Similarity"):
        demo.build_page(similarity, "mine")
    monkeypatch.setattr(own_task.Similarity, "demo_page", "own_task:page")
    assert demo.build_page(similarity, "mine") == (similarity, "mine")

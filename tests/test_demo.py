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
from keras_spanbert.tasks.coreference.page import SCRIPT, draw_clusters

pytest.importorskip("gradio", reason="gradio is not installed (extra [demo])")
ROOT = pathlib.Path(__file__).parent.parent
PASSAGE = "sold it and ann wrote it and sold it. eve read it."


@pytest.fixture(scope="module")
def model(trained_answerer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "saved_models" / "my <answers>"
    trained_answerer.save_to_preset(folder)
    # Only presets that the demo supports.
    ks.SpanBertQuestionAnswerer(trained_answerer.backbone).save_to_preset(folder.parent / "fresh")
    return trained_answerer, folder


@pytest.fixture(scope="module")
def address(model):
    """The page in a new process with the default presets of saved_models/."""
    with serve_page("-m", "keras_spanbert.demo", cwd=model[1].parent.parent) as found:
        yield found


@pytest.fixture(scope="module")
def labellers(tmp_path_factory):
    """Models for texts, relations, choices and words, and the folders of their presets."""
    found = {}
    backbone = tiny_chooser.build().backbone
    tokenizer = ks.SpanBertTokenizer(tiny_chooser.VOCABULARY)
    found["texts"] = ks.SpanBertTextClassifier(
        backbone, 2, ks.SpanBertTextClassifierPreprocessor(tokenizer, 16), ["dull", "good"]
    )
    found["relations"] = tiny_extractor.build("ner")
    found["relations"].preprocessor.adapt(tiny_extractor.examples(20))
    found["choices"] = tiny_chooser.build()
    found["words"] = tiny_tagger.build()
    found["tags"] = ks.SpanBertTextClassifier(
        backbone,
        preprocessor=found["texts"].preprocessor,
        class_names=["dull", "good"],
        multi_label=True,
    )
    folders = []
    for name, model in found.items():
        # Sets weights instead of training, which would be slow.
        model.classifier.set_weights([10 * weight for weight in model.classifier.get_weights()])
        if name == "tags":
            model.classifier.bias.assign([9.0, -9.0])
        folders.append(tmp_path_factory.mktemp(name) / name)
        model.save_to_preset(folders[-1])
    return found, folders


@pytest.fixture(scope="module")
def several_address(model, labellers, tmp_path_factory):
    """The page with a coreference resolver, `model` and the labellers."""
    folder = tmp_path_factory.mktemp("resolver") / "my resolver"
    stub_resolver.save(folder)
    script = ROOT / "tests" / "stub_resolver.py"
    pretrainer, pretrained = ks.SpanBertPretrainer(tiny_chooser.build().backbone), folder.parent
    pretrainer.preprocessor = ks.SpanBertPretrainerPreprocessor(
        labellers[0]["texts"].preprocessor.tokenizer, 16
    )
    for layer in [pretrainer.mlm_head, pretrainer.sbo_head]:  # As if trained.
        layer.set_weights([2 * weight for weight in layer.get_weights()])
    pretrainer.save_to_preset(pretrained / "blanks")
    folders = [folder, model[1], *labellers[1], pretrained / "blanks"]
    with serve_page(script, *folders) as found:
        yield found


@contextlib.contextmanager
def serve_page(*arguments, cwd=None):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, *arguments], env=environment, cwd=cwd, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
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


def test_api_returns_answers_of_the_model(model, address):
    from gradio_client import Client

    with contextlib.closing(Client(address, verbose=False)) as client:
        highlighted, best = client.predict(PASSAGE, "who wrote it", api_name="/ask")
        with pytest.raises(Exception, match="The passage must not be empty"):
            client.predict(" ", "who wrote it", api_name="/ask")
    expected = model[0].answer("who wrote it", PASSAGE, top_k=answers.NUM_ANSWERS)
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


def test_page_shows_the_model_and_examples(address):
    config = json.load(urllib.request.urlopen(f"{address}/config", timeout=60))
    properties = [component["props"] for component in config["components"]]
    assert any("my &lt;answers&gt;" in str(p.get("value")) for p in properties)
    (examples,) = [p for p in properties if p.get("sample_labels")]
    assert examples["sample_labels"] == list(answers.QUESTIONS)
    assert [row[0] for row in examples["samples"]] == [answers.PASSAGE] * 2


def test_api_returns_labels_of_the_models(labellers, several_address):
    from gradio_client import Client

    models, _ = labellers
    text = "red is blue"
    with contextlib.closing(Client(several_address, verbose=False)) as client:
        labels = client.predict(text, "", api_name="/classify")
        with pytest.raises(Exception, match="The text must not be empty"):
            client.predict(" ", "", api_name="/classify")
        chosen, tags = client.predict(text, "", api_name="/classify_1")
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


def test_page_with_several_models(model, several_address):
    from gradio_client import Client

    with contextlib.closing(Client(several_address, verbose=False)) as client:
        shown = client.predict(COREFERENCE, api_name="/resolve")
        _, best = client.predict(PASSAGE, "who wrote it", api_name="/ask")
        with pytest.raises(Exception, match="The text must not be empty"):
            client.predict(" ", api_name="/resolve")
    assert shown == draw_clusters(
        COREFERENCE, stub_resolver.clusters_in_text(COREFERENCE, scores=True)
    )
    assert shown.count("<mark") == 5 and best["data"][0][0] == "ann"
    config = json.load(urllib.request.urlopen(f"{several_address}/config", timeout=60))
    tabs = [c["props"].get("label") for c in config["components"] if c["type"] == "tabitem"]
    names = ["my resolver", "my <answers>", "texts", "relations", "choices", "words", "tags"]
    assert tabs == [f"{i}. {name}" for i, name in enumerate([*names, "blanks"], start=1)]
    scripts = [c["props"].get("js_on_load") or "" for c in config["components"]]
    assert sum(SCRIPT in script for script in scripts) == 1


def test_clusters_are_highlighted_in_a_browser(several_address, tmp_path):
    with browsers.phone(tmp_path) as browser:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.by import By
        from selenium.webdriver.common.keys import Keys
        from selenium.webdriver.support.ui import WebDriverWait

        browser.get(several_address)
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
def test_errors_are_one_line_with_exit_code_2(preset, model, tmp_path, capsys):
    answerer, _ = model
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

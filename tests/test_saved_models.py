"""The presets in saved_models/ give the expected answers."""

import functools
import pathlib
import pickle
import shutil
from copy import deepcopy

import pytest
from comparisons import assert_close
from saved_copies import copies

import keras_spanbert as ks

SAVED_MODELS = pathlib.Path(__file__).parent.parent / "saved_models"
CLASSES = {
    "coreference-litbank": ks.SpanBertCoreferenceResolver,
    "encoder-english": ks.SpanBertPretrainer,
    "entities-litbank": ks.SpanBertTokenClassifier,
    "question-answering-squad": ks.SpanBertQuestionAnswerer,
}
BRIDGE = (
    "The bridge over the river was opened in 1894 by the king. It took eight years to build and "
    "cost two million pounds."
)


@functools.cache
def load(name):
    return CLASSES[name].from_preset(str(SAVED_MODELS / name), dtype="float32")


def fill(text):
    return load("encoder-english").fill(text, top_k=1)[0][0]["text"]


def resolve(text):
    clusters = load("coreference-litbank").resolve(text)["clusters"]
    return [[m["text"] for m in cluster] for cluster in clusters if len(cluster) > 1]


def answer(question):
    return load("question-answering-squad").answer(question, BRIDGE, top_k=1)[0]["answer"]


def tag(text):
    return [(entity["text"], entity["label"]) for entity in load("entities-litbank").tag(text)]


# Released and reference checkpoints are tested on every backend.
@pytest.mark.long
@pytest.mark.once("torch")
@pytest.mark.parametrize(
    "ask, text, expected",
    [
        (fill, "He shook his [MASK] sadly and went away.", "head"),
        (
            resolve,
            "Anna met her brother Tom at the station. He had lost his coat, and she gave him hers.",
            [["Anna", "her", "she"], ["his", "He", "him"]],
        ),
        (answer, "When was the bridge opened?", "1894"),
        (
            tag,
            "The old captain left his ship in the harbour of Nantucket.",
            [("The old captain", "PER"), ("his ship", "VEH"), ("the harbour of Nantucket", "FAC")],
        ),
    ],
)
def test_presets_give_expected_answers(ask, text, expected):
    assert ask(text) == expected


ASK = {
    "coreference-litbank": lambda model: model.resolve("Anna met Tom. He had lost his coat."),
    "encoder-english": lambda model: model.fill("He shook his [MASK] and left.", top_k=3),
    "entities-litbank": lambda model: model.tag("The captain left Nantucket."),
    "question-answering-squad": lambda model: model.answer("When was it opened?", BRIDGE, top_k=3),
}


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("without_collections")
@pytest.mark.parametrize("name", CLASSES)
def test_loaded_presets_can_be_saved_and_copied(name, tmp_path):
    preset = tmp_path / "in place"
    shutil.copytree(SAVED_MODELS / name, preset)
    model = CLASSES[name].from_preset(str(preset))
    ask, card = ASK[name], (preset / "README.md").read_text()
    expected = ask(model)
    names = sorted(path.name for path in preset.rglob("*"))
    model.save_to_preset(preset)
    assert sorted(path.name for path in preset.rglob("*")) == names
    assert (preset / "README.md").read_text() == card
    # The rounding of sums can depend on the address of an array.
    assert_close(ask(CLASSES[name].from_preset(str(preset))), expected, 1e-5)
    for way, copy in copies(model, tmp_path).items():
        assert_close(ask(copy), expected, 1e-5, message=way)
    model.preprocessor.save_to_preset(preset)
    copy = type(model.preprocessor).from_preset(str(preset))
    for other in [copy, pickle.loads(pickle.dumps(copy)), deepcopy(copy)]:
        assert other.get_config() == model.preprocessor.get_config()
        assert list(other.tokenizer("Anna left.")) == list(copy.tokenizer("Anna left."))


@pytest.mark.once
@pytest.mark.parametrize("name", CLASSES)
def test_presets_are_small_and_have_a_model_card(name):
    preset = SAVED_MODELS / name
    card = (preset / "README.md").read_text()
    for part in ["license:", "## How it was made", "## Scores", "## What it is not good for"]:
        assert part in card
    assert sum(path.stat().st_size for path in preset.rglob("*") if path.is_file()) <= 25e6

"""The presets in saved_models/ give the expected answers."""

import pathlib
import pickle
import shutil
from copy import deepcopy

import keras
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


# A question for each preset, and the decisive part of the right answer.
ASK = {
    "coreference-litbank": lambda model: model.resolve(
        "Anna met her brother Tom at the station. He had lost his coat, and she gave him hers."
    ),
    "encoder-english": lambda model: model.fill("He shook his [MASK] sadly and went away.", 3),
    "entities-litbank": lambda model: model.tag(
        "The old captain left his ship in the harbour of Nantucket."
    ),
    "question-answering-squad": lambda model: model.answer("When was it opened?", BRIDGE, 3),
}
RIGHT = {
    "coreference-litbank": (
        lambda found: [[m["text"] for m in c] for c in found["clusters"] if len(c) > 1],
        [["Anna", "her", "she"], ["his", "He", "him"]],
    ),
    "encoder-english": (lambda found: found[0][0]["text"], "head"),
    "entities-litbank": (
        lambda found: [(entity["text"], entity["label"]) for entity in found],
        [("The old captain", "PER"), ("his ship", "VEH"), ("the harbour of Nantucket", "FAC")],
    ),
    "question-answering-squad": (lambda found: found[0]["answer"], "1894"),
}


# Released and reference checkpoints are tested on every backend.
@pytest.mark.long
@pytest.mark.once("torch")
@pytest.mark.parametrize("name", CLASSES)
def test_presets_give_expected_answers(name):
    part, expected = RIGHT[name]
    model = CLASSES[name].from_preset(str(SAVED_MODELS / name), dtype="float32")
    assert part(ASK[name](model)) == expected


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
    loaded = {"in place": CLASSES[name].from_preset(str(preset))}
    # On each backend, `test_quantization.py` copies small models in the same ways.
    loaded |= copies(model, tmp_path) if keras.backend.backend() == "torch" else {}
    for way, copy in loaded.items():
        assert_close(copy.get_weights(), model.get_weights(), message=way)
        # The last bit of a sum depends on addresses, and can move a rounded activation by a step.
        assert_close(ask(copy), expected, 0.01, message=way)
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

import keras
import numpy as np
import pytest

from keras_spanbert.tasks.coreference import parts
from keras_spanbert.tasks.coreference.batches import document_inputs, pad, sizes_of
from keras_spanbert.tasks.coreference.decoding import Clusters
from keras_spanbert.tasks.coreference.scoring import NO_SPAN

pytestmark = pytest.mark.usefixtures("untraced")


class Recorder:
    """A part's model that remembers what it was given and what it gave."""

    def __init__(self, model):
        self.model = model
        self.calls = []

    def predict_on_batch(self, batch):
        outputs = self.model.predict_on_batch(batch)
        self.calls.append((batch, {name: np.asarray(x)[0] for name, x in outputs.items()}))
        return outputs

    def shapes(self):
        return {str(keras.tree.map_structure(np.shape, batch)) for batch, _ in self.calls}


@pytest.fixture
def recorded(monkeypatch):
    """Makes parts of few tokens, and remembers the calls of a model."""

    def recorded(model, num_tokens):
        monkeypatch.setattr(parts, "_PART_TOKENS", num_tokens)
        recorder = Recorder(parts._part_model(model))
        monkeypatch.setattr(parts, "_part_model", lambda _: recorder)
        return recorder

    return recorded


def rows(scores, antecedents, index=None):
    """Each span's antecedents and their scores."""
    index = np.arange(len(scores)) if index is None else index
    for row, places in zip(scores[:, 1:], antecedents):
        is_one = np.isfinite(row)
        yield dict(zip(index[places[is_one]].tolist(), row[is_one].tolist()))


@pytest.mark.parametrize("model_type", ["independent", "overlap"])
def test_parts_give_the_scores_of_the_whole_where_memory_holds_all(
    build, document, recorded, monkeypatch, model_type
):
    model = build(model_type, max_top_antecedents=7, max_training_sentences=3)
    settings = model.input_settings()
    twice = {name: document[name] * 2 for name in ["sentences", "speakers"]}
    tensors = model.preprocessor.tensors(twice)
    recorder = recorded(model, 2 * 19)
    sizes = tensors["text_len"]
    part_of = np.repeat(np.arange(len(sizes)) // 2, sizes)
    assert part_of[-1] >= 2

    # === The whole, of spans that are within a part ===
    inputs, labels = document_inputs(tensors, settings)
    is_within = part_of[inputs["starts"]] == part_of[inputs["ends"]]
    inputs.update({name: inputs[name][is_within] for name in ["starts", "ends"]})
    batch, _ = pad(inputs, labels[is_within], sizes_of(inputs, settings), settings)
    whole = {name: np.asarray(x)[0] for name, x in model.predict_on_batch(batch).items()}
    num_top = len(inputs["top_span_mask"])
    top = whole["top_spans"][:num_top]
    starts, ends = inputs["starts"][top], inputs["ends"][top]
    expected = list(rows(whole["top_antecedent_scores"][:num_top], whole["top_antecedents"]))

    # === The parts, which keep the same spans ===
    inputs_of_part = parts.part_inputs

    def with_same_spans(tensors, begin, end, settings):
        inputs = inputs_of_part(tensors, begin, end, settings)
        is_here = part_of[starts] == begin // 2
        first = sizes[:begin].sum()
        inputs.update(starts=starts[is_here] - first, ends=ends[is_here] - first)
        inputs["top_span_mask"] = np.ones(is_here.sum(), np.int32)
        return inputs

    monkeypatch.setattr(parts, "part_inputs", with_same_spans)
    found = parts.score_parts(model, tensors, settings._replace(top_span_ratio=1.0), 131)
    np.testing.assert_array_equal(found["starts"], starts)
    np.testing.assert_array_equal(found["ends"], ends)
    scores = whole["candidate_mention_scores"][top]
    np.testing.assert_allclose(found["mention_scores"], scores, atol=1e-5)
    best = [max(row, key=row.get) if max([0, *row.values()]) else -1 for row in expected]
    np.testing.assert_array_equal(found["best_antecedents"], best)
    assert max(best) >= 0

    number, reaches_back = 0, 0
    for batch, outputs in recorder.calls:
        memory = batch["memory"]["index"][0]
        remembered = (memory < NO_SPAN).sum()
        num_new = (part_of[starts] == part_of[starts[number]]).sum()
        index = np.concatenate([memory, number + np.arange(len(outputs["top_spans"]))])
        scores = outputs["top_antecedent_scores"][:num_new]
        for row in rows(scores, outputs["top_antecedents"][:num_new], index):
            assert row == pytest.approx(expected[number], abs=1e-5)
            reaches_back += any(place < remembered for place in row)
            number += 1
    assert number == num_top and reaches_back > 10


@pytest.mark.traced
def test_shapes_are_the_same_for_every_part_and_length(build, document, recorded):
    model = build(top_span_ratio=0.3)
    recorder = recorded(model, 3 * 19)
    num_calls = []
    for repeats in [2, 5, 20]:
        sentences = {name: document[name] * repeats for name in ["sentences", "speakers"]}
        tensors = model.preprocessor.tensors(sentences)
        found = parts.score_parts(model, tensors, model.input_settings(), 11)
        num_calls.append(len(recorder.calls))
        assert (np.diff(found["starts"]) >= 0).all()
        assert (found["best_antecedents"] < np.arange(len(found["starts"]))).all()
    assert num_calls[2] > 3 * num_calls[1]
    assert len(recorder.shapes()) == 1
    assert parts._part_model(model) is recorder


def test_long_text_in_parts_is_that_of_the_whole_where_all_is_remembered(build, monkeypatch):
    text = "Ann wrote the letter. She was old. Bob sold it to Ann. He was old. " * 5
    # Every token is a span that is kept, so that parts keep those of the whole.
    keras.utils.set_random_seed(1)
    model = build(max_span_width=1, top_span_ratio=1.0, max_top_antecedents=9)
    monkeypatch.setattr(parts, "_PART_TOKENS", 40)
    memory = parts.Memory
    monkeypatch.setattr(parts, "Memory", lambda _, *args: memory(10_000, *args))
    whole = model.resolve(text, max_spans=10_000)
    assert sum(map(len, whole["clusters"])) > 5
    assert model.resolve(text, max_spans=20) == whole


def test_model_of_parts_is_made_once(build):
    model = build()
    number = len(model.layers), len(model.weights)
    assert parts._part_model(model) is parts._part_model(model)
    assert (len(model.layers), len(model.weights)) == number


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_quantized_model_resolves_in_parts(build, document):
    model = build()
    tensors = model.preprocessor.tensors(document)
    expected = parts.score_parts(model, tensors, model.input_settings(), 11)
    model.quantize("int8")
    found = parts.score_parts(model, tensors, model.input_settings(), 11)
    difference = np.abs(np.sort(found["mention_scores"]) - np.sort(expected["mention_scores"]))
    assert 0.0 < difference.max() < 0.1


def spans_at(index):
    index = np.array(index, np.int32)
    values = index.astype(np.float32)
    return {
        "mention_scores": values,
        "index": index,
        "speakers": index,
        "segments": index,
        "embeddings": np.stack([values, -values])[:, :, None] * np.ones(3, np.float32),
    }


def test_memory_keeps_the_newest_and_who_may_come_back():
    memory, clusters = parts.Memory(6, 2, 3), Clusters()
    assert (memory.inputs(0)["index"] == NO_SPAN).all()
    memory.add(spans_at([0, 1, 2, 3, 4]), clusters)
    assert memory.inputs(5)["index"].tolist() == [[0, 1, 2, 3, 4, NO_SPAN]]
    for span, antecedent in [(2, 0), (3, 1), (5, 3)]:
        clusters.link(span, antecedent)
    memory.add(spans_at([5, 6, 7]), clusters)
    # 5 to 7 are the newest; 4 is in no cluster, 1 and 3 have a later mention, 2 and 0 one of 2.
    found = memory.inputs(8)
    assert found["index"].tolist() == [[1, 2, 3, 5, 6, 7]]
    memory.add(spans_at([8, 9, 10]), clusters)
    found = memory.inputs(11)
    assert found["index"].tolist() == [[2, 3, 5, 8, 9, 10]]
    assert found["next_index"].tolist() == [11]
    assert found["embeddings"].shape == (1, 2, 6, 3)
    np.testing.assert_array_equal(found["embeddings"][0, 1, :, 2], -found["index"][0])
    np.testing.assert_array_equal(found["speakers"], found["index"])

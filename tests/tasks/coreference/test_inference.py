import keras
import numpy as np
import pytest

from keras_spanbert.keras_private import lora_variables
from keras_spanbert.models.lora import lora_layers
from keras_spanbert.tasks.coreference import inference
from keras_spanbert.tasks.coreference.inference import document_inputs
from keras_spanbert.tasks.coreference.scoring import NO_SPAN

pytestmark = pytest.mark.usefixtures("untraced")


@pytest.fixture
def recorded(monkeypatch):
    """Makes small chunks, and records the inputs and outputs of the model's calls."""

    def recorded(model, num_tokens):
        monkeypatch.setattr(inference, "_CHUNK_TOKENS", num_tokens)
        chunk_model, calls = model.resolver_layers.chunk_model, []
        predict = chunk_model.predict_on_batch

        def record(batch):
            outputs = predict(batch)
            calls.append((batch, keras.tree.map_structure(lambda x: np.asarray(x)[0], outputs)))
            return outputs

        monkeypatch.setattr(chunk_model, "predict_on_batch", record)
        return calls

    return recorded


def rows(scores, antecedents, index=None):
    """Yields the antecedents of each span and their scores."""
    index = np.arange(len(scores)) if index is None else index
    for row, places in zip(scores[:, 1:], antecedents):
        is_one = np.isfinite(row)
        yield dict(zip(index[places[is_one]].tolist(), row[is_one].tolist()))


@pytest.mark.parametrize("model_type", ["independent", "overlap"])
def test_chunks_equal_the_whole_text_with_enough_memory(build, document, recorded, model_type):
    # Every token is kept, so that chunks keep the same spans, with all others as antecedents.
    every = {"max_span_width": 1, "top_span_ratio": 1.0, "max_top_antecedents": 150}
    model = build(model_type, max_training_sentences=3, **every)
    words = np.random.default_rng(0).choice(sum(document["sentences"], []), (20, 5))
    tensors = model.preprocessor.tensors({"sentences": words.tolist()})
    (whole,) = inference.predict_rows(model, [document_inputs(tensors, model)])
    expected = list(rows(whole["top_antecedent_scores"], whole["top_antecedents"]))
    calls = recorded(model, 2 * 19)
    found = inference.score_in_chunks(model, tensors, 200)
    for name, array in found.items():
        np.testing.assert_allclose(array, whole[name], atol=1e-5, err_msg=name)
    assert found["best_antecedents"].max() > 0 and len(calls) > 2
    number = 0
    for batch, outputs in calls:
        num_new = batch["top_span_mask"][0].sum()
        index = [*batch["memory"]["index"][0], *range(len(outputs["top_spans"]))]
        names = "top_antecedent_scores", "top_antecedents"
        for row in rows(*(outputs[name][:num_new] for name in names), np.array(index) + number):
            assert row == pytest.approx(expected[number], abs=1e-5)
            number += 1
    assert number == len(expected) == len(expected[-1]) + 1


@pytest.mark.traced
def test_shapes_are_the_same_for_every_chunk_and_length(build, document, recorded):
    model = build(top_span_ratio=0.3)
    calls = recorded(model, 3 * 19)
    num_calls = []
    for repeats in [2, 5, 20]:
        sentences = {name: document[name] * repeats for name in ["sentences", "speakers"]}
        tensors = model.preprocessor.tensors(sentences)
        found = inference.score_in_chunks(model, tensors, 11)
        num_calls.append(len(calls))
        assert (np.diff(found["top_span_starts"]) >= 0).all()
        assert (found["best_antecedents"] < np.arange(len(found["link_scores"]))).all()
    assert num_calls[2] > 3 * num_calls[1]
    assert len({str(keras.tree.map_structure(np.shape, batch)) for batch, _ in calls}) == 1


@pytest.mark.traced
@pytest.mark.once("tensorflow")  # Only TensorFlow would use the old function.
def test_chunks_use_lora_weights_that_were_added_later(build, document):
    model = build()
    tensors = model.preprocessor.tensors(document)
    before = inference.score_in_chunks(model, tensors, 11)["top_span_mention_scores"]
    model.backbone.enable_lora(2)
    generator = np.random.default_rng(0)
    for layer in lora_layers(model):
        for variable in lora_variables(layer)[1:]:
            variable.assign(generator.normal(size=variable.shape))
    after = inference.score_in_chunks(model, tensors, 11)["top_span_mention_scores"]
    model.merge_lora()
    expected = inference.score_in_chunks(model, tensors, 11)["top_span_mention_scores"]
    assert np.abs(np.sort(after) - np.sort(before)).max() > 1e-3
    np.testing.assert_allclose(after, expected, atol=1e-4)


def spans_at(index, first=0):
    index = np.array(index, np.int32)
    values = index.astype(np.float32)
    return {
        "mention_scores": values, "index": index - first, "speakers": index, "segments": index,
        "embeddings": np.stack([values, -values], axis=1)[:, :, None] * np.ones(3, np.float32),
    }  # fmt: skip


def test_memory_keeps_recent_and_important_spans():
    memory = inference.Memory(6, 2, 3)
    assert (memory.inputs()["index"] == NO_SPAN).all()
    memory.add(spans_at([0, 1, 2, 3, 4]), np.array([-1, -1, 0, 1, -1]))
    # Counted back from the next span.
    assert memory.inputs()["index"].tolist() == [[-5, -4, -3, -2, -1, NO_SPAN]]
    memory.add(spans_at([5, 6, 7], first=5), np.array([3, -1, -1]))
    # 5 to 7 are the newest. 4 is in no cluster. 1 and 3 have a later mention, 2 and 0 are a pair.
    found = memory.inputs()
    assert found["speakers"].tolist() == [[1, 2, 3, 5, 6, 7]]
    memory.add(spans_at([8, 9, 10], first=8), np.array([-1, -1, -1]))
    found = memory.inputs()
    assert found["speakers"].tolist() == [[2, 3, 5, 8, 9, 10]]
    assert found["embeddings"].shape == (1, 6, 2, 3)
    np.testing.assert_array_equal(found["embeddings"][0, :, 1, 2], -found["speakers"][0])
    np.testing.assert_array_equal(found["index"], found["speakers"] - 11)

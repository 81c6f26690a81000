import json
import types

import numpy as np
import pytest
import tensorflow as tf
from tiny_answerer import build

import keras_spanbert as ks
from keras_spanbert.data import squad
from keras_spanbert.tasks.question_answering import decoding
from keras_spanbert.tasks.question_answering.decoding import decode

CONTEXT = "a bb c"


def windows(num_windows=1, is_max_context=True):
    # [CLS] ? [SEP] a bb c [SEP]
    offsets = np.full((num_windows, 7, 2), -1)
    offsets[:, 3:6] = [[0, 1], [2, 4], [5, 6]]
    return {
        "segment_ids": np.zeros((num_windows, 7), int),
        "offsets": offsets,
        "example_index": np.zeros(num_windows, int),
        "is_max_context": (offsets[:, :, 0] >= 0) & is_max_context,
    }


def logits(**places):
    values = np.full((1, 7), -9.0)
    for place, value in places.items():
        values[0, int(place[1:])] = value
    return values


def test_answer_respects_the_length_limit_and_the_context():
    start, end = logits(_1=9.0, _3=1.0), logits(_6=9.0, _5=3.0, _4=2.0, _1=9.0)
    (answers,), _ = decode(start, end, windows(), [CONTEXT], max_answer_length=2)
    assert answers[0]["answer"] == "a bb"


def test_windows_are_merged_without_duplicates():
    places = windows(2, is_max_context=np.array([[True], [False]]))
    start = np.concatenate([logits(_3=1.0), logits(_4=8.0)])
    end = np.concatenate([logits(_3=1.0), logits(_4=8.0)])
    (answers,), _ = decode(start, end, places, [CONTEXT])
    assert answers[0]["answer"] == "a"
    start = np.concatenate([logits(_3=1.0), logits(_4=2.0)])
    end = np.concatenate([logits(_3=1.0), logits(_4=2.0)])
    (answers,), _ = decode(start, end, windows(2), [CONTEXT])
    texts = [a["answer"] for a in answers]
    assert texts[:2] == ["bb", "a"] and len(set(texts)) == len(texts)


@pytest.mark.parametrize("threshold, first", [(-1.0, ""), (1.0, "a")])
def test_no_answer_is_returned_above_the_threshold(threshold, first, monkeypatch):
    # No answer has score 4, the minimum over windows. The best answer has score 4.
    start = np.concatenate([logits(_0=2.0, _3=2.0), logits(_0=5.0)])
    end = np.concatenate([logits(_0=2.0, _3=2.0), logits(_0=5.0)])
    (answers,), null_scores = decode(start, end, windows(2), [CONTEXT], null_threshold=threshold)
    assert null_scores[0] == pytest.approx(0.0)
    assert [a["answer"] for a in answers[:2]] in ([first, "a"], [first, ""])
    no_answer = next(a for a in answers if a["answer"] == "")
    assert (no_answer["start"], no_answer["end"]) == (-1, -1)
    assert answers[0]["score"] == pytest.approx(answers[1]["score"])
    # A SavedModel gives the same answer.
    places = {name: tf.constant(array) for name, array in windows(2).items()}
    model = types.SimpleNamespace(
        preprocessor=types.SimpleNamespace(windows=lambda *_: places), null_threshold=threshold
    )
    monkeypatch.setattr(decoding, "_logits", lambda *_: [*map(tf.constant, (start, end))])
    serve = tf.function(decoding.answers(model, 30))
    served = serve(tf.constant(["?"]), tf.constant([CONTEXT]))
    assert served["answer"].numpy().tolist() == [first.encode()]


def test_served_answers_are_cut_by_characters():
    """The serving function counts characters, not bytes."""
    model = build(hidden_dim=8)
    serve, _ = model.serving_function()
    # With these weights the model answers with any span, so some answers follow the "é"s.
    contexts = ["é é😀 ann wrote it", "bob é sold é it.", "é", "ann"]
    served = serve(tf.constant(["who wrote it"] * 4), tf.constant(contexts))
    served = {name: value.numpy() for name, value in served.items()}
    for i, context in enumerate(contexts):
        (best,) = model.answer(["who wrote it"], [context])[0]
        start, end = served["start"][i], served["end"][i]
        assert (start, end) == (best["start"], best["end"])
        assert served["answer"][i].decode() == best["answer"] == context[start:end]
    assert np.any(served["start"] > 2)


def test_decoding_equals_the_released_script(shared_data, cased_tokenizer):
    folder = shared_data / "reference"
    examples = squad.read(folder / "squad" / "dev_subset.json")
    reference = json.loads((folder / "squad" / "dev_predictions.json").read_text("utf-8"))
    preprocessor = ks.SpanBertQuestionAnswererPreprocessor(
        cased_tokenizer,
        **{n: reference[n] for n in ["sequence_length", "doc_stride", "max_question_length"]},
    )
    places = preprocessor.windows(examples.questions, examples.contexts)
    with np.load(folder / "squad" / "dev_logits.npz") as file:
        assert [examples.ids[i] for i in places["example_index"]] == file["qas_id"].tolist()
        answers, null_scores = decode(
            file["start_logits"], file["end_logits"], places, examples.contexts,
            n_best=reference["n_best"], max_answer_length=reference["max_answer_length"],
        )  # fmt: skip
    assert len(answers) == len(reference["v1_predictions"]) > 0
    for name, found, null_score in zip(examples.ids, answers, null_scores):
        assert found[0]["answer"] == reference["v1_predictions"][name]
        assert found[0]["answer"] == reference["v2_best_non_null"][name]
        assert null_score == pytest.approx(reference["v2_null_score_diff"][name], abs=1e-4)
        for ours, theirs in zip(found, reference["top5"][name], strict=False):
            # Our answers are exact slices. The released ones have normalized spaces.
            assert " ".join(ours["answer"].split()) == theirs["text"]
            assert ours["score"] == pytest.approx(theirs["probability"], abs=1e-5)

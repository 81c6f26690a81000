import json
import types

import numpy as np
import pytest
import tensorflow as tf

import keras_spanbert as ks
from keras_spanbert.data import squad
from keras_spanbert.tasks.question_answering import decoding
from keras_spanbert.tasks.question_answering.decoding import decode


@pytest.mark.parametrize("threshold, first", [(0.4, ""), (0.5, "bb")])
def test_no_answer_is_returned_above_the_threshold(threshold, first, monkeypatch):
    # No answer has score 4.5, the minimum over windows. The best answer has score 4.
    logits = np.full((2, 7), -9.0, "float32")
    logits[:, 0], logits[0, 4:6] = [2.25, 5.0], [2.0, 1.0]
    offsets = np.full((2, 7, 2), -1, "int32")  # [CLS] ? [SEP] é bb bb [SEP]
    offsets[:, 3:6] = [[0, 1], [2, 4], [5, 7]]
    zeros = np.zeros((2, 7), "int32")
    windows = {"segment_ids": zeros, "offsets": offsets, "is_max_context": offsets[:, :, 0] >= 0}
    windows["example_index"] = zeros[:, 0]
    (answers,), null_scores = decode(logits, logits, windows, ["é bb bb"], null_threshold=threshold)
    assert null_scores[0] == 0.5
    texts = [answer["answer"] for answer in answers]
    assert texts[:2] in ([first, "bb"], [first, ""]) and len(set(texts)) == len(texts)
    no_answer = next(a for a in answers if a["answer"] == "")
    assert (no_answer["start"], no_answer["end"]) == (-1, -1)
    best = answers[texts.index("bb")]
    assert no_answer["score"] == pytest.approx(np.exp(0.5) * best["score"])
    # Without a candidate among the highest logits, the highest ones of the context are taken.
    (answers,), _ = decode(logits, logits, windows, ["é bb bb"], n_best=1)
    assert answers == [{**best, "score": 1.0}]
    # A SavedModel gives the same answer, cut by characters and not by bytes.
    places = {name: tf.constant(array) for name, array in windows.items()}
    model = types.SimpleNamespace(
        preprocessor=types.SimpleNamespace(windows=lambda *_: places), null_threshold=threshold
    )
    monkeypatch.setattr(decoding, "_logits", lambda *_: [tf.constant(logits)] * 2)
    serve = tf.function(decoding.answers(model, 30))
    served = serve(tf.constant(["?"]), tf.constant(["é bb bb"]))
    assert served["answer"].numpy().tolist() == [first.encode()]


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

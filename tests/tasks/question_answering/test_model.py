import keras
import numpy as np
import pytest
from tiny_answerer import build, examples

import keras_spanbert as ks
from keras_spanbert.data.questions import Examples

# The trained model is traced nevertheless.
pytestmark = pytest.mark.usefixtures("untraced")


@pytest.mark.torch_first
def test_fit_learns_to_answer(trained_answerer):
    questions, contexts, golds = examples(100, seed=1)
    answers = trained_answerer.answer(questions, contexts)
    right = [a[0]["answer"] == gold["text"] for a, gold in zip(answers, golds)]
    assert np.mean(right) > 0.9 and trained_answerer.untrained_heads() == []
    best = trained_answerer.answer(questions[0], contexts[0], top_k=4)
    assert len(best) == 4 and best[0]["score"] >= best[1]["score"]
    for (answer,), context in zip(answers, contexts):
        assert answer["answer"] == context[answer["start"] : answer["end"]]
        assert 0.0 < answer["score"] <= 1.0


def test_single_loss_works_with_default_weights():
    model = build()
    questions, contexts, answers = examples(4)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for given in [loss, {"start": loss, "end": loss}]:
        model.compile("sgd", loss=given, jit_compile=False)
        history = model.fit({"question": questions, "context": contexts}, answers, verbose=0)
        assert history.history["start_accuracy"]


def test_null_threshold_is_saved_in_the_preset(tmp_path):
    model = build(null_threshold=-100.0)
    assert model.answer("who sold it", "ann sold it")[0]["answer"] == ""
    model.save_to_preset(tmp_path)
    again = ks.SpanBertQuestionAnswerer.from_preset(tmp_path)
    assert again.null_threshold == -100.0
    assert again.answer("who sold it", "ann sold it")[0]["answer"] == ""
    assert again.answer("who sold it", "ann sold it", null_threshold=100.0)[0]["answer"] != ""


def test_more_than_20_answers_are_returned():
    model = build()
    few = model.answer("who wrote it", "ann wrote it and bob sold it.", top_k=20)
    many = model.answer("who wrote it", "ann wrote it and bob sold it.", top_k=33)
    texts = [found["answer"] for found in many]
    assert len(few) == 20 and len(many) == len(set(texts)) == 33
    assert texts[:20] == [found["answer"] for found in few]
    assert sum(found["score"] for found in many) == pytest.approx(1.0)


def test_scores_by_character():
    model = build()
    context = "東京都庁舎"
    rows = Examples(["a"], ["who"], [context], [None], [[context]])
    (found,) = model.answer("who", context)
    assert 0 < len(found["answer"]) < 5
    shared = len(found["answer"])
    assert model.evaluate_squad(rows)["f1"] == 0.0
    f1 = model.evaluate_squad(rows, by_character=True)["f1"]
    assert f1 == pytest.approx(100 * 2 * shared / (shared + 5))
    rows = Examples(["a", "b"], ["who"] * 2, [context, "ann"], [None] * 2, [[context], []])
    scores = model.evaluate_squad(rows, by_character=True)
    assert model.null_threshold == scores["best_f1_thresh"]
    assert scores["f1"] == scores["best_f1"] >= 50.0  # That of no answers.


def test_blank_question_or_context_has_no_answer():
    model = build()
    answers = model.answer(["who", ""], [" ", "ann"])
    assert answers[0] == [{"answer": "", "score": 0.0, "start": -1, "end": -1}]
    assert answers[1] == answers[0]

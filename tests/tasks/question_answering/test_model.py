import keras
import numpy as np
import pytest
from tiny_answerer import build, examples

import keras_spanbert as ks

# The trained model is traced all the same.
pytestmark = pytest.mark.usefixtures("untraced")


@pytest.fixture
def trained(trained_answerer):
    return trained_answerer


def test_fit_learns_to_answer(trained):
    questions, contexts, golds = examples(100, seed=1)
    answers = trained.answer(questions, contexts)
    right = [a[0]["answer"] == gold["text"] for a, gold in zip(answers, golds)]
    assert np.mean(right) > 0.9
    for (answer,), context in zip(answers, contexts):
        assert answer["answer"] == context[answer["start"] : answer["end"]]
        assert 0.0 < answer["score"] <= 1.0


def test_evaluate_on_strings_is_that_on_windows(trained):
    questions, contexts, answers = examples(40, seed=2)
    by_strings = trained.evaluate(
        {"question": questions, "context": contexts}, answers, verbose=0, return_dict=True
    )
    windows = trained.preprocessor.windows(questions, contexts, answers)
    logits = trained.predict({"question": questions, "context": contexts}, verbose=0)
    losses = []
    for name in ["start", "end"]:
        x = np.asarray(logits[name], "float64")
        log_z = np.log(np.exp(x).sum(axis=1))
        losses.append(np.mean(log_z - x[np.arange(len(x)), windows[name]]))
    assert by_strings["loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_answers_do_not_depend_on_batches_or_padding(trained):
    questions, contexts, _ = examples(30, words=3, seed=3)
    more = examples(7, seed=4)
    questions, contexts = questions + more[0], contexts + more[1]
    expected = trained.answer(questions, contexts, top_k=3, batch_size=64)
    for batch_size in [1, 8]:
        answers = trained.answer(questions, contexts, top_k=3, batch_size=batch_size)
        for one, other in zip(answers, expected):
            assert one[0]["answer"] == other[0]["answer"]
            assert one[0]["score"] == pytest.approx(other[0]["score"], abs=1e-4)


@pytest.mark.once
def test_one_question_gives_one_list(trained):
    (questions, contexts, golds) = examples(1, seed=1)
    answers = trained.answer(questions[0], contexts[0], top_k=4)
    assert len(answers) == 4 and answers[0]["score"] >= answers[1]["score"]
    assert answers == trained.answer(questions, contexts, top_k=4)[0]


def test_long_context_is_searched_to_its_end(trained):
    context = "sold it and " * 200 + "ann wrote it."
    (answer,) = trained.answer("who wrote it", context)
    assert answer["answer"] == "ann" and answer["start"] == 2400


def test_preset_and_keras_file_give_the_same_answers(trained, tmp_path):
    questions, contexts, _ = examples(5, seed=5)
    expected = trained.answer(questions, contexts)
    trained.save_to_preset(tmp_path / "preset")
    trained.save(tmp_path / "model.keras")
    for model in [
        ks.SpanBertQuestionAnswerer.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "model.keras"),
    ]:
        assert model.preprocessor.doc_stride == 8
        answers = model.answer(questions, contexts)
        for one, other in zip(answers, expected):
            assert one[0]["answer"] == other[0]["answer"]
            assert one[0]["score"] == pytest.approx(other[0]["score"], abs=1e-5)


@keras.saving.register_keras_serializable(package="test_model")
class ScaledAnswerer(ks.SpanBertQuestionAnswerer):
    def __init__(self, backbone, preprocessor=None, scale=1.0, **kwargs):
        super().__init__(backbone, preprocessor, **kwargs)
        self.scale = scale


@pytest.mark.once
def test_subclass_takes_its_parents_head_and_settings(trained, caplog, tmp_path):
    questions, contexts, _ = examples(3, seed=5)
    expected = trained.answer(questions, contexts)
    caplog.clear()
    trained.save_to_preset(str(tmp_path / "parent"))
    loaded = ScaledAnswerer.from_preset(
        str(tmp_path / "parent"), scale=2.0, null_threshold=1000.0, dtype="float32"
    )
    assert type(loaded) is ScaledAnswerer and loaded.scale == 2.0
    assert loaded.null_threshold == 1000.0 and loaded.preprocessor.sequence_length == 24
    loaded.null_threshold = None
    assert [x[0]["answer"] for x in loaded.answer(questions, contexts)] == [
        x[0]["answer"] for x in expected
    ]
    loaded.save_to_preset(str(tmp_path / "child"))
    both = ks.SpanBertQuestionAnswerer.from_preset(str(tmp_path / "child"))
    assert type(both) is ScaledAnswerer
    assert [x[0]["answer"] for x in both.answer(questions, contexts)] == [
        x[0]["answer"] for x in expected
    ]
    assert not [record for record in caplog.records if record.name == "keras_spanbert"]
    fresh = ScaledAnswerer.from_preset(str(tmp_path / "parent"), load_weights=False)
    assert fresh.untrained_heads() == ["qa_outputs"]


@pytest.mark.once
@pytest.mark.parametrize("examples", ["dev.json", {"data": []}])
def test_evaluate_squad_names_what_are_no_examples(examples):
    with pytest.raises(ValueError, match="`examples` must be what .*squad.read.* Received: exam"):
        build().evaluate_squad(examples)


@pytest.mark.once
def test_one_loss_for_both_outputs_fits_the_default_weights():
    model = build()
    questions, contexts, answers = examples(4)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for given in [loss, {"start": loss, "end": loss}]:
        model.compile("sgd", loss=given, jit_compile=False)
        history = model.fit({"question": questions, "context": contexts}, answers, verbose=0)
        assert history.history["start_accuracy"]


@pytest.mark.once
def test_null_threshold_is_kept_in_the_preset(tmp_path):
    model = build(null_threshold=-100.0)
    assert model.answer("who sold it", "ann sold it")[0]["answer"] == ""
    model.save_to_preset(tmp_path)
    again = ks.SpanBertQuestionAnswerer.from_preset(tmp_path)
    assert again.null_threshold == -100.0
    assert again.answer("who sold it", "ann sold it")[0]["answer"] == ""
    assert again.answer("who sold it", "ann sold it", null_threshold=100.0)[0]["answer"] != ""


def test_blank_question_or_context_has_no_answer():
    model = build()
    answers = model.answer(["who", ""], [" ", "ann"])
    assert answers[0] == [{"answer": "", "score": 0.0, "start": -1, "end": -1}]
    assert answers[1] == answers[0]


@pytest.mark.once
def test_encoder_of_a_pretrainers_preset(tmp_path):
    model = build()
    pretrainer = ks.SpanBertPretrainer(
        model.backbone,
        ks.SpanBertPretrainerPreprocessor(model.preprocessor.tokenizer, sequence_length=24),
    )
    pretrainer.save_to_preset(tmp_path)
    answerer = ks.SpanBertQuestionAnswerer.from_preset(
        tmp_path,
        preprocessor=ks.SpanBertQuestionAnswererPreprocessor.from_preset(
            tmp_path, sequence_length=24, doc_stride=8, max_question_length=6
        ),
    )
    for a, b in zip(answerer.backbone.weights, model.backbone.weights):
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(a), keras.ops.convert_to_numpy(b), err_msg=a.path
        )


@pytest.mark.once
@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"top_k": 0}, "`top_k` must be at least 1. Received: top_k=0"),
        ({"max_answer_length": 0}, "`max_answer_length` must be at least 1"),
        ({"top_k": 2.5}, "`top_k` must be an integer. Received: top_k=2.5"),
        ({"batch_size": True}, "`batch_size` must be an integer. Received: batch_size=True"),
        ({"null_threshold": "2"}, "a number or None. Received: null_threshold='2'"),
    ],
)
def test_mistake_in_an_argument_names_it(arguments, error):
    with pytest.raises(ValueError, match=error):
        build().answer("who", "ann", **arguments)


@pytest.mark.once
def test_random_answers_come_with_a_warning(caplog):
    model = build()
    model.answer("who sold it", "ann sold it")
    assert "has not been trained: what its qa_outputs gives is random" in caplog.text
    assert model.untrained_heads() == ["qa_outputs"]


@pytest.mark.once
def test_preset_of_a_head_that_was_not_trained_comes_with_a_warning(caplog, tmp_path):
    build().save_to_preset(tmp_path)
    assert "has not been trained" in caplog.text


@pytest.mark.once
def test_trained_or_loaded_head_gives_no_warning(trained, caplog):
    loaded = build()
    loaded.set_weights(trained.get_weights())
    for model in [trained, loaded]:
        model.answer("who sold it", "ann sold it")
        assert model.untrained_heads() == []
    assert caplog.text == ""


@pytest.mark.once
@pytest.mark.parametrize(
    "questions, contexts, error",
    [
        ("who", ["ann"], r"both a list of strings. Received: questions='who', contexts=\['ann'\]"),
        (["who"], "ann", r"Received: questions=\['who'\], contexts='ann'"),
        (b"who", "ann", "Received: questions=b'who', contexts='ann'"),
        ("who", None, "Received: questions='who', contexts=None"),
        (["who"], [None], r"`contexts` must be a list of strings. Received: contexts\[0\]=None"),
        (None, None, "`questions` must be a list of strings. Received: questions=None"),
        (["who", "who"], ["ann"], "must be as many. Received: 2, 1"),
    ],
)
def test_what_are_no_strings_are_named(questions, contexts, error):
    with pytest.raises(ValueError, match=error):
        build().answer(questions, contexts)


@pytest.mark.once
def test_answers_to_strings_in_any_container():
    model = build()
    expected = model.answer(["who", "who"], ["ann sold", "it"])
    assert model.answer(np.array(["who", "who"]), ("ann sold", "it")) == expected
    assert model.answer([], []) == []


@pytest.mark.once
def test_lone_surrogate_counts_as_the_replacement_character():
    model = build()
    clean, broken = (f"ann {mark} wro{mark}te it" for mark in ["\ufffd", "\ud800"])
    expected = model.answer("who", clean, top_k=5)
    answers = model.answer("who\ud800", broken, top_k=5)
    assert [(a["start"], a["end"]) for a in answers] == [(a["start"], a["end"]) for a in expected]
    assert all(a["answer"] == broken[a["start"] : a["end"]] for a in answers)


@pytest.mark.once
def test_windows_longer_than_the_model_are_refused():
    model = build()
    model.preprocessor = ks.SpanBertQuestionAnswererPreprocessor(
        model.preprocessor.tokenizer, 25, 8, 6
    )
    with pytest.raises(ValueError, match="at most the model's 24. Received: sequence_length=25"):
        model.answer("who", "ann")
    model.preprocessor = None
    with pytest.raises(ValueError, match="Strings need a preprocessor"):
        model.answer("who", "ann")

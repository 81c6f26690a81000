"""SavedModels. test_rest_server.py loads one with only TensorFlow and TensorFlow Text."""

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401 (It adds operations to TensorFlow.)
from tiny_answerer import VOCABULARY, build, examples
from tiny_tasks import with_large_weights

import keras_spanbert as ks
from keras_spanbert.serving import export_saved_model
from keras_spanbert.serving.saved_model import embeddings


def load(path):
    """Returns the function of a SavedModel, from lists of strings to lists of outputs."""
    assert b"PyFunc" not in (path / "saved_model.pb").read_bytes()  # It would need this process.
    loaded = tf.saved_model.load(str(path)).signatures["serving_default"]

    def serve(**columns):
        outputs = loaded(**{n: tf.constant(x, tf.string) for n, x in columns.items()})
        values = {name: x.numpy().tolist() for name, x in outputs.items()}
        return keras.tree.map_structure(lambda x: x.decode() if type(x) is bytes else x, values)

    return serve


@pytest.fixture(scope="module")
def exported(trained_answerer, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "answers" / "1"
    export_saved_model(trained_answerer, path)
    assert [p.name for p in path.parent.iterdir()] == ["1"]
    return load(path)


def check(served, answers, contexts):
    """Checks that answers are equal and are exact slices at their offsets."""
    for i, (found, context) in enumerate(zip(answers, contexts)):
        best = found[0]
        start, end = served["start"][i], served["end"][i]
        assert served["answer"][i] == (context[start:end] if start >= 0 else "")
        assert (served["answer"][i], start, end) == (best["answer"], best["start"], best["end"])
        assert served["score"][i] == pytest.approx(best["score"], abs=1e-4)


def test_answers_equal_the_model(trained_answerer, exported):
    questions, contexts, golds = examples(60, seed=7)
    contexts += ["sold it and " * 200 + "ann wrote it.", "bob\u0301 wr\u00adote it 😀 \u200f.", "é"]
    questions += ["who wrote it"] * 3
    served = exported(question=questions, context=contexts)
    expected = trained_answerer.answer(questions, contexts)
    check(served, expected, contexts)
    check(exported(question=questions[:1], context=contexts[:1]), expected[:1], contexts)
    right = [a == gold["text"] for a, gold in zip(served["answer"], golds)]
    assert np.mean(right) > 0.9
    assert served["answer"][60] == "ann" and served["start"][60] == 2400


def test_empty_and_invalid_inputs_and_a_context_of_1_mb(exported):
    long = f"it {'x' * 60} " * 16_000 + "ann wrote it."
    rows = [
        *[("who", ""), ("who", " \n\u3000"), ("", "ann wrote it"), ("\u200b", "ann wrote it")],
        *[("who wrote it", b"\xff\xfe ann wrote \xc3"), ("who wrote it", long)],
    ]
    questions, contexts = zip(*rows)
    served = exported(question=questions, context=contexts)
    assert served["answer"] == [""] * 4 + ["ann"] * 2
    assert served["score"][:4] == [0.0] * 4
    assert served["start"] == [-1] * 4 + [3, len(long) - len("ann wrote it.")]
    assert served["end"][:4] == [-1] * 4
    none = {"answer": [], "score": [], "start": [], "end": []}
    assert exported(question=[], context=[]) == none


@pytest.mark.once
def test_mixed_precision_is_kept(tmp_path):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = build()
    finally:
        keras.config.set_dtype_policy("float32")
    export_saved_model(model, tmp_path / "model")
    questions, contexts, _ = examples(8, seed=10)
    served = load(tmp_path / "model")(question=questions, context=contexts)
    for i, (found, context) in enumerate(zip(model.answer(questions, contexts), contexts)):
        assert served["answer"][i] == context[served["start"][i] : served["end"][i]] != ""
        # bfloat16 has only 8 bits, so ties can be resolved differently.
        assert served["score"][i] == pytest.approx(found[0]["score"], abs=0.02)
    model.save_to_preset(tmp_path / "preset")
    again = ks.SpanBertQuestionAnswerer.from_preset(tmp_path / "preset")
    assert again.backbone.dtype_policy.name == "float32"


@pytest.mark.once("torch")
@pytest.mark.usefixtures("without_collections")
@pytest.mark.filterwarnings("ignore")
def test_quantized_presets_are_exported_as_they_are(tmp_path):
    model = with_large_weights(build())
    model.quantize("int8")
    model.save_to_preset(tmp_path / "preset")
    model = ks.SpanBertQuestionAnswerer.from_preset(tmp_path / "preset")
    export_saved_model(model, tmp_path / "model")
    questions, contexts, _ = examples(8, seed=10)
    served = load(tmp_path / "model")(question=questions, context=contexts)
    check(served, model.answer(questions, contexts), contexts)


class WithTable(ks.SpanBertQuestionAnswerer):
    """Serves answers from a table, and counts traces of its function."""

    def serving_function(self):
        keys, values = tf.constant(["who", "what"]), tf.constant([7, 11])
        init = tf.lookup.KeyValueTensorInitializer(keys, values)
        self.table = tf.lookup.StaticHashTable(init, -1)
        self.traces = 0

        def serve(question):
            self.traces += 1
            embeddings = self.backbone.token_embedding.embeddings
            return {"found": self.table.lookup(question), "row": embeddings[:1]}

        return serve, [tf.TensorSpec([None], tf.string, name="question")]


@pytest.mark.once
def test_subclass_serves_a_function_that_is_traced_once(tmp_path):
    model = WithTable(build().backbone, build().preprocessor)
    export_saved_model(model, tmp_path / "model")
    assert model.traces == 1
    served = load(tmp_path / "model")(question=["what", "when", "who"])
    assert served["found"] == [11, -1, 7]
    row = keras.ops.convert_to_numpy(model.backbone.token_embedding.embeddings)[:1]
    np.testing.assert_allclose(served["row"], row, rtol=1e-6)


TEXTS = ["ann wrote it.", "", "é", "bob and eve sold it. " * 10]


# tests/formats/test_checkpoints.py compares the embeddings.
@pytest.mark.once
@pytest.mark.parametrize("is_pretrainer, longest", [(False, 24), (True, 16)])
def test_embeddings_of_a_backbone_or_pretrainer(is_pretrainer, longest, tmp_path):
    backbone, tokenizer = build().backbone, ks.SpanBertTokenizer(VOCABULARY)
    if is_pretrainer:
        preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=longest)
        export_saved_model(ks.SpanBertPretrainer(backbone, preprocessor), tmp_path / "model")
    else:
        export_saved_model(backbone, tmp_path / "model", tokenizer=tokenizer)
    served = load(tmp_path / "model")(text=TEXTS)
    expected = embeddings(backbone, tokenizer, longest)(tf.constant(TEXTS))
    assert served.keys() == expected.keys() and expected["token_ids"].shape[1] == longest
    for name, array in expected.items():
        np.testing.assert_allclose(served[name], array, atol=1e-5, err_msg=name)


class Subclass(ks.SpanBertQuestionAnswerer):
    pass


UNSAFE = ks.SpanBertTokenizer(VOCABULARY, special_tokens_in_strings=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: {"model": keras.Sequential()}, "must be a task of this library"),
        (lambda m: {"model": m.backbone}, "Received: tokenizer=None with a SpanBertBackbone"),
        (lambda m: {"model": m, "tokenizer": m.preprocessor.tokenizer},
         "with a SpanBertQuestionAnswerer"),
        (lambda m: {"model": ks.SpanBertPretrainer(m.backbone)}, "Strings need a preprocessor"),
        (lambda m: {"model": m.backbone, "tokenizer": UNSAFE},
         "`special_tokens_in_strings` must be False"),
        (lambda m: {"model": m, "max_answer_length": 0}, "max_answer_length. must be at least 1"),
        (lambda m: {"model": m, "path": "nowhere://b/m"}, "Protocol not known: nowhere"),
        (lambda m: {"model": m, "path": __file__}, f"must be new or empty. Received: {__file__}"),
        (lambda m: {"model": ks.SpanBertQuestionAnswerer(m.backbone,
         ks.SpanBertQuestionAnswererPreprocessor(m.preprocessor.tokenizer, 48, 8, 6))},
         "at most the model's 24. Received: .*sequence_length=48"),
    ],
)  # fmt: skip
def test_unsupported_exports_are_refused(make, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        export_saved_model(**{"path": tmp_path / "model", **make(build())})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(
    keras.backend.backend() == "tensorflow", reason="TensorFlow exports in this process"
)
def test_subclass_unknown_to_another_process_is_refused(tmp_path):
    model = build()
    with pytest.raises(ValueError, match="must not be of a subclass. Received: <Subclass"):
        export_saved_model(Subclass(model.backbone, model.preprocessor), tmp_path / "model")


@pytest.mark.once
def test_export_of_an_untrained_head_gives_a_warning(tmp_path, caplog):
    export_saved_model(build(), tmp_path / "model")
    assert "has not been trained: the output of its qa_outputs is random" in caplog.text

"""Models with quantized layers compute, save and load on every backend."""

import gc

import keras
import numpy as np
import pytest

import keras_spanbert
from keras_spanbert.layers.parts import with_parts

V, L = 13, 11
VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c d e f g h".split()
# Keras's, for the layers that have nothing to quantize, and of its embedding on PyTorch.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method"),
    pytest.mark.filterwarnings(r"ignore:[\s\S]*The use of `x.T`"),
]


@pytest.fixture(autouse=True)
def without_collections(monkeypatch):
    """Keras collects garbage once a quantized layer, which takes nearly all of the time here."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


def backbone(dtype):
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
    return keras_spanbert.SpanBertBackbone(V, max_sequence_length=L, dtype=dtype, **sizes)


def pretrainer(dtype):
    preprocessor = keras_spanbert.SpanBertPretrainerPreprocessor(
        keras_spanbert.SpanBertTokenizer(VOCABULARY), sequence_length=L, max_predictions=3, seed=1
    )
    return keras_spanbert.SpanBertPretrainer(backbone(dtype), preprocessor, position_dim=3)


def answerer(dtype):
    preprocessor = keras_spanbert.SpanBertQuestionAnswererPreprocessor(
        keras_spanbert.SpanBertTokenizer(VOCABULARY),
        sequence_length=L,
        doc_stride=2,
        max_question_length=3,
    )
    return keras_spanbert.SpanBertQuestionAnswerer(backbone(dtype), preprocessor)


def inputs(model):
    arrays = {"token_ids": np.arange(2 * L).reshape(2, L) % V, "segment_ids": np.zeros((2, L))}
    arrays["padding_mask"] = np.ones((2, L))
    arrays.update({n: np.full((2, 3), 4) for n in model.input if n not in arrays})
    return {name: x.astype("int32") for name, x in arrays.items()}


def outputs(model):
    found = keras.tree.flatten(model(inputs(model)))
    return [keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")) for x in found]


def quantized(model):
    return {layer.path for layer in with_parts([model]) if layer.quantization_mode == "int8"}


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("build", [backbone, pretrainer, answerer])
def test_int8_computes_saves_and_loads(build, dtype, tmp_path):
    model = build(dtype)
    before = outputs(model)
    model.quantize("int8")
    after = outputs(model)
    scale = max(np.abs(x).max() for x in before)
    assert 0 < max(np.abs(x - y).max() for x, y in zip(before, after)) < 0.1 * scale
    model.save_to_preset(tmp_path / "preset")
    model.save(tmp_path / "model.keras")
    loaded = [
        type(model).from_preset(str(tmp_path / "preset")),
        keras.models.load_model(tmp_path / "model.keras", compile=False),
    ]
    for copy in loaded:
        assert quantized(copy) == quantized(model)
        for ours, theirs in zip(after, outputs(copy)):
            np.testing.assert_array_equal(theirs, ours)
    # Saved again, it is the same again.
    assert loaded[0].get_config() == model.get_config()


@pytest.mark.parametrize("build", [pretrainer, answerer])
def test_layers_are_chosen_by_filters(build):
    heads = {"mlm_head/intermediate_dense", "sbo_head/dense_1", "sbo_head/dense_2", "qa_outputs"}
    for filters in ["dense|qa_outputs", ["dense", "qa_outputs"], lambda x: x.path in heads]:
        model = build("float32")
        model.quantize("int8", filters=filters)
        chosen = {path for path in quantized(model) if "transformer_layer" not in path}
        assert chosen and chosen <= heads


@pytest.mark.parametrize("mode", ["int8", "int4"])
def test_quantized_models_are_not_for_hugging_face(mode, tmp_path):
    model = answerer("float32")
    model.quantize(mode)
    with pytest.raises(ValueError, match="weights of a BERT alone. Received besides: "):
        keras_spanbert.checkpoints.to_huggingface(model, tmp_path / "out")


@pytest.mark.once
def test_quantized_pretrainer_takes_strings():
    model = pretrainer("float32")
    model.quantize("int8")
    assert len(model.fill("a [MASK] d", top_k=2)[0]) == 2
    logits = model.predict(["a bc d"] * 3, batch_size=2, verbose=0)
    assert logits["mlm"].shape == logits["sbo"].shape == (3, 3, V)


def test_other_tasks_take_a_quantized_backbone(tmp_path):
    model = answerer("float32")
    model.quantize("int8")
    model.save_to_preset(tmp_path / "preset")
    other = keras_spanbert.SpanBertPretrainer.from_preset(str(tmp_path / "preset"))
    assert quantized(other) == quantized(model) - {"qa_outputs"}
    ours, theirs = (outputs(x.backbone)[0] for x in [model, other])
    np.testing.assert_array_equal(theirs, ours)

"""Models with quantized layers work, save and load on every backend."""

import keras
import numpy as np
import pytest
import tiny_classifier
from comparisons import assert_close
from saved_copies import copies
from tiny_models import V, answerer, outputs, pretrainer
from tiny_tasks import TASKS

import keras_spanbert as ks
from keras_spanbert.layers.sublayers import flatten_sublayers

pytestmark = [
    pytest.mark.usefixtures("without_collections"),
    # Warnings of Keras, for layers without weights and for its embedding on PyTorch.
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method"),
    pytest.mark.filterwarnings(r"ignore:[\s\S]*The use of `x.T`"),
]


def quantized(model):
    return {layer.path for layer in flatten_sublayers([model]) if layer.quantization_mode == "int8"}


@pytest.mark.filterwarnings("ignore:Skipping variable loading for optimizer")  # It has no state.
@pytest.mark.parametrize("mode, dtype", [("int8", "mixed_bfloat16"), ("int4", "float32")])
def test_loaded_quantized_models_can_be_saved_and_copied(mode, dtype, tmp_path):
    keras.utils.set_random_seed(0)  # Some weights exceed the limit for int4.
    model = pretrainer(dtype)
    before = outputs(model)
    model.quantize(mode)
    after = outputs(model)
    largest = 0.1 if mode == "int8" else 0.5
    scale = max(np.abs(x).max() for x in before)
    assert 0 < max(np.abs(x - y).max() for x, y in zip(before, after)) < largest * scale
    model.save_to_preset(tmp_path / "first")
    loaded = type(model).from_preset(tmp_path / "first")
    assert loaded.get_config() == model.get_config()
    assert_close(outputs(loaded), after, 0.0 if mode == "int8" else 0.02 * scale)
    for number, saved in enumerate([loaded, loaded.backbone]):
        expected = outputs(saved)
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, copy in copies(saved, folder).items():
            assert quantized(copy) == quantized(saved), name
            copy.save_to_preset(tmp_path / "again")
            again = type(copy).from_preset(tmp_path / "again", dtype=None)
            for one in [copy, again]:
                assert_close(one.get_weights(), saved.get_weights(), message=name)
                # The last bit of a sum can move a rounded activation by a step.
                assert_close(outputs(one), expected, 0.02 * scale, message=name)


def test_quantized_heads_in_other_models_can_be_saved_twice(tmp_path):
    inputs = [keras.Input((None, 6)), *(keras.Input((None,), dtype="int32") for _ in range(3))]
    model = keras.Model(inputs, ks.SpanBoundaryHead(V, position_dim=3)(*inputs))
    model.quantize("int8")
    x = np.random.default_rng(0).normal(size=(1, 5, 6)).astype("float32")
    arrays = [x, *(np.full((1, 2), i, "int32") for i in [1, 4, 0])]
    expected = keras.ops.convert_to_numpy(model(arrays))
    for _ in range(2):
        model.save(tmp_path / "model.keras")
        model = keras.models.load_model(tmp_path / "model.keras")
        np.testing.assert_array_equal(keras.ops.convert_to_numpy(model(arrays)), expected)
    assert len(quantized(model)) == 3


def test_layers_quantized_after_loading_can_be_saved(tmp_path):
    model = pretrainer("float32")
    model.quantize("int8", filters="dense")
    model.save_to_preset(tmp_path / "some")
    model = type(model).from_preset(tmp_path / "some")
    model.quantize("int8", filters="query|key|value")
    expected = outputs(model)
    model.save_to_preset(tmp_path / "more")
    copy = type(model).from_preset(tmp_path / "more", dropout=0.4)
    assert quantized(copy) == quantized(model) and copy.backbone.dropout == 0.4
    assert_close(outputs(copy), expected)


@pytest.mark.once
@pytest.mark.parametrize(
    "build, mode, tolerance", [(pretrainer, "int8", 0.02), (answerer, "int4", 1e-5)]
)
def test_dtype_loads_a_quantized_preset_as_float(build, mode, tolerance, tmp_path):
    model = build("float32")
    for layer in flatten_sublayers([model]):  # Initial biases are 0, which could hide errors.
        if getattr(layer, "bias", None) is not None:
            layer.bias.assign(np.random.default_rng(1).normal(size=layer.bias.shape))
    if mode == "int8":
        model.quantize("int8")
    else:
        model.quantize(config=keras.quantizers.Int4QuantizationConfig(block_size=2))
    model.save_to_preset(tmp_path / "preset")
    copy = type(model).from_preset(tmp_path / "preset", dtype="float32")
    assert not {layer.path for layer in flatten_sublayers([copy]) if layer.quantization_mode}
    paths, expected = ({w.path for w in m.trainable_weights} for m in [copy, build("float32")])
    assert paths == expected
    # int8 also rounds the inputs of layers. int4 in blocks only rounds weights.
    for ours, theirs in zip(outputs(copy), outputs(model)):
        np.testing.assert_allclose(ours, theirs, atol=tolerance * np.abs(theirs).max())
    assert copy.preprocessor.tokenizer.vocabulary


@pytest.mark.once("torch")
@pytest.mark.parametrize("name", [*TASKS, "regression"])
def test_dtype_loads_a_quantized_preset_of_every_task(name, tmp_path):
    model = TASKS[name].build() if name in TASKS else tiny_classifier.build(num_classes=1)
    model.quantize("int8")
    model.save_to_preset(tmp_path / "preset")
    copy = type(model).from_preset(tmp_path / "preset", dtype="float32")
    assert quantized(model) and not quantized(copy)
    assert copy.head_layers().keys() == model.head_layers().keys()


@pytest.mark.once
def test_layers_of_the_preprocessor_are_not_quantized():
    model = answerer("float32")
    model.preprocessor.projection = keras.layers.Dense(3)  # Not built: it has no weights yet.
    model.quantize("int8")
    assert "qa_outputs" in quantized(model) and not model.preprocessor.projection.built


HEADS = {"mlm_head/intermediate_dense", "sbo_head/dense_1", "sbo_head/dense_2"}


@pytest.mark.parametrize("filters", ["dense", ["dense", "qa_outputs"], lambda x: x.path in HEADS])
def test_filters_select_layers(filters):
    model = pretrainer("float32")
    model.quantize("int8", filters=filters)
    assert {path for path in quantized(model) if "transformer_layer" not in path} == HEADS


def test_other_tasks_accept_a_quantized_backbone(tmp_path):
    model = answerer("float32")
    model.quantize("int8")
    model.save_to_preset(tmp_path / "preset")
    other = ks.SpanBertPretrainer.from_preset(tmp_path / "preset")
    assert quantized(other) == quantized(model) - {"qa_outputs"}
    assert_close(outputs(other.backbone), outputs(model.backbone))
    assert len(other.fill("a [MASK] d", top_k=2)[0]) == 2

"""ONNX files give the logits of the models on ONNX Runtime."""

import sys

import keras
import numpy as np
import pytest
import tiny_answerer
import tiny_resolver

import keras_spanbert as ks

REASON = "{} is not installed (extra [onnx])"
pytest.importorskip("tf2onnx", reason=REASON.format("tf2onnx"))
onnxruntime = pytest.importorskip("onnxruntime", reason=REASON.format("ONNX Runtime"))

V, MAX_LENGTH = 29, 23
# (rows, tokens): one token, the longest row, and another size.
SHAPES = [(1, 1), (3, 11), (2, MAX_LENGTH)]


def backbone(**kwargs):
    keras.utils.set_random_seed(0)
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 10}
    # Large enough that outputs depend on the tokens.
    return ks.SpanBertBackbone(
        V, max_sequence_length=MAX_LENGTH, initializer_range=0.5, **{**sizes, **kwargs}
    )


def exported(model, path, **kwargs):
    model.export(path, format="onnx", verbose=False, **kwargs)
    return onnxruntime.InferenceSession(path)


def check(session, model, arrays, atol=1e-4):
    """Checks the names of outputs and their values."""
    outputs = model(arrays)
    outputs = outputs if isinstance(outputs, dict) else {model.onnx_output: outputs}
    names = [output.name for output in session.get_outputs()]
    assert sorted(names) == sorted(outputs)
    for name, found in zip(names, session.run(None, arrays)):
        ours = keras.ops.convert_to_numpy(outputs[name])
        np.testing.assert_allclose(found, ours, atol=atol, err_msg=name)


def rows(*shape):
    """Returns token ids, segment ids and a mask with some padding."""
    generator = np.random.default_rng(0)
    sizes = generator.integers(1, shape[-1] + 1, (*shape[:-1], 1))
    arrays = {
        "token_ids": generator.integers(1, V, shape),
        "segment_ids": generator.integers(0, 2, shape),
        "padding_mask": np.arange(shape[-1]) < sizes,
    }
    return {name: array.astype("int32") for name, array in arrays.items()}


def masked_rows(batch, length):
    names = ["mask_positions", "span_left", "span_right", "span_offsets"]
    drawn = np.random.default_rng(1).integers(0, length, (4, batch, 1 + length // 3))
    drawn[3] %= 5
    return {**rows(batch, length), **dict(zip(names, drawn.astype("int32")))}


def choice_rows(batch, length):
    num_choices = 2 + batch
    arrays = rows(batch, num_choices, length)
    num_real = np.random.default_rng(2).integers(1, num_choices + 1, (batch, 1))
    arrays["choice_mask"] = (np.arange(num_choices) < num_real).astype("int32")
    return arrays


MODELS = {
    "backbone": (lambda x: x, rows),
    "pretrainer": (lambda x: ks.SpanBertPretrainer(x, position_dim=3), masked_rows),
    "question answerer": (ks.SpanBertQuestionAnswerer, rows),
    "text classifier": (lambda x: ks.SpanBertTextClassifier(x, num_classes=3), rows),
    "relation extractor": (lambda x: ks.SpanBertRelationExtractor(x, ["no_relation", "a"]), rows),
    "multiple choice": (ks.SpanBertMultipleChoice, choice_rows),
    "token classifier": (lambda x: ks.SpanBertTokenClassifier(x, ["O", "B-a", "I-a"]), rows),
}


@pytest.mark.once
@pytest.mark.parametrize("name", MODELS)
def test_logits_of_every_task_and_shape(name, tmp_path):
    build, arrays_of = MODELS[name]
    model = build(backbone())
    session = exported(model, tmp_path / "model.onnx")
    assert [value.name for value in session.get_inputs()] == list(model.input)
    assert {value.shape[0] for value in session.get_inputs()} == {"batch"}
    for shape in SHAPES:
        check(session, model, arrays_of(*shape))


def test_logits_of_models_of_every_backend(tmp_path):
    model = tiny_answerer.build()
    session = exported(model, tmp_path / "model.onnx")
    windows = model.preprocessor.windows(
        ["who wrote it", "who sold it"], ["ann wrote it . and bob read it . " * 4, "eve sold it"]
    )
    check(session, model, {name: windows[name] for name in model.input})


@pytest.mark.once
def test_scores_and_antecedents_of_coreference(tmp_path):
    # Few options are enabled, since tf2onnx is slow for large graphs.
    switches = ["use_metadata", "use_segment_distance"]
    model = tiny_resolver.build(coref_depth=1, **dict.fromkeys(switches, False))
    session = exported(model, tmp_path / "model.onnx")
    documents = [{"sentences": [s.split() for s in tiny_resolver.SENTENCES * n]} for n in (1, 3)]
    for some in [documents[:1], documents]:
        check(session, model, model.preprocess(some)[0])


@pytest.mark.once
def test_signature_with_fixed_length_and_without_optional_input(tmp_path):
    model = backbone()
    names = ["token_ids", "segment_ids"]
    signature = [{name: keras.InputSpec(shape=(None, 7), dtype="int64") for name in names}]
    session = exported(model, tmp_path / "model.onnx", input_signature=signature, opset_version=18)
    assert [(v.name, v.shape, v.type) for v in session.get_inputs()] == [
        (name, ["batch", 7], "tensor(int64)") for name in names
    ]
    arrays = rows(3, 7)
    check(session, model, {name: arrays[name].astype("int64") for name in names})


def quantized():
    model = backbone()
    model.quantize("int8")
    return model


@pytest.mark.usefixtures("without_collections")
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
@pytest.mark.filterwarnings(r"ignore:[\s\S]*The use of `x.T`")
@pytest.mark.parametrize(
    ("build", "arguments", "message"),
    [
        (lambda: backbone(dtype="float16"), {}, "a float32 model.* Received: float16"),
        (quantized, {}, "without quantized layers.* Received: float32, int8_from_float32"),
        (backbone, {"opset_version": 19}, "must be from 13 to 18. Received: opset_version=19"),
        (backbone, {"input_signature": [{"token_ids": 1}]}, "keys token_ids, .*{'token_ids': 1}"),
        (backbone, {"input_signature": 3}, "Optional ones: padding_mask. Received: .*=3"),
    ],
)
def test_unsupported_exports_are_refused(build, arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        build().export(tmp_path / "model.onnx", format="onnx", **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.once("tensorflow")
def test_unsupported_operation_is_named(tmp_path):
    model = backbone(activation=keras.ops.erfinv)
    with pytest.raises(ValueError, match="cannot convert this SpanBertBackbone: .*Erfinv"):
        model.export(tmp_path / "model.onnx", format="onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["onnx", "tf2onnx"])
def test_missing_package_is_named(package, tmp_path, monkeypatch):
    model = backbone()
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"needs the package {package}, .*: pip install keras-spanbert\[onnx\]$"
    with pytest.raises(ImportError, match=message):
        model.export(tmp_path / "model.onnx", format="onnx")


@pytest.mark.once("torch")
def test_errors_of_the_disk_come_back_from_the_process_that_exports(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=f"Not a directory: '{tmp_path}/file/a.onnx'"):
        backbone().export(tmp_path / "file" / "a.onnx", format="onnx", verbose=False)

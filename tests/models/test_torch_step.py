"""Training steps on PyTorch: as Keras's, without waits for the device and work per layer."""

import functools

import keras
import numpy as np
import pytest
import tiny_models
import tiny_pretrainer
import tiny_tasks
from comparisons import assert_close
from torch_waits import count_waits

import keras_spanbert as ks
from keras_spanbert.keras_private import TrainerParts, call_layers
from keras_spanbert.layers import torch_layers
from keras_spanbert.layers.transformer_layer import TransformerLayer
from keras_spanbert.models.torch_step import TorchStep, scalars_on_device

pytestmark = pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch's steps")


def batches(name):
    """Returns a compiled model and its `fit` arguments."""
    if name == "pretrain":
        model = tiny_pretrainer.build()
        x, y, weights = tiny_pretrainer.arrays(model, tiny_pretrainer.texts())
        return model, {"x": x, "y": y, "sample_weight": weights}
    task = tiny_tasks.TASKS[name]
    x, y = next(iter(task.forms.values()))
    return task.build(), {"x": x, "y": y}


def first_batch(model, arguments):
    """Returns the arguments of `train_step` in the first step of `fit`."""
    found, step = [], model.train_step
    model.train_step = lambda data: found.append(data) or step(data)
    model.train_function = None
    model.fit(**arguments, batch_size=5, verbose=0, shuffle=False)
    del model.train_step
    model.train_function = None
    return found[0]


@pytest.mark.parametrize("name", ["pretrain", *tiny_tasks.TASKS])
def test_steps_do_not_wait_for_the_device(name):
    model, arguments = batches(name)
    model.compile()
    data = first_batch(model, arguments)
    waits = count_waits(lambda: model.train_step(data))
    # On CPUs, the optimizer's kernel reads the step of each weight.
    assert waits <= len(model.trainable_variables) + 2
    assert count_waits(lambda: model.predict_step(data[:1])) <= 2


def train(name, **changes):
    keras.utils.set_random_seed(0)
    model, arguments = batches(name)
    for layer in model.backbone.transformer_layers:
        layer.dropout = layer._self_attention_layer.dropout_layer.rate = 0.0
    model.compile(**changes)
    history = model.fit(**arguments, batch_size=5, epochs=2, verbose=0, shuffle=False).history
    return history, model.get_weights()


@pytest.mark.parametrize("name", ["pretrain", "texts", "words"])
def test_steps_equal_those_of_keras(name, monkeypatch):
    history, weights = train(name)
    monkeypatch.setattr(TorchStep, "of", lambda *args: None)
    expected, expected_weights = train(name)
    assert history.keys() == expected.keys()
    assert_close(history, expected, rtol=1e-5)
    assert_close(weights, expected_weights, 1e-6)


def test_layers_frozen_between_steps_are_not_trained():
    model, arguments = batches("texts")
    model.compile()
    data = first_batch(model, arguments)
    model.train_step(data)
    model.backbone.trainable = False
    frozen = [np.array(w) for w in model.backbone.get_weights()]
    head = model.head_layers().popitem()[1].get_weights()[0].copy()
    model.train_step(data)
    assert_close(model.backbone.get_weights(), frozen)
    assert (model.head_layers().popitem()[1].get_weights()[0] != head).any()


def test_hooks_of_pytorch_are_called():
    backbone = tiny_models.backbone()
    seen = []
    backbone.transformer_layers[1].register_forward_hook(lambda *args: seen.append(args[2].shape))
    backbone(tiny_models.inputs(backbone))
    assert [tuple(shape) for shape in seen] == [(2, tiny_models.L, 6)]


@pytest.mark.parametrize("is_found", [False, True])
def test_layers_that_cannot_be_compiled_are_computed_without(is_found, monkeypatch, caplog):
    """There is no compiler, or it fails when it compiles, which is at the first call."""

    def fail(*args, **kwargs):
        raise RuntimeError("no compiler here\nand a second line")

    monkeypatch.setattr("torch.compile", (lambda *args, **kwargs: fail) if is_found else fail)
    monkeypatch.setattr(torch_layers, "_failures", set())
    torch_layers._compiled.cache_clear()
    found = train("texts", jit_compile=True)
    torch_layers._compiled.cache_clear()
    (message,) = [r.getMessage() for r in caplog.records if "compile" in r.getMessage()]
    assert "cannot compile the layers here" in message
    assert "RuntimeError: no compiler here" in message and "second line" not in message
    assert_close(found, train("texts", jit_compile=False), 1e-5)


@pytest.mark.long
@pytest.mark.parametrize(("attention_dropout", "has_heads"), [(0.1, True), (0.0, False)])
def test_forward_pass_is_one_graph(attention_dropout, has_heads):
    import torch

    backbone = ks.SpanBertBackbone(
        23, num_layers=1, num_heads=2, hidden_dim=6, intermediate_dim=10,
        attention_dropout=attention_dropout,
    )  # fmt: skip
    model = ks.SpanBertPretrainer(backbone, position_dim=5) if has_heads else backbone
    graphs, generator = [], np.random.default_rng(0)

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    # `fullgraph` raises an error for graph breaks. Later calls do not recompile.
    forward = torch.compile(model, backend=count, fullgraph=True)
    for _ in range(3):
        x = {name: generator.integers(0, 2, (2, 11)) for name in model.input}
        x = {name: keras.ops.convert_to_tensor(value, "int32") for name, value in x.items()}
        outputs = forward(x, training=True)
    assert len(graphs) == 1
    keras.tree.flatten(outputs)[0].sum().backward()
    assert all(v.value.grad is not None for v in backbone.trainable_variables)


def test_other_models_and_lengths_stay_compiled(monkeypatch):
    import torch

    # Without code generation, which takes a minute.
    compile = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr(torch_layers, "_failures", set())
    torch_layers._compiled.cache_clear()
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=3):
        for hidden_dim in [6, 10, 14, 18]:
            layer = TransformerLayer(hidden_dim + 1, 2)
            layer.compiles = True
            for length in [3, 5, 7, 11]:
                x = keras.random.normal((2, length, hidden_dim))
                outputs = (layer(x, training=t).detach().cpu() for t in [True, False])
                np.testing.assert_allclose(*outputs, atol=1e-5)
    assert not torch_layers._failures
    assert torch_layers._compiled.cache_info().currsize == 4
    torch_layers._compiled.cache_clear()


@pytest.mark.long
# PyTorch warns when its compiler reads the gradients of the inputs.
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_compiled_steps_equal_others():
    from torch._dynamo.utils import counters

    torch_layers._compiled.cache_clear()
    counters.clear()
    history, weights = train("pretrain", jit_compile=True)
    assert counters["stats"]["unique_graphs"] == 1 and not torch_layers._failures
    expected, expected_weights = train("pretrain", jit_compile=False)
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-4)
    assert_close(weights, expected_weights, 1e-4)


def test_compiling_again_changes_the_metrics():
    model, arguments = batches("texts")
    optimizer = ks.AdamW(1e-3)
    other = keras.metrics.SparseCategoricalAccuracy("other")
    for metrics, names in [
        ("auto", {"loss", "accuracy"}),
        (None, {"loss"}),
        ([other], {"loss", "other"}),
    ]:
        model.compile(optimizer, weighted_metrics=metrics)
        assert set(model.fit(**arguments, batch_size=5, epochs=2, verbose=0).history) == names


def test_nothing_to_train_is_a_warning():
    model, arguments = batches("texts")
    model.trainable = False
    model.compile()
    with pytest.warns(UserWarning, match="does not have any trainable weights"):
        model.fit(**arguments, batch_size=5, verbose=0)


def test_classes_of_the_user_are_trained_by_keras():
    class Own(ks.SpanBertTextClassifier):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return 7.0 + 0.0 * keras.ops.sum(y_pred)

    built = tiny_tasks.TASKS["texts"].build()
    arguments = {name: getattr(built, name) for name in built.config_names}
    x, y = next(iter(tiny_tasks.TASKS["texts"].forms.values()))
    for cls in [Own, ks.SpanBertTextClassifier]:
        model = cls(built.backbone, preprocessor=built.preprocessor, **arguments)
        loss = model.fit(x, y, batch_size=5, epochs=2, verbose=0).history["loss"]
        assert (TorchStep.of(model, None, False) is None) == (cls is Own)
        assert (loss == [7.0, 7.0]) == (cls is Own)


def test_activity_regularizers_are_in_the_loss():
    layer = keras.layers.Dense(2, activity_regularizer=keras.regularizers.L1(0.5), name="d")
    inputs = {"a": keras.Input((3,), name="a")}
    model = keras.Model(inputs, layer(inputs["a"]))
    model.compile("sgd", "mse")
    model.train_on_batch({"a": np.ones((2, 3), "float32")}, np.ones((2, 2), "float32"))
    assert not TrainerParts.are_enough(model)
    call_layers(model, {"a": keras.ops.ones((2, 3))}, training=True)
    assert model.losses


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda: ks.AdamW(1e-3), True),
        (lambda: ks.AdamW(ks.LinearWarmupDecay(1e-3, 2, 9)), True),
        (lambda: ks.AdamW(1e-3, gradient_accumulation_steps=2), False),
        (lambda: keras.optimizers.AdamW(lambda: 1e-3), False),
        (lambda: keras.optimizers.AdamW(1e-3, use_ema=True), False),
        (lambda: keras.optimizers.LossScaleOptimizer(ks.AdamW(1e-3)), False),
    ],
)
def test_steps_that_differ_cannot_be_captured(change, expected):
    model, arguments = batches("texts")
    model.compile(change())
    first_batch(model, arguments)
    assert TrainerParts(model).are_fixed == expected


@pytest.mark.parametrize("value", [2, -np.inf, True, (3, 4), np.eye(2), np.arange(20), (), [0.5]])
def test_scalars_are_created_on_the_device(value):
    expected = keras.ops.convert_to_tensor(value)
    with scalars_on_device():
        found = keras.ops.convert_to_tensor(value)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)

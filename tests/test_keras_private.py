"""The private attributes of Keras that `keras_private.py` uses still work."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_spanbert import keras_private


def test_layer_arguments_are_not_converted():
    class Echo(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.built = True

        def call(self, x):
            self.kind = type(x)
            return keras.ops.ones(1)

    layer = Echo()
    layer(np.zeros(3, "int32"))
    assert layer.kind is not np.ndarray  # Otherwise the workaround is not needed.
    keras_private.accept_tensorflow_tensors(layer)
    layer(np.zeros(3, "int32"))
    assert layer.kind is np.ndarray


def test_grain_pipelines_are_recognized():
    import grain

    def ask(_):
        return keras_private.in_grain()

    assert list(grain.MapDataset.source([0]).map(ask)) == [True]
    assert not keras_private.in_grain()


def test_safe_mode_of_loading_is_known():
    seen = []

    class Saved:
        @classmethod
        def from_config(cls, config):
            seen.append(keras_private.is_loading_safely())
            return cls()

        def get_config(self):
            return {}

    config = keras.saving.serialize_keras_object(Saved())
    for safe_mode in [True, False]:
        keras.saving.deserialize_keras_object(config, {"Saved": Saved}, safe_mode=safe_mode)
    assert seen == [True, False] and not keras_private.is_loading_safely()


def test_dtype_policy_is_replaced_in_a_layer_with_a_map():
    float16 = keras.DTypePolicy("float16")
    policies = keras.dtype_policies.DTypePolicyMap("float32", {"dense": float16})
    layer = keras.layers.Dense(1, dtype=policies, name="dense")
    layer.build((None, 1))
    layer.dtype_policy = policies["dense"]
    assert layer.dtype_policy is policies  # Otherwise the workaround is not needed.
    keras_private.set_dtype_policy(layer, policies["dense"])
    assert layer.dtype_policy is float16


def test_user_can_refuse_overwriting(monkeypatch):
    monkeypatch.setattr("builtins.input", lambda *_: "n")
    assert not keras_private.ask_to_overwrite("model.keras")


def test_fit_starts_with_the_epoch_set_by_a_callback():
    class Late(keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.epochs = []

        def on_train_begin(self, logs=None):
            keras_private.set_initial_epoch(self.model, 2)

        def on_epoch_begin(self, epoch, logs=None):
            self.epochs.append(epoch)
            keras_private.set_initial_epoch(self.model, None)

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    late = Late()
    model.fit(np.ones((2, 1)), np.ones((2, 1)), epochs=4, callbacks=[late], verbose=0)
    assert late.epochs == [2, 3]


def test_training_is_traced_once():
    traced = []

    class Model(keras.Sequential):
        def compute_loss(self, *args, **kwargs):
            traced.append(0)
            return super().compute_loss(*args, **kwargs)

    model = Model([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("adam", "mse", metrics=["mae"])
    batch = np.ones((2, 1)), np.ones((2, 1)), None
    keras_private.build_training(model, batch)
    assert model.optimizer.built
    del traced[:]
    model.fit(*batch[:2], verbose=0)
    assert len(traced) == 1


def test_variable_index_is_its_position_in_build():
    variables = [keras.Variable(np.zeros(n)) for n in (2, 3, 5)]
    places = []

    class Places(keras.optimizers.Optimizer):
        def update_step(self, gradient, variable, learning_rate):
            index = keras_private.variable_index(self, variable)
            places.append((index, tuple(variable.shape)))

    optimizer = Places(0.1)
    optimizer.build(variables)
    optimizer.apply([keras.ops.zeros(n) for n in (5, 2)], [variables[2], variables[0]])
    assert places == [(2, (5,)), (0, (2,))]


@pytest.mark.once("tensorflow")  # On PyTorch, modules have no attributes yet.
def test_layers_are_in_the_order_of_the_graph():
    class Model(keras.Model):
        def __init__(self):
            inputs, first = keras.Input((2,)), keras.layers.Dense(2, name="first")
            self.last = keras.layers.Dense(3, name="last")
            super().__init__(inputs, self.last(first(inputs)))

    model = Model()
    assert model.weights[0].path == "last/kernel"  # Otherwise the workaround is not needed.
    keras_private.order_layers(model)
    paths = [w.path for w in model.weights]
    assert paths == ["first/kernel", "first/bias", "last/kernel", "last/bias"]


def test_schedule_and_variables_of_an_optimizer_are_found():
    schedule, variable = (
        keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5),
        keras.Variable(1.0),
    )
    optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=2)
    optimizer.apply([keras.ops.ones(())], [variable])
    assert keras_private.schedule_of(optimizer) is schedule
    assert [v is variable for v in keras_private.built_variables(optimizer)] == [True]
    assert int(optimizer.iterations) == 0  # Otherwise `current_rate` is not needed.
    assert float(keras_private.current_rate(optimizer, schedule)) == 0.25
    assert keras_private.current_rate(optimizer, 0.5) == 0.5


def test_operations_that_compute_a_tensor():
    inputs, other = keras.Input((3,), name="inputs"), keras.Input((3,))
    shared = keras.layers.Dense(3, name="shared")
    x = inputs
    for i in range(64):  # There are 2 ** 64 paths.
        x = keras.layers.Add(name=f"add_{i}")([x, shared(x)])
    keras.layers.Add(name="of_another_model")([shared(other), other])
    names = {operation.name for operation in keras_private.operations_before([x])}
    assert names == {"shared", *(f"add_{i}" for i in range(64)), "inputs"}


def test_optimizer_moments_belong_to_the_variables():
    variables = [keras.Variable(np.zeros(n)) for n in (2, 3, 5)]
    for amsgrad in [False, True]:
        optimizer = keras.optimizers.Adam(amsgrad=amsgrad)
        optimizer.build(variables)
        found = keras_private.moments(optimizer, [variables[2], variables[0]])
        names = [[v.path.split("_")[-1] for v in kept] for kept in found]
        assert names == [["momentum"] * 2, ["velocity"] * 2, ["hat"] * 2 if amsgrad else []]
        assert all([tuple(v.shape) for v in kept] in ([], [(5,), (2,)]) for kept in found)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="specific to PyTorch")
def test_variables_are_updated_together():
    updates = []

    class Together(keras_private.FusedUpdateMixin, keras.optimizers.Optimizer):
        def fused_update(self, grads, variables, learning_rate):
            updates.append(([float(grad[0]) for grad in grads], variables, float(learning_rate)))

    variables = [keras.Variable(np.zeros(1)) for _ in range(2)]
    optimizer = Together(0.5, global_clipnorm=1.0)
    optimizer.apply([keras.ops.full((1,), x) for x in [3.0, 4.0]], variables)
    # Clipping is tested elsewhere.
    assert updates == [([3.0, 4.0], variables, 0.5)]


def test_files_of_a_preset_are_found(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    preset = str(tmp_path)
    assert keras_private.preset_file(preset, "config.json") == str(tmp_path / "config.json")
    assert keras_private.preset_file(preset, "task.json") is None
    with pytest.raises(ValueError, match="Unknown preset identifier"):
        keras_private.preset_file("gone", "config.json")


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="used on PyTorch only")
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_layers_are_called_as_by_keras(dtype):
    inputs = {name: keras.Input((3,), name=name) for name in ["b", "a"]}
    ids = keras.Input((3,), dtype="int32", name="ids")
    embedded = keras.layers.Embedding(7, 5, dtype=dtype)(ids)
    dense = keras.layers.Dense(5, dtype=dtype)
    x = keras.layers.Add(dtype=dtype)([dense(inputs["a"]), dense(inputs["b"] * 2.0)])
    x = keras.layers.LayerNormalization(dtype=dtype)(x[:, None, :] + embedded)
    model = keras.Model({**inputs, "ids": ids}, {"x": x, "list": [embedded]})
    generator = np.random.default_rng(0)
    arrays = {name: generator.normal(size=(2, 3)).astype("float32") for name in ["a", "b"]}
    arrays["ids"] = generator.integers(0, 7, (2, 3)).astype("int32")
    tensors = {name: keras.ops.convert_to_tensor(array) for name, array in arrays.items()}
    expected = model(arrays)
    for given in [arrays, tensors]:
        found = keras_private.call_layers(model, given, training=False)
        assert found["x"].dtype == expected["x"].dtype
        for each, other in [(found["x"], expected["x"]), (found["list"][0], expected["list"][0])]:
            np.testing.assert_array_equal(*(np.asarray(y.detach().float()) for y in [each, other]))


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="used on PyTorch only")
def test_loss_and_metrics_are_those_of_keras():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_regularizer="l2")])
    model.compile("sgd", "mse", weighted_metrics=["mae"])
    assert not keras_private.TrainerParts.are_enough(model)
    x, y = np.ones((4, 3), "float32"), np.zeros((4, 1), "float32")
    expected = model.train_on_batch(x, y, return_dict=True)
    assert keras_private.TrainerParts.are_enough(model)  # Built by the step.
    model.reset_metrics()
    model.layers[0].set_weights([w * 0 + 0.5 for w in model.layers[0].get_weights()])
    parts = keras_private.TrainerParts(model)
    y_pred = model(x)
    loss = parts.compute_loss(model, x, y, y_pred, None)
    parts.update_metrics(model, y, y_pred, None)
    found = parts.results()
    np.testing.assert_allclose(float(loss.detach()), 4.0 + 0.01 * 3 * 0.25)  # With the regularizer.
    assert set(found) == set(expected)
    np.testing.assert_allclose(float(found["mae"].detach()), 2.0)
    keras_private.forget_metrics(model)
    model.compile("sgd", "mse")
    assert set(model.train_on_batch(x, y, return_dict=True)) == {"loss"}


def test_plain_kernel_is_the_public_one():
    for layer in [keras.layers.Dense(3), keras.layers.EinsumDense("ab,bc->ac", 3)]:
        layer.build((2, 5))
        assert keras_private.plain_kernel(layer) is layer.kernel


def test_optimizers_of_a_backend_have_a_class_of_their_own():
    assert keras_private.backend_adamw() is type(keras.optimizers.AdamW())


@pytest.mark.parametrize("kind", ["kernel", "embeddings"])
def test_lora_weights_are_found_and_removed(kind):
    if kind == "kernel":
        layer, x = keras.layers.Dense(3), np.eye(5, dtype="float32")
    else:
        layer, x = keras.layers.Embedding(5, 3), np.arange(5)
    before = keras.ops.convert_to_numpy(layer(x))
    assert keras_private.lora_variables(layer)[1:] == [None, None]
    layer.enable_lora(2)
    table, a, b = keras_private.lora_variables(layer)
    assert [v.name for v in (table, a, b)] == [kind, f"lora_{kind}_a", f"lora_{kind}_b"]
    b.assign(np.ones((2, 3)))
    assert np.abs(keras.ops.convert_to_numpy(layer(x)) - before).max() > 0.01
    keras_private.remove_lora(layer, [layer])
    assert not layer.lora_enabled and len(layer.weights) == (2 if kind == "kernel" else 1)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(layer(x)), before)
    layer.enable_lora(1)


def test_layers_have_the_indices_of_keras_hub():
    backbone = keras_hub.models.BertBackbone(7, 1, 1, 2, 3, max_sequence_length=5)
    backbone.enable_lora(2)
    layers = keras_private.layers_with_weights(backbone)
    assert {layers[i].name for i in backbone._lora_enabled_layers} == {"query", "value"}

"""The private attributes of Keras that `keras_private.py` uses still work."""

import keras
import keras_hub
import numpy as np
import pytest

from keras_spanbert import keras_private


def test_grain_pipelines_are_recognized():
    import grain

    def ask(_):
        return keras_private.in_grain()

    assert list(grain.MapDataset.source([0]).map(ask)) == [True]
    assert not keras_private.in_grain()


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


def test_operations_that_compute_a_tensor():
    inputs, other = keras.Input((3,), name="inputs"), keras.Input((3,))
    shared = keras.layers.Dense(3, name="shared")
    x = inputs
    for i in range(64):  # There are 2 ** 64 paths.
        x = keras.layers.Add(name=f"add_{i}")([x, shared(x)])
    keras.layers.Add(name="of_another_model")([shared(other), other])
    names = {operation.name for operation in keras_private.operations_before([x])}
    assert names == {"shared", *(f"add_{i}" for i in range(64)), "inputs"}


def test_files_of_a_preset_are_found(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    preset = str(tmp_path)
    assert keras_private.preset_file(preset, "config.json") == str(tmp_path / "config.json")
    assert keras_private.preset_file(preset, "task.json") is None
    with pytest.raises(ValueError, match="Unknown preset identifier"):
        keras_private.preset_file("gone", "config.json")


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


def test_layers_have_the_indices_of_keras_hub():
    backbone = keras_hub.models.BertBackbone(7, 1, 1, 2, 3, max_sequence_length=5)
    backbone.enable_lora(2)
    layers = keras_private.layers_with_weights(backbone)
    assert {layers[i].name for i in backbone._lora_enabled_layers} == {"query", "value"}

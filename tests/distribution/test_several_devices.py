"""Several JAX devices of a process: dropout, uneven batches, models that cannot be split."""

import functools
import os
import re
import sys

import keras
import numpy as np
import pytest
import tiny_models
from forked import Forked

if __name__ != "__main__" and keras.backend.backend() != "jax":
    pytest.skip("specific to JAX", allow_module_level=True)

import keras_spanbert as ks
from keras_spanbert.layers.dropout import Dropout

RULE = "must be a multiple of the 2 devices. Received: "


@pytest.mark.parametrize("what", ["dropout", "uneven rows and heads"])
def test_several_devices(what):
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags}
    with Forked([sys.executable, __file__, what], env=environment) as process:
        assert process.wait() == 0


def each_device_draws_its_own_dropout():
    """Checks that each device draws different dropout for its own part of a tensor."""
    import jax

    # The code that JAX compiles for a TPU.
    jax.lax.platform_dependent = lambda *args, tpu, **others: tpu(*args)
    devices = keras.distribution.list_devices()
    mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"), devices)
    layout = keras.distribution.LayoutMap(mesh)
    for engine, axis, shape, shard in [
        (keras.distribution.DataParallel(devices=devices), None, (8, 6, 11), (2, 6, 11)),
        (keras.distribution.DataParallel(devices=devices), None, (7, 6, 11), (7, 6, 11)),
        (keras.distribution.ModelParallel(layout_map=layout), None, (8, 6, 11), (4, 6, 11)),
        (keras.distribution.ModelParallel(layout_map=layout), 1, (8, 6, 11), (4, 3, 11)),
        (keras.distribution.ModelParallel(layout_map=layout), 1, (8, 5, 11), (4, 5, 11)),
    ]:
        with engine.scope():
            layer = Dropout(0.5, seed=1, model_axis=axis)
            arguments = [], [layer.variables[0].value], np.ones(shape, "float32")
            drop = jax.jit(functools.partial(layer.stateless_call, training=True))
            masks = np.asarray(drop(*arguments)[0]) > 0.0
        parts = [
            masks[i : i + shard[0], j : j + shard[1]].tobytes()
            for i in range(0, shape[0], shard[0])
            for j in range(0, shape[1], shard[1])
        ]
        assert len(set(parts)) == len(parts) and 0.4 < masks.mean() < 0.6, shape
        drawn = re.findall(
            r"rng_bit_generator.*tensor<(\S+)xui16>", drop.lower(*arguments).as_text()
        )
        assert drawn == ["x".join(map(str, shard))], (shape, drawn)


def model_on_four_devices():
    ks.distribute("model")
    rule = "`num_heads` must be a multiple of the 4 devices.* Received: num_heads=2"
    with pytest.raises(ValueError, match=rule):
        ks.SpanBertBackbone(50, 1, 2, 8, 16)


def rows_on_two_devices():
    import tensorflow as tf

    devices = keras.distribution.list_devices()[:2]
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    answerer, pretrainer = tiny_models.answerer(), tiny_models.pretrainer()
    x = {"question": ["a"] * 5, "context": ["b d e"] * 5}
    y = [{"text": "d", "answer_start": 2}] * 5

    def raises(received, call, *args, **kwargs):
        with pytest.raises(ValueError) as caught:
            call(*args, **kwargs)
        assert str(caught.value).endswith(RULE + received), caught.value

    raises("5 rows in batches of 2", answerer.fit, x, y, batch_size=2, verbose=0)
    raises("5 rows in batches of 5", answerer.evaluate, x, y, verbose=0)
    raises("6 rows in batches of 3", answerer.predict, x, batch_size=3, verbose=0)
    even = {name: strings[:4] for name, strings in x.items()}
    raises(
        "5 rows in batches of 2",
        *(answerer.fit, even, y[:4]),
        **{"validation_data": (x, y), "batch_size": 2, "verbose": 0},
    )
    logits = answerer.predict(x, batch_size=2, verbose=0)["start"]
    assert logits.shape == (5, tiny_models.L) and abs(logits - logits[:1]).max() < 1e-6
    assert len(answerer.answer(x["question"], x["context"], batch_size=3)) == 5

    texts = ["a bc d e"] * 5
    raises("5 rows in batches of 2", pretrainer.fit, texts, batch_size=2, verbose=0)
    # The size of a dataset's last batch is unknown before training. The two updates are kept.
    dataset = tf.data.Dataset.from_tensor_slices(texts).batch(2)
    raises("the dimension size is 1", pretrainer.fit, dataset, verbose=0)
    assert pretrainer.optimizer.iterations == 2
    assert len(pretrainer.fill(["a [MASK]"] * 3)) == 3
    pretrainer.fit(texts[:4], batch_size=2, verbose=0)


if __name__ == "__main__":
    if sys.argv[1] == "dropout":
        each_device_draws_its_own_dropout()
    else:
        model_on_four_devices()
        rows_on_two_devices()

"""Training of each task on PyTorch and JAX, on a GPU or slowly on a CPU."""

import gc

import keras
import numpy as np
import pytest
import tiny_pretrainer
import tiny_resolver
import tiny_tasks
from comparisons import assert_close
from jax_programs import products

import keras_spanbert as ks
from keras_spanbert.layers.transformer_layer import TransformerLayer

BACKEND = keras.backend.backend()
pytestmark = pytest.mark.skipif(BACKEND == "tensorflow", reason="PyTorch and JAX on a GPU")


def pretraining():
    model = tiny_pretrainer.build()
    return model, *tiny_pretrainer.arrays(model, tiny_pretrainer.texts())


def coreference():
    model = tiny_resolver.build(dropout_rate=0.0)
    x, y = model.batches([tiny_resolver.document()]).arrays.document(0, 0)
    return model, x, y, None


def build(name):
    """Returns a new model and one batch for it."""
    keras.utils.set_random_seed(0)
    if name in OTHERS:
        return OTHERS[name]()
    task = tiny_tasks.TASKS[name]
    model = task.build()
    return model, *model.preprocess(*next(iter(task.forms.values())))


OTHERS = {"pretraining": pretraining, "coreference": coreference}


def train(name, epochs, **options):
    """Trains a model on the same batch with the task's loss. Returns the loss of each step."""
    model, x, y, weights = build(name)
    model.compile(ks.AdamW(3e-3))
    options |= {"batch_size": 64, "sample_weight": weights, "verbose": 0, "shuffle": False}
    return keras.Model.fit(model, x, y, epochs=epochs, **options).history["loss"]


@pytest.mark.parametrize("name", [*OTHERS, *tiny_tasks.TASKS])
def test_steps_lower_the_loss(name, mixed_bfloat16):
    losses = train(name, epochs=8)
    assert np.isfinite(losses).all() and losses[-1] < losses[0]


def test_steps_in_float32_lower_the_loss():
    losses = train("pretraining", epochs=8)
    assert losses[-1] < losses[0]


@pytest.fixture
def graphs(monkeypatch):
    """Counts the replays of CUDA graphs."""
    torch = pytest.importorskip("torch")
    if BACKEND != "torch" or not torch.cuda.is_available():
        pytest.skip("needs PyTorch and a GPU")
    replays, replay = [], torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda x: replays.append(x) or replay(x))
    return replays


@pytest.mark.parametrize("name", [*OTHERS, *tiny_tasks.TASKS])
def test_steps_of_cuda_graphs_equal_others(name, graphs):
    def train(jit_compile):
        model, x, y, weights = build(name)
        model.backbone.trainable = name != "words"  # In one case, most weights are frozen.
        for layer in model._flatten_layers():
            if isinstance(layer, (keras.layers.Dropout, TransformerLayer)):
                layer.rate = layer.dropout = 0.0  # Both ways draw other numbers.
        model.compile(ks.AdamW(ks.LinearWarmupDecay(3e-3, 3, 12)), jit_compile=jit_compile)
        options = {"batch_size": 4, "sample_weight": weights, "verbose": 0, "shuffle": False}
        history = keras.Model.fit(model, x, y, epochs=6, **options).history
        return history, model.get_weights()

    history, weights = train("auto")
    assert bool(graphs) == (name != "coreference")  # Its spans are chosen on the host.
    expected, expected_weights = train(False)
    for key in history:
        np.testing.assert_allclose(history[key], expected[key], rtol=1e-3, atol=1e-4)
    assert_close(weights, expected_weights, 1e-3)


def test_graphs_do_not_change_the_tensors_of_the_caller(graphs):
    model, x, y, weights = build("pretraining")
    model.compile(ks.AdamW(1e-3))
    data = x, y, weights
    batches = [keras.tree.map_structure(f, data) for f in [lambda a: a[:4], lambda a: a[4:8]]]
    on_gpu = keras.tree.map_structure(keras.ops.convert_to_tensor, batches)
    for _ in range(4):
        for batch in [*batches, *on_gpu]:  # NumPy's arrays are accepted too.
            model.train_step(batch)
    assert graphs
    assert_close(on_gpu, batches)


def test_steps_that_read_numbers_are_called_as_usual(graphs, caplog):
    def loss(y_true, y_pred):
        return keras.ops.mean(y_pred) * float(keras.ops.mean(y_pred).detach()) ** 0

    task = tiny_tasks.TASKS["texts"]
    model = task.build()
    model.compile(ks.AdamW(1e-3), loss=loss)
    x, y, _ = model.preprocess(*next(iter(task.forms.values())))
    keras.Model.fit(model, x, y, batch_size=64, epochs=8, verbose=0)
    assert not graphs
    (message,) = [r.getMessage() for r in caplog.records if "CUDA graph" in r.getMessage()]
    assert "steps are slower" in message


def test_products_are_in_bfloat16(mixed_bfloat16):
    # Fused attention needs heads of 8 numbers.
    backbone = ks.SpanBertBackbone(tiny_pretrainer.V, 1, 2, 16, 14, max_sequence_length=17)
    model = ks.SpanBertPretrainer(backbone, pretraining()[0].preprocessor)
    batch = tiny_pretrainer.arrays(model, tiny_pretrainer.texts())
    model.compile()
    keras.Model.fit(model, *batch[:2], sample_weight=batch[2], batch_size=20, verbose=0)
    dtypes = dtypes_of_products(model, tuple(batch))
    assert len(dtypes) > 20 and set(dtypes) == {"bfloat16"}


def dtypes_of_products(model, batch):
    """Returns the dtypes of the operands of all matrix products in a training step."""
    if BACKEND == "jax":
        import jax

        state = model._get_jax_state(
            trainable_variables=True, non_trainable_variables=True,
            optimizer_variables=True, metrics_variables=True,
        )  # fmt: skip
        program = jax.make_jaxpr(model.train_step)(state, batch)
        return [str(x.dtype) for operands in products(program) for x in operands]
    from torch.utils._python_dispatch import TorchDispatchMode

    found = []

    class Products(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if function.overloadpacket.__name__ in ("mm", "bmm", "addmm", "baddbmm"):
                found.extend(str(x.dtype).removeprefix("torch.") for x in args)
            return function(*args, **(kwargs or {}))

    for layer in model.backbone.transformer_layers:
        layer.compiles = False  # Compiled layers show no operations.
    with Products():
        model.train_step(keras.tree.map_structure(keras.ops.convert_to_tensor, batch))
    return found


def test_memory_does_not_grow():
    in_use = []

    def measure(epoch, logs=None):
        gc.collect()
        in_use.append(bytes_in_use())

    callback = keras.callbacks.LambdaCallback(on_epoch_end=measure)
    train("pretraining", epochs=20, callbacks=[callback])
    assert in_use[-1] <= in_use[4] and in_use[4] > 0


def bytes_in_use():
    """Returns the bytes of the arrays on the device."""
    if BACKEND == "jax":
        import jax

        return sum(array.nbytes for array in jax.live_arrays())
    import torch

    if torch.cuda.is_available():
        return torch.cuda.memory_allocated()
    # Other classes, such as those of tracing, have no memory.
    kinds = (torch.Tensor, torch.nn.Parameter)
    tensors = [x for x in gc.get_objects() if type(x) in kinds]
    return sum(x.nbytes for x in tensors)

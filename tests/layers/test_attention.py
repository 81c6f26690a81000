import functools

import keras
import numpy as np
import pytest
from jax_programs import shared_by
from keras import ops

from keras_spanbert.layers.attention import attend

BACKEND = keras.backend.backend()
B, L, N, D = 7, 128, 2, 24  # The TPU kernel needs at least 128.
IMPLEMENTATIONS = ["own", "plain"] + ["tpu", "cuda"] * (BACKEND == "jax")


def arrays(dtype="float32", seed=0):
    """Returns query, key, value and output gradients, all exactly representable in the dtype."""
    draws = np.random.default_rng(seed).normal(size=(4, B, L, N, D)) * 1.5
    # Rounded to the dtype, so that float64 computes with the same numbers.
    return [
        ops.convert_to_numpy(ops.cast(ops.convert_to_tensor(x, dtype), "float32")) for x in draws
    ]


def padding():
    """Padding on the right, left, with holes, around one token, nowhere and everywhere."""
    mask = np.ones((B, L), "int32")
    mask[0, 77:] = 0
    mask[1, :51] = 0
    mask[2, [0, 3, 64, 65, 127]] = 0
    mask[3], mask[3, 101] = 0, 1
    mask[4, 1:] = 0
    mask[6] = 0
    return mask


def reference(query, key, value, upstream, mask=None, kept=1.0):
    """Returns outputs and gradients of the equations in float64."""
    query, key, value, upstream = (x.astype("float64") for x in (query, key, value, upstream))
    mask = np.ones((B, L), "bool") if mask is None else mask.astype("bool")
    empty = ~mask.any(1)[:, None, None, None]
    query = np.where(empty, 0.0, query / np.sqrt(D))
    mask = mask[:, None, None, :] | empty
    scores = np.where(mask, np.einsum("btnd,bsnd->bnts", query, key), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    outputs = np.einsum("bnts,bsnd->btnd", weights * kept, value)
    of_value = np.einsum("bnts,btnd->bsnd", weights * kept, upstream)
    of_weights = np.einsum("btnd,bsnd->bnts", upstream, value) * kept
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True))
    of_query = np.where(empty, 0.0, np.einsum("bnts,bsnd->btnd", of_scores, key) / np.sqrt(D))
    return outputs, of_query, np.einsum("bnts,btnd->bsnd", of_scores, query), of_value


def compute(
    query, key, value, upstream, mask=None, dtype="float32", compiled=BACKEND == "jax", **kwargs
):
    """Returns outputs and gradients of `attend`."""
    mask = None if mask is None else ops.convert_to_tensor(mask)
    function = functools.partial(attend, padding_mask=mask, **kwargs)
    inputs = [ops.convert_to_tensor(x, dtype) for x in (query, key, value)]
    upstream = ops.convert_to_tensor(upstream, dtype)
    if BACKEND == "jax":
        import jax

        def step(inputs, upstream):
            outputs, backward = jax.vjp(function, *inputs)
            return outputs, *backward(upstream)

        results = (jax.jit(step) if compiled else step)(inputs, upstream)
    elif BACKEND == "tensorflow":
        import tensorflow as tf

        def step(inputs, upstream):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = function(*inputs)
            return outputs, *tape.gradient(outputs, inputs, upstream)

        results = (tf.function(step, jit_compile=True) if compiled else step)(inputs, upstream)
    else:
        import torch

        inputs = [x.requires_grad_() for x in inputs]
        if compiled:
            function = torch.compile(function, backend="aot_eager", fullgraph=True)
        outputs = function(*inputs)
        outputs.backward(upstream)
        results = outputs.detach(), *(x.grad for x in inputs)
    assert {keras.backend.standardize_dtype(x.dtype) for x in results} == {dtype}
    return [ops.convert_to_numpy(ops.cast(x, "float32")) for x in results]


# CPUs with bfloat16 units round more intermediate results than others.
TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 2e-2}


def check(found, expected, most):
    for x, y in zip(found, expected, strict=True):
        assert np.isfinite(x).all()
        errors, norms = (np.sqrt((z.reshape(B, -1) ** 2).sum(1)) for z in (x - y, y))
        # Rows with one token have zero gradients, so errors are relative to the largest row.
        assert errors.max() <= most * norms.max()


@pytest.fixture
def take(monkeypatch):
    """Makes `attend` use one of `IMPLEMENTATIONS`, even without the hardware for it."""

    def take(implementation):
        if implementation == "plain":
            monkeypatch.setattr(keras.config, "is_flash_attention_enabled", lambda: False)
        if implementation not in ("tpu", "cuda"):
            return
        import jax
        from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel

        from keras_spanbert.layers import jax_attention

        def choose(*args, default, **kernels):
            return kernels[implementation](*args)

        def make_interpreted(make=splash_attention_kernel.make_splash_mha, **kwargs):
            return make(**{**kwargs, "interpret": True})

        def attend_in_jax(*args, attention=jax.nn.dot_product_attention, **kwargs):
            return attention(*args, **{**kwargs, "implementation": "xla"})

        monkeypatch.setattr(jax.lax, "platform_dependent", choose)
        monkeypatch.setattr(splash_attention_kernel, "make_splash_mha", make_interpreted)
        monkeypatch.setattr(jax.nn, "dot_product_attention", attend_in_jax)
        monkeypatch.setattr(jax_attention, "_cudnn_supports", lambda *args: True)

    return take


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("dtype", "masked"),
    [("float32", False), ("float32", True), ("bfloat16", True)]
    + [("float16", True)] * (BACKEND != "jax"),
)
def test_outputs_and_gradients_equal_the_equations(implementation, dtype, masked, take):
    take(implementation)
    inputs, mask = arrays(dtype), padding() if masked else None
    check(compute(*inputs, mask, dtype=dtype), reference(*inputs, mask), most=TOLERANCE[dtype])


@pytest.mark.skipif(BACKEND != "jax", reason="specific to JAX")
def test_padding_has_no_gradients_if_cudnn_leaves_them_uninitialized(take, monkeypatch):
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def spoil(x, lengths):
        return x

    def backward(lengths, upstream):
        is_token = jnp.arange(L) < lengths[:, None]
        return jnp.where(is_token[:, :, None, None], upstream, jnp.nan), None

    spoil.defvjp(lambda x, lengths: (x, lengths), backward)
    take("cuda")
    compute_in_jax = jax.nn.dot_product_attention

    def attend_as_cudnn(query, key, value, key_value_seq_lengths, **kwargs):
        key, value = (spoil(x, key_value_seq_lengths) for x in (key, value))
        return compute_in_jax(
            query, key, value, key_value_seq_lengths=key_value_seq_lengths, **kwargs
        )

    monkeypatch.setattr(jax.nn, "dot_product_attention", attend_as_cudnn)
    inputs, mask = arrays(), padding()
    check(compute(*inputs, mask), reference(*inputs, mask), most=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.filterwarnings("error::UserWarning")
def test_only_token_attends_to_itself(dtype):
    x = ops.convert_to_tensor(np.random.default_rng(0).normal(size=(3, 1, 2, 5)), dtype)
    found = attend(x, x, x, np.array([[1], [1], [0]]), keras.layers.Dropout(0.0), training=True)
    np.testing.assert_array_equal(
        *(ops.convert_to_numpy(ops.cast(y, "float32")) for y in (found, x))
    )


class Halving:
    """Drops fixed weights."""

    rate = 0.5

    def __init__(self, dtype):
        self.kept = 2.0 * (np.random.default_rng(3).random((B, N, L, L)) < 0.5)
        self._kept = ops.convert_to_tensor(self.kept, dtype)

    def __call__(self, weights, training):
        assert training
        return weights * self._kept


@pytest.mark.parametrize("dtype, compiled", [("float32", False), ("bfloat16", True)])
def test_dropped_weights_do_not_affect_outputs_and_gradients(dtype, compiled):
    inputs, mask, dropout = arrays(dtype), padding(), Halving(dtype)
    found = compute(*inputs, mask, dtype, compiled, dropout=dropout, training=True)
    check(found, reference(*inputs, mask, dropout.kept), TOLERANCE[dtype])
    for training in [False, None]:
        found = compute(*inputs, mask, dtype, compiled, dropout=dropout, training=training)
        check(found, reference(*inputs, mask), TOLERANCE[dtype])


def test_sixteen_bit_backward_pass_keeps_no_float32_weights():
    *inputs, _ = arrays("bfloat16")
    inputs = [ops.convert_to_tensor(x, "bfloat16") for x in inputs]
    function = functools.partial(
        attend, padding_mask=padding(), dropout=Halving("bfloat16"), training=True
    )
    if BACKEND == "jax":
        import jax

        kept = [(x.shape, str(x.dtype)) for x in jax.tree.leaves(jax.vjp(function, *inputs)[1])]
    elif BACKEND == "torch":
        import torch

        kept = []

        def pack(x):
            kept.append((tuple(x.shape), keras.backend.standardize_dtype(x.dtype)))
            return x

        inputs = [x.requires_grad_() for x in inputs]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            function(*inputs)
    else:
        import tensorflow as tf

        @tf.function
        def step(inputs):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                outputs = function(*inputs)
            return tape.gradient(outputs, inputs)

        graph = step.get_concrete_function(inputs).graph
        (softmax,) = (op for op in graph.get_operations() if op.type == "Softmax")
        kept = [
            (x.shape, x.dtype.name)
            for op in softmax.outputs[0].consumers()
            for x in (op.outputs if op.type == "Cast" else op.inputs)
        ]
    weights = [dtype for shape, dtype in kept if tuple(shape) in [(B, N, L, L), (B * N, L, L)]]
    assert weights and "float32" not in weights


@pytest.mark.skipif(BACKEND != "jax", reason="specific to JAX")
def test_tpu_uses_the_kernel_without_dropout():
    import jax

    def lower_attention(platform, **kwargs):
        total = jax.grad(lambda x: attend(x, x, x, x[:, :, 0, 0] > 0, **kwargs).sum())
        traced = jax.jit(total).trace(jax.ShapeDtypeStruct((2, 640, N, 64), "bfloat16"))
        return traced.lower(lowering_platforms=(platform,)).as_text()

    assert lower_attention("tpu").count('kernel_name = "splash_mha') == 2
    assert "splash" not in lower_attention("cpu")
    dropout = keras.layers.Dropout(0.5, dtype="bfloat16")
    assert "splash" in lower_attention("tpu", dropout=dropout, training=False)
    assert "splash" not in lower_attention("tpu", dropout=dropout, training=True)


@pytest.mark.skipif(BACKEND != "jax", reason="Keras shards models only on JAX")
@pytest.mark.parametrize("mode", ["data", "model"])
def test_devices_run_the_kernel_on_their_rows_and_heads(mode, take):
    import jax

    take("tpu")
    inputs, mask = arrays(), padding()
    with shared_by(keras.distribution.list_devices()[:1], mode):
        found = compute(*inputs, mask)
        traced = str(jax.make_jaxpr(lambda x: attend(x, x, x, mask))(inputs[0]))
    check(found, reference(*inputs, mask), most=1e-5)
    heads = "'model'" if mode == "model" else "None"
    assert f"out_specs=(P('batch', None, {heads})" in traced.split("shard_map")[1]


@pytest.mark.skipif(BACKEND != "torch", reason="only the kernel of PyTorch has dropout")
def test_gpu_kernel_dropout_uses_the_seed(monkeypatch):
    import torch

    monkeypatch.setattr(torch.Tensor, "is_cuda", True)  # The CPU kernel supports it too.
    layer, ones = keras.layers.Dropout(0.25), torch.ones(B, L, N, D)

    def drop(seed, training=True):
        keras.utils.set_random_seed(seed)
        return attend(0 * ones, ones, ones, dropout=layer, training=training).cpu().numpy()

    np.testing.assert_array_equal(drop(1), drop(1))
    assert (drop(1) != drop(2)).any()
    # Equal weights of 1 / L, each either 0 or divided by the keep rate.
    counts = drop(1) * L * 0.75
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-3)
    np.testing.assert_allclose(counts.mean(), L * 0.75, rtol=0.02)
    np.testing.assert_allclose(drop(1, training=False), 1.0, atol=1e-5)

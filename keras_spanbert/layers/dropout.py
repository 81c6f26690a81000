"""Dropout whose random numbers a TPU draws by its own generator, each chip its part."""

import functools

import keras

# Numbers of 16 bits decide: 8 would make 0.898 of a keep rate of 0.9.
_NUM_LEVELS = 2**16


@keras.saving.register_keras_serializable(package="keras_spanbert")
class Dropout(keras.layers.Dropout):
    """Keras's dropout, but for JAX on a TPU: there the chips' own generator draws.

    Keras draws by threefry, which takes hundreds of integer operations a number
    where a TPU multiplies matrices, and has each chip draw the numbers of the
    whole batch. Here a TPU drops by 16 bits an element from its hardware's
    generator, and scales what it keeps by exactly the rate that 16 bits give,
    so that the mean stays. Under `keras.distribution` a chip draws for its own
    part of the tensor alone. The same seed gives the same on the same chips,
    and the backward pass keeps a bool an element.

    Elsewhere the draws are Keras's, and everywhere the seed's variable is: what
    was saved of the one loads into the other.

    Args:
        rate: float in [0, 1]. Share of the elements to drop.
        noise_shape: see `keras.layers.Dropout`, which draws where it is given.
            Defaults to `None`.
        seed: int. Defaults to `None`, drawn.
        model_axis: int. The axis that devices cut which share a model
            (`keras.distribution.ModelParallel`), besides the batch's, the
            first. Defaults to `None`: they have it whole.
        **kwargs: see `keras.layers.Layer`.

    Call arguments:
        inputs: float tensor.
        training: bool. Whether to drop. Defaults to `False`.

    Returns:
        float tensor of the shape and dtype of `inputs`.

    Raises:
        ValueError: where `rate` is not in [0, 1].

    Example:
    ```python
    from keras_spanbert.layers.dropout import Dropout

    outputs = Dropout(0.1, seed=1)(np.ones((2, 5)), training=True)  # 0 or 1 / 0.9
    ```

    Reference:
        [Srivastava et al. 2014](https://jmlr.org/papers/v15/srivastava14a.html).
    """

    def __init__(
        self,
        rate: float,
        noise_shape=None,
        seed: int | None = None,
        model_axis: int | None = None,
        **kwargs,
    ):
        super().__init__(rate, noise_shape=noise_shape, seed=seed, **kwargs)
        self.model_axis = model_axis

    def call(self, inputs, training=False):
        drops = training and 0.0 < self.rate < 1.0
        if keras.backend.backend() != "jax" or not drops or self.noise_shape is not None:
            return super().call(inputs, training=training)
        import jax

        # Drawn here for both, so that a run may go on elsewhere.
        seed = self.seed_generator.next()
        draw = functools.partial(self._draw_by_keras, shape=inputs.shape)
        draw_on_tpu = functools.partial(self._draw_by_hardware, shape=inputs.shape)
        keep = jax.lax.platform_dependent(seed, tpu=draw_on_tpu, default=draw)
        kept = jax.lax.platform_dependent(
            inputs, tpu=self._scale_exactly, default=lambda x: x / (1.0 - self.rate)
        )
        return _select(keep, kept)

    def _draw_by_keras(self, seed, shape):
        return keras.random.dropout(keras.ops.ones(shape), self.rate, seed=seed) != 0.0

    def _draw_by_hardware(self, seed, shape):
        import jax

        # The compiler lays attention weights [B, N, T, S] out with T last: numbers drawn in another
        # order would be moved.
        is_attention = len(shape) == 4
        order = (0, 1, 3, 2) if is_attention else tuple(range(len(shape)))
        bits = _random_bits(seed, [shape[i] for i in order], self.model_axis)
        keep = (bits >= self._num_dropped_levels).transpose(order)
        # Else the compiler holds the 16 bits for the backward pass, and compares them twice.
        return jax.lax.optimization_barrier(keep)

    def _scale_exactly(self, x):
        # Of 16-bit floats the scale itself would be off by 0.2%.
        scale = _NUM_LEVELS / (_NUM_LEVELS - self._num_dropped_levels)
        return (x.astype(keras.backend.result_type(x.dtype, "float32")) * scale).astype(x.dtype)

    @property
    def _num_dropped_levels(self):
        return min(round(self.rate * _NUM_LEVELS), _NUM_LEVELS - 1)

    def get_config(self):
        config = super().get_config()
        config.update({"model_axis": self.model_axis})
        return config


def _select(keep, x):
    """`x` where `keep` is true, else 0, whose backward pass has but `keep` to keep."""
    import jax

    def select(keep, x):
        return jax.lax.select(keep, x, jax.numpy.zeros_like(x))

    # By itself JAX would keep the zeros too.
    selected = jax.custom_vjp(select)
    selected.defvjp(
        lambda keep, x: (select(keep, x), keep),
        lambda keep, gradient: (None, select(keep, gradient)),
    )
    return selected(keep, x)


def _random_bits(seed, shape, model_axis):
    """uint16 of a shape, of which each device draws the part that it has."""
    import jax

    mesh, axes = _shards(shape, model_axis)
    names = tuple(name for name in axes if name is not None)
    sizes = [1 if name is None else mesh.shape[name] for name in axes]
    shard = [size // parts for size, parts in zip(shape, sizes)]

    def draw(seed):
        index = jax.lax.axis_index(names) if names else 0
        key = jax.random.bits(jax.random.fold_in(seed, index), (4,), "uint32")
        return jax.lax.rng_bit_generator(key, shard, "uint16")[1]

    if not names:
        return draw(seed)
    specs = jax.sharding.PartitionSpec
    return jax.shard_map(draw, mesh=mesh, in_specs=specs(), out_specs=specs(*axes))(seed)


def _shards(shape, model_axis):
    """The devices' mesh, and for each axis of a tensor the name of the mesh's that cuts it."""
    engine = keras.distribution.distribution()
    axes = [None] * len(shape)
    if engine is None or not shape:
        return None, axes
    mesh = engine.device_mesh.backend_mesh
    axes[0] = engine.batch_dim_name
    if model_axis is not None and isinstance(engine, keras.distribution.ModelParallel):
        axes[model_axis] = "model" if "model" in mesh.shape else None
    # Parts must be equal: where they are not, each device draws all.
    parts = [1 if name is None else mesh.shape[name] for name in axes]
    return mesh, [name if size % n == 0 else None for name, size, n in zip(axes, shape, parts)]

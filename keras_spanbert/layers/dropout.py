"""Dropout with fast random numbers on TPUs and GPUs."""

import functools
import math

import keras
import numpy as np

from keras_spanbert.optional import jax

# Dropout compares 16-bit numbers. 8 bits would turn a keep rate of 0.9 into 0.898.
_NUM_LEVELS = 2**16


@keras.saving.register_keras_serializable(package="keras_spanbert")
class Dropout(keras.layers.Dropout):
    """Keras's dropout, with faster random numbers on TPUs and NVIDIA GPUs with JAX.

    Keras uses JAX's threefry generator, which takes about a hundred integer operations per number.
    Here each element takes 16 random bits, and is scaled by the exact inverse of the 16-bit keep
    rate:

    - On TPUs, bits of the hardware's generator. Each chip draws for its own part of the tensor, so
      the same seed gives the same results only on the same chips.
    - On NVIDIA GPUs, a hash of the seed and the element's position, on any number of GPUs the same.

    With a `noise_shape`, and on other platforms, the layer draws as Keras does. `model_axis` is the
    axis that `keras.distribution.ModelParallel` shards, in addition to the batch axis.
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
        if not training or not self.draws_in_jax:
            return super().call(inputs, training=training)
        # All generators use this seed, so that a run can resume on another platform.
        seed = self.seed_generator.next()
        return _select(self.draw_in_jax(seed, inputs.shape), self.scale_in_jax(inputs))

    @property
    def draws_in_jax(self) -> bool:
        """Whether `draw_in_jax` and `scale_in_jax` compute what the layer returns."""
        is_jax = keras.backend.backend() == "jax"
        return is_jax and 0.0 < self.rate < 1.0 and self.noise_shape is None

    def draw_in_jax(self, seed, shape):
        """Returns which elements of a shape to keep, bool."""
        return jax.lax.platform_dependent(
            seed,
            tpu=functools.partial(self._draw_with_hardware, shape=shape),
            cuda=functools.partial(self._draw_with_hash, shape=shape),
            default=lambda seed: (
                keras.random.dropout(keras.ops.ones(shape), self.rate, seed=seed) != 0.0
            ),
        )

    def scale_in_jax(self, x):
        """Returns `x` over the keep rate."""

        def scale(x):
            # In 16-bit floats the scale would be off by 0.2%.
            wide = x.astype(keras.backend.result_type(x.dtype, "float32"))
            return (wide * exact_scale(self.rate)).astype(x.dtype)

        return jax.lax.platform_dependent(
            x, tpu=scale, cuda=scale, default=lambda x: x / (1.0 - self.rate)
        )

    def _draw_with_hardware(self, seed, shape):
        # The compiler stores attention weights [B, N, T, S] with T last. Drawing in this order
        # avoids a transpose.
        is_attention = len(shape) == 4
        order = (0, 1, 3, 2) if is_attention else tuple(range(len(shape)))
        bits = _random_bits(seed, [shape[i] for i in order], self.model_axis)
        keep = (bits >= num_dropped_levels(self.rate)).transpose(order)
        # Without the barrier, XLA would store the 16 bits and compare them again in the backward
        # pass.
        return jax.lax.optimization_barrier(keep)

    def _draw_with_hash(self, seed, shape):
        rows, columns = (1, 1, *shape)[-2:]
        # Without the barrier, XLA would compute the numbers again for each element.
        numbers = jax.lax.optimization_barrier(hash_numbers(seed, shape[:-2], rows, columns))
        of_rows, of_columns = numbers[..., : 2 * rows, None], numbers[..., None, 2 * rows :]
        keep = hash_keep(of_rows[..., :rows, :], of_rows[..., rows:, :], of_columns, self.rate)
        return keep.reshape(shape)

    def get_config(self):
        return {**super().get_config(), "model_axis": self.model_axis}


def num_dropped_levels(rate: float) -> int:
    """Returns how many of the 2^16 numbers mean that an element is dropped."""
    return min(round(rate * _NUM_LEVELS), _NUM_LEVELS - 1)


def exact_scale(rate: float) -> float:
    """Returns the inverse of the 16-bit keep rate."""
    return _NUM_LEVELS / (_NUM_LEVELS - num_dropped_levels(rate))


def hash_numbers(seed, sizes, rows: int, columns: int):
    """Returns random numbers for `hash_keep` from a seed, uint32 `[2]`.

    They are uint32 `[*sizes, rows + rows + columns]`: multipliers and then offsets of the rows, and
    numbers of the columns.
    """
    shape = *sizes, rows + rows + columns
    numbers = jax.numpy.arange(math.prod(shape), dtype="uint32").reshape(shape)
    # All are odd. The products of an even multiplier would have fewer random bits.
    return _hash(_hash(numbers ^ _hash(seed[0])) ^ _hash(seed[1])) | 1


def hash_keep(multipliers, offsets, columns, rate: float):
    """Returns which elements of a matrix to keep, bool, from `hash_numbers`."""
    # Two elements of a row are independent, because a random multiplier and offset are a pairwise
    # independent hash of the column's number (https://doi.org/10.1007/3-540-60922-9_46). The upper
    # 16 bits decide.
    return multipliers * columns + offsets >= np.uint32(num_dropped_levels(rate) * 2**16)


def _hash(x):
    """Returns 32 bits that look random: lowbias32 of https://github.com/skeeto/hash-prospector."""
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def _select(keep, x):
    """Returns `x` where `keep` is true, else 0. Stores only `keep` for the backward pass."""

    def select(keep, x):
        return jax.lax.select(keep, x, jax.numpy.zeros_like(x))

    # By default, JAX would also store the zeros.
    selected = jax.custom_vjp(select)
    selected.defvjp(
        lambda keep, x: (select(keep, x), keep),
        lambda keep, gradient: (None, select(keep, gradient)),
    )
    return selected(keep, x)


def _random_bits(seed, shape, model_axis):
    """Returns uint16 random bits of a shape. Each device draws only its own part."""
    mesh, axes = shard_axes(shape, model_axis)
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


def shard_axes(shape, model_axis: int | None):
    """Returns the device mesh or `None`, and the mesh axis that shards each axis of a tensor."""
    engine = keras.distribution.distribution()
    axes = [None] * len(shape)
    if engine is None or not shape:
        return None, axes
    mesh = engine.device_mesh.backend_mesh
    axes[0] = engine.batch_dim_name
    if model_axis is not None and isinstance(engine, keras.distribution.ModelParallel):
        axes[model_axis] = "model"
    # Shards must have equal sizes. If an axis cannot be divided evenly, it is not sharded.
    is_even = [
        name in mesh.shape and size % mesh.shape[name] == 0 for name, size in zip(axes, shape)
    ]
    return mesh, [name if even else None for name, even in zip(axes, is_even)]

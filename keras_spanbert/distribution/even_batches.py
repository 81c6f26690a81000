"""Checks and pads batches whose rows JAX divides over its devices."""

import contextlib
from collections.abc import Iterator

import keras
import numpy as np

_RULE = (
    "On JAX, the devices share the rows of each batch evenly. The number of rows in each batch, "
    "including the last one, must be a multiple of the {shards} devices. Received: {received}"
)


def num_batch_shards() -> int:
    """Returns how many equal parts JAX divides this process's rows of a batch into.

    Returns 1 on other backends and without a distribution.
    """
    engine = keras.distribution.distribution()
    if engine is None or keras.backend.backend() != "jax":
        return 1
    import jax

    mesh = engine.device_mesh
    shards = dict(zip(mesh.axis_names, mesh.shape))[engine.batch_dim_name]
    return max(1, shards // jax.process_count())


def check_even_rows(num_rows: int, batch_size: int | None) -> None:
    """Raises `ValueError` if the devices cannot share one of the batches evenly."""
    shards = num_batch_shards()
    batch_size = min(batch_size or 32, num_rows)
    if num_rows % shards or batch_size % shards:
        received = f"{num_rows} rows in batches of {batch_size}"
        raise ValueError(_RULE.format(shards=shards, received=received))


@contextlib.contextmanager
def even_batches(model: keras.Model) -> Iterator[None]:
    """Context manager that explains errors about uneven batches.

    On JAX, it also puts the weights back into the model after any error.
    """
    is_jax = keras.backend.backend() == "jax"
    variables = []
    if is_jax:
        of_optimizer = model.optimizer.variables if model.optimizer else []
        variables = [*model.variables, *of_optimizer, *model.metrics_variables]
    values = [variable.value for variable in variables]
    try:
        yield
    except Exception as error:
        if is_jax:
            # Keras took the weights out of the model. Restore those of the last step.
            model.jax_state_sync()
            for variable, value in zip(variables, values):
                try:
                    variable.value  # noqa: B018
                except TypeError:  # There was no step yet, and the initializer is `None` by now.
                    variable.assign(value)
        shards = num_batch_shards()
        if shards == 1 or type(error).__name__ != "IndivisibleError":
            raise
        received = str(error).split("but ")[-1].split(" (")[0]
        raise ValueError(_RULE.format(shards=shards, received=received)) from error


def pad_to_batch_shards(x, num_rows: int):
    """Pads arrays with copies of the last row, so that the devices can share the rows evenly."""
    missing = -num_rows % num_batch_shards()
    if not missing:
        return x
    rows = np.minimum(np.arange(num_rows + missing), num_rows - 1)
    return keras.tree.map_structure(
        lambda a: None if a is None else keras.ops.convert_to_numpy(a)[rows], x
    )

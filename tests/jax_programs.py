"""Arrays and programs of JAX: their products, and devices that share their tensors."""

import contextlib

import keras
import numpy as np


def assert_close(found, expected, tolerance, together=False):
    """Compares arrays, relative to the largest number of each, or of all `together`."""
    expected = [np.asarray(x, "float32") for x in expected]
    largest = [np.abs(x).max() for x in expected]
    for one, other, scale in zip(found, expected, largest, strict=True):
        atol = tolerance * (max(largest) if together else scale)
        np.testing.assert_allclose(np.asarray(one, "float32"), other, atol=atol)


def products(jaxpr):
    """Yields the operands of each matrix product in a program, as shapes with dtypes."""
    import jax

    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield [x.aval for x in equation.invars]
        for value in jax.tree.leaves(list(equation.params.values())):
            if hasattr(value, "eqns"):
                yield from products(value)


@contextlib.contextmanager
def shared_by(devices, mode, shape=(1, 1)):
    """Lets devices share the rows ("data"), or with this shape the rows and the heads ("model")."""
    if mode == "data":
        engine = keras.distribution.DataParallel(devices=devices)
    else:
        mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
        layout = keras.distribution.LayoutMap(mesh)
        engine = keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch")
    keras.distribution.set_distribution(engine)
    try:
        yield engine.device_mesh.backend_mesh
    finally:
        keras.distribution.set_distribution(None)

"""The layout of a model over the devices that share it."""

import keras

from keras_spanbert.checks import check_in
from keras_spanbert.optional import jax

# The layout of the latest `ModelParallel` of `distribute`.
_layout_map = None


def new_layout(mesh: keras.distribution.DeviceMesh) -> keras.distribution.LayoutMap:
    """Returns a layout to which models add their variables as they are built."""
    global _layout_map
    _layout_map = keras.distribution.LayoutMap(mesh)
    return _layout_map


def add_layout(layout: dict[str, tuple]) -> None:
    """Splits variables that are made afterwards, by paths: see `keras.distribution.LayoutMap`.

    `layout` maps regular expressions to axes, one of which is `"model"`. Without model parallelism,
    or with a layout of the user's own, nothing changes.
    """
    if not shares_model():
        return
    # This library's layouts split the first dense layer of an attention or feedforward network by
    # columns and the last one by rows, so that activations are exchanged once per network.
    known = list(_layout_map)  # `in` calls `__getitem__`, which returns `None` for missing keys.
    for path, axes in layout.items():
        if path not in known:
            _layout_map[path] = axes


def shares_model() -> bool:
    """Returns whether devices share models in the layout of `distribute`, not of the user."""
    engine = keras.distribution.distribution()
    return isinstance(engine, keras.distribution.ModelParallel) and _layout_map is not None


def relayout(weight, axes: tuple):
    """Returns the value of a variable or tensor, split differently in a step than in storage.

    Its gradient and the optimizer's variables are split like the stored weight. `axes` have
    `"model"` for the axis to split, whose size need not be a multiple of the number of devices.
    """
    if not shares_model():
        return weight
    tensor = keras.ops.convert_to_tensor(weight)
    if not isinstance(tensor, jax.core.Tracer):
        return tensor  # Outside a step, a tensor's parts must have equal sizes.
    engine = keras.distribution.distribution()

    def cut(tensor, axes):
        layout = keras.distribution.TensorLayout(axes, engine.device_mesh)
        return keras.distribution.distribute_tensor(tensor, layout)

    if isinstance(weight, keras.Variable):
        # Use the mesh of the compilation, which may differ from that of the variable.
        tensor = cut(tensor, engine.get_variable_layout(weight).axes)
    return cut(tensor, axes)


def check_shards(**sizes: int) -> None:
    """Raises `ValueError` if `ModelParallel` cannot split a model of these sizes."""
    engine = keras.distribution.distribution()
    if not isinstance(engine, keras.distribution.ModelParallel):
        return
    shards = dict(zip(engine.device_mesh.axis_names, engine.device_mesh.shape)).get("model", 1)
    for name, size in sizes.items():
        rule = f"a multiple of the {shards} devices that share a model (not with mode='data')"
        check_in(name, size, size % shards == 0, rule)

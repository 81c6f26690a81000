"""How a model is cut over the devices that share it."""

import keras

# The layout of the `ModelParallel` that `distribute` set up last.
_layout_map = None


def new_layout(mesh: keras.distribution.DeviceMesh) -> keras.distribution.LayoutMap:
    """A layout that models add to as they are built."""
    global _layout_map
    _layout_map = keras.distribution.LayoutMap(mesh)
    return _layout_map


def add_layout(layout: dict[str, tuple]) -> None:
    """Has variables that are made from now on be cut by their paths.

    Columns of what fans out and rows of what fans in are cut, so that a layer
    exchanges activations once. Without model parallelism nothing changes, nor
    with a user's own.

    Args:
        layout: dict of regular expression to axes, of which one is `"model"`.
            See `keras.distribution.LayoutMap`.
    """
    if not shares_model():
        return
    known = list(_layout_map)  # `in` would ask for a layout, which is `None` and not missing.
    for path, axes in layout.items():
        if path not in known:
            _layout_map[path] = axes


def shares_model() -> bool:
    """Whether devices share models that `distribute` cuts: not with a user's own layout."""
    engine = keras.distribution.distribution()
    return isinstance(engine, keras.distribution.ModelParallel) and _layout_map is not None


def relayout(weight, axes: tuple):
    """The value of a weight, cut otherwise within a step than it is stored.

    Its gradient is cut again as the weight is, and the optimizer's variables
    with it. Without model parallelism nothing changes.

    Args:
        weight: variable, or a tensor computed of one.
        axes: tuple with `"model"` for the axis to cut, whose size need be no
            multiple of the number of devices, and else `None`.
    """
    if not shares_model():
        return weight
    import jax

    tensor = keras.ops.convert_to_tensor(weight)
    if not isinstance(tensor, jax.core.Tracer):
        return tensor  # Outside of a step a tensor's parts must be even.
    engine = keras.distribution.distribution()

    def cut(tensor, axes):
        layout = keras.distribution.TensorLayout(axes, engine.device_mesh)
        return keras.distribution.distribute_tensor(tensor, layout)

    if isinstance(weight, keras.Variable):
        # Of the mesh it is compiled for, which need not be that of the variable.
        tensor = cut(tensor, engine.get_variable_layout(weight).axes)
    return cut(tensor, axes)


def check_shards(**sizes: int) -> None:
    """Raises a ValueError where `ModelParallel` cannot cut a model of these sizes."""
    engine = keras.distribution.distribution()
    if not isinstance(engine, keras.distribution.ModelParallel):
        return
    shards = dict(zip(engine.device_mesh.axis_names, engine.device_mesh.shape)).get("model", 1)
    for name, size in sizes.items():
        if size % shards:
            raise ValueError(
                f"`{name}` must be a multiple of the {shards} devices that share a model "
                f"(mode='data' has no such limit). Received: {name}={size}"
            )

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
    engine = keras.distribution.distribution()
    if not isinstance(engine, keras.distribution.ModelParallel) or _layout_map is None:
        return
    known = list(_layout_map)  # `in` would ask for a layout, which is `None` and not missing.
    for path, axes in layout.items():
        if path not in known:
            _layout_map[path] = axes


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

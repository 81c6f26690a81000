"""The arguments of what a SavedModel serves."""


def strings(*names: str) -> list:
    """The specifications of arguments that are strings `[B]`."""
    import tensorflow as tf

    return [tf.TensorSpec([None], tf.string, name=name) for name in names]

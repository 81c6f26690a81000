"""The arguments of the functions that a SavedModel serves."""


def strings(*names: str) -> list:
    """Returns the specifications of arguments that are strings `[B]`."""
    import tensorflow as tf

    return [tf.TensorSpec([None], tf.string, name=name) for name in names]

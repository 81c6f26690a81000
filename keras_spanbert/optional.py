"""Packages that part of the library takes."""

import types


def import_tensorflow(user: str) -> types.ModuleType:
    """TensorFlow, for what cannot do without.

    Args:
        user: string. What takes it, to name in the error.

    Raises:
        ImportError: where it is not installed.
    """
    try:
        import tensorflow
    except ImportError:
        raise ImportError(
            f"{user} takes TensorFlow, which is not installed (pip install tensorflow "
            "tensorflow-text)"
        ) from None
    return tensorflow

"""Checks that Keras can load the classes of a saved object."""

import keras


def registration_hint(saved) -> str | None:
    """Explains how to register a class of an object or its parts.

    Args:
        saved: a task, backbone, preprocessor or tokenizer. Parts are its
            backbone, preprocessor and tokenizer.

    Returns:
        string, or `None` if all classes are registered.
    """
    preprocessor = getattr(saved, "preprocessor", None)
    parts = [saved, getattr(saved, "backbone", None), preprocessor]
    parts.append(getattr(preprocessor or saved, "tokenizer", None))
    for cls in [type(part) for part in parts if part is not None]:
        name = keras.saving.get_registered_name(cls)
        if keras.saving.get_registered_object(name) is None:
            return (
                "A class must be registered with Keras so that saved objects of it can be loaded. "
                'Add the line `@keras.saving.register_keras_serializable(package="my_package")` '
                f"above `class {cls.__name__}`. Received: {cls.__module__}.{cls.__name__}, which "
                "is not registered"
            )
    return None

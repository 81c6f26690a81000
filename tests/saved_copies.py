"""Copies of a model by all ways to save it."""

import pickle

import keras


def copies(model, folder) -> dict:
    """Returns a copy of a backbone or task for each way to save it, by name of the way."""
    cls = type(model)
    model.save_to_preset(folder / "preset")
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    with_weights = cls.from_preset(str(folder / "preset"), load_weights=False)
    with_weights.load_weights(folder / "model.weights.h5")
    return {
        "save_to_preset": cls.from_preset(str(folder / "preset")),
        "save": keras.models.load_model(folder / "model.keras"),
        "save_weights": with_weights,
        # `copy.deepcopy` calls the same method.
        "pickle": pickle.loads(pickle.dumps(model)),
    }

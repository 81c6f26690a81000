import importlib.util
import os
import pathlib

import pytest

try:
    import torch  # noqa: F401  (TensorFlow imported first would break it)
except ImportError:
    pass


@pytest.fixture(scope="session")
def shared_data():
    """The folder of reference data, named by KERAS_SPANBERT_DATA."""
    folder = os.environ.get("KERAS_SPANBERT_DATA")
    if not folder:
        pytest.skip("KERAS_SPANBERT_DATA does not name the folder of reference data")
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def train():
    """train.py as a module: its flags can be defined only once a process."""
    spec = importlib.util.spec_from_file_location(
        "train", pathlib.Path(__file__).parent.parent / "train.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def trained_answerer():
    """A model that answers questions; tests leave it as it is."""
    import tiny_answerer

    return tiny_answerer.train()

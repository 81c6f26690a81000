import os
import pathlib

import numpy as np
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
def texts(tmp_path_factory):
    """20 files of few words, as a glob; tests leave them as they are."""
    words = "apple berry cherry grape lemon mango melon olive peach plum".split()
    folder = tmp_path_factory.mktemp("texts")
    generator = np.random.default_rng(0)
    for i in range(20):
        sentences = [" ".join(generator.choice(words, 8)).capitalize() + "." for _ in range(6)]
        (folder / f"{i:02d}.txt").write_text("\n".join(sentences))
    return str(folder / "*.txt")


@pytest.fixture(scope="session")
def trained_answerer():
    """A model that answers questions; tests leave it as it is."""
    import tiny_answerer

    return tiny_answerer.train()

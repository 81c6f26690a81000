import pytest
import train_script  # noqa: F401  (Defines the flags.)
from absl.testing import flagsaver

from keras_spanbert.recipes.flags import FLAGS


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def flags():
    """Function that parses values of flags by name, on top of those of earlier calls."""
    with flagsaver.flagsaver():
        yield lambda **values: FLAGS(["train.py", *(f"--{k}={v}" for k, v in values.items())])

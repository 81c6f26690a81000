import os
import pathlib

try:
    import torch  # noqa: F401  (TensorFlow imported first would break it)
except ImportError:
    pass
import keras
import numpy as np
import pytest

TESTS = pathlib.Path(__file__).parent
# Folders and files of tests that no backend computes anything in, or whose code is the same on
# each and has a test of its own there. Single tests bear `@pytest.mark.once`.
ONCE = (
    "data",
    "formats/test_sources.py",
    "formats/test_vocabulary.py",
    "layers/test_span_masks.py",
    "metrics",
    "models/test_tokenizer.py",
    "recipes/test_configs.py",
    "runs/test_plots.py",
    "tasks/pretrain/test_unigram.py",
    "tasks/question_answering/test_decoding.py",
    "tasks/question_answering/test_preprocessor.py",
    "test_demo.py",
    "test_docs.py",
    "test_files.py",
    "test_floors.py",
    "test_package.py",
    "test_runner.py",
)


def pytest_collection_modifyitems(config, items):
    """Marks what runs once, and leaves it out on all backends but TensorFlow."""
    once = [TESTS / name for name in ONCE]
    for path in once:
        assert path.exists(), f"{path} is named in ONCE and not there"
    for item in items:
        if any(item.path.is_relative_to(path) for path in once):
            item.add_marker(pytest.mark.once)
    if keras.backend.backend() != "tensorflow":
        left_out = [item for item in items if item.get_closest_marker("once")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("once")]


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

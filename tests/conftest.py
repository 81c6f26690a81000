import gc
import os
import pathlib

try:
    import torch  # noqa: F401  (TensorFlow imported first would break it)
except ImportError:
    pass
import keras
import numpy as np
import pytest

from keras_spanbert import SpanBertBackbone

TESTS = pathlib.Path(__file__).parent
# Tests that run on one backend only, because they do not use the backend or because other tests
# cover the same code on each backend: folders, files and patterns. Single tests are marked with
# `@pytest.mark.once`; marks of a test itself, also `every_backend`, come before these lists.
ONCE = (
    "data", "formats", "layers/test_configs.py", "layers/test_next_sentence_pairs.py",
    "layers/test_span_masking.py", "layers/test_span_masks.py", "metrics",
    "models/test_length_batches.py", "models/test_preprocessors.py", "models/test_registration.py",
    "models/test_tokenizer.py", "recipes", "runs/test_plots.py", "tasks/classification",
    "tasks/coreference/test_page.py", "tasks/coreference/test_preprocessor.py",
    "tasks/coreference/test_resolve.py", "tasks/coreference/test_splitting.py",
    "tasks/multiple_choice", "tasks/pretrain/test_model.py", "tasks/pretrain/test_objectives.py",
    "tasks/question_answering", "tasks/relation_extraction", "tasks/test_datasets.py",
    "tasks/test_mistakes.py", "tasks/token_classification", "test_arguments.py",
    "test_benchmarks_*.py", "test_demo.py", "test_docs.py", "test_files.py", "test_floors.py",
    "test_optional.py", "test_package.py", "test_runner.py", "test_spacy.py", "test_stores.py",
    "text",
)  # fmt: skip
# Tests that run once use TensorFlow by default, and PyTorch in these files, since it does not trace
# or compile. These tests check files and messages of short training runs. Other tests train models
# and recipes on every backend. `@pytest.mark.once("tensorflow")` and `once("torch")` choose the
# backend of a single test, for example for SavedModels, which need no child process on TensorFlow.
ON_TORCH = (
    "formats", "models/test_registration.py", "models/test_source.py",
    "recipes/test_best_model.py", "recipes/test_classification.py", "recipes/test_configs.py",
    "recipes/test_coreference.py", "recipes/test_prepare.py",
    "recipes/test_relation_extraction.py", "recipes/test_stores.py",
    "recipes/test_token_classification.py", "runs/test_progress.py",
    "runs/test_training_checkpoint.py", "tasks/*/test_model.py",
    "tasks/classification/test_multi_label.py", "tasks/coreference/test_checkpoint.py",
    "tasks/coreference/test_resolve.py", "tasks/test_datasets.py", "tasks/test_mistakes.py",
    "tasks/test_models.py", "test_arguments.py", "test_benchmarks_*.py", "test_docs.py",
    "test_failed_saves.py", "test_quantization.py", "test_spacy.py", "test_stores.py",
)  # fmt: skip
# Tests that run on PyTorch by default, and on the other backends with `--long`: other tests run the
# same code on each backend. Single tests are marked with `@pytest.mark.torch_first`.
TORCH_FIRST = (
    "models/test_lora.py", "models/test_task.py", "tasks/coreference/test_documents.py",
    "tasks/coreference/test_inference.py", "tasks/coreference/test_links.py",
    "tasks/test_label_arrays.py", "tasks/test_models.py", "test_failed_saves.py",
    "test_quantization.py", "test_saving.py",
)  # fmt: skip
# Files of tests that take more than a few seconds. Single tests have `@pytest.mark.long`.
LONG = (
    "distribution/test_distribution.py", "distribution/test_several_devices.py", "gpu",
    "layers/test_on_tpu.py", "recipes/test_configs.py", "recipes/test_prepare.py",
    "recipes/test_question_answering.py", "recipes/test_relation_extraction.py",
    "recipes/test_resume.py", "recipes/test_stores.py",
    "runs/test_training_checkpoint.py",
    "serving/test_saved_model.py", "tasks/coreference/test_serving.py",
    "tasks/coreference/test_model.py", "tasks/coreference/test_reference.py", "test_demo.py",
    "test_keras_hub.py", "test_package.py",
)  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # Before `-m` selects tests.
def pytest_collection_modifyitems(config, items):
    """Marks tests that run once or are long, and deselects those that another backend runs."""
    backends = {"once", "torch_first", "every_backend"}
    chosen = {item for item in items if any(mark.name in backends for mark in item.iter_markers())}
    marks = {"once": ONCE, "on_torch": ON_TORCH, "torch_first": TORCH_FIRST, "long": LONG}
    for name, paths in marks.items():
        for pattern in paths:
            found = list(TESTS.glob(pattern))
            assert found, f"{pattern} is listed in tests/conftest.py but does not exist"
            for item in items:
                is_free = name not in backends or item not in chosen
                if is_free and any(item.path.is_relative_to(path) for path in found):
                    item.add_marker(name)
    if keras.backend.backend() != "torch":
        for item in items:
            if item.get_closest_marker("torch_first"):
                item.add_marker("long")
    left_out = [
        item for item in items if required_backend(item) not in (None, keras.backend.backend())
    ]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def required_backend(item):
    """Returns the backend of a test that runs on one backend only, or None."""
    once = item.get_closest_marker("once")
    if once is None:
        return None
    if once.args:
        return once.args[0]
    return "torch" if item.get_closest_marker("on_torch") else "tensorflow"


def pytest_collection_finish():
    """Makes collections of garbage faster: they no longer visit imported modules."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Keeps tokenized text and copies of stored files out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_SPANBERT_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def shared_data():
    """The folder of reference data, from KERAS_SPANBERT_DATA."""
    folder = os.environ.get("KERAS_SPANBERT_DATA")
    if not folder:
        pytest.skip("KERAS_SPANBERT_DATA is not set to the folder of reference data")
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def texts(tmp_path_factory):
    """Glob of 20 short text files. Tests must not change them."""
    words = "apple berry cherry grape lemon mango melon olive peach plum".split()
    folder = tmp_path_factory.mktemp("texts")
    generator = np.random.default_rng(0)
    for i in range(20):
        sentences = [" ".join(generator.choice(words, 8)).capitalize() + "." for _ in range(6)]
        (folder / f"{i:02d}.txt").write_text("\n".join(sentences))
    return str(folder / "*.txt")


@pytest.fixture(scope="module")
def one_layer():
    """Reduces the sizes to one small layer, since short runs spend most time on tracing."""
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    with pytest.MonkeyPatch.context() as patch:
        for name in ["tiny", "mini"]:
            patch.setitem(SpanBertBackbone.SIZES, name, sizes)
        yield


@pytest.fixture
def untraced(request, monkeypatch):
    """Runs models eagerly on TensorFlow, where tracing takes longer than a few steps.

    Does not apply to tests marked with `@pytest.mark.traced` or to module fixtures.
    """
    if keras.backend.backend() == "tensorflow" and not request.node.get_closest_marker("traced"):
        always = property(lambda self: True, lambda self, value: None)
        monkeypatch.setattr(keras.Model, "run_eagerly", always)


@pytest.fixture
def mixed_bfloat16():
    """Computes in bfloat16, as on a GPU."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(before)


@pytest.fixture
def without_collections(monkeypatch):
    """Keras collects garbage for each quantized layer, which would take most of the time."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


@pytest.fixture(scope="session")
def trained_answerer():
    """A question answering model. Tests must not change it."""
    import tiny_answerer

    return tiny_answerer.train()


@pytest.fixture(scope="session")
def trained_extractor():
    """A relation extraction model. Tests must not change it."""
    import tiny_extractor

    return tiny_extractor.train("ner_text")

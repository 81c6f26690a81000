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
# Folders and files of tests that no backend computes anything in, or whose code is the same on
# each and has a test of its own there. Single tests bear `@pytest.mark.once`.
ONCE = (
    "data",
    "formats/test_sources.py",
    "formats/test_vocabulary.py",
    "layers/test_span_masks.py",
    "metrics",
    "models/test_length_batches.py",
    "models/test_strings.py",
    "models/test_tokenizer.py",
    "recipes/test_checks.py",
    "recipes/test_configs.py",
    "recipes/test_estimate.py",
    "recipes/test_masking.py",
    "recipes/test_places.py",
    "recipes/test_stores.py",
    "recipes/test_sweep.py",
    "runs/test_plots.py",
    "runs/test_statistics.py",
    "tasks/classification/test_preprocessor.py",
    "tasks/coreference/test_page.py",
    "tasks/coreference/test_preprocessor.py",
    "tasks/coreference/test_replacing.py",
    "tasks/coreference/test_resolve.py",
    "tasks/coreference/test_splitting.py",
    "tasks/multiple_choice/test_preprocessor.py",
    "tasks/multiple_choice/test_serving.py",
    "tasks/pretrain/test_unigram.py",
    "tasks/question_answering/test_decoding.py",
    "tasks/question_answering/test_preprocessor.py",
    "tasks/token_classification/test_decoding.py",
    "tasks/token_classification/test_preprocessor.py",
    "tasks/token_classification/test_serving.py",
    "tasks/token_classification/test_spans.py",
    "tasks/relation_extraction/test_preprocessor.py",
    "tasks/relation_extraction/test_serving.py",
    "test_benchmarks_ablation.py",
    "test_benchmarks_gpu.py",
    "test_demo.py",
    "test_docs.py",
    "test_files.py",
    "test_floors.py",
    "test_hlo_bytes.py",
    "test_imports.py",
    "test_optional.py",
    "test_package.py",
    "test_runner.py",
    "test_spacy.py",
    "test_stores.py",
    "test_tpu_plan.py",
)
# What runs once does so on TensorFlow, or, in these, on PyTorch, which neither traces nor compiles:
# they test what is read, told and written around a short training. Models and recipes train on
# every backend in tests that do not run once. One whose SavedModel TensorFlow alone writes without
# another process bears `@pytest.mark.once("tensorflow")`, and one in another file `once("torch")`.
ON_TORCH = (
    "recipes/test_classification.py",
    "recipes/test_configs.py",
    "recipes/test_coreference.py",
    "recipes/test_multiple_choice.py",
    "recipes/test_prepare.py",
    "recipes/test_relation_extraction.py",
    "recipes/test_stores.py",
    "recipes/test_token_classification.py",
    "runs/test_checkpoint_parts.py",
    "runs/test_examples.py",
    "runs/test_progress.py",
    "runs/test_training_checkpoint.py",
    "tasks/classification/test_model.py",
    "tasks/coreference/test_model.py",
    "tasks/coreference/test_resolve.py",
    "tasks/multiple_choice/test_model.py",
    "tasks/pretrain/test_model.py",
    "tasks/question_answering/test_model.py",
    "tasks/relation_extraction/test_model.py",
    "tasks/token_classification/test_inputs.py",
    "tasks/token_classification/test_model.py",
    "test_docs.py",
    "test_stores.py",
)
# Those that take more than some seconds. Single tests bear `@pytest.mark.slow`.
SLOW = (
    "data/test_training_stream.py",
    "distribution",
    "layers/test_attention_on_tpu.py",
    "layers/test_dropout_on_tpu.py",
    "recipes/test_classification.py",
    "recipes/test_configs.py",
    "recipes/test_multiple_choice.py",
    "recipes/test_prepare.py",
    "recipes/test_question_answering.py",
    "recipes/test_relation_extraction.py",
    "recipes/test_resume.py",
    "recipes/test_stores.py",
    "recipes/test_token_classification.py",
    "runs/test_cost.py",
    "runs/test_training_checkpoint.py",
    "serving",
    "tasks/coreference/test_model.py",
    "tasks/coreference/test_reference.py",
    "tasks/multiple_choice/test_serving.py",
    "test_demo.py",
    "test_docs.py",
    "test_imports.py",
    "test_package.py",
    "test_stores.py",
)


@pytest.hookimpl(tryfirst=True)  # Before `-m` chooses.
def pytest_collection_modifyitems(config, items):
    """Marks what runs once or is slow, and leaves out what another backend runs."""
    for name, paths in [("once", ONCE), ("on_torch", ON_TORCH), ("slow", SLOW)]:
        for path in [TESTS / path for path in paths]:
            assert path.exists(), f"{path} is named in tests/conftest.py and not there"
            for item in items:
                if item.path.is_relative_to(path):
                    item.add_marker(name)
    left_out = [item for item in items if backend_of(item) not in (None, keras.backend.backend())]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def backend_of(item):
    """The one backend that a test runs on, or None."""
    once = item.get_closest_marker("once")  # The test's own mark, where it has one.
    if once is None or once.args:
        return once and once.args[0]
    return "torch" if item.get_closest_marker("on_torch") else "tensorflow"


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


@pytest.fixture(scope="module")
def one_layer():
    """Sizes are of one small layer, in this process: tracing them is most of a short run."""
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16, "intermediate_dim": 32}
    with pytest.MonkeyPatch.context() as patch:
        for name in ["tiny", "mini"]:
            patch.setitem(SpanBertBackbone.SIZES, name, sizes)
        yield


@pytest.fixture
def untraced(request, monkeypatch):
    """Models compute eagerly on TensorFlow, whose tracing takes longer than a few steps do.

    But for tests that bear `@pytest.mark.traced`, and steps of a module's fixtures.
    """
    if keras.backend.backend() == "tensorflow" and not request.node.get_closest_marker("traced"):
        always = property(lambda self: True, lambda self, value: None)
        monkeypatch.setattr(keras.Model, "run_eagerly", always)


@pytest.fixture(scope="session")
def trained_answerer():
    """A model that answers questions; tests leave it as it is."""
    import tiny_answerer

    return tiny_answerer.train()


@pytest.fixture(scope="session")
def trained_extractor():
    """A model that finds relations; tests leave it as it is."""
    import tiny_extractor

    return tiny_extractor.train("ner_text")

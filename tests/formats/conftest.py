import pytest
from bert_checkpoints import build, write


@pytest.fixture(scope="session")
def transformers():
    transformers = pytest.importorskip("transformers")
    transformers.logging.disable_progress_bar()
    return transformers


@pytest.fixture(scope="session")
def masked_lm(transformers):
    return build(transformers.BertForMaskedLM)


@pytest.fixture(scope="session")
def hf_folder(masked_lm, tmp_path_factory):
    """A Hugging Face folder with an MLM head. Tests must not change it."""
    return write(masked_lm, tmp_path_factory.mktemp("hf"))

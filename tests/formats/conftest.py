import pytest


@pytest.fixture(scope="session")
def transformers():
    transformers = pytest.importorskip("transformers")
    transformers.logging.disable_progress_bar()
    return transformers

import pytest
from tiny_chooser import train


@pytest.fixture(scope="session")
def trained_chooser():
    """A model that chooses; tests leave it as it is."""
    return train()

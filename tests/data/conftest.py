import pytest

from keras_spanbert.data import blocks, text_files


@pytest.fixture
def small_chunks(monkeypatch):
    """Makes reads, pieces and tokenizer calls small, so that a short text has many of them."""
    monkeypatch.setattr(text_files, "_READ_BYTES", 5)
    monkeypatch.setattr(text_files, "_PIECE_CHARACTERS", 16)
    monkeypatch.setattr(blocks, "_TOKENIZE_CHARACTERS", 24)

"""Corpora that are tokenized and cut into blocks once, then read at disk speed."""

from keras_spanbert.data.prepared.corpus import PreparedCorpus, is_prepared
from keras_spanbert.data.prepared.writer import prepare

__all__ = ["PreparedCorpus", "is_prepared", "prepare"]

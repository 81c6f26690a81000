"""Reads and writes the files of other libraries: settings, tensors and vocabularies."""

from keras_spanbert.formats.checkpoint import Checkpoint
from keras_spanbert.formats.sources import OPTIONS, open_checkpoint, open_source

__all__ = ["OPTIONS", "Checkpoint", "open_checkpoint", "open_source"]

"""The official scores of the data sets."""

from keras_spanbert.metrics.squad import squad

__all__ = ["squad"]

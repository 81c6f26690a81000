"""Export of models for TensorFlow Serving."""

from keras_spanbert.serving.saved_model import export_saved_model

__all__ = ["export_saved_model"]

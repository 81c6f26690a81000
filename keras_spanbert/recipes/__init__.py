"""The command-line interface: `train.py` and `spanbert-train`, with one recipe per task."""

from keras_spanbert.recipes.run import main

__all__ = ["main"]

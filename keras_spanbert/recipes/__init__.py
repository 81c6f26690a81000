"""`train.py` and `spanbert-train`: a recipe a task, flags in, files out."""

from keras_spanbert.recipes.run import main

__all__ = ["main"]

"""Readers and writers of data sets, and pretraining corpora."""

from keras_spanbert.data.choices import codah, commonsense_qa, cosmos_qa, race, swag

__all__ = ["codah", "commonsense_qa", "cosmos_qa", "race", "swag"]

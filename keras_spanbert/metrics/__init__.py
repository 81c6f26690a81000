"""The official metrics of the data sets."""

from keras_spanbert.metrics.coreference import coreference
from keras_spanbert.metrics.entities import entities
from keras_spanbert.metrics.glue import glue
from keras_spanbert.metrics.relation import relation, semeval2010_task8
from keras_spanbert.metrics.squad import squad

__all__ = ["coreference", "entities", "glue", "relation", "semeval2010_task8", "squad"]

"""SpanBERT in Keras 3: pretraining, fine-tuning and serving."""

from keras_spanbert import checkpoints, metrics, serving
from keras_spanbert.layers.span_boundary_head import SpanBoundaryHead
from keras_spanbert.layers.span_masking import SpanMasking
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.pretrainer import SpanBertPretrainer
from keras_spanbert.models.pretrainer_preprocessor import SpanBertPretrainerPreprocessor
from keras_spanbert.models.question_answerer import SpanBertQuestionAnswerer
from keras_spanbert.models.question_answerer_preprocessor import (
    SpanBertQuestionAnswererPreprocessor,
)
from keras_spanbert.models.tokenizer import SpanBertTokenizer
from keras_spanbert.training.distribution import distribute
from keras_spanbert.training.optimizer import AdamW, LinearWarmupDecay
from keras_spanbert.training.resume import TrainingCheckpoint

__version__ = "0.1.0"

__all__ = [
    "AdamW",
    "LinearWarmupDecay",
    "SpanBertBackbone",
    "SpanBertPretrainer",
    "SpanBertPretrainerPreprocessor",
    "SpanBertQuestionAnswerer",
    "SpanBertQuestionAnswererPreprocessor",
    "SpanBertTokenizer",
    "SpanBoundaryHead",
    "SpanMasking",
    "TrainingCheckpoint",
    "checkpoints",
    "distribute",
    "metrics",
    "serving",
]

"""The public names of `keras_spanbert`."""

from keras_spanbert import checkpoints, data, metrics, serving
from keras_spanbert.data import (  # noqa: F401, as keras_spanbert.data.squad
    codah,
    columns,
    commonsense_qa,
    conll,
    coreference,
    cosmos_qa,
    glue,
    linguistic_spans,
    mrqa,
    prepared,
    race,
    semeval2010,
    squad,
    swag,
    tacred,
)
from keras_spanbert.data.batches import Batches
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.prepared import PreparedCorpus
from keras_spanbert.data.training_stream import TrainingStream
from keras_spanbert.distribution import distribute
from keras_spanbert.layers.next_sentence_pairs import NextSentencePairs
from keras_spanbert.layers.span_masking import SpanMasking
from keras_spanbert.layers.tied_head import SpanBoundaryHead
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.tokenizer import SpanBertTokenizer
from keras_spanbert.runs.training_checkpoint import TrainingCheckpoint
from keras_spanbert.tasks.classification.model import SpanBertTextClassifier
from keras_spanbert.tasks.classification.preprocessor import SpanBertTextClassifierPreprocessor
from keras_spanbert.tasks.coreference.model import SpanBertCoreferenceResolver
from keras_spanbert.tasks.coreference.preprocessor import SpanBertCoreferenceResolverPreprocessor
from keras_spanbert.tasks.multiple_choice.model import SpanBertMultipleChoice
from keras_spanbert.tasks.multiple_choice.preprocessor import SpanBertMultipleChoicePreprocessor
from keras_spanbert.tasks.pretrain.model import SpanBertPretrainer
from keras_spanbert.tasks.pretrain.preprocessor import SpanBertPretrainerPreprocessor
from keras_spanbert.tasks.question_answering.model import SpanBertQuestionAnswerer
from keras_spanbert.tasks.question_answering.preprocessor import (
    SpanBertQuestionAnswererPreprocessor,
)
from keras_spanbert.tasks.relation_extraction.model import SpanBertRelationExtractor
from keras_spanbert.tasks.relation_extraction.preprocessor import (
    SpanBertRelationExtractorPreprocessor,
)
from keras_spanbert.tasks.token_classification.model import SpanBertTokenClassifier
from keras_spanbert.tasks.token_classification.preprocessor import (
    SpanBertTokenClassifierPreprocessor,
)
from keras_spanbert.training.optimizer import AdamW, LinearWarmupDecay, TwoRateAdam

ArrayStream = Batches  # The name in earlier versions.

__all__ = [
    "AdamW",
    "ArrayStream",
    "Batches",
    "Corpus",
    "LinearWarmupDecay",
    "NextSentencePairs",
    "PreparedCorpus",
    "SpanBertBackbone",
    "SpanBertCoreferenceResolver",
    "SpanBertCoreferenceResolverPreprocessor",
    "SpanBertMultipleChoice",
    "SpanBertMultipleChoicePreprocessor",
    "SpanBertPretrainer",
    "SpanBertPretrainerPreprocessor",
    "SpanBertQuestionAnswerer",
    "SpanBertQuestionAnswererPreprocessor",
    "SpanBertRelationExtractor",
    "SpanBertRelationExtractorPreprocessor",
    "SpanBertTextClassifier",
    "SpanBertTextClassifierPreprocessor",
    "SpanBertTokenClassifier",
    "SpanBertTokenClassifierPreprocessor",
    "SpanBertTokenizer",
    "SpanBoundaryHead",
    "SpanMasking",
    "TrainingCheckpoint",
    "TrainingStream",
    "TwoRateAdam",
    "checkpoints",
    "data",
    "distribute",
    "metrics",
    "serving",
]

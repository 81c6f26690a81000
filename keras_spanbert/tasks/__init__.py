"""The tasks, one folder each."""

import importlib

# The name of each task's folder here, recipe and `--task` value, and of its model class.
TASKS = {
    "pretrain": "SpanBertPretrainer",
    "question_answering": "SpanBertQuestionAnswerer",
    "coreference": "SpanBertCoreferenceResolver",
    "token_classification": "SpanBertTokenClassifier",
    "multiple_choice": "SpanBertMultipleChoice",
    # A checkpoint with a classifier that names no class is loaded with the last class that fits it.
    "classification": "SpanBertTextClassifier",
    # Only for checkpoints that name this class.
    "relation_extraction": "SpanBertRelationExtractor",
}


def model_class(task: str) -> type:
    """Imports and returns the model class of a task."""
    return getattr(importlib.import_module(f"keras_spanbert.tasks.{task}.model"), TASKS[task])

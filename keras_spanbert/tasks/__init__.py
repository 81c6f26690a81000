"""The tasks, one folder each."""

import importlib

# The name of each task's folder here, recipe and `--task` value, and of its model class.
TASKS = {
    "pretrain": "SpanBertPretrainer",
    "question_answering": "SpanBertQuestionAnswerer",
    "coreference": "SpanBertCoreferenceResolver",
    "token_classification": "SpanBertTokenClassifier",
    "multiple_choice": "SpanBertMultipleChoice",
    # If a checkpoint's settings name no class, the last of these whose head it has is used.
    "classification": "SpanBertTextClassifier",
    # Only for checkpoints with settings of this class.
    "relation_extraction": "SpanBertRelationExtractor",
}


def model_class(task: str) -> type:
    """Imports and returns the model class of a task."""
    return getattr(importlib.import_module(f"keras_spanbert.tasks.{task}.model"), TASKS[task])

"""The tasks: what each has of its own, a folder each."""

import importlib

# Each task's folder here, recipe and `--task` value, and the name of its model's class.
TASKS = {
    "pretrain": "SpanBertPretrainer",
    "question_answering": "SpanBertQuestionAnswerer",
    "coreference": "SpanBertCoreferenceResolver",
    "token_classification": "SpanBertTokenClassifier",
    "multiple_choice": "SpanBertMultipleChoice",
    # Of checkpoints with a classifier that name no class, the last one that takes them.
    "classification": "SpanBertTextClassifier",
    # It takes those alone that say they are its own.
    "relation_extraction": "SpanBertRelationExtractor",
}


def model_class(task: str) -> type:
    """The class of a task's model, imported when it is asked for."""
    return getattr(importlib.import_module(f"keras_spanbert.tasks.{task}.model"), TASKS[task])

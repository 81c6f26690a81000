"""Reads the JSON files of a keras-hub preset without loading it."""

import os

import keras

from keras_spanbert.files import read_json


def is_preset(folder: str) -> bool:
    """Returns whether a folder is a keras-hub preset, not a Hugging Face folder."""
    return "class_name" in _read(folder, "config.json")


def task_class(folder: str) -> str | None:
    """Returns the name of the task class that a preset was saved as, `None` for a backbone."""
    return _read(folder, "task.json").get("class_name")


def task_arguments(folder: str) -> dict:
    """Returns the arguments of the task that a preset was saved as."""
    return _read(folder, "task.json").get("config", {})


def registered_task(folder: str) -> type | None:
    """Returns the class of a preset's task, or `None` if Keras finds none."""
    return _registered(folder, "task.json")


def registered_backbone(folder: str) -> type | None:
    """Returns the class of a preset's backbone, or `None` if Keras finds none."""
    return _registered(folder, "config.json")


def registered_preprocessor(folder: str) -> type | None:
    """Returns the class of a preset's preprocessor, or `None` if Keras finds none."""
    return _registered(folder, "preprocessor.json")


def backbone_class(folder: str) -> str | None:
    """Returns the name of a preset's backbone class."""
    return _read(folder, "config.json").get("class_name")


def has_pooled_output(folder: str) -> bool:
    """Returns whether a preset's backbone has a pooler."""
    return _read(folder, "config.json").get("config", {}).get("pooled_output", False)


def has_tokenizer(folder: str) -> bool:
    """Returns whether a preset has a tokenizer."""
    return os.path.isfile(os.path.join(folder, "tokenizer.json"))


def limits(folder: str) -> dict:
    """Returns a preset's maximum sequence length, named as in `transformers.BertConfig`."""
    config = _read(folder, "config.json").get("config", {})
    return {"max_position_embeddings": config.get("max_sequence_length", 512)}


def block_length(folder: str) -> int | None:
    """Returns the length of the blocks of a pretrainer's preset, `None` for other presets."""
    preprocessor = _read(folder, "preprocessor.json")
    is_pretrainer = preprocessor.get("class_name") == "SpanBertPretrainerPreprocessor"
    return preprocessor["config"].get("sequence_length") if is_pretrainer else None


def dtype_policy(folder: str, class_name: str) -> str | dict:
    """Returns the dtype policy for a preset: the global one, or the saved one if quantized.

    keras-hub's default fails on models that were saved with a mixed policy, and does
    not support quantized layers in heads.
    """
    task = _read(folder, "task.json")
    config = task["config"]["backbone"] if task.get("class_name") == class_name else None
    config = config or _read(folder, "config.json")
    saved = config.get("config", {}).get("dtype")
    return saved if _is_map(saved) else keras.config.dtype_policy().name


def is_quantized(folder: str) -> bool:
    """Returns whether a preset has quantized layers."""
    config = _read(folder, "task.json").get("config", {}).get("backbone")
    config = config or _read(folder, "config.json")
    return _is_map(config.get("config", {}).get("dtype"))


def _is_map(policy):
    return isinstance(policy, dict) and policy.get("class_name") == "DTypePolicyMap"


def _registered(folder, file):
    name = _read(folder, file).get("registered_name")
    return None if name is None else keras.saving.get_registered_object(name)


def _read(folder, name):
    path = os.path.join(folder, name)
    # `folder` may be a keras-hub handle, and a preset may lack the file.
    return read_json(path) if os.path.isfile(path) else {}

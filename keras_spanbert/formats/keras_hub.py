"""What a keras-hub preset's JSON files say of it, without loading it."""

import os

import keras

from keras_spanbert.files import read_json


def is_preset(folder: str) -> bool:
    """Whether a folder is a preset, and not one of Hugging Face's, which has a config.json too."""
    return "class_name" in _read(folder, "config.json")


def task_class(folder: str) -> str | None:
    """Name of the task class that a preset was saved as, `None` where it is of a backbone."""
    return _read(folder, "task.json").get("class_name")


def task_arguments(folder: str) -> dict:
    """The arguments of the task that a preset was saved as."""
    return _read(folder, "task.json").get("config", {})


def registered_task(folder: str) -> type | None:
    """The task class itself that a preset was saved as, `None` where Keras knows none."""
    name = _read(folder, "task.json").get("registered_name")
    return None if name is None else keras.saving.get_registered_object(name)


def backbone_class(folder: str) -> str | None:
    """Name of a preset's backbone class."""
    return _read(folder, "config.json").get("class_name")


def preprocessor_class(folder: str) -> str | None:
    """Name of a preset's preprocessor class, `None` where it has none."""
    return _read(folder, "preprocessor.json").get("class_name")


def has_tokenizer(folder: str) -> bool:
    """Whether a preset has a tokenizer."""
    return os.path.isfile(os.path.join(folder, "tokenizer.json"))


def limits(folder: str) -> dict:
    """A preset's longest input, by the name that `transformers.BertConfig` has for it."""
    config = _read(folder, "config.json").get("config", {})
    return {"max_position_embeddings": config.get("max_sequence_length", 512)}


def dtype_policy(folder: str, class_name: str) -> str | dict:
    """The dtype policy for a class's model of a preset: Keras's, or the saved one if quantized.

    keras-hub's own default fails on what was saved with a mixed policy, and
    knows no quantized layers of heads.
    """
    task = _read(folder, "task.json")
    config = task["config"]["backbone"] if task.get("class_name") == class_name else None
    config = config or _read(folder, "config.json")
    saved = config.get("config", {}).get("dtype")
    is_quantized = isinstance(saved, dict) and saved.get("class_name") == "DTypePolicyMap"
    return saved if is_quantized else keras.config.dtype_policy().name


def _read(folder, name):
    path = os.path.join(folder, name)
    # Of another library's handle, or a preset without it, there is nothing to read.
    return read_json(path) if os.path.isfile(path) else {}

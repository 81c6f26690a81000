"""What the preprocessors share."""

import json
import os

import keras_hub

from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.tokenizer import SpanBertTokenizer


class SpanBertPreprocessor(keras_hub.models.Preprocessor):
    """A preprocessor that loads from presets and from other libraries' checkpoints."""

    backbone_cls = SpanBertBackbone
    tokenizer_cls = SpanBertTokenizer

    @classmethod
    def from_preset(cls, preset, **kwargs):
        """Loads a preset's preprocessor, or one for a checkpoint's vocabulary.

        Args:
            preset: string. See `SpanBertBackbone.from_preset`.
            **kwargs: arguments of the class in place of the preset's; for
                checkpoints also `vocabulary`, a file, and for fairseq's
                `num_heads`.

        Returns:
            The preprocessor.

        Raises:
            ValueError: where `preset` is none of these, damaged or without
                vocabulary.

        Example:
        ```python
        preprocessor = keras_spanbert.SpanBertPretrainerPreprocessor.from_preset(
            "spanbert_hf_base.tar.gz", sequence_length=128
        )
        ```
        """
        from keras_spanbert.checkpoints import sources

        source = sources.open_source(preset, **sources.pop_options(kwargs))
        if isinstance(source, str):
            if not is_of(cls, source):
                kwargs = {**cls.arguments_for(_limits(source)), **kwargs}
            return super().from_preset(source, **kwargs)
        return source.preprocessor(cls, **kwargs)

    @classmethod
    def arguments_for(cls, config):
        """Arguments that fit a checkpoint's settings, those of `transformers.BertConfig`."""
        return {"sequence_length": min(512, config["max_position_embeddings"])}


def is_of(cls, folder):
    """Whether a preset has a preprocessor of this class."""
    return _read(folder, "preprocessor.json").get("class_name") == cls.__name__


def _limits(folder):
    config = _read(folder, "config.json").get("config", {})
    return {"max_position_embeddings": config.get("max_sequence_length", 512)}


def _read(folder, name):
    path = os.path.join(folder, name)
    if not os.path.isfile(path):  # Another library's handle, or a preset without it.
        return {}
    with open(path, encoding="utf-8") as file:
        return json.load(file)

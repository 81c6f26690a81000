"""What the preprocessors share."""

import keras_hub

from keras_spanbert.formats import keras_hub as presets
from keras_spanbert.models.backbone import SpanBertBackbone
from keras_spanbert.models.from_preset import FromPreset
from keras_spanbert.models.tokenizer import SpanBertTokenizer


class SpanBertPreprocessor(FromPreset, keras_hub.models.Preprocessor):
    """A preprocessor that loads from presets and from other libraries' checkpoints."""

    backbone_cls = SpanBertBackbone
    tokenizer_cls = SpanBertTokenizer

    @classmethod
    def from_keras_hub(cls, preset: str, **kwargs):
        """Loads a keras-hub preset's preprocessor, or one that fits its backbone."""
        if presets.preprocessor_class(preset) != cls.__name__:
            kwargs = {**cls.arguments_for(presets.limits(preset)), **kwargs}
        return super().from_keras_hub(preset, **kwargs)

    @classmethod
    def from_checkpoint(cls, checkpoint, **kwargs):
        """One for a `formats.Checkpoint`'s vocabulary and limits: see `from_preset`."""
        kwargs = {**cls.arguments_for(checkpoint.config), **kwargs}
        if "tokenizer" not in kwargs:
            kwargs["tokenizer"] = SpanBertTokenizer.from_checkpoint(checkpoint)
        return cls(**kwargs)

    @classmethod
    def arguments_for(cls, settings: dict) -> dict:
        """Arguments that fit the settings of a `transformers.BertConfig`."""
        return {"sequence_length": min(512, settings["max_position_embeddings"])}

    @classmethod
    def arguments_for_length(cls, sequence_length: int) -> dict:
        """Other arguments that fit inputs of this length: the released ones, less in short ones."""
        return {}

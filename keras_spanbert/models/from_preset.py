"""Loading of presets and of other libraries' checkpoints, for every class that has it."""

import tempfile

from keras_spanbert import formats, stores


class FromPreset:
    """`from_preset` for keras-hub's presets and for checkpoints; `save_to_preset` to stores too.

    A class says what it makes of a checkpoint (`from_checkpoint`), and may say
    what it makes of a keras-hub preset (`from_keras_hub`).
    """

    @classmethod
    def from_preset(cls, preset: str, load_weights: bool | None = None, **kwargs):
        """Loads a preset or another library's checkpoint.

        A head that it lacks starts fresh, and the log says so.

        Args:
            preset: string. A keras-hub preset, a checkpoint of Hugging Face,
                fairseq or Google's BERT, an archive of one, in a folder or a
                store (`s3://...`), or `hf://owner/name`. See
                `keras_spanbert.checkpoints`.
            load_weights: bool, of backbones and tasks. Defaults to `True`.
            **kwargs: arguments of the class in place of the preset's; of
                backbones and tasks also `dtype`, by default Keras's dtype
                policy; for checkpoints also `vocabulary`, a file, and for
                fairseq's `num_heads`.

        Returns:
            An object of the class.

        Raises:
            ValueError: where `preset` is none of these, damaged, or, for a
                tokenizer or preprocessor, without vocabulary.

        Example:
        ```python
        backbone = keras_spanbert.SpanBertBackbone.from_preset("spanbert_hf_base.tar.gz")
        pretrainer = keras_spanbert.SpanBertPretrainer.from_preset("saved_models/pretrain")
        ```
        """
        options = {name: kwargs.pop(name) for name in formats.OPTIONS if name in kwargs}
        if load_weights is not None:
            kwargs["load_weights"] = load_weights
        source = formats.open_source(preset, **options)
        if isinstance(source, formats.Checkpoint):
            return cls.from_checkpoint(source, **kwargs)
        return cls.from_keras_hub(source, **kwargs)

    @classmethod
    def from_keras_hub(cls, preset: str, **kwargs):
        """Loads a keras-hub preset: see `from_preset`."""
        return super().from_preset(preset, **kwargs)

    def save_to_preset(self, preset_dir: str, *args, **kwargs) -> None:
        """Saves a preset to a folder, or to one of a store, where it is whole or none."""
        if not stores.is_store(preset_dir):
            super().save_to_preset(preset_dir, *args, **kwargs)
            return
        with tempfile.TemporaryDirectory(prefix="keras_spanbert-") as folder:
            super().save_to_preset(folder, *args, **kwargs)
            stores.put_folder(folder, preset_dir)

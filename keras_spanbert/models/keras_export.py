"""Keras's own export of a model, and what to do where it fails."""

import keras


class KerasExport:
    """`keras.Model.export`, whose errors name what exports on every backend."""

    def export(self, filepath, format: str = "tf_saved_model", **kwargs) -> None:
        """Exports the model from arrays to logits: see `keras.Model.export`.

        `keras_spanbert.serving.export_saved_model` exports it from strings to
        answers, on every backend.

        Args:
            filepath: string. Where to write.
            format: string. See `keras.Model.export`. Defaults to
                `"tf_saved_model"`: on TensorFlow of arrays of any length, on JAX
                where `input_signature` fixes the length, not on PyTorch.
            **kwargs: see `keras.Model.export`.

        Raises:
            ValueError: where Keras cannot export the model so.

        Example:
        ```python
        names = ["token_ids", "segment_ids", "padding_mask"]
        spec = {n: keras.InputSpec(shape=(None, 12), dtype="int32", name=n) for n in names}
        backbone.export("exported", input_signature=[spec])
        ```
        """
        try:
            super().export(filepath, format=format, **kwargs)
        except OSError:  # As of a full disk.
            raise
        except Exception as error:
            backend = keras.backend.backend()
            advice = ""
            if backend == "jax" and kwargs.get("input_signature") is None:
                advice = (
                    "On JAX, `input_signature` must fix the length of the arrays, as in "
                    "`help(model.export)`. "
                )
            raise ValueError(
                f"Keras cannot export a {type(self).__name__} so. {advice}"
                "`keras_spanbert.serving.export_saved_model(model, path)` exports it from strings "
                f"on every backend. Received: format={format!r} on {backend}, where Keras says: "
                f"{type(error).__name__}: {error}"
            ) from error

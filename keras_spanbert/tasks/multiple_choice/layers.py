"""Layers before and after the encoder, which encodes each choice as a sequence."""

import keras
from keras import ops

# N = questions, C = choices, L = tokens of a sequence.

# The logit of padding. Its probability is 0, and the loss stays finite.
NO_CHOICE = -1e9


@keras.saving.register_keras_serializable(package="keras_spanbert")
class ChoicesAsRows(keras.layers.Layer):
    """Flattens the choices of all questions to rows of the encoder.

    Call arguments:
        inputs: dict of int `[N, C, L]`, or `None` for an optional input.

    Returns:
        Dict of int `[N * C, L]`, or `None`.
    """

    def call(self, inputs):
        return {
            name: None if x is None else ops.reshape(x, (-1, ops.shape(x)[2]))
            for name, x in inputs.items()
        }

    def compute_output_spec(self, inputs):
        return {
            name: keras.KerasTensor((None, x.shape[-1]), dtype=x.dtype)
            for name, x in inputs.items()
        }

    def get_config(self):  # Keras requires one if a dtype policy is given.
        return super().get_config()


@keras.saving.register_keras_serializable(package="keras_spanbert")
class ChoiceLogits(keras.layers.Layer):
    """Reshapes the scores of rows to logits of questions. Padding gets -1e9.

    Computes in float32 or a wider dtype.

    Call arguments:
        inputs: dict of `scores`, float `[N * C, 1]`; `token_ids`, int
            `[N, C, L]`; `choice_mask`, int or bool `[N, C]`, or `None` for all ones.

    Returns:
        float `[N, C]`.
    """

    def call(self, inputs):
        scores = inputs["scores"]
        dtype = keras.backend.result_type(scores.dtype, "float32")
        shape = ops.shape(inputs["token_ids"])[:2]
        logits = ops.reshape(ops.cast(scores, dtype), shape)
        mask = inputs.get("choice_mask")
        if mask is None:
            return logits
        return ops.where(ops.cast(mask, "bool"), logits, ops.cast(NO_CHOICE, dtype))

    def compute_output_spec(self, inputs):
        dtype = keras.backend.result_type(inputs["scores"].dtype, "float32")
        return keras.KerasTensor(inputs["token_ids"].shape[:2], dtype=dtype)

    def get_config(self):
        return super().get_config()

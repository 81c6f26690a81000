"""The layers around the encoder: each choice is a sequence of its own."""

import keras
from keras import ops

# N = questions, C = choices, L = tokens of a sequence.

# The logit of what is no choice: its probability is 0, and no loss of a question infinite.
NO_CHOICE = -1e9


@keras.saving.register_keras_serializable(package="keras_spanbert")
class ChoicesAsRows(keras.layers.Layer):
    """The choices of all questions, one after another, as the encoder's rows.

    Call arguments:
        inputs: dict of int `[N, C, L]`, or `None` where there is none.

    Returns:
        Dict of int `[N * C, L]`, or `None` likewise.
    """

    def call(self, inputs):
        return {name: None if x is None else _as_rows(x) for name, x in inputs.items()}

    def compute_output_spec(self, inputs):
        return {
            name: keras.KerasTensor((None, x.shape[-1]), dtype=x.dtype)
            for name, x in inputs.items()
        }

    def get_config(self):  # Keras asks for one where a dtype policy is given.
        return super().get_config()


@keras.saving.register_keras_serializable(package="keras_spanbert")
class ChoiceLogits(keras.layers.Layer):
    """The scores of rows as each question's, those of no choice far below the others.

    Computes in float32 at least.

    Call arguments:
        inputs: dict of `scores`, float `[N * C, 1]`; `token_ids`, int
            `[N, C, L]`; `choice_mask`, int or bool `[N, C]`, or `None`, all ones.

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


def _as_rows(x):
    return ops.reshape(x, (-1, ops.shape(x)[2]))

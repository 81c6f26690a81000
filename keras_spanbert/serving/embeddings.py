"""Encoder embeddings of texts, as graph code."""

from keras_spanbert.serving.row_batches import trim_padding
from keras_spanbert.text.strings import as_strings
from keras_spanbert.text.tokens import Part, token_rows, tokenize_texts


def embeddings(backbone, tokenizer, longest: int):
    """Returns the function that a SavedModel of an encoder serves. It takes `text`, strings `[B]`.

    Texts are cut to `longest` tokens, including `[CLS]` and `[SEP]`.
    """
    import tensorflow as tf
    import tensorflow.experimental.numpy as tnp

    def serve(text):
        tokens = tokenize_texts(tokenizer, as_strings("text", text), with_offsets=True)
        part = Part(tokens.ids, tokens.starts, tf.minimum(tokens.sizes, longest - 2))
        inputs, [(is_inside, token)] = token_rows(tnp, [part], longest, tokenizer)
        offsets = tf.where(is_inside[:, :, None], tf.gather(tokens.offsets, token), -1)
        inputs = trim_padding({**inputs, "offsets": offsets})
        offsets = inputs.pop("offsets")
        outputs = backbone(inputs, training=False)
        if not isinstance(outputs, dict):
            outputs = {"sequence_output": outputs}
        outputs = {name: tf.cast(x, tf.float32) for name, x in outputs.items()}
        return {
            "embeddings": outputs.pop("sequence_output"),
            **outputs,
            "token_ids": inputs["token_ids"],
            "padding_mask": inputs["padding_mask"],
            "offsets": offsets,
        }

    return serve

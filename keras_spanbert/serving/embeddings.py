"""Encoder embeddings of texts, as graph code."""

from keras_spanbert.models.graph_tokens import tokenize_with_offsets


def embeddings(backbone, tokenizer, longest: int):
    """Returns the function that a SavedModel of an encoder serves. It takes `text`, strings `[B]`.

    Args:
        backbone: `SpanBertBackbone`.
        tokenizer: `SpanBertTokenizer`.
        longest: int. The number of tokens, including `[CLS]` and `[SEP]`, to
            which texts are cut.
    """
    import tensorflow as tf

    def serve(text):
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")
        tokens = tokenize_with_offsets(tokenizer, text)

        def rows(values, first, last):
            """Returns rows of `[CLS]`, tokens and `[SEP]`, padded to the longest row."""
            values = tf.RaggedTensor.from_row_lengths(values, tokens.sizes, validate=False)
            values = values[:, : longest - 2]
            ones = tf.ones([tf.size(text), 1, *values.shape[2:]], values.dtype)
            return tf.concat([first * ones, values, last * ones], axis=1)

        ids = rows(tokens.ids, tokenizer.cls_token_id, tokenizer.sep_token_id)
        padding_mask = tf.ones_like(ids).to_tensor(0)
        token_ids = ids.to_tensor(tokenizer.pad_token_id)
        inputs = {
            "token_ids": token_ids,
            "segment_ids": tf.zeros_like(token_ids),
            "padding_mask": padding_mask,
        }
        offsets = rows(tf.cast(tokens.offsets, tf.int32), -1, -1)
        outputs = backbone(inputs, training=False)
        if not isinstance(outputs, dict):
            outputs = {"sequence_output": outputs}
        outputs = {name: tf.cast(x, tf.float32) for name, x in outputs.items()}
        return {
            "embeddings": outputs.pop("sequence_output"),
            **outputs,
            "token_ids": token_ids,
            "padding_mask": padding_mask,
            "offsets": offsets.to_tensor(-1),
        }

    return serve

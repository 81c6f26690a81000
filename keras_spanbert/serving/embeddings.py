"""Texts to the encoder's embeddings, as graph code."""

from keras_spanbert.serving.tokenization import GraphTokenizer


def embeddings(backbone, tokenizer, longest: int):
    """The function of `text`, strings `[B]`, that a SavedModel of an encoder serves.

    Args:
        backbone: `SpanBertBackbone`.
        tokenizer: `SpanBertTokenizer`.
        longest: int. Texts are cut there, in tokens, `[CLS]` and `[SEP]`
            included.
    """
    import tensorflow as tf

    tokenize = GraphTokenizer(tokenizer)

    def serve(text):
        tokens = tokenize(tf.strings.unicode_transcode(text, "UTF-8", "UTF-8"))

        def rows(values, first, last):
            """`[CLS]` tokens `[SEP]`, to the end of the longest row."""
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
        return {
            "embeddings": tf.cast(backbone(inputs, training=False), tf.float32),
            "token_ids": token_ids,
            "padding_mask": padding_mask,
            "offsets": offsets.to_tensor(-1),
        }

    return serve

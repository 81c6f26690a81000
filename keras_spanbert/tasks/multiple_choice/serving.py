"""Questions with choices to the numbers of choices, as graph code."""

from keras_spanbert.serving.pairs import GraphPairs
from keras_spanbert.serving.row_batches import outputs_by_length


def chosen(model) -> dict:
    """The functions of questions and choices that a SavedModel serves.

    Args:
        model: `SpanBertMultipleChoice` with preprocessor.

    Returns:
        Dict of signature to function and specifications: `serving_default` of
        `prompt`, strings `[B]`, and `choices`, strings `[B, C]`, `""` for no
        choice; `contexts` of these and of `context`, strings `[B]`, `""` for none.
    """
    import tensorflow as tf

    to_rows = GraphPairs(model.preprocessor)

    def scores_of(rows):
        return model({name: x[:, None, :] for name, x in rows.items()}, training=False)

    def serve_contexts(context, prompt, choices):
        tf.debugging.assert_equal(tf.size(prompt), tf.shape(choices)[0], "Not as many choices")
        is_choice = tf.strings.length(choices) > 0  # [B, C]
        places = tf.where(is_choice)  # [R, 2], of R choices.
        context, prompt = tf.gather(context, places[:, 0]), tf.gather(prompt, places[:, 0])
        choice = tf.gather_nd(choices, places)
        has_context, has_prompt = tf.strings.length(context) > 0, tf.strings.length(prompt) > 0
        first = tf.where(has_context, context, prompt)
        is_joined = has_context & has_prompt
        second = tf.where(is_joined, tf.strings.join([prompt, choice], " "), choice)
        found = outputs_by_length(scores_of, to_rows(first, second), 1)[:, 0]  # [R]
        shape = tf.shape(choices, tf.int64)
        logits = tf.tensor_scatter_nd_update(tf.fill(shape, -float("inf")), places, found)
        has_choices = tf.reduce_any(is_choice, axis=1)
        # The softmax of minus infinities is none.
        scores = tf.where(is_choice, tf.nn.softmax(logits, axis=1), 0.0)
        # One more, as there may be none.
        padded = tf.pad(logits, [[0, 0], [0, 1]], constant_values=-float("inf"))
        best = tf.argmax(padded, axis=1, output_type=tf.int32)
        return {"choice": tf.where(has_choices, best, -1), "scores": scores}

    def serve(prompt, choices):
        return serve_contexts(tf.zeros_like(prompt), prompt, choices)

    texts = [tf.TensorSpec([None], tf.string, name=name) for name in ["context", "prompt"]]
    choices = tf.TensorSpec([None, None], tf.string, name="choices")
    return {
        "serving_default": (serve, [texts[1], choices]),
        "contexts": (serve_contexts, [*texts, choices]),
    }

"""Serving functions that choose answers, as graph code."""

from keras_spanbert.serving.row_batches import outputs_by_length


def choice_serving_functions(model) -> dict:
    """Returns the functions that a SavedModel serves, with their input specs, by signature name.

    `serving_default` takes `prompt`, strings `[B]`, and `choices`, strings `[B, C]`, padded
    with `""`. `contexts` also takes `context`, strings `[B]`, `""` for no context.
    """
    import tensorflow as tf

    preprocessor = model.preprocessor

    def compute_scores(rows):
        return model({name: x[:, None, :] for name, x in rows.items()}, training=False)

    def serve_contexts(context, prompt, choices):
        inputs = preprocessor.inputs(prompt, choices, context)
        is_choice = inputs.pop("choice_mask") > 0  # [B, C]
        places = tf.where(is_choice)  # [R, 2], for R choices.
        rows = {name: tf.boolean_mask(x, is_choice) for name, x in inputs.items()}
        found = outputs_by_length(compute_scores, rows, [1])[:, 0]  # [R]
        shape = tf.shape(choices, tf.int64)
        logits = tf.tensor_scatter_nd_update(tf.fill(shape, -float("inf")), places, found)
        has_choices = tf.reduce_any(is_choice, axis=1)
        # The softmax of only minus infinities is nan.
        scores = tf.where(is_choice, tf.nn.softmax(logits, axis=1), 0.0)
        # One more column, because there may be none.
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

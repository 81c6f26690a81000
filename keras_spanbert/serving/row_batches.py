"""A model over many rows, some of like length at a time, as graph code."""

from collections.abc import Callable

# Rows that the model sees at once: a bound on memory, and little of them is padding.
ROWS_AT_ONCE = 32


def cut_to_longest(inputs: dict) -> dict:
    """Inputs `[N, L]` without what is padding in all rows; of no rows one token is left."""
    import tensorflow as tf

    sizes = tf.reduce_sum(inputs["padding_mask"], axis=1)
    longest = tf.maximum(tf.reduce_max(sizes), 1)
    return {name: array[:, :longest] for name, array in inputs.items()}


def outputs_by_length(apply: Callable, inputs: dict, num_outputs: int):
    """What a model gives for rows.

    Args:
        apply: function of inputs `[n, l]`, which returns float `[n, num_outputs]`.
        inputs: dict of `token_ids`, `segment_ids` and `padding_mask`, `[N, L]`.
        num_outputs: int.

    Returns:
        float32 `[N, num_outputs]`.
    """
    import tensorflow as tf

    sizes = tf.reduce_sum(inputs["padding_mask"], axis=1)
    order = tf.argsort(sizes, stable=True)
    num_steps = -(-tf.size(order) // ROWS_AT_ONCE)

    def step(i, outputs):
        rows = order[i * ROWS_AT_ONCE : (i + 1) * ROWS_AT_ONCE]
        longest = tf.gather(sizes, rows[-1])
        batch = {name: tf.gather(x, rows)[:, :longest] for name, x in inputs.items()}
        return i + 1, outputs.write(i, tf.cast(apply(batch), tf.float32))

    outputs = tf.TensorArray(
        tf.float32, num_steps, infer_shape=False, element_shape=[None, num_outputs]
    )
    _, outputs = tf.while_loop(
        lambda i, _: i < num_steps, step, [0, outputs], parallel_iterations=1
    )
    return tf.gather(outputs.concat(), tf.math.invert_permutation(order))

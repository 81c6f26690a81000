"""Runs a model on many rows in batches of similar length, as graph code."""

from collections.abc import Callable


def trim_padding(inputs: dict) -> dict:
    """Cuts off columns of inputs `[N, L]` that are padding in all rows, but keeps at least one."""
    import tensorflow as tf

    sizes = tf.reduce_sum(inputs["padding_mask"], axis=1)
    longest = tf.maximum(tf.reduce_max(sizes), 1)
    return {name: array[:, :longest] for name, array in inputs.items()}


def outputs_by_length(apply: Callable, inputs: dict, shape: list[int], batch_size: int = 32):
    """Returns the outputs of a model for rows, float32 `[N, *shape]`.

    `apply` takes `inputs` `[n, l]` and returns float `[n, *shape]`. `inputs` are `[N, L]`. The
    batch size limits memory and padding.
    """
    import tensorflow as tf

    sizes = tf.reduce_sum(inputs["padding_mask"], axis=1)
    order = tf.argsort(sizes, stable=True)
    num_steps = -(-tf.size(order) // batch_size)

    def step(i, outputs):
        rows = order[i * batch_size : (i + 1) * batch_size]
        longest = tf.gather(sizes, rows[-1])
        batch = {name: tf.gather(x, rows)[:, :longest] for name, x in inputs.items()}
        return i + 1, outputs.write(i, tf.cast(apply(batch), tf.float32))

    outputs = tf.TensorArray(tf.float32, num_steps, infer_shape=False, element_shape=[None, *shape])
    _, outputs = tf.while_loop(
        lambda i, _: i < num_steps, step, [0, outputs], parallel_iterations=1
    )
    return tf.gather(outputs.concat(), tf.math.invert_permutation(order))


def window_logits(model, windows: dict, num_labels: int, logits: Callable):
    """Returns logits float32 `[W, L, C]` of windows. Those at padding have no meaning.

    `logits` takes the model's outputs for some windows and returns `[windows, tokens, C]`.
    """
    import tensorflow as tf

    length = windows["token_ids"].shape[1]
    inputs = {name: windows[name] for name in ["token_ids", "segment_ids", "padding_mask"]}

    def apply(batch):
        values = logits(model(batch, training=False))
        return tf.pad(values, [[0, 0], [0, length - tf.shape(values)[1]], [0, 0]])

    return outputs_by_length(apply, inputs, [length, num_labels], batch_size=16)

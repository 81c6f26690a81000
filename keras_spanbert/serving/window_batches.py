"""Windows through a model in graph code, some of like length at a time: little is padding."""

from collections.abc import Callable

_WINDOWS_AT_ONCE = 16
_INPUTS = ("token_ids", "segment_ids", "padding_mask")


def logits_of_windows(model, windows: dict, num_labels: int, logits: Callable):
    """Logits float32 `[W, L, C]` of windows; those of padding are of no meaning.

    Args:
        model: a task.
        windows: dict of the model's inputs, int32 `[W, L]`, and others.
        num_labels: int, C.
        logits: function of the model's outputs, which returns `[windows, tokens, C]`.
    """
    import tensorflow as tf

    length = windows["token_ids"].shape[1]
    sizes = tf.reduce_sum(windows["padding_mask"], axis=1)
    order = tf.argsort(sizes, stable=True)
    num_windows = tf.size(order)

    def some(first):
        rows = order[first : first + _WINDOWS_AT_ONCE]
        longest = tf.gather(sizes, rows[-1])
        inputs = {name: tf.gather(windows[name], rows)[:, :longest] for name in _INPUTS}
        values = tf.cast(logits(model(inputs, training=False)), tf.float32)
        return tf.pad(values, [[0, 0], [0, length - longest], [0, 0]])

    def step(i, found):
        return i + 1, found.write(i, some(i * _WINDOWS_AT_ONCE))

    num_steps = -(-num_windows // _WINDOWS_AT_ONCE)
    found = tf.TensorArray(
        tf.float32, num_steps, infer_shape=False, element_shape=[None, length, num_labels]
    )
    _, found = tf.while_loop(lambda i, _: i < num_steps, step, [0, found], parallel_iterations=1)
    return tf.gather(found.concat(), tf.math.invert_permutation(order))

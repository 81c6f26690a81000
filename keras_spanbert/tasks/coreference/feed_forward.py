"""A feed-forward network with one output."""

import keras
from keras import ops

from keras_spanbert.tasks.coreference.span_layers import WeightedLayer


class FeedForward(WeightedLayer):
    """A feed-forward network with one output, whose input may be given in parts.

    The first product of a concatenation is the sum of its parts' products. So a
    part that many inputs share, such as a span in all its pairs, is multiplied
    once. Parts that no inputs share are best given together: each product makes
    an array as large as the hidden layer's.

    Args:
        sizes: list of ints, the sizes of the input's parts.
        ffnn_size: int, of hidden layers.
        ffnn_depth: int, their number.
        **kwargs: of `WeightedLayer`.

    Call arguments:
        projected: float `[..., ffnn_size]`, the sum of `project` of the parts.

    Returns:
        float32 `[...]`.
    """

    def __init__(self, sizes, ffnn_size: int, ffnn_depth: int, **kwargs):
        super().__init__(**kwargs)
        self.sizes = list(sizes)
        self.ffnn_size = ffnn_size
        self.ffnn_depth = ffnn_depth

    def build(self, *_):
        dims = [sum(self.sizes), *[self.ffnn_size] * self.ffnn_depth, 1]
        names = [*[f"hidden_{{}}_{i}" for i in range(self.ffnn_depth)], "output_{}"]
        self.products, self.biases = [], []
        for name, inputs, outputs in zip(names, dims[:-1], dims[1:]):
            self.products.append(self.add_matrix(name.format("weights"), inputs, outputs))
            self.biases.append(self.add_bias(name.format("bias"), outputs))
        self.built = True

    def project(self, part: int, x):
        """The share of a part, and of those after it that `x` has too, in the first product.

        The first part's has the bias.
        """
        begin = sum(self.sizes[:part])
        rows = ops.convert_to_tensor(self.products[0])[begin : begin + x.shape[-1]]
        projected = ops.matmul(x, self.cast(rows))
        return projected if part else projected + self.cast(self.biases[0])

    def call(self, projected, training=None):
        x = projected
        for product, bias in zip(self.products[1:], self.biases[1:]):
            x = self.dropout(ops.relu(x), training=training)
            x = ops.matmul(x, product) + bias
        return as_scores(ops.squeeze(x, axis=-1))


def as_scores(x):
    """In float32 or more: sums of scores decide what comes first."""
    return ops.cast(x, keras.backend.result_type(x.dtype, "float32"))

"""Multi-head self attention."""

import functools

import keras

from keras_spanbert.layers.attention import attend
from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.sublayers import config_of

# B = batch, L = length, H = hidden size, N = heads, D = size of a head.


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SelfAttention(keras.layers.Layer):
    """BERT's multi-head self attention: see `attention.attend`.

    `num_heads` must divide H, and `dropout` is the rate of the attention weights. `padding_mask` is
    0 for tokens that are not attended to, int or bool `[B, L]`.
    """

    def __init__(
        self, num_heads: int, dropout: float = 0.0, kernel_initializer="glorot_uniform", **kwargs
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, inputs_shape):
        hidden_dim = inputs_shape[-1]
        if hidden_dim % self.num_heads:
            raise ValueError(
                "`num_heads` must divide the size of the last axis of the inputs. Received: "
                f"num_heads={self.num_heads}, inputs_shape={inputs_shape}"
            )
        head_dim = hidden_dim // self.num_heads
        heads_shape = (self.num_heads, head_dim)

        def dense(equation, shape, name, inputs_shape=inputs_shape):
            layer = keras.layers.EinsumDense(
                equation,
                output_shape=(None, *shape),
                bias_axes=equation[-len(shape) :],
                # Cloned, because a shared instance would draw the same values for all.
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name=name,
            )
            layer.build(inputs_shape)
            return layer

        # Keras uses the names of these attributes in weight files. The letters in the equations
        # follow the order of the axes, because contracted axes may be sorted by letter.
        self.query_dense = dense("abc,cde->abde", heads_shape, "query")
        self.key_dense = dense("abc,cde->abde", heads_shape, "key")
        self.value_dense = dense("abc,cde->abde", heads_shape, "value")
        # With model parallelism, the heads (axis 1) are split over the devices.
        self.dropout_layer = Dropout(self.dropout, model_axis=1, dtype=self.dtype_policy)
        of_heads = (*inputs_shape[:-1], *heads_shape)
        self.output_dense = dense("abcd,cde->abe", (hidden_dim,), "attention_output", of_heads)
        # Built here because a first call would record its input and make PyTorch recompile.
        batch_size, length, _ = inputs_shape
        self.dropout_layer.build((batch_size, self.num_heads, length, length))
        self.built = True

    def call(self, inputs, padding_mask=None, training=None):
        layers = self.query_dense, self.key_dense, self.value_dense
        if training and keras.backend.backend() == "jax":
            from keras_spanbert.layers.jax_gradients import project

            layers = [functools.partial(project, layer) for layer in layers]
        query, key, value = (layer(inputs) for layer in layers)  # [B, L, N, D]
        attended = attend(query, key, value, padding_mask, self.dropout_layer, training)
        return self.output_dense(attended)  # [B, L, H]

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return {**super().get_config(), **config_of(self, SelfAttention)}

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
        heads_shape = (*inputs_shape[:-1], self.num_heads, head_dim)
        # Keras uses the names of these attributes in weight files. The letters in the equations
        # follow the order of the axes, because contracted axes may be sorted by letter.
        self.query_dense = self._project_to_heads(inputs_shape, head_dim, "query")
        self.key_dense = self._project_to_heads(inputs_shape, head_dim, "key")
        self.value_dense = self._project_to_heads(inputs_shape, head_dim, "value")
        # With model parallelism, the heads (axis 1) are split over the devices.
        self.dropout_layer = Dropout(self.dropout, model_axis=1, dtype=self.dtype_policy)
        self.output_dense = keras.layers.EinsumDense(
            "abcd,cde->abe",
            output_shape=(None, hidden_dim),
            bias_axes="e",
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="attention_output",
        )
        self.output_dense.build(heads_shape)
        # Built here because a first call would record its input and make PyTorch recompile.
        batch_size, length, _ = inputs_shape
        self.dropout_layer.build((batch_size, self.num_heads, length, length))
        self.built = True

    def _project_to_heads(self, inputs_shape, head_dim, name):
        layer = keras.layers.EinsumDense(
            "abc,cde->abde",
            output_shape=(None, self.num_heads, head_dim),
            bias_axes="de",
            # Cloned, because a shared instance would draw the same values for all three.
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name=name,
        )
        layer.build(inputs_shape)
        return layer

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

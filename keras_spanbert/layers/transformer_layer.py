"""BERT's transformer layer."""

import functools
import operator

import keras
from keras import ops

from keras_spanbert.layers.attention import SelfAttention, attend
from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.sublayers import config_of, dense, layer_norm


@keras.saving.register_keras_serializable(package="keras_spanbert")
class TransformerLayer(keras.layers.Layer):
    """BERT's transformer layer, with normalization after the residual connections.

    `h = LayerNorm(x + Dropout(SelfAttention(x)))`, float `[B, L, H]`, and
    `y = LayerNorm(h + Dropout(W2 activation(W1 h + b1) + b2))`.

    `padding_mask`, int or bool `[B, L]`, is 0 for tokens that are not attended to. `dropout` is the
    rate after the attention and the feedforward network. `attention_dropout` is the rate of the
    attention weights. Some fused kernels run only if it is 0: see `attend`. A layer that
    `rematerialize`s computes activations again in the backward pass, which takes more time and much
    less memory.
    """

    def __init__(
        self,
        intermediate_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation="gelu",
        layer_norm_epsilon: float = 1e-12,
        kernel_initializer="glorot_uniform",
        rematerialize: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.intermediate_dim = intermediate_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.rematerialize = rematerialize
        # Whether PyTorch's compiler compiles training steps. Set by `SpanBertTask.compile`.
        self.compiles = False

    def build(self, inputs_shape):
        hidden_dim = inputs_shape[-1]
        # Keras uses these attributes as names in weight files, and the order in which layers are
        # built is the order of an optimizer's variables.
        self._self_attention_layer = SelfAttention(
            num_heads=self.num_heads,
            dropout=self.attention_dropout,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="self_attention_layer",
        )
        self._self_attention_layer.build(inputs_shape)
        self._self_attention_layer_norm = layer_norm(self, hidden_dim, "self_attention_layer_norm")
        self._self_attention_dropout = self._dropout("self_attention_dropout", inputs_shape)
        self._feedforward_layer_norm = layer_norm(self, hidden_dim, "feedforward_layer_norm")
        self._feedforward_intermediate_dense = dense(
            self, self.intermediate_dim, hidden_dim, "feedforward_intermediate_dense"
        )
        self._feedforward_output_dense = dense(
            self, hidden_dim, self.intermediate_dim, "feedforward_output_dense"
        )
        self._feedforward_dropout = self._dropout("feedforward_dropout", inputs_shape)
        attention = self._self_attention_layer
        dense_layers = [
            *(attention.query_dense, attention.key_dense, attention.value_dense),
            *(attention.output_dense, self._feedforward_intermediate_dense),
            self._feedforward_output_dense,
        ]
        # Kept, because PyTorch's modules find layers slowly. Keras would track and save the layers
        # of a list a second time.
        object.__setattr__(self, "dense_layers", functools.partial(tuple, dense_layers))
        self.built = True

    def call(self, inputs, padding_mask=None, training=None):
        if self.rematerialize and training:
            return self._compute_rematerialized(inputs, padding_mask)
        return self._compute(inputs, padding_mask, training)

    def _compute(self, x, padding_mask, training):
        if keras.backend.backend() == "torch":
            from keras_spanbert.layers.torch_layers import are_plain

            if are_plain(self.dense_layers()):
                return self._compute_in_torch(x, padding_mask, training)
        normalize, activate = operator.call, lambda activation, layer, x: activation(layer(x))
        if training and keras.backend.backend() == "jax" and not self.rematerialize:
            from keras_spanbert.layers import jax_gradients

            if jax_gradients.are_cheaper(self.compute_dtype):
                normalize, activate = jax_gradients.normalize, jax_gradients.activate
        attended = self._self_attention_layer(x, padding_mask=padding_mask, training=training)
        attended = self._self_attention_dropout(attended, training=training)
        x = normalize(self._self_attention_layer_norm, attended + x)
        fed_forward = activate(self.activation, self._feedforward_intermediate_dense, x)
        fed_forward = self._feedforward_output_dense(fed_forward)
        fed_forward = self._feedforward_dropout(fed_forward, training=training)
        return normalize(self._feedforward_layer_norm, fed_forward + x)

    def _compute_in_torch(self, x, padding_mask, training):
        from keras_spanbert.layers import torch_layers

        attention, dense_layers = self._self_attention_layer, self.dense_layers()
        norms = self._self_attention_layer_norm, self._feedforward_layer_norm
        layers = [*dense_layers[:4], norms[0], *dense_layers[4:], norms[1]]
        weights = torch_layers.values(layers, x.dtype)
        rate = attention.dropout_layer.rate if training else 0.0
        is_fused = torch_layers.is_fused(x, rate)
        compute = torch_layers.transformer_layer
        if self.compiles and training and is_fused and x.device.type != "meta":
            compute = torch_layers.compiled_layer
        return compute(
            x,
            padding_mask,
            weights,
            self.num_heads,
            torch_layers.torch_activation(self.activation),
            self.layer_norm_epsilon,
            self.dropout if training else 0.0,
            rate if is_fused else (attention.dropout_layer if training else None),
            torch_layers.attend_fused if is_fused else functools.partial(attend, training=True),
        )

    def _compute_rematerialized(self, inputs, padding_mask):
        # All state is passed in and the new seeds of dropout are returned, so that the
        # recomputation draws the same masks.
        ids = {id(weight) for weight in self.weights}
        seeds = [variable for variable in self.variables if id(variable) not in ids]

        def compute(inputs, *values):
            mapping = list(zip([*self.weights, *seeds], values))
            with keras.StatelessScope(state_mapping=mapping) as scope:
                outputs = self._compute(inputs, padding_mask, training=True)
                return outputs, *(scope.get_current_value(seed) for seed in seeds)

        weights = [weight.value for weight in self.weights]
        old_seeds = [ops.copy(seed.value) for seed in seeds]
        outputs, *new_seeds = keras.remat(compute)(inputs, *weights, *old_seeds)
        for seed, value in zip(seeds, new_seeds):
            seed.assign(value)
        return outputs

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def _dropout(self, name, inputs_shape):
        dropout = Dropout(self.dropout, dtype=self.dtype_policy, name=name)
        dropout.build(inputs_shape)  # So that the first call changes nothing: see `SelfAttention`.
        return dropout

    def get_config(self):
        return {**super().get_config(), **config_of(self, TransformerLayer)}

"""The head of the masked language model."""

import keras

from keras_spanbert.layers.sublayers import dense, layer_norm
from keras_spanbert.layers.tied_head import TiedHead, take_positions


@keras.saving.register_keras_serializable(package="keras_spanbert")
class MaskedLMHead(TiedHead):
    """Predicts the tokens at `mask_positions` `[B, M]`: logits `[B, M, V]`.

    `y = LayerNorm(GELU(W x + b1))`, `logits = y E^T + b`. E is the tied input embedding (or a
    kernel of this head), and b is this head's own bias. The layer has the same weights as
    keras-hub's `MaskedLMHead` and works on every backend with any dtype policy. It stays tied when
    a functional model that contains it is cloned or saved. The arguments are those of `TiedHead`.
    """

    def build(self, sequence_output_shape, mask_positions_shape=None):
        hidden_dim = sequence_output_shape[-1]
        # Keras uses these attributes as names in weight files.
        self._intermediate_dense = dense(
            self, hidden_dim, hidden_dim, "intermediate_dense", self.activation
        )
        self._intermediate_layer_norm = layer_norm(self, hidden_dim, "intermediate_layer_norm")
        self.build_projection(hidden_dim)
        self.built = True

    def call(self, sequence_output, mask_positions):
        x = take_positions(sequence_output, mask_positions)
        return self.project(self.hidden(x, self._intermediate_dense, self._intermediate_layer_norm))

    def compute_output_shape(self, sequence_output_shape, mask_positions_shape):
        return (*mask_positions_shape, self.vocabulary_size)

"""Initial weights with which the attention of a new model looks at neighboring tokens."""

import math

import numpy as np

# The factor of the query and key kernels. 1.7 trains equally well.
_SHARPNESS = 2.5


def attend_to_neighbors(backbone) -> None:
    """Sets position embeddings and attention of a new backbone, whose `hidden_dim` is even.

    The first head starts to attend to the previous token, the second to the next, the third to the
    token before the previous, and so on through all layers.
    """
    # Attention that starts at random spends most of a short pretraining on finding out which
    # position is next to which. Position `i` becomes `sin(w i), cos(w i)` for frequencies `w` up to
    # pi, so that a rotation moves one position to another. A head's key kernel becomes its query
    # kernel after the rotation by the head's distance.
    half = backbone.hidden_dim // 2
    # With equal steps instead of the power, 64 pairs would repeat after 256 positions.
    frequencies = ((np.arange(half) + 0.5) / half) ** 1.1 * np.pi
    positions = np.arange(backbone.max_sequence_length)[:, None] * frequencies
    pairs = np.stack([np.sin(positions), np.cos(positions)], axis=-1)  # [L, H / 2, 2]
    scale = math.sqrt(2) * backbone.initializer_range
    backbone.position_embedding.set_weights([scale * pairs.reshape(len(positions), -1)])
    head = 0
    for layer in backbone.transformer_layers:
        attention = layer._self_attention_layer
        query, query_bias = attention.query_dense.get_weights()  # [H, N, D], [N, D]
        _, key_bias = attention.key_dense.get_weights()
        query, key = _SHARPNESS * query, np.empty_like(query)
        for i in range(attention.num_heads):
            distance = (head // 2 + 1) * (1 if head % 2 else -1)
            cos, sin = (f(distance * frequencies)[:, None] for f in [np.cos, np.sin])
            key[0::2, i] = cos * query[0::2, i] + sin * query[1::2, i]
            key[1::2, i] = cos * query[1::2, i] - sin * query[0::2, i]
            head += 1
        attention.query_dense.set_weights([query, query_bias])
        attention.key_dense.set_weights([key, key_bias])

"""Attention that starts at neighboring tokens."""

import numpy as np
import pytest
from keras import ops

import keras_spanbert as ks
from keras_spanbert.tasks.pretrain.neighbors import attend_to_neighbors

L = 23


@pytest.mark.once
def test_each_head_starts_at_its_own_neighbor():
    backbone = ks.SpanBertBackbone(
        50, 2, 2, 128, 64, dropout=0.0, max_sequence_length=L, initializer_range=0.05
    )
    attend_to_neighbors(backbone)
    x = backbone.position_embedding(np.zeros((1, L, 128), "float32")) / 0.05
    found = []
    for layer in backbone.transformer_layers:
        attention = layer._self_attention_layer
        query, key = (
            ops.convert_to_numpy(dense(x))[0]
            for dense in [attention.query_dense, attention.key_dense]
        )  # [L, N, D]
        for scores in np.einsum("ind,jnd->nij", query, key):
            nearest = scores.argmax(-1) - np.arange(L)
            found.append(np.unique(nearest[2:-2]).tolist())  # The others have one on one side.
    assert found == [[-1], [1], [-2], [2]]

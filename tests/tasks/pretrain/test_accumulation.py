"""Texts are masked anew in each batch, also if gradients are accumulated."""

import keras
from tiny_pretrainer import build

import keras_spanbert as ks


def test_fit_on_texts_counts_batches():
    model = build()
    model.compile(ks.AdamW(1e-3, gradient_accumulation_steps=2))
    texts = ["the of and to in a is that"] * 4
    for epochs in [1, 2]:
        model.fit(texts, batch_size=1, epochs=epochs, verbose=0)
    assert model._steps_so_far == 12
    assert int(keras.ops.convert_to_numpy(model.optimizer.iterations)) == 6

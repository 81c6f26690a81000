"""Rows of different lengths in the functions of a SavedModel."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_answerer

from keras_spanbert.serving import saved_model
from keras_spanbert.serving.saved_model import outputs_by_length, trim_padding, window_logits

pytestmark = pytest.mark.once("tensorflow")
ROWS = {
    "token_ids": tf.constant([[4, 5, 6, 0], [7, 0, 0, 0], [8, 9, 0, 0]]),
    "segment_ids": tf.zeros([3, 4], tf.int32),
    "padding_mask": tf.constant([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 0, 0]]),
}


def sums_and_lengths(batch):
    ids = batch["token_ids"]
    length = tf.fill(tf.shape(ids)[:1], tf.shape(ids)[1])
    return tf.stack([tf.reduce_sum(ids, axis=1), length], axis=1)


def test_rows_of_similar_length_are_computed_together_and_keep_their_order():
    found = outputs_by_length(sums_and_lengths, ROWS, [2], batch_size=2)
    # The batches are the rows of 1 and 2 tokens, and the row of 3.
    assert found.dtype == tf.float32 and found.numpy().tolist() == [[15, 3], [7, 2], [17, 2]]


def test_logits_of_windows_are_at_their_tokens():
    def model(inputs, training):
        assert training is False
        return tf.cast(inputs["token_ids"], tf.float16)

    found = window_logits(model, ROWS, 2, lambda x: tf.stack([x, -x], axis=2)).numpy()
    assert found.dtype == np.float32 and found.shape == (3, 4, 2)
    assert found[0].tolist() == [[4, -4], [5, -5], [6, -6], [0, 0]]
    assert found[1:, 0].tolist() == [[7, -7], [8, -8]]


def test_columns_of_padding_alone_are_cut():
    assert trim_padding(ROWS)["token_ids"].numpy().tolist() == [[4, 5, 6], [7, 0, 0], [8, 9, 0]]
    empty = {name: tf.zeros_like(rows) for name, rows in ROWS.items()}
    assert trim_padding(empty)["token_ids"].shape == [3, 1]


def test_served_answers_are_those_of_the_model():
    # Only the best of the answers with equal texts counts, in each of the two contexts.
    questions = ["who wrote it"] * 2
    contexts = ["ann it bob it ann it bob", "ann and ann é😀 it and it"]
    model, lengths = tiny_answerer.build(), []
    for arguments in [{"max_answer_length": 1}, {}]:
        serve, _ = model.serving_function(**arguments)
        served = serve(tf.constant(questions), tf.constant(contexts))
        for i, (best,) in enumerate(model.answer(questions, contexts, **arguments)):
            assert served["answer"][i].numpy().decode() == best["answer"]
            assert served["score"][i].numpy() == pytest.approx(best["score"], abs=1e-5)
            lengths.append(len(best["answer"].split()))
    assert lengths[:2] == [1, 1] and max(lengths) > 1


def test_arguments_of_an_export_reach_the_serving_function(tmp_path, monkeypatch):
    model, found = tiny_answerer.build(), []
    monkeypatch.setattr(type(model), "serving_function", lambda _, **kwargs: found.append(kwargs))
    monkeypatch.setattr(saved_model, "_export", lambda *_: None)
    saved_model.export_saved_model(model, tmp_path / "a", max_answer_length=7, other=1)
    saved_model.export_saved_model(model, tmp_path / "b")
    assert found == [{"max_answer_length": 7, "other": 1}, {}]

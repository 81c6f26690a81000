"""Rows of different lengths in the functions of a SavedModel."""

import pytest
import tensorflow as tf
import tiny_answerer

from keras_spanbert.serving import saved_model

pytestmark = pytest.mark.once("tensorflow")


def test_exported_answers_have_the_given_length(tmp_path, monkeypatch):
    found = []
    monkeypatch.setattr(
        saved_model, "_export", lambda model, path, functions: found.append(functions)
    )
    questions, contexts, _ = tiny_answerer.examples(8)
    for name, given in [("short", {"max_answer_length": 1}), ("default", {})]:
        saved_model.export_saved_model(tiny_answerer.build(), tmp_path / name, **given)
    serves = [functions["serving_default"][0] for functions in found]
    short, default = (
        [x.decode() for x in serve(tf.constant(questions), tf.constant(contexts))["answer"].numpy()]
        for serve in serves
    )
    assert not any(" " in answer for answer in short) and any(" " in answer for answer in default)

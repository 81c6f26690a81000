import numpy as np
import pytest
import tensorflow as tf
from tiny_tagger import LABELS, build, examples

from keras_spanbert.serving import export_saved_model


def check(served, texts, expected):
    """Checks that the served function gives the padded results of `tag`."""
    served = {name: tensor.numpy() for name, tensor in served.items()}
    most = max([len(found) for found in expected], default=0)
    for name, array in served.items():
        assert array.shape == (len(texts), most), name
    padding = {"text": b"", "label": b"", "start": -1, "end": -1, "score": 0.0}
    for i, found in enumerate(expected):
        for name, array in served.items():
            values = [entity[name] for entity in found]
            values = [v.encode() if isinstance(v, str) else v for v in values]
            values += [padding[name]] * (most - len(found))
            if name == "score":
                np.testing.assert_allclose(array[i], values, atol=1e-5)
            else:
                assert array[i].tolist() == values, (name, texts[i])


TEXTS = [
    "annie met bob,in new york.",
    "",
    " \u200b ",
    "old " * 60 + "new york " + "old " * 60 + "bob",  # Has several windows.
    "b\u00f6b \u4e2d\u6587 ann\u200bie \U0001f600 rome",
    *(" ".join(example["words"]) for example in examples(30, seed=7)),
]


@pytest.mark.parametrize("labels", [LABELS, ["NN", "VB"]])
def test_saved_model_equals_tag(labels, tmp_path):
    model = build(labels=labels)
    kernel = np.random.default_rng(0).normal(size=(16, len(labels)))
    model.classifier.kernel.assign(kernel)  # Random predictions.
    export_saved_model(model, tmp_path / "1")
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    expected = model.tag(TEXTS)
    assert len({entity["label"] for found in expected for entity in found}) > 1
    check(served(text=tf.constant(TEXTS)), TEXTS, expected)
    for texts in [TEXTS[:1], TEXTS[1:3], []]:
        check(served(text=tf.constant(texts, tf.string)), texts, model.tag(texts))
    # Invalid UTF-8 becomes the replacement character.
    found = served(text=tf.constant([b"bob \xff met"]))
    (expected,) = model.tag(["bob \ufffd met"])
    assert found["start"].numpy().tolist() == [[entity["start"] for entity in expected]]

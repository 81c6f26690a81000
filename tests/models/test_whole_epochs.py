"""The padded last batch of an epoch has the loss of its real rows."""

import keras
import pytest
import tiny_answerer
import tiny_tagger

import keras_spanbert as ks
from keras_spanbert.data.batches import Batches

pytestmark = pytest.mark.usefixtures("untraced")


def answerer():
    model = tiny_answerer.build()
    questions, contexts, answers = tiny_answerer.examples(5)
    arrays = model.preprocess({"question": questions, "context": contexts}, answers)
    return model, Batches(arrays[:2], 3, seed=1, whole_epochs=True)


def texts(labels, num_classes=1, **arguments):
    tagger = tiny_tagger.build()
    preprocessor = ks.SpanBertTextClassifierPreprocessor(tagger.preprocessor.tokenizer, 16)
    model = ks.SpanBertTextClassifier(
        tagger.backbone, num_classes, preprocessor, dropout=0.0, **arguments
    )
    rows = ["ann lives", "bob", "eve met ann in rome", "oslo", "and in rome"]
    return model, Batches(model.preprocess(rows, labels), 3, seed=1, by_length=True)


def tagger():
    model = tiny_tagger.build()
    return model, Batches(model.preprocess(tiny_tagger.examples(5)), 3, seed=1, by_length=True)


@pytest.mark.parametrize(
    "build",
    [
        answerer,
        lambda: texts([0.5, -1.0, 2.0, 3.0, -2.0]),
        lambda: texts([[1, 0], [0, 0], [1, 1], [0, 1], [1, 0]], 2, multi_label=True),
        tagger,
    ],
    ids=["answers", "numbers", "multi-label", "tokens"],
)
def test_padded_batch_has_loss_and_metrics_of_its_real_rows(build):
    model, stream = build()
    model.compile()
    sizes = []
    for step in range(stream.num_batches):
        x, y, weights = stream.batch(step)
        first = keras.tree.flatten(weights)[0]
        is_row = first.reshape(len(first), -1).any(axis=1)
        sizes.append(int(is_row.sum()))
        found = model.test_on_batch(x, y, weights, return_dict=True)
        rows = keras.tree.map_structure(lambda a, is_row=is_row: a[is_row], (x, y, weights))
        expected = model.test_on_batch(*rows, return_dict=True)
        assert found == pytest.approx(expected, rel=1e-5)
    assert sorted(sizes) == [2, 3]

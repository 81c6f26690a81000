"""Documents to train on: of Hugging Face `datasets`, cut differently in each epoch."""

import datasets
import numpy as np
import pytest

from keras_spanbert.data import coreference

pytestmark = pytest.mark.usefixtures("untraced")


def test_columns_and_tables_of_datasets(build, document):
    model = build()
    rows = [document, {**document, "doc_key": "bc"}]
    table = datasets.Dataset.from_list(rows)
    for format in [None, "numpy"]:
        given = table.with_format(format)
        expected = model.evaluate(rows, verbose=0)
        assert model.evaluate(given, verbose=0) == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(model.fit(table, validation_data=table, verbose=0).history["val_loss"])
    assert model.predict_clusters(table) == model.predict_clusters(rows)
    assert model.evaluate_clusters(table) == model.evaluate_clusters(rows)
    expected = model.score_document(document)["loss"]
    assert model.score_document(table[0])["loss"] == pytest.approx(expected, rel=1e-5)
    words, speakers = ([row[name] for row in rows] for name in ["sentences", "speakers"])
    expected = model.resolve(words, speakers, ["nw", "bc"])
    assert model.resolve(table["sentences"], table["speakers"], table["doc_key"]) == expected
    texts = datasets.Dataset.from_dict({"text": ["ann was old .", "she sold it ."]})["text"]
    assert model.resolve(texts) == model.resolve([*texts])


@pytest.mark.once("torch")
@pytest.mark.parametrize(
    "clusters, message",
    [
        ([[[0, 0], [2, 2]], [[2, 2]]], r"in one cluster, once.* \[2, 2\] in clusters\[0\] and"),
        ([[[0, 0], [0, 0]]], r"merge_clusters.* \[0, 0\] in clusters\[0\] and clusters\[0\]"),
        ([[[0, 0]], []], "must have mentions"),
    ],
)
def test_mentions_that_are_not_in_one_cluster_are_refused_in_training(
    build, document, clusters, message
):
    document = {**document, "clusters": clusters}
    with pytest.raises(ValueError, match=rf"documents\[1\] \(nw.*\): .*{message}"):
        build().fit([{**document, "clusters": []}, document])
    merged = coreference.merge_clusters(clusters)
    build().fit([{**document, "clusters": merged}], verbose=0)
    assert build().evaluate([document], verbose=0) >= 0


@pytest.mark.once("torch")
def test_each_epoch_uses_other_segments(build, document):
    model = build(max_training_sentences=2)
    batches = model.batches([document], is_training=True, seed=7)
    begins = []
    for epoch in range(12):
        x, y = batches.arrays.document(0, epoch)
        again, _ = batches.arrays.document(0, epoch)
        np.testing.assert_array_equal(x["token_ids"], again["token_ids"])
        assert x["token_ids"].shape[1] == 2
        begins.append(x["token_ids"][0, 0].tobytes() + x["token_ids"][0, 1].tobytes())
    assert len(set(begins)) > 1
    num_segments = len(model.preprocessor.tensors(document)["input_ids"])
    assert num_segments > 2
    whole, _ = model.batches([document]).arrays.document(0, 0)
    assert whole["token_ids"].shape[1] >= num_segments

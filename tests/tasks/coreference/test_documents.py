"""Documents of all file formats, and of Hugging Face `datasets`, are scored and trained on."""

import json

import datasets
import numpy as np
import pytest

from keras_spanbert.data import coreference

pytestmark = pytest.mark.usefixtures("untraced")
SENTENCES = [["ann", "wrote", "the", "letter", "."], ["she", "was", "old", "."]]
COREFUD = """\
# global.Entity = eid-etype
# newdoc id = nw
1\tann\t_\t_\t_\t_\t_\t_\t_\tEntity=(e1-x)
2\twrote\t_\t_\t_\t_\t_\t_\t_\t_
3\tthe\t_\t_\t_\t_\t_\t_\t_\t_
4\tletter\t_\t_\t_\t_\t_\t_\t_\t_
5\t.\t_\t_\t_\t_\t_\t_\t_\t_

1\tshe\t_\t_\t_\t_\t_\t_\t_\tEntity=(e1-x)
2\twas\t_\t_\t_\t_\t_\t_\t_\t_
3\told\t_\t_\t_\t_\t_\t_\t_\t_
4\t.\t_\t_\t_\t_\t_\t_\t_\t_
"""
CONLL = """\
#begin document (nw);
ann (0)
wrote -
the -
letter -
. -

she (0)
was -
old -
. -
#end document
"""
FILES = {
    "a.conllu": COREFUD,
    "a.conll": CONLL,
    "preco.jsonl": json.dumps(
        {"id": "nw", "sentences": SENTENCES, "mention_clusters": [[[0, 0, 1], [1, 0, 1]]]}
    ),
    "wl.jsonlines": json.dumps(
        {
            "document_id": "nw",
            "cased_words": sum(SENTENCES, []),
            "sent_id": [0] * 5 + [1] * 4,
            "span_clusters": [[[0, 1], [5, 6]]],
        }
    ),
}


def test_documents_of_all_formats(build, tmp_path):
    model = build()
    given = {"doc_key": "nw", "sentences": SENTENCES, "clusters": [[[0, 0], [5, 5]]]}
    loss = model.score_document(given)["loss"]
    scores = model.evaluate_clusters([given])
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
        (document,) = documents = coreference.read(tmp_path / name)
        assert model.score_document(document)["loss"] == pytest.approx(loss, rel=1e-5)
        assert model.evaluate(documents, verbose=0) == pytest.approx(loss, rel=1e-5)
        assert model.evaluate_clusters(documents) == scores
        found = coreference.nested_clusters(model.predict_clusters(documents)[0])
        coreference.write_conll(tmp_path / "found.conll", documents, [found])
        assert coreference.read(tmp_path / "found.conll")[0]["sentences"] == SENTENCES
    assert np.isfinite(model.fit(documents, verbose=0).history["loss"]).all()


@pytest.mark.once("torch")
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

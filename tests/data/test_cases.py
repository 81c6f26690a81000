"""Small files that went wrong once: each gives the right value or a clear refusal."""

from functools import partial

import pytest

from keras_spanbert.data import columns, conll, coreference, squad

second_column = partial(conll.read, words_column=1)
quoted = partial(columns.read_texts, quoted=True)
of_labels = partial(columns.read_texts, label="labels")


def squad_ids(path):
    return [{"id": name} for name in squad.read(path).ids]


@pytest.mark.parametrize(
    "name, read, key, expected",
    [
        ("trailing_tab.conll", coreference.read, "clusters", [[[[0, 1], [4, 4]]]]),
        ("neuronlp2.conll", second_column, "words", [["EU", "talks", "."], ["Ida"]]),
        ("index.conll", second_column, "words", [["Ida", "mag", "Oslo"], ["Sie"]]),
        ("cr.conll", conll.read, "words", [["Ida", "runs"], ["Sie"]]),
        ("bilou.conll", conll.read, "tags", [["B-PER", "O", "O", "B-ORG", "I-ORG", "I-ORG", "O"]]),
        ("intid.json", squad_ids, "id", ["17"]),
        ("pandas2.tsv", quoted, "text", ['He said "hi" to me.', "plain", "'tis", '"quoted"']),
        ("corefud.conllu", coreference.read, "clusters", [[[[0, 0], [2, 2]]]]),
        ("preco.jsonl", coreference.read, "clusters", [[[[0, 0], [3, 3]]]]),
        ("wl.jsonlines", coreference.read, "clusters", [[[[0, 0], [2, 2]]]]),
    ],
)
def test_right_values(shared_data, caplog, name, read, key, expected):
    examples = read(shared_data / "cases" / name)
    assert [example[key] for example in examples] == expected
    assert not caplog.text


@pytest.mark.parametrize(
    "name, read, message",
    [
        ("impossible_str.json", squad.read, "`is_impossible` must be true or false"),
        ("lists.csv", columns.read_words, "`words` must not be a list.*jsonl"),
        ("lists.csv", of_labels, "`labels` must not be a list.*jsonl"),
        ("fastcoref.jsonlines", coreference.read, "Received: fastcoref"),
        ("fourcol.conll", coreference.read, "have CoNLL-2012's columns.* 4, 'd1 0 Ida"),
    ],
)
def test_clear_refusals(shared_data, name, read, message):
    with pytest.raises(ValueError, match=f"{name}.*{message}"):
        read(shared_data / "cases" / name)

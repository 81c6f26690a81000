"""Small files that went wrong once: each gives the right value or a clear refusal."""

import functools

import pytest

from keras_spanbert.data import columns, conll, coreference, squad

of_pos = functools.partial(columns.read_words, entities=False)
TEXTS = ['He said "hi" to me.', "plain", "'tis", '"quoted"']


def clusters(path):
    return [sorted(map(tuple, c)) for x in coreference.read(path) for c in x["clusters"]]


def sentences(path, **arguments):
    return [example["words"] for example in conll.read(path, **arguments)]


def tags(path):
    return [tag for example in conll.read(path) for tag in example["tags"]]


def quoted(path):
    return [example["text"] for example in columns.read_texts(path, quoted=True)]


@pytest.mark.parametrize(
    "name, read, expected",
    [
        ("trailing_tab.conll", clusters, [[(0, 1), (4, 4)]]),
        ("neuronlp2.conll", sentences, "the column of words only counts"),
        ("neuronlp2.conll", functools.partial(sentences, words_column=1), [
            ["EU", "talks", "."], ["Ida"],
        ]),
        ("index.conll", sentences, "the column of words only counts"),
        ("index.conll", functools.partial(sentences, words_column=1), [
            ["Ida", "mag", "Oslo"], ["Sie"],
        ]),
        ("cr.conll", sentences, [["Ida", "runs"], ["Sie"]]),
        ("bilou.conll", tags, ["B-PER", "O", "O", "B-ORG", "I-ORG", "I-ORG", "O"]),
        ("impossible_str.json", squad.read, ValueError("`is_impossible` must be true or false")),
        ("intid.json", lambda path: squad.read(path).ids, ["17"]),
        ("lists.csv", columns.read_words, ValueError("`words` must not be a list.*jsonl")),
        ("lists.csv", functools.partial(of_pos, words="text", tags="pos"),
         ValueError("`pos` must not be a list printed as text.*jsonl")),
        ("lists.csv", functools.partial(columns.read_texts, label="labels"),
         ValueError("`labels` must not be a list printed as text.*jsonl")),
        ("lists.csv", functools.partial(columns.read_choices, question="text", choices="choices"),
         ValueError("`choices` must not be a list printed as text.*jsonl")),
        ("pandas2.tsv", quoted, TEXTS),
        ("pandas2.tsv", columns.read_texts, "use quoted=True"),
        ("corefud.conllu", clusters, [[(0, 0), (2, 2)]]),
        ("preco.jsonl", clusters, [[(0, 0), (3, 3)]]),
        ("wl.jsonlines", clusters, [[(0, 0), (2, 2)]]),
        ("fastcoref.jsonlines", clusters, ValueError("Received: fastcoref")),
        ("fourcol.conll", clusters, ValueError("must have CoNLL-2012's columns.* 4, 'd1 0 Ida")),
    ],
)  # fmt: skip
def test_right_value_or_clear_refusal(shared_data, caplog, name, read, expected):
    path = shared_data / "cases" / name
    if isinstance(expected, ValueError):
        with pytest.raises(ValueError, match=f"{name}.*{expected}"):
            read(path)
    elif isinstance(expected, str):  # A warning.
        read(path)
        assert expected in caplog.text and name in caplog.text
    else:
        assert read(path) == expected
        assert not caplog.text

"""Tokens that were added to a vocabulary are found in texts, with the ids of `transformers`."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from bert_checkpoints import assert_same, build, inputs

import keras_spanbert as ks
from keras_spanbert.formats.vocabulary import read_added_tokens
from keras_spanbert.text.tokens import tokenize_with_offsets

WORDS = "[UNK] [PAD] [CLS] [SEP] [MASK] the The house is my è [ ] e1 covid ##1 ##9 s < >".split()
# Whether a text must contain the token exactly.
ADDED = {"Covid19": False, "[E1]": True, "<e1>": True, "€": True, "😀": False, "New York": False}
SIZE = len(WORDS) + len(ADDED)
TEXTS = [
    "the Covid19 house", "myCovid19s", "my [E1] house<e1>is", "[e1] The s", "[E1][E1]s", "",
    "covid19 COVID19 [MASK]", "my€is😀s 😀", "is New York s", "new  york", "è È",
]  # fmt: skip
IDS = {token: len(WORDS) + i for i, token in enumerate(ADDED)}


@pytest.fixture(params=[False, True], ids=["cased", "uncased"])
def theirs(request, transformers, tmp_path):
    """A tokenizer of `transformers` with added tokens."""
    write_vocabulary(tmp_path / "base", {"do_lower_case": request.param})
    tokenizer = transformers.BertTokenizer.from_pretrained(tmp_path / "base")
    for token, is_exact in ADDED.items():
        assert tokenizer.add_tokens([token], special_tokens=is_exact) == 1
    return tokenizer


def write_vocabulary(folder, settings=None, **others):
    """Writes the vocabulary without added tokens, and JSON files."""
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    for name, content in {"tokenizer_config": settings or {}, **others}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def write_model(transformers, folder, vocabulary_size=SIZE):
    model = build(transformers.BertModel, vocab_size=vocabulary_size)
    model.save_pretrained(folder)
    return model


def test_ids_and_offsets_equal_transformers(transformers, theirs, tmp_path):
    folder = tmp_path / "source"
    theirs.save_pretrained(folder)
    write_model(transformers, folder)
    tokenizer = ks.SpanBertTokenizer.from_preset(folder)
    assert tokenizer.added_tokens == ADDED
    assert tokenizer.get_vocabulary() == [*WORDS, *ADDED]
    expected = [[i for i in theirs(text)["input_ids"][1:-1] if i != 4] for text in TEXTS]
    is_mask = theirs("[MASK]")["input_ids"][1:-1]
    assert is_mask == [4]  # Only ours keeps the built-in tokens out of texts.
    texts = [text.replace("[MASK]", "") for text in TEXTS]
    assert [list(ids) for ids in tokenizer(texts)] == expected
    traced = next(iter(tf.data.Dataset.from_tensors(texts).map(tokenizer)))
    assert traced.to_list() == expected
    dataset = tf.data.Dataset.from_tensors(texts)
    found = next(iter(dataset.map(lambda x: tuple(tokenize_with_offsets(tokenizer, x)))))
    _, offsets = tokenizer.tokenize_batch(texts, with_offsets=True)
    np.testing.assert_array_equal(found[2], np.concatenate(offsets))


def test_tokens_survive_every_file(transformers, theirs, tmp_path):
    theirs.save_pretrained(tmp_path / "source")
    write_model(transformers, tmp_path / "source")
    backbone = ks.SpanBertBackbone.from_preset(tmp_path / "source")
    tokenizer = ks.SpanBertTokenizer.from_preset(tmp_path / "source")
    assert backbone.vocabulary_size == tokenizer.vocabulary_size() == SIZE
    ks.checkpoints.to_huggingface(backbone, tmp_path / "out", tokenizer)
    ks.checkpoints.convert(tmp_path / "source", tmp_path / "preset")
    ks.checkpoints.convert(tmp_path / "preset", tmp_path / "again")
    for name in ["out", "preset", "again"]:
        loaded = ks.SpanBertTokenizer.from_preset(tmp_path / name)
        assert loaded.get_config() == {**tokenizer.get_config(), "name": loaded.name}
        assert [list(ids) for ids in loaded(TEXTS)] == [list(ids) for ids in tokenizer(TEXTS)]
        assert_same(ks.SpanBertBackbone.from_preset(tmp_path / name), backbone)
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    decoder = settings["added_tokens_decoder"].values()
    assert {x["content"]: x["special"] for x in decoder} == ADDED  # Decoding can leave these out.
    written = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["pad_token_id"], written.pad_token_id, written.mask_token_id) == (1, 1, 4)
    for text in TEXTS:
        assert written(text)["input_ids"] == theirs(text)["input_ids"]


def test_tasks_use_added_tokens_and_their_embeddings(transformers, tmp_path):
    folder = write_vocabulary(tmp_path / "source", {"do_lower_case": False}, added_tokens=IDS)
    theirs = write_model(transformers, folder)
    classifier = ks.SpanBertTextClassifier.from_preset(folder, num_classes=2)
    ids = classifier.preprocessor.inputs(["[E1] house<e1>"])["token_ids"][0]
    assert list(ids[:5]) == [2, IDS["[E1]"], 7, IDS["<e1>"], 3]
    table = keras.ops.convert_to_numpy(classifier.backbone.token_embedding.embeddings)
    np.testing.assert_array_equal(table, theirs.embeddings.word_embeddings.weight.detach().numpy())
    x = inputs(vocabulary_size=SIZE)
    assert classifier.predict(x, verbose=0).shape == (3, 2)


DECODER = {
    str(i): {"content": token, "special": ADDED[token], "normalized": not ADDED[token]}
    for token, i in IDS.items()
}


@pytest.mark.parametrize(
    "settings, others, exact",
    [
        ({}, {"added_tokens": IDS}, set()),
        ({}, {"added_tokens": IDS, "special_tokens_map": {"additional_special_tokens": ["[E1]"]}},
         {"[E1]"}),
        ({}, {"special_tokens_map": {"additional_special_tokens": list(ADDED)}}, set(ADDED)),
        ({"additional_special_tokens": [{"content": x} for x in ADDED]}, {}, set(ADDED)),
        ({"added_tokens_decoder": DECODER}, {}, {t for t in ADDED if ADDED[t]}),
        ({"added_tokens_decoder": {"0": {"content": "[PAD]", "special": True}, **DECODER}},
         {"added_tokens": IDS, "special_tokens_map": {"cls_token": "[CLS]"}},
         {t for t in ADDED if ADDED[t]}),
    ],
)  # fmt: skip
def test_every_file_of_transformers_is_read(tmp_path, settings, others, exact):
    folder = write_vocabulary(tmp_path / "source", settings, **others)
    added, notes = read_added_tokens(str(folder), WORDS)
    assert list(added) == list(ADDED) and notes == []
    assert {token for token, is_exact in added.items() if is_exact} == exact


def test_tokens_of_the_vocabulary_can_be_found_in_texts_too(tmp_path):
    folder = write_vocabulary(tmp_path / "source", added_tokens={"covid": WORDS.index("covid")})
    assert read_added_tokens(str(folder), WORDS) == ({"covid": False}, [])
    tokenizer = ks.SpanBertTokenizer(WORDS, added_tokens={"covid": False})
    assert list(tokenizer("mycovids")) == [WORDS.index(word) for word in ["my", "covid", "s"]]


@pytest.mark.parametrize(
    "others, message",
    [
        ({"added_tokens": {"a": 22}}, "which is 20 for 'a'. Received: 22"),
        ({"added_tokens": {"a": 20, "b": 20}}, "which is 21 for 'b'. Received: 20"),
        ({"added_tokens": {"a": 5}}, "which is 20 for 'a'. Received: 5"),
        ({"added_tokens": {"a": "20"}}, "an id of 0 or more. Received: 'a' with the id '20'"),
        ({"added_tokens": {"": 20}}, "an id of 0 or more. Received: '' with the id 20"),
        ({"tokenizer": {"added_tokens": [7]}}, "must list added tokens as transformers does"),
        ({"added_tokens": {"a": 20}, "tokenizer": {"added_tokens": [{"content": "a", "id": 21}]}},
         "which is 20 for 'a'. Received: 21"),
    ],
)  # fmt: skip
def test_contradictions_are_named(tmp_path, others, message):
    with pytest.raises(ValueError, match=message):
        read_added_tokens(str(write_vocabulary(tmp_path / "source", **others)), WORDS)


def test_tokens_without_embeddings_are_left_out(transformers, tmp_path, caplog):
    folder = write_vocabulary(tmp_path / "source", added_tokens=IDS)
    write_model(transformers, folder, len(WORDS))
    tokenizer = ks.SpanBertTokenizer.from_preset(folder)
    assert tokenizer.get_vocabulary() == WORDS and tokenizer.added_tokens == {}
    assert "added tokens without an embedding are left out: ['Covid19', '[E1]'" in caplog.text


def test_missing_added_tokens_are_explained(transformers, tmp_path):
    folder = write_vocabulary(tmp_path / "source")
    write_model(transformers, folder)
    with pytest.raises(ValueError, match=f"Received: {len(WORDS)}.*added_tokens.json or"):
        ks.SpanBertBackbone.from_preset(folder)
    path = tmp_path / "all.txt"
    path.write_text("".join(f"{token}\n" for token in [*WORDS, *ADDED]))
    tokenizer = ks.SpanBertTokenizer.from_preset(folder, vocabulary=str(path))
    assert tokenizer.vocabulary_size() == SIZE
    shutil.copy(path, folder / "vocab.txt")
    assert ks.SpanBertBackbone.from_preset(folder).vocabulary_size == SIZE


def test_added_tokens_must_be_in_the_vocabulary():
    with pytest.raises(ValueError, match=r"must be in the vocabulary. .*=\['new'\]"):
        ks.SpanBertTokenizer(WORDS, added_tokens={"the": True, "new": True})

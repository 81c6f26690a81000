import os
import pathlib

import fsspec
import pytest
from data_files import write

import keras_spanbert as ks
from keras_spanbert.formats.vocabulary import decide_lowercase, find_vocabulary, read_vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CASED, UNCASED = [*SPECIAL, "the", "The"], [*SPECIAL, "the", "##é"]


def test_last_of_equal_tokens_counts_as_in_transformers(tmp_path):
    path = write(tmp_path / "vocab.txt", "\n".join([*SPECIAL, "the", "of", "the"]))
    found, (*_, note) = find_vocabulary(tmp_path)
    assert found["vocabulary"] == [*SPECIAL, "[repeated 5]", "of", "the"]
    assert "repeats tokens" in note and "such as 5" in note
    theirs = pytest.importorskip("transformers").BertTokenizer(str(path))
    ours = ks.SpanBertTokenizer(found["vocabulary"], lowercase=True)
    assert ours("the of").tolist() == theirs("the of", add_special_tokens=False).input_ids


FROM_VOCABULARY = "no token of the vocabulary has an upper-case letter"
UPPER, FROM_SETTINGS = "upper-case letters, for example 'The'", "Cased, according to tokenizer_con"


@pytest.mark.parametrize(
    "tokens, settings, tokenizer, lowercase, reason, warning",
    [
        (CASED, None, None, False, UPPER, None),
        (UNCASED, None, None, True, FROM_VOCABULARY, None),
        (UNCASED, {"do_lower_case": False}, None, False, FROM_SETTINGS, None),
        (UNCASED, {}, {"lowercase": False}, False, "Cased, according to tokenizer.json", None),
        (UNCASED, None, {"lowercase": True}, True, "Uncased, according to tokenizer.json", None),
        (UNCASED, {}, None, True, FROM_VOCABULARY, None),
        (CASED, {"do_lower_case": True}, None, True, "Uncased", UPPER),
        (CASED, {"do_lower_case": False, "strip_accents": True}, None, False, FROM_SETTINGS,
         "accents are kept"),
        (CASED, {"do_lower_case": False, "tokenize_chinese_chars": False}, None, False,
         FROM_SETTINGS, "tokenize_chinese_chars"),
    ],
)  # fmt: skip
def test_casing_its_source_and_warnings(
    tmp_path, tokens, settings, tokenizer, lowercase, reason, warning
):
    if settings is not None:
        write(tmp_path / "tokenizer_config.json", settings)
    if tokenizer is not None:
        write(tmp_path / "tokenizer.json", {"normalizer": tokenizer})
    decided, (note, *warnings) = decide_lowercase(tmp_path, tokens)
    assert decided == lowercase and reason in note and len(warnings) == bool(warning)
    assert all(text.startswith("Warning: ") and warning in text for text in warnings)


def test_vocabulary_from_text_or_tokenizer_file(tmp_path):
    assert find_vocabulary(tmp_path)[0] == {}
    model = {"type": "WordPiece", "vocab": {token: i for i, token in enumerate(UNCASED)}}
    write(tmp_path / "tokenizer.json", {"model": model})
    assert find_vocabulary(tmp_path)[0]["vocabulary"] == UNCASED
    # Only \n and \r\n end lines, as U+2028 is a token of some vocabularies.
    write(tmp_path / "vocab.txt", "a\r\nb\n\u2028\n")
    assert find_vocabulary(tmp_path)[0]["vocabulary"] == ["a", "b", "\u2028"]
    store = fsspec.filesystem("memory")
    store.pipe({"/words/vocab.txt": b"the\n", "/words/weights.bin": b"large"})
    for place in ["memory://words", "memory://words/vocab.txt"]:
        assert find_vocabulary(tmp_path, place)[0]["vocabulary"] == ["the"]
    assert not [*pathlib.Path(os.environ["KERAS_SPANBERT_CACHE"]).rglob("weights.bin")]


@pytest.mark.parametrize(
    "model, error",
    [
        ({"type": "BPE", "vocab": {"a": 0}}, "must have a WordPiece vocabulary. Received: 'BPE'"),
        ({"type": "WordPiece", "vocab": {"a": 0, "b": 2}}, "number its tokens from 0 to 1"),
        (None, "must have a WordPiece vocabulary. Received: None"),
    ],
)
def test_other_tokenizer_file_is_refused(tmp_path, model, error):
    with pytest.raises(ValueError, match=error):
        read_vocabulary(write(tmp_path / "tokenizer.json", {"model": model}))

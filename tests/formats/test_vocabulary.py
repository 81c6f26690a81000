import json

import pytest

import keras_spanbert as ks
from keras_spanbert.formats.vocabulary import decide_lowercase, find_vocabulary, read_vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CASED, UNCASED = [*SPECIAL, "the", "The"], [*SPECIAL, "the", "##é"]


def test_last_of_equal_tokens_counts_as_in_transformers(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "the", "of", "the"]))
    found = find_vocabulary(tmp_path)
    assert found["vocabulary"] == [*SPECIAL, "[repeated 5]", "of", "the"]
    assert "repeats tokens" in found["notes"][-1] and "such as 5" in found["notes"][-1]
    theirs = pytest.importorskip("transformers").BertTokenizer(str(tmp_path / "vocab.txt"))
    ours = ks.SpanBertTokenizer(found["vocabulary"], lowercase=True)
    assert ours("the of").tolist() == theirs("the of", add_special_tokens=False).input_ids


FROM_VOCABULARY = "no token of the vocabulary has an upper-case letter"


@pytest.mark.parametrize(
    "tokens, settings, tokenizer, lowercase, reason",
    [
        (CASED, None, None, False, "for example 'The'"),
        (UNCASED, None, None, True, FROM_VOCABULARY),
        (UNCASED, {"do_lower_case": False}, None, False, "Cased, according to tokenizer_config"),
        (UNCASED, {}, {"lowercase": False}, False, "Cased, according to tokenizer.json"),
        (UNCASED, None, {"lowercase": True}, True, "Uncased, according to tokenizer.json"),
        (UNCASED, {}, None, True, FROM_VOCABULARY),
    ],
)
def test_casing_and_its_source(tmp_path, tokens, settings, tokenizer, lowercase, reason):
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    if tokenizer is not None:
        (tmp_path / "tokenizer.json").write_text(json.dumps({"normalizer": tokenizer}))
    decided, notes = decide_lowercase(tmp_path, tokens)
    assert decided == lowercase and len(notes) == 1 and reason in notes[0]


@pytest.mark.parametrize(
    "lowercase, name, value, warning",
    [
        (True, "strip_accents", True, "the vocabulary has upper-case letters, for example 'The'"),
        (False, "strip_accents", True, "accents are kept"),
        (False, "tokenize_chinese_chars", False, "tokenize_chinese_chars"),
    ],
)
def test_inconsistent_settings_give_a_warning(tmp_path, lowercase, name, value, warning):
    settings = {"do_lower_case": lowercase, name: value}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    decided, notes = decide_lowercase(tmp_path, CASED)
    assert decided == lowercase
    assert notes[1].startswith("Warning: ") and warning in notes[1]


def test_vocabulary_from_text_or_tokenizer_file(tmp_path):
    assert read_vocabulary(str(tmp_path)) is None
    model = {"type": "WordPiece", "vocab": {token: i for i, token in enumerate(UNCASED)}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    assert read_vocabulary(str(tmp_path)) == UNCASED
    # Only \n and \r\n end lines, as U+2028 is a token of some vocabularies.
    (tmp_path / "vocab.txt").write_text("a\r\nb\n\u2028\n", encoding="utf-8", newline="")
    assert read_vocabulary(str(tmp_path)) == ["a", "b", "\u2028"]
    (tmp_path / "vocab.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(ValueError, match="vocab.txt must be UTF-8"):
        read_vocabulary(str(tmp_path))


@pytest.mark.parametrize(
    "model, error",
    [
        ({"type": "BPE", "vocab": {"a": 0}}, "must have a WordPiece vocabulary. Received: 'BPE'"),
        ({"type": "WordPiece", "vocab": {"a": 0, "b": 2}}, "number its tokens from 0 to 1"),
        (None, "must have a WordPiece vocabulary. Received: None"),
    ],
)
def test_other_tokenizer_file_is_refused(tmp_path, model, error):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    with pytest.raises(ValueError, match=error):
        read_vocabulary(str(tmp_path))

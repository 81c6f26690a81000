import json

import pytest

from keras_spanbert.formats.vocabulary import decide_lowercase, read_vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
CASED, UNCASED = [*SPECIAL, "the", "The"], [*SPECIAL, "the", "##é"]


@pytest.mark.parametrize(
    "tokens, settings, tokenizer, lowercase, reason",
    [
        (CASED, None, None, False, "as in 'The'"),
        (UNCASED, None, None, True, "no token of the vocabulary has an upper-case letter"),
        (UNCASED, {"do_lower_case": False}, None, False, "Cased: so says tokenizer_config.json"),
        (UNCASED, {}, {"lowercase": False}, False, "Cased: so says tokenizer.json"),
        (UNCASED, None, {"lowercase": True}, True, "Uncased: so says tokenizer.json"),
        (UNCASED, {}, None, True, "no token of the vocabulary has an upper-case letter"),
    ],
)
def test_casing_and_what_it_is_known_from(tmp_path, tokens, settings, tokenizer, lowercase, reason):
    if settings is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    if tokenizer is not None:
        (tmp_path / "tokenizer.json").write_text(json.dumps({"normalizer": tokenizer}))
    decided, notes = decide_lowercase(tmp_path, tokens)
    assert decided == lowercase and len(notes) == 1 and reason in notes[0]


@pytest.mark.parametrize(
    "tokens, settings, warning",
    [
        (CASED, {"do_lower_case": True}, "the vocabulary has upper-case letters, as in 'The'"),
        (UNCASED, {"do_lower_case": True, "strip_accents": False}, "accents are stripped"),
        (CASED, {"do_lower_case": False, "strip_accents": True}, "accents are kept"),
        (
            CASED,
            {"do_lower_case": False, "tokenize_chinese_chars": False},
            "tokenize_chinese_chars",
        ),
    ],
)
def test_settings_at_odds_are_warned_about(tmp_path, tokens, settings, warning):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    decided, notes = decide_lowercase(tmp_path, tokens)
    assert decided == settings["do_lower_case"]
    assert notes[1].startswith("Warning: ") and warning in notes[1]


def test_vocabulary_of_a_text_or_tokenizer_file(tmp_path):
    assert read_vocabulary(str(tmp_path)) is None
    model = {"type": "WordPiece", "vocab": {token: i for i, token in enumerate(UNCASED)}}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    assert read_vocabulary(str(tmp_path)) == UNCASED
    # Lines end in \n or \r\n alone; U+2028 is a token of some vocabularies.
    (tmp_path / "vocab.txt").write_text("a\r\nb\n\u2028\n", encoding="utf-8", newline="")
    assert read_vocabulary(str(tmp_path)) == ["a", "b", "\u2028"]


@pytest.mark.parametrize(
    "model, error",
    [
        ({"type": "BPE", "vocab": {"a": 0}}, "must hold a WordPiece vocabulary. Received: 'BPE'"),
        ({"type": "WordPiece", "vocab": {"a": 0, "b": 2}}, "number its tokens from 0 to 1"),
        (None, "must hold a WordPiece vocabulary. Received: None"),
    ],
)
def test_tokenizer_file_of_another_kind_is_refused(tmp_path, model, error):
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    with pytest.raises(ValueError, match=error):
        read_vocabulary(str(tmp_path))


def test_vocabulary_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(ValueError, match="vocab.txt must be UTF-8"):
        read_vocabulary(str(tmp_path))

"""The tokenizer gives the reference ids, eagerly and in graphs."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import keras_spanbert as ks
from keras_spanbert.text.normalization import reference_normalizer
from keras_spanbert.text.tokens import tokenize_texts

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL = [*SPECIAL_TOKENS, "span", "Span", "##BERT", "##bert", "##s", "cafe", "café", "[", "]", "."]
TRICKY = [
    "", " ", " \t\r\n ", "Span", "tab\tnew\nline\r\nreturn\rend",
    "The quick brown fox jumped over the lazy dog's 2nd fence, didn't it?",
    "café cafe\u0301 Ångström Ünïcödé ÉCLAIR e\u0301e\u0301",
    "I\u0307stanbul İSTANBUL ıSPARTA ẞtraße ǅ ﬁne ΣΊΣΥΦΟΣ",
    "漢字とカタカナ and 中文 mixed中文text \uf900 \U00020000", "한국어 텍스트",
    "👩\u200d👩\u200d👧 family ❤\ufe0f 🇩🇪 😀text",
    "no\u00a0break\u3000wide\u2003em\u2028line\u2029paragraph\u1680ogham\u202fnarrow",
    "bell\x07 nul-free\x01 del\x7f c1\x85next \x0bvt \x0cff \x1b[0m",
    "soft\u00adhyphen zero\u200bwidth \ufeffmark \u202eright\u202c \u2060join",
    "repl\ufffdaced \ufffd \ue000private \U000f0000",
    "a" * 99, "a" * 100, "a" * 101, "word " + "b" * 150 + " word", "x" + "7" * 100 + ".",
    "é" * 100 + " " + "é" * 101 + " e",
    "e\u0301" * 60 + " " + "İ" * 51 + " " + "한" * 34 + " " + "한" * 101,
    "\U0001f600" * 100 + "漢" + "\U0001f600" * 101 + "漢" + "·" * 101,
    "s\u00ad" * 100 + "\u00a0" + "s\u200b" * 101 + "\x07 \U0010ffff", "(" + "Z" * 100 + ")",
    "العربية نصٌّ مُشَكَّل لا", "ภาษาไทย ที่ไม่มีช่องว่าง", "हिन्दी में पाठ নমস্কার",
    "# ## ##s #hash C# a##s ### [#]", "[MASK] [CLS]x[SEP] [mask] [PAD]",
    "!?.,;:'\"()[]{}<>|\\/`~@$%^&*-_=+…—–“”‘’«»¿¡§¶†·、。「」！？",
    "[CLS][MASK]é\u00ad[MASK]. [MA\u00adSK] " + "[UNK]" * 30 + "z" * 98 + "[SEP]",
    "[PAD]\U00100001\U0010fffd [CLS]\U000f0000",
    "e-mail@example.com http://a.b/c?d=e&f=1,000.50€ £5 5° x²",
]  # fmt: skip


def graph_ids(tokenizer, texts):
    (ids,) = tf.data.Dataset.from_tensors(texts).map(tokenizer)
    return ids.to_list() if isinstance(ids, tf.RaggedTensor) else ids.numpy().tolist()


def graph_tokens(tokenizer, texts):
    dataset = tf.data.Dataset.from_tensors(texts)
    (tokens,) = dataset.map(lambda texts: tokenize_texts(tokenizer, texts, with_offsets=True))
    return tokens


def assert_graph_tokens_equal_eager_ones(tokenizer, texts):
    expected = tokenize_texts(tokenizer, texts, with_offsets=True)
    for name, tokens in zip(expected._fields, graph_tokens(tokenizer, texts)):
        np.testing.assert_array_equal(tokens, getattr(expected, name), err_msg=name)


def assert_same(ids, expected, texts):
    assert len(ids) == len(expected)
    for text, one, other in zip(texts, ids, expected):
        assert list(one) == list(other), repr(text)


@pytest.mark.parametrize("lowercase", [False, True])
def test_ids_equal_the_tokenizers_library(shared_data, lowercase):
    squad = json.loads((shared_data / "data/squad/dev-v1.1.json").read_text(encoding="utf-8"))
    contexts = [p["context"] for article in squad["data"] for p in article["paragraphs"]]
    texts = TRICKY + contexts[:: len(contexts) // 200][:200]
    vocabulary = str(shared_data / "reference" / "vocab" / "bert_base_cased.txt")
    reference = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=lowercase)
    # Prevents the library from finding special tokens in the text.
    texts = [text for text in texts if "[CLS]" not in text]
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    tokenizer = ks.SpanBertTokenizer(vocabulary, lowercase=lowercase)
    assert_same(tokenizer(texts), expected, texts)
    assert_same(graph_ids(tokenizer, texts), expected, texts)


@pytest.mark.long
@pytest.mark.parametrize("lowercase", [False, True])
def test_graph_equals_eager_for_all_code_points(lowercase):
    characters = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
    normalized = reference_normalizer(lowercase).normalize_str("".join(characters[:0x20000]))
    letters = sorted(set("".join(normalized.split())))
    tokenizer = ks.SpanBertTokenizer(
        [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters)], lowercase=lowercase
    )
    # Within a word, alone, and after a base letter.
    texts = [f"a{c}b {c} e{c}" for c in characters]
    lines = [" ".join(texts[i : i + 256]) for i in range(0, len(texts), 256)]
    assert_graph_tokens_equal_eager_ones(tokenizer, lines[:1024])
    # Separately, so that both the fast and the slow path are tested.
    ids = np.concatenate(tokenizer.tokenize_batch(lines))
    np.testing.assert_array_equal(tokenizer.traced(tf.constant(texts)).values, ids)


@pytest.mark.parametrize("special_tokens_in_strings", [False, True])
@pytest.mark.parametrize("lowercase", [False, True])
def test_graph_equals_eager_with_offsets(lowercase, special_tokens_in_strings):
    tokenizer = ks.SpanBertTokenizer(
        SMALL, lowercase=lowercase, special_tokens_in_strings=special_tokens_in_strings
    )
    texts = [*TRICKY, "SpanBERT spans Spans spanBERTs.", "CAFÉ café cafe\u0301"]
    assert_same(graph_ids(tokenizer, texts), tokenizer(texts), texts)
    assert_graph_tokens_equal_eager_ones(tokenizer, texts)


def test_ids_in_graphs_do_not_depend_on_offsets():
    # Normalization changes the order of these two marks.
    texts = ["a\U0001d16d\U0001d165"]
    tokenizer = ks.SpanBertTokenizer([*SPECIAL_TOKENS, "a", "##\U0001d16d", "##\U0001d165"], True)
    assert graph_ids(tokenizer, texts) == [[5, 6, 7]]
    assert graph_tokens(tokenizer, texts).ids[:-1].numpy().tolist() == [5, 6, 7]


def test_ids_of_words_and_of_strings_in_any_container():
    tokenizer = ks.SpanBertTokenizer(SMALL)
    assert tokenizer("SpanBERT spans. Span\u00adBERT dog").tolist() == [6, 7, 5, 9, 14, 6, 7, 1]
    lower = ks.SpanBertTokenizer(SMALL, lowercase=True)
    assert lower("SpanBERT CAFÉ cafe\u0301").tolist() == [5, 8, 10, 10]
    texts = ["Span café", "spans"]
    expected = [[6, 11], [5, 9]]
    for batch in [texts, tuple(texts), np.array(texts), tf.constant(texts)]:
        assert tokenizer(batch) == expected
    assert tokenizer([texts, texts[:1]]) == [expected, expected[:1]]
    assert tokenizer.detokenize(tokenizer(texts)) == ["Span café", "spans"]
    for text in ["Span café", "Span café".encode(), tf.constant("Span café")]:
        assert list(tokenizer(text)) == expected[0]
    assert tokenizer("").tolist() == []
    with pytest.raises(ValueError, match="1234"):
        ks.SpanBertTokenizer(SMALL).tokenize(1234)


@pytest.mark.parametrize("lowercase", [False, True])
def test_invalid_characters_become_replacement_characters(lowercase):
    tokenizer = ks.SpanBertTokenizer(SMALL, lowercase=lowercase)
    clean = "Sp\ufffdan \ufffd spans \ufffdcafé"
    broken = clean.replace("\ufffd", "\ud800")
    in_bytes = clean.encode().replace("\ufffd".encode(), b"\xff")
    expected = [5, 5, 9, 10] if lowercase else [6, 5, 9, 11]
    for text in [clean, broken, in_bytes, tf.constant(in_bytes)]:
        assert tokenizer(text).tolist() == expected
    assert graph_ids(tokenizer, [clean.encode(), in_bytes]) == [expected] * 2
    for text in [clean, broken]:
        (ids,), (offsets,) = tokenizer.tokenize_batch([text], with_offsets=True)
        assert ids.tolist() == tokenizer.tokenize_batch([text])[0].tolist() == expected
        assert offsets.tolist() == [[0, 5], [8, 12], [12, 13], [15, 19]]


def test_vocabulary_file(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(SMALL) + "\n", encoding="utf-8")
    tokenizer = ks.SpanBertTokenizer(str(path))
    assert tokenizer.get_vocabulary() == SMALL
    assert tokenizer("spans café").tolist() == ks.SpanBertTokenizer(SMALL)("spans café").tolist()
    path.write_text("\n".join([*SMALL, "span"]), encoding="utf-8")
    with pytest.raises(ValueError, match="'span' on line 6 and again on line 16"):
        ks.SpanBertTokenizer(path)
    path.write_bytes("\n".join(SMALL).encode() + b"\xff\n")
    with pytest.raises(ValueError, match=f"{path} must be UTF-8. Received: .* 0xff"):
        ks.SpanBertTokenizer(str(path))
    with pytest.raises(FileNotFoundError, match="none.txt"):
        ks.SpanBertTokenizer(str(tmp_path / "none.txt"))


def test_tokenizer_file(tmp_path):
    path = tmp_path / "mine.json"
    reference = tokenizers.BertWordPieceTokenizer({t: i for i, t in enumerate(SMALL)})
    reference.add_tokens(["x-y"])
    reference.save(str(path))
    tokenizer = ks.SpanBertTokenizer(path, lowercase=True)
    assert tokenizer.get_vocabulary() == [*SMALL, "x-y"]
    text = "Spans x-y café"
    assert tokenizer(text).tolist() == reference.encode(text, add_special_tokens=False).ids
    with pytest.raises(ValueError, match="must be True, as in .*mine.json. Received: False"):
        ks.SpanBertTokenizer(str(path))
    config = {**tokenizer.get_config(), "vocabulary": str(path)}
    config = {**keras.saving.serialize_keras_object(tokenizer), "config": config}
    with pytest.raises(TypeError, match="outside of the model archive"):  # Keras wraps the error.
        keras.saving.deserialize_keras_object(config)


def test_special_tokens_in_strings_are_text_unless_enabled():
    tokenizer = ks.SpanBertTokenizer(SMALL)
    # "[", unknown, "]"
    assert tokenizer("Span [MASK]").tolist() == [6, 12, 1, 13]
    assert graph_ids(tokenizer, ["Span [MASK]"]) == [[6, 12, 1, 13]]
    tokenizer = ks.SpanBertTokenizer(SMALL, lowercase=True, special_tokens_in_strings=True)
    texts = ["spans [MASK] [SEP]cafe[MASK]."]
    expected = [[5, 9, 4, 3, 10, 4, 14]]
    assert tokenizer(texts) == expected
    assert graph_ids(tokenizer, texts) == expected


def test_sequence_length_pads_and_truncates():
    tokenizer = ks.SpanBertTokenizer(SMALL, sequence_length=3)
    texts = ["Span", "", "Span spans .", "span Span ."]
    expected = [[6, 0, 0], [0, 0, 0], [6, 5, 9], [5, 6, 14]]
    found = tokenizer(texts)
    assert isinstance(found, np.ndarray) and found.dtype == np.int32
    assert found.tolist() == expected
    assert tokenizer([]).shape == (0, 3)
    assert tokenizer([texts[:2], texts[2:]]).tolist() == [expected[:2], expected[2:]]
    pieces = [rows.tolist() for rows in tokenizer([texts[:1], texts[1:]])]
    assert pieces == [expected[:1], expected[1:]]
    assert graph_ids(tokenizer, texts) == expected
    singles = tf.data.Dataset.from_tensor_slices(texts).map(tokenizer)
    assert singles.element_spec.shape == (3,)
    assert [ids.tolist() for ids in singles.as_numpy_iterator()] == expected


def test_shapes_and_dtypes_of_strings_in_graphs():
    tokenizer = ks.SpanBertTokenizer(SMALL)
    singles = tf.data.Dataset.from_tensor_slices(["Span", "", "Span spans ."]).map(tokenizer)
    assert [ids.tolist() for ids in singles.as_numpy_iterator()] == [[6], [], [6, 5, 9, 14]]
    ragged = tf.ragged.constant([["Span é", "spans"], [], ["Span"]])
    assert graph_ids(tokenizer, ragged) == [[[6, 1], [5, 9]], [], [[6]]]
    tokenizer = ks.SpanBertTokenizer(SMALL, dtype="string")
    assert list(tokenizer("SpanBERT dog")) == ["Span", "##BERT", "[UNK]"]
    tokenizer = ks.SpanBertTokenizer(SMALL, dtype="string", special_tokens_in_strings=True)
    assert graph_ids(tokenizer, ["Spans [MASK] dog"]) == [[b"Span", b"##s", b"[MASK]", b"[UNK]"]]


@pytest.mark.parametrize("dtype", ["int32", "string"])
def test_tokens_of_graphs_are_ids_neither_padded_nor_cut(dtype):
    tokenizer = ks.SpanBertTokenizer(SMALL, sequence_length=2, dtype=dtype)
    texts = ["Span", "cafe Span ."]
    expected = [ids.tolist() for ids in tokenizer.tokenize_batch(texts)]
    assert tokenizer.traced(tf.constant(texts)).to_list() == expected == [[6], [10, 6, 14]]

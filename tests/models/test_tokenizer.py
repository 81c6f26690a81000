"""The tokenizer gives the reference's ids, eagerly and in graphs."""

import json
import unicodedata

import keras
import numpy as np
import pytest
import tensorflow as tf
import tokenizers

import keras_spanbert as ks

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SMALL = [*SPECIAL_TOKENS, "span", "Span", "##BERT", "##bert", "##s", "cafe", "café", "[", "]", "."]
TRICKY = [
    "",
    " ",
    " \t\r\n ",
    "Span",
    "The quick brown fox jumped over the lazy dog's 2nd fence, didn't it?",
    "café cafe\u0301 Ångström Ünïcödé ÉCLAIR e\u0301e\u0301",
    "I\u0307stanbul İSTANBUL ıSPARTA ẞtraße ǅ ﬁne ΣΊΣΥΦΟΣ",
    "漢字とカタカナ and 中文 mixed中文text \uf900 \U00020000",
    "한국어 텍스트",
    "👩\u200d👩\u200d👧 family ❤\ufe0f 🇩🇪 😀text",
    "no\u00a0break\u3000wide\u2003em\u2028line\u2029paragraph\u1680ogham\u202fnarrow",
    "bell\x07 nul-free\x01 del\x7f c1\x85next \x0bvt \x0cff \x1b[0m",
    "soft\u00adhyphen zero\u200bwidth \ufeffmark \u202eright\u202c \u2060join",
    "repl\ufffdaced \ufffd \ue000private \U000f0000",
    "a" * 99,
    "a" * 100,
    "a" * 101,
    "word " + "b" * 150 + " word",
    "x" + "7" * 100 + ".",
    "(" + "Z" * 100 + ")",
    "العربية نصٌّ مُشَكَّل لا",
    "ภาษาไทย ที่ไม่มีช่องว่าง",
    "हिन्दी में पाठ নমস্কার",
    "# ## ##s #hash C# a##s ### [#]",
    "!?.,;:'\"()[]{}<>|\\/`~@$%^&*-_=+…—–“”‘’«»¿¡§¶†·、。「」！？",
    "[MASK] [CLS]x[SEP] [mask] [PAD]",
    "e-mail@example.com http://a.b/c?d=e&f=1,000.50€ £5 5° x²",
    "tab\tnew\nline\r\nreturn\rend",
]


@pytest.fixture(scope="session")
def cased_vocabulary(shared_data):
    return str(shared_data / "reference" / "vocab" / "bert_base_cased.txt")


@pytest.fixture(scope="session")
def contexts(shared_data):
    with open(shared_data / "data" / "squad" / "dev-v1.1.json", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    texts = [p["context"] for article in articles for p in article["paragraphs"]]
    return texts[:: len(texts) // 200][:200]


def graph_ids(tokenizer, texts):
    (ids,) = tf.data.Dataset.from_tensors(texts).map(tokenizer)
    return ids.to_list() if isinstance(ids, tf.RaggedTensor) else ids.numpy().tolist()


def assert_same(ids, expected, texts):
    assert len(ids) == len(expected)
    for text, one, other in zip(texts, ids, expected):
        assert list(one) == list(other), repr(text)


# === The reference's ids ===


@pytest.mark.parametrize("lowercase", [False, True])
def test_ids_equal_the_tokenizers_library_eagerly_and_in_graphs(
    cased_vocabulary, contexts, lowercase
):
    texts = TRICKY + contexts
    reference = tokenizers.BertWordPieceTokenizer(cased_vocabulary, lowercase=lowercase)
    # Text is text: the library would find special tokens in it.
    texts = [text for text in texts if "[CLS]" not in text]
    expected = [reference.encode(text, add_special_tokens=False).ids for text in texts]
    tokenizer = ks.SpanBertTokenizer(cased_vocabulary, lowercase=lowercase)
    assert_same(tokenizer(texts), expected, texts)
    assert_same(graph_ids(tokenizer, texts), expected, texts)


@pytest.mark.parametrize("lowercase", [False, True])
def test_graph_equals_eager_for_characters_of_all_blocks(cased_vocabulary, lowercase):
    # Of Unicode 3.2: about later ones, libraries of different age disagree.
    category = unicodedata.category
    points = [*range(1, 0x3100), *range(0x3100, 0xD800, 61), *range(0xF900, 0x10000)]
    points += range(0x1D100, 0x1D800)
    characters = [
        c for c in map(chr, points) if unicodedata.ucd_3_2_0.category(c) == category(c) != "Cn"
    ]
    assert len(characters) > 8000
    # In a word, on its own, and behind a base letter it may combine with.
    texts = [f"a{c}b {c} e{c}" for c in characters]
    tokenizer = ks.SpanBertTokenizer(cased_vocabulary, lowercase=lowercase)
    assert_same(graph_ids(tokenizer, texts), tokenizer(texts), texts)


@pytest.mark.parametrize("lowercase", [False, True])
def test_graph_equals_eager_on_a_small_vocabulary(lowercase):
    tokenizer = ks.SpanBertTokenizer(SMALL, lowercase=lowercase)
    texts = [*TRICKY, "SpanBERT spans Spans spanBERTs.", "CAFÉ café cafe\u0301"]
    assert_same(graph_ids(tokenizer, texts), tokenizer(texts), texts)


def test_ids_of_words_worked_out_by_hand():
    tokenizer = ks.SpanBertTokenizer(SMALL)
    assert tokenizer("SpanBERT spans. Span\u00adBERT dog").tolist() == [6, 7, 5, 9, 14, 6, 7, 1]
    lower = ks.SpanBertTokenizer(SMALL, lowercase=True)
    assert lower("SpanBERT CAFÉ cafe\u0301").tolist() == [5, 8, 10, 10]


def test_strings_in_any_container_give_the_same_ids():
    tokenizer = ks.SpanBertTokenizer(SMALL)
    texts = ["Span café", "spans"]
    expected = [[6, 11], [5, 9]]
    for batch in [texts, tuple(texts), np.array(texts), tf.constant(texts)]:
        assert [list(ids) for ids in tokenizer(batch)] == expected
    for text in ["Span café", "Span café".encode(), tf.constant("Span café")]:
        assert list(tokenizer(text)) == expected[0]
    assert tokenizer("").tolist() == []


def test_error_for_what_is_no_text_echoes_it():
    with pytest.raises(ValueError, match="1234"):
        ks.SpanBertTokenizer(SMALL).tokenize(1234)


# === What is no character ===


def test_lone_surrogates_and_bytes_that_are_no_utf8_count_as_the_replacement_character():
    tokenizer = ks.SpanBertTokenizer(SMALL)
    clean = "Sp\ufffdan \ufffd spans \ufffdcafé"
    broken = clean.replace("\ufffd", "\ud800")
    in_bytes = clean.encode().replace("\ufffd".encode(), b"\xff")
    expected = [6, 5, 9, 11]
    for text in [clean, broken, in_bytes, tf.constant(in_bytes)]:
        assert tokenizer(text).tolist() == expected
    assert graph_ids(tokenizer, [clean.encode(), in_bytes]) == [expected] * 2
    for text in [clean, broken]:
        (ids,), (offsets,) = tokenizer.tokenize_batch([text], with_offsets=True)
        assert ids.tolist() == expected
        assert offsets.tolist() == [[0, 5], [8, 12], [12, 13], [15, 19]]
    (ids,) = tokenizer.tokenize_batch([broken])
    assert ids.tolist() == expected


# === Vocabulary ===


@pytest.mark.parametrize("token", ["\ud800", 7])
def test_error_for_a_token_that_is_no_text_names_it_and_its_line(token):
    with pytest.raises(ValueError, match=f"{token!r} on line 6".replace("\\", r"\\")):
        ks.SpanBertTokenizer([*SPECIAL_TOKENS, token])


def test_error_for_a_vocabulary_file_names_it(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\n".join(SMALL).encode() + b"\xff\n")
    with pytest.raises(ValueError, match=f"{path} must be UTF-8. Received: .* 0xff"):
        ks.SpanBertTokenizer(str(path))
    with pytest.raises(FileNotFoundError, match="none.txt"):
        ks.SpanBertTokenizer(str(tmp_path / "none.txt"))


def test_error_for_a_token_twice_names_it_and_its_lines():
    with pytest.raises(ValueError, match="'span' on line 6 and again on line 8"):
        ks.SpanBertTokenizer([*SPECIAL_TOKENS, "span", "dog", "span"])


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_error_for_a_missing_special_token_names_it(token):
    with pytest.raises(ValueError) as error:
        ks.SpanBertTokenizer([t for t in SMALL if t != token])
    assert token in str(error.value)


def test_vocabulary_file_gives_the_same_ids_as_its_list(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(SMALL) + "\n", encoding="utf-8")
    from_file = ks.SpanBertTokenizer(str(path))
    assert from_file.get_vocabulary() == SMALL
    assert from_file("spans café").tolist() == ks.SpanBertTokenizer(SMALL)("spans café").tolist()


# === Special tokens in text ===


def test_special_tokens_in_strings_are_text_by_default():
    tokenizer = ks.SpanBertTokenizer(SMALL)
    # "[", unknown, "]"
    assert tokenizer("Span [MASK]").tolist() == [6, 12, 1, 13]
    assert graph_ids(tokenizer, ["Span [MASK]"]) == [[6, 12, 1, 13]]


@pytest.mark.parametrize("lowercase", [False, True])
def test_special_tokens_in_strings_are_tokens_on_demand(lowercase):
    tokenizer = ks.SpanBertTokenizer(SMALL, lowercase=lowercase, special_tokens_in_strings=True)
    texts = ["spans [MASK] [SEP]cafe[MASK]."]
    expected = [[5, 9, 4, 3, 10, 4, 14]]
    assert [ids.tolist() for ids in tokenizer(texts)] == expected
    assert graph_ids(tokenizer, texts) == expected


# === Saving ===


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("through", ["preset", "config", "serialization"])
def test_lowercase_survives_a_round_trip(tmp_path, lowercase, through):
    tokenizer = ks.SpanBertTokenizer(SMALL, lowercase=lowercase, sequence_length=6)
    if through == "preset":
        # keras-hub loads a tokenizer only from beside a model.
        sizes = {"num_layers": 1, "num_heads": 1, "hidden_dim": 2, "intermediate_dim": 2}
        ks.SpanBertBackbone(len(SMALL), **sizes).save_to_preset(str(tmp_path))
        tokenizer.save_to_preset(str(tmp_path))
        copy = ks.SpanBertTokenizer.from_preset(str(tmp_path))
    elif through == "config":
        copy = ks.SpanBertTokenizer.from_config(tokenizer.get_config())
    else:
        config = keras.saving.serialize_keras_object(tokenizer)
        copy = keras.saving.deserialize_keras_object(config)
    if copy.vocabulary is None:  # Kept in an asset, not in the config.
        copy.set_vocabulary(SMALL)
    assert type(copy) is ks.SpanBertTokenizer
    assert copy.lowercase == lowercase and copy.get_vocabulary() == SMALL
    texts = ["SPAN span CAFÉ café"]
    assert_same(copy(texts), tokenizer(texts), texts)
    assert_same(graph_ids(copy, texts), tokenizer(texts), texts)


# === Lengths ===


def test_sequence_length_pads_and_cuts_eagerly_and_in_graphs():
    tokenizer = ks.SpanBertTokenizer(SMALL, sequence_length=3)
    texts = ["Span", "", "Span spans .", "span Span ."]
    expected = [[6, 0, 0], [0, 0, 0], [6, 5, 9], [5, 6, 14]]
    assert [ids.tolist() for ids in tokenizer(texts)] == expected
    (batch,) = tf.data.Dataset.from_tensors(texts).map(tokenizer)
    assert batch.numpy().tolist() == expected


def test_single_strings_are_tokenized_in_graphs_as_eagerly():
    texts = ["Span", "", "Span spans ."]
    tokenizer = ks.SpanBertTokenizer(SMALL)
    singles = tf.data.Dataset.from_tensor_slices(texts).map(tokenizer)
    assert [ids.tolist() for ids in singles.as_numpy_iterator()] == [[6], [], [6, 5, 9, 14]]
    tokenizer = ks.SpanBertTokenizer(SMALL, sequence_length=3)
    singles = tf.data.Dataset.from_tensor_slices(texts).map(tokenizer)
    assert singles.element_spec.shape == (3,)
    expected = [[6, 0, 0], [0, 0, 0], [6, 5, 9]]
    assert [ids.tolist() for ids in singles.as_numpy_iterator()] == expected


def test_string_dtype_gives_tokens():
    tokenizer = ks.SpanBertTokenizer(SMALL, dtype="string")
    assert list(tokenizer("SpanBERT dog")) == ["Span", "##BERT", "[UNK]"]


# === Back to text ===


def test_detokenize_joins_the_pieces_of_words():
    tokenizer = ks.SpanBertTokenizer(SMALL)
    assert tokenizer.detokenize([6, 7, 9, 5, 8]) == "SpanBERTs spanbert"
    assert list(tokenizer.detokenize([[6, 7], [5, 11]])) == ["SpanBERT", "span café"]

"""Text files to documents, blocks of tokens and masked batches."""

import codecs
import collections
import gzip
import re
import tracemalloc

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_spanbert as ks
from keras_spanbert.data import blocks as blocks_module
from keras_spanbert.data import text_files
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.vocabulary import SPECIAL_TOKENS

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = [f"w{i}" for i in range(400)]
BOUNDARIES = ["file", "blank_line", "line"]


@pytest.fixture(scope="module")
def tokenizer():
    return ks.SpanBertTokenizer([*SPECIAL_TOKENS, *WORDS, "hyper", "##graph", "##s", "."])


@pytest.fixture
def small_parts(monkeypatch):
    """Reads, pieces and tokenizer calls so small that a short text has many."""
    monkeypatch.setattr(text_files, "_READ_BYTES", 5)
    monkeypatch.setattr(text_files, "_PIECE_CHARACTERS", 16)
    monkeypatch.setattr(blocks_module, "_TOKENIZE_CHARACTERS", 24)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return str(path)


def texts_of(corpus, split="all", order=None):
    """Whole documents, each its pieces joined."""
    texts, pieces = [], []
    for text, ends_document in corpus.documents(split, order):
        pieces.append(text)
        if ends_document:
            texts.append("".join(pieces))
            pieces = []
    assert not pieces, "the last document has no end"
    return texts


def words_of(corpus, **kwargs):
    return [text.split() for text in texts_of(corpus, **kwargs)]


def expected_documents(text, boundary):
    """The documents' words, line by line, without the library's regular expressions."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    documents = [[]]
    for line in lines:
        documents[-1] += line.split()
        if boundary == "line" or (boundary == "blank_line" and not line.strip()):
            documents.append([])
    return [words for words in documents if words]


def numbered_files(folder, sizes):
    """Files of one document each, of so many words; no word is in two files."""
    words = iter(WORDS)
    documents = [[next(words) for _ in range(size)] for size in sizes]
    for i, document in enumerate(documents):
        write(folder / f"{i:02d}.txt", " ".join(document))
    return str(folder / "*.txt"), documents


def tokens_of_blocks(corpus, tokenizer, sequence_length, **kwargs):
    """Blocks without padding, each checked to be `[CLS]` tokens `[SEP]` padding."""
    rows = []
    for blocks in corpus.blocks(tokenizer, sequence_length, **kwargs):
        assert blocks.dtype == np.int32 and blocks.shape[1] == sequence_length
        for row in blocks.tolist():
            size = row.index(SEP)
            assert row[0] == CLS and row[size + 1 :] == [PAD] * (sequence_length - size - 1)
            rows.append(row[1:size])
    return rows


def unmasked(dataset):
    """The batches' blocks, as they were before masking, of rows with tokens."""
    rows = []
    for x, y, weight in dataset.as_numpy_iterator():
        token_ids = x["token_ids"].copy()
        row, slot = np.nonzero(weight["mlm"])
        token_ids[row, x["mask_positions"][row, slot]] = y["mlm"][row, slot]
        rows += [tuple(ids) for ids in token_ids.tolist() if ids[0] == CLS]
    return rows


def stream(dataset, batches):
    return [
        [np.asarray(a) for a in tf.nest.flatten(batch)]
        for batch in dataset.take(batches).as_numpy_iterator()
    ]


def same(one, other):
    return len(one) == len(other) and all(
        np.array_equal(a, b) for x, y in zip(one, other) for a, b in zip(x, y)
    )


# === Documents ===


@pytest.mark.parametrize(
    ("boundary", "documents"),
    [
        ("file", [["one", "two", "three", "four"], ["five"]]),
        ("blank_line", [["one", "two"], ["three", "four"], ["five"]]),
        ("line", [["one"], ["two"], ["three"], ["four"], ["five"]]),
    ],
)
def test_documents_end_where_the_boundary_says(tmp_path, boundary, documents):
    write(tmp_path / "a.txt", "one\ntwo\n \t\n\n three\nfour\n\n")
    write(tmp_path / "b.txt", "\n\nfive")
    corpus = Corpus(tmp_path / "*.txt", boundary)
    assert words_of(corpus) == documents
    assert words_of(Corpus(str(tmp_path / "*.txt"), boundary)) == documents
    assert corpus.num_documents == len(documents)
    assert corpus.num_characters == sum(len(text) for text, _ in corpus.documents("all"))


def test_file_of_two_names_is_read_once(tmp_path):
    write(tmp_path / "b.txt", "one two")
    (tmp_path / "a.txt").symlink_to(tmp_path / "b.txt")
    (tmp_path / "c.txt").symlink_to(tmp_path / "b.txt")
    corpus = Corpus(tmp_path / "*.txt")
    assert corpus.files == [str(tmp_path / "a.txt")] and corpus.num_documents == 1


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("line_end", ["\r\n", "\r"])
def test_line_ends_of_other_systems_equal_newlines(tmp_path, small_parts, boundary, line_end):
    text = "ab cd\nef\n\ngh ij kl\n\n\nmn\nop qr\n"
    plain = Corpus(write(tmp_path / "a.txt", text), boundary)
    other = Corpus(write(tmp_path / "b.txt", text.replace("\n", line_end)), boundary)
    assert words_of(other) == words_of(plain)


def test_gzip_equals_plain_text(tmp_path):
    text = "eins zwei\n\ndrei größer 漢字\n" * 300
    plain = Corpus(write(tmp_path / "a.txt", text), "blank_line")
    packed = Corpus(write(tmp_path / "b.gz", gzip.compress(text.encode())), "blank_line")
    assert list(packed.documents("all")) == list(plain.documents("all"))


def test_byte_order_mark_is_no_text(tmp_path, small_parts):
    text = "ab cd ef gh ij kl mn"
    corpus = Corpus(write(tmp_path / "a.txt", codecs.BOM_UTF8 + text.encode()))
    assert texts_of(corpus) == [text]


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_documents_do_not_depend_on_read_boundaries(tmp_path, small_parts, monkeypatch, boundary):
    # Multi-byte characters, \r\n and blank lines come apart in all places.
    generator = np.random.default_rng(3)
    parts = ["ab", "é", "漢字", "😀x", " ", " ", "\n", "\r\n", "\r", "\n\n", "\r\n \r\n"]
    for i in range(40):
        text = "".join(generator.choice(parts, 60)) + "end"
        path = write(tmp_path / f"{i}.txt", text)
        monkeypatch.setattr(text_files, "_READ_BYTES", 1 + i % 9)
        assert words_of(Corpus(path, boundary)) == expected_documents(text, boundary), repr(text)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_long_document_comes_in_pieces_that_join_to_its_text(tmp_path, small_parts, boundary):
    text = " ".join(f"é{i} 漢" for i in range(300))
    corpus = Corpus(write(tmp_path / "a.txt", text), boundary)
    pieces = list(corpus.documents("all"))
    assert "".join(piece for piece, _ in pieces) == text
    assert [ends for _, ends in pieces] == [False] * (len(pieces) - 1) + [True]
    # Cut between words.
    assert [word for piece, _ in pieces for word in piece.split()] == text.split()
    assert corpus.num_documents == 1
    # 5 bytes a read, pieces from 16 characters on: none much longer.
    assert len(pieces) > 50 and max(len(piece) for piece, _ in pieces) < 32


def test_blank_line_within_long_white_space_ends_the_document(tmp_path, small_parts):
    text = "one\n" + 40 * " " + "\ntwo"
    corpus = Corpus(write(tmp_path / "a.txt", text), "blank_line")
    assert words_of(corpus) == [["one"], ["two"]]


def test_long_white_space_is_read_quickly():
    # A search for the last word must not start at each of the blanks anew.
    text = 70_000 * "a " + 20_000 * " " + "b " * 10
    pieces = list(text_files._split_documents([text], "file"))
    assert "".join(piece for piece, _ in pieces) == text


@pytest.mark.parametrize("boundary", ["file", "line"])
def test_memory_does_not_grow_with_a_line(tmp_path, monkeypatch, boundary):
    monkeypatch.setattr(text_files, "_READ_BYTES", 1 << 16)
    num_words = 1_000_000
    path = write(tmp_path / "a.txt", b"word " * num_words)  # 5 MB
    tracemalloc.start()
    try:
        corpus = Corpus(path, boundary)
        counted = sum(len(text.split()) for text, _ in corpus.documents("all"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counted == num_words and corpus.num_documents == 1
    assert peak < 3_000_000


def test_several_globs_give_each_file_once_and_sorted(tmp_path):
    for name in "cab":
        write(tmp_path / f"{name}.txt", name)
    corpus = Corpus([str(tmp_path / "c*"), str(tmp_path / "*.txt")])
    assert texts_of(corpus) == ["a", "b", "c"]
    assert texts_of(corpus, order=[2, 0, 1]) == ["c", "a", "b"]


# === Held-out documents ===


def test_each_nth_document_is_held_out_and_no_other(tmp_path):
    for i in range(3):
        write(tmp_path / f"{i}.txt", "".join(f"doc{i}{j}\n" for j in range(7)))
    corpus = Corpus(str(tmp_path / "*"), "line", held_out=0.25)
    documents = texts_of(corpus)
    assert len(documents) == 21
    assert texts_of(corpus, "held_out") == documents[3::4]
    assert texts_of(corpus, "train") == [d for i, d in enumerate(documents) if i % 4 != 3]
    # A document's split does not depend on the order of the files.
    backwards = texts_of(corpus, "held_out", order=[2, 1, 0])
    assert sorted(backwards) == sorted(documents[3::4])


def test_a_long_documents_pieces_stay_in_one_split(tmp_path, small_parts):
    text = "\n".join(" ".join(f"d{i}x{j}" for j in range(40)) for i in range(6))
    corpus = Corpus(write(tmp_path / "a.txt", text), "line", held_out=0.5)
    assert words_of(corpus, split="train") == [line.split() for line in text.split("\n")[::2]]
    assert words_of(corpus, split="held_out") == [line.split() for line in text.split("\n")[1::2]]


@pytest.mark.parametrize("held_out", [0.001, 0.3, 0.5, 0.6, 0.7, 0.99])
def test_no_split_is_empty_whatever_the_share(tmp_path, held_out):
    path = write(tmp_path / "a.txt", "".join(f"doc{i}\n" for i in range(10)))
    try:
        corpus = Corpus(path, "line", held_out=held_out)
    except ValueError:  # Each n-th document cannot be more than a half.
        assert held_out > 0.5
        return
    assert texts_of(corpus, "train") and texts_of(corpus, "held_out")


def test_nothing_is_held_out_by_default(tmp_path):
    corpus = Corpus(write(tmp_path / "a.txt", "one\ntwo\n"), "line")
    assert texts_of(corpus, "held_out") == []
    assert texts_of(corpus, "train") == ["one", "two"]


# === Blocks ===


@pytest.mark.parametrize("min_tokens", [1, 3, 5])
@pytest.mark.parametrize("parts", ["small", "default"])
def test_blocks_hold_each_token_once_but_for_short_tails(
    tmp_path, tokenizer, monkeypatch, min_tokens, parts
):
    if parts == "small":
        monkeypatch.setattr(text_files, "_READ_BYTES", 7)
        monkeypatch.setattr(text_files, "_PIECE_CHARACTERS", 16)
        monkeypatch.setattr(blocks_module, "_TOKENIZE_CHARACTERS", 40)
    # Around one block of 5 tokens, around two, and several.
    sizes = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 52, 53, 54]
    files, documents = numbered_files(tmp_path, sizes)
    blocks = tokens_of_blocks(Corpus(files), tokenizer, 7, min_tokens=min_tokens)
    expected = []
    for document in documents:
        ids = [tokenizer.token_to_id(word) for word in document]
        cut = [ids[i : i + 5] for i in range(0, len(ids), 5)]
        expected += [block for block in cut if len(block) >= min_tokens]
    assert blocks == expected


def test_full_blocks_stay_where_min_tokens_exceeds_them(tmp_path, tokenizer):
    files, _ = numbered_files(tmp_path, [7])
    blocks = tokens_of_blocks(Corpus(files), tokenizer, 5, min_tokens=8)
    assert [len(block) for block in blocks] == [3, 3]


def test_words_of_several_tokens_are_cut_as_in_the_whole_document(tmp_path, tokenizer, small_parts):
    text = " ".join(["hypergraphs.", "w1"] * 40)
    corpus = Corpus(write(tmp_path / "a.txt", text))
    blocks = tokens_of_blocks(corpus, tokenizer, 9, min_tokens=1)
    assert [len(block) for block in blocks] == [7] * 28 + [4]
    assert sum(blocks, []) == tokenizer(text).tolist()


def test_blocks_of_one_split_hold_its_documents_alone(tmp_path, tokenizer):
    files, documents = numbered_files(tmp_path, [10, 11, 12, 13])
    corpus = Corpus(files, held_out=0.5)
    for split, first in [("train", 0), ("held_out", 1)]:
        blocks = tokens_of_blocks(corpus, tokenizer, 6, split=split, min_tokens=1)
        words = [tokenizer.id_to_token(i) for block in blocks for i in block]
        assert words == documents[first] + documents[first + 2]


def test_documents_without_tokens_give_no_blocks(tmp_path, tokenizer):
    # Zero-width spaces are no blanks, yet the tokenizer drops them.
    path = write(tmp_path / "a.txt", "\u200b\u200b\nw1 w2 w3\n\u200b\n")
    blocks = tokens_of_blocks(Corpus(path, "line"), tokenizer, 5, min_tokens=1)
    assert [[tokenizer.id_to_token(i) for i in block] for block in blocks] == [["w1", "w2", "w3"]]


def test_token_counts_equal_a_counter_over_the_training_documents(tmp_path, tokenizer):
    generator = np.random.default_rng(0)
    for i in range(6):
        write(tmp_path / f"{i}.txt", " ".join(generator.choice([*WORDS[:9], "hypergraph"], 33)))
    corpus = Corpus(str(tmp_path / "*"), held_out=0.5)
    counts, num_blocks = corpus.token_counts(tokenizer, 12, min_tokens=1)
    expected = collections.Counter(
        i for text in texts_of(corpus, "train") for i in tokenizer(text).tolist()
    )
    assert {i: c for i, c in enumerate(counts.tolist()) if c} == expected
    assert num_blocks == len(tokens_of_blocks(corpus, tokenizer, 12, min_tokens=1))


# === Vocabulary ===


@pytest.mark.parametrize("lowercase", [False, True])
def test_vocabulary_is_the_same_each_time_and_starts_with_special_tokens(tmp_path, lowercase):
    # Many ties between pairs, which hash order would break at random.
    generator = np.random.default_rng(1)
    words = ["".join(generator.choice(list("abcdeÉfghijkl"), 4)) for _ in range(300)]
    corpus = Corpus(write(tmp_path / "a.txt", " ".join(words)))
    vocabularies = [corpus.train_vocabulary(150, lowercase) for _ in range(3)]
    assert vocabularies[0] == vocabularies[1] == vocabularies[2]
    vocabulary = vocabularies[0]
    assert vocabulary[:5] == list(SPECIAL_TOKENS)
    assert len(vocabulary) == len(set(vocabulary)) == 150
    assert ("É" in vocabulary) == (not lowercase)
    tokenizer = ks.SpanBertTokenizer(vocabulary, lowercase=lowercase)
    assert UNK not in tokenizer(" ".join(words))


def test_vocabulary_does_not_exceed_its_size_with_many_letters(tmp_path):
    text = "".join(chr(0x4E00 + i) for i in range(3000)) + " abc" * 100
    vocabulary = Corpus(write(tmp_path / "a.txt", text)).train_vocabulary(200)
    assert len(vocabulary) <= 200
    assert "a" in vocabulary  # The most frequent letters stay.


def test_vocabulary_knows_training_documents_only(tmp_path):
    write(tmp_path / "a.txt", "abba " * 50)
    write(tmp_path / "b.txt", "zyxz " * 50)
    vocabulary = Corpus(str(tmp_path / "*"), held_out=0.5).train_vocabulary(100)
    assert "abba" in vocabulary and not any("z" in token for token in vocabulary)


# === Datasets ===


@pytest.fixture(scope="module")
def preprocessor(tokenizer):
    return ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=7, mask_rate=0.4)


def test_epoch_holds_each_block_once(tmp_path, tokenizer, preprocessor):
    files, _ = numbered_files(tmp_path, [40, 45, 30, 50])  # 33 blocks of 5
    corpus = Corpus(files)
    blocks = np.concatenate(list(corpus.blocks(tokenizer, 7)))
    dataset = corpus.training_dataset(
        preprocessor, batch_size=11, seed=5, epochs=2, min_tokens=1, shuffle_blocks=4
    )
    rows = unmasked(dataset)
    assert len(rows) == 2 * len(blocks) == 66
    first, second = rows[:33], rows[33:]
    expected = sorted(map(tuple, blocks.tolist()))
    assert sorted(first) == sorted(second) == expected
    # Drawn anew in each epoch, and in neither the order of the files.
    assert first != second and list(map(tuple, blocks.tolist())) not in (first, second)


def test_seed_fixes_the_training_stream_whatever_the_parallelism(tmp_path, preprocessor):
    files, _ = numbered_files(tmp_path, [40, 45, 30, 50])
    corpus = Corpus(files)

    def batches(seed, threads=None):
        dataset = corpus.training_dataset(preprocessor, 4, seed=seed, shuffle_blocks=9)
        if threads:
            options = tf.data.Options()
            options.threading.private_threadpool_size = threads
            options.threading.max_intra_op_parallelism = 1
            options.autotune.enabled = False
            dataset = dataset.with_options(options)
        return stream(dataset, 20)  # Beyond an epoch.

    first = batches(1)
    assert same(first, batches(1))
    assert same(first, batches(1, threads=1))
    assert same(first, batches(1, threads=7))
    assert not same(first, batches(2))


def test_epochs_mask_the_same_blocks_differently(tmp_path, preprocessor):
    files, _ = numbered_files(tmp_path, [5])
    dataset = Corpus(files).training_dataset(preprocessor, 1, seed=0, min_tokens=1)
    positions = {
        tuple(x["mask_positions"][0].tolist()) for x, _, _ in dataset.take(20).as_numpy_iterator()
    }
    assert len(positions) > 1


def test_evaluation_is_the_same_in_each_pass_and_holds_each_block_once(
    tmp_path, tokenizer, preprocessor
):
    files, _ = numbered_files(tmp_path, [40, 45, 30, 50])
    corpus = Corpus(files, held_out=0.5)  # 9 + 10 blocks
    dataset = corpus.evaluation_dataset(preprocessor, batch_size=8)
    # What Keras on TensorFlow needs to mean the losses of batches rightly.
    assert int(dataset.cardinality()) == sum(1 for _ in dataset)
    first = stream(dataset, 10)
    assert same(first, stream(dataset, 10))
    assert same(first, stream(corpus.evaluation_dataset(preprocessor, 8), 10))
    blocks = np.concatenate(list(corpus.blocks(tokenizer, 7, split="held_out")))
    assert len(blocks) == 19
    assert sorted(unmasked(dataset)) == sorted(map(tuple, blocks.tolist()))


def test_last_evaluation_batch_is_filled_up_with_rows_of_weight_0(tmp_path, preprocessor):
    files, _ = numbered_files(tmp_path, [5, 15])  # 3 blocks held out
    dataset = Corpus(files, held_out=0.5).evaluation_dataset(preprocessor, batch_size=5)
    ((x, y, weight),) = dataset.as_numpy_iterator()
    assert x["token_ids"].shape == (5, 7) and y["mlm"].shape[0] == 5
    assert (weight["mlm"][:3].sum(axis=1) > 0).all()
    assert not weight["mlm"][3:].any() and not weight["sbo"][3:].any()
    assert not x["padding_mask"][3:].any() and not x["token_ids"][3:].any()


def test_evaluation_steps_draw_from_all_documents(tmp_path, preprocessor, tokenizer):
    files, documents = numbered_files(tmp_path, [100, 100, 100])
    dataset = Corpus(files).evaluation_dataset(preprocessor, 8, split="all", steps=3)
    rows = unmasked(dataset)
    assert len(rows) == 24
    words = {tokenizer.id_to_token(row[1]) for row in rows}
    assert all(words & set(document) for document in documents)


# === Bad input ===


def check_message(error, *parts):
    message = str(error.value)
    assert "\n" not in message
    for part in parts:
        assert str(part) in message


def test_error_where_no_file_matches_names_the_glob(tmp_path):
    write(tmp_path / "a.txt", "text")
    missing = str(tmp_path / "*.nothing")
    with pytest.raises(ValueError) as error:
        Corpus([str(tmp_path / "a.txt"), missing])
    check_message(error, missing)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("content", [b"", b"\n\n \r\n\t\n", codecs.BOM_UTF8, gzip.compress(b"")])
def test_error_for_an_empty_or_blank_file_names_it(tmp_path, boundary, content):
    write(tmp_path / "a.txt", "text")
    path = write(tmp_path / "b.txt", content)
    with pytest.raises(ValueError) as error:
        Corpus(str(tmp_path / "*"), boundary)
    check_message(error, path, "empty")


def test_error_for_a_zero_byte_gives_its_place(tmp_path, small_parts):
    path = write(tmp_path / "a.bin", b"some text \x00 more")
    with pytest.raises(ValueError) as error:
        Corpus(path)
    check_message(error, path, "binary", "at byte 10")


@pytest.mark.parametrize("read_bytes", [1, 2, 3, 5, 1 << 20])
@pytest.mark.parametrize(
    ("content", "offset"),
    [
        (b"abc\xff text", 3),
        ("ä漢 ok ".encode() + b"\xe4rger", 9),  # Latin-1 in UTF-8.
        (b"twenty bytes of text" + b"\xc3\xa4\xc3", 22),  # A character cut at the end.
        (b"text \xf0\x9f\x98", 5),
        (codecs.BOM_UTF8 + b"text \xff", 8),
        (b"\xff", 0),
    ],
)
def test_error_for_text_not_utf8_gives_the_exact_byte(
    tmp_path, monkeypatch, read_bytes, content, offset
):
    monkeypatch.setattr(text_files, "_READ_BYTES", read_bytes)
    path = write(tmp_path / "latin.txt", content)
    with pytest.raises(ValueError) as error:
        Corpus(path)
    check_message(error, path, "UTF-8")
    assert re.search(r"at byte (\d+)", str(error.value)).group(1) == str(offset)


def test_error_beyond_the_first_read_counts_bytes_from_the_start(tmp_path):
    content = b"a " * (1 << 19) + b"abc \xfc"  # One mebibyte and 4 bytes before it.
    with pytest.raises(ValueError, match=f"at byte {(1 << 20) + 4}"):
        Corpus(write(tmp_path / "a.txt", content))


def test_replace_reads_on_behind_bytes_that_are_not_utf8(tmp_path, small_parts):
    path = write(tmp_path / "a.txt", b"one \xff two\xc3 three\xc3")
    corpus = Corpus(path, encoding_errors="replace")
    assert texts_of(corpus) == ["one \ufffd two\ufffd three\ufffd"]


@pytest.mark.parametrize("damage", ["cut", "garbled"])
def test_error_for_a_damaged_gzip_file_names_it(tmp_path, damage):
    content = bytearray(gzip.compress(np.random.default_rng(0).bytes(4000).hex().encode()))
    if damage == "cut":
        content = content[:2000]
    else:
        content[1000:1100] = b"\xff" * 100
    path = write(tmp_path / "a.gz", bytes(content))
    with pytest.raises(ValueError) as error:
        Corpus(path)
    check_message(error, path)


def test_error_for_a_vocabulary_too_small_gives_its_size(tmp_path):
    corpus = Corpus(write(tmp_path / "a.txt", "text"))
    with pytest.raises(ValueError, match="vocabulary_size=99"):
        corpus.train_vocabulary(99)


def test_error_for_one_document_of_which_some_is_held_out(tmp_path):
    path = write(tmp_path / "a.txt", "one document\n")
    assert Corpus(path).num_documents == 1
    with pytest.raises(ValueError, match="blank_line or line may find more. Received: 1 document"):
        Corpus(path, held_out=0.05)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"held_out": 1.0},
        {"held_out": -0.1},
        {"held_out": float("nan")},
        {"document_boundary": "page"},
        {"encoding_errors": "ignore"},
    ],
)
def test_error_for_an_argument_out_of_range_names_and_echoes_it(tmp_path, kwargs):
    path = write(tmp_path / "a.txt", "one\ntwo\n")
    ((name, value),) = kwargs.items()
    with pytest.raises(ValueError) as error:
        Corpus(path, **kwargs)
    check_message(error, f"`{name}`", value)


def test_blocks_cross_documents_of_a_file_behind_a_separator(tmp_path):
    words = ["one", "two", "three", "four", "five"]
    tokenizer = ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    (tmp_path / "a.txt").write_text("one two\nthree\nfour five one\n")
    (tmp_path / "b.txt").write_text("five five five\n")
    corpus = Corpus(str(tmp_path / "*.txt"), "line", cross_documents=True)
    blocks = np.concatenate(list(corpus.blocks(tokenizer, 6, min_tokens=1)))
    one, two, three, four, five = range(5, 10)
    assert blocks.tolist() == [
        [2, one, two, 3, three, 3],
        [2, 3, four, five, one, 3],
        [2, five, five, five, 3, 0],
    ]
    # Full blocks alone.
    assert len(np.concatenate(list(corpus.blocks(tokenizer, 6, min_tokens=4)))) == 2


@pytest.mark.parametrize("cross_documents", [False, True])
def test_blocks_do_not_depend_on_how_text_is_grouped(tmp_path, monkeypatch, cross_documents):
    generator = np.random.default_rng(0)
    words = ["one", "two", "three", "four", "five"]
    tokenizer = ks.SpanBertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    for name in "ab":
        lines = [" ".join(generator.choice(words, generator.integers(1, 30))) for _ in range(50)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    found = set()
    for size in [1, 100, 1 << 18]:
        monkeypatch.setattr("keras_spanbert.data.blocks._TOKENIZE_CHARACTERS", size)
        corpus = Corpus(str(tmp_path / "*.txt"), "line", cross_documents=cross_documents)
        found.add(np.concatenate(list(corpus.blocks(tokenizer, 9, min_tokens=2))).tobytes())
    assert len(found) == 1


def test_evaluation_reads_no_further_than_its_batches_take(tmp_path, monkeypatch):
    words = " ".join(["apple", "plum"] * 4000)
    for i in range(12):
        write(tmp_path / f"{i:02d}.txt", words)
    monkeypatch.setattr("keras_spanbert.data.evaluation_blocks._EVALUATION_BUFFER", 8)
    monkeypatch.setattr(blocks_module, "_TOKENIZE_CHARACTERS", 1 << 12)
    corpus = Corpus(str(tmp_path / "*.txt"))
    read, read_document = [], corpus._read

    def count(path, within):
        read.append(path)
        return read_document(path, within)

    monkeypatch.setattr(corpus, "_read", count)
    tokenizer = ks.SpanBertTokenizer([*SPECIAL_TOKENS, "apple", "plum"])
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=16)
    dataset = corpus.evaluation_dataset(preprocessor, 4, "all", steps=2)
    assert int(dataset.cardinality()) == 2 and len(read) < 4


def test_survey_gives_counts_and_evaluation_in_one_reading(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for i in range(20):
        write(tmp_path / f"{i:02d}.txt", " ".join(rng.choice(["apple", "plum", "fig"], 90)))
    corpus = Corpus(str(tmp_path / "*.txt"), held_out=0.1)
    tokenizer = ks.SpanBertTokenizer([*SPECIAL_TOKENS, "apple", "plum", "fig"])
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=16)
    expected = corpus.token_counts(tokenizer, 16)
    batches = list(corpus.evaluation_dataset(preprocessor, 4, steps=2))
    read, read_document = [], corpus._read

    def count(path, within):
        read.append(path)
        return read_document(path, within)

    monkeypatch.setattr(corpus, "_read", count)
    counts, num_blocks, dataset = corpus.survey(preprocessor, 4, steps=2)
    assert len(read) == 20
    np.testing.assert_array_equal(counts, expected[0])
    assert num_blocks == expected[1]
    for ours, theirs in zip(dataset, batches, strict=True):
        for a, b in zip(keras.tree.flatten(ours), keras.tree.flatten(theirs), strict=True):
            np.testing.assert_array_equal(np.array(a), np.array(b))


def test_words_counted_while_reading_give_the_same_vocabulary(tmp_path):
    rng = np.random.default_rng(0)
    words = ["apple", "apples", "plum", "plums", "fig", "figs", "Über", "naïve", "x\u00a0y"]
    for count in [3, 30]:  # Fewer documents than one in twenty, and more.
        folder = tmp_path / str(count)
        folder.mkdir()
        for i in range(count):
            write(folder / f"{i:02d}.txt", " ".join(rng.choice(words, 50)) + f" only{i}")
        glob = str(folder / "*.txt")
        now = Corpus(glob, held_out=0.05, count_words=True).train_vocabulary(150)
        later = Corpus(glob, held_out=0.05).train_vocabulary(150)
        assert now == later and "app" in "".join(now)

"""Held-out documents, blocks of tokens, masked batches and the cache of a corpus."""

import collections
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from data_files import read_texts, write, write_lines

import keras_spanbert as ks
from keras_spanbert.data import blocks as blocks_module
from keras_spanbert.data import corpus as corpus_module
from keras_spanbert.data import text_files
from keras_spanbert.data.corpus import SPECIAL_TOKENS, Corpus
from keras_spanbert.data.prepared import prepare

PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = [f"w{i}" for i in range(400)]


@pytest.fixture(scope="module")
def tokenizer():
    return ks.SpanBertTokenizer([*SPECIAL_TOKENS, *WORDS, "hyper", "##graph"])


@pytest.fixture(scope="module")
def preprocessor(tokenizer):
    return ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=7, mask_rate=0.4)


def numbered_files(folder, sizes):
    """Writes files with one document each, of the given numbers of words. All words differ."""
    words = iter(WORDS)
    documents = [[next(words) for _ in range(size)] for size in sizes]
    for i, document in enumerate(documents):
        write(folder / f"{i:02d}.txt", " ".join(document))
    return str(folder / "*.txt"), documents


def block_tokens(corpus, tokenizer, sequence_length, **kwargs):
    """Checks that blocks are `[CLS]` tokens `[SEP]` padding, and returns them without padding."""
    rows = []
    for blocks in corpus.blocks(tokenizer, sequence_length, **kwargs):
        assert blocks.dtype == np.int32 and blocks.shape[1] == sequence_length
        for row in blocks.tolist():
            size = row.index(SEP)
            assert row[0] == CLS and row[size + 1 :] == [PAD] * (sequence_length - size - 1)
            rows.append(row[1:size])
    return rows


def unmasked(dataset):
    """Returns the blocks of all non-empty rows, as they were before masking."""
    rows = []
    for x, y, weight in dataset.as_numpy_iterator():
        token_ids = x["token_ids"].copy()
        row, slot = np.nonzero(weight["mlm"])
        token_ids[row, x["mask_positions"][row, slot]] = y["mlm"][row, slot]
        rows += [tuple(ids) for ids in token_ids.tolist() if ids[0] == CLS]
    return rows


def stream(dataset, batches):
    """Returns the bytes of all arrays of the first batches."""
    return [
        [np.asarray(array).tobytes() for array in tf.nest.flatten(batch)]
        for batch in dataset.take(batches).as_numpy_iterator()
    ]


def test_each_nth_document_is_held_out(tmp_path, small_chunks):
    for i in range(3):
        write(tmp_path / f"{i}.txt", "".join(f"doc{i}{j} " * 9 + "\n" for j in range(7)))
    corpus = Corpus(str(tmp_path / "*"), "line", held_out=0.25)
    documents = read_texts(corpus)
    assert len(documents) == 21 < len(list(corpus.documents("all"))) / 3  # In pieces.
    assert read_texts(corpus, "held_out") == documents[3::4]
    assert read_texts(corpus, "train") == [d for i, d in enumerate(documents) if i % 4 != 3]
    # The split of a document does not depend on the order of the files.
    backwards = read_texts(corpus, "held_out", order=[2, 1, 0])
    assert sorted(backwards) == sorted(documents[3::4])
    assert read_texts(Corpus(str(tmp_path / "*"), "line"), "train") == documents


def test_no_split_is_empty(tmp_path):
    path = write(tmp_path / "a.txt", "".join(f"doc{i}\n" for i in range(10)))
    for held_out in [0.001, 0.5, 0.99]:
        corpus = Corpus(path, "line", held_out=held_out)
        assert read_texts(corpus, "train") and read_texts(corpus, "held_out")
    with pytest.raises(ValueError, match="blank_line or line. Received: 1 document"):
        Corpus(path, held_out=0.05)


def test_argument_out_of_range_is_named(tmp_path):
    path = write(tmp_path / "a.txt", "one\ntwo\n")
    wrong = [("held_out", 1.0), ("document_boundary", "page"), ("encoding_errors", "ignore")]
    for name, value in [*wrong, ("held_out", float("nan"))]:
        with pytest.raises(ValueError, match=f"`{name}` must be .*{value}"):
            Corpus(path, **{name: value})


@pytest.mark.parametrize("fixtures", [["small_chunks"], []])
def test_each_token_is_in_one_block_or_short_tail(tmp_path, tokenizer, request, fixtures):
    for name in fixtures:
        request.getfixturevalue(name)
    # Lengths close to one and two blocks of 5 tokens, and longer ones.
    sizes = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 52, 53, 54]
    files, documents = numbered_files(tmp_path, sizes)
    # The tokenizer removes these characters, which do not count as blanks.
    write(tmp_path / "01b.txt", "\u200b\u200b")
    for min_tokens in [1, 3, 8]:
        expected = []
        for document in documents:
            ids = [tokenizer.token_to_id(word) for word in document]
            cut = [ids[i : i + 5] for i in range(0, len(ids), 5)]
            # Full blocks are kept even if `min_tokens` is larger.
            expected += [block for block in cut if len(block) >= min(min_tokens, 5)]
        assert block_tokens(Corpus(files), tokenizer, 7, min_tokens=min_tokens) == expected


def test_token_counts_of_training_documents(tmp_path, tokenizer):
    generator = np.random.default_rng(0)
    for i in range(6):
        write(tmp_path / f"{i}.txt", " ".join(generator.choice([*WORDS[:9], "hypergraph"], 33)))
    corpus = Corpus(str(tmp_path / "*"), held_out=0.5)
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=12)
    counts, num_blocks = corpus.prepared(preprocessor, min_tokens=1).token_counts()
    expected = collections.Counter(
        i for text in read_texts(corpus, "train") for i in tokenizer(text).tolist()
    )
    assert {i: c for i, c in enumerate(counts.tolist()) if c} == expected
    assert num_blocks == len(block_tokens(corpus, tokenizer, 12, min_tokens=1))


def test_cross_documents_joins_documents_with_separators(tmp_path, tokenizer, monkeypatch):
    write(tmp_path / "a.txt", "w1 w2\nw3\nw4 w5 w1\n")
    write(tmp_path / "b.txt", "w5 w5 w5\n")
    corpus = Corpus(str(tmp_path / "*.txt"), "line", cross_documents=True)
    blocks = np.concatenate(list(corpus.blocks(tokenizer, 6, min_tokens=1)))
    w1, w2, w3, w4, w5 = (tokenizer.token_to_id(f"w{i}") for i in range(1, 6))
    expected = [
        [CLS, w1, w2, SEP, w3, SEP],
        [CLS, SEP, w4, w5, w1, SEP],
        [CLS, w5, w5, w5, SEP, PAD],
    ]
    assert blocks.tolist() == expected
    # In pieces, in groups of one or more, and only full blocks.
    monkeypatch.setattr(text_files, "_PIECE_CHARACTERS", 6)
    for size in [1, 9]:
        monkeypatch.setattr(text_files, "_READ_BYTES", size)
        monkeypatch.setattr(blocks_module, "_TOKENIZE_CHARACTERS", size)
        blocks = np.concatenate(list(corpus.blocks(tokenizer, 6, min_tokens=4)))
        assert blocks.tolist() == expected[:2]


@pytest.mark.parametrize("lowercase", [False, True])
def test_vocabulary_is_deterministic_and_starts_with_special_tokens(tmp_path, lowercase):
    # Has many ties between pairs, which hash order would resolve randomly.
    generator = np.random.default_rng(1)
    words = ["".join(generator.choice(list("abcdeÉfghijkl"), 4)) for _ in range(300)]
    corpus = Corpus(write(tmp_path / "a.txt", " ".join(words)))
    vocabulary, *others = (corpus.train_vocabulary(150, lowercase) for _ in range(3))
    assert others == [vocabulary, vocabulary]
    assert vocabulary[:5] == list(SPECIAL_TOKENS)
    assert len(vocabulary) == len(set(vocabulary)) == 150
    assert ("É" in vocabulary) == (not lowercase)
    tokenizer = ks.SpanBertTokenizer(vocabulary, lowercase=lowercase)
    assert UNK not in tokenizer(" ".join(words))


def test_vocabulary_has_a_size_limit_and_uses_only_training_documents(tmp_path):
    text = "".join(chr(0x4E00 + i) for i in range(3000)) + " abc" * 100
    corpus = Corpus(write(tmp_path / "a.txt", text))
    vocabulary = corpus.train_vocabulary(200)
    assert len(vocabulary) <= 200
    assert "a" in vocabulary  # The most frequent letters are kept.
    with pytest.raises(ValueError, match="at least 100, .* Received: vocabulary_size=99"):
        corpus.train_vocabulary(99)
    write(tmp_path / "a.txt", "abba " * 50)
    write(tmp_path / "b.txt", "zyxz " * 50)
    vocabulary = Corpus(str(tmp_path / "*"), held_out=0.5).train_vocabulary(100)
    assert "abba" in vocabulary and not any("z" in token for token in vocabulary)


@pytest.mark.parametrize("count", [3, 30])  # Fewer and more documents than one in twenty.
def test_words_counted_while_reading_give_the_same_vocabulary(tmp_path, count):
    rng = np.random.default_rng(0)
    words = ["apple", "apples", "plum", "plums", "fig", "figs", "Über", "naïve", "x\u00a0y"]
    for i in range(count):
        write(tmp_path / f"{i:02d}.txt", " ".join(rng.choice(words, 50)) + f" only{i}")
    now, later = (
        Corpus(tmp_path / "*.txt", held_out=0.05, count_words=count_words).train_vocabulary(150)
        for count_words in [True, False]
    )
    assert now == later and "app" in "".join(now)


def test_texts_with_counted_words_are_few_and_not_long():
    counts = {"a": 200_000, "long" * 20_000: 2, **{f"w{i}": 1 for i in range(50_000)}}
    texts = list(corpus_module._texts(counts))
    assert collections.Counter(" ".join(texts).split()) == counts
    assert max(map(len, texts)) < 150_000 and len(texts) < 20


def test_epoch_has_each_block_once(tmp_path, tokenizer, preprocessor):
    files, _ = numbered_files(tmp_path, [40, 45, 30, 50])  # 33 blocks of 5
    corpus = Corpus(files)
    blocks = np.concatenate(list(corpus.blocks(tokenizer, 7)))
    dataset = corpus.training_dataset(preprocessor, batch_size=11, seed=5, min_tokens=1)
    rows = unmasked(dataset.take(6))
    first, second = rows[:33], rows[33:]
    expected = list(map(tuple, blocks.tolist()))
    assert sorted(first) == sorted(second) == sorted(expected)
    # The order differs between epochs and from the order of the files.
    assert first != second and expected not in (first, second)


def test_epochs_mask_the_same_block_differently(tmp_path, preprocessor):
    files, _ = numbered_files(tmp_path, [5])
    dataset = Corpus(files).training_dataset(preprocessor, 1, seed=0, min_tokens=1).take(20)
    assert len({x["mask_positions"].tobytes() for x, *_ in dataset.as_numpy_iterator()}) > 1


def test_seed_determines_the_training_stream(tmp_path, preprocessor):
    files, _ = numbered_files(tmp_path, [40, 45, 30, 50])
    corpus = Corpus(files)

    def batches(seed, threads=None):
        dataset = corpus.training_dataset(preprocessor, 4, seed=seed)
        if threads:
            options = tf.data.Options()
            options.threading.private_threadpool_size = threads
            options.threading.max_intra_op_parallelism = 1
            options.autotune.enabled = False
            dataset = dataset.with_options(options)
        return stream(dataset, 20)  # More than an epoch.

    first = batches(1)
    assert first == batches(1) == batches(1, threads=1) == batches(1, threads=7)
    assert first != batches(2)


def test_evaluation_has_each_block_once_in_the_same_order(tmp_path, tokenizer, preprocessor):
    files, _ = numbered_files(tmp_path, [40, 45, 30, 50])
    corpus = Corpus(files, held_out=0.5)  # 9 + 10 blocks
    dataset = corpus.evaluation_dataset(preprocessor, batch_size=8)
    # Keras on TensorFlow needs this to average losses over batches correctly.
    assert int(dataset.cardinality()) == sum(1 for _ in dataset)
    again = corpus.evaluation_dataset(preprocessor, 8)
    assert stream(dataset, 10) == stream(dataset, 10) == stream(again, 10)
    blocks = np.concatenate(list(corpus.blocks(tokenizer, 7, split="held_out")))
    assert len(blocks) == 19
    assert sorted(unmasked(dataset)) == sorted(map(tuple, blocks.tolist()))
    # The last batch is filled with rows of weight 0.
    *_, (x, y, weight) = dataset.as_numpy_iterator()
    assert x["token_ids"].shape == (8, 7) and y["mlm"].shape[0] == 8
    assert (weight["mlm"][:3].sum(axis=1) > 0).all()
    for array in [weight["mlm"], weight["sbo"], x["padding_mask"], x["token_ids"]]:
        assert not array[3:].any()


def test_evaluation_steps_use_all_documents(tmp_path, preprocessor, tokenizer):
    files, documents = numbered_files(tmp_path, [100, 100, 100])
    dataset = Corpus(files).evaluation_dataset(preprocessor, 8, split="all", steps=3)
    rows = unmasked(dataset)
    assert len(rows) == 24
    words = {tokenizer.id_to_token(row[1]) for row in rows}
    assert all(words & set(document) for document in documents)
    with pytest.raises(ValueError, match="Evaluation text must .* none with split='held_out'"):
        Corpus(files).evaluation_dataset(preprocessor, 8)
    with pytest.raises(ValueError, match="`split` must be one of train, held_out, all"):
        Corpus(files).evaluation_dataset(preprocessor, 8, split="dev")


@pytest.fixture
def tokenized(monkeypatch):
    """The number of texts in each call of the tokenizer."""
    counts, blocks = [], blocks_module.BlockBuilder.blocks
    monkeypatch.setattr(
        blocks_module.BlockBuilder,
        "blocks",
        lambda self, texts, *args: counts.append(len(texts)) or blocks(self, texts, *args),
    )
    return counts


def test_text_is_tokenized_once(tmp_path, preprocessor, tokenized):
    # No other test has this text in the cache.
    files, _ = numbered_files(tmp_path, [41, 45, 31, 50])
    for _ in range(2):
        corpus = Corpus(files, held_out=0.5)
        corpus.training_dataset(preprocessor, 4, seed=1)
        corpus.evaluation_dataset(preprocessor, 4)
        assert sum(tokenized) == 4


def test_any_change_is_tokenized_again(tmp_path, tokenizer, tokenized):
    text = "w1 w2 w3 w4 w5 w6 w7 w8 w9\n\nw1 w3 w5 w7 w9 w11 w13 w15\nw2 w4 w6 w8"
    vocabulary = tokenizer.get_vocabulary()

    def num_tokenized(a=text, b=text[5:], length=7, min_tokens=8, of_tokenizer=None, **of_corpus):
        write(tmp_path / "a.txt", a)
        write(tmp_path / "b.txt", b)
        corpus = Corpus(tmp_path / "*.txt", **{"document_boundary": "line", **of_corpus})
        tokenizer = ks.SpanBertTokenizer(**{"vocabulary": vocabulary, **(of_tokenizer or {})})
        before = sum(tokenized)
        corpus.prepared(ks.SpanBertPretrainerPreprocessor(tokenizer, length), min_tokens)
        return sum(tokenized) - before

    num_tokenized()
    for change in [
        {"held_out": 0.5}, {"document_boundary": "blank_line"}, {"cross_documents": True},
        {"a": text.replace("w11", "w12")}, {"a": text[5:], "b": text}, {"length": 8},
        {"min_tokens": 2}, {"of_tokenizer": {"vocabulary": [*vocabulary, "more"]}},
        {"of_tokenizer": {"lowercase": True}},
        {"of_tokenizer": {"special_tokens_in_strings": True}},
    ]:  # fmt: skip
        assert num_tokenized(**change), change
    assert not num_tokenized()


def test_text_must_not_change_until_it_is_tokenized(tmp_path, preprocessor, tokenizer, monkeypatch):
    path = write(tmp_path / "a.txt", "w1 w2 w3 w4 w5 w6 w7 w8 w9")
    corpus = Corpus(path)
    write(path, "w9 w8 w7 w6 w5")
    with pytest.raises(OSError, match="Changed since it was first read.*a.txt"):
        corpus.prepared(preprocessor)
    # The blocks of the other text are not in the cache.
    write(path, "w1 w2 w3 w4 w5 w6 w7 w8 w9")
    corpus = Corpus(path)
    (block,) = corpus.prepared(preprocessor).read(np.arange(1))
    assert preprocessor.tokenizer.detokenize(block[1:-1]) == "w1 w2 w3 w4 w5"
    blocks = blocks_module.BlockBuilder.blocks

    def change(*args):
        write(path, "w9 w8 w7 w6 w5")
        return blocks(*args)

    monkeypatch.setattr(blocks_module.BlockBuilder, "blocks", change)
    with pytest.raises(OSError, match="Changed since it was first read.*a.txt"):
        prepare(corpus, tokenizer, 7, str(tmp_path / "prepared"))
    assert not (tmp_path / "prepared").exists()


def test_checksums_differ_if_spans_do(tmp_path):
    one = [{"text": "a b c", "spans": {"entity": []}}, {"text": "b c d"}]
    two = [{"text": "a b c"}, {"text": "entityb c d"}]
    checksums = set()
    for documents in [one, two, one[:1], two[:1]]:
        path = write_lines(tmp_path / "a.jsonl", documents)
        checksums |= set(Corpus(path).checksums.values())
    assert len(checksums) == 4


def test_cache_that_cannot_be_written_is_named(tmp_path, preprocessor, monkeypatch):
    files, _ = numbered_files(tmp_path, [40])
    file = write(tmp_path / "a_file", "text")
    monkeypatch.setenv("KERAS_SPANBERT_CACHE", f"{file}/cache")
    with pytest.raises(OSError, match="variable KERAS_SPANBERT_CACHE. Received: .*a_file/cache"):
        Corpus(files).prepared(preprocessor)


def test_remains_of_a_killed_process_are_removed(tmp_path, preprocessor, monkeypatch):
    files, _ = numbered_files(tmp_path, [40])
    cache = tmp_path / "cache [1]"
    monkeypatch.setenv("KERAS_SPANBERT_CACHE", str(cache))
    folder = pathlib.Path(Corpus(files).prepared(preprocessor).path)
    folder.rename(cache / f".{folder.name}.partial-1.partial")
    Corpus(files).prepared(preprocessor)
    assert {path.name for path in cache.iterdir()} == {folder.name, f"{folder.name}.lock"}


def test_damaged_blocks_in_the_cache_are_made_again(tmp_path, preprocessor, tokenized):
    files, _ = numbered_files(tmp_path, [40, 45])
    prepared = Corpus(files).prepared(preprocessor)
    expected = prepared.read(np.arange(prepared.num_blocks()))
    for name in [prepared.files[0], f"{prepared.path}/prepared.json"]:
        before = sum(tokenized)
        os.remove(name)
        again = Corpus(files).prepared(preprocessor)
        assert sum(tokenized) > before
        np.testing.assert_array_equal(again.read(np.arange(again.num_blocks())), expected)

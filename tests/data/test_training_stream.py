"""Streams of batches, which can start at any step."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_spanbert as ks
from keras_spanbert.data.batches import Batches
from keras_spanbert.data.corpus import SPECIAL_TOKENS, Corpus
from keras_spanbert.data.training_stream import TrainingStream
from keras_spanbert.distribution import Distribution

WORDS = [f"{a}{b}" for a in "bcdfgh" for b in "aeiou"]
BATCH_SIZE = 3


@pytest.fixture
def corpus(tmp_path):
    generator = np.random.default_rng(0)
    for i, size in enumerate([70, 5, 41, 3, 90]):
        (tmp_path / f"{i}.txt").write_text(" ".join(generator.choice(WORDS, size)))
    return Corpus(str(tmp_path / "*.txt"))


@pytest.fixture(scope="module")
def preprocessor():
    tokenizer = ks.SpanBertTokenizer([*SPECIAL_TOKENS, *WORDS])
    return ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=7, mask_rate=0.4)


def batches(dataset, count):
    return [
        (x["token_ids"].tolist(), x["mask_positions"].tolist(), y["mlm"].tolist())
        for x, y, _ in dataset.take(count).as_numpy_iterator()
    ]


def test_stream_starts_at_any_step(corpus, preprocessor):
    whole = batches(TrainingStream(corpus, preprocessor, BATCH_SIZE, seed=7).dataset(), 40)
    assert whole[:13] != whole[13:26]
    stream = TrainingStream(corpus, preprocessor, BATCH_SIZE, seed=7)
    for step in [1, 13, 33]:
        stream.start_at(step, stream.state())
        assert stream.batch(2)[0]["token_ids"].tolist() == whole[2][0]
        dataset = stream.dataset()
        assert batches(dataset, 7) == whole[step : step + 7]
        assert batches(dataset, 2) == whole[step : step + 2]  # A second iterator.


def test_changed_text_is_refused(corpus, preprocessor, tmp_path):
    state = TrainingStream(corpus, preprocessor, BATCH_SIZE, seed=7).state()
    (tmp_path / "5.txt").write_text(" ".join(WORDS))
    longer = TrainingStream(Corpus(str(tmp_path / "*.txt")), preprocessor, BATCH_SIZE, seed=7)
    with pytest.raises(
        ValueError, match="the same until the run ends.* 41 rows at the start and 47 now"
    ):
        longer.start_at(2, state)
    text = (tmp_path / "4.txt").read_text()
    (tmp_path / "4.txt").write_text(text[1:] + text[0])
    (tmp_path / "5.txt").unlink()
    other = TrainingStream(Corpus(str(tmp_path / "*.txt")), preprocessor, BATCH_SIZE, seed=7)
    with pytest.raises(ValueError, match="Received: 41 rows that have changed"):
        other.start_at(2, state)


def test_text_without_blocks_is_refused(preprocessor, tmp_path):
    (tmp_path / "short.txt").write_text("ba be bi")
    corpus = Corpus(str(tmp_path / "short.txt"))
    with pytest.raises(ValueError, match="a document of 5 tokens or more .* Received: none"):
        TrainingStream(corpus, preprocessor, 1, seed=7)


@pytest.mark.parametrize("next_sentence", [False, True])
def test_processes_give_the_rows_of_one(corpus, preprocessor, next_sentence, monkeypatch):
    if next_sentence:
        preprocessor = type(preprocessor)(preprocessor.tokenizer, 7, next_sentence=True)
    counts, _ = corpus.prepared(preprocessor).token_counts()
    stream = TrainingStream(corpus, preprocessor, 6, seed=1, unigram_counts=counts)
    stream.start_at(2)
    whole = list(stream.dataset().take(9).as_numpy_iterator())
    assert any((x["token_ids"] != whole[0][0]["token_ids"]).any() for x, *_ in whole[1:])
    prepared, sizes = stream.corpus, []
    read = prepared.read
    monkeypatch.setattr(
        prepared, "read", lambda rows, **kwargs: sizes.append(len(rows)) or read(rows, **kwargs)
    )
    parts = [list(stream.dataset(part, 3).take(9).as_numpy_iterator()) for part in range(3)]
    # If masks do not depend on other rows, a process reads only its own.
    assert sizes[0] == (6 if next_sentence else 2)
    for batch, *shares in zip(whole, *parts, strict=True):
        for value, *own in zip(*map(keras.tree.flatten, [batch, *shares])):
            np.testing.assert_array_equal(np.concatenate(own), value)


def test_processes_that_share_a_model_get_the_same_part():
    dataset = tf.data.Dataset.from_tensors(np.arange(6))
    stream = Batches(np.arange(9), batch_size=6, seed=1)
    for process, part, rows in [(1, 0, [0, 1, 2]), (2, 1, [3, 4, 5])]:
        shared = Distribution(2, process, num_processes=4, part=part, num_parts=2)
        (own,) = shared.split(dataset).as_numpy_iterator()
        assert own[0].tolist() == rows
        (own,) = shared.dataset(stream).take(1).as_numpy_iterator()
        assert np.array_equal(own, stream.batch(0)[rows])


def test_invalid_parts_and_rows_are_refused():
    stream = Batches(np.arange(9), batch_size=6, seed=1)
    for part, num_parts in [(0, 4), (3, 3), (-1, 3)]:
        with pytest.raises(ValueError, match="`batch_size` a multiple of `num_parts`"):
            stream.dataset(part, num_parts)
    with pytest.raises(ValueError, match="`seed` must be at least 0. Received: seed=-1"):
        Batches((np.arange(5),), batch_size=2, seed=-1)
    for size in [4, 6]:
        with pytest.raises(ValueError, match=rf"the same number of rows. Received: \[5, {size}\]"):
            Batches((np.arange(5), np.arange(size)), batch_size=2, seed=1)


def test_rows_that_fill_the_last_batch_are_copies_with_weight_0():
    inputs, labels = np.arange(5), {"start": np.arange(5) + 10, "end": np.arange(10).reshape(5, 2)}
    weights = {"start": np.full(5, 2.0), "end": np.full((5, 2), 3.0)}
    stream = Batches((inputs, labels, weights), batch_size=3, seed=1, whole_epochs=True)
    rows, y, w = stream.batch(1)
    assert rows[2] == rows[0]
    np.testing.assert_array_equal(y["start"], rows + 10)
    assert w["start"].tolist() == [2.0, 2.0, 0.0]
    assert w["end"].tolist() == [[3.0, 3.0], [3.0, 3.0], [0.0, 0.0]]
    *_, w = Batches((inputs, labels), batch_size=3, seed=1, whole_epochs=True).batch(1)
    assert w.tolist() == [1.0, 1.0, 0.0]

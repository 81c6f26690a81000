"""Streams that start where another one was."""

import io
import json

import keras
import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.data import blocks as blocks_module
from keras_spanbert.data import text_files
from keras_spanbert.data.array_stream import ArrayStream
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.shuffle_buffer import ShuffleBuffer
from keras_spanbert.data.training_stream import TrainingStream
from keras_spanbert.data.vocabulary import SPECIAL_TOKENS

WORDS = [f"{a}{b}" for a in "bcdfgh" for b in "aeiou"]
BATCH_SIZE = 3


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """Documents that stretch over many parts of the text, and short ones."""
    monkeypatch.setattr(text_files, "_READ_BYTES", 5)
    monkeypatch.setattr(text_files, "_PIECE_CHARACTERS", 16)
    monkeypatch.setattr(blocks_module, "_TOKENIZE_CHARACTERS", 24)
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


def stored(state):
    """The state as a checkpoint would hold it: arrays in an archive, the rest as JSON."""
    file = io.BytesIO()
    np.savez(file, **{k: v for k, v in state.items() if isinstance(v, np.ndarray)})
    arrays = np.load(io.BytesIO(file.getvalue()))
    others = {k: v for k, v in state.items() if k not in arrays}
    return {**json.loads(json.dumps(others)), **arrays}


@pytest.mark.parametrize("shuffle_blocks", [1, 5, 1000])
def test_stream_from_a_state_goes_on_as_the_one_before(corpus, preprocessor, shuffle_blocks):
    arguments = dict(batch_size=BATCH_SIZE, seed=7, min_tokens=1, shuffle_blocks=shuffle_blocks)
    steps = 60  # Some 4 epochs.
    first = TrainingStream(corpus, preprocessor, **arguments)
    whole = batches(first.dataset(), steps + 10)
    assert whole[:15] != whole[15:30]
    # Prefetching runs ahead of what was trained on: the states are older or as old.
    running = TrainingStream(corpus, preprocessor, **arguments)
    iterator = running.dataset().as_numpy_iterator()
    states = {}
    for step in range(steps):
        if step % 11 == 0:
            states[step] = stored(running.state(step))
        next(iterator)
        running.consumed(step + 1)
    for step, state in states.items():
        later = TrainingStream(corpus, preprocessor, **arguments)
        later.start_at(step, state)
        dataset = later.dataset()
        assert batches(dataset, 10) == whole[step : step + 10]
        if step == 33:  # A second pass over the same dataset too.
            assert batches(dataset, 2) == whole[step : step + 2]
    used_states = {state["0/rows"] for state in states.values()}
    assert len(used_states) > (3 if shuffle_blocks < 1000 else 0)


def test_stream_starts_at_a_step_far_behind_the_state(corpus, preprocessor):
    stream = TrainingStream(corpus, preprocessor, BATCH_SIZE, seed=1)
    state = stream.state(0)
    whole = batches(stream.dataset(), 30)
    stream.start_at(23, state)
    assert batches(stream.dataset(), 7) == whole[23:]


@pytest.mark.parametrize("has_counts", [True, False])
@pytest.mark.parametrize("next_sentence", [False, True])
def test_rows_of_processes_are_those_of_one(corpus, preprocessor, has_counts, next_sentence):
    if next_sentence:
        preprocessor = ks.SpanBertPretrainerPreprocessor(
            preprocessor.tokenizer, 7, next_sentence=True
        )
    counts, _ = corpus.token_counts(preprocessor.tokenizer, 7)
    counts = counts if has_counts else None
    stream = TrainingStream(corpus, preprocessor, 6, seed=1, unigram_counts=counts)
    stream.start_at(2, stream.state(0))
    whole = list(stream.dataset().take(9).as_numpy_iterator())
    assert any((x["token_ids"] != whole[0][0]["token_ids"]).any() for x, *_ in whole[1:])
    parts = [stream.dataset(part, 3).take(9).as_numpy_iterator() for part in range(3)]
    for batch, *shares in zip(whole, *parts, strict=True):
        for value, *own in zip(*map(keras.tree.flatten, [batch, *shares])):
            np.testing.assert_array_equal(np.concatenate(own), value)


@pytest.mark.parametrize("part, num_parts", [(0, 4), (3, 3), (-1, 3)])
def test_error_for_parts_that_are_none(corpus, preprocessor, part, num_parts):
    stream = TrainingStream(corpus, preprocessor, 6, seed=1)
    with pytest.raises(ValueError, match="A batch must be shared evenly by parts"):
        stream.dataset(part, num_parts)


def test_batch_is_the_one_that_was_trained_on(corpus, preprocessor):
    stream = TrainingStream(corpus, preprocessor, BATCH_SIZE, seed=1, shuffle_blocks=2)
    iterator = stream.dataset().as_numpy_iterator()
    for _ in range(50):
        x = next(iterator)[0]
    stream.consumed(49)
    np.testing.assert_array_equal(stream.batch(49)[0]["token_ids"], x["token_ids"])
    later = next(iterator)[0]  # The running dataset goes on.
    np.testing.assert_array_equal(stream.batch(50)[0]["token_ids"], later["token_ids"])


def test_only_the_states_that_may_be_asked_for_are_kept(corpus, preprocessor):
    stream = TrainingStream(corpus, preprocessor, BATCH_SIZE, seed=1, shuffle_blocks=2)
    iterator = stream.dataset().as_numpy_iterator()
    for step in range(200):
        next(iterator)
        stream.consumed(step + 1)
    (states,) = stream._states
    ahead = states[-1].rows // BATCH_SIZE - 200
    # At most one state before the step, and those of what was prefetched.
    assert states[0].rows <= 200 * BATCH_SIZE
    assert len(states) <= 2 + max(0, ahead)


def test_error_for_a_state_of_a_later_step(corpus, preprocessor):
    stream = TrainingStream(corpus, preprocessor, BATCH_SIZE, seed=1)
    with pytest.raises(ValueError, match="`state` must be of `step` or before. .* row 99"):
        stream.start_at(2, {**stream.state(0), "0/rows": 99})


@pytest.mark.parametrize("size", [1, 4, 33, 34])
def test_shuffle_buffer_keeps_each_row(size):
    shuffle = ShuffleBuffer(size, np.random.default_rng(0))
    rows = []
    for start, stop in [(0, 10), (10, 11), (11, 33)]:
        rows += [a.copy() for a in shuffle.push(np.arange(start, stop)[:, None])]
    rows = np.concatenate([*rows, *shuffle.flush()])
    assert sorted(rows[:, 0].tolist()) == list(range(33))
    assert (rows[:, 0].tolist() == list(range(33))) == (size == 1)


@pytest.mark.parametrize("kind", ["corpus", "rows"])
def test_a_batch_larger_than_the_data_is_an_error_at_once(kind, tmp_path):
    (tmp_path / "text.txt").write_text("a b c d e f g h\n" * 5)
    tokenizer = ks.SpanBertTokenizer([*SPECIAL_TOKENS, *"abcdefgh"])
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=10, seed=1)
    corpus = Corpus(str(tmp_path / "text.txt"))

    def dataset(batch_size):
        if kind == "corpus":
            return corpus.training_dataset(preprocessor, batch_size=batch_size, seed=1)
        return ArrayStream(np.arange(5), batch_size=batch_size, seed=1).dataset()

    assert len(list(dataset(5).take(1))) == 1
    for batch_size in [6, 10**12, 0]:
        message = f"1 to the data's 5 rows. Received: batch_size={batch_size}$"
        with pytest.raises(ValueError, match=message):
            dataset(batch_size)

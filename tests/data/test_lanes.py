"""Lanes of raw text: what each reads, and that the rows do not depend on who makes them."""

import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.data import blocks as blocks_module
from keras_spanbert.data import corpus as corpus_module
from keras_spanbert.data import training_stream
from keras_spanbert.data.array_stream import Part
from keras_spanbert.data.lanes import Lane, LaneState, Rows, choose_lanes, share
from keras_spanbert.data.shuffle_buffer import ShuffleBuffer
from keras_spanbert.data.vocabulary import SPECIAL_TOKENS

WORDS = [f"{a}{b}" for a in "bcdfgh" for b in "aeiou"]
LENGTH, BATCH_SIZE, FILES = 7, 16, 17


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    generator = np.random.default_rng(0)
    for i in range(FILES):
        (folder / f"{i:02}.txt").write_text(" ".join(generator.choice(WORDS, 40 + i)))
    return str(folder / "*.txt")


@pytest.fixture
def corpus(files, monkeypatch):
    monkeypatch.setattr(blocks_module, "_TOKENIZE_CHARACTERS", 100)
    monkeypatch.setattr(training_stream, "_ROWS_AT_ONCE", 12)
    return ks.Corpus(files)


@pytest.fixture(scope="module")
def preprocessor():
    tokenizer = ks.SpanBertTokenizer([*SPECIAL_TOKENS, *WORDS])
    return ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=LENGTH, mask_rate=0.4)


@pytest.fixture
def counts(corpus, preprocessor):
    return corpus.token_counts(preprocessor.tokenizer, LENGTH)[0]


@pytest.fixture
def stream(corpus, preprocessor, counts):
    def new(lanes, **kwargs):
        sizes = {"shuffle_blocks": 24, "unigram_counts": counts, **kwargs}
        return corpus.stream(preprocessor, BATCH_SIZE, seed=5, lanes=lanes, **sizes)

    return new


def token_ids(dataset, count):
    """Of batches, beside where each is masked, so that masks are compared too."""
    batches = dataset.take(count).as_numpy_iterator()
    return [np.concatenate([x["token_ids"], x["mask_positions"]], axis=1) for x, *_ in batches]


def blocks(stream, rows, count):
    """Blocks of whole batches before they are masked, `[count, rows, L]`."""
    found = []
    for array in stream._blocks(rows):
        found.extend(array)
        if len(found) >= count:
            break
    return np.stack(found[:count])


def test_units_are_shared_evenly_and_empty_ones_to_nobody():
    shares = share([5, 0, 9, 4, 3, 0, 3], 3)
    np.testing.assert_array_equal(shares, [1, -1, 0, 2, 2, -1, 1])


@pytest.mark.parametrize(
    ("sizes", "batch_size", "lanes"),
    [
        ([3] * 64, 128, 64),
        ([3] * 1000, 1024, 64),  # No more than that.
        ([3] * 63, 128, 32),
        ([3] * 33, 128, 8),  # By 32 one would have twice as much, by 16 a half more.
        ([3] * 64, 48, 16),  # What divides a batch.
        ([3] * 64, 7, 1),
        ([3] * 8 + [0] * 8, 64, 8),  # Held out: there is nothing to read.
        ([10, 6], 64, 2),  # 10 is a quarter above their mean.
        ([10, 5.9], 64, 1),
    ],
)
def test_lanes_are_as_many_as_units_and_batch_allow(sizes, batch_size, lanes):
    assert choose_lanes(np.array(sizes, float), batch_size) == lanes


def test_sizes_are_of_what_is_trained_on(files, corpus):
    sizes = corpus.training_sizes()
    assert sizes.sum() == corpus.num_characters and (np.diff(sizes) > 0).all()
    held_out = ks.Corpus(files, held_out=0.3).training_sizes()
    np.testing.assert_array_equal(held_out, np.where(np.arange(FILES) % 3 == 2, 0, sizes))


@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_lanes_read_each_unit_once_an_epoch_in_another_order(lanes):
    shares = share(np.arange(FILES) + 40.0, lanes)
    epochs = []
    for epoch in range(6):
        orders = [Lane(i, shares, None, 1, None, 9).order(epoch)[0] for i in range(lanes)]
        assert sorted(np.concatenate(orders)) == list(range(FILES))
        epochs.append([order.tolist() for order in orders])
    assert len(set(map(str, epochs))) == 6
    # Lanes change their shares.
    assert (len({frozenset(orders[0]) for orders in epochs}) > 1) == (lanes > 1)


@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_lanes_together_give_each_block_once_an_epoch(stream, corpus, preprocessor, lanes):
    made = stream(lanes, epochs=2)
    found = [array for i in range(lanes) for array in made._lane(i).rows([made._starts[i]])]
    once = np.concatenate(list(corpus.blocks(preprocessor.tokenizer, LENGTH)))
    expected = np.concatenate([once, once])
    assert sorted(map(tuple, np.concatenate(found))) == sorted(map(tuple, expected))


def test_a_stream_of_one_lane_is_the_text_in_a_new_order_through_one_buffer(
    stream, corpus, preprocessor
):
    expected = []
    for epoch in range(2):
        generator = np.random.default_rng([5, epoch])
        order = generator.permutation(FILES)
        shuffle = ShuffleBuffer(24, generator)
        for array in corpus.blocks(preprocessor.tokenizer, LENGTH, order=order):
            expected.extend(shuffle.push(array))
        expected.extend(shuffle.flush())
    expected = np.concatenate(expected)
    found = blocks(stream(1), slice(0, BATCH_SIZE), len(expected) // BATCH_SIZE)
    found = found.reshape(-1, LENGTH)
    np.testing.assert_array_equal(found, expected[: len(found)])


@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_rows_of_any_number_of_processes_are_those_of_one(stream, lanes):
    made = stream(lanes)
    made.start_at(3, made.state(0))
    whole = blocks(made, slice(0, BATCH_SIZE), 30)
    assert len({batch.tobytes() for batch in whole}) == 30
    for processes in [2, 4, 8, 16]:
        size = BATCH_SIZE // processes
        parts = [slice(i * size, (i + 1) * size) for i in range(processes)]
        shares = [blocks(made, rows, 30) for rows in parts]
        np.testing.assert_array_equal(np.concatenate(shares, axis=1), whole)


def test_batches_of_processes_are_masked_as_those_of_one(stream):
    whole = token_ids(stream(8).dataset(), 12)
    parts = [token_ids(stream(8).dataset(part, 2), 12) for part in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)


def test_a_process_opens_the_files_of_its_lanes_alone(stream, monkeypatch):
    opened = []
    read = corpus_module.read_documents
    monkeypatch.setattr(
        corpus_module, "read_documents", lambda path, *a: opened.append(path) or read(path, *a)
    )
    of_parts = []
    for part in range(4):
        opened.clear()
        list(batches_of(stream(8, epochs=1), part, 4))
        of_parts.append(set(opened))
        assert len(opened) == len(of_parts[-1]) <= 6
    assert sum(map(len, of_parts)) == FILES == len(set.union(*of_parts))


def together(monkeypatch, streams, step):
    """The state that processes write which each make a part of the rows."""
    for made in streams:
        made.consumed(step)
    own = [{i: s._states[i][0] for i in s._lanes_of(s._read.rows)} for s in streams]
    packed = [training_stream._packed(states) for states in own]
    monkeypatch.setattr(training_stream, "all_gather_bytes", lambda data: packed)
    states = [s.state(step) for s in streams]
    for state in states[1:]:
        np.testing.assert_equal(state, states[0])
    return states[0]


def batches_of(stream, part, processes):
    """A process's rows of each batch, not masked."""
    stream._read = Part(BATCH_SIZE, part, processes)
    for array in stream._blocks(stream._read.rows):
        yield from array


@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_a_run_goes_on_with_another_number_of_processes(stream, monkeypatch, lanes):
    whole = blocks(stream(lanes), slice(0, BATCH_SIZE), 57)
    state, step = stream(lanes).state(0), 0
    for processes in [4, 1, 2]:
        streams = [stream(None) for _ in range(processes)]
        for made in streams:
            made.start_at(step, state)
            assert made.lanes == lanes
        iterators = [batches_of(made, part, processes) for part, made in enumerate(streams)]
        for _ in range(19):
            rows = np.concatenate([next(iterator) for iterator in iterators])
            np.testing.assert_array_equal(rows, whole[step])
            step += 1
        before, state = state, together(monkeypatch, streams, step)
        # All lanes have come so far that it takes little to go on.
        assert all(state[f"{i}/rows"] > before[f"{i}/rows"] for i in range(lanes))


def test_the_batch_that_was_bad_is_made_of_all_processes_lanes(stream, monkeypatch):
    streams = [stream(8) for _ in range(2)]
    iterators = [batches_of(made, part, 2) for part, made in enumerate(streams)]
    for _ in range(40):
        for iterator in iterators:
            next(iterator)
    together(monkeypatch, streams, 39)
    made = stream(8)
    made.start_at(39, made.state(0))
    for a, b in zip(streams[0].batch(39)[0].values(), next(iter(made.dataset()))[0].values()):
        np.testing.assert_array_equal(a, b)


def test_a_state_of_before_there_were_lanes_has_one(stream):
    whole = blocks(stream(1), slice(0, BATCH_SIZE), 30)
    made = stream(1)
    iterator = batches_of(made, 0, 1)
    for _ in range(20):
        next(iterator)
    state = {name.removeprefix("0/"): value for name, value in made.state(20).items()}
    assert set(state) == set(LaneState._fields) and state["rows"] > 0
    later = stream(None)
    assert later.lanes == 4
    later.start_at(20, state)
    assert later.lanes == 1
    np.testing.assert_array_equal(next(batches_of(later, 0, 1)), whole[20])


def test_streams_that_end_have_one_lane_or_end_with_the_first(stream):
    made = stream(None, epochs=1)
    assert made.lanes == 1 and stream(None).lanes == 4
    num_blocks = sum(len(batch) for array in made._blocks(slice(0, BATCH_SIZE)) for batch in array)
    batches = [array for array in stream(8, epochs=1)._blocks(slice(0, BATCH_SIZE))]
    shorter = sum(len(batch) for array in batches for batch in array)
    assert 0.8 * num_blocks < shorter <= num_blocks


def test_errors(stream):
    for lanes in [0, 3, 18, 32]:
        with pytest.raises(ValueError, match=f"`lanes` must be from 1 to the 17 .*lanes={lanes},"):
            stream(lanes)
    with pytest.raises(ValueError, match="`lanes` must be those of `state`.*lanes=2 .* 8 lanes"):
        stream(2).start_at(0, stream(8).state(0))
    with pytest.raises(ValueError, match="`step` or before. .* row 64, step=3"):
        stream(8).start_at(3, {**stream(8).state(0), "5/rows": 8})


@pytest.mark.parametrize("skip", [0, 3, 4, 11, 99])
def test_rows_come_by_any_number(skip):
    rows = Rows(iter(np.split(np.arange(20)[:, None], [4, 5, 12])))
    rows.skip(skip)
    found = [rows.take(number) for number in [1, 0, 3, 7, 50]]
    found = [array.ravel() for array in found if len(array)]
    np.testing.assert_array_equal(np.concatenate([*found, []]), np.arange(20)[skip:])


def test_an_epoch_may_begin_with_a_part_without_blocks():
    generator = np.random.default_rng(0)
    shuffle = ShuffleBuffer(8, generator, np.zeros((0, 5), np.int32))
    assert not [*shuffle.push(np.zeros((0, 5), np.int32))] and shuffle.waiting().shape == (0, 5)

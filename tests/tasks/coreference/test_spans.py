import numpy as np
import pytest
from keras import ops

from keras_spanbert.tasks.coreference.spans import (
    candidate_spans,
    map_in_chunks,
    num_top_spans,
    select_spans,
)

# One shape for all tests, to compile once: candidates, tokens, width, spans to keep.
N, T, W, K = 641, 103, 13, 43


def padded(array, size, value=0):
    return np.pad(array, (0, size - len(array)), constant_values=value)


def select(scores, starts, ends, num_top):
    """Returns the indices of kept spans of one document with padding in every axis."""
    arrays = (
        padded(np.array(scores, "float32"), N, 9.0),
        padded(np.array(starts, "int32"), N),
        padded(np.array(ends, "int32"), N, -1),
        padded(np.ones(num_top, "int32"), K),
    )
    tensors = [ops.convert_to_tensor(x[None]) for x in arrays]
    return ops.convert_to_numpy(select_spans(*tensors, T, W))[0, :num_top]


def visit_in_order(scores, starts, ends, num_top):
    """Selects spans one candidate after another, as a reference."""
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        crosses = [
            starts[j] < starts[i] <= ends[j] < ends[i] or starts[i] < starts[j] <= ends[i] < ends[j]
            for j in kept
        ]
        if len(kept) < num_top and not any(crosses):
            kept.append(i)
    return sorted(kept)


def test_selection_equals_the_released_op(reference):
    cases = reference.read("outputs/extract_spans_cases.json")
    assert len(cases) > 10
    for case in cases:
        # The op accepts candidates in any order.
        order = np.lexsort((case["ends"], case["starts"]))
        columns = [np.array(case[name])[order] for name in ["scores", "starts", "ends"]]
        kept = order[select(*columns, case["k"])]
        assert kept.tolist() == case["indices_sorted"], case["name"]


def test_rounds_equal_sequential_selection():
    generator = np.random.default_rng(0)
    starts, ends = candidate_spans(np.arange(97) // 13, 7)
    # Many scores are equal and long spans score high, so most spans cross a better one.
    scores = generator.integers(0, 40, len(starts)) / 8 + 0.4 * (ends - starts)
    expected = visit_in_order(scores, starts, ends, 41)
    assert len(expected) == 41
    assert select(scores, starts, ends, 41).tolist() == expected


def test_candidates_start_and_end_in_one_sentence():
    starts, ends = candidate_spans(np.array([0, 0, 1, 0, 0]), 3)
    # A token between them can belong to another sentence, like in the released code.
    expected = [(0, 0), (0, 1), (1, 1), (1, 3), (2, 2), (3, 3), (3, 4), (4, 4)]
    assert list(zip(starts.tolist(), ends.tolist())) == expected


@pytest.mark.once
@pytest.mark.parametrize(
    "num_tokens, ratio, num_top",
    [(102, 0.4, 40), (0, 0.4, 0), (20_000, 0.4, 3900), (90, 0.7, 63)],  # 90 * 0.7 in float32
)
def test_number_of_spans_equals_the_released_graph(num_tokens, ratio, num_top):
    assert num_top_spans(num_tokens, ratio) == num_top


@pytest.mark.parametrize("num_rows", [1, 14, 17])
def test_blocks_equal_all_rows_at_once(num_rows):
    seen = []

    def function(arrays):
        x, y = arrays
        seen.append(x.shape[1])
        return ops.sum(x, axis=2) + y, x * 2.0

    x = np.arange(3 * num_rows * 5, dtype="float32").reshape(3, num_rows, 5)
    y = np.arange(3 * num_rows, dtype="float32").reshape(3, num_rows)
    arrays = [ops.convert_to_tensor(x), ops.convert_to_tensor(y)]
    sums, doubles = map_in_chunks(function, arrays, 7, training=False)
    np.testing.assert_allclose(ops.convert_to_numpy(sums), x.sum(axis=2) + y)
    np.testing.assert_allclose(ops.convert_to_numpy(doubles), x * 2.0)
    assert set(seen) == {min(num_rows, 7)}
    seen.clear()
    map_in_chunks(function, arrays, 7, training=True)
    assert seen == [num_rows]

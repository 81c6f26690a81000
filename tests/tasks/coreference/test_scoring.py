import keras
import numpy as np
import pytest
from keras import ops

from keras_spanbert.tasks.coreference.layers import map_in_chunks, num_top_spans, select_spans
from keras_spanbert.tasks.coreference.scoring import NUM_DISTANCES, distance_bucket

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


def test_selection_equals_the_released_op(reference):
    cases = reference.read("outputs/extract_spans_cases.json")
    assert len(cases) > 10
    for case in cases:
        # The op accepts candidates in any order.
        order = np.lexsort((case["ends"], case["starts"]))
        columns = [np.array(case[name])[order] for name in ["scores", "starts", "ends"]]
        kept = order[select(*columns, case["k"])]
        assert kept.tolist() == case["indices_sorted"], case["name"]


@pytest.mark.once
def test_number_of_spans_equals_the_released_graph():
    for num_tokens, ratio, num_top in [(102, 0.4, 40), (0, 0.4, 0), (20_000, 0.4, 3900)]:
        assert num_top_spans(num_tokens, ratio) == num_top
    assert num_top_spans(90, 0.7) == 63  # The product in float32.


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


def test_model_sums_unrounded_mention_scores(build, document, mixed_bfloat16):
    model = build()
    layers = model.resolver_layers
    # Then the score of a pair is the sum of the mention scores, which bfloat16 cannot represent.
    for weights in [*layers.coarse.weights, *layers.fine.weights]:
        weights.assign(np.zeros(weights.shape))
    found = model.score_document(model.preprocessor.segment(document))
    mentions, antecedents = found["top_span_mention_scores"], found["top_antecedents"]
    scores = found["top_antecedent_scores"][:, 1:]
    is_pair = np.isfinite(scores)
    assert is_pair.sum() > 10
    sums = mentions[:, None] + mentions[np.where(is_pair, antecedents, 0)]
    np.testing.assert_array_equal(scores, np.where(is_pair, sums, -np.inf))


@pytest.mark.torch_first
def test_training_drops_out_units_of_the_head(build, document):
    model = build(dropout_rate=0.5)
    x, _, _ = model.preprocess([document])
    trained, again = (
        keras.ops.convert_to_numpy(model(x, training=True)["candidate_mention_scores"])
        for _ in range(2)
    )
    assert np.abs(trained - again).max() > 1e-3


def test_distance_buckets_have_the_published_bounds():
    bounds = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 7: 5, 8: 6, 15: 6, 16: 7, 31: 7, 32: 8, 63: 8}
    expected = {**bounds, 64: 9, 65: 9, 5000: 9}
    found = distance_bucket(keras.ops.array(list(expected), dtype="int32"))
    assert keras.ops.convert_to_numpy(found).tolist() == list(expected.values())
    assert max(expected.values()) == NUM_DISTANCES - 1

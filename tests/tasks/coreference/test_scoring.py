import keras
import numpy as np
import pytest

from keras_spanbert.tasks.coreference.scoring import NUM_DISTANCES, distance_bucket


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

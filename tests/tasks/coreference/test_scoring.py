import keras
import numpy as np
import pytest
from keras import ops

from keras_spanbert.tasks.coreference.model import DEFAULTS
from keras_spanbert.tasks.coreference.scoring import CoarseScorer, FineScorer

K, M, D = 5, 3, 7


@pytest.fixture
def mixed_precision():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    yield
    keras.config.set_dtype_policy(policy)


def bfloat16_scores(size, first_index):
    """Spans with scores that bfloat16 cannot represent."""
    return {
        "mention_scores": np.linspace(100.003, 200.007, size, dtype="float32")[None],
        "index": first_index + np.arange(size, dtype="int32")[None],
        "speakers": np.zeros((1, size), "int32"),
        "segments": np.zeros((1, size), "int32"),
    }


def test_scores_of_pairs_are_not_rounded_in_mixed_precision():
    spans = {
        **bfloat16_scores(K, M),
        "embeddings": np.zeros((1, K, D), "float32"),
        "mask": np.ones((1, K), "int32"),
    }
    memory = {**bfloat16_scores(M, 0), "embeddings": np.ones((1, M, 2, D), "float32")}
    mentions = spans["mention_scores"][0]
    of_keys = np.concatenate([memory["mention_scores"][0], mentions])
    arguments = {**DEFAULTS, "max_top_antecedents": K, "feature_size": 2, "ffnn_size": 11}
    common = {"settings": arguments, "dtype": "mixed_bfloat16", "initializer_range": 0.0}
    coarse = CoarseScorer(D, **common)
    antecedents, scores = coarse(spans, memory)
    antecedents = ops.convert_to_numpy(antecedents)[0]
    is_pair = np.isfinite(ops.convert_to_numpy(scores)[0])
    assert is_pair.sum() >= K - 1
    # With zero weights, the score is the sum of the mention scores.
    expected = np.where(is_pair, mentions[:, None] + of_keys[antecedents], -np.inf)
    np.testing.assert_array_equal(ops.convert_to_numpy(scores)[0], expected)
    fine = FineScorer(D, **common)
    scores, embeddings = fine(spans, antecedents[None], scores, np.zeros(1, "int32"), memory)
    np.testing.assert_array_equal(ops.convert_to_numpy(scores)[0], expected)
    assert keras.backend.standardize_dtype(embeddings.dtype) == "bfloat16"


def test_model_sums_unrounded_mention_scores(build, document, mixed_precision):
    model = build(fine_grained=False)
    for weights in model.resolver_layers.coarse.weights:
        weights.assign(np.zeros(weights.shape))
    found = model.score_document(model.preprocessor.segment(document))
    mentions, antecedents = found["top_span_mention_scores"], found["top_antecedents"]
    scores = found["top_antecedent_scores"][:, 1:]
    is_pair = np.isfinite(scores)
    assert is_pair.sum() > 10
    sums = mentions[:, None] + mentions[np.where(is_pair, antecedents, 0)]
    np.testing.assert_array_equal(scores, np.where(is_pair, sums, -np.inf))

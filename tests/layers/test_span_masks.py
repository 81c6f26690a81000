"""The masking algorithm against the released system's statistics and by hand."""

import json

import numpy as np
import pytest

from keras_spanbert import SpanMasking
from keras_spanbert.layers import span_masks

LENGTH = 510


@pytest.fixture(scope="module")
def reference(shared_data):
    vocabulary = (
        (shared_data / "reference/vocab/bert_base_cased.txt").read_text("utf-8").split("\n")
    )
    continuation = [i for i, token in enumerate(vocabulary) if token.startswith("##")]
    folder = shared_data / "reference/masking"
    blocks = np.load(folder / "blocks_510.npz")["token_ids"].astype("int32")
    return blocks, continuation, json.loads((folder / "masking_stats_510.json").read_text())


def runs_of(flags):
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags, [0]])))
    return zip(edges[::2], edges[1::2])


def statistics(blocks, continuation, num_passes):
    """The statistics of `masking_stats_510.json`, of this library's masks."""
    masking = SpanMasking(28996, 103, continuation, special_token_ids=(0, 101, 102, 103))
    is_start = ~np.isin(np.arange(28996), continuation)
    tokens, words, runs = np.zeros(64), np.zeros(64), np.zeros(60)
    kinds, rate, counts = np.zeros(3), np.zeros(LENGTH), []
    spans, targets, at_word_end, total = 0, 0, 0, 0
    for seed in range(num_passes):
        masks = {k: np.asarray(v) for k, v in masking(blocks, seed=seed).items()}
        flags = np.zeros(blocks.shape, int)
        np.put_along_axis(flags, masks["mask_positions"], masks["mask_weights"].astype(int), 1)
        rate += flags.sum(axis=0)
        counts += flags.sum(axis=1).tolist()
        spans += (masks["span_weights"] * (masks["span_offsets"] == 0)).sum()
        targets += masks["span_weights"].sum()
        for before, after, row in zip(blocks, masks["token_ids"], flags):
            found = list(runs_of(row))
            runs[len(found)] += 1
            for start, stop in found:
                total += 1
                tokens[stop - start] += 1
                words[is_start[before[start:stop]].sum()] += 1
                at_word_end += stop == LENGTH or is_start[before[stop]]
                if (after[start:stop] == 103).all():
                    kinds[0] += 1
                elif (after[start:stop] == before[start:stop]).all():
                    kinds[2] += 1
                else:
                    kinds[1] += 1
    n = num_passes * len(blocks)
    return {
        "masked": counts,
        "run_tokens": tokens / total,
        "run_words": words / total,
        "runs_hist": runs / n,
        "runs_per_sequence": total / n,
        "kinds": kinds / total,
        "run_ends_at_word_end": at_word_end / total,
        "sbo_spans_per_sequence": spans / n,
        "sbo_targets_per_sequence": targets / n,
        "position_mask_rate": rate / n,
    }


def total_variation(a, b):
    a, b = (np.pad(np.asarray(x), (0, 64 - len(x))) for x in (a, b))
    return np.abs(a - b).sum() / 2


def test_statistics_are_those_of_the_released_masking(reference):
    blocks, continuation, expected = reference
    ours = statistics(blocks, continuation, num_passes=60)
    assert set(ours["masked"]) == {expected["masked_min"]} == {expected["masked_max"]} == {77}
    assert total_variation(ours["run_tokens"], expected["run_tokens"]) < 0.015
    assert total_variation(ours["run_words"], expected["run_words"]) < 0.015
    # Each histogram of 12,000 sequences is off by sampling error itself.
    assert total_variation(ours["runs_hist"], expected["runs_hist"]) < 0.025
    for name in ["runs_per_sequence", "sbo_spans_per_sequence", "sbo_targets_per_sequence"]:
        assert ours[name] == pytest.approx(expected[name], rel=0.01), name
    assert ours["run_ends_at_word_end"] == pytest.approx(
        expected["run_ends_at_word_end"], abs=0.002
    )
    np.testing.assert_allclose(ours["kinds"], expected["run_kind_mask_random_keep"], atol=0.005)
    np.testing.assert_allclose(
        ours["position_mask_rate"], expected["position_mask_rate"], atol=0.02
    )


def one_by_one(continuation, anchors, lengths, budget):
    """The released procedure, literally: one candidate after another."""
    n = len(continuation)
    masked = []
    for anchor, length in zip(anchors, lengths):
        if len(masked) == budget:
            break
        if anchor in masked:
            continue
        start = anchor
        while start > 0 and continuation[start]:
            start -= 1
        stop = start + 1
        while stop < n and (continuation[stop] or length > 1):
            length -= not continuation[stop]
            stop += 1
        masked += [i for i in range(start, stop) if i not in masked][: budget - len(masked)]
    assert len(masked) == budget, "Too few candidates for this test"
    return sorted(masked)


@pytest.mark.parametrize("mask_rate", [0.15, 0.5, 0.9])
def test_masks_equal_drawing_one_span_after_another(mask_rate):
    rng = np.random.default_rng(7)
    B, L, M, K = 31, 59, 59, 300
    probabilities = span_masks.span_length_distribution(0.2, 10)
    continuation = rng.random((B, L)) < 0.3
    draws = rng.random((B, span_masks.draws_per_sequence(K, M)))
    masks = span_masks.span_masks(
        np,
        np.tile(np.arange(1, L + 1, dtype=np.int32), (B, 1)),
        np.ones((B, L), bool),
        continuation,
        draws,
        mask_rate=mask_rate,
        max_predictions=M,
        length_probabilities=probabilities,
        max_span_tokens=15,
        mask_token_id=0,
        mask_token_rate=0.8,
        random_token_rate=0.1,
        replacement="span",
    )
    lengths = span_masks.span_lengths(np, draws[:, K + 1 : 2 * K + 1], probabilities)
    for b in range(B):
        expected = one_by_one(
            continuation[b],
            (draws[b, :K] * L).astype(int),
            lengths[b],
            int(np.ceil(mask_rate * L)),
        )
        found = masks.mask_positions[b][masks.mask_weights[b] > 0]
        assert found.tolist() == expected


def test_budget_is_met_where_candidates_fall_short():
    probabilities = span_masks.span_length_distribution(0.2, 10)
    L, M, K = 41, 20, 1
    draws = np.random.default_rng(0).random((5, span_masks.draws_per_sequence(K, M)))
    masks = span_masks.span_masks(
        np,
        np.ones((5, L), np.int32),
        np.ones((5, L), bool),
        np.zeros((5, L), bool),
        draws,
        mask_rate=0.45,
        max_predictions=M,
        length_probabilities=probabilities,
        max_span_tokens=15,
        mask_token_id=0,
        mask_token_rate=0.8,
        random_token_rate=0.1,
        replacement="token",
    )
    np.testing.assert_array_equal(masks.mask_weights.sum(axis=1), 19)


def test_span_length_distribution_by_hand():
    # 1/2, 1/4, 1/8 of the geometric distribution, over their sum of 7/8.
    np.testing.assert_allclose(span_masks.span_length_distribution(0.5, 3), [4 / 7, 2 / 7, 1 / 7])
    mean = span_masks.span_length_distribution(0.2, 10) @ np.arange(1, 11)
    assert mean == pytest.approx(3.797, abs=1e-3)  # "an average span length of 3.8"

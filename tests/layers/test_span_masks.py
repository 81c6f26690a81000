"""The masking algorithm compared with statistics of the released system and by hand."""

import json

import numpy as np
import pytest

from keras_spanbert import SpanMasking
from keras_spanbert.layers import span_masks

LENGTH = 510


@pytest.fixture(scope="module")
def reference(shared_data):
    path = shared_data / "reference/vocab/bert_base_cased.txt"
    tokens = path.read_text("utf-8").split("\n")
    continuation = [i for i, token in enumerate(tokens) if token.startswith("##")]
    folder = shared_data / "reference/masking"
    blocks = np.load(folder / "blocks_510.npz")["token_ids"].astype("int32")
    return blocks, continuation, json.loads((folder / "masking_stats_510.json").read_text())


def find_runs(flags):
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags, [0]])))
    return zip(edges[::2], edges[1::2])


def statistics(blocks, continuation, num_passes):
    """Computes the statistics of `masking_stats_510.json` for this library."""
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
            found = list(find_runs(row))
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
        "masked": counts, "run_tokens": tokens / total, "run_words": words / total,
        "runs_hist": runs / n, "runs_per_sequence": total / n, "kinds": kinds / total,
        "run_ends_at_word_end": at_word_end / total, "sbo_spans_per_sequence": spans / n,
        "sbo_targets_per_sequence": targets / n, "position_mask_rate": rate / n,
    }  # fmt: skip


def total_variation(a, b):
    a, b = (np.pad(np.asarray(x), (0, 64 - len(x))) for x in (a, b))
    return np.abs(a - b).sum() / 2


def test_statistics_equal_the_released_masking(reference):
    blocks, continuation, expected = reference
    ours = statistics(blocks, continuation, num_passes=60)
    assert set(ours["masked"]) == {expected["masked_min"]} == {expected["masked_max"]} == {77}
    assert total_variation(ours["run_tokens"], expected["run_tokens"]) < 0.015
    assert total_variation(ours["run_words"], expected["run_words"]) < 0.015
    # The histograms of 12,000 sequences have a sampling error.
    assert total_variation(ours["runs_hist"], expected["runs_hist"]) < 0.025
    for name in ["runs_per_sequence", "sbo_spans_per_sequence", "sbo_targets_per_sequence"]:
        assert ours[name] == pytest.approx(expected[name], rel=0.01), name
    expected["kinds"] = expected["run_kind_mask_random_keep"]
    limits = {"run_ends_at_word_end": 0.002, "kinds": 0.005, "position_mask_rate": 0.02}
    for name, atol in limits.items():
        np.testing.assert_allclose(ours[name], expected[name], rtol=0, atol=atol)


def mask(draws, continuation, mask_rate, max_predictions, probabilities, **kwargs):
    """Returns the masked positions of each sequence. All tokens are maskable."""
    masks = span_masks.span_masks(
        np, np.tile(np.arange(1, continuation.shape[1] + 1, dtype=np.int32), (len(draws), 1)),
        np.ones(continuation.shape, bool), continuation, draws, mask_rate=mask_rate,
        max_predictions=max_predictions, length_probabilities=probabilities, max_span_tokens=15,
        mask_token_id=0, mask_token_rate=0.8, random_token_rate=0.1, replacement="span", **kwargs,
    )  # fmt: skip
    is_real = masks["mask_weights"] > 0
    return [row[real].tolist() for row, real in zip(masks["mask_positions"], is_real)]


def word_start(continuation, position):
    while position > 0 and continuation[position]:
        position -= 1
    return position


def mask_in_turn(continuation, candidates, budget, rest=()):
    """The released procedure, which masks one candidate after another.

    A candidate is an anchor, the end of its span, and how many more words the span has.
    `rest` are the tokens that are masked after all candidates.
    """
    masked = []
    for anchor, stop, more_words in candidates:
        if len(masked) == budget:
            break
        if anchor in masked:
            continue
        start = word_start(continuation, anchor)
        while stop < len(continuation) and (continuation[stop] or more_words > 0):
            more_words -= not continuation[stop]
            stop += 1
        masked += [i for i in range(start, stop) if i not in masked][: budget - len(masked)]
    masked += [i for i in rest if i not in masked][: budget - len(masked)]
    assert len(masked) == budget, "Too few candidates for this test"
    return sorted(masked)


@pytest.mark.parametrize("max_span_words", [1, 10])
@pytest.mark.parametrize(
    "mask_rate, num_candidates", [(0.15, 300), (0.5, 300), (0.9, 300), (0.5, 2)]
)
def test_masks_equal_sequential_drawing(mask_rate, num_candidates, max_span_words):
    rng = np.random.default_rng(7)
    B, L, K = 31, 59, num_candidates
    probabilities = span_masks.span_length_distribution(0.2, max_span_words)
    continuation = rng.random((B, L)) < 0.3
    draws = rng.random((B, 2 * K + 1 + 2 * L))
    found = mask(draws, continuation, mask_rate, L, probabilities)
    lengths = span_masks.span_lengths(np, draws[:, K + 1 : 2 * K + 1], probabilities)
    for b in range(B):
        *anchors, last = (draws[b, : K + 1] * L).astype(int)
        candidates = zip(anchors, np.add(anchors, 1), lengths[b] - 1)
        budget = int(np.ceil(mask_rate * L))
        # With few candidates, a span from a random word to the end and the whole sequence follow.
        rest = [*range(word_start(continuation[b], last), L), *range(L)]
        assert found[b] == mask_in_turn(continuation[b], candidates, budget, rest)


def linguistic_candidates(marks, draws, num_candidates):
    """Yields candidates, drawn from a sequence's linguistic spans with probability 1/2."""
    L = len(marks)
    before = [0, *marks[:-1]]
    starts = [i for i in range(L) if marks[i] == 1 or marks[i] > before[i] == 0]
    words, seen = iter(draws[:num_candidates]), set()
    for choice in draws[2 * num_candidates + 1 + 2 * L :]:
        if choice < 0.5 and starts:
            start = starts[int(2 * choice * len(starts))]
            stop = next((i for i in range(start + 1, L) if marks[i] != 2), L)
            if start not in seen:
                next(words, 0)  # Its draw replaces the draw of a word.
            seen.add(start)
            yield start, stop, 0
        else:
            anchor = int(next(words) * L)
            yield anchor, anchor + 1, 0


@pytest.mark.parametrize("mask_rate", [0.15, 0.5, 0.9])
def test_linguistic_masks_equal_sequential_drawing(mask_rate):
    rng = np.random.default_rng(7)
    B, L, K = 37, 59, 900
    continuation = rng.random((B, L)) < 0.3
    marks = np.zeros((B, L), np.int32)
    for b in range(1, B):  # The first row has no linguistic spans.
        for start in range(1 + int(rng.integers(7)), L - 4, 7):
            marks[b, start] = 1
            marks[b, start + 1 : start + int(rng.integers(1, 5))] = 2
    marks[1, :2] = 2  # The end of a span.
    draws = rng.random((B, 4 * K + 1 + 2 * L))
    found = mask(draws, continuation, mask_rate, L, np.ones(1), span_marks=marks)
    for b in range(B):
        candidates = linguistic_candidates(marks[b], draws[b], K)
        budget = int(np.ceil(mask_rate * L))
        assert found[b] == mask_in_turn(continuation[b], candidates, budget)


def test_span_length_distribution_by_hand():
    # 1/2, 1/4, 1/8 of the geometric distribution, divided by their sum of 7/8.
    np.testing.assert_allclose(span_masks.span_length_distribution(0.5, 3), [4 / 7, 2 / 7, 1 / 7])
    mean = span_masks.span_length_distribution(0.2, 10) @ np.arange(1, 11)
    assert mean == pytest.approx(3.797, abs=1e-3)  # "an average span length of 3.8"

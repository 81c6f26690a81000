"""What a run would take, told before it starts."""

import types

import keras
import numpy as np
import pytest
from absl.testing import flagsaver
from train_script import parse_flags

import keras_spanbert as ks
from keras_spanbert.data.array_stream import ArrayStream, RowStream
from keras_spanbert.data.length_batches import LengthGroupedStream
from keras_spanbert.recipes import estimate
from keras_spanbert.recipes.plan import Plan
from keras_spanbert.recipes.sweep import SHARE
from keras_spanbert.recipes.terminal import shown_duration
from keras_spanbert.runs import cost
from keras_spanbert.tasks.coreference.batches import DocumentStream, Sizes


def rows(*tokens, length):
    mask = np.arange(length) < np.array(tokens)[:, None]
    ids = np.where(mask, 7, 0)
    return {"token_ids": ids, "padding_mask": mask.astype("int32")}


def plan(stream, num_rows, sequences=1):
    backbone = ks.SpanBertBackbone(11, 2, 1, 3, 5)
    return Plan(
        model=backbone,
        stream=stream,
        num_examples=num_rows,
        learning_rate=1.0,
        steps=1,
        metrics=None,
        plot=None,
        sequences=sequences,
    )


@pytest.fixture
def flags():
    with flagsaver.flagsaver():
        parse_flags(["train.py", "--batch_size=3", "--sequence_length=7"])
        yield


def told(capsys):
    return capsys.readouterr().out.splitlines()


def test_tokens_and_flops_are_those_counted_by_hand(flags, capsys):
    stream = ArrayStream((rows(7, 5, 2, 7, 1, 6, length=7), np.zeros(6)), 3, seed=1)
    estimate.log_estimate(plan(stream, 6), steps=4, num_devices=1)
    # Twice 28 tokens of 42. A token and layer: 72 + 60 + 84, as tests of the cost have it; three
    # times for a step, of 84 positions in all.
    flops = 3 * 84 * 2 * (72 + 60 + 84)
    assert flops == 108_864
    assert told(capsys) == [
        "To train: 4 steps of 3 of 6 rows (2 epochs), 56 tokens in batches that are 33% padding, "
        "109 kFLOP"
    ]


def test_stream_that_does_not_know_has_tokens_of_whole_rows(flags, capsys):
    for stream in [types.SimpleNamespace(), RowStream(6, 3, seed=1)]:
        estimate.log_estimate(plan(stream, 6, sequences=2), steps=1, num_devices=1)
        assert "3 of 6 rows (0.5 epochs), 42 tokens, 54.4 kFLOP" in told(capsys)[0]


def test_time_is_that_of_a_product_and_of_all_runs(flags, capsys, monkeypatch):
    monkeypatch.setattr(cost, "matrix_flops", lambda: 1000.0)
    monkeypatch.setattr(cost, "matrix_rate", lambda dtype: {"float32": 54.432}[dtype])
    monkeypatch.setenv(SHARE, "5 6.5")
    estimate.log_estimate(plan(RowStream(6, 3, seed=1), 6), steps=2, num_devices=2)
    # 54,432 operations at twice 54.432 a second take 500 s.
    assert told(capsys) == [
        "To train: 2 steps of 3 of 6 rows (1 epoch), 42 tokens, 54.4 kFLOP, 8 min or more",
        "All 5 runs: 354 kFLOP, 54 min or more",
        "(at the 109 FLOP/s of a matrix product here; evaluations come on top)",
    ]


def test_product_is_not_measured_for_less_than_it_takes(flags, capsys, monkeypatch):
    monkeypatch.setattr(cost, "matrix_rate", None)
    monkeypatch.setattr(cost, "matrix_flops", lambda: 54_432 / 4)
    estimate.log_estimate(plan(RowStream(6, 3, seed=1), 6), steps=2, num_devices=1)
    assert len(told(capsys)) == 1


def test_dtype_of_the_product_is_that_of_the_policy(flags, monkeypatch):
    seen = []
    monkeypatch.setattr(cost, "matrix_flops", lambda: 1.0)
    monkeypatch.setattr(cost, "matrix_rate", lambda dtype: seen.append(dtype) or 1.0)
    with flagsaver.flagsaver(dtype="mixed_bfloat16"):
        estimate.log_estimate(plan(RowStream(6, 3, seed=1), 6), steps=1, num_devices=1)
    assert seen == ["bfloat16"]


def test_flops_of_the_product_are_what_its_rate_is_of(monkeypatch):
    products = []
    matmul = keras.ops.matmul
    monkeypatch.setattr(cost, "_CPU_SIDE", 64)
    monkeypatch.setattr(cost, "_ACCELERATOR_SIDE", 64)
    monkeypatch.setattr(
        cost.ops, "matmul", lambda x, y: products.append(x.shape[0]) or matmul(x, y)
    )
    assert cost.matrix_rate() > 0.0
    assert cost.matrix_flops() == 2.0 * products[0] ** 3 == 524_288.0
    # The first one warms up.
    assert len(products) == estimate._MEASURED


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.2, "1 s"), (59.0, "59 s"), (119.0, "119 s"), (120.0, "2 min"), (179.0, "2 min"),
        (3599.0, "59 min"), (3600.0, "1 h 0 min"), (2 * 3600.0 + 350.0, "2 h 5 min"),
    ],
)  # fmt: skip
def test_durations_are_in_the_unit_that_fits(seconds, text):
    assert shown_duration(seconds) == text


# === Tokens of streams ===


def test_batches_of_like_length_have_less_padding():
    tokens = [17, 30, 17, 64, 18, 30]
    stream = LengthGroupedStream((rows(*tokens, length=64), np.zeros(6)), 2, seed=1)
    # Three batches of two, cut to 24, 32 and 64: 17 and 17, 18 and 30, 30 and 64.
    assert stream.num_tokens() == (176, 2 * (24 + 32 + 64))
    assert stream.padding() == pytest.approx(1 - 176 / 240)


def test_choices_are_tokens_each():
    inputs = {name: array.reshape(2, 3, 16) for name, array in rows(*[13] * 6, length=16).items()}
    stream = LengthGroupedStream((inputs, np.zeros(2)), 1, seed=1)
    assert stream.num_tokens() == (78, 96)


def test_documents_are_as_long_as_what_is_cut_of_them():
    masks = [np.ones((1, 5), "int32"), np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])]
    documents = types.SimpleNamespace(
        tensors=masks,
        batch_size=1,
        seed=1,
        sizes=Sizes(segments=2, length=5, tokens=10, spans=3),
        cut=lambda number, epoch: {"input_mask": masks[number]},
    )
    assert DocumentStream(documents).num_tokens() == (12, 20)

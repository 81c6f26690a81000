"""The estimate of the cost of a run before it starts."""

import types
from fractions import Fraction

import keras
import numpy as np
import pytest
from absl.testing import flagsaver
from train_script import parse_flags

import keras_spanbert as ks
from keras_spanbert.data.array_stream import ArrayStream, LengthGroupedStream, RowStream
from keras_spanbert.recipes import estimate
from keras_spanbert.recipes.terminal import format_duration
from keras_spanbert.recipes.training_settings import TrainingSettings
from keras_spanbert.runs import cost
from keras_spanbert.tasks.coreference.batches import DocumentStream


def rows(*tokens, length):
    mask = np.arange(length) < np.array(tokens)[:, None]
    ids = np.where(mask, 7, 0)
    return {"token_ids": ids, "padding_mask": mask.astype("int32")}


def settings(stream, num_rows, sequences=1):
    backbone = ks.SpanBertBackbone(11, 2, 1, 3, 5)
    unused = {"learning_rate": 1.0, "steps": 1, "metrics": None, "plot": None}
    epoch = Fraction(num_rows, 3)
    return TrainingSettings(backbone, stream, num_rows, epoch, sequences=sequences, **unused)


@pytest.fixture
def flags():
    with flagsaver.flagsaver():
        parse_flags(["train.py", "--batch_size=3", "--sequence_length=7"])
        yield


def output_lines(capsys):
    return capsys.readouterr().out.splitlines()


def test_tokens_and_flops_counted_by_hand(flags, capsys):
    stream = ArrayStream((rows(7, 5, 2, 7, 1, 6, length=7), np.zeros(6)), 3, seed=1)
    estimate.log_estimate(settings(stream, 6), steps=4, num_devices=1)
    # 28 of 42 positions are tokens, twice. Each position and layer takes 72 + 60 + 84 FLOPs, as in
    # test_cost.py, times three for a training step, times 84 positions.
    flops = 3 * 84 * 2 * (72 + 60 + 84)
    assert flops == 108_864
    assert output_lines(capsys) == [
        "To train: 4 steps, each with 3 of 6 rows (2 epochs), 56 tokens in batches that are 33% "
        "padding, 109 kFLOP"
    ]


def test_stream_of_unknown_lengths_counts_whole_rows(flags, capsys):
    for stream in [types.SimpleNamespace(), RowStream(6, 3, seed=1)]:
        estimate.log_estimate(settings(stream, 6, sequences=2), steps=1, num_devices=1)
        assert "3 of 6 rows (0.5 epochs), 42 tokens, 54.4 kFLOP" in output_lines(capsys)[0]


def test_time_from_the_matrix_rate_except_for_short_runs(flags, capsys, monkeypatch):
    monkeypatch.setattr(cost, "matrix_flops", lambda: 1000.0)
    monkeypatch.setattr(cost, "matrix_rate", lambda dtype: {"bfloat16": 54.432}[dtype])
    with flagsaver.flagsaver(dtype="mixed_bfloat16"):
        estimate.log_estimate(settings(RowStream(6, 3, seed=1), 6), steps=2, num_devices=2)
    # 54,432 FLOPs at twice 54.432 FLOP/s take 500 s.
    assert output_lines(capsys) == [
        "To train: 2 steps, each with 3 of 6 rows (1 epoch), 42 tokens, 54.4 kFLOP, at least 8 min",
        "(at 109 FLOP/s, measured with a matrix product; without evaluations)",
    ]
    monkeypatch.setattr(cost, "matrix_rate", None)
    monkeypatch.setattr(cost, "matrix_flops", lambda: 54_432 / 4)
    estimate.log_estimate(settings(RowStream(6, 3, seed=1), 6), steps=2, num_devices=1)
    assert len(output_lines(capsys)) == 1


def test_matrix_rate_counts_flops_of_the_product(monkeypatch):
    products = []
    matmul = keras.ops.matmul
    monkeypatch.setattr(cost.ops, "matmul", lambda x, y: products.append(x.shape) or matmul(x, y))
    assert cost.matrix_rate(side=64) > 0.0
    assert products == [(64, 64)] * estimate._MEASURED  # The first one warms up.
    assert cost.matrix_flops(64) == 2.0 * 64**3


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.2, "1 s"), (119.0, "119 s"), (120.0, "2 min"), (3599.0, "59 min"),
        (2 * 3600.0 + 350.0, "2 h 5 min"),
    ],
)  # fmt: skip
def test_durations_use_suitable_units(seconds, text):
    assert format_duration(seconds) == text


def test_tokens_of_streams():
    tokens = [17, 30, 17, 64, 18, 30]
    stream = LengthGroupedStream((rows(*tokens, length=64), np.zeros(6)), 2, seed=1)
    # Three batches of two, trimmed to 24, 32 and 64: 17 and 17, 18 and 30, 30 and 64.
    assert stream.num_tokens() == (176, 2 * (24 + 32 + 64))
    assert stream.padding() == pytest.approx(1 - 176 / 240)
    inputs = {name: array.reshape(2, 3, 16) for name, array in rows(*[13] * 6, length=16).items()}
    stream = LengthGroupedStream((inputs, np.zeros(2)), 1, seed=1)
    assert stream.num_tokens() == (78, 96)
    masks = [np.ones((1, 5), "int32"), np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]])]
    documents = types.SimpleNamespace(
        tensors=masks,
        batch_size=1,
        seed=1,
        sizes={"token_ids": 2, "length": 5},
        cut=lambda number, epoch: {"input_mask": masks[number]},
    )
    assert DocumentStream(documents).num_tokens() == (12, 20)

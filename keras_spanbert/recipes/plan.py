"""What a recipe gives the loop."""

import dataclasses
from collections.abc import Callable

import keras

from keras_spanbert.runs.reports import TrainingReport


@dataclasses.dataclass
class Plan:
    """What a recipe gives `fit`, as plain values.

    Attributes:
        model: a task with preprocessor, not compiled.
        stream: where its batches come from: a `TrainingStream` or `RowStream`.
        num_examples: int, rows of an epoch.
        learning_rate: float, where --learning_rate is not given.
        steps: int, where neither --steps nor --epochs is given.
        eval_every: int, steps, where --eval_every is not given. Defaults to
            `None`, a tenth of all.
        validation: `tf.data.Dataset`, this process's part, to evaluate losses
            on. Defaults to `None`, none.
        evaluate_first: bool. Whether to do so before the first step too.
            Defaults to `False`.
        evaluate: function of the model that returns its scores. With it the
            best model is kept instead of the last. Defaults to `None`.
        num_predictions: int, masked positions of a row. Defaults to `0`.
        sequences: int, how many of --sequence_length a row has. Defaults to `1`.
        optimizer: function of the number of steps that returns the optimizer.
            Defaults to `None`: AdamW by the flags.
        files: dict of name to JSON value, to write at the start.
        metrics: function of the report that returns what `metrics.json` says
            beside steps and seconds.
        plot: function of the report that draws its PNG files.
    """

    model: keras.Model
    stream: object
    num_examples: int
    learning_rate: float
    steps: int
    metrics: Callable[[TrainingReport], dict]
    plot: Callable[[TrainingReport], None]
    eval_every: int | None = None
    validation: object = None
    evaluate_first: bool = False
    evaluate: Callable[[keras.Model], dict] | None = None
    num_predictions: int = 0
    sequences: int = 1
    optimizer: Callable[[int], keras.optimizers.Optimizer] | None = None
    files: dict = dataclasses.field(default_factory=dict)

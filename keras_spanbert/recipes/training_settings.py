"""The settings that a recipe passes to the training loop."""

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import keras

from keras_spanbert.runs.reports import TrainingReport


@dataclasses.dataclass
class TrainingSettings:
    """Settings that a recipe passes to `fit`.

    Attributes:
        model: a task model with a preprocessor, not compiled.
        stream: `TrainingStream` or `RowStream`. The source of the batches.
        num_examples: int. Rows per epoch.
        steps_per_epoch: int, or a fraction if batches span epochs.
        learning_rate: float. The default of --learning_rate.
        steps: int. The default of --steps if --epochs is not given either.
        eval_every: int. The default of --eval_every. Defaults to `None`: a
            tenth of all steps.
        validation: `tf.data.Dataset`, this process's part, to evaluate losses
            on. Defaults to `None`: no validation.
        evaluate_first: bool. Whether to evaluate before the first step too.
            Defaults to `False`.
        evaluate: function of the model that returns its scores. If it is given,
            the best model is kept instead of the last. Defaults to `None`.
        num_predictions: int. Masked positions per row. Defaults to `0`.
        sequences: int. Sequences of --sequence_length per row. Defaults to `1`.
        optimizer: function of the number of steps that returns the optimizer.
            Defaults to `None`: AdamW with the values of the flags.
        files: dict of file name to JSON value. Files to write at the start.
        metrics: function of the report that returns the contents of
            `metrics.json`, except steps and seconds.
        plot: function of the report that draws the PNG files.
    """

    model: keras.Model
    stream: object
    num_examples: int
    steps_per_epoch: int | Fraction
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

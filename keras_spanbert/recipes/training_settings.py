"""The settings that a recipe passes to the training loop."""

import dataclasses
from collections.abc import Callable
from fractions import Fraction

import keras

from keras_spanbert.runs.reports import TrainingReport


@dataclasses.dataclass
class TrainingSettings:
    """Settings that a recipe passes to `fit`."""

    model: keras.Model  # A task model with a preprocessor, not compiled.
    stream: object  # `Batches` or `TrainingStream`.
    num_examples: int  # Rows per epoch.
    steps_per_epoch: int | Fraction  # A fraction if batches span epochs.
    learning_rate: float  # The default of --learning_rate.
    steps: int  # The default of --steps if --epochs is not given either.
    # Returns the contents of `metrics.json`, except steps and seconds.
    metrics: Callable[[TrainingReport], dict]
    plot: Callable[[TrainingReport], None]  # Draws the PNG files.
    eval_every: int | None = None  # The default of --eval_every. `None`: a tenth of all steps.
    # `tf.data.Dataset` to evaluate losses on, this process's part. `None`: no validation.
    validation: object = None
    evaluate_first: bool = False  # Whether to evaluate before the first step too.
    # Returns scores of the model. If it is given, the best model is kept instead of the last.
    evaluate: Callable[[keras.Model], dict] | None = None
    num_predictions: int = 0  # Masked positions per row.
    sequences: int = 1  # Sequences of --sequence_length per row.
    # Returns the optimizer for a model and a number of steps. `None`: AdamW with the flags' values.
    optimizer: Callable[[keras.Model, int], keras.optimizers.Optimizer] | None = None
    files: dict = dataclasses.field(default_factory=dict)  # JSON values to write at the start.

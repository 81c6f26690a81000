"""The optimizer of BERT and SpanBERT: AdamW with a linear schedule."""

import logging
from collections.abc import Sequence

import keras
from keras import ops

from keras_spanbert.checks import check_range, is_number
from keras_spanbert.distribution import sum_over_replicas
from keras_spanbert.keras_private import (
    FusedUpdateMixin,
    backend_adamw,
    current_values,
    fused_adam,
    moments,
    schedule_of,
    total_norm,
)
from keras_spanbert.layers.sublayers import config_of

# Names of Keras variables: "bias" also covers the heads' "output_bias".
NOT_DECAYED = ["bias", "gamma", "beta"]


@keras.saving.register_keras_serializable(package="keras_spanbert")
class LinearWarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate that rises linearly to a peak, then falls linearly to 0.

    Args:
        peak: float. Highest learning rate, reached after `warmup_steps`.
        warmup_steps: int. Number of steps of the rise.
        total_steps: int. Number of steps of rise and fall together.

    Raises:
        ValueError: if `peak` is negative or not finite, or `warmup_steps` is
            negative or exceeds `total_steps`.

    Example:
    ```python
    LinearWarmupDecay(1e-4, warmup_steps=10_000, total_steps=2_400_000)
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.2.
    """

    def __init__(self, peak: float, warmup_steps: int, total_steps: int):
        check_range("[0, inf)", peak=peak, total_steps=total_steps)
        if not is_number(warmup_steps) or not 0 <= warmup_steps <= total_steps:
            raise ValueError(
                "`warmup_steps` must be in [0, total_steps]. Received: "
                f"warmup_steps={warmup_steps!r}, total_steps={total_steps}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps

    def __call__(self, step):
        # Step 0 already updates the weights.
        step = ops.cast(step, "float32") + 1.0
        rise = step / max(self.warmup_steps, 1)
        fall = (self.total_steps + 1 - step) / (self.total_steps + 1 - self.warmup_steps)
        return self.peak * ops.clip(ops.minimum(rise, fall), 0.0, 1.0)

    def get_config(self):
        return config_of(self, LinearWarmupDecay)


class WarnAfterDecay(keras.callbacks.Callback):
    """Warns once if `fit` trains with rate 0, after its `LinearWarmupDecay` has ended."""

    is_done = False

    def on_epoch_end(self, epoch, logs=None):
        optimizer = self.model.optimizer
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # Of a `LossScaleOptimizer`.
        schedule = schedule_of(optimizer)
        if self.is_done or not isinstance(schedule, LinearWarmupDecay):
            return
        steps = int(optimizer.iterations) * (optimizer.gradient_accumulation_steps or 1)
        if steps > schedule.total_steps:
            self.is_done = True
            logging.getLogger("keras_spanbert").warning(
                "The learning rate was 0 in the last %s of %s steps: `LinearWarmupDecay` ended "
                "after `total_steps=%s`. Compile the model with a longer schedule to train it on",
                f"{steps - schedule.total_steps:,}",
                f"{steps:,}",
                schedule.total_steps,
            )


def check_ema(callbacks: list, optimizer) -> None:
    """Raises `ValueError` if averages of the weights are asked for, but the optimizer has none.

    Keras itself says so after the first epoch, and never if there is no validation data.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # Of a `LossScaleOptimizer`.
    parts = getattr(optimizer, "optimizers", [optimizer])  # Of a `MultiOptimizer`.
    swaps = any(isinstance(each, keras.callbacks.SwapEMAWeights) for each in callbacks)
    if swaps and not any(getattr(part, "use_ema", True) for part in parts):
        raise ValueError(
            "The callback `SwapEMAWeights` needs an optimizer with `use_ema=True`, as in "
            "`model.compile(keras_spanbert.AdamW(use_ema=True))`. Received: use_ema=False"
        )


@keras.saving.register_keras_serializable(package="keras_spanbert")
class AdamW(FusedUpdateMixin, backend_adamw()):
    """Keras's AdamW with SpanBERT's settings, without decay of biases and norms.

    Weight decay leaves out biases and layer normalizations, also after loading:
    Keras does not save its own exemptions. On PyTorch one fused call updates all
    variables and clips their gradients in place.

    Args:
        learning_rate: float or schedule. Defaults to `1e-4`.
        weight_decay: float. Defaults to `0.01`.
        beta_1: float. Defaults to `0.9`.
        beta_2: float. Defaults to `0.999`; 0.98 suits short runs.
        epsilon: float. As in Keras, it is added to the square root of the second
            moment before bias correction. PyTorch adds it afterwards, so that
            `1e-6` here acts like 3.2e-5 there in the first step. Defaults to `1e-8`.
        global_clipnorm: float. Largest global norm of the gradients, `None` for
            no limit. Defaults to `"auto"`: 1.0, unless `clipnorm` or `clipvalue`
            is given, because Keras accepts only one of them.
        **kwargs: see `keras.optimizers.AdamW`.

    Example:
    ```python
    schedule = LinearWarmupDecay(1e-4, warmup_steps=10_000, total_steps=2_400_000)
    pretrainer.compile(optimizer=AdamW(schedule))
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.2.
    """

    def __init__(
        self,
        learning_rate=1e-4,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        global_clipnorm: float | str | None = "auto",
        **kwargs,
    ):
        check_rate(learning_rate=learning_rate)
        check_range("[0, inf)", weight_decay=weight_decay, epsilon=epsilon)
        check_range("[0, 1)", beta_1=beta_1, beta_2=beta_2)
        if global_clipnorm not in ("auto", None):
            check_range("(0, inf)", global_clipnorm=global_clipnorm)
        if global_clipnorm == "auto":
            is_clipped = any(kwargs.get(n) is not None for n in ["clipnorm", "clipvalue"])
            global_clipnorm = None if is_clipped else 1.0
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            global_clipnorm=global_clipnorm,
            **kwargs,
        )
        self.exclude_from_weight_decay(var_names=NOT_DECAYED)

    def apply(self, grads, trainable_variables=None):
        """Updates the weights: see `keras.optimizers.Optimizer.apply`."""
        if self.clipnorm or self.global_clipnorm or self.clipvalue:
            # On TensorFlow, Keras would clip the gradients of each replica by their own norm before
            # summing them, and would treat a row of a table that was gathered twice as two rows.
            # Here the gradients of the whole batch are clipped, as dense tensors. Keras then sums
            # parts that are too small to be clipped again.
            grads, num_replicas = sum_over_replicas(list(grads))
            if num_replicas > 1:
                grads = multiply(self._clip(grads), [1 / num_replicas] * len(grads))
        return super().apply(grads, trainable_variables)

    def fused_update(self, grads, variables, learning_rate) -> None:
        """Clips by the global norm and updates variables on PyTorch, called by `apply`."""
        update_together(self, grads, variables, learning_rate, self.epsilon, self.global_clipnorm)

    def _clip(self, grads):
        # Keras removes the loss scale from the gradients after this.
        scale = self.loss_scale_factor or 1.0
        if self.clipvalue:
            most = self.clipvalue * scale
            return [grad if grad is None else ops.clip(grad, -most, most) for grad in grads]
        if self.global_clipnorm:
            factors = [clip_factor(grads, self.global_clipnorm * scale)] * len(grads)
        else:
            factors = [clip_factor([grad], self.clipnorm * scale) for grad in grads]
        return multiply(grads, factors)


def check_rate(**argument) -> None:
    """Raises a `ValueError` if a learning rate is neither a number nor a schedule."""
    (rate,) = argument.values()
    if not callable(rate) and not isinstance(rate, dict):  # A schedule or its config.
        check_range("[0, inf)", **argument)


def bias_correction(optimizer, dtype):
    """Returns the factor for the learning rate that corrects both moments in the next update."""
    step = ops.cast(optimizer.iterations + 1, dtype)
    correction = ops.sqrt(1.0 - ops.power(ops.cast(optimizer.beta_2, dtype), step))
    return correction / (1.0 - ops.power(ops.cast(optimizer.beta_1, dtype), step))


def update_together(optimizer, grads, variables, learning_rate, epsilon, clip_norm) -> None:
    """Clips gradients by their global norm and updates variables on PyTorch with Adam."""
    fused_adam(
        current_values(variables),
        grads,
        *map(current_values, moments(optimizer, variables)),
        # Includes the bias correction, so that `epsilon` has Keras's meaning.
        learning_rate=ops.cast(learning_rate, "float32") * bias_correction(optimizer, "float32"),
        beta_1=optimizer.beta_1,
        beta_2=optimizer.beta_2,
        epsilon=epsilon,
        scale=1.0 / clip_factor(grads, clip_norm) if clip_norm else None,
    )


def clip_factor(grads: Sequence, most: float):
    """Returns the factor that reduces the global norm of gradients to at most `most`."""
    grads = [grad for grad in grads if grad is not None]
    if not grads:
        return 1.0
    if keras.backend.backend() == "torch":
        norm = total_norm(grads)
    else:
        grads = [ops.cast(grad, "float32") for grad in grads]
        norm = ops.sqrt(sum(ops.sum(ops.square(grad)) for grad in grads))
    # An infinite norm would give 0 and hide the error. It gives NaN instead, as in Keras.
    return most / ops.maximum(norm, most) + (norm - norm)


def multiply(grads: Sequence, factors: Sequence) -> list:
    """Returns each gradient times its factor. `None` is kept."""
    return [
        grad if grad is None else grad * ops.cast(factor, grad.dtype)
        for grad, factor in zip(grads, factors)
    ]

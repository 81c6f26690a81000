"""The optimizers of BERT, SpanBERT and the released coreference code, and their schedule."""

from collections.abc import Collection, Sequence

import keras
import numpy as np
from keras import ops

from keras_spanbert.checks import check_in, check_range, is_number
from keras_spanbert.distribution import sum_over_replicas
from keras_spanbert.keras_private import (
    FusedUpdateMixin,
    backend_adamw,
    built_variables,
    current_rate,
    current_values,
    fused_adam,
    moments,
    schedule_of,
    total_norm,
    variable_index,
)
from keras_spanbert.layers.sublayers import config_of
from keras_spanbert.wording import LOG

# Names of Keras variables: "bias" also covers the heads' "output_bias".
NOT_DECAYED = ["bias", "gamma", "beta"]
# Keyword arguments of `TwoRateAdam`.
_OPTIONS = (
    *("use_ema", "ema_momentum", "ema_overwrite_frequency"),
    *("loss_scale_factor", "gradient_accumulation_steps"),
)


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
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # In a `LossScaleOptimizer`.
        schedule = schedule_of(optimizer)
        if self.is_done or not isinstance(schedule, LinearWarmupDecay):
            return
        steps = int(optimizer.iterations) * (optimizer.gradient_accumulation_steps or 1)
        if steps > schedule.total_steps:
            self.is_done = True
            LOG.warning(
                "The learning rate was 0 in the last %s of %s steps: `LinearWarmupDecay` ended "
                "after `total_steps=%s`. Compile the model with a longer schedule to train it on",
                f"{steps - schedule.total_steps:,}",
                f"{steps:,}",
                schedule.total_steps,
            )


def check_ema(callbacks: list, optimizer) -> None:
    """Raises `ValueError` if a callback needs averages of the weights that the optimizer lacks.

    Keras itself says so after the first epoch, and never if there is no validation data.
    """
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # In a `LossScaleOptimizer`.
    parts = getattr(optimizer, "optimizers", [optimizer])  # In a `MultiOptimizer`.
    swaps = any(isinstance(each, keras.callbacks.SwapEMAWeights) for each in callbacks)
    if swaps and not any(getattr(part, "use_ema", True) for part in parts):
        raise ValueError(
            "The callback `SwapEMAWeights` needs an optimizer with `use_ema=True`, as in "
            "`model.compile(keras_spanbert.AdamW(use_ema=True))`. Received: use_ema=False"
        )


@keras.saving.register_keras_serializable(package="keras_spanbert")
class AdamW(FusedUpdateMixin, backend_adamw()):
    """Keras's AdamW with SpanBERT's settings, without decay of biases and norms.

    Weight decay leaves out biases and layer normalizations, also after loading. On
    PyTorch one fused call updates all variables and clips their gradients in place.

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
        if global_clipnorm == "auto":
            is_clipped = any(kwargs.get(n) is not None for n in ["clipnorm", "clipvalue"])
            global_clipnorm = None if is_clipped else 1.0
        elif global_clipnorm is not None:
            check_range("(0, inf)", global_clipnorm=global_clipnorm)
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


@keras.saving.register_keras_serializable(package="keras_spanbert")
class TwoRateAdam(AdamW):
    """BERT's Adam for the encoder and plain Adam for the heads, with separate learning rates.

    The encoder is updated like in BERT: without bias correction of the moments, and
    with decoupled decay of all weights except biases and norms. The heads are updated
    by the original Adam, without decay. The gradients of both are clipped separately,
    and with gradient accumulation those of each batch before they are accumulated.

    Args:
        learning_rate: float or schedule. The encoder's rate. Assigning another value, as Keras's
            callbacks do, also scales a `head_learning_rate` that is a number. Defaults to `2e-5`.
        head_learning_rate: float or schedule, called with the number of batches. The
            heads' rate. Defaults to `1e-4`.
        heads: list of layer names. Weights with one of them in their path belong
            to the heads, the others to the encoder.
        encoder_weight_decay: float. Defaults to `0.01`.
        beta_1: float. Defaults to `0.9`.
        beta_2: float. Defaults to `0.999`.
        epsilon: float. The encoder's epsilon. Defaults to `1e-6`.
        head_epsilon: float. The heads' epsilon, with the meaning of `AdamW`'s. Defaults to `1e-8`.
        clip_norm: float. Largest global norm of the encoder's gradients, and of
            the heads'. `None` for no limit. Defaults to `1.0`.
        **kwargs: `use_ema`, `ema_momentum`, `ema_overwrite_frequency`,
            `loss_scale_factor`, `gradient_accumulation_steps`: see Keras.

    Raises:
        ValueError: if an argument is outside its range or unknown.

    Example:
    ```python
    resolver.compile(TwoRateAdam(1e-5, 2e-4, heads=resolver.head_names()))
    ```

    Reference:
        [Joshi et al. 2019](https://arxiv.org/abs/1908.09091), section 3;
        [Kingma and Ba 2015](https://arxiv.org/abs/1412.6980).
    """

    def __init__(
        self,
        learning_rate=2e-5,
        head_learning_rate=1e-4,
        heads: Collection[str] = (),
        encoder_weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        head_epsilon: float = 1e-8,
        clip_norm: float | None = 1.0,
        name: str = "two_rate_adam",
        **kwargs,
    ):
        check_rate(head_learning_rate=head_learning_rate)
        check_range(
            "[0, inf)", encoder_weight_decay=encoder_weight_decay, head_epsilon=head_epsilon
        )
        if clip_norm is not None:
            check_range("(0, inf)", clip_norm=clip_norm)
        is_list = isinstance(heads, Collection) and not isinstance(heads, str)
        are_names = is_list and all(isinstance(head, str) for head in heads)
        check_in("heads", heads, are_names, "a list of strings")
        unknown = sorted(kwargs.keys() - _OPTIONS)
        if unknown:
            raise ValueError(
                f"Keyword arguments must be `{'`, `'.join(_OPTIONS)}`. "
                f"Received: {', '.join(unknown)}"
            )
        super().__init__(
            learning_rate,
            encoder_weight_decay,
            beta_1,
            beta_2,
            epsilon,
            global_clipnorm=None,  # Keras would clip the gradients of both groups together.
            name=name,
            **kwargs,
        )
        if isinstance(head_learning_rate, dict):  # The config of a schedule.
            head_learning_rate = keras.saving.deserialize_keras_object(head_learning_rate)
        self.head_learning_rate = head_learning_rate
        self.heads = frozenset(heads)
        self.encoder_weight_decay = encoder_weight_decay
        self.head_epsilon = head_epsilon
        self.clip_norm = clip_norm
        self._first_rate = None if callable(learning_rate) else learning_rate

    def is_head(self, variable) -> bool:
        """Returns whether a variable belongs to the heads."""
        return not self.heads.isdisjoint(variable.path.split("/"))

    def build(self, variables):
        """Creates the moments of variables."""
        if not self.built:
            heads = [variable for variable in variables if self.is_head(variable)]
            self.exclude_from_weight_decay(heads, NOT_DECAYED)  # Replaces the earlier call.
        super().build(variables)

    def apply(self, grads, trainable_variables=None):
        """Updates the weights: see `keras.optimizers.Optimizer.apply`."""
        # On PyTorch, clipping is part of the update.
        if self.clip_norm and (self.gradient_accumulation_steps or not self._uses_fused_update()):
            grads, num_replicas = sum_over_replicas(list(grads))
            of_heads = [self.is_head(v) for v in trainable_variables or built_variables(self)]
            # Keras removes the loss scale from the gradients, and sums the replicas' parts.
            most = self.clip_norm * (self.loss_scale_factor or 1.0)
            factors = [
                clip_factor([g for g, is_head in zip(grads, of_heads) if is_head is group], most)
                for group in (False, True)
            ]
            grads = multiply(grads, [factors[is_head] / num_replicas for is_head in of_heads])
        super().apply(grads, trainable_variables)

    def fused_update(self, grads, variables, learning_rate) -> None:
        """Clips and updates variables on PyTorch, called by `apply`."""
        of_heads = [self.is_head(variable) for variable in variables]
        for group in set(of_heads):
            own = [i for i, is_head in enumerate(of_heads) if is_head is group]
            update_together(
                self,
                [grads[i] for i in own],
                [variables[i] for i in own],
                self._rate(group, learning_rate),
                self.head_epsilon if group else self.epsilon,
                self.clip_norm,
            )

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable."""
        # TensorFlow's own variables have no path.
        is_head = self.is_head(built_variables(self)[variable_index(self, variable)])
        rate = ops.cast(self._rate(is_head, learning_rate), variable.dtype)
        of_encoder = self.epsilon
        self.epsilon = self.head_epsilon if is_head else of_encoder
        super().update_step(gradient, variable, rate)
        self.epsilon = of_encoder

    def _rate(self, is_head, learning_rate):
        """Returns the rate for Keras's Adam, which corrects the bias of the moments."""
        if not is_head:
            return learning_rate / bias_correction(self, "float32")
        if callable(self.head_learning_rate) or not self._first_rate:
            return current_rate(self, self.head_learning_rate)
        return learning_rate / self._first_rate * self.head_learning_rate

    def get_config(self):
        config = super().get_config()
        for name in ["weight_decay", "clipnorm", "global_clipnorm", "clipvalue", "amsgrad"]:
            del config[name]
        rate = self.head_learning_rate
        if callable(rate):
            rate = keras.saving.serialize_keras_object(rate)
        elif self._first_rate and not isinstance(config["learning_rate"], dict):
            # Equals `rate` until another `learning_rate` is assigned.
            rate = float(np.float32(config["learning_rate"]) / np.float32(self._first_rate)) * rate
        config.update(config_of(self, ["encoder_weight_decay", "head_epsilon", "clip_norm"]))
        return {**config, "head_learning_rate": rate, "heads": sorted(self.heads)}


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

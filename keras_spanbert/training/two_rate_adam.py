"""The optimizer of the released coreference code, with separate rates for encoder and heads."""

from collections.abc import Collection

import keras
import numpy as np
from keras import ops

from keras_spanbert.checks import check_in, check_range
from keras_spanbert.distribution import sum_over_replicas
from keras_spanbert.keras_private import built_variables, current_rate, variable_index
from keras_spanbert.layers.sublayers import config_of
from keras_spanbert.training.optimizer import (
    NOT_DECAYED,
    AdamW,
    bias_correction,
    check_rate,
    clip_factor,
    multiply,
    update_together,
)

_OPTIONS = (
    *("use_ema", "ema_momentum", "ema_overwrite_frequency"),
    *("loss_scale_factor", "gradient_accumulation_steps"),
)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class TwoRateAdam(AdamW):
    """BERT's Adam for the encoder and plain Adam for the heads, with separate learning rates.

    The encoder's weights are updated like in BERT: without bias correction of the
    moments, and with decoupled decay of all weights except biases and norms. The
    heads' weights are updated by the original Adam, without decay. The gradients of
    encoder and heads are clipped separately. With gradient accumulation, the
    gradients of each batch are clipped before they are accumulated.

    Args:
        learning_rate: float or schedule. The encoder's rate. To assign another
            value to the attribute, as Keras's callbacks do, scales a
            `head_learning_rate` that is a number too. Defaults to `2e-5`.
        head_learning_rate: float or schedule. The heads' rate. A schedule
            is called with the number of batches, as for `learning_rate`.
            Defaults to `1e-4`.
        heads: list of layer names. Weights with one of them in their path belong
            to the heads, the others to the encoder.
        encoder_weight_decay: float. Defaults to `0.01`.
        beta_1: float. Defaults to `0.9`.
        beta_2: float. Defaults to `0.999`.
        epsilon: float. The encoder's epsilon. Defaults to `1e-6`.
        head_epsilon: float. The heads' epsilon, with the meaning of `AdamW`'s.
            Defaults to `1e-8`.
        clip_norm: float. Largest global norm of the encoder's gradients, and of
            the heads'. `None` for no limit. Defaults to `1.0`.
        **kwargs: `use_ema`, `ema_momentum`, `ema_overwrite_frequency`,
            `loss_scale_factor` and `gradient_accumulation_steps`: see
            `keras.optimizers.Optimizer`.

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

"""The optimizer of the released coreference code, with separate rates for encoder and heads."""

from collections.abc import Collection

import keras
from keras import ops

from keras_spanbert.checks import check_in, check_range
from keras_spanbert.distribution import sum_over_replicas
from keras_spanbert.keras_private import GroupedOptimizer
from keras_spanbert.layers.sublayers import config_of
from keras_spanbert.training.optimizer import AdamW, bias_correction, check_rate, multiply

_SHARED = ("use_ema", "ema_momentum", "ema_overwrite_frequency", "gradient_accumulation_steps")


@keras.saving.register_keras_serializable(package="keras_spanbert")
class TwoRateAdam(GroupedOptimizer):
    """BERT's Adam for the encoder and plain Adam for the heads, with separate learning rates.

    The encoder's weights are updated like in BERT: without bias correction of the
    moments, and with decoupled decay of all weights except biases and norms. The
    heads' weights are updated by the original Adam, without decay. The gradients of
    encoder and heads are clipped separately. With gradient accumulation, the
    gradients of each batch are clipped before they are accumulated.

    Args:
        learning_rate: float or schedule. The encoder's rate. Defaults to `2e-5`.
        head_learning_rate: float or schedule. The heads' rate. A schedule
            is called with the number of batches, as for `learning_rate`.
            Defaults to `1e-4`.
        heads: list of layer names. Weights with one of them in their path belong
            to the heads, the others to the encoder.
        encoder_weight_decay: float. Defaults to `0.01`.
        beta_1: float. Defaults to `0.9`.
        beta_2: float. Defaults to `0.999`.
        epsilon: float. The encoder's epsilon. Defaults to `1e-6`.
        head_epsilon: float. The heads' epsilon. Defaults to `1e-8`.
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
        check_rate(learning_rate=learning_rate)
        check_rate(head_learning_rate=head_learning_rate)
        check_range(
            "[0, inf)",
            encoder_weight_decay=encoder_weight_decay,
            epsilon=epsilon,
            head_epsilon=head_epsilon,
        )
        check_range("[0, 1)", beta_1=beta_1, beta_2=beta_2)
        if clip_norm is not None:
            check_range("(0, inf)", clip_norm=clip_norm)
        is_list = isinstance(heads, Collection) and not isinstance(heads, str)
        are_names = is_list and all(isinstance(head, str) for head in heads)
        check_in("heads", heads, are_names, "a list of strings")
        unknown = sorted(set(kwargs) - {"loss_scale_factor", *_SHARED})
        if unknown:
            raise ValueError(
                f"Keyword arguments must be `loss_scale_factor`, `{'`, `'.join(_SHARED)}`. "
                f"Received: {', '.join(unknown)}"
            )
        super().__init__(_deserialize(learning_rate), kwargs.pop("loss_scale_factor", None), name)
        self.head_learning_rate = _deserialize(head_learning_rate)
        self.heads = frozenset(heads)
        self.encoder_weight_decay = encoder_weight_decay
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.head_epsilon = head_epsilon
        self.clip_norm = clip_norm
        self._shared = kwargs
        kwargs = {**kwargs, "beta_1": beta_1, "beta_2": beta_2, "global_clipnorm": clip_norm}
        kwargs["name"] = name
        self._encoder = _BertAdam(
            self._encoder_rate, encoder_weight_decay, epsilon=epsilon, **kwargs
        )
        self._head = _GroupAdam(self._head_rate, 0.0, epsilon=head_epsilon, **kwargs)

    def group_of(self, variable):
        is_head = not self.heads.isdisjoint(variable.path.split("/"))
        return self._head if is_head else self._encoder

    def _encoder_rate(self):
        return self.learning_rate

    def _head_rate(self):
        rate = self.head_learning_rate
        return rate(self.num_batches()) if callable(rate) else rate

    def get_config(self):
        config = keras.optimizers.Optimizer.get_config(self)
        for name in ["weight_decay", "clipnorm", "global_clipnorm", "clipvalue"]:
            del config[name]
        names = ["beta_1", "beta_2", "epsilon", "head_epsilon", "encoder_weight_decay", "clip_norm"]
        rate = self.head_learning_rate
        if callable(rate):
            rate = keras.saving.serialize_keras_object(rate)
        config.update(self._shared, **config_of(self, names))
        return {**config, "head_learning_rate": rate, "heads": sorted(self.heads)}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**config)


class _GroupAdam(AdamW):
    """AdamW that clips the gradients of each batch, also if they are accumulated."""

    def apply(self, grads, trainable_variables=None):
        if self.gradient_accumulation_steps and self.global_clipnorm:
            grads, num_replicas = sum_over_replicas(list(grads))
            grads = multiply(self._clip(grads), [1 / num_replicas] * len(grads))
        super().apply(grads, trainable_variables)


class _BertAdam(_GroupAdam):
    """Adam without bias correction of the moments, as in BERT's code."""

    def update_step(self, gradient, variable, learning_rate):
        rate = ops.cast(learning_rate, variable.dtype) / bias_correction(self, variable.dtype)
        super().update_step(gradient, variable, rate)

    def fused_update(self, grads, variables, learning_rate):
        super().fused_update(grads, variables, learning_rate / bias_correction(self, "float32"))


def _deserialize(rate):
    return keras.saving.deserialize_keras_object(rate) if isinstance(rate, dict) else rate

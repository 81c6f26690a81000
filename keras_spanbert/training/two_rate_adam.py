"""The optimizer of the released coreference code, with separate rates for encoder and heads."""

from collections.abc import Collection

import keras
from keras import ops

from keras_spanbert.checks import check_in, check_range
from keras_spanbert.distribution import sum_over_replicas
from keras_spanbert.keras_private import FusedUpdateMixin, variable_index
from keras_spanbert.layers.sublayers import config_of
from keras_spanbert.training.clipping import clip_factor, multiply
from keras_spanbert.training.fused_adam import bias_correction, fused_adam
from keras_spanbert.training.optimizer import check_rate

_NOT_DECAYED = ("bias", "gamma", "beta")


@keras.saving.register_keras_serializable(package="keras_spanbert")
class TwoRateAdam(FusedUpdateMixin, keras.optimizers.Optimizer):
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
        **kwargs: see `keras.optimizers.Optimizer`.

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
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        if isinstance(head_learning_rate, dict):
            head_learning_rate = keras.saving.deserialize_keras_object(head_learning_rate)
        self.head_learning_rate = head_learning_rate
        self.heads = frozenset(heads)
        self.encoder_weight_decay = encoder_weight_decay
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.head_epsilon = head_epsilon
        self.clip_norm = clip_norm

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        # Keep paths, because the optimizer would track variables in an attribute.
        self._paths = [variable.path for variable in variables]
        names = ["momentum", "velocity"]
        self._momentums, self._velocities = self.add_optimizer_variables(variables, names)

    def apply(self, grads, trainable_variables=None):
        """Updates the weights: see `keras.optimizers.Optimizer.apply`."""
        if self.clip_norm is None:
            return super().apply(grads, trainable_variables)
        # Clips the sums over TensorFlow's replicas. Keras sums the replicas again after this,
        # so the factors are divided by the number of replicas.
        grads, num_replicas = sum_over_replicas(list(grads))
        paths = [variable.path for variable in trainable_variables or []] or self._paths
        of_heads = [self._is_head(path) for path in paths]
        # Keras removes the loss scale from the gradients after this.
        most = self.clip_norm * (self.loss_scale_factor or 1.0)
        groups = [[g for g, h in zip(grads, of_heads) if h == group] for group in (False, True)]
        factors = [clip_factor(group, most) / num_replicas for group in groups]
        grads = multiply(grads, [factors[is_head] for is_head in of_heads])
        return super().apply(grads, trainable_variables)

    def update_step(self, gradient, variable, learning_rate):
        """Updates one weight: see `keras.optimizers.Optimizer.update_step`."""
        index = variable_index(self, variable)
        momentum, velocity = self._momentums[index], self._velocities[index]
        path = self._paths[index]
        gradient = ops.cast(gradient, variable.dtype)
        self.assign_add(momentum, (gradient - momentum) * (1.0 - self.beta_1))
        self.assign_add(velocity, (ops.square(gradient) - velocity) * (1.0 - self.beta_2))
        if self._is_head(path):
            rate, correction = self._head_rate(variable.dtype)
            update = correction * momentum / (ops.sqrt(velocity) + self.head_epsilon)
        else:
            rate = ops.cast(learning_rate, variable.dtype)
            update = momentum / (ops.sqrt(velocity) + self.epsilon)
            if self._is_decayed(path):
                update = update + self.encoder_weight_decay * variable
        self.assign_sub(variable, rate * update)

    def fused_update(self, grads, variables, learning_rate) -> None:
        """Updates variables on PyTorch, one call per group. Called by `apply`."""
        if self.global_clipnorm and self.global_clipnorm > 0.0:
            grads = multiply(grads, [clip_factor(grads, self.global_clipnorm)] * len(grads))
        head_rate, correction = self._head_rate("float32")
        encoder_rate = ops.cast(learning_rate, "float32")
        kinds = {
            "head": (head_rate * correction, self.head_epsilon, 0.0),
            "decayed": (encoder_rate, self.epsilon, self.encoder_weight_decay),
            "spared": (encoder_rate, self.epsilon, 0.0),
        }
        members = {kind: [] for kind in kinds}
        for grad, variable in zip(grads, variables):
            index = variable_index(self, variable)
            kind = "decayed" if self._is_decayed(self._paths[index]) else "spared"
            kind = "head" if self._is_head(self._paths[index]) else kind
            kept = self._momentums[index], self._velocities[index]
            members[kind].append((variable, grad, *kept))
        for kind, (rate, epsilon, weight_decay) in kinds.items():
            if members[kind]:
                fused_adam(
                    *zip(*members[kind]),
                    learning_rate=rate,
                    beta_1=self.beta_1,
                    beta_2=self.beta_2,
                    epsilon=epsilon,
                    weight_decay=weight_decay,
                )

    def _head_rate(self, dtype):
        """Returns the heads' learning rate, and the bias correction of their moments."""
        rate = self.head_learning_rate
        rate = ops.cast(rate(self._batch()) if callable(rate) else rate, dtype)
        return rate, bias_correction(self, dtype)

    def _batch(self):
        """Returns the index of the current batch, which Keras also passes to schedules."""
        # `iterations` counts updates. An update happens in the last batch that it accumulates.
        batches = self.gradient_accumulation_steps or 1
        return self.iterations * batches + batches - 1

    def _is_head(self, path):
        return not self.heads.isdisjoint(path.split("/"))

    def _is_decayed(self, path):
        return path.split("/")[-1] not in _NOT_DECAYED

    def get_config(self):
        config = super().get_config()
        for name in ["weight_decay", "clipnorm", "global_clipnorm", "clipvalue"]:
            del config[name]
        names = ["beta_1", "beta_2", "epsilon", "head_epsilon", "encoder_weight_decay", "clip_norm"]
        rate = self.head_learning_rate
        if callable(rate):
            rate = keras.saving.serialize_keras_object(rate)
        heads = sorted(self.heads)
        return {**config, **config_of(self, names), "head_learning_rate": rate, "heads": heads}

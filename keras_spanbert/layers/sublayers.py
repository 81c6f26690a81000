"""Makes and lists sublayers, and makes configs of layers and of their dtype policies."""

import contextlib
import contextvars
import inspect
from collections.abc import Iterable, Iterator

import keras

from keras_spanbert.keras_private import set_dtype_policy

_IS_SKIPPED = contextvars.ContextVar("is_initialization_skipped", default=False)


def kernel_initializer(
    stddev: float = 0.02, truncated: bool = True
) -> keras.initializers.Initializer:
    """Returns BERT's initializer for embeddings and kernels, or zeros in `skip_initialization`.

    With `truncated`, numbers further than two `stddev` from 0 are drawn again, so that the kernel's
    own standard deviation is 0.88 times `stddev`.
    """
    if _IS_SKIPPED.get():
        return keras.initializers.Zeros()
    cls = keras.initializers.TruncatedNormal if truncated else keras.initializers.RandomNormal
    return cls(stddev=stddev)


@contextlib.contextmanager
def skip_initialization(is_skipped: bool = True) -> Iterator[None]:
    """Skips random initialization of models whose weights are all loaded next.

    `is_skipped=False` changes nothing.
    """
    token = _IS_SKIPPED.set(is_skipped or _IS_SKIPPED.get())
    try:
        yield
    finally:
        _IS_SKIPPED.reset(token)


def config_of(layer, names: Iterable[str] | type) -> dict:
    """Returns the config of a layer from the attributes `names`, or a class's arguments."""
    if isinstance(names, type):
        names = [name for name in inspect.signature(names).parameters if name != "kwargs"]
    config = {}
    for name in names:
        value = getattr(layer, name)
        if isinstance(value, keras.initializers.Initializer):
            value = keras.initializers.serialize(value)
        elif callable(value):
            value = keras.activations.serialize(value)
        # Copied, so that changes to the config do not change the layer.
        config[name] = list(value) if isinstance(value, (list, tuple)) else value
    return config


def dense(
    parent: keras.layers.Layer, units: int, input_dim: int, name: str, activation=None
) -> keras.layers.Dense:
    """Returns a built dense layer with the initializer and the dtype policy of `parent`."""
    layer = keras.layers.Dense(
        units,
        activation=activation,
        # Cloned, because a shared instance would draw the same values for equal shapes.
        kernel_initializer=parent.kernel_initializer.clone(),
        dtype=parent.dtype_policy,
        name=name,
    )
    layer.build((None, None, input_dim))
    return layer


def layer_norm(
    parent: keras.layers.Layer, input_dim: int, name: str
) -> keras.layers.LayerNormalization:
    """Returns a built layer normalization with the epsilon and the dtype policy of `parent`."""
    layer = keras.layers.LayerNormalization(
        epsilon=parent.layer_norm_epsilon, dtype=parent.dtype_policy, name=name
    )
    layer.build((None, None, input_dim))
    return layer


def flatten_sublayers(operations: Iterable) -> list[keras.layers.Layer]:
    """Returns the layers among Keras operations, including their sublayers."""
    layers, visited, to_visit = [], set(), list(operations)
    while to_visit:
        value = to_visit.pop()
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, keras.layers.Layer):
            layers.append(value)
            to_visit.extend(vars(value).values())
        elif isinstance(value, (list, tuple, set)):
            to_visit.extend(value)
        elif isinstance(value, dict):
            to_visit.extend(value.values())
    return layers


def resolve_policies(root: keras.layers.Layer) -> None:
    """Gives each sublayer its own dtype policy instead of a policy map of many layers.

    Keras saves a quantized layer only if the `dtype_policy` of the layer itself is quantized.
    Models keep their map, because heads take their policies from their backbone's map.
    """
    for layer in flatten_sublayers([root]):
        is_map = isinstance(layer.dtype_policy, keras.dtype_policies.DTypePolicyMap)
        if is_map and layer.path is not None and not isinstance(layer, keras.Model):
            set_dtype_policy(layer, layer.dtype_policy[layer.path])


def policy_with_quantization(
    model: keras.layers.Layer, policy: keras.DTypePolicy
) -> keras.DTypePolicy:
    """Returns a policy, or a map of it and the policies of a model's quantized layers by path."""
    policies = {}
    for layer in flatten_sublayers([model]):
        if layer.path is not None and layer.quantization_mode is not None:
            is_map = isinstance(layer.dtype_policy, keras.dtype_policies.DTypePolicyMap)
            own = layer.dtype_policy[layer.path] if is_map else layer.dtype_policy
            policies[layer.path] = own
    if not policies:
        return policy
    # Keras's own map has no default policy. It would use the global policy at loading time.
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        policy = policy.default_policy
    return keras.dtype_policies.DTypePolicyMap(policy, dict(sorted(policies.items())))

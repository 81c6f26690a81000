"""The layers within layers, and what a config must say of them."""

from collections.abc import Iterable

import keras


def with_parts(operations: Iterable) -> list[keras.layers.Layer]:
    """The layers among operations of Keras, and those within these."""
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


def policy_with_parts(model: keras.layers.Layer, policy: keras.DTypePolicy) -> keras.DTypePolicy:
    """A dtype policy that also says which layers within a model are quantized.

    Args:
        model: `keras.Model` or another layer.
        policy: the policy of what is not quantized, or a map as this gives it.

    Returns:
        `policy`, or where layers are quantized a
        `keras.dtype_policies.DTypePolicyMap` of their paths.
    """
    policies = {}
    for layer in with_parts([model]):
        if layer.path is not None and layer.quantization_mode is not None:
            is_map = isinstance(layer.dtype_policy, keras.dtype_policies.DTypePolicyMap)
            own = layer.dtype_policy[layer.path] if is_map else layer.dtype_policy
            policies[layer.path] = own
    if not policies:
        return policy
    # Keras's own map has no default, and takes the policy of the time when it is loaded.
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        policy = policy.default_policy
    return keras.dtype_policies.DTypePolicyMap(policy, dict(sorted(policies.items())))

"""What the heads share that project to the vocabulary by the input embedding."""

import warnings

import keras
from keras import ops

from keras_spanbert.distribution import relayout, shares_model
from keras_spanbert.keras_private import operations_before
from keras_spanbert.layers.parts import policy_with_parts, with_parts


class TiedHead(keras.layers.Layer):
    """A head whose output projection may be the token embedding of its model.

    A config cannot hold another layer's weights. A head that is made from a
    config, by `keras.models.clone_model` or from a `.keras` file, therefore
    finds its embedding when it is first called in a functional model: it is the
    layer of the same name among those that the head's inputs are computed by,
    and the layers within them.

    Args:
        vocabulary_size: int or `None`, the size of `token_embedding`.
        token_embedding: `keras.layers.ReversibleEmbedding` or `None`.
        **kwargs: see `keras.layers.Layer`.

    Raises:
        ValueError: where neither `vocabulary_size` nor `token_embedding` is
            given, or both are and differ.
    """

    def __init__(self, vocabulary_size: int | None = None, token_embedding=None, **kwargs):
        super().__init__(**kwargs)
        # The config of an embedding that is still to be found, as `from_config` has it.
        self._embedding_config = None
        self._is_in_graph = False
        self._has_twin_embeddings = False
        if isinstance(token_embedding, dict):
            self._embedding_config, token_embedding = token_embedding, None
        elif token_embedding is not None and vocabulary_size is None:
            vocabulary_size = token_embedding.input_dim
        if vocabulary_size is None:
            raise ValueError(
                "One of `vocabulary_size` and `token_embedding` must be set. Received: "
                "vocabulary_size=None, token_embedding=None"
            )
        if token_embedding is not None and vocabulary_size != token_embedding.input_dim:
            raise ValueError(
                "`vocabulary_size` must be that of `token_embedding`. Received: "
                f"vocabulary_size={vocabulary_size}, "
                f"token_embedding.input_dim={token_embedding.input_dim}"
            )
        self.vocabulary_size = vocabulary_size
        self.token_embedding = token_embedding

    @property
    def is_tied(self) -> bool:
        """Whether the output projection is a layer's of its own, `token_embedding`."""
        return self.token_embedding is not None or self._embedding_config is not None

    def __call__(self, *args, **kwargs):
        if self.is_tied and not self._is_in_graph:
            tensors = keras.tree.flatten((args, kwargs))
            symbolic = [x for x in tensors if isinstance(x, keras.KerasTensor)]
            if symbolic:
                self._find_embedding(operations_before(symbolic))
        return super().__call__(*args, **kwargs)

    def _find_embedding(self, operations):
        self._is_in_graph = True
        name = self._embedding_name()
        found = [
            layer
            for layer in with_parts(operations)
            if layer.name == name and getattr(layer, "input_dim", None) == self.vocabulary_size
        ]
        self._has_twin_embeddings = len(found) > 1
        if self._embedding_config is not None and len(found) == 1:
            self.token_embedding, self._embedding_config = found[0], None

    def _embedding_name(self):
        if self.token_embedding is not None:
            return self.token_embedding.name
        return self._embedding_config["config"]["name"]

    def build_projection(self, hidden_dim: int, initializer) -> None:
        """Makes the head's own kernel, where it is not tied, and its bias."""
        if self._embedding_config is not None:
            self.token_embedding = keras.layers.deserialize(self._embedding_config)
            self._embedding_config = None
            warnings.warn(
                f"{type(self).__name__} {self.name!r} was made from a config, and no layer "
                f"{self.token_embedding.name!r} of a functional model computes its inputs: its "
                "`token_embedding` is a new layer, tied to no other. To tie it, give the layer: "
                f"`{type(self).__name__}.from_config({{**config, 'token_embedding': layer}})`.",
                stacklevel=2,
            )
        if self.token_embedding is None:
            self._output_kernel = self.add_weight(
                name="output_kernel",
                shape=(hidden_dim, self.vocabulary_size),
                initializer=initializer,
            )
        self._output_bias = self.add_weight(
            name="output_bias", shape=(self.vocabulary_size,), initializer="zeros"
        )

    def project(self, x):
        """Logits `[..., V]` of hidden vectors `[..., H]`."""
        # Devices that share a model have the logits of a part of the vocabulary each: by the tables
        # as they are stored, cut along H, each would have addends of all logits.
        if self.token_embedding is None:
            logits = ops.matmul(x, relayout(self._output_kernel, (None, "model")))
        elif shares_model() and _is_plain(self.token_embedding):
            table = relayout(self.token_embedding.embeddings, ("model", None))
            logits = ops.matmul(x, ops.transpose(table))
        else:
            logits = self.token_embedding(x, reverse=True)
        return logits + ops.cast(relayout(self._output_bias, ("model",)), logits.dtype)

    def get_build_config(self):
        # In a functional model its call builds it, once it has found its embedding.
        return None if self.is_tied and self._is_in_graph else super().get_build_config()

    def get_config(self):
        if self._has_twin_embeddings:
            raise ValueError(
                "A head that is saved or cloned finds its `token_embedding` by its name, which "
                f"no other layer before it may have. Received: several layers named "
                f"{self._embedding_name()!r} before {self.name!r}. Name them, or save the weights "
                "alone: `model.save_weights('model.weights.h5')`."
            )
        embedding = self._embedding_config
        if self.token_embedding is not None:
            embedding = keras.layers.serialize(self.token_embedding)
        config = super().get_config()
        config.update({"vocabulary_size": self.vocabulary_size, "token_embedding": embedding})
        # The layers within take their policies from the head's, by their paths.
        policy = policy_with_parts(self, self.dtype_policy)
        config["dtype"] = keras.dtype_policies.serialize(policy)
        return config

    @classmethod
    def from_config(cls, config):
        embedding = config.get("token_embedding")
        # Within one `.keras` file Keras knows an object that it has met before by this.
        if isinstance(embedding, dict) and "shared_object_id" in embedding:
            config = {**config, "token_embedding": keras.layers.deserialize(embedding)}
        return cls(**config)


def _is_plain(embedding):
    """Whether its projection is the product with the embeddings and nothing else."""
    others = [embedding.quantization_mode, embedding.reverse_dtype, embedding.logit_soft_cap]
    return embedding.tie_weights and all(other is None for other in others)

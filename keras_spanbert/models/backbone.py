"""The SpanBERT encoder."""

import contextlib
import contextvars
import functools

import keras
import keras_hub
from keras import ops

from keras_spanbert.training.distribution import check_shards

_ARE_WEIGHTS_COMING = contextvars.ContextVar("are_weights_coming", default=False)


def kernel_initializer(stddev=0.02):
    """BERT's initializer, for every embedding and kernel."""
    if _ARE_WEIGHTS_COMING.get():
        return keras.initializers.Zeros()
    return keras.initializers.TruncatedNormal(stddev=stddev)


@contextlib.contextmanager
def weights_are_coming():
    """Saves the random draws for models whose every weight is loaded next."""
    token = _ARE_WEIGHTS_COMING.set(True)
    try:
        yield
    finally:
        _ARE_WEIGHTS_COMING.reset(token)


@keras.saving.register_keras_serializable(package="keras_spanbert")
def gelu_tanh(x):
    """GELU by its tanh approximation, as in Google's first BERT."""
    return keras.activations.gelu(x, approximate=True)


def with_padding_mask(inputs):
    """Inputs as Keras wants them, where those of a model may lack the mask."""
    if isinstance(inputs, dict) and "padding_mask" not in inputs:
        return {**inputs, "padding_mask": None}
    return inputs


def _in_float32(softmax):
    """Has a `Softmax` layer compute in float32 whatever the scores' dtype, which it keeps."""
    layer = keras.layers.Softmax(axis=softmax.axis, dtype="float32")
    return lambda scores, mask=None: ops.cast(layer(scores, mask=mask), scores.dtype)


class _TransformerEncoder(keras_hub.layers.TransformerEncoder):
    """keras-hub's encoder with a dropout rate of its own in the attention.

    It softmaxes in float32, and can compute its activations again in the
    backward pass instead of keeping them.
    """

    def __init__(self, attention_dropout, rematerialize, **kwargs):
        super().__init__(**kwargs)
        self.attention_dropout = attention_dropout
        self.rematerialize = rematerialize

    def build(self, inputs_shape):
        dropout, self.dropout = self.dropout, self.attention_dropout
        super().build(inputs_shape)
        self.dropout = dropout
        for name in ["self_attention_dropout", "feedforward_dropout"]:
            # Untrack keras-hub's layer before another takes its place.
            delattr(self, f"_{name}")
            layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy, name=name)
            setattr(self, f"_{name}", layer)
        if self.compute_dtype != "float32":
            attention = self._self_attention_layer
            # Past the trackers of Keras and PyTorch: it has no weights.
            object.__setattr__(attention, "_softmax", _in_float32(attention._softmax))

    def call(self, inputs, padding_mask=None, training=None, **kwargs):
        call = functools.partial(
            super().call, padding_mask=padding_mask, training=training, **kwargs
        )
        if not (self.rematerialize and training):
            return call(inputs)
        seeds = [v for v in self.variables if "int" in v.dtype]
        weights = [v for v in self.variables if "int" not in v.dtype]

        # All state comes in, and the seeds go out, so that dropout draws the same masks again.
        def stateless_call(inputs, *values):
            mapping = list(zip([*weights, *seeds], values))
            with keras.StatelessScope(state_mapping=mapping) as scope:
                outputs = call(inputs)
                return outputs, *(scope.get_current_value(seed) for seed in seeds)

        values = [*(v.value for v in weights), *(ops.copy(v.value) for v in seeds)]
        outputs, *values = keras.remat(stateless_call)(inputs, *values)
        for seed, value in zip(seeds, values):
            seed.assign(value)
        return outputs


@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertBackbone(keras_hub.models.Backbone):
    """The SpanBERT encoder: BERT with exact GELU and without a pooler.

    Args:
        vocabulary_size: int. Size of the token vocabulary.
        num_layers: int. Number of transformer layers.
        num_heads: int. Number of attention heads of a layer; divides
            `hidden_dim`.
        hidden_dim: int. Size of embeddings and layer outputs.
        intermediate_dim: int. Size of the feedforward networks' inner layer.
        dropout: float. Rate after embeddings, attention and feedforward
            networks. Defaults to `0.1`.
        attention_dropout: float. Rate on the attention weights; `0` lets Keras
            take its fused attention. Defaults to `None`, the same as `dropout`.
        max_sequence_length: int. Longest input, in tokens. Defaults to `512`.
        num_segments: int. Number of segment ids. Defaults to `2`.
        activation: activation of the feedforward networks. Defaults to
            `"gelu"`, the exact (erf) GELU.
        layer_norm_epsilon: float. Defaults to `1e-12`.
        initializer_range: float. Standard deviation of new embeddings and
            kernels, of heads too. Defaults to `0.02`, BERT's for 768 wide
            layers; narrow ones learn faster from `0.02 * (768 / hidden_dim) **
            0.5`, which keeps the scale of what a layer puts out.
        rematerialize: bool. Whether to compute a layer's activations again in
            the backward pass instead of keeping them: more time, much less
            memory. Defaults to `False`.
        dtype: string or `keras.DTypePolicy`, of computations and weights;
            softmax and layer normalisation always compute in float32.

    Raises:
        ValueError: where `num_heads` does not divide `hidden_dim`.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}`, each int32 `[B, L]`, to
        `[B, L, hidden_dim]`. Without padding `padding_mask` may be left out:
        some fused kernels of attention take no mask.

    Example:
    ```python
    backbone = keras_spanbert.SpanBertBackbone(
        vocabulary_size=28996, **keras_spanbert.SpanBertBackbone.SIZES["tiny"]
    )
    sequence_output = backbone({
        "token_ids": np.ones((1, 12), "int32"),
        "segment_ids": np.zeros((1, 12), "int32"),
        "padding_mask": np.ones((1, 12), "int32"),
    })  # [1, 12, 128]
    ```

    Reference:
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.2;
        sizes below base: [Turc et al. 2019](https://arxiv.org/abs/1908.08962).
    """

    SIZES = {
        name: {
            "num_layers": num_layers,
            "num_heads": hidden_dim // 64,
            "hidden_dim": hidden_dim,
            "intermediate_dim": 4 * hidden_dim,
        }
        for name, num_layers, hidden_dim in [
            ("tiny", 2, 128),
            ("mini", 4, 256),
            ("small", 4, 512),
            ("base", 12, 768),
            ("large", 24, 1024),
        ]
    }

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        dropout=0.1,
        attention_dropout=None,
        max_sequence_length=512,
        num_segments=2,
        activation="gelu",
        layer_norm_epsilon=1e-12,
        initializer_range=0.02,
        rematerialize=False,
        dtype=None,
        **kwargs,
    ):
        if hidden_dim % num_heads:
            raise ValueError(
                "`num_heads` must divide `hidden_dim`. Received: "
                f"num_heads={num_heads}, hidden_dim={hidden_dim}"
            )
        check_shards(num_heads=num_heads, hidden_dim=hidden_dim, intermediate_dim=intermediate_dim)
        # === Layers ===
        self.token_embedding = keras.layers.ReversibleEmbedding(
            input_dim=vocabulary_size,
            output_dim=hidden_dim,
            embeddings_initializer=kernel_initializer(initializer_range),
            dtype=dtype,
            name="token_embedding",
        )
        self.position_embedding = keras_hub.layers.PositionEmbedding(
            sequence_length=max_sequence_length,
            initializer=kernel_initializer(initializer_range),
            dtype=dtype,
            name="position_embedding",
        )
        self.segment_embedding = keras.layers.Embedding(
            input_dim=num_segments,
            output_dim=hidden_dim,
            embeddings_initializer=kernel_initializer(initializer_range),
            dtype=dtype,
            name="segment_embedding",
        )
        self.embeddings_add = keras.layers.Add(dtype=dtype, name="embeddings_add")
        self.embeddings_layer_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=dtype, name="embeddings_layer_norm"
        )
        self.embeddings_dropout = keras.layers.Dropout(
            dropout, dtype=dtype, name="embeddings_dropout"
        )
        self.transformer_layers = [
            _TransformerEncoder(
                intermediate_dim=intermediate_dim,
                num_heads=num_heads,
                dropout=dropout,
                attention_dropout=(dropout if attention_dropout is None else attention_dropout),
                rematerialize=rematerialize,
                activation=activation,
                layer_norm_epsilon=layer_norm_epsilon,
                kernel_initializer=kernel_initializer(initializer_range),
                dtype=dtype,
                name=f"transformer_layer_{i}",
            )
            for i in range(num_layers)
        ]

        # === Functional Model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name, optional=name == "padding_mask")
            for name in ["token_ids", "segment_ids", "padding_mask"]
        }
        tokens = self.token_embedding(inputs["token_ids"])
        positions = self.position_embedding(tokens)
        segments = self.segment_embedding(inputs["segment_ids"])
        x = self.embeddings_add((tokens, positions, segments))
        x = self.embeddings_layer_norm(x)
        x = self.embeddings_dropout(x)
        for transformer_layer in self.transformer_layers:
            x = transformer_layer(x, padding_mask=inputs["padding_mask"])
        super().__init__(inputs=inputs, outputs=x, dtype=dtype, **kwargs)

        # === Config ===
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.max_sequence_length = max_sequence_length
        self.num_segments = num_segments
        self.activation = keras.activations.get(activation)
        self.layer_norm_epsilon = layer_norm_epsilon
        self.initializer_range = initializer_range
        self.rematerialize = rematerialize

    def __call__(self, inputs, *args, **kwargs):
        return super().__call__(with_padding_mask(inputs), *args, **kwargs)

    def call(self, inputs, training=None, mask=None, **kwargs):
        # JAX's steps come here.
        return super().call(with_padding_mask(inputs), training=training, mask=mask, **kwargs)

    def compute_output_spec(self, inputs, training=None, mask=None):
        # Keras's own takes no input that is left out.
        shape = (*inputs["token_ids"].shape, self.hidden_dim)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Loads the encoder of a preset or of another library's checkpoint.

        Args:
            preset: string. A keras-hub preset, a checkpoint of Hugging Face,
                fairseq or Google's BERT, an archive of one, or
                `hf://owner/name`. See `keras_spanbert.checkpoints`.
            load_weights: bool. Defaults to `True`.
            **kwargs: arguments of the class in place of the preset's; for
                checkpoints also `vocabulary`, a file, and for fairseq's
                `num_heads`.

        Returns:
            `SpanBertBackbone`.

        Raises:
            ValueError: where `preset` is none of these or damaged.

        Example:
        ```python
        backbone = keras_spanbert.SpanBertBackbone.from_preset("spanbert_hf_base.tar.gz")
        ```
        """
        from keras_spanbert.checkpoints import sources

        source = sources.open_source(preset, **sources.pop_options(kwargs))
        if isinstance(source, str):
            kwargs.setdefault("dtype", keras.config.dtype_policy().name)  # As of tasks.
            return super().from_preset(source, load_weights, **kwargs)
        return source.backbone(load_weights, **kwargs)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "vocabulary_size": self.vocabulary_size,
                "num_layers": self.num_layers,
                "num_heads": self.num_heads,
                "hidden_dim": self.hidden_dim,
                "intermediate_dim": self.intermediate_dim,
                "dropout": self.dropout,
                "attention_dropout": self.attention_dropout,
                "max_sequence_length": self.max_sequence_length,
                "num_segments": self.num_segments,
                "activation": keras.activations.serialize(self.activation),
                "layer_norm_epsilon": self.layer_norm_epsilon,
                "initializer_range": self.initializer_range,
                "rematerialize": self.rematerialize,
            }
        )
        return config

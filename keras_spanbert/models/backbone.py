"""The SpanBERT encoder."""

import keras
import keras_hub
from keras import ops

from keras_spanbert.checks import check_counts, check_flags, check_in, check_range
from keras_spanbert.data.batches import SEQUENCES
from keras_spanbert.formats.huggingface import ACTIVATIONS, hidden_act
from keras_spanbert.layers.dropout import Dropout
from keras_spanbert.layers.layout import add_layout, check_shards
from keras_spanbert.layers.sublayers import (
    config_of,
    kernel_initializer,
    policy_with_quantization,
    skip_initialization,
)
from keras_spanbert.layers.transformer_layer import TransformerLayer
from keras_spanbert.models.checkpoint_entries import Checkpoint, TensorGroup, dense, encoder_entries
from keras_spanbert.models.keras_model import KerasModel, with_one_thread
from keras_spanbert.models.lora import LoraBackbone

# The arguments that are settings of `transformers.BertConfig`, and their names there.
_SETTINGS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "layer_norm_epsilon": "layer_norm_eps",
}
POOLER = TensorGroup(
    "pooler.", lambda x: dense("pooler.dense", "pooler", x["hidden_size"], x["hidden_size"])
)


def dense_layer(parent, units: int, name: str, **kwargs) -> keras.layers.Dense:
    """Returns a dense layer of a head, with the policy of a backbone or of a layer of the head.

    Other arguments are those of `keras.layers.Dense`.
    """
    # Not truncated, as in the released fine-tuning code and in transformers: with the smaller
    # kernels of a truncated distribution, short runs score less. See benchmarks/README.md.
    initializer = kernel_initializer(parent.initializer_range, truncated=False)
    kwargs = {"kernel_initializer": initializer, **kwargs}
    return keras.layers.Dense(units, dtype=parent.dtype_policy, name=name, **kwargs)


def pooler(backbone) -> keras.layers.Dense:
    """Returns BERT's pooler for `[CLS]`, from float `[B, hidden_dim]` to the same shape."""
    return dense_layer(backbone, backbone.hidden_dim, "pooler", activation="tanh")


@keras.saving.register_keras_serializable(package="keras_spanbert")
def gelu_tanh(x):
    """Computes the tanh approximation of GELU, as Google's code for BERT does."""
    return keras.activations.gelu(x, approximate=True)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class PositionEmbedding(keras_hub.layers.PositionEmbedding):
    """keras-hub's `PositionEmbedding`, whose gradient on GPUs with JAX is a matrix product.

    Refuses rows that are too long.
    """

    def call(self, inputs, start_index=0, positions=None):
        length, longest = inputs.shape[-2], self.sequence_length
        if positions is None and isinstance(length, int) and length > longest:
            raise ValueError(
                f"Rows must have at most {longest} tokens, the backbone's `max_sequence_length`. "
                f"Received: {length} tokens"
            )
        if keras.backend.backend() != "jax" or positions is not None:
            return super().call(inputs, start_index=start_index, positions=positions)
        from keras_spanbert.layers.jax_gradients import repeat

        rows, *shape = inputs.shape
        vectors = super().call(keras.ops.zeros(shape), start_index=start_index)
        return repeat(vectors, rows)


@keras.saving.register_keras_serializable(package="keras_spanbert")
class _AddEmbeddings(keras.layers.Layer):
    """Adds embeddings, of which the first are those of tokens."""

    def call(self, embeddings, padding_mask=None, training=None):
        tokens, *others = embeddings
        if training and padding_mask is not None:
            # As in transformers, [PAD] has a fixed embedding. The softmax of question answering
            # includes padding, and would train it.
            is_token = ops.expand_dims(padding_mask, -1) > 0
            tokens = ops.where(is_token, tokens, ops.stop_gradient(tokens))
        return sum(others, tokens)

    def get_config(self):  # Keras makes none for a layer with a dtype policy.
        return super().get_config()


@keras.saving.register_keras_serializable(package="keras_spanbert")
class _TransformerEncoder(TransformerLayer):
    """A `TransformerLayer` with the class name that weight files use.

    Keras names the group of a layer's weights after the layer's class.
    """


@with_one_thread
@keras.saving.register_keras_serializable(package="keras_spanbert")
class SpanBertBackbone(LoraBackbone, KerasModel, keras_hub.models.Backbone):
    """The SpanBERT encoder: BERT with exact GELU, by default without a pooler.

    Args:
        vocabulary_size: int. Size of the token vocabulary.
        num_layers: int. Number of transformer layers.
        num_heads: int. Number of attention heads per layer. It must divide `hidden_dim`.
        hidden_dim: int. Size of embeddings and layer outputs.
        intermediate_dim: int. Size of the feedforward networks' inner layer.
        dropout: float. Rate after embeddings, attention and feedforward
            networks. Defaults to `0.1`.
        attention_dropout: float. Rate on the attention weights. Fused kernels may need `0`: see
            `layers.attention`. Defaults to `None`, the same as `dropout`.
        max_sequence_length: int. Longest input, in tokens. Defaults to `512`.
        num_segments: int. Number of segment ids. Defaults to `2`.
        dtype: string or `keras.DTypePolicy` of computations and weights.
            Softmax and layer normalization compute in float32 or wider. The
            range of float16 is too small for training.
        activation: activation of the feedforward networks. Defaults to
            `"gelu"`, the exact (erf) GELU.
        layer_norm_epsilon: float. Defaults to `1e-12`.
        initializer_range: float. Standard deviation of new embeddings and kernels, including those
            of heads. The encoder's are truncated at twice this value. Defaults to `0.02`, BERT's
            value for layers of width 768. Narrow models learn faster with
            `0.02 * (768 / hidden_dim) ** 0.5`, which keeps the scale of the outputs.
        rematerialize: bool. Whether to recompute a layer's activations in the backward pass instead
            of keeping them. This takes more time and much less memory. Defaults to `False`.
        pooled_output: bool. Whether to add BERT's pooler, a dense layer and tanh over `[CLS]`, for
            a custom classifier: see "Call shapes". The tasks require a backbone without it and add
            their own. Defaults to `False`.

    Raises:
        ValueError: if `num_heads` does not divide `hidden_dim`, or an argument is unknown or of
            another kind.

    Call shapes:
        `{"token_ids", "segment_ids", "padding_mask"}`, each int32 `[B, L]`, to
        `[B, L, hidden_dim]`. With `pooled_output=True`, to
        `{"sequence_output": [B, L, hidden_dim], "pooled_output": [B, hidden_dim]}`.
        `padding_mask` can be left out if there is no padding. On GPUs, PyTorch
        then uses a faster attention kernel.

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
        [Joshi et al. 2020](https://arxiv.org/abs/1907.10529), section 4.2. For
        sizes below base, [Turc et al. 2019](https://arxiv.org/abs/1908.08962).
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

    # Its tensors in a checkpoint, and its class in `transformers`.
    tensor_group = TensorGroup("embeddings.", encoder_entries)
    huggingface_class = "BertModel"
    # Used by `keras.distribution.LayoutMap`.
    sharding_layout = {
        "token_embedding/embeddings": (None, "model"),
        r".*/(query|key|value)/kernel": (None, "model", None),
        r".*/(query|key|value)/bias": ("model", None),
        r".*/attention_output/kernel": ("model", None, None),
        r".*/feedforward_intermediate_dense/kernel": (None, "model"),
        r".*/feedforward_intermediate_dense/bias": ("model",),
        r".*/feedforward_output_dense/kernel": ("model", None),
    }

    def __init__(
        self,
        vocabulary_size: int,
        num_layers: int,
        num_heads: int,
        hidden_dim: int,
        intermediate_dim: int,
        dropout: float = 0.1,
        attention_dropout: float | None = None,
        max_sequence_length: int = 512,
        num_segments: int = 2,
        dtype=None,
        activation="gelu",
        layer_norm_epsilon: float = 1e-12,
        rematerialize: bool = False,
        initializer_range: float = 0.02,
        pooled_output: bool = False,
        **kwargs,
    ):
        check_counts(0, num_layers=num_layers)
        check_counts(
            vocabulary_size=vocabulary_size,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            intermediate_dim=intermediate_dim,
            max_sequence_length=max_sequence_length,
            num_segments=num_segments,
        )
        check_range("[0, 1]", dropout=dropout)
        if attention_dropout is not None:
            check_range("[0, 1]", attention_dropout=attention_dropout)
        check_range(
            "[0, inf)", layer_norm_epsilon=layer_norm_epsilon, initializer_range=initializer_range
        )
        check_flags(rematerialize=rematerialize, pooled_output=pooled_output)
        rule = f"a divisor of `hidden_dim`, {hidden_dim}"
        check_in("num_heads", num_heads, hidden_dim % num_heads == 0, rule)
        check_shards(num_heads=num_heads, hidden_dim=hidden_dim, intermediate_dim=intermediate_dim)
        add_layout(self.sharding_layout)
        # === Layers ===
        self.token_embedding = keras.layers.ReversibleEmbedding(
            input_dim=vocabulary_size,
            output_dim=hidden_dim,
            embeddings_initializer=kernel_initializer(initializer_range),
            dtype=dtype,
            name="token_embedding",
        )
        self.position_embedding = PositionEmbedding(
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
        self.embeddings_add = _AddEmbeddings(dtype=dtype, name="embeddings_add")
        self.embeddings_layer_norm = keras.layers.LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=dtype, name="embeddings_layer_norm"
        )
        self.embeddings_dropout = Dropout(dropout, dtype=dtype, name="embeddings_dropout")
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
        self.pooler = None
        if pooled_output:
            self.pooler = keras.layers.Dense(
                hidden_dim,
                activation="tanh",
                kernel_initializer=kernel_initializer(initializer_range),
                dtype=dtype,
                name="pooler",
            )

        # === Functional Model ===
        inputs = {
            name: keras.Input((None,), dtype="int32", name=name, optional=name == "padding_mask")
            for name in SEQUENCES
        }
        tokens = self.token_embedding(inputs["token_ids"])
        positions = self.position_embedding(tokens)
        segments = self.segment_embedding(inputs["segment_ids"])
        # A list, because Keras's handling of tuples breaks the graph of PyTorch's compiler.
        x = self.embeddings_add([tokens, positions, segments], padding_mask=inputs["padding_mask"])
        x = self.embeddings_dropout(self.embeddings_layer_norm(x))
        for transformer_layer in self.transformer_layers:
            x = transformer_layer(x, padding_mask=inputs["padding_mask"])
        if self.pooler is not None:
            x = {"sequence_output": x, "pooled_output": self.pooler(x[:, 0, :])}
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
        self.pooled_output = pooled_output

    def compute_output_spec(self, inputs, training=None, mask=None):
        # Keras's version does not support missing inputs.
        shape = (*inputs["token_ids"].shape, self.hidden_dim)
        x = keras.KerasTensor(shape, dtype=self.compute_dtype)
        if self.pooler is None:
            return x
        pooled = keras.KerasTensor((shape[0], shape[2]), dtype=self.compute_dtype)
        return {"sequence_output": x, "pooled_output": pooled}

    @classmethod
    def from_source(cls, source, load_weights: bool = True, **kwargs):
        """Builds the encoder of a `Preset` or `Checkpoint`: see `from_preset`."""
        source.arguments_of(cls, **kwargs)  # Checks the tensors of a checkpoint.
        # The source may lack the pooler.
        with skip_initialization(load_weights and not kwargs.get("pooled_output")):
            backbone = source.backbone(cls, **kwargs)
        if load_weights:
            source.load_weights(backbone)
        return backbone

    @classmethod
    def tensor_groups_for(cls, arguments: dict) -> list[TensorGroup]:
        """Returns the checkpoint tensors, in addition to the encoder's, for these arguments."""
        return [POOLER] if arguments.get("pooled_output", False) else []

    @classmethod
    def arguments_in(cls, checkpoint: Checkpoint) -> dict:
        """Returns the arguments of the class that fit a checkpoint."""
        settings = checkpoint.settings
        activation = ACTIVATIONS[settings["hidden_act"]]
        return {
            **{name: settings[setting] for name, setting in _SETTINGS.items()},
            "activation": gelu_tanh if activation == "gelu_tanh" else activation,
            "initializer_range": settings.get("initializer_range", 0.02),
        }

    def flops(self, sequence_length: int) -> float:
        """Returns the FLOPs of one sequence's matrix products in the forward pass."""
        check_range("[0, inf)", sequence_length=sequence_length)  # It may be a mean.
        hidden = self.hidden_dim
        projections = 8 * hidden**2 + 4 * hidden * self.intermediate_dim
        attention = 4 * sequence_length * hidden
        return float(sequence_length * self.num_layers * (projections + attention))

    def checkpoint_settings(self) -> dict:
        """Returns settings of `transformers.BertConfig` for this encoder."""
        settings = {setting: getattr(self, name) for name, setting in _SETTINGS.items()}
        if self.attention_dropout is None:
            settings["attention_probs_dropout_prob"] = self.dropout
        return {
            **settings,
            "hidden_act": hidden_act(self.activation.__name__),
            "initializer_range": self.initializer_range,
            "model_type": "bert",
        }

    def get_config(self):
        # keras-hub's version would not save the float dtype of quantized layers: see
        # `policy_with_quantization`.
        names = ["name", "trainable", *_SETTINGS, "activation", "initializer_range"]
        policy = policy_with_quantization(self, self.dtype_policy)
        config = config_of(self, [*names, "rematerialize"])
        config["dtype"] = keras.dtype_policies.serialize(policy)
        if self.pooled_output:  # Left out if False, so that older versions can load the preset.
            config["pooled_output"] = True
        return config

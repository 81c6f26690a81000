"""The tensors of a BERT or SpanBERT checkpoint, and the weights they become.

Tensors bear Hugging Face's names without the prefix `bert.`, LayerNorm's with
`weight` and `bias`. Their shapes are PyTorch's, a kernel `[out, in]`.
"""

import collections

# `path` is the Keras weight's, `shape` the tensor's.
Entry = collections.namedtuple("Entry", ["name", "path", "shape"])

# Other names for a tensor that the model has once.
TIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "cls.pair_target_predictions.decoder.weight": "embeddings.word_embeddings.weight",
}


def encoder_entries(config):
    """The encoder's tensors, one by one, for a `transformers.BertConfig` as a dict."""
    H, I = config["hidden_size"], config["intermediate_size"]  # noqa: E741
    for name, path, rows in [
        ("word", "token_embedding/embeddings", config["vocab_size"]),
        ("position", "position_embedding/embeddings", config["max_position_embeddings"]),
        ("token_type", "segment_embedding/embeddings", config["type_vocab_size"]),
    ]:
        yield Entry(f"embeddings.{name}_embeddings.weight", path, (rows, H))
    yield from _layer_norm("embeddings.LayerNorm", "embeddings_layer_norm", H)
    for i in range(config["num_hidden_layers"]):
        name, path = f"encoder.layer.{i}", f"transformer_layer_{i}"
        for part in ["query", "key", "value"]:
            yield from _dense(
                f"{name}.attention.self.{part}", f"{path}/self_attention_layer/{part}", H, H
            )
        for tensors, weights, inputs, outputs in [
            ("attention.output.dense", "self_attention_layer/attention_output", H, H),
            ("intermediate.dense", "feedforward_intermediate_dense", H, I),
            ("output.dense", "feedforward_output_dense", I, H),
        ]:
            yield from _dense(f"{name}.{tensors}", f"{path}/{weights}", inputs, outputs)
        for tensors, weights in [
            ("attention.output.LayerNorm", "self_attention_layer_norm"),
            ("output.LayerNorm", "feedforward_layer_norm"),
        ]:
            yield from _layer_norm(f"{name}.{tensors}", f"{path}/{weights}", H)


def mlm_entries(config):
    """The MLM head's tensors."""
    H = config["hidden_size"]
    yield Entry("cls.predictions.bias", "mlm_head/output_bias", (config["vocab_size"],))
    name = "cls.predictions.transform"
    yield from _dense(f"{name}.dense", "mlm_head/intermediate_dense", H, H)
    yield from _layer_norm(f"{name}.LayerNorm", "mlm_head/intermediate_layer_norm", H)


def sbo_entries(config):
    """The SBO head's tensors."""
    H, P = config["hidden_size"], config["position_dim"]
    name = "cls.pair_target_predictions"
    yield Entry(f"{name}.bias", "sbo_head/output_bias", (config["vocab_size"],))
    yield Entry(
        f"{name}.position_embeddings.weight",
        "sbo_head/position_embedding/embeddings",
        (config["max_span_tokens"], P),
    )
    for i, inputs in [(1, 2 * H + P), (2, H)]:
        mlp = f"{name}.mlp_layer_norm"
        yield from _dense(f"{mlp}.linear{i}", f"sbo_head/dense_{i}", inputs, H)
        yield from _layer_norm(f"{mlp}.layer_norm{i}", f"sbo_head/layer_norm_{i}", H)


def qa_entries(config):
    """The question-answering head's tensors."""
    yield from _dense("qa_outputs", "qa_outputs", config["hidden_size"], 2)


def _dense(name, path, inputs, outputs):
    yield Entry(f"{name}.weight", f"{path}/kernel", (outputs, inputs))
    yield Entry(f"{name}.bias", f"{path}/bias", (outputs,))


def _layer_norm(name, path, size):
    yield Entry(f"{name}.weight", f"{path}/gamma", (size,))
    yield Entry(f"{name}.bias", f"{path}/beta", (size,))

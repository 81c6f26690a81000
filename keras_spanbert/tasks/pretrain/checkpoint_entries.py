"""Maps the tensors of the heads in a checkpoint to their weights."""

from collections.abc import Iterator

from keras_spanbert.models.checkpoint_entries import Entry, dense, layer_norm


def mlm_entries(settings: dict) -> Iterator[Entry]:
    """Yields the MLM head's tensors in a checkpoint."""
    H = settings["hidden_size"]
    yield Entry("cls.predictions.bias", "mlm_head/output_bias", (settings["vocab_size"],))
    name = "cls.predictions.transform"
    yield from dense(f"{name}.dense", "mlm_head/intermediate_dense", H, H)
    yield from layer_norm(f"{name}.LayerNorm", "mlm_head/intermediate_layer_norm", H)


def sbo_entries(settings: dict) -> Iterator[Entry]:
    """Yields the SBO head's tensors in a checkpoint."""
    H, P = settings["hidden_size"], settings["position_dim"]
    name = "cls.pair_target_predictions"
    yield Entry(f"{name}.bias", "sbo_head/output_bias", (settings["vocab_size"],))
    yield Entry(
        f"{name}.position_embeddings.weight",
        "sbo_head/position_embedding/embeddings",
        (settings["max_span_tokens"], P),
    )
    for i, inputs in [(1, 2 * H + P), (2, H)]:
        mlp = f"{name}.mlp_layer_norm"
        yield from dense(f"{mlp}.linear{i}", f"sbo_head/dense_{i}", inputs, H)
        yield from layer_norm(f"{mlp}.layer_norm{i}", f"sbo_head/layer_norm_{i}", H)


def nsp_entries(settings: dict) -> Iterator[Entry]:
    """Yields the tensors of the next-sentence head, including the pooler's."""
    yield from dense("cls.seq_relationship", "nsp_head", settings["hidden_size"], 2)

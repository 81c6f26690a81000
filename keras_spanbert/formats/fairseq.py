"""Reads fairseq checkpoints of SpanBERT, the only ones with both the MLM and SBO heads."""

from keras_spanbert.formats.tensors import Tensor, canonical_names, open_torch

_PREFIX = "decoder."
_HEAD_DIM = 64  # The same in every released BERT.


def read_fairseq(
    path: str, source: str, num_heads: int | None = None
) -> tuple[dict, dict[str, Tensor], list[str]]:
    """Returns settings, tensors and notes for a `Checkpoint`. Messages call the file `source`.

    Sizes are derived from the tensors, which do not show the number of attention heads. By default
    there is one head per 64 units of the hidden size.
    """
    found = canonical_names(open_torch(path, is_fairseq=True), source)
    tensors = {
        name.removeprefix(_PREFIX): tensor
        for name, tensor in found.items()
        if name.startswith(_PREFIX)
    }
    if not tensors:
        raise ValueError(
            f"{source} must be a fairseq checkpoint, with tensors under model/{_PREFIX}*. "
            f"Received: {next(iter(found), 'no tensors')}"
        )

    def size(name, axis):
        tensor = tensors.get(f"bert.{name}.weight")
        if tensor is None or len(tensor.shape) != 2:
            raise ValueError(f"{source} lacks the tensor {_PREFIX}bert.{name}.weight, a matrix")
        return tensor.shape[axis]

    hidden_size = size("embeddings.word_embeddings", 1)
    notes = []
    if num_heads is None:
        num_heads, rest = divmod(hidden_size, _HEAD_DIM)
        if rest:
            raise ValueError(
                f"{source}: `num_heads` must be given, because the hidden size {hidden_size} is "
                f"not a multiple of {_HEAD_DIM}. Received: num_heads=None"
            )
        notes.append(f"{num_heads} attention heads: one per {_HEAD_DIM} units of the hidden size")
    if num_heads < 1 or hidden_size % num_heads:
        raise ValueError(
            f"{source}: `num_heads` must divide the hidden size {hidden_size}. "
            f"Received: num_heads={num_heads}"
        )
    layers = {
        int(name.split(".")[3])
        for name in tensors
        if name.startswith("bert.encoder.layer.") and name.split(".")[3].isdigit()
    }
    config = {
        "vocab_size": size("embeddings.word_embeddings", 0),
        "hidden_size": hidden_size,
        "num_hidden_layers": len(layers),
        "num_attention_heads": num_heads,
        "intermediate_size": size("encoder.layer.0.intermediate.dense", 0),
        "max_position_embeddings": size("embeddings.position_embeddings", 0),
        "type_vocab_size": size("embeddings.token_type_embeddings", 0),
    }
    return config, tensors, notes

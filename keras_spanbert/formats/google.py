"""Google's TensorFlow checkpoints of BERT."""

import glob
import os

from keras_spanbert import files
from keras_spanbert.formats.checkpoint import Checkpoint
from keras_spanbert.formats.tensors import Tensor, open_tensorflow
from keras_spanbert.formats.vocabulary import vocabulary_of

# What optimizers keep beside each variable.
_SLOTS = ("/adam_m", "/adam_v", "/Adam", "/Adam_1")


def find_prefixes(folder: str) -> list[str]:
    """The TensorFlow checkpoints in a folder, by their prefixes."""
    pattern = os.path.join(glob.escape(folder), "*.ckpt*.index")
    return sorted(path.removesuffix(".index") for path in glob.glob(pattern))


def open_google(
    folder: str, vocabulary: str | None = None, source: str | None = None
) -> Checkpoint:
    """A folder of `bert_config.json`, `bert_model.ckpt.*` and `vocab.txt` as a `Checkpoint`.

    Args:
        folder: string.
        vocabulary: string, a vocabulary file. Defaults to `None`, the folder's.
        source: string, how messages name it. Defaults to `None`, `folder`.

    Raises:
        ValueError: where there are several checkpoints, or see `Checkpoint`.
    """
    source = source or folder
    prefixes = find_prefixes(folder)
    if len(prefixes) != 1:
        raise ValueError(
            f"{source} must hold one TensorFlow checkpoint. Received: {', '.join(prefixes)}"
        )
    tensors = open_tensorflow(prefixes[0])
    tensors = dict(
        _as_pytorch(name, tensor) for name, tensor in tensors.items() if not name.endswith(_SLOTS)
    )
    config = files.read_json(os.path.join(folder, "bert_config.json"))
    return Checkpoint(source, config, tensors, *vocabulary_of(folder, vocabulary))


def _as_pytorch(name, tensor):
    """The name and the tensor as PyTorch's BERT has them."""
    name = name.replace("/", ".").replace("encoder.layer_", "encoder.layer.")
    if name.endswith("_embeddings"):
        return f"{name}.weight", tensor
    if name.endswith(".kernel"):
        name = name.removesuffix("kernel") + "weight"
        return name, Tensor(tensor.shape[::-1], lambda: tensor.read().T)
    # A weight of its head for pairs is stored as PyTorch's, and is no kernel.
    name = name.replace("seq_relationship.output_weights", "seq_relationship.weight")
    return name.replace(".output_bias", ".bias"), tensor

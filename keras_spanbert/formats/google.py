"""Google's TensorFlow checkpoints of BERT."""

import glob
import os

from keras_spanbert import files
from keras_spanbert.formats.tensors import Tensor, open_tensorflow

# Variables of optimizers.
_SLOTS = ("/adam_m", "/adam_v", "/Adam", "/Adam_1")


def find_prefixes(folder: str) -> list[str]:
    """Returns the prefixes of the TensorFlow checkpoints in a folder."""
    pattern = os.path.join(glob.escape(folder), "*.ckpt*.index")
    return sorted(path.removesuffix(".index") for path in glob.glob(pattern))


def read_google(folder: str, source: str) -> tuple[dict, dict[str, Tensor]]:
    """Returns settings and tensors of Google's files. Messages call the folder `source`."""
    prefixes = find_prefixes(folder)
    if len(prefixes) != 1:
        raise ValueError(
            f"{source} must have one TensorFlow checkpoint. Received: {', '.join(prefixes)}"
        )
    found = open_tensorflow(prefixes[0]).items()
    tensors = dict(_to_pytorch(*item) for item in found if not item[0].endswith(_SLOTS))
    return files.read_json(os.path.join(folder, "bert_config.json")), tensors


def _to_pytorch(name, tensor):
    """Returns the name and the tensor in the form of PyTorch's BERT."""
    name = name.replace("/", ".").replace("encoder.layer_", "encoder.layer.")
    if name.endswith("_embeddings"):
        return f"{name}.weight", tensor
    if name.endswith(".kernel"):
        name = name.removesuffix("kernel") + "weight"
        return name, Tensor(tensor.shape[::-1], lambda: tensor.read().T)
    # The weight of the head for pairs is stored in PyTorch's layout and is not a kernel.
    name = name.replace("seq_relationship.output_weights", "seq_relationship.weight")
    return name.replace(".output_bias", ".bias"), tensor

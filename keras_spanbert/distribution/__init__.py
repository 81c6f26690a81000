"""What differs between TensorFlow, JAX and PyTorch on many devices."""

from keras_spanbert.distribution.distribution import Distribution
from keras_spanbert.distribution.engines import MODES, distribute
from keras_spanbert.distribution.even_batches import check_rows, even_batches, padded_to_shards
from keras_spanbert.distribution.layout import add_layout, check_shards, relayout, shares_model
from keras_spanbert.distribution.processes import (
    all_gather,
    all_gather_bytes,
    barrier,
    num_torch_processes,
    process_index,
    to_numpy,
    without_distribution,
)
from keras_spanbert.distribution.replicas import (
    mean_over_replicas,
    summed_over_processes,
    summed_over_replicas,
    with_exchanged_gradients,
)

__all__ = [
    "MODES",
    "Distribution",
    "add_layout",
    "all_gather",
    "all_gather_bytes",
    "barrier",
    "check_rows",
    "check_shards",
    "distribute",
    "even_batches",
    "mean_over_replicas",
    "num_torch_processes",
    "padded_to_shards",
    "process_index",
    "relayout",
    "shares_model",
    "summed_over_processes",
    "summed_over_replicas",
    "to_numpy",
    "with_exchanged_gradients",
    "without_distribution",
]

"""Training on many devices with TensorFlow, JAX and PyTorch."""

from keras_spanbert.distribution.distribution import Distribution
from keras_spanbert.distribution.engines import MODES, distribute
from keras_spanbert.distribution.even_batches import check_rows, even_batches, pad_to_batch_shards
from keras_spanbert.distribution.layout import add_layout, check_shards, relayout, shares_model
from keras_spanbert.distribution.processes import (
    all_gather,
    assign,
    barrier,
    num_torch_processes,
    own_slices,
    process_index,
    to_numpy,
    without_distribution,
)
from keras_spanbert.distribution.replicas import (
    mean_over_replicas,
    sum_over_replicas,
    sync_metrics,
    wrap_in_ddp,
)

__all__ = [
    "MODES",
    "Distribution",
    "add_layout",
    "all_gather",
    "assign",
    "barrier",
    "check_rows",
    "check_shards",
    "distribute",
    "even_batches",
    "mean_over_replicas",
    "num_torch_processes",
    "own_slices",
    "pad_to_batch_shards",
    "process_index",
    "relayout",
    "shares_model",
    "sync_metrics",
    "sum_over_replicas",
    "to_numpy",
    "wrap_in_ddp",
    "without_distribution",
]

"""Training on many devices with TensorFlow, JAX and PyTorch."""

# ruff: noqa: F401
from keras_spanbert.distribution.distribution import Distribution
from keras_spanbert.distribution.engines import MODES, distribute
from keras_spanbert.distribution.even_batches import (
    check_even_rows,
    even_batches,
    pad_to_batch_shards,
)
from keras_spanbert.distribution.layout import add_layout, check_shards, relayout, shares_model
from keras_spanbert.distribution.processes import (
    all_gather,
    assign,
    barrier,
    is_sharded,
    num_torch_processes,
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

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
    mean_over_replicas,
    num_torch_processes,
    process_index,
    sum_over_replicas,
    sync_metrics,
    to_numpy,
    without_distribution,
    wrap_in_ddp,
)

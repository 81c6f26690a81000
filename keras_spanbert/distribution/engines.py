"""Training on many devices and hosts, by each backend's own engine."""

import atexit
import contextlib
import datetime
import os

import keras
import numpy as np

from keras_spanbert.distribution.distribution import Distribution
from keras_spanbert.distribution.heartbeats import Heartbeats
from keras_spanbert.distribution.layout import new_layout

MODES = ("auto", "none", "data", "model")
# How long processes wait for one another when they start.
_START_SECONDS = 300


def distribute(mode: str = "auto", dead_after: int = 30) -> Distribution:
    """Has models that are built from now on train on all devices of all processes.

    The same script runs on one device and on many: batches, losses and metrics
    are those of one process with the whole batch.

    - TensorFlow: `MirroredStrategy` over the GPUs of a host, or `TPUStrategy`
      where the environment variable `TPU_NAME` names a TPU.
    - JAX: `keras.distribution.DataParallel`, or `ModelParallel` with
      `mode="model"`, over all devices; of several processes where Keras's
      variables `KERAS_DISTRIBUTION_JOB_ADDRESSES`, `..._NUM_PROCESSES` and
      `..._PROCESS_ID` are set.
    - PyTorch: `DistributedDataParallel` between the processes that `torchrun`
      starts, a device each.

    Call it once, before anything else touches the backend, and seeds after it:
    JAX's processes are given a common one.

    Args:
        mode: "auto", "none", "data" or "model". Defaults to `"auto"`: "data"
            where there are several devices or processes, else "none".
        dead_after: int. Seconds of silence after which a process of JAX or
            PyTorch counts as dead, and the others stop with an error. Defaults
            to `30`.

    Returns:
        `Distribution`.

    Raises:
        ValueError: where the backend cannot do it; which one can is said.

    Example:
    ```python
    distribution = keras_spanbert.distribute()
    with distribution.scope():
        model = keras_spanbert.SpanBertPretrainer(backbone)
        model.compile()
    model.fit(distribution.dataset(stream), steps_per_epoch=1000)
    if distribution.is_main:
        model.save_to_preset("model")
    ```
    """
    if mode not in MODES:
        raise ValueError(f"`mode` must be one of {', '.join(MODES)}. Received: {mode!r}")
    if dead_after < 1:
        raise ValueError(f"`dead_after` must be at least 1. Received: dead_after={dead_after}")
    backend = keras.backend.backend()
    if backend != "tensorflow":
        _hide_gpus_from_tensorflow()
    if mode == "model" and backend != "jax":
        raise ValueError(
            "Model parallelism takes the JAX backend (KERAS_BACKEND=jax). Received: "
            f"mode='model' on {backend}"
        )
    if backend == "jax":
        return _jax(mode, dead_after)
    return _tensorflow(mode) if backend == "tensorflow" else _torch(mode, dead_after)


def _tensorflow(mode):
    import json

    import tensorflow as tf

    workers = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
    if mode != "none" and sum(len(hosts) for hosts in workers.values()) > 1:
        raise ValueError(
            "Keras 3 trains on one host with TensorFlow; on several, use KERAS_BACKEND=jax or "
            f"torch. Received: TF_CONFIG={os.environ['TF_CONFIG']}"
        )
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if mode == "none" or (mode == "auto" and len(devices) == 1 and "TPU_NAME" not in os.environ):
        return Distribution()
    if "TPU_NAME" in os.environ:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    else:
        strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    return Distribution(num_replicas=strategy.num_replicas_in_sync, strategy=strategy)


def _jax(mode, dead_after):
    count = int(os.environ.get("KERAS_DISTRIBUTION_NUM_PROCESSES", "1"))
    if mode == "none":
        if count > 1:
            raise ValueError(
                "`mode` must not be none in several processes. Received: "
                f"KERAS_DISTRIBUTION_NUM_PROCESSES={count}"
            )
        return Distribution()
    import jax

    if count > 1:
        _connect_jax(count, dead_after)
    devices = jax.device_count()
    if mode == "auto" and devices == 1:
        return Distribution()
    process, count = jax.process_index(), jax.process_count()
    if mode == "model":
        # The layers' exchanges are within a host where it has several devices.
        shards = jax.local_device_count() if jax.local_device_count() > 1 else devices
        mesh = keras.distribution.DeviceMesh(
            (devices // shards, shards), ("batch", "model"), keras.distribution.list_devices()
        )
        engine = keras.distribution.ModelParallel(
            layout_map=new_layout(mesh), batch_dim_name="batch", auto_shard_dataset=False
        )
        replicas = devices // shards
    else:
        engine = keras.distribution.DataParallel(auto_shard_dataset=False)
        replicas = devices
    keras.distribution.set_distribution(engine)
    parts = min(count, replicas)
    return Distribution(replicas, process, count, process * parts // count, parts, devices)


def _connect_jax(count, dead_after):
    """As `keras.distribution.initialize`, which cannot say when a process counts as dead."""
    import jax

    names = ["KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_PROCESS_ID"]
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise ValueError(
            f"{missing[0]} must be set with KERAS_DISTRIBUTION_NUM_PROCESSES={count}. "
            "Received: nothing"
        )
    # CPUs have no collectives between processes unless they are told which.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        os.environ[names[0]].split(",")[0],
        count,
        int(os.environ[names[1]]),
        heartbeat_timeout_seconds=dead_after,
        # A process that ends by an error would wait for the others, which wait for it.
        shutdown_timeout_seconds=dead_after,
    )
    from jax.experimental import multihost_utils

    # Else the processes would begin with different weights.
    seed = np.random.default_rng().integers(2**31, dtype=np.int32)
    keras.utils.set_random_seed(int(multihost_utils.broadcast_one_to_all(seed)))


def _torch(mode, dead_after):
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if mode == "none" or (mode == "auto" and count == 1):
        if count > 1:
            raise ValueError(
                "`mode` must not be none in several processes. Received: torchrun's "
                f"WORLD_SIZE={count}"
            )
        return Distribution()
    if "WORLD_SIZE" not in os.environ:
        raise ValueError(
            "With PyTorch, processes are started by torchrun. Received: mode='data' without "
            "its WORLD_SIZE"
        )
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    process = int(os.environ["RANK"])
    # torchrun keeps one store for all of its restarts: without a prefix, processes would be sent to
    # those of before, which are gone.
    prefix = f"keras_spanbert/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"

    def store(is_master=False):
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        timeout = datetime.timedelta(seconds=_START_SECONDS)
        opened = torch.distributed.TCPStore(*place, is_master=is_master, timeout=timeout)
        return torch.distributed.PrefixStore(prefix, opened)

    torch.distributed.init_process_group(
        # Flags and steps are exchanged on the CPU.
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=store(is_master=process == 0 and not has_store),
        rank=process,
        world_size=count,
    )
    # A store of its own: what waits in one holds up all that use it.
    heartbeats = Heartbeats(store(), process, count, dead_after)
    # A script that ends without closing, or by an error, whose connections the others see end.
    atexit.register(heartbeats.stop)
    return Distribution(count, process, count, process, count, heartbeats=heartbeats)


def _hide_gpus_from_tensorflow():
    """So that TensorFlow, which only feeds data, leaves their memory to the backend."""
    try:
        import tensorflow as tf
    except ImportError:
        return
    with contextlib.suppress(RuntimeError):  # It has begun to use them already.
        tf.config.set_visible_devices([], "GPU")

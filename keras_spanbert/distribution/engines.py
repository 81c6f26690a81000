"""Sets up training on many devices and hosts, with the methods of each backend."""

import contextlib
import datetime
import os

import keras
import numpy as np

from keras_spanbert.checks import check_in, is_number
from keras_spanbert.distribution.distribution import Distribution
from keras_spanbert.distribution.layout import new_layout

MODES = ("auto", "none", "data", "model")
# Seconds that processes wait for one another at the start.
_START_SECONDS = 300
# Defaults of `dead_after`. With PyTorch, a process also waits while another one evaluates or saves.
_DEAD_AFTER = {"jax": 30, "torch": 1800}


def distribute(mode: str = "auto", dead_after: int | None = None) -> Distribution:
    """Makes models that are built afterwards train on all devices of all processes.

    The same script runs on one device and on many. Batches, losses and metrics are
    the same as those of one process with the whole batch.

    - TensorFlow: `MirroredStrategy` over the GPUs of a host, or `TPUStrategy`
      where the environment variable `TPU_NAME` names a TPU.
    - JAX: `keras.distribution.DataParallel`, or `ModelParallel` with
      `mode="model"`, over all devices. Set Keras's variables
      `KERAS_DISTRIBUTION_JOB_ADDRESSES`, `..._NUM_PROCESSES` and
      `..._PROCESS_ID` to use several processes.
    - PyTorch: `DistributedDataParallel` between the processes that `torchrun`
      starts, one device per process.

    Call it once, before anything else uses the backend. Set random seeds afterwards,
    because with several JAX processes this function sets a seed that all share.

    Args:
        mode: "auto", "none", "data" or "model". Defaults to `"auto"`: "data"
            with several devices or processes, else "none".
        dead_after: int. Seconds after which a process that stopped without closing
            its connections, as if its host lost power, ends the others with an
            error. On JAX, these are seconds without a heartbeat. On PyTorch, it is
            the timeout of the process group: the longest time that a process waits
            for the others, for example while one evaluates. Defaults to `None`:
            30 on JAX, 1,800 on PyTorch.

    Returns:
        `Distribution`.

    Raises:
        ValueError: if an argument is out of its range, the backend does not support
            the mode, or an environment variable is missing or contradicts the mode.

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
    backend = keras.backend.backend()
    if dead_after is None:
        dead_after = _DEAD_AFTER.get(backend, 1)
    is_right = is_number(dead_after) and dead_after >= 1
    check_in("dead_after", dead_after, is_right, "at least 1")
    if backend != "tensorflow":
        # TensorFlow, if it is installed, only feeds data then, and would occupy the memory of the
        # GPUs.
        with contextlib.suppress(ImportError):
            import tensorflow as tf

            with contextlib.suppress(RuntimeError):  # It is using them already.
                tf.config.set_visible_devices([], "GPU")
    if mode == "model" and backend != "jax":
        raise ValueError(
            "Model parallelism needs the JAX backend (KERAS_BACKEND=jax). Received: "
            f"mode='model' on {backend}"
        )
    # The environment variable with the number of processes. On TensorFlow it is always one.
    variable = "KERAS_DISTRIBUTION_NUM_PROCESSES" if backend == "jax" else "WORLD_SIZE"
    count = 1 if backend == "tensorflow" else int(os.environ.get(variable, "1"))
    if mode == "none":
        if count > 1:
            raise ValueError(
                "`mode` must not be none with several processes. Received: "
                f"{variable}={count} with {backend}"
            )
        return Distribution()
    if backend == "jax":
        return _jax(mode, count, dead_after)
    return _tensorflow(mode) if backend == "tensorflow" else _torch(mode, count, dead_after)


def _tensorflow(mode):
    import json

    import tensorflow as tf

    workers = json.loads(os.environ.get("TF_CONFIG", "{}")).get("cluster", {})
    if sum(len(hosts) for hosts in workers.values()) > 1:
        raise ValueError(
            "Keras 3 trains on a single host with TensorFlow. For several, use KERAS_BACKEND=jax "
            f"or torch. Received: TF_CONFIG={os.environ['TF_CONFIG']}"
        )
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if mode == "auto" and len(devices) == 1 and "TPU_NAME" not in os.environ:
        return Distribution()
    if "TPU_NAME" in os.environ:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)
    else:
        strategy = tf.distribute.MirroredStrategy([device.name for device in devices])
    return Distribution(num_replicas=strategy.num_replicas_in_sync, strategy=strategy)


def _jax(mode, count, dead_after):
    import jax

    if count > 1:
        _connect_jax(count, dead_after)
    devices = jax.device_count()
    if mode == "auto" and devices == 1:
        return Distribution()
    process, count = jax.process_index(), jax.process_count()
    if mode == "model":
        # The devices that share a model exchange activations in each layer. If a host has several
        # devices, each host has a whole model, so that hosts exchange no activations.
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
    """Like `keras.distribution.initialize`, but `dead_after` sets JAX's heartbeat timeout."""
    import jax

    names = ["KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_PROCESS_ID"]
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise ValueError(
            f"{missing[0]} must be set with KERAS_DISTRIBUTION_NUM_PROCESSES={count}. "
            "Received: nothing"
        )
    # Collectives between CPUs in several processes need an explicit implementation.
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        os.environ[names[0]].split(",")[0],
        count,
        int(os.environ[names[1]]),
        heartbeat_timeout_seconds=dead_after,
        # Otherwise a process that fails would wait for the others, which wait for it.
        shutdown_timeout_seconds=dead_after,
    )
    from jax.experimental import multihost_utils

    # Without a common seed the processes would start with different weights.
    seed = np.random.default_rng().integers(2**31, dtype=np.int32)
    keras.utils.set_random_seed(int(multihost_utils.broadcast_one_to_all(seed)))


def _torch(mode, count, dead_after):
    if mode == "auto" and count == 1:
        return Distribution()
    if "WORLD_SIZE" not in os.environ:
        raise ValueError(
            "With PyTorch, start the processes with torchrun. Received: mode='data' without "
            "the variable WORLD_SIZE that torchrun sets"
        )
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    process = int(os.environ["RANK"])
    # torchrun keeps one store for all restarts. Without a prefix, processes would find addresses
    # of an earlier start.
    prefix = f"keras_spanbert/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    has_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"

    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_master = process == 0 and not has_store
    timeout = datetime.timedelta(seconds=_START_SECONDS)
    store = torch.distributed.TCPStore(*place, is_master=is_master, timeout=timeout)
    torch.distributed.init_process_group(
        # Flags and step numbers are exchanged on the CPU.
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=torch.distributed.PrefixStore(prefix, store),
        rank=process,
        world_size=count,
        timeout=datetime.timedelta(seconds=dead_after),
    )
    return Distribution(count, process, count, process, count)

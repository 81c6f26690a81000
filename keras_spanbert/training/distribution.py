"""Training on many devices and hosts, by each backend's own engine."""

import contextlib
import os

import keras
import numpy as np

MODES = ("auto", "none", "data", "model")
# Then the others stop with an error.
_DEAD_AFTER_SECONDS = 30
# Of the transformer and both heads, for ModelParallel: columns of what fans out, rows of what
# fans in, so that a layer exchanges activations once.
_LAYOUT = {
    "token_embedding/embeddings": (None, "model"),
    r".*/(query|key|value)/kernel": (None, "model", None),
    r".*/(query|key|value)/bias": ("model", None),
    r".*/attention_output/kernel": ("model", None, None),
    r".*/feedforward_intermediate_dense/kernel": (None, "model"),
    r".*/feedforward_intermediate_dense/bias": ("model",),
    r".*/feedforward_output_dense/kernel": ("model", None),
    r"mlm_head/intermediate_dense/kernel": (None, "model"),
    r"sbo_head/dense_\d/kernel": (None, "model"),
}


def distribute(mode="auto"):
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
    model.fit(distribution.split(stream.dataset()), steps_per_epoch=1000)
    if distribution.is_main:
        model.save_to_preset("model")
    ```
    """
    if mode not in MODES:
        raise ValueError(f"`mode` must be one of {', '.join(MODES)}. Received: {mode!r}")
    backend = keras.backend.backend()
    if backend != "tensorflow":
        _hide_gpus_from_tensorflow()
    if mode == "model" and backend != "jax":
        raise ValueError(
            "Model parallelism takes the JAX backend (KERAS_BACKEND=jax). Received: "
            f"mode='model' on {backend}"
        )
    engines = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}
    return engines[backend](mode)


class Distribution:
    """What `distribute` set up.

    Attributes:
        num_replicas: int. Parts that a batch is cut into, over all processes.
        num_processes: int.
        process: int. Number of this one.
        is_main: bool. Whether this is the one that writes files.
        part, num_parts: ints. Which part of each batch is this process's.
        num_devices: int. Devices that compute, over all processes.
        feeds_in_loop: bool. Whether `fit` fetches batches between its steps,
            and not in threads beside them.
    """

    def __init__(
        self,
        num_replicas=1,
        process=0,
        num_processes=1,
        part=0,
        num_parts=1,
        num_devices=None,
        strategy=None,
    ):
        self.num_replicas = num_replicas
        self.process = process
        self.num_processes = num_processes
        self.is_main = process == 0
        self.part = part
        self.num_parts = num_parts
        self.num_devices = num_devices or num_replicas
        self.feeds_in_loop = strategy is None
        self._strategy = strategy
        self._copies = {}

    def scope(self):
        """A context manager in which models are built and compiled."""
        return self._strategy.scope() if self._strategy else contextlib.nullcontext()

    def check_batch_size(self, batch_size):
        """Raises a ValueError where the replicas cannot share a batch evenly."""
        if batch_size % self.num_replicas:
            raise ValueError(
                f"The batch size must be a multiple of the {self.num_replicas} devices. Received: "
                f"{batch_size}"
            )

    def split(self, dataset):
        """This process's rows of each batch of a `tf.data.Dataset`.

        All processes read all of the data and mask whole batches, so that these
        do not depend on the number of processes.
        """
        if self.num_parts == 1:
            return dataset
        import tensorflow as tf

        def rows(array):
            if array.shape[0] is None:
                raise ValueError(
                    "A dataset must have batches of one size to be split, as by "
                    f"`batch(..., drop_remainder=True)`. Received: shape {array.shape}"
                )
            size = array.shape[0] // self.num_parts
            return array[self.part * size : (self.part + 1) * size]

        return dataset.map(lambda *batch: tf.nest.map_structure(rows, batch))

    @contextlib.contextmanager
    def local(self, model):
        """Gives the model with its present weights, to save or predict in this process alone.

        Where variables are spread over devices a copy, made in all processes
        together, else the model itself.
        """
        if keras.distribution.distribution() is None and self._strategy is None:
            yield model
            return
        values = [to_numpy(variable) for variable in model.variables]
        with without_distribution():
            if model not in self._copies:
                copy = self._copies[model] = model.__class__.from_config(model.get_config())
                copy.preprocessor = model.preprocessor  # A vocabulary is not in the config.
            copy = self._copies[model]
            for variable, value in zip(copy.variables, values):
                variable.assign(value)
            yield copy

    def any_process(self, flag):
        """Whether `flag` is true in any process; all must ask."""
        return flag if self.num_processes == 1 else any(of_all_processes(int(flag)))

    def close(self):
        """Ends the work together, all processes at once: each goes on, or ends, alone."""
        keras.distribution.set_distribution(None)
        self._strategy = None
        if self.num_processes == 1:
            return
        if keras.backend.backend() == "jax":
            import jax

            jax.distributed.shutdown()
        else:
            import torch

            torch.distributed.destroy_process_group()


def to_numpy(variable):
    """The whole value of a variable, whose parts may be in other processes: all must ask."""
    if keras.backend.backend() == "jax" and not variable.value.is_fully_addressable:
        if not variable.value.is_fully_replicated:
            from jax.experimental import multihost_utils

            return np.asarray(multihost_utils.process_allgather(variable.value, tiled=True))
    return keras.ops.convert_to_numpy(variable)


def process_index():
    """Number of this process among those that train together."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.process_index()
    if num_torch_processes() > 1:
        import torch

        return torch.distributed.get_rank()
    return 0


def of_all_processes(number):
    """The integers that the processes give, as a list: all must ask."""
    if keras.backend.backend() == "jax":
        import jax
        from jax.experimental import multihost_utils

        if jax.process_count() == 1:
            return [number]
        return multihost_utils.process_allgather(np.array(number)).tolist()
    if num_torch_processes() == 1:
        return [number]
    import torch

    numbers = [torch.tensor(number) for _ in range(num_torch_processes())]
    torch.distributed.all_gather(numbers, torch.tensor(number))
    return [int(number) for number in numbers]


def barrier():
    """Waits for all processes."""
    of_all_processes(0)


def check_shards(**sizes):
    """Raises a ValueError where `ModelParallel` cannot cut a model of these sizes."""
    engine = keras.distribution.distribution()
    if not isinstance(engine, keras.distribution.ModelParallel):
        return
    shards = dict(zip(engine.device_mesh.axis_names, engine.device_mesh.shape)).get("model", 1)
    for name, size in sizes.items():
        if size % shards:
            raise ValueError(
                f"`{name}` must be a multiple of the {shards} devices that share a model "
                f"(mode='data' has no such limit). Received: {name}={size}"
            )


# === Engines ===


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


def _jax(mode):
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
        _connect_jax(count)
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
        layout = keras.distribution.LayoutMap(mesh)
        for path, axes in _LAYOUT.items():
            layout[path] = axes
        engine = keras.distribution.ModelParallel(
            layout_map=layout, batch_dim_name="batch", auto_shard_dataset=False
        )
        replicas = devices // shards
    else:
        engine = keras.distribution.DataParallel(auto_shard_dataset=False)
        replicas = devices
    keras.distribution.set_distribution(engine)
    parts = min(count, replicas)
    return Distribution(replicas, process, count, process * parts // count, parts, devices)


def _connect_jax(count):
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
        heartbeat_timeout_seconds=_DEAD_AFTER_SECONDS,
        # A process that ends by an error would wait for the others, which wait for it.
        shutdown_timeout_seconds=_DEAD_AFTER_SECONDS,
    )
    from jax.experimental import multihost_utils

    # Else the processes would begin with different weights.
    seed = np.random.default_rng().integers(2**31, dtype=np.int32)
    keras.utils.set_random_seed(int(multihost_utils.broadcast_one_to_all(seed)))


def _torch(mode):
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
    # Flags and steps are exchanged on the CPU.
    torch.distributed.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    )
    process = torch.distributed.get_rank()
    return Distribution(count, process, count, process, count)


def _hide_gpus_from_tensorflow():
    """So that TensorFlow, which only feeds data, leaves their memory to the backend."""
    try:
        import tensorflow as tf
    except ImportError:
        return
    with contextlib.suppress(RuntimeError):  # It has begun to use them already.
        tf.config.set_visible_devices([], "GPU")


# === Within a step ===


def mean_over_replicas(x):
    """The mean of a tensor over the replicas of a step; JAX has but one by itself."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return x
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, x)
    if num_torch_processes() == 1 or x.device.type == "meta":
        return x
    import torch

    mean = x.detach() / num_torch_processes()
    torch.distributed.all_reduce(mean)
    return mean


def summed_over_replicas(tensors):
    """The sums of tensors over TensorFlow's replicas, and how many these are.

    On the other backends tensors are already those of all replicas, and it is 1.
    """
    if keras.backend.backend() != "tensorflow":
        return tensors, 1
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tensors, 1
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tensors), context.num_replicas_in_sync


def num_torch_processes():
    if keras.backend.backend() != "torch":
        return 1
    import torch

    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    return torch.distributed.get_world_size()


def with_exchanged_gradients(model, call):
    """A PyTorch module that calls `call`, whose gradients are the mean over all processes."""
    import torch

    class Forward(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *args, **kwargs):
            return call(*args, **kwargs)

    return torch.nn.parallel.DistributedDataParallel(Forward())


@contextlib.contextmanager
def summed_over_processes(metrics):
    """Within, PyTorch's metrics are those of all processes together."""
    variables = [variable for metric in metrics for variable in metric.variables]
    if num_torch_processes() == 1 or not variables:
        yield
        return
    import torch

    own = [variable.value.detach().clone() for variable in variables]
    sums = torch.cat([value.reshape(-1).to(torch.float64) for value in own])
    torch.distributed.all_reduce(sums)
    for variable, part in zip(variables, sums.split([value.numel() for value in own])):
        variable.assign(part.reshape(variable.shape))
    try:
        yield
    finally:
        for variable, value in zip(variables, own):
            variable.assign(value)


@contextlib.contextmanager
def without_distribution():
    """Within, what is computed is this process's own."""
    distribution = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        yield
    finally:
        keras.distribution.set_distribution(distribution)

"""Training on many devices with TensorFlow, JAX and PyTorch."""

import contextlib
import dataclasses
import datetime
import json
import os
from collections.abc import Callable, Iterator

import keras
import numpy as np

from keras_spanbert.checks import check_in, is_number
from keras_spanbert.layers.layout import new_layout
from keras_spanbert.optional import jax, multihost_utils, tf, torch

MODES = ("auto", "none", "data", "model")
# Seconds that processes wait for one another at the start.
_START_SECONDS = 300
# Defaults of `dead_after`. With PyTorch, a process also waits while another one evaluates or saves.
_DEAD_AFTER = {"jax": 30, "torch": 1800}
_RULE = (
    "On JAX, the devices share the rows of each batch evenly. The number of rows in each batch, "
    "including the last one, must be a multiple of the {shards} devices. Received: {received}"
)


# === Communication between the processes, and the replicas of a step ===
def to_numpy(variable: keras.Variable) -> np.ndarray:
    """Returns the whole value of a variable. All processes must call it: each may have a part."""
    if is_sharded(variable):
        return np.asarray(multihost_utils.process_allgather(variable.value, tiled=True))
    return keras.ops.convert_to_numpy(variable)


def assign(variable: keras.Variable, array) -> None:
    """Sets a variable to an array with the same value in all processes.

    If the variable is split over processes, only slices of this process's parts are read.
    """
    if not is_sharded(variable):
        variable.assign(np.asarray(array))
        return
    now = variable.value
    variable.assign(
        jax.make_array_from_callback(
            now.shape, now.sharding, lambda index: array[index].astype(now.dtype)
        )
    )


def is_sharded(variable: keras.Variable) -> bool:
    """Returns whether this process may have only parts of a variable, which happens on JAX only."""
    if keras.backend.backend() != "jax":
        return False
    value = variable.value
    return not (value.is_fully_addressable or value.is_fully_replicated)


def process_index() -> int:
    """Returns the index of this process among those that train together."""
    if keras.backend.backend() == "jax":
        return jax.process_index()
    return torch.distributed.get_rank() if num_torch_processes() > 1 else 0


def all_gather(number: int) -> list[int]:
    """Returns the integers of all processes, as a list. All processes must call it."""
    if keras.backend.backend() == "jax" and jax.process_count() > 1:
        return multihost_utils.process_allgather(np.array(number)).tolist()
    if num_torch_processes() == 1:
        return [number]
    numbers = [torch.tensor(number) for _ in range(num_torch_processes())]
    torch.distributed.all_gather(numbers, torch.tensor(number))
    return [int(number) for number in numbers]


def barrier() -> None:
    """Waits for all processes."""
    all_gather(0)


def num_torch_processes() -> int:
    """Returns the number of PyTorch processes that train together, 1 on other backends."""
    if keras.backend.backend() != "torch":
        return 1
    import torch  # PyTorch's compiler cannot trace the import of `optional`.

    is_joined = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed.get_world_size() if is_joined else 1


def mean_over_replicas(x):
    """Returns the mean of a tensor over the replicas of a step. On JAX it is that of the batch."""
    if keras.backend.backend() == "tensorflow":
        context = tf.distribute.get_replica_context()
        if context is None or context.num_replicas_in_sync == 1:
            return x
        return context.all_reduce(tf.distribute.ReduceOp.MEAN, x)
    if num_torch_processes() == 1 or x.device.type == "meta":
        return x
    mean = x.detach() / num_torch_processes()
    torch.distributed.all_reduce(mean)
    return mean


def sum_over_replicas(tensors):
    """Returns the sums of tensors, or `None`, over TensorFlow's replicas, and their number.

    On the other backends, gradients are already combined, and the number is 1. `IndexedSlices`
    become dense tensors, because the norm of separate rows is not the norm of the gradient.
    """
    if keras.backend.backend() != "tensorflow":
        return tensors, 1
    tensors = [tensor if tensor is None else tf.convert_to_tensor(tensor) for tensor in tensors]
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return tensors, 1
    given = [tensor for tensor in tensors if tensor is not None]
    sums = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, given))
    sums = [tensor if tensor is None else next(sums) for tensor in tensors]
    return sums, context.num_replicas_in_sync


def wrap_in_ddp(model: keras.Model, call: Callable):
    """Returns a PyTorch module that calls `call` and averages gradients over all processes."""

    class Forward(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *args, **kwargs):
            return call(*args, **kwargs)

    return torch.nn.parallel.DistributedDataParallel(Forward())


@contextlib.contextmanager
def sync_metrics(metrics: list[keras.Metric]) -> Iterator[None]:
    """Context manager in which metrics have the results of all PyTorch processes together.

    It adds up their variables, and restores this process's own values at the end.
    """
    variables = [variable for metric in metrics for variable in metric.variables]
    if num_torch_processes() == 1 or not variables:
        yield
        return
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


# === Batches whose rows JAX divides over its devices ===
def num_batch_shards() -> int:
    """Returns how many equal parts JAX divides this process's rows of a batch into, or 1."""
    engine = keras.distribution.distribution()
    if engine is None or keras.backend.backend() != "jax":
        return 1
    shards = engine.device_mesh.backend_mesh.shape[engine.batch_dim_name]
    return max(1, shards // jax.process_count())


def check_even_rows(num_rows: int, batch_size: int | None) -> None:
    """Raises `ValueError` if the devices cannot share one of the batches evenly."""
    shards = num_batch_shards()
    batch_size = min(batch_size or 32, num_rows)
    if num_rows % shards or batch_size % shards:
        received = f"{num_rows} rows in batches of {batch_size}"
        raise ValueError(_RULE.format(shards=shards, received=received))


@contextlib.contextmanager
def even_batches(model: keras.Model) -> Iterator[None]:
    """On JAX, explains errors about uneven batches, and restores the weights after any error."""
    if keras.backend.backend() != "jax":
        yield
        return
    of_optimizer = model.optimizer.variables if model.optimizer else []
    variables = [*model.variables, *of_optimizer, *model.metrics_variables]
    values = [variable.value for variable in variables]
    try:
        yield
    except Exception as error:
        # Keras took the weights out of the model. Restore those of the last step.
        model.jax_state_sync()
        for variable, value in zip(variables, values):
            try:
                variable.value  # noqa: B018
            except TypeError:  # There was no step yet, and the initializer is `None` by now.
                variable.assign(value)
        shards = num_batch_shards()
        if shards == 1 or type(error).__name__ != "IndivisibleError":
            raise
        received = str(error).split("but ")[-1].split(" (")[0]
        raise ValueError(_RULE.format(shards=shards, received=received)) from error


def pad_to_batch_shards(x, num_rows: int):
    """Pads arrays with copies of the last row, so that the devices can share the rows evenly."""
    missing = -num_rows % num_batch_shards()
    if not missing:
        return x
    rows = np.minimum(np.arange(num_rows + missing), num_rows - 1)
    return keras.tree.map_structure(
        lambda a: None if a is None else keras.ops.convert_to_numpy(a)[rows], x
    )


# === The devices and processes ===
@dataclasses.dataclass(eq=False, repr=False)
class Distribution:
    """The devices and processes that train together, as returned by `distribute`.

    Attributes:
        num_replicas: int. Number of replicas of the model, over all processes.
        num_processes: int.
        process: int. The index of this process.
        is_main: bool. Whether this process writes files.
        part, num_parts: ints. The index of this process's part of each batch,
            and the number of parts.
        num_devices: int. Number of devices that compute, over all processes.
        strategy: the `tf.distribute.Strategy`, `None` without one.
        feeds_in_loop: bool. Whether `fit` fetches batches between its steps
            instead of in other threads.
    """

    num_replicas: int = 1
    process: int = 0
    num_processes: int = 1
    part: int = 0
    num_parts: int = 1
    num_devices: int | None = None
    strategy: object = None

    def __post_init__(self):
        self.is_main = self.process == 0
        self.num_devices = self.num_devices or self.num_replicas
        self.feeds_in_loop = self.strategy is None
        self._copies = {}

    def scope(self):
        """Returns a context manager in which models are built and compiled."""
        return self.strategy.scope() if self.strategy else contextlib.nullcontext()

    def check_batch_size(self, batch_size: int) -> None:
        """Raises `ValueError` if the replicas cannot share a batch evenly."""
        rule = f"a multiple of the {self.num_replicas} replicas"
        check_in("batch_size", batch_size, batch_size % self.num_replicas == 0, rule)

    def dataset(self, stream):
        """Returns this process's rows of each batch of a stream, as a `tf.data.Dataset`."""
        return stream.dataset(self.part, self.num_parts)

    def split(self, dataset):
        """Returns this process's rows of each batch of a `tf.data.Dataset`.

        All processes make complete batches. With `dataset` they make only their own rows.
        """
        if self.num_parts == 1:
            return dataset

        def rows(array):
            if array.shape[0] is None:
                raise ValueError(
                    "A dataset must have batches of one size to be split, as by "
                    f"`batch(..., drop_remainder=True)`. Received: shape {array.shape}"
                )
            size, remainder = divmod(array.shape[0], self.num_parts)
            if remainder:
                raise ValueError(
                    f"The batch size must be a multiple of {self.num_parts}, because the processes "
                    f"split each batch into {self.num_parts} equal parts. Received: "
                    f"shape {array.shape}"
                )
            return array[self.part * size : (self.part + 1) * size]

        return dataset.map(lambda *batch: tf.nest.map_structure(rows, batch))

    @contextlib.contextmanager
    def local(self, model: keras.Model) -> Iterator[keras.Model]:
        """Yields the model with its present weights, to save or predict in this process alone.

        Without a Keras distribution and a TensorFlow strategy, this is the model itself. Otherwise
        it is a copy, which all processes must make together and which the next call uses again.
        """
        engine = keras.distribution.distribution()
        if engine is None and self.strategy is None:
            yield model
            return
        values = [to_numpy(variable) for variable in model.variables]
        keras.distribution.set_distribution(None)
        try:
            if model not in self._copies:
                self._copies[model] = model.new_copy()
            copy = self._copies[model]
            for variable, value in zip(copy.variables, values):
                variable.assign(value)
            yield copy
        finally:
            keras.distribution.set_distribution(engine)

    def any_process(self, flag: bool) -> bool:
        """Returns whether `flag` is true in any process. All processes must call it."""
        return flag if self.num_processes == 1 else any(all_gather(int(flag)))

    def close(self) -> None:
        """Ends the joint work of the processes. All must call it. Then each can continue alone."""
        keras.distribution.set_distribution(None)
        self.strategy = None
        if self.num_processes == 1:
            return
        if keras.backend.backend() == "jax":
            jax.distributed.shutdown()
        else:
            # All close at the same time, so that a slow process still finds the store.
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()


def distribute(mode: str = "auto", dead_after: int | None = None) -> Distribution:
    """Makes models that are built afterwards train on all devices of all processes.

    Batches, losses and metrics are those of one process with the whole batch.

    - TensorFlow: `MirroredStrategy` over the GPUs of a host, or `TPUStrategy`
      where the environment variable `TPU_NAME` names a TPU.
    - JAX: `keras.distribution.DataParallel`, or `ModelParallel` with `mode="model"`, over all
      devices. Set Keras's variables `KERAS_DISTRIBUTION_JOB_ADDRESSES`, `..._NUM_PROCESSES` and
      `..._PROCESS_ID` to use several processes.
    - PyTorch: `DistributedDataParallel` between the processes that `torchrun`
      starts, one device per process.

    Call it once, before anything else uses the backend. Set random seeds afterwards:
    several JAX processes get a common seed here.

    Args:
        mode: "auto", "none", "data" or "model". Defaults to `"auto"`: "data"
            with several devices or processes, else "none".
        dead_after: int. Seconds after which a process that stopped without closing its connections,
            as if its host lost power, ends the others with an error. On JAX, seconds without a
            heartbeat. On PyTorch, the longest time that a process waits for the others, for example
            while one evaluates. Defaults to `None`: 30 on JAX, 1,800 on PyTorch.

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
    check_in("mode", mode, mode in MODES, f"one of {', '.join(MODES)}")
    backend = keras.backend.backend()
    if dead_after is None:
        dead_after = _DEAD_AFTER.get(backend, 1)
    is_right = is_number(dead_after) and dead_after >= 1
    check_in("dead_after", dead_after, is_right, "at least 1")
    if backend != "tensorflow":
        # TensorFlow only feeds data then, and would occupy the memory of the GPUs. It may not be
        # installed, or use them already.
        with contextlib.suppress(ImportError, RuntimeError):
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
    # Without a common seed the processes would start with different weights.
    seed = np.random.default_rng().integers(2**31, dtype=np.int32)
    keras.utils.set_random_seed(int(multihost_utils.broadcast_one_to_all(seed)))


def _torch(mode, count, dead_after):
    if mode == "auto" and count == 1:
        return Distribution()
    names = ["WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"]
    if missing := [name for name in names if name not in os.environ]:
        raise ValueError(
            f"With PyTorch, start the processes with torchrun. Received: mode={mode!r} without "
            f"the variable {missing[0]} that torchrun sets"
        )
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

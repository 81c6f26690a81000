"""The devices and processes that train together, as returned by `distribute`."""

import contextlib
import dataclasses
from collections.abc import Iterator

import keras

from keras_spanbert.distribution.processes import all_gather, to_numpy, without_distribution


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
        if batch_size % self.num_replicas:
            raise ValueError(
                f"The batch size must be a multiple of the {self.num_replicas} replicas. Received: "
                f"{batch_size}"
            )

    def dataset(self, stream):
        """Returns this process's rows of each batch of a stream, as a `tf.data.Dataset`."""
        return stream.dataset(self.part, self.num_parts)

    def split(self, dataset):
        """Returns this process's rows of each batch of a `tf.data.Dataset`.

        All processes make complete batches. With `dataset` they make only their own rows.
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
        if keras.distribution.distribution() is None and self.strategy is None:
            yield model
            return
        values = [to_numpy(variable) for variable in model.variables]
        with without_distribution():
            if model not in self._copies:
                self._copies[model] = model.new_copy()
            copy = self._copies[model]
            for variable, value in zip(copy.variables, values):
                variable.assign(value)
            yield copy

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
            import jax

            jax.distributed.shutdown()
        else:
            import torch

            # All close at the same time, so that a slow process still finds the store.
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()

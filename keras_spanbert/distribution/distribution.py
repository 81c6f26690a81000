"""The devices and processes that train together, as `distribute` set them up."""

import contextlib
from collections.abc import Iterator

import keras

from keras_spanbert.distribution.processes import all_gather, to_numpy, without_distribution


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
        num_replicas: int = 1,
        process: int = 0,
        num_processes: int = 1,
        part: int = 0,
        num_parts: int = 1,
        num_devices: int | None = None,
        strategy=None,
        heartbeats=None,
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
        self._heartbeats = heartbeats
        self._copies = {}

    def scope(self):
        """A context manager in which models are built and compiled."""
        return self._strategy.scope() if self._strategy else contextlib.nullcontext()

    def check_batch_size(self, batch_size: int) -> None:
        """Raises a ValueError where the replicas cannot share a batch evenly."""
        if batch_size % self.num_replicas:
            raise ValueError(
                f"The batch size must be a multiple of the {self.num_replicas} devices. Received: "
                f"{batch_size}"
            )

    def dataset(self, stream):
        """This process's rows of each batch of a stream, as `tf.data.Dataset`.

        Args:
            stream: `Corpus.stream`, `PreparedCorpus.stream` or `ArrayStream`,
                which says what of the rows of others a process reads.
        """
        return stream.dataset(self.part, self.num_parts)

    def split(self, dataset):
        """This process's rows of each batch of a `tf.data.Dataset`.

        All processes make all batches; `dataset` has them make their own rows.
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
    def local(self, model: keras.Model, keep: bool = True) -> Iterator[keras.Model]:
        """Gives the model with its present weights, to save or predict in this process alone.

        Where variables are spread over devices a copy, made in all processes
        together, else the model itself.

        Args:
            model: a task.
            keep: bool. Whether to keep the copy for the next time. Defaults to
                `True`.
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
        if not keep:
            del self._copies[model]

    def any_process(self, flag: bool) -> bool:
        """Whether `flag` is true in any process; all must ask."""
        return flag if self.num_processes == 1 else any(all_gather(int(flag)))

    def close(self) -> None:
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

            # Together, lest one that is slow to come find no store any more.
            torch.distributed.barrier()
            self._heartbeats.stop()
            torch.distributed.destroy_process_group()

"""A training step on PyTorch without work per layer and variable, or as a CUDA graph."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator

import keras
import numpy as np
import torch

from keras_spanbert.distribution import num_torch_processes, sync_metrics
from keras_spanbert.keras_private import TrainerParts, call_directly, current_values
from keras_spanbert.wording import LOG

# Steps before a capture, in which kernels are compiled and chosen.
WARM_UP_STEPS = 3
# Each graph keeps its own inputs and results. Intermediate values share one pool of memory.
MAX_GRAPHS = 16


class TorchStep:
    """Keras's `train_step` of a model, with less work per step.

    The optimizer, loss and metrics must be built.
    On one GPU, steps that are compiled (`compiles`) and do the same each time become CUDA graphs.
    """

    def __init__(self, model: keras.Model, compiles: bool):
        # Keras's step finds the variables three times and the metrics once, by visiting all layers.
        self._parts = TrainerParts(model)
        self._variables = model.trainable_variables
        self._parameters = current_values(self._variables)
        self._all_parameters = current_values(model.weights)
        self._are_trainable = [x.requires_grad for x in self._all_parameters]
        self._graphs = None
        device = self._parameters[0].device
        is_fixed = self._parts.are_fixed and num_torch_processes() == 1 and device.type == "cuda"
        if compiles and is_fixed and device.index == torch.cuda.current_device():
            self._graphs = StepGraphs()
            self._addresses = self._find_addresses()

    @classmethod
    def of(
        cls, model: keras.Model, previous: "TorchStep | None", compiles: bool
    ) -> "TorchStep | None":
        """Returns the step of a model, `previous` if it fits, or `None` if Keras's is needed."""
        if previous is not None and previous._fits(model):
            return previous
        # Keras's step is needed before the loss is built, if nothing is trained, and for layers of
        # other libraries or the user's own, whose methods and hooks only Keras calls.
        return cls(model, compiles) if TrainerParts.are_enough(model) else None

    def _fits(self, model):
        """Returns whether the model has the same optimizer and trains the same variables."""
        if self._graphs is not None and self._addresses != self._find_addresses():
            return False  # Weights were moved, for example by `model.cpu()`.
        are_same = self._are_trainable == [x.requires_grad for x in self._all_parameters]
        return are_same and self._parts.optimizer is model.optimizer

    def _find_addresses(self):
        return [parameter.data_ptr() for parameter in self._all_parameters]

    def __call__(self, model: keras.Model, data) -> dict:
        """Trains the model on a batch, and returns its metrics."""
        if self._graphs is None:
            return self._compute(model, data)
        # The graphs must not keep the function: only the garbage collector would free a circle.
        return self._graphs(functools.partial(self._compute, model), data)

    def _compute(self, model, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        y_pred = call_directly(model, x, training=True)
        for parameter in self._parameters:
            parameter.grad = None
        loss = self._parts.compute_loss(model, x, y, y_pred, sample_weight)
        self._parts.optimizer.scale_loss(loss).backward()
        with torch.no_grad():
            gradients = [parameter.grad for parameter in self._parameters]
            self._parts.optimizer.apply(gradients, self._variables)
            self._parts.update_metrics(model, y, y_pred, sample_weight)
            with sync_metrics(self._parts.metrics):
                return self._parts.results()


# === CUDA graphs, which need no work per kernel on the host ===
class StepGraphs:
    """Calls a training step, and replays it as a CUDA graph for batches of shapes that recur.

    A replay repeats nothing of the host's part: rates of dropout, for example, do not change. If a
    step cannot be captured, it is called as usual.
    """

    def __init__(self):
        # A step launches more than a thousand kernels, for which the host needs longer than a GPU
        # computes. A graph is launched at once, on the memory of the captured step, so that a batch
        # is copied there first: https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs.
        self._graphs = {}  # By the shapes of a batch: a graph, or how often they occurred.
        self._pool = torch.cuda.graph_pool_handle()
        self._is_possible = True

    def __call__(self, step: Callable, data) -> dict:
        """Computes a step, a function of tensors on the GPU that returns a dict of scalar tensors.

        The step must do the same in each call. `data`, its argument, is a structure of arrays or
        tensors, some of them `None`.
        """
        data = keras.tree.map_structure(
            lambda x: x if x is None or torch.is_tensor(x) else keras.ops.convert_to_tensor(x), data
        )
        arrays = keras.tree.flatten(data)
        shapes = tuple(None if x is None else (x.shape, x.dtype) for x in arrays)
        found = self._graphs.get(shapes, 0)
        if isinstance(found, _Graph):
            return found.replay(arrays)
        data = keras.tree.map_structure(
            lambda x: None if x is None else _pinned(x).to("cuda", non_blocking=True), data
        )
        num_graphs = sum(isinstance(graph, _Graph) for graph in self._graphs.values())
        if not self._is_possible or found < WARM_UP_STEPS or num_graphs == MAX_GRAPHS:
            self._graphs[shapes] = found + 1
            return step(data)
        stream = torch.cuda.current_stream()
        try:
            graph = _Graph(step, data, self._pool)
        except Exception as error:
            # For example a loss or a metric that reads a number, or too little memory.
            torch.cuda.set_stream(stream)  # A failed capture does not do this.
            self._is_possible = False
            LOG.warning(
                "This training step cannot be a CUDA graph, so steps are slower: %s: %s",
                type(error).__name__,
                str(error).strip().split("\n")[0],
            )
            return step(data)
        self._graphs[shapes] = graph
        return graph.replay(arrays)


class _Graph:
    """A captured step, its inputs and its results."""

    def __init__(self, step, data, pool):
        # Copies, because a caller may use tensors again that are on the GPU.
        data = keras.tree.map_structure(lambda x: None if x is None else x.clone(), data)
        self._inputs = keras.tree.flatten(data)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads, which prepare batches, may allocate memory meanwhile.
        with (
            scalars_on_device(),
            torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"),
        ):
            self._results = step(data)
        for name, result in self._results.items():
            if not torch.is_tensor(result):
                raise TypeError(f"the result of {name} is no tensor")

    def replay(self, arrays):
        for kept, array in zip(self._inputs, arrays):
            if kept is not None:
                kept.copy_(_pinned(array), non_blocking=True)
        self._graph.replay()
        # The next replay overwrites them.
        return {name: result.clone() for name, result in self._results.items()}


def _pinned(array):
    """Returns an array of the host in memory from which a GPU copies without a wait."""
    return array if array.is_cuda else array.pin_memory()


_replacing = threading.Lock()


@contextlib.contextmanager
def scalars_on_device() -> Iterator[None]:
    """Inside this context, Keras creates PyTorch's scalars and shapes on the device.

    A CUDA graph cannot copy them from the host.
    """
    thread = threading.get_ident()

    def create(data, dtype=None, device=None):
        is_other_thread = threading.get_ident() != thread
        if is_other_thread or isinstance(data, torch.Tensor) or not 0 < np.size(data) <= 8:
            return as_tensor(data, dtype=dtype, device=device)
        dtype = dtype or as_tensor(data).dtype
        numbers = np.ravel(data).tolist()
        created = [torch.full((), x, dtype=dtype, device=device) for x in numbers]
        return torch.stack(created).reshape(np.shape(data))

    with _replacing:
        as_tensor, torch.as_tensor = torch.as_tensor, create
        try:
            yield
        finally:
            torch.as_tensor = as_tensor

"""The reports of a run: progress, history, and a record of its settings."""

import contextlib
import math
import platform
import time
from collections.abc import Callable
from importlib import metadata

import keras

from keras_spanbert.files import write_csv
from keras_spanbert.models.task import SpanBertTask
from keras_spanbert.runs.cost import StepCost
from keras_spanbert.runs.progress import ProgressLine

FILES = ["metrics.json", "history.csv", "run.json", "loss.png", "span_lengths.png"]

_PACKAGES = [
    "keras-spanbert", "keras", "keras-hub", "tensorflow", "tensorflow-text", "jax", "torch",
    "tokenizers", "numpy",
]  # fmt: skip


class TrainingReport(keras.callbacks.Callback):
    """Shows progress, and writes a row of the CSV file `path` for each evaluation.

    The `task` is the model, which says what to show and which score selects the best model.
    `evaluate` returns the scores at the end of each epoch, and `save_best` is called if no earlier
    score is better. After `patience` evaluations without a better score, training stops.
    `tensorboard` is a folder for scalars. Call `fit` with `verbose=0`: this replaces Keras's bar.
    """

    def __init__(
        self,
        path: str | None,
        total_steps: int,
        tokens_per_step: int,
        task: SpanBertTask,
        cost: StepCost | None = None,
        tensorboard: str | None = None,
        evaluate: Callable[[], dict] | None = None,
        save_best: Callable[[], None] | None = None,
        patience: int | None = None,
    ):
        super().__init__()
        self.task = task
        self.evaluate = evaluate
        self.save_best = save_best
        self.patience = patience
        self.progress = ProgressLine()
        self.best = {}  # The scores of the best model.
        self.path = path
        self.total_steps = total_steps
        self.tokens_per_step = tokens_per_step
        self.cost = cost
        self.tensorboard = tensorboard
        self.step = 0
        self.rows = []  # One per evaluation.
        self._writer = None
        self._since = None
        self._interval = {}
        self._began = None
        self._seconds = 0.0  # Seconds of a resumed run before this process.

    def get_state(self):
        """Returns the state for `set_state` in a resumed run: see `TrainingCheckpoint`."""
        seconds = self.seconds()
        return {"step": self.step, "rows": self.rows, "seconds": seconds, "best": self.best}

    def set_state(self, state: dict):
        self.step, self.rows, self._seconds = state["step"], state["rows"], state["seconds"]
        self.best = state["best"]

    def seconds(self) -> float:
        """Returns the seconds of training so far, including evaluations."""
        return self._seconds if self._began is None else time.perf_counter() - self._began

    def record_start(self, logs: dict) -> None:
        """Records an evaluation before the first step."""
        row = {"step": 0, "seconds": 0.0, "tokens_per_second": ""}
        row.update((f"val_{name}", float(value)) for name, value in logs.items())
        self._record(row, "before training")

    def close(self) -> None:
        """Clears the terminal's line after training ends in any way."""
        self.progress.clear()

    def on_train_begin(self, logs=None):
        self._began = time.perf_counter() - self._seconds
        self._first_step = None  # Set when the first call returns, which compiles.
        # PyTorch compiles on request and on GPUs.
        compiles = getattr(self.model, "_compiles_steps", keras.backend.backend() != "torch")
        self.progress.log(f"{'Compiling' if compiles else 'Running'} the first step")

    def on_epoch_begin(self, epoch, logs=None):
        self._since = None
        self._interval = {}
        self._batches = 0

    def on_train_batch_begin(self, batch, logs=None):
        # The clock starts at the interval's second call, because the first one may compile.
        if batch > 0 and self._since is None:
            self._since = (time.perf_counter(), self.step, self.cost and self.cost.now())

    def on_train_batch_end(self, batch, logs=None):
        # With `steps_per_execution`, one call has several steps.
        self.step += batch + 1 - self._batches
        self._batches = batch + 1
        if self._first_step is None:
            self._first_step, self._first_ended = self.step, time.perf_counter()
        if self.step >= self.total_steps and self._batches < self.params["steps"]:
            self.model.stop_training = True  # In the middle of the last interval.
        if self.progress.is_due():
            self.progress.show(self.step, self.total_steps, self._progress_fields(logs or {}))

    def on_test_begin(self, logs=None):
        # Evaluation does not count as training time.
        if self._since is not None:
            self._interval = self._interval_metrics()

    def on_test_batch_end(self, batch, logs=None):
        if self.progress.is_due():
            self.progress.show(self.step, self.total_steps, [f"evaluating, batch {batch + 1:,}"])

    def on_epoch_end(self, epoch, logs=None):
        scores = {}
        if self.evaluate:
            self.on_test_begin()  # Scoring does not count as training time.
            self.progress.show(self.step, self.total_steps, ["evaluating"])
            scores = self.evaluate()
        # A metric of the training batches may have the same name as a score, but it is a fraction.
        logs = {**{n: v for n, v in logs.items() if n not in self.task.scores}, **scores}
        interval = self._interval or (self._interval_metrics() if self._since else {})
        row = {"step": self.step, "seconds": round(self.seconds(), 1), "tokens_per_second": ""}
        if "loss" in logs:
            row["learning_rate"] = float(self.model.optimizer.learning_rate)
        row.update(interval)
        row.update((k, float(v)) for k, v in logs.items() if k not in row)
        speed = [f"{row['tokens_per_second']:,} tokens/s"] if interval else []
        self._record(row, "  ".join([*speed, *self._time_left()]))
        name = self.task.best_score
        if scores and name and name not in scores:
            raise ValueError(f"An evaluation must return the score {name!r}. Received: {scores}")
        # Small evaluation data often have equal scores. The later model has learned more.
        if name in scores and scores[name] >= self.best.get(name, -math.inf):
            self.best = {**scores, "best_step": self.step}
            if self.save_best:
                self.save_best()
        if self.is_out_of_patience() and self.step < self.total_steps:
            label = self.task.scores[name]
            self.progress.log(f"Stopping: {self.patience} evaluations without a better {label}")
            self.model.stop_training = True

    def is_out_of_patience(self) -> bool:
        """Returns whether the last `patience` evaluations have not improved the score."""
        scores = [row[self.task.best_score] for row in self.rows] if self.patience else []
        return bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= self.patience

    def _progress_fields(self, logs):
        """Returns figures of the steps since the last evaluation, the most important first."""
        figures = self._interval_metrics() if self._since else {}
        shown = self._time_left()
        if "loss" in logs:
            shown.append(f"loss {float(logs['loss']):.3f}")
        if figures:
            shown.append(f"{figures['tokens_per_second']:,} tokens/s")
        labels = self.task.progress_labels
        shown += [f"{label} {logs[name]:.3f}" for name, label in labels.items() if name in logs]
        if "step_ms" in figures:
            shown.append(f"{figures['step_ms']:.0f} ms per step")
        return shown

    def _time_left(self):
        """Returns the time left in a list, which is empty while it is unknown."""
        steps = self.step - self._first_step  # The first one compiles.
        if not steps:
            return []
        since_first = (time.perf_counter() - self._first_ended) / steps
        minutes, seconds = divmod(int(since_first * (self.total_steps - self.step)), 60)
        hours = f"{minutes // 60}:{minutes % 60:02d}" if minutes >= 60 else minutes
        return [f"{hours}:{seconds:02d} left"]

    def _interval_metrics(self):
        started, first_step, cost = self._since
        steps = self.step - first_step
        seconds = max(time.perf_counter() - started, 1e-9)
        figures = {"tokens_per_second": round(steps * self.tokens_per_step / seconds)}
        return {**figures, **(self.cost.figures(cost, steps) if cost else {})}

    def _record(self, row, progress):
        self.rows.append(row)
        if self.path:
            write_csv(self.path, self.rows)
        if self.tensorboard:
            import tensorflow as tf

            if self._writer is None:
                self._writer = tf.summary.create_file_writer(self.tensorboard)
            with self._writer.as_default():
                for name, value in row.items():
                    if name != "step" and value != "":
                        tf.summary.scalar(name, value, step=row["step"])
            self._writer.flush()
        step = f"step {row['step']:,}/{self.total_steps:,}"
        rate = f"lr {row['learning_rate']:.1e}" if "learning_rate" in row else ""
        parts = [step, self.task.describe(row), rate, progress]
        self.progress.log("  ".join(filter(None, parts)))


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the installed packages, by name."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found

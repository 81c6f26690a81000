"""What a run writes beside its preset: figures, a history, plots."""

import contextlib
import csv
import json
import math
import os
import platform
import time
from importlib import metadata

import keras
import numpy as np

FILES = ["metrics.json", "history.csv", "run.json", "loss.png", "span_lengths.png"]


class TrainingReport(keras.callbacks.Callback):
    """Shows speed and time left, and writes a row of `history.csv` an evaluation.

    Args:
        path: string. The CSV file; `None` for none.
        total_steps: int. Training stops there.
        tokens_per_step: int. Batch size times sequence length.
        cost: `StepCost`, whose figures are shown and written too. Defaults to
            `None`, none.
        tensorboard: string. Folder for TensorBoard's scalars, those of each
            row. Defaults to `None`, none.
    """

    def __init__(self, path, total_steps, tokens_per_step, cost=None, tensorboard=None):
        super().__init__()
        self.path = path
        self.total_steps = total_steps
        self.tokens_per_step = tokens_per_step
        self.cost = cost
        self.tensorboard = tensorboard
        self.step = 0
        self.rows = []
        self._writer = None
        self._since = None
        self._interval = {}
        self._began = None
        self._seconds = 0.0  # Of the run so far, where it is one that goes on.

    def get_state(self):
        """What a report of the same run goes on with: see `TrainingCheckpoint`."""
        return {"step": self.step, "rows": self.rows, "seconds": self.seconds()}

    def set_state(self, state):
        """Goes on as the report whose state it is."""
        self.step, self.rows, self._seconds = state["step"], state["rows"], state["seconds"]

    def seconds(self):
        """Seconds of training so far, evaluations included."""
        return self._seconds if self._began is None else time.perf_counter() - self._began

    def record_start(self, logs):
        """Records an evaluation before the first step."""
        row = {"step": 0, "seconds": 0.0, "tokens_per_second": ""}
        row.update((f"val_{name}", float(value)) for name, value in logs.items())
        self._record(row, "before training")

    def on_train_begin(self, logs=None):
        self._began = time.perf_counter() - self._seconds
        self._first_step = None  # Done when the first call returns, which compiles.

    def on_epoch_begin(self, epoch, logs=None):
        self._since = None
        self._interval = {}
        self._batches = 0

    def on_train_batch_begin(self, batch, logs=None):
        # From the interval's second call on, as the first one may compile.
        if batch > 0 and self._since is None:
            self._since = (time.perf_counter(), self.step, self.cost and self.cost.now())

    def on_train_batch_end(self, batch, logs=None):
        # Several steps where the model has `steps_per_execution`.
        self.step += batch + 1 - self._batches
        self._batches = batch + 1
        if self._first_step is None:
            self._first_step, self._first_ended = self.step, time.perf_counter()
        if self.step >= self.total_steps and self._batches < self.params["steps"]:
            self.model.stop_training = True  # Within the last interval.
        if logs is not None and self._since is not None:
            logs.update(self._figures_of_interval())

    def on_test_begin(self, logs=None):
        # Evaluation does not count as training time.
        if self._since is not None:
            self._interval = self._figures_of_interval()

    def on_epoch_end(self, epoch, logs=None):
        interval = self._interval or (self._figures_of_interval() if self._since else {})
        row = {"step": self.step, "seconds": round(self.seconds(), 1), "tokens_per_second": ""}
        row.update(interval)
        row.update((k, float(v)) for k, v in logs.items() if k not in row)
        # The first step compiles.
        steps = max(1, self.step - self._first_step)
        since_first = (time.perf_counter() - self._first_ended) / steps
        left = since_first * (self.total_steps - self.step)
        self._record(row, f"{_cost_figures(row)}{int(left // 60)}:{int(left % 60):02d} left")

    def _figures_of_interval(self):
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
            self._write_scalars(row)
        step = f"step {row['step']:,}/{self.total_steps:,}"
        print(f"{step}  {self._figures(row)}  {progress}", flush=True)

    def _figures(self, row):
        return (
            f"held-out MLM {row['val_mlm_cross_entropy']:.3f}  "
            f"SBO {row['val_sbo_cross_entropy']:.3f} nats a token"
        )

    def _write_scalars(self, row):
        import tensorflow as tf

        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self.tensorboard)
        with self._writer.as_default():
            for name, value in row.items():
                if name != "step" and value != "":
                    tf.summary.scalar(name, value, step=row["step"])
        self._writer.flush()


class SquadReport(TrainingReport):
    """Scores answers at each evaluation and has the best model saved.

    Args:
        path, total_steps, tokens_per_step, cost, tensorboard: see
            `TrainingReport`.
        evaluate: function that returns the scores as a dict with `exact` and
            `f1`. Defaults to `None`, none.
        save: function that saves the model, called where `f1` is the best yet.
            Defaults to `None`.

    Attributes:
        best: dict, the scores of the model that was saved.
    """

    def __init__(
        self,
        path,
        total_steps,
        tokens_per_step,
        cost=None,
        tensorboard=None,
        evaluate=None,
        save=None,
    ):
        super().__init__(path, total_steps, tokens_per_step, cost, tensorboard)
        self.evaluate = evaluate
        self.save = save
        self.best = {}

    def get_state(self):
        return {**super().get_state(), "best": self.best}

    def set_state(self, state):
        super().set_state(state)
        self.best = state["best"]

    def on_epoch_end(self, epoch, logs=None):
        self.on_test_begin()  # Scoring does not count as training time.
        scores = self.evaluate() if self.evaluate else {}
        super().on_epoch_end(epoch, {**logs, **scores})
        if scores and scores["f1"] > self.best.get("f1", -1.0):
            self.best = scores
            if self.save:
                self.save()

    def _figures(self, row):
        figures = f"loss {row['loss']:.3f}"
        if "f1" in row:
            figures += f"  exact match {row['exact']:.2f}  F1 {row['f1']:.2f}"
        return figures


def _cost_figures(row):
    """What a row says of speed and cost, to show."""
    if row["tokens_per_second"] == "":
        return ""
    parts = [f"{row['tokens_per_second']:,} tokens/s"]
    if "step_ms" in row:
        waiting = f", {row['waiting_ms']:.0f} ms of it waiting" if "waiting_ms" in row else ""
        parts.append(f"{row['step_ms']:.0f} ms a step{waiting}")
        parts.append(f"{row['tflops_per_second']:.3g} TFLOP/s")
        parts.append(f"peak {row['peak_gb']:.1f} GB")
    return "  ".join([*parts, ""])


def unigram_log_probabilities(counts):
    """Log-probabilities (nats) of tokens by their counts `[V]`."""
    # One more in all, shared by the vocabulary, so that tokens unseen in training
    # have a probability.
    counts = np.asarray(counts)
    return np.log((counts + 1.0 / len(counts)) / (counts.sum() + 1.0))


def unigram_entropies(counts, dataset):
    """Cross-entropy of the targets under the corpus's unigram distribution.

    What a model that ignores the context would reach: nats a token.

    Args:
        counts: int `[V]`. Counts of the tokens in the training documents.
        dataset: iterable of `(x, y, sample_weight)`, as the preprocessor gives.

    Returns:
        Dict with `mlm` and `sbo`.
    """
    log_probabilities = unigram_log_probabilities(counts)
    sums = {"mlm": 0.0, "sbo": 0.0}
    weights = {"mlm": 0.0, "sbo": 0.0}
    for _, y, sample_weight in dataset:
        for name in sums:
            weight = np.asarray(sample_weight[name])
            sums[name] -= float(np.sum(weight * log_probabilities[np.asarray(y[name])]))
            weights[name] += float(np.sum(weight))
    return {name: sums[name] / max(weights[name], 1.0) for name in sums}


def plot_losses(path, rows, unigram):
    """Plots held-out cross-entropy over the steps, as PNG."""
    figure, axes = _figure()
    steps = [row["step"] for row in rows]
    for name, color in [("mlm", "C0"), ("sbo", "C1")]:
        label = name.upper()
        axes.plot(
            steps,
            [r.get(f"{name}_cross_entropy", math.nan) for r in rows],
            f"{color}:",
            label=f"{label}, training",
        )
        axes.plot(
            steps,
            [r[f"val_{name}_cross_entropy"] for r in rows],
            color,
            marker=".",
            label=f"{label}, held out",
        )
        axes.axhline(unigram[name], color=color, lw=0.8, ls="--", label=f"{label}, unigram")
    axes.set_xlabel("steps")
    axes.set_ylabel("cross-entropy (nats a token)")
    axes.set_title("Pretraining")
    axes.legend()
    _save(figure, path)


def plot_scores(path, rows):
    """Plots the training loss, and exact match and F1 where there are any, as PNG."""
    figure, axes = _figure()
    steps = [row["step"] for row in rows]
    axes.plot(steps, [row["loss"] for row in rows], "C0:", marker=".", label="training loss")
    axes.set_xlabel("steps")
    axes.set_ylabel("cross-entropy (nats)")
    axes.set_title("Question answering")
    if "f1" in rows[0]:
        scores = axes.twinx()
        for name, label, color in [("exact", "exact match", "C1"), ("f1", "F1", "C2")]:
            scores.plot(steps, [row[name] for row in rows], color, marker=".", label=label)
        scores.set_ylabel("percent")
        scores.legend(loc="center right")
    axes.legend(loc="upper center")
    _save(figure, path)


def plot_span_lengths(path, lengths, probabilities):
    """Plots drawn span lengths against their distribution, as PNG.

    Args:
        path: string.
        lengths: int array. Drawn lengths, in words.
        probabilities: `[max words]`. Probabilities of the lengths 1, 2, ...
    """
    figure, axes = _figure()
    words = np.arange(1, len(probabilities) + 1)
    counts = np.bincount(np.ravel(lengths), minlength=len(words) + 1)[1:]
    axes.bar(
        words, counts / counts.sum(), color="C0", alpha=0.6, label=f"drawn ({counts.sum():,} spans)"
    )
    axes.plot(words, probabilities, "C1o-", label="truncated geometric distribution")
    axes.set_xticks(words)
    axes.set_xlabel("span length (words)")
    axes.set_ylabel("share of spans")
    axes.set_title(
        f"Span lengths, mean {np.mean(lengths):.2f} drawn, {words @ probabilities:.2f} expected"
    )
    axes.legend()
    _save(figure, path)


def run_record(flags):
    """What is needed to repeat a run: flags and versions."""
    packages = [
        "keras",
        "keras-hub",
        "tensorflow",
        "tensorflow-text",
        "jax",
        "torch",
        "tokenizers",
        "numpy",
    ]
    versions = {"python": platform.python_version()}
    for package in ["keras-spanbert", *packages]:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    return {"backend": keras.backend.backend(), "flags": flags, "versions": versions}


def write_json(path, value):
    with _replacing(path) as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def write_csv(path, rows):
    with _replacing(path) as file:
        # A row from before training has fewer columns.
        writer = csv.DictWriter(file, fieldnames=list(max(rows, key=len)), restval="")
        writer.writeheader()
        writer.writerows(rows)


@contextlib.contextmanager
def _replacing(path):
    """Opens a file beside `path` and renames it only once it is complete."""
    partial = f"{path}.partial"
    try:
        with open(partial, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(partial, path)
    except BaseException as error:
        if os.path.exists(partial):
            os.remove(partial)
        if isinstance(error, OSError):  # A full disk has no name of its own.
            raise OSError(error.errno, error.strerror, path) from None
        raise


def _figure():
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), dpi=120, layout="constrained")
    return figure, figure.subplots()


def _save(figure, path):
    figure.savefig(f"{path}.partial", format="png")
    os.replace(f"{path}.partial", path)

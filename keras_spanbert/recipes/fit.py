"""The training loop of all recipes: optimizer, checkpoint, report, `fit`, saving, export."""

import builtins
import contextlib
import dataclasses
import hashlib
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction

import keras
import tensorflow as tf

from keras_spanbert import files, stores
from keras_spanbert.optional import missing
from keras_spanbert.recipes import terminal
from keras_spanbert.recipes.checks import check_steps, refuse
from keras_spanbert.recipes.flags import FLAGS, set_flags
from keras_spanbert.recipes.run_folder import Run, identity, recorded_run
from keras_spanbert.recipes.terminal import exit_on_user_error, log, stop_on_signals
from keras_spanbert.runs import cost
from keras_spanbert.runs.callbacks import Callbacks
from keras_spanbert.runs.interruption import Interruption
from keras_spanbert.runs.reports import TrainingReport
from keras_spanbert.runs.training_checkpoint import CheckpointError, TrainingCheckpoint
from keras_spanbert.serving import export_saved_model
from keras_spanbert.training.optimizer import AdamW, LinearWarmupDecay
from keras_spanbert.wording import format_count

# The last line of a Python traceback.
_LAST_LINE = re.compile(r"^(?:[\w.]+\.)?(\w+): (.*)$", re.MULTILINE)


@dataclasses.dataclass
class TrainingSettings:
    """Settings that a recipe passes to `fit`."""

    model: keras.Model  # A task model with a preprocessor, not compiled.
    stream: object  # `Batches` or `TrainingStream`.
    steps_per_epoch: int | Fraction  # A fraction if batches span epochs.
    learning_rate: float  # The default of --learning_rate.
    steps: int  # The default of --steps if --epochs is not given either.
    # Returns the contents of `metrics.json`, except steps and seconds.
    metrics: Callable[[TrainingReport], dict]
    plot: Callable[[TrainingReport], None]  # Draws the PNG files.
    eval_every: int | None = None  # The default of --eval_every. `None`: a tenth of all steps.
    # `tf.data.Dataset` to evaluate losses on, this process's part. `None`: no validation.
    validation: object = None
    evaluate_first: bool = False  # Whether to evaluate before the first step too.
    # Returns scores of the model. If it is given, the best model is kept instead of the last.
    evaluate: Callable[[keras.Model], dict] | None = None
    num_predictions: int = 0  # Masked positions per row.
    sequences: int = 1  # Sequences of --sequence_length per row.
    # Returns the optimizer for a model and a number of steps. `None`: AdamW with the flags' values.
    optimizer: Callable[[keras.Model, int], keras.optimizers.Optimizer] | None = None
    files: dict = dataclasses.field(default_factory=dict)  # JSON values to write at the start.


def fit(run: Run, settings: TrainingSettings) -> tuple[keras.Model, TrainingReport, dict]:
    """Trains and saves a model. Only the first process returns: model, report and metrics."""
    model, distribution = settings.model, run.distribution

    def save():
        with distribution.local(model) as local:
            if run.is_main:
                with files.add_to_folder(run.folder) as folder:
                    local.save_to_preset(folder)
                run.publish()

    def evaluate():
        with distribution.local(model) as local:
            return settings.evaluate(local)

    # === Optimizer, report and checkpoint ===
    with exit_on_user_error():
        if FLAGS.export and not type(model).can_be_served():
            name = type(model).__name__
            refuse("`--export` needs a model that can be served", "export", more=f" of {name}")
        steps, eval_every = _set_steps(settings)
        with distribution.scope():
            optimizer = _optimizer(distribution, settings, steps)
        flops = cost.step_flops(
            model,
            FLAGS.batch_size * settings.sequences,
            FLAGS.sequence_length,
            settings.num_predictions,
        )
        # TensorFlow feeds several devices from its own threads, whose waiting says nothing.
        wait = cost.InputWait() if distribution.feeds_in_loop else None
        report = TrainingReport(
            run.path("history.csv") if run.is_main else None,
            steps,
            FLAGS.batch_size * settings.sequences * FLAGS.sequence_length,
            model,
            cost.StepCost(flops / distribution.num_devices, wait),
            run.path("tensorboard") if FLAGS.tensorboard and run.is_main else None,
            evaluate if settings.evaluate else None,
            save,
            FLAGS.patience,
        )
        checkpoint = _checkpoint(run, settings, report)
        if run.is_main:
            files.remove_partial(run.folder)  # The folder is locked: no other run uses it.
            run.write_record()
            for name, value in settings.files.items():
                files.write_json(run.path(name), value)
            run.publish()
    num_trained = sum(math.prod(weight.shape) for weight in model.trainable_weights)
    of_them = f" ({num_trained:,} of them trained)" if FLAGS.lora_rank else ""
    log(f"{model.count_params():,} parameters{of_them}")
    num_passes = f"{float(steps / settings.steps_per_epoch):,.1f}".removesuffix(".0")
    rows = f"{FLAGS.batch_size} of {format_count(settings.stream.num_rows, 'row')}"
    unit = "epoch" if num_passes == "1" else "epochs"
    log(f"To train: {format_count(steps, 'step')}, each with {rows} ({num_passes} {unit})")

    # === Fit ===
    with distribution.scope():
        model.compile(
            optimizer,
            steps_per_execution=FLAGS.steps_per_execution,
            jit_compile={"auto": "auto", "true": True, "false": False}[FLAGS.jit_compile],
        )
    with exit_on_training_error(distribution, checkpoint, report) as interruption:
        if settings.evaluate_first and not report.rows:
            log("Evaluating before training")
            logs = model.evaluate(
                settings.validation, callbacks=[interruption], verbose=0, return_dict=True
            )
            report.record_start(logs)
        # Copy the reports first: a checkpoint must not be newer than the copied reports.
        copies = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: run.publish())
        # Keras calls the steps between two evaluations an epoch.
        num_rounds = 0 if report.is_out_of_patience() else -(-steps // eval_every)
        callbacks = [report, copies, checkpoint, interruption]
        callbacks += [cls() for cls in model.string_callbacks]
        arrays = settings.stream.arrays
        if isinstance(arrays, tuple):  # `fit` does not see them in a dataset.
            callbacks.append(
                keras.callbacks.LambdaCallback(
                    on_train_begin=lambda logs: model.count_targets(*arrays)
                )
            )
        dataset = distribution.dataset(settings.stream)
        model.fit(
            wait.timed(dataset) if wait else dataset,
            epochs=num_rounds,
            steps_per_epoch=eval_every,
            validation_data=settings.validation,
            callbacks=Callbacks(
                callbacks, add_history=True, model=model, epochs=num_rounds, steps=eval_every
            ),
            shuffle=False,  # The dataset is already shuffled.
            verbose=0,  # The report shows progress.
        )
    if interruption.signal:
        log(f"Interrupted at step {report.step:,} of {steps:,}. Saving a checkpoint")
        with exit_on_user_error():
            checkpoint.save()
            checkpoint.wait()

    # === Save ===
    with exit_on_user_error(OSError):
        if not report.best:
            save()
    with distribution.local(model) as local:
        model = local
    distribution.close()
    if not run.is_main:
        terminal.exit_process(128 + interruption.signal if interruption.signal else 0)
    metrics = {
        "steps": report.step,
        "seconds": round(report.seconds(), 1),
        **({"interrupted": True} if interruption.signal else {}),
        **settings.metrics(report),
    }
    with exit_on_user_error(OSError):
        files.write_json(run.path("metrics.json"), metrics)
        if message := missing("matplotlib", "drawing them"):
            log(f"No plots: {message}")
        else:
            settings.plot(report)
        run.publish()
    if interruption.signal:
        more = f"--resume --output={shlex.quote(run.output)} continues"
        log(f"Saved step {report.step:,} to {run.output}; {more}")
        sys.exit(128 + interruption.signal)
    stop_on_signals(f"after training. The preset is in {run.output}")
    if report.best:
        model = type(model).from_preset(run.folder, dtype=FLAGS.dtype)
    else:
        model.merge_lora()
    return model, report, metrics


def export(model: keras.Model, **kwargs) -> None:
    """Writes the model as the next version for TensorFlow Serving, if --export is given."""
    if not FLAGS.export:
        return
    versions = [int(name) for name in stores.entries(FLAGS.export) if name.isdecimal()]
    path = stores.join(FLAGS.export, str(1 + max(versions, default=0)))
    stop_on_signals("before the SavedModel was written", clean_up=True)
    with exit_on_user_error(OSError):
        export_saved_model(model, path, **kwargs)
    log(f"Wrote the SavedModel {path}")


def _set_steps(settings):
    steps = FLAGS.steps or settings.steps
    # A resumed run keeps the number of steps that it started with.
    if FLAGS.epochs and not recorded_run():
        steps = max(1, int(FLAGS.epochs * settings.steps_per_epoch))
    eval_every = min(steps, FLAGS.eval_every or settings.eval_every or -(-steps // 10))
    rate = settings.learning_rate if FLAGS.learning_rate is None else FLAGS.learning_rate
    set_flags(
        steps=steps,
        eval_every=eval_every,
        warmup_steps=steps // 10 if FLAGS.warmup_steps is None else FLAGS.warmup_steps,
        learning_rate=rate,
    )
    check_steps()
    return steps, eval_every


def _optimizer(distribution, settings, steps):
    if FLAGS.gradient_accumulation > 1 and not distribution.feeds_in_loop:
        mistake = "`--gradient_accumulation` needs JAX, PyTorch or a single device"
        devices = f" on {distribution.num_devices} devices with TensorFlow"
        refuse(mistake, "gradient_accumulation", more=devices)
    if settings.optimizer:
        return settings.optimizer(settings.model, steps)
    return AdamW(
        # The schedule counts batches, not updates.
        LinearWarmupDecay(FLAGS.learning_rate, FLAGS.warmup_steps, steps),
        weight_decay=FLAGS.weight_decay,
        beta_2=FLAGS.beta_2,
        epsilon=FLAGS.epsilon,
        global_clipnorm=FLAGS.clip_norm or None,
        gradient_accumulation_steps=accumulated_steps(),
    )


def accumulated_steps() -> int | None:
    """Returns the number of batches per update for a Keras optimizer, `None` for one."""
    return FLAGS.gradient_accumulation if FLAGS.gradient_accumulation > 1 else None


def _checkpoint(run, settings, report):
    """Starts or resumes the run. The folder is locked before anything is written to it."""
    vocabulary = "\n".join(settings.model.preprocessor.tokenizer.get_vocabulary())
    same = identity()
    same["the vocabulary's SHA-256"] = hashlib.sha256(vocabulary.encode()).hexdigest()
    checkpoint = TrainingCheckpoint(
        stores.join(run.output, "checkpoints"),
        FLAGS.checkpoint_every,
        FLAGS.keep_checkpoints,
        data=settings.stream,
        parts={"report": report},
        identity=same,
    )
    if checkpoint.step:
        log(f"Continuing from step {checkpoint.step:,} of {checkpoint.newest}")
    return checkpoint


@contextlib.contextmanager
def exit_on_training_error(distribution, checkpoint, report) -> Iterator[Interruption]:
    """Context manager for training. Handles signals and reports expected errors in one line."""
    try:
        with Interruption(distribution) as interruption, contextlib.closing(report):
            yield interruption
    except (CheckpointError, FloatingPointError, OSError) as error:
        _exit(error, checkpoint)
    except tf.errors.OpError as error:
        # An error of our Python code inside `tf.data`: its text ends with a Python traceback.
        name, text = [("", ""), *_LAST_LINE.findall(str(error))][-1]
        kind = getattr(builtins, name, getattr(stores, name, None))
        if not (isinstance(kind, type) and issubclass(kind, OSError)):
            raise
        _exit(text, checkpoint)


def _exit(error, checkpoint):
    if checkpoint.newest and checkpoint.newest not in str(error):
        error = f"{error}; the last good checkpoint is {checkpoint.newest}"
    terminal.exit_with_error(error)

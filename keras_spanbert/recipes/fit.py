"""The one loop: optimizer, checkpoint, report, `fit`, saving and exporting, for every recipe."""

import hashlib
import importlib.util
import os
import shlex
import sys

import keras

from keras_spanbert import files, stores
from keras_spanbert.recipes.checks import check_steps, steps_of
from keras_spanbert.recipes.endings import told_in_a_line
from keras_spanbert.recipes.estimate import log_estimate
from keras_spanbert.recipes.flags import FLAGS, resolve
from keras_spanbert.recipes.plan import Plan
from keras_spanbert.recipes.resume import identity
from keras_spanbert.recipes.run import Run, exit_process
from keras_spanbert.recipes.terminal import (
    log,
    stop_on_signals,
    user_input,
)
from keras_spanbert.runs import cost, fallback
from keras_spanbert.runs.profile import FIRST_STEP, Profile
from keras_spanbert.runs.reports import TrainingReport
from keras_spanbert.runs.training_checkpoint import TrainingCheckpoint
from keras_spanbert.serving import export_saved_model
from keras_spanbert.training.optimizer import AdamW, LinearWarmupDecay


def fit(run: Run, plan: Plan) -> tuple[keras.Model, TrainingReport, dict]:
    """Trains a model by the flags and saves it.

    Returns:
        The model that was saved, the report, and the metrics. Of several
        processes only the first one returns.
    """
    model, distribution = plan.model, run.distribution

    def save():
        with distribution.local(model) as local:
            if run.is_main:
                with files.added_to_folder(run.folder.path) as folder:
                    local.save_to_preset(folder)
                    run.folder.add_preset(folder)

    def evaluate():
        with distribution.local(model) as local:
            return plan.evaluate(local)

    # === Optimizer, report and checkpoint ===
    with user_input():
        if FLAGS.export and not type(model).can_be_served():
            raise ValueError(
                f"`--export` is for models that can be served. Received: {type(model).__name__}"
            )
        steps, eval_every = _set_steps(plan)
        with distribution.scope():
            optimizer = _optimizer(distribution, plan, steps)
        timed, step_cost = _step_cost(distribution, plan)
        report = TrainingReport(
            run.path("history.csv") if run.is_main else None,
            steps,
            FLAGS.batch_size * plan.sequences * FLAGS.sequence_length,
            step_cost,
            run.path("tensorboard") if FLAGS.tensorboard and run.is_main else None,
            model.describe,
            evaluate if plan.evaluate else None,
            model.best_score,
            save,
            model.progress_labels,
        )
        checkpoint = _checkpoint(run, plan, report)
        if run.is_main:
            files.remove_partial(run.folder.path)  # Locked, so of no other run that is going on.
            run.write_record()
            for name, value in plan.files.items():
                files.write_json(run.path(name), value)
            run.folder.publish()
    log(f"{model.count_params():,} parameters, {steps:,} steps")
    if run.is_main and checkpoint.step < steps:
        log_estimate(plan, steps - checkpoint.step, distribution.num_devices)

    # === Fit ===
    with distribution.scope():
        model.compile(optimizer, **_compile_arguments())
    with told_in_a_line(distribution, checkpoint, report) as interruption:
        if plan.evaluate_first and not report.rows:
            log("Evaluating before training")
            logs = model.evaluate(
                plan.validation, callbacks=[interruption], verbose=0, return_dict=True
            )
            report.record_start(logs)
        # Before the checkpoint, which may be of nothing newer than what is there.
        copies = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: run.folder.publish())
        profiles = [Profile(run.path("profile"), FLAGS.profile)] if FLAGS.profile else []
        model.fit(
            timed(distribution.dataset(plan.stream)),
            epochs=-(-steps // eval_every),
            steps_per_epoch=eval_every,
            validation_data=plan.validation,
            callbacks=[report, copies, checkpoint, *profiles, interruption],
            shuffle=False,  # The dataset is shuffled.
            verbose=0,  # The report shows progress.
        )
    if interruption.signal:
        log(f"Interrupted at step {report.step:,} of {steps:,}: saving what there is")
        with user_input():
            checkpoint.save()
            checkpoint.wait()

    # === Save ===
    with user_input(OSError):
        if not report.best:
            save()
    with distribution.local(model) as local:
        model = local
    distribution.close()
    if not run.is_main:
        exit_process(interruption.signal)
    metrics = {"steps": report.step, "seconds": round(report.seconds(), 1), **plan.metrics(report)}
    with user_input(OSError):
        files.write_json(run.path("metrics.json"), metrics)
        if importlib.util.find_spec("matplotlib") is None:
            log("No plots: matplotlib is not installed (pip install keras-spanbert[train])")
        else:
            plan.plot(report)
        run.folder.publish()
    if interruption.signal:
        more = f"--resume --output={shlex.quote(run.output)} goes on"
        log(f"Saved step {report.step:,} to {run.output}; {more}")
        sys.exit(128 + interruption.signal)
    stop_on_signals(f"after training, the preset is in {run.output}")
    if report.best:
        model = type(model).from_preset(run.folder.path, dtype=FLAGS.dtype)
    return model, report, metrics


def export(model: keras.Model, **kwargs) -> None:
    """Writes the next version of a model for TF Serving, if --export asks for it."""
    if not FLAGS.export:
        return
    if not stores.is_store(FLAGS.export):
        os.makedirs(FLAGS.export, exist_ok=True)
    versions = [int(name) for name in stores.entries(FLAGS.export) if name.isdecimal()]
    path = stores.join(FLAGS.export, str(1 + max(versions, default=0)))
    stop_on_signals("before the SavedModel was written", clean_up=True)
    export_saved_model(model, path, **kwargs)
    log(f"Wrote the SavedModel {path}")


def _set_steps(plan):
    steps = steps_of(plan.num_examples, plan.steps)
    eval_every = min(steps, FLAGS.eval_every or plan.eval_every or -(-steps // 10))
    resolve(
        steps=steps,
        eval_every=eval_every,
        warmup_steps=steps // 10 if FLAGS.warmup_steps is None else FLAGS.warmup_steps,
        learning_rate=plan.learning_rate if FLAGS.learning_rate is None else FLAGS.learning_rate,
    )
    check_steps(steps, eval_every)
    if FLAGS.profile and steps <= FIRST_STEP:
        raise ValueError(
            f"`--profile` must be of a run of more than {FIRST_STEP} steps, behind which it "
            f"traces. Received: --profile={FLAGS.profile} with {steps:,} steps"
        )
    return steps, eval_every


def _optimizer(distribution, plan, steps):
    if FLAGS.gradient_accumulation > 1 and not distribution.feeds_in_loop:
        raise ValueError(
            "`--gradient_accumulation` takes JAX, PyTorch or one device. Received: "
            f"{FLAGS.gradient_accumulation} on {distribution.num_devices} devices of TensorFlow"
        )
    if plan.optimizer:
        return plan.optimizer(steps)
    return AdamW(
        # Keras counts batches here, not updates.
        LinearWarmupDecay(FLAGS.learning_rate, FLAGS.warmup_steps, steps),
        weight_decay=FLAGS.weight_decay,
        beta_2=FLAGS.beta_2,
        epsilon=FLAGS.epsilon,
        global_clipnorm=FLAGS.clip_norm or None,
        gradient_accumulation_steps=accumulated_steps(),
    )


def accumulated_steps() -> int | None:
    """Batches whose gradients make an update, as Keras's optimizers take it: `None` for one."""
    return FLAGS.gradient_accumulation if FLAGS.gradient_accumulation > 1 else None


def _compile_arguments():
    values = {"auto": "auto", "true": True, "false": False}
    return {
        "steps_per_execution": FLAGS.steps_per_execution,
        "jit_compile": fallback.jit_compile(values[FLAGS.jit_compile]),
    }


def _step_cost(distribution, plan):
    """What times the dataset, and `StepCost`."""
    flops = cost.step_flops(
        plan.model,
        FLAGS.batch_size * plan.sequences,
        FLAGS.sequence_length,
        plan.num_predictions,
    )
    # TensorFlow feeds several devices from threads of its own, which wait all the time.
    wait = cost.InputWait() if distribution.feeds_in_loop else None
    step_cost = cost.StepCost(flops / distribution.num_devices, wait)
    return (wait.timed if wait else lambda dataset: dataset), step_cost


def _checkpoint(run, plan, report):
    """Begins or takes up the run in the folder; locked, before anything is written there."""
    vocabulary = "\n".join(plan.model.preprocessor.tokenizer.get_vocabulary())
    same = identity()
    same["the vocabulary's SHA-256"] = hashlib.sha256(vocabulary.encode()).hexdigest()
    checkpoint = TrainingCheckpoint(
        stores.join(run.output, "checkpoints"),
        FLAGS.checkpoint_every,
        FLAGS.keep_checkpoints,
        data=plan.stream,
        parts={"report": report},
        identity=same,
    )
    if checkpoint.step:
        log(f"Going on from step {checkpoint.step:,} of {checkpoint.newest}")
    return checkpoint

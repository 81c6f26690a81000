"""The steps that all fine-tuning recipes share: read, build, train, evaluate, predict, export."""

import shlex

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.recipes import checks, terminal
from keras_spanbert.recipes.checks import INPUTS, check_length, refuse
from keras_spanbert.recipes.flags import FLAGS, set_flags, values
from keras_spanbert.recipes.recipe import Recipe, find_recipe
from keras_spanbert.recipes.run_folder import Run, preset_warnings, writes_reports
from keras_spanbert.recipes.terminal import exit_on_user_error, log, stop_on_signals
from keras_spanbert.tasks import model_class
from keras_spanbert.wording import format_count


def check(needs_predictions: bool = True) -> None:
    """Checks the flags: a model, something to do, and a path for predictions.

    Without `needs_predictions`, --predict_data does not need --predictions.
    """
    does_something = FLAGS.train_data or FLAGS.eval_data or FLAGS.predict_data or FLAGS.export
    if not FLAGS.preset or not does_something:
        some = "at least one of --train_data, --eval_data, --predict_data and --export"
        refuse(f"--task={FLAGS.task} needs --preset, and {some}", "preset")
    is_missing = needs_predictions and FLAGS.predict_data and not FLAGS.predictions
    if is_missing or (FLAGS.predictions and not FLAGS.predict_data):
        mistake = "--predict_data and --predictions must be given together"
        refuse(mistake, "predict_data", "predictions")
    if FLAGS.patience and not FLAGS.eval_data:
        refuse("`--patience` needs --eval_data", "patience")


def fine_tune(run: Run, recipe: Recipe) -> None:
    """Trains, evaluates, predicts and exports, with the functions of a recipe."""
    from keras_spanbert.data.text_files import find_files
    from keras_spanbert.recipes.fit import TrainingSettings, export, fit
    from keras_spanbert.runs import plots

    distribution = run.distribution
    with exit_on_user_error():
        if not FLAGS.train_data:
            # One process predicts on one device, so that the last batch may be smaller.
            distribution.close()
            if not run.is_main:
                terminal.exit_process(0)
        data = {name: FLAGS[name].value and find_files(FLAGS[name].value) for name in INPUTS}
        # Read before the model is built, so that mistakes in the data are reported first.
        train = data["train_data"] and recipe.read(data["train_data"], "train_data", None)
        arguments = recipe.model_arguments(train) if train else {}
        with distribution.scope():
            model = (recipe.build or build_model)(**arguments)
            if FLAGS.lora_rank:
                model.backbone.enable_lora(FLAGS.lora_rank)
        _check_head(model.untrained_heads())
        evaluation, prediction = (
            data[name] and recipe.read(data[name], name, model)
            for name in ["eval_data", "predict_data"]
        )
        rows = train and (recipe.stream or stream)(model, train)
        if rows:
            distribution.check_batch_size(FLAGS.batch_size)  # It may be lower now.
        later = [
            *(["Training", *recipe.optimizer_flags] if train else []),
            *(recipe.evaluation_flags if evaluation else []),
            *(["predictions", *recipe.prediction_flags] if prediction else []),
            *(recipe.export_flags if FLAGS.export else []),
        ]
        checks.refuse_unread(*later)
    if train:

        def plot(report):
            if report.rows:
                title = FLAGS.task.replace("_", " ").capitalize()
                path = run.path("loss.png")
                plots.plot_scores(path, report.rows, title, model.scores, model.loss_unit)

        settings = TrainingSettings(
            model=model,
            stream=rows,
            steps_per_epoch=rows.num_batches,
            learning_rate=recipe.learning_rate,
            steps=recipe.epochs * rows.num_batches,
            eval_every=rows.num_batches,
            evaluate=(lambda model: recipe.evaluate(model, evaluation)) if evaluation else None,
            # `benchmarks/compare.py` shows the score that selected the checkpoint.
            metrics=lambda report: report.best and {**report.best, "best_score": model.best_score},
            plot=plot,
            sequences=recipe.sequences(model, rows),
            optimizer=recipe.optimizer,
        )
        model, _, scores = fit(run, settings)
    else:
        if writes_reports():
            with exit_on_user_error():
                run.write_record()
        stop_on_signals("while evaluating")
        scores = recipe.evaluate(model, evaluation) if evaluation else {}
        saved = ""
        if writes_reports():
            with exit_on_user_error(OSError):
                files.write_json(run.path("metrics.json"), scores)
            saved = f". The reports are in {run.output}"
        stop_on_signals(f"while predicting{saved}")
    if prediction:
        recipe.predict(model, prediction)
    export(model, **values(*recipe.export_flags))
    labelled = [
        f"{label} {scores[name]:.2f}" for name, label in model.scores.items() if name in scores
    ]
    if labelled:
        total = f", on {format_count(scores['total'], 'example')}" if "total" in scores else ""
        log(", ".join(labelled) + total)
    if writes_reports():
        log(f"Wrote {'the preset and ' if train else ''}{run.report_names()} to {run.output}")
        if train and not (FLAGS.predictions or FLAGS.export):
            again = f"{terminal.command()} --task={FLAGS.task} --preset={shlex.quote(run.output)}"
            log(f"Next: {again} --predict_data=FILE --predictions=FILE, or --export=FOLDER")
    elif not (FLAGS.predictions or FLAGS.html or FLAGS.export):
        log("Wrote no file. --predictions=FILE writes the predictions to a file")


def _check_head(untrained):
    """Raises `ValueError` if a head has no weights and there is nothing to train it on."""
    if untrained and not FLAGS.train_data:
        mistake = "`--preset` must have a trained head to evaluate, predict or export"
        heads = f", without weights for {' and '.join(untrained)}"
        refuse(f"{mistake}. To train one, give --train_data", "preset", more=heads)


def arguments_of_backbone() -> dict:
    """Returns the arguments of `from_preset` that change the backbone of --preset."""
    given = values("dtype", "dropout", "attention_dropout")
    return {name: value for name, value in given.items() if value is not None}


def build_model(**arguments):
    """Builds the model of the preset. A head without weights is initialized at random."""
    from keras_spanbert.models.classifier import NoLabelsError

    cls = model_class(FLAGS.task)
    preprocessor_flags = find_recipe(FLAGS.task).preprocessor_flags
    try:
        with preset_warnings():
            model = cls.from_preset(
                FLAGS.preset, preprocessor=None, **arguments_of_backbone(), **arguments
            )
    except NoLabelsError:
        _check_head([f"the head of {cls.__name__}"])
        raise
    longest = model.backbone.max_sequence_length
    given = values(*(name for name in preprocessor_flags if FLAGS[name].present))
    if FLAGS.train_data:  # Otherwise the preset's settings apply.
        length = given.setdefault("sequence_length", min(FLAGS.sequence_length, longest))
        given = {**cls.preprocessor_cls.arguments_for_length(length), **given}
    model.preprocessor = cls.preprocessor_cls.from_preset(FLAGS.preset, **given)
    set_flags(**{name: getattr(model.preprocessor, name) for name in preprocessor_flags})
    check_length(longest)
    return model


def stream(model, examples: list):
    """Returns the batches of labelled examples."""
    log(
        f"{format_count(len(examples), 'example')}; tokenizing to at most "
        f"{FLAGS.sequence_length} tokens"
    )
    arrays = model.preprocess(examples)
    lower_batch_size(len(arrays[0]["token_ids"]))
    return ks.Batches(
        arrays, FLAGS.batch_size, FLAGS.seed, cut=True, by_length=FLAGS.group_by_length
    )


def lower_batch_size(num_rows: int) -> None:
    """Lowers --batch_size to the number of rows, unless the user gave it."""
    if num_rows < FLAGS.batch_size and not FLAGS["batch_size"].present:
        log(f"--batch_size={num_rows}: the training data has no more rows")
        set_flags(batch_size=num_rows)

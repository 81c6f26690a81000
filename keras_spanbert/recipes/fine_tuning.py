"""The steps that all fine-tuning recipes share: read, build, train, evaluate, predict, export."""

from collections.abc import Callable

from keras_spanbert.recipes import output_paths
from keras_spanbert.recipes.checks import INPUTS, format_flags
from keras_spanbert.recipes.flags import FLAGS, set_flags
from keras_spanbert.recipes.resume import preset_warnings
from keras_spanbert.recipes.run import Run, exit_process
from keras_spanbert.recipes.terminal import exit_on_user_error, log, stop_on_signals
from keras_spanbert.wording import format_count


def check(needs_predictions: bool = True) -> None:
    """Checks the flags: a model, something to do, and a path for predictions.

    Raises `ValueError` if one is missing.

    Args:
        needs_predictions: bool. Whether --predict_data requires --predictions.
            Defaults to `True`.
    """
    does_something = FLAGS.train_data or FLAGS.eval_data or FLAGS.predict_data or FLAGS.export
    if not FLAGS.preset or not does_something:
        raise ValueError(
            f"--task={FLAGS.task} needs --preset, and at least one of --train_data, --eval_data, "
            f"--predict_data and --export. Received: {format_flags('preset')}"
        )
    is_missing = needs_predictions and FLAGS.predict_data and not FLAGS.predictions
    if is_missing or (FLAGS.predictions and not FLAGS.predict_data):
        raise ValueError(
            "--predict_data and --predictions must be given together. Received: "
            + format_flags("predict_data", "predictions")
        )


def fine_tune(
    run: Run,
    build: Callable,
    read: Callable,
    stream: Callable,
    evaluate: Callable,
    predict: Callable,
    learning_rate: float,
    epochs: int,
    sequences: Callable | None = None,
    optimizer: Callable | None = None,
    arguments: Callable | None = None,
    **export_arguments,
) -> dict:
    """Trains, evaluates, predicts and exports, as the flags ask.

    Args:
        run: `Run`.
        build: function that returns the task's model: see `build_model`.
        read: function that returns examples. Its arguments are the paths, the
            name of their flag, and the model, which is `None` for --train_data.
        stream: function that returns the `RowStream` to train on. Its arguments
            are the model and the examples.
        evaluate: function that returns scores, among them those of the class's
            `scores`. Its arguments are a model and examples.
        predict: function that writes --predictions. Its arguments are a model
            and examples.
        learning_rate: float. The default of --learning_rate.
        epochs: int. The default of --epochs if --steps is not given either.
        sequences: function that returns the number of sequences per row. Its
            arguments are the model and the stream. Defaults to `None`: one.
        optimizer: see `TrainingSettings`.
        arguments: function of the training examples that returns arguments of
            `build`, such as the labels. Defaults to `None`: no arguments.
        **export_arguments: arguments of the task's `serving_function`.

    Returns:
        The scores of the saved model, or of the evaluated one.
    """
    from keras_spanbert import files
    from keras_spanbert.data.text_files import find_files
    from keras_spanbert.recipes.fit import export, fit
    from keras_spanbert.recipes.training_settings import TrainingSettings
    from keras_spanbert.runs import plots

    distribution = run.distribution
    with exit_on_user_error():
        if not FLAGS.train_data:
            # One process predicts on one device, so that the last batch may be smaller.
            distribution.close()
            if not run.is_main:
                exit_process(None)
        data = {name: FLAGS[name].value and find_files(FLAGS[name].value) for name in INPUTS}
        # Read before the model is built, so that mistakes in the data are reported first.
        train = data["train_data"] and read(data["train_data"], "train_data", None)
        of_labels = arguments(train) if arguments and train else {}
        with distribution.scope():
            model = build(**of_labels)
        _check_head(model.untrained_heads())
        evaluation, prediction = (
            data[name] and read(data[name], name, model) for name in ["eval_data", "predict_data"]
        )
    if train:
        with exit_on_user_error():
            rows = stream(model, train)

        def plot(report):
            if report.rows:
                title = FLAGS.task.replace("_", " ").capitalize()
                path = run.path("loss.png")
                plots.plot_scores(path, report.rows, title, model.scores, model.loss_unit)

        settings = TrainingSettings(
            model=model,
            stream=rows,
            num_examples=rows.num_rows,
            steps_per_epoch=rows.num_batches,
            learning_rate=learning_rate,
            steps=epochs * rows.num_batches,
            eval_every=rows.num_batches,
            evaluate=(lambda model: evaluate(model, evaluation)) if evaluation else None,
            metrics=lambda report: {**report.best, **_best_score(report)},
            plot=plot,
            sequences=sequences(model, rows) if sequences else 1,
            optimizer=optimizer and (lambda steps: optimizer(model, steps)),
        )
        model, _, scores = fit(run, settings)
    else:
        if output_paths.writes_reports():
            with exit_on_user_error():
                run.write_record()
        stop_on_signals("while evaluating")
        scores = evaluate(model, evaluation) if evaluation else {}
        saved = ""
        if output_paths.writes_reports():
            with exit_on_user_error(OSError):
                files.write_json(run.path("metrics.json"), scores)
            saved = f". The reports are in {run.output}"
        stop_on_signals(f"while predicting{saved}")
    if prediction:
        predict(model, prediction)
    export(model, **export_arguments)
    labelled = [
        f"{label} {scores[name]:.2f}" for name, label in model.scores.items() if name in scores
    ]
    if labelled:
        total = f", on {format_count(scores['total'], 'example')}" if "total" in scores else ""
        log(", ".join(labelled) + total)
    if output_paths.writes_reports():
        log(f"Wrote {'the preset and ' if train else ''}{run.report_names()} to {run.output}")
    elif not (FLAGS.predictions or FLAGS.html or FLAGS.export):
        log("Wrote no file. --predictions=FILE writes the predictions to a file")
    return scores


def _best_score(report):
    """Returns the score that selected the checkpoint and that sweeps compare."""
    return {"best_score": report.best_score} if report.best else {}


def _check_head(untrained):
    """Raises `ValueError` if a head has no weights and there is nothing to train it on."""
    if untrained and not FLAGS.train_data:
        raise ValueError(
            "`--preset` must have a trained head to evaluate, predict or export. "
            f"To train one, give --train_data. Received: {FLAGS.preset}, without weights for "
            f"{' and '.join(untrained)}"
        )


def build_model(cls: type, preprocessor_flags: tuple[str, ...] = ("sequence_length",), **arguments):
    """Builds the model of the preset. A head without weights is initialized at random.

    Args:
        cls: the task's class.
        preprocessor_flags: names of the flags that are arguments of the preprocessor.
        **arguments: arguments of the class.
    """
    from keras_spanbert.models.classifier import NoLabelsError

    try:
        with preset_warnings():
            model = cls.from_preset(FLAGS.preset, preprocessor=None, dtype=FLAGS.dtype, **arguments)
    except NoLabelsError:
        _check_head([f"the head of {cls.__name__}"])
        raise
    longest = model.backbone.max_sequence_length
    given = {name: FLAGS[name].value for name in preprocessor_flags if FLAGS[name].present}
    if FLAGS.train_data:  # Otherwise the preset's settings apply.
        length = given.setdefault("sequence_length", min(FLAGS.sequence_length, longest))
        given = {**cls.preprocessor_cls.arguments_for_length(length), **given}
    model.preprocessor = cls.preprocessor_cls.from_preset(FLAGS.preset, **given)
    set_flags(**{name: getattr(model.preprocessor, name) for name in preprocessor_flags})
    if FLAGS.sequence_length > longest:
        raise ValueError(
            f"`--sequence_length` must be at most the preset's {longest}. "
            f"Received: {FLAGS.sequence_length}"
        )
    return model


def length_grouped_stream(model, examples: list):
    """Returns the stream of labelled examples, in batches of similar length."""
    from keras_spanbert.data.length_batches import LengthGroupedStream

    log(
        f"{format_count(len(examples), 'example')}; tokenizing to at most "
        f"{FLAGS.sequence_length} tokens"
    )
    arrays = model.preprocess(examples)
    lower_batch_size(len(arrays[0]["token_ids"]))
    return LengthGroupedStream(arrays, FLAGS.batch_size, FLAGS.seed)


def lower_batch_size(num_rows: int) -> None:
    """Lowers --batch_size to the number of rows, unless the user gave it."""
    if num_rows < FLAGS.batch_size and not FLAGS["batch_size"].present:
        log(f"--batch_size={num_rows}: the training data has no more rows")
        set_flags(batch_size=num_rows)

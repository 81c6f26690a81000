"""What recipes of tasks that are fine-tuned share: data in, model, training, predictions out."""

from collections.abc import Callable

from keras_spanbert.recipes.checks import INPUTS, shown
from keras_spanbert.recipes.flags import FLAGS, resolve
from keras_spanbert.recipes.run import Run, exit_process
from keras_spanbert.recipes.terminal import log, stop_on_signals, user_input


def check(needs_predictions: bool = True) -> None:
    """Raises a ValueError where there is no model, nothing to do, or no place for predictions.

    Args:
        needs_predictions: bool. Whether what is predicted must be written.
            Defaults to `True`.
    """
    does_something = FLAGS.train_data or FLAGS.eval_data or FLAGS.predict_data or FLAGS.export
    if not FLAGS.preset or not does_something:
        raise ValueError(
            f"--task={FLAGS.task} takes --preset, and one of --train_data, --eval_data, "
            f"--predict_data and --export. Received: {shown('preset')}"
        )
    is_missing = needs_predictions and FLAGS.predict_data and not FLAGS.predictions
    if is_missing or (FLAGS.predictions and not FLAGS.predict_data):
        raise ValueError(
            "--predict_data and --predictions go together. Received: "
            + shown("predict_data", "predictions")
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
    """Trains where there is data to train on, evaluates, predicts, exports.

    Args:
        run: `Run`.
        build: function that returns the task's model: see `build_model`.
        read: function of paths, the name of their flag and the model, `None`
            for --train_data, which returns examples.
        stream: function of the model and examples, which returns the `RowStream`
            to train on.
        evaluate: function of a model and examples, which returns scores: those
            of the class's `scores`, and others.
        predict: function of a model and examples, which writes --predictions.
        learning_rate: float, where --learning_rate is not given.
        epochs: int, where neither --steps nor --epochs is given.
        sequences: function of the model and the stream, which returns how many
            sequences a row of it has. Defaults to `None`, one.
        optimizer: see `Plan`.
        arguments: function of the examples to train on, which returns arguments
            of `build`, such as their labels. Defaults to `None`: there are none.
        **export_arguments: of the task's `serving_function`.

    Returns:
        The scores of the model that was saved, or of the one that was evaluated.
    """
    from keras_spanbert import files
    from keras_spanbert.data.text_files import find_files
    from keras_spanbert.recipes.fit import export, fit
    from keras_spanbert.recipes.plan import Plan
    from keras_spanbert.runs import plots

    distribution = run.distribution
    with user_input():
        if not FLAGS.train_data:
            # One process predicts, on one device: the last batch may be of any size.
            distribution.close()
            if not run.is_main:
                exit_process(None)
        data = {name: FLAGS[name].value and find_files(FLAGS[name].value) for name in INPUTS}
        # Before the model: what a checkpoint lacks is no matter to a mistake in the data.
        train = data["train_data"] and read(data["train_data"], "train_data", None)
        of_labels = arguments(train) if arguments and train else {}
        with distribution.scope():
            model = build(**of_labels)
        _check_head(model.untrained_heads())
        evaluation, prediction = (
            data[name] and read(data[name], name, model) for name in ["eval_data", "predict_data"]
        )
    if train:
        with user_input():
            rows = stream(model, train)
        steps_per_epoch = -(-rows.num_rows // FLAGS.batch_size)

        def plot(report):
            if report.rows:
                title = FLAGS.task.replace("_", " ").capitalize()
                plots.plot_scores(run.path("loss.png"), report.rows, title, model.scores)

        plan = Plan(
            model=model,
            stream=rows,
            num_examples=rows.num_rows,
            learning_rate=learning_rate,
            steps=epochs * steps_per_epoch,
            eval_every=steps_per_epoch,
            evaluate=(lambda model: evaluate(model, evaluation)) if evaluation else None,
            metrics=lambda report: {**report.best, **_best_score(report)},
            plot=plot,
            sequences=sequences(model, rows) if sequences else 1,
            optimizer=optimizer and (lambda steps: optimizer(model, steps)),
        )
        model, _, scores = fit(run, plan)
    else:
        with user_input():
            run.write_record()
        stop_on_signals(f"while predicting, what there is stands in {run.output}")
        scores = evaluate(model, evaluation) if evaluation else {}
        with user_input(OSError):
            files.write_json(run.path("metrics.json"), scores)
    if prediction:
        predict(model, prediction)
    export(model, **export_arguments)
    shown = [
        f"{label} {scores[name]:.2f}" for name, label in model.scores.items() if name in scores
    ]
    if shown:
        total = f", on {scores['total']:,} examples" if "total" in scores else ""
        log(", ".join(shown) + total)
    log(f"Wrote {'the preset and ' if train else ''}{run.written()} to {run.output}")
    return scores


def _best_score(report):
    """The score that chose the model, by which runs are compared."""
    return {"best_score": report.best_score} if report.best else {}


def _check_head(untrained):
    """Raises a ValueError where there is a head without weights, and nothing to train it on."""
    if untrained and not FLAGS.train_data:
        raise ValueError(
            "`--preset` must have a trained head to evaluate, predict or export with: "
            f"--train_data trains one. Received: {FLAGS.preset}, without weights for "
            f"{' and '.join(untrained)}"
        )


def build_model(cls: type, preprocessor_flags: tuple[str, ...] = ("sequence_length",), **arguments):
    """The preset's model; a checkpoint's head starts fresh where it has none.

    Args:
        cls: the task's class.
        preprocessor_flags: names of flags that are the preprocessor's arguments.
        **arguments: of the class.
    """
    from keras_spanbert.models.classifier import NoLabelsError

    try:
        model = cls.from_preset(FLAGS.preset, preprocessor=None, dtype=FLAGS.dtype, **arguments)
    except NoLabelsError:
        _check_head([f"the head of {cls.__name__}"])
        raise
    longest = model.backbone.max_sequence_length
    given = {name: FLAGS[name].value for name in preprocessor_flags if FLAGS[name].present}
    if FLAGS.train_data:  # A model that is not trained here keeps its preprocessor's settings.
        length = given.setdefault("sequence_length", min(FLAGS.sequence_length, longest))
        given = {**cls.preprocessor_cls.arguments_for_length(length), **given}
    model.preprocessor = cls.preprocessor_cls.from_preset(FLAGS.preset, **given)
    resolve(**{name: getattr(model.preprocessor, name) for name in preprocessor_flags})
    if FLAGS.sequence_length > longest:
        raise ValueError(
            f"`--sequence_length` must be at most the preset's {longest}. "
            f"Received: {FLAGS.sequence_length}"
        )
    return model


def length_grouped(model, examples: list):
    """The stream of labelled examples, in batches of like length."""
    from keras_spanbert.data.length_batches import LengthGroupedStream

    log(f"{len(examples):,} examples; making rows of up to {FLAGS.sequence_length} tokens")
    arrays = model.preprocess(examples)
    num_rows = len(arrays[0]["token_ids"])
    if num_rows < FLAGS.batch_size and not FLAGS["batch_size"].present:
        log(f"--batch_size={num_rows}, as there are no more rows")
        resolve(batch_size=num_rows)
    return LengthGroupedStream(arrays, FLAGS.batch_size, FLAGS.seed)

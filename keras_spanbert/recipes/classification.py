"""`--task=classification`: texts, or pairs of them, and their classes or numbers."""

import os

from keras_spanbert.recipes import columns, fine_tuning
from keras_spanbert.recipes.checks import check_value
from keras_spanbert.recipes.flags import FLAGS, group
from keras_spanbert.recipes.run import Run
from keras_spanbert.recipes.terminal import log, user_input

DEFAULTS = {"sequence_length": 128, "batch_size": 32, "beta_2": 0.999, "epsilon": 1e-6}
_EPOCHS = 3
_LEARNING_RATE = 2e-5

string, integer, number, boolean, strings, choice = group("Classification")
string("text_pair_column", None, "Column of a second text. Default: none.")
boolean("regression", False, "Whether labels are numbers to predict.")


def check() -> None:
    """Raises a ValueError for what the flags alone show to be wrong."""
    fine_tuning.check()
    columns.check("classification")
    if FLAGS.benchmark == "ax":
        check_value("benchmark", not FLAGS.train_data and not FLAGS.eval_data, "for --predict_data")
    if FLAGS.benchmark:
        check_value("regression", not FLAGS.regression, "without --benchmark, which knows")


def run(run: Run) -> None:
    """Trains where there is data to train on, evaluates, classifies, exports."""
    fine_tuning.fine_tune(
        run,
        _build,
        _read,
        fine_tuning.length_grouped,
        _evaluate,
        _predict,
        learning_rate=_LEARNING_RATE,
        epochs=_EPOCHS,
        arguments=_classes,
    )


def _classes(examples):
    """The classes of the examples to train on, as arguments of the model."""
    from keras_spanbert.metrics.glue import CLASSES

    if FLAGS.benchmark:
        names = CLASSES[FLAGS.benchmark]
    elif FLAGS.regression:
        names = None
    else:
        names = sorted({example["label"] for example in examples}, key=_natural)
        columns.check_labels(names, "classes")
    return {"num_classes": 1} if names is None else {"class_names": list(names)}


def _natural(name):
    """Orders numbers by their value, before other names."""
    is_number = name.isascii() and name.isdecimal()
    return (0, int(name), name) if is_number else (1, 0, name)


def _build(**arguments):
    import keras_spanbert as ks

    model = fine_tuning.build_model(ks.SpanBertTextClassifier, **arguments)
    if FLAGS.regression and not model.is_regression:
        raise ValueError(
            "`--regression` takes a preset of one class, or --train_data. Received: "
            f"--preset={FLAGS.preset}, of {model.num_classes} classes"
        )
    return model


def _read(paths, flag, model):
    from keras_spanbert.data import glue
    from keras_spanbert.data.columns import read_texts

    if FLAGS.benchmark:
        if model is not None:
            model.check_task(FLAGS.benchmark)
        return glue.read(paths, FLAGS.benchmark, _split(paths[0], flag))
    is_regression = FLAGS.regression if model is None else model.is_regression
    return read_texts(
        paths,
        text=FLAGS.text_column,
        text_pair=FLAGS.text_pair_column,
        label=FLAGS.label_column or "label",
        id=FLAGS.id_column,
        needs_labels=flag != "predict_data",
        labels=None if model is None or is_regression else model.class_names,
        is_regression=is_regression,
    )


def _split(path, flag):
    """The split whose columns a file of GLUE has: that of its name, else of its flag's data."""
    from keras_spanbert.data.glue import splits_of

    name = os.path.basename(path).partition(".")[0]
    splits = splits_of(FLAGS.benchmark)
    if name in splits:
        return name
    wanted = {"train_data": "train", "eval_data": "dev", "predict_data": "test"}[flag]
    return next(split for split in splits if split.startswith(wanted))


def _evaluate(model, examples):
    return model.evaluate_texts(examples, FLAGS.benchmark, FLAGS.batch_size)


def _predict(model, examples):
    from keras_spanbert.data import glue

    found = model.classify(examples, batch_size=FLAGS.batch_size)
    with user_input():
        if FLAGS.benchmark:
            name = "score" if model.is_regression else "label"
            predictions = [answer[name] for answer in found]
            glue.write_predictions(FLAGS.predictions, FLAGS.benchmark, examples, predictions)
        else:
            rows = [{"id": example["id"], **answer} for example, answer in zip(examples, found)]
            for row in rows:
                row.pop("scores", None)
            columns.write_rows(rows)
    log(f"Wrote the predictions of {len(found):,} texts to {FLAGS.predictions}")

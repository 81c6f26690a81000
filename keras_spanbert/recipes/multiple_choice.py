"""`--task=multiple_choice`: questions, or texts to go on with, and their choices."""

import importlib

from keras_spanbert.recipes import columns, fine_tuning
from keras_spanbert.recipes.checks import check_value
from keras_spanbert.recipes.flags import FLAGS, group
from keras_spanbert.recipes.run import Run
from keras_spanbert.recipes.terminal import log, user_input

DEFAULTS = {"sequence_length": 128, "batch_size": 16, "beta_2": 0.999, "epsilon": 1e-6}
_EPOCHS = 3
_LEARNING_RATE = 2e-5
# Those whose sites take predictions, in a form of their own.
_WITH_SUBMISSIONS = ("swag", "cosmos_qa", "commonsense_qa")

string, integer, number, boolean, strings, choice = group("Multiple choice")
string("question_column", "question", "Column of the question, or of what begins each choice.")
string("context_column", None, "Column of a text that the question is about. Default: none.")
strings(
    "choice_columns",
    ["choice0", "choice1", "choice2", "choice3"],
    "Columns of the choices, or of .jsonl the one column that has a list of them.",
)


def check() -> None:
    """Raises a ValueError for what the flags alone show to be wrong."""
    fine_tuning.check()
    columns.check("multiple_choice")
    for name in ["question_column", "context_column", "choice_columns"] if FLAGS.benchmark else []:
        check_value(name, not FLAGS[name].present, "without --benchmark, which knows")
    check_value("text_column", not FLAGS["text_column"].present, "left out: --question_column")
    check_value("sequence_length", FLAGS.sequence_length >= 5, "at least 5: three special tokens")
    check_value("choice_columns", any(FLAGS.choice_columns), "a column or more")
    if FLAGS.predictions and FLAGS.benchmark not in _WITH_SUBMISSIONS:
        is_known = FLAGS.predictions.endswith(columns.ENDINGS)
        check_value("predictions", is_known, f"a file that ends in {', '.join(columns.ENDINGS)}")


def run(run: Run) -> None:
    """Trains where there is data to train on, evaluates, chooses, exports."""
    fine_tuning.fine_tune(
        run,
        _build,
        _read,
        fine_tuning.length_grouped,
        _evaluate,
        _predict,
        learning_rate=_LEARNING_RATE,
        epochs=_EPOCHS,
        sequences=lambda model, stream: stream.arrays[0]["choice_mask"].shape[1],
    )


def _build():
    import keras_spanbert as ks

    return fine_tuning.build_model(ks.SpanBertMultipleChoice)


def _reader():
    """The module that reads files of --benchmark, and writes its predictions."""
    return importlib.import_module(f"keras_spanbert.data.{FLAGS.benchmark}")


def _read(paths, flag, model):
    from keras_spanbert.data.columns import read_choices

    needs_labels = flag != "predict_data"
    if FLAGS.benchmark:
        return _reader().read(paths, needs_labels)
    names = FLAGS.choice_columns
    return read_choices(
        paths,
        question=FLAGS.question_column,
        choices=names[0] if len(names) == 1 else names,
        context=FLAGS.context_column,
        label=FLAGS.label_column or "label",
        id=FLAGS.id_column,
        needs_labels=needs_labels,
    )


def _evaluate(model, examples):
    return model.evaluate_choices(examples, FLAGS.batch_size)


def _predict(model, examples):
    found = model.choose(examples, batch_size=FLAGS.batch_size)
    numbers = [answer["choice"] for answer in found]
    with user_input():
        if FLAGS.benchmark in _WITH_SUBMISSIONS:
            _reader().write_predictions(FLAGS.predictions, examples, numbers)
        else:
            columns.write_rows(
                [
                    {"id": example["id"], "choice": number, "score": answer["scores"][number]}
                    for example, number, answer in zip(examples, numbers, found)
                ]
            )
    log(f"Wrote the choices for {len(found):,} questions to {FLAGS.predictions}")

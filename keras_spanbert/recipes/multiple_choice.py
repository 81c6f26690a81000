"""`--task=multiple_choice`: chooses the answer to a question, or the continuation of a text."""

import keras_spanbert as ks
from keras_spanbert.recipes import columns, fine_tuning
from keras_spanbert.recipes.checks import check_value
from keras_spanbert.recipes.flags import FLAGS, Group
from keras_spanbert.recipes.recipe import Recipe
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.wording import format_count

# Endings of predictions in the submission format of a benchmark.
_SUBMISSIONS = {
    "swag": (".csv",),
    "cosmos_qa": (".lst", ".txt", ".csv"),
    "commonsense_qa": (".csv",),
}

group = Group("Multiple choice", "only for --task=multiple_choice, without --dataset.")
group.string(
    "question_column",
    "Column of the question, or of the text that each choice continues.",
    default="question",
)
group.string(
    "context_column", "Column of the text that the question is about. Default: no such text."
)
group.strings(
    "choice_columns",
    "Columns of the choices, one column per choice. In .jsonl files, it can also be a single "
    "column that holds a list of choices.",
    default=["choice0", "choice1", "choice2", "choice3"],
)


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    fine_tuning.check()
    columns.check(only_tables=True)
    check_value("text_column", not FLAGS["text_column"].present, "left out; use --question_column")
    check_value(
        "sequence_length", FLAGS.sequence_length >= 5, "at least 5, for three special tokens"
    )
    check_value("choice_columns", any(FLAGS.choice_columns), "one or more columns")


def read(paths, flag, model):
    needs_labels = flag != "predict_data"
    if FLAGS.dataset:
        return getattr(ks.data, FLAGS.dataset).read(paths, needs_labels)
    names = FLAGS.choice_columns
    return ks.data.columns.read_choices(
        paths,
        question=FLAGS.question_column,
        choices=names[0] if len(names) == 1 else names,
        context=FLAGS.context_column,
        label=FLAGS.label_column or "label",
        id=FLAGS.id_column,
        needs_labels=needs_labels,
        quoted=FLAGS.quoted_tsv or None,
    )


def predict(model, examples):
    found = model.choose(examples, batch_size=FLAGS.batch_size)
    numbers = [answer["choice"] for answer in found]
    with exit_on_user_error():
        if FLAGS.dataset in _SUBMISSIONS:
            write = getattr(ks.data, FLAGS.dataset).write_predictions
            write(FLAGS.predictions, examples, numbers)
        else:
            columns.write_rows(
                [
                    {"id": example["id"], "choice": number, "score": answer["scores"][number]}
                    for example, number, answer in zip(examples, numbers, found)
                ]
            )
    log(f"Wrote the choices for {format_count(len(found), 'question')} to {FLAGS.predictions}")


RECIPE = Recipe(
    check=check,
    defaults={"sequence_length": 128, "batch_size": 16, "beta_2": 0.999, "epsilon": 1e-8},
    groups=("Labelled data",),
    datasets=("swag", "codah", "cosmos_qa", "commonsense_qa", "race"),
    endings=lambda: _SUBMISSIONS.get(FLAGS.dataset, columns.EXTENSIONS),
    # The number of choices per question.
    sequences=lambda model, stream: stream.arrays[0]["choice_mask"].shape[1],
    read=read,
    evaluate=lambda model, examples: model.evaluate_choices(examples, FLAGS.batch_size),
    predict=predict,
)

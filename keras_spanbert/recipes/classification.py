"""`--task=classification`: classifies texts or pairs of texts, or predicts a number for them."""

import itertools
import os

import keras_spanbert as ks
from keras_spanbert.files import ending
from keras_spanbert.recipes import columns, fine_tuning
from keras_spanbert.recipes.checks import check_value, refuse
from keras_spanbert.recipes.flags import FLAGS, Group
from keras_spanbert.recipes.recipe import Recipe
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.wording import format_count

group = Group("Classification", "only for --task=classification, without --dataset.")
group.string("text_pair_column", "Column of a second text. Default: no second text.")
group.boolean(
    "regression", "Predict a number for each text. The labels must be numbers.", default=False
)
group.boolean(
    "multi_label",
    "Predict any number of labels per text. In .jsonl files the label column holds a list; in "
    "other files the labels of a text are separated by --label_separator. Needed only for "
    "training: a preset keeps its own setting.",
    default=False,
)
group.string(
    "label_separator",
    "Separator between the labels of a text in .csv and .tsv files, with --multi_label.",
    default="|",
)
group.string(
    "skip_label",
    "Label of rows without a gold label. They are left out of --train_data and --eval_data. In "
    "SNLI and MultiNLI this is -. Default: none.",
)
group.choice(
    "selection_metric",
    ["accuracy", "macro_f1"],
    "The score on --eval_data that selects the best checkpoint. Not for --dataset and "
    "--regression, which have scores of their own. Default: accuracy, or micro F1 with "
    "--multi_label.",
)


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    fine_tuning.check()
    columns.check(only_tables=True)
    if FLAGS.dataset == "ax":
        rule = "given with only --predict_data if it is ax, which has no labels"
        check_value("dataset", not FLAGS.train_data and not FLAGS.eval_data, rule)
    for name in ["regression", "multi_label", "skip_label"] if FLAGS.dataset else []:
        check_value(name, FLAGS[name].value in (None, False), "left out with --dataset")
    if FLAGS.multi_label and FLAGS.regression:
        mistake = "`--multi_label` and `--regression` cannot both be given"
        refuse(mistake, "multi_label", "regression")
    check_value("label_separator", FLAGS.label_separator, "a non-empty string")
    if FLAGS.selection_metric:
        has_own = FLAGS.dataset or FLAGS.regression
        check_value("selection_metric", not has_own, "left out with --dataset and --regression")
        check_value("selection_metric", FLAGS.eval_data, "given together with --eval_data")
    if FLAGS.train_data or FLAGS.dataset or FLAGS.regression:  # Otherwise the preset decides.
        _check_separator(FLAGS.multi_label)


def _check_separator(is_used):
    is_right = is_used or not FLAGS["label_separator"].present
    check_value("label_separator", is_right, "given together with --multi_label")


def model_arguments(examples):
    """Returns the classes of the training examples, as arguments of the model."""
    from keras_spanbert.metrics.glue import CLASSES
    from keras_spanbert.models.classifier import UNNAMED

    if FLAGS.dataset:
        names = CLASSES[FLAGS.dataset]
    elif FLAGS.regression:
        names = None
    else:
        labels = [example["label"] for example in examples]
        names = {*(itertools.chain.from_iterable(labels) if FLAGS.multi_label else labels)}
        # Numbers come first, by their value.
        numbers = {name: name.removeprefix(UNNAMED) for name in names}
        numbers = {n: int(x) for n, x in numbers.items() if x.isascii() and x.isdecimal()}
        names = sorted(names, key=lambda n: (n not in numbers, numbers.get(n, 0), n))
        columns.check_labels(names, "class", "classes", least=1 if FLAGS.multi_label else 2)
    labels = {"num_classes": 1} if names is None else {"class_names": list(names)}
    return {**labels, "multi_label": FLAGS.multi_label}


def build(**arguments):
    """Builds the model, and checks the flags that depend on it."""
    model = fine_tuning.build_model(**arguments)
    if FLAGS.regression and not model.is_regression:
        mistake = "`--regression` needs a preset with one output, or --train_data"
        refuse(mistake, "preset", more=f", with {model.num_classes} classes")
    if FLAGS.multi_label and not model.multi_label:
        mistake = "`--multi_label` needs a multi-label preset, or --train_data to train one"
        refuse(mistake, "preset", more=", with one label per text")
    _check_separator(model.multi_label)
    is_right = not (FLAGS.selection_metric and model.is_regression)
    check_value("selection_metric", is_right, "left out with a preset that predicts numbers")
    if model.multi_label and FLAGS.predictions and ending(FLAGS.predictions) != ".jsonl":
        name = next((name for name in model.class_names if FLAGS.label_separator in name), None)
        check_value(
            "label_separator",
            name is None,
            f"absent from all labels, unless --predictions is .jsonl; {name!r} has it",
        )
    return model


def read(paths, flag, model):
    if FLAGS.dataset:
        if model is not None:
            model.check_task(FLAGS.dataset)
        # The name of a file determines its split, or else its flag.
        splits = ks.data.glue.splits_of(FLAGS.dataset)
        name = os.path.basename(paths[0]).partition(".")[0]
        wanted = {"train_data": "train", "eval_data": "dev", "predict_data": "test"}[flag]
        default = next((split for split in splits if split.startswith(wanted)), None)
        return ks.data.glue.read(paths, FLAGS.dataset, name if name in splits else default)
    is_regression = FLAGS.regression if model is None else model.is_regression
    multi_label = FLAGS.multi_label if model is None else model.multi_label
    return ks.data.columns.read_texts(
        paths,
        text=FLAGS.text_column,
        text_pair=FLAGS.text_pair_column,
        label=FLAGS.label_column or "label",
        id=FLAGS.id_column,
        needs_labels=flag != "predict_data",
        labels=None if model is None or is_regression else model.class_names,
        is_regression=is_regression,
        label_separator=FLAGS.label_separator if multi_label else None,
        skip_label=FLAGS.skip_label,
        quoted=FLAGS.quoted_tsv or None,
    )


def predict(model, examples):
    found = model.classify(examples, batch_size=FLAGS.batch_size)
    with exit_on_user_error():
        if FLAGS.dataset:
            name = "score" if model.is_regression else "label"
            predictions = [answer[name] for answer in found]
            ks.data.glue.write_predictions(FLAGS.predictions, FLAGS.dataset, examples, predictions)
        else:
            rows = [{"id": e["id"], **_row(x)} for e, x in zip(examples, found)]
            columns.write_rows(rows, FLAGS.label_separator)
    log(f"Wrote the predictions of {format_count(len(found), 'text')} to {FLAGS.predictions}")


def _row(answer):
    """Returns the label and its score, or lists of several."""
    if "labels" not in answer:
        return {name: value for name, value in answer.items() if name != "scores"}
    return {"labels": answer["labels"], "scores": [answer["scores"][n] for n in answer["labels"]]}


RECIPE = Recipe(
    check=check,
    defaults={"sequence_length": 128, "batch_size": 32, "beta_2": 0.999, "epsilon": 1e-8},
    groups=("Labelled data",),
    datasets=("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli", "ax"),
    endings=lambda: (".tsv",) if FLAGS.dataset else columns.EXTENSIONS,
    model_arguments=model_arguments,
    build=build,
    read=read,
    evaluation_flags=("batch_size", "selection_metric"),
    evaluate=lambda model, examples: model.evaluate_texts(
        examples, FLAGS.dataset, FLAGS.batch_size, FLAGS.selection_metric
    ),
    predict=predict,
)

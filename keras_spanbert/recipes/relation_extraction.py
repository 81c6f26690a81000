"""`--task=relation_extraction`: predicts the relation of a subject and an object in a text."""

import keras_spanbert as ks
from keras_spanbert.data import tables
from keras_spanbert.files import ending
from keras_spanbert.recipes import columns, fine_tuning
from keras_spanbert.recipes.checks import INPUTS, check_value, matching_files
from keras_spanbert.recipes.flags import FLAGS, Group, set_flags
from keras_spanbert.recipes.recipe import Format, Recipe, formats_of
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.wording import format_count

group = Group("Relation extraction", "only for --task=relation_extraction.")
group.choice(
    "feature_mode",
    ["ner", "text", "text_ner", "ner_text"],
    "How the input shows the subject and the object. ner: their types replace their words. text: "
    "special tokens mark their words. text_ner: like text, with the types appended. ner_text: like "
    "ner, with the words appended. Default: the mode of the preset, else ner, or text for data "
    "without types.",
)
for role in ["subject", "object"]:
    group.strings(
        f"{role}_columns",
        f"Two columns: the start and the end of the {role}, as positions of characters in the "
        "text. The start counts from 0, and the end is the position after the last character.",
        default=[f"{role}_start", f"{role}_end"],
    )
for role in ["subject", "object"]:
    group.string(f"{role}_type_column", f"Column of the {role}'s type. Default: no types.")
group.string(
    "negative_label",
    "The label of examples in which no relation holds. Precision, recall and F1 do not count it as "
    "a relation. Default: no_relation, or Other for SemEval-2010 Task 8.",
)


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    fine_tuning.check()
    columns.check()
    for name in ["subject_columns", "object_columns"]:
        check_value(name, len(FLAGS[name].value) == 2, "two columns, for the start and the end")
    paths = [path for name in INPUTS for path in matching_files(name)]
    found = _formats(paths)
    if FLAGS.feature_mode not in (None, "text"):  # It needs types.
        are_named = FLAGS.subject_type_column and FLAGS.object_type_column
        are_named = are_named or not any(ending(path) in (".csv", ".tsv") for path in paths)
        rule = "text without --subject_type_column and --object_type_column"
        check_value("feature_mode", "columns" not in found or are_named, rule)
        rule = "text with SemEval-2010 Task 8, which has no types"
        check_value("feature_mode", "semeval2010" not in found, rule)


def _formats(paths):
    """Returns the names of the formats of files. --dataset overrides their endings."""
    return {FLAGS.dataset} if FLAGS.dataset and paths else set(formats_of(FORMATS, paths))


def model_arguments(examples):
    """Returns arguments of the model: the relations, and whether the examples have types."""
    no_relation = FLAGS.negative_label or "no_relation"
    names = {example["relation"] for example in examples}
    if FLAGS.negative_label is not None:
        rule = f"a relation of --train_data: {', '.join(sorted(names))}"
        check_value("negative_label", no_relation in names, rule)
    relations = list(ks.data.semeval2010.RELATIONS)
    if FLAGS.negative_label is not None or not relations[0] in names <= set(relations):
        relations = ks.data.tacred.relation_names(examples, no_relation)
    columns.check_labels(relations, "relation")
    log(f"Label for no relation: {relations[0]}")
    has_types = any(example["subj_type"] or example["obj_type"] for example in examples)
    return {"relations": relations, "has_types": has_types}


def build(has_types=True, **arguments):
    """Builds the model, with the mode of --feature_mode."""
    from keras_spanbert.tasks.relation_extraction.model import with_unused_tokens

    model = fine_tuning.build_model(**arguments)
    if model.preprocessor.lacks_tokens:
        model = with_unused_tokens(model)
    given = model.preprocessor
    mode = FLAGS.feature_mode or given.mode
    if not (FLAGS.feature_mode or has_types or given.types()):
        mode = "text"
    if mode != given.mode:
        model.preprocessor = type(given)(
            given.tokenizer, given.sequence_length, mode, given.symbols, given.truncation
        )
    set_flags(feature_mode=mode)
    return model


def read(paths, flag, model):
    found = _formats(paths)
    if len(found) > 1:
        raise ValueError(
            "Files must be all TACRED (.json), all SemEval (.txt), or all with named columns "
            f"(.csv, .tsv, .jsonl); or give --dataset. Received: {' '.join(paths)}"
        )
    relations = None if model is None else list(model.relations)
    examples = FORMATS[found.pop()].read(paths, flag != "predict_data", relations)
    if model is not None and model.preprocessor.uses_types:
        _take_types(model.preprocessor, examples, paths)
    return examples


def _read_semeval(paths, needs_labels, relations):
    examples = ks.data.semeval2010.read(paths, needs_labels)
    for example in examples if relations else []:
        if example["relation"] not in [None, *relations]:
            raise ValueError(
                f"{' '.join(paths)}, id {example['id']}: the relation must be one of the "
                f"model's, {', '.join(relations)}. Received: {example['relation']!r}"
            )
    return examples


def _read_columns(paths, needs_labels, relations):
    return ks.data.columns.read_relations(
        paths,
        text=FLAGS.text_column,
        subject=tuple(FLAGS.subject_columns),
        object=tuple(FLAGS.object_columns),
        subject_type=FLAGS.subject_type_column,
        object_type=FLAGS.object_type_column,
        relation=FLAGS.label_column or "relation",
        id=FLAGS.id_column,
        needs_labels=needs_labels,
        relations=relations,
        quoted=FLAGS.quoted_tsv or None,
    )


def _take_types(preprocessor, examples, paths):
    """Checks that the model knows the types in the data. In training, adds symbols for them."""
    hint = ""
    if FLAGS.train_data:
        preprocessor.adapt(examples)
        hint = "; --feature_mode=text needs no types"
    known = preprocessor.symbols
    for example in examples:
        for role, key in [("SUBJ", "subj_type"), ("OBJ", "obj_type")]:
            if f"{role}={example[key]}" not in known:
                raise ValueError(
                    f"{' '.join(paths)}, id {example['id']}: --feature_mode={preprocessor.mode} "
                    "needs types of subject and object that the model knows. In tables they are in "
                    f"--subject_type_column and --object_type_column{hint}. Received: `{key}` "
                    f"{example[key]!r}"
                )


def stream(model, examples):
    """Returns the stream of examples, after giving symbols to their types."""
    if model.preprocessor.uses_types:
        # The released script gives symbols to the types of the evaluation data first.
        _take_types(model.preprocessor, examples, FLAGS.train_data)
        types = format_count(len(model.preprocessor.types()), "type")
        log(f"Symbols for {types} of subjects and objects")
    return fine_tuning.stream(model, examples)


def evaluate(model, examples):
    scores = model.evaluate_relations(examples, FLAGS.batch_size)
    return {name: value for name, value in scores.items() if name != "by_relation"}


def predict(model, examples):
    found = model.extract(examples, batch_size=FLAGS.batch_size)
    with exit_on_user_error():
        FORMATS[FLAGS.dataset or "columns"].write(examples, found)
    log(f"Wrote the relations of {format_count(len(found), 'sentence')} to {FLAGS.predictions}")


def _write_dataset(examples, found):
    write = getattr(ks.data, FLAGS.dataset).write_predictions
    write(FLAGS.predictions, examples, [answer["relation"] for answer in found])


def _write_columns(examples, found):
    columns.write_rows([{"id": e["id"], **answer} for e, answer in zip(examples, found)])


# The values of --dataset, and the user's own tables.
FORMATS = {
    "tacred": Format(
        (".json",), lambda *args: ks.data.tacred.read(*args), _write_dataset, (".txt", ".tsv")
    ),
    "semeval2010": Format((".txt",), _read_semeval, _write_dataset, (".txt", ".tsv")),
    "columns": Format(tables.ENDINGS, _read_columns, _write_columns, columns.EXTENSIONS),
}

RECIPE = Recipe(
    check=check,
    defaults={"sequence_length": 128, "batch_size": 32, "beta_2": 0.999, "epsilon": 1e-8},
    groups=("Labelled data",),
    datasets=("tacred", "semeval2010"),
    endings=lambda: FORMATS[FLAGS.dataset or "columns"].written,
    epochs=10,
    model_arguments=model_arguments,
    build=build,
    stream=stream,
    read=read,
    evaluate=evaluate,
    predict=predict,
)

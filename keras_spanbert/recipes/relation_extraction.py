"""`--task=relation_extraction`: sentences with a subject and an object, and their relation."""

import os

from keras_spanbert import stores
from keras_spanbert.recipes import columns, fine_tuning
from keras_spanbert.recipes.checks import INPUTS, check_value
from keras_spanbert.recipes.flags import FLAGS, group, resolve
from keras_spanbert.recipes.run import Run
from keras_spanbert.recipes.terminal import log, user_input

DEFAULTS = {"sequence_length": 128, "batch_size": 32, "beta_2": 0.999, "epsilon": 1e-6}
_EPOCHS = 10
_LEARNING_RATE = 2e-5
# Layouts by the endings of files, where no --benchmark says them; others have columns.
_LAYOUTS = {".json": "tacred", ".txt": "semeval2010"}

string, integer, number, boolean, strings, choice = group("Relation extraction")
choice(
    "feature_mode",
    None,
    ["ner", "text", "text_ner", "ner_text"],
    "How rows show subject and object: their types instead of them, symbols about them, or both. "
    "Default: the preset's, else ner, or text for data without types.",
)
strings(
    "subject_columns",
    ["subject_start", "subject_end"],
    "Columns of the subject's first character and of the one after its last.",
)
strings("object_columns", ["object_start", "object_end"], "Likewise, of the object.")
string("subject_type_column", None, "Column of the subject's type. Default: none.")
string("object_type_column", None, "Column of the object's type. Default: none.")
string(
    "no_relation",
    None,
    "The label that is no relation, which scores leave out. Default: no_relation, of SemEval-2010 "
    "Task 8 Other.",
)


def check() -> None:
    """Raises a ValueError for what the flags alone show to be wrong."""
    fine_tuning.check()
    columns.check("relation_extraction")
    for name in ["subject_columns", "object_columns"]:
        check_value(name, len(FLAGS[name].value) == 2, "two columns, of a start and an end")
    if FLAGS.feature_mode not in (None, "text"):
        _check_types()


def _check_types():
    """Raises a ValueError where no file can have the types that rows are to show."""
    layouts = {
        _layout(path)
        for name in INPUTS
        for pattern in FLAGS[name].value or []
        for path in stores.find(pattern)
    }
    are_named = FLAGS.subject_type_column and FLAGS.object_type_column
    rule = "text without --subject_type_column and --object_type_column"
    check_value("feature_mode", None not in layouts or are_named, rule)
    is_semeval = "semeval2010" in layouts
    check_value("feature_mode", not is_semeval, "text with SemEval-2010 Task 8: it has no types")


def run(run: Run) -> None:
    """Trains where there is data to train on, evaluates, predicts, exports."""
    fine_tuning.fine_tune(
        run,
        _build,
        _read,
        _stream,
        _evaluate,
        _predict,
        learning_rate=_LEARNING_RATE,
        epochs=_EPOCHS,
        arguments=_arguments,
    )


def _layout(path):
    """The released layout of a file, `None` where it has columns."""
    ending = os.path.splitext(path.lower().removesuffix(".gz"))[1]
    return FLAGS.benchmark or _LAYOUTS.get(ending)


def _arguments(examples):
    """What the examples to train on tell of the model."""
    from keras_spanbert.data.relation_examples import relation_names
    from keras_spanbert.data.semeval2010 import RELATIONS

    no_relation = FLAGS.no_relation or "no_relation"
    names = {example["relation"] for example in examples}
    if FLAGS.no_relation is not None:
        rule = f"a relation of --train_data: {', '.join(sorted(names))}"
        check_value("no_relation", no_relation in names, rule)
    if FLAGS.no_relation is None and RELATIONS[0] in names <= set(RELATIONS):
        relations = list(RELATIONS)
    else:
        relations = relation_names(examples, no_relation)
    columns.check_labels(relations, "relations")
    log(f"No relation is {relations[0]}")
    has_types = any(example["subj_type"] or example["obj_type"] for example in examples)
    return {"relations": relations, "has_types": has_types}


def _build(has_types=True, **arguments):
    import keras_spanbert as ks

    model = fine_tuning.build_model(ks.SpanBertRelationExtractor, **arguments)
    given = model.preprocessor
    mode = FLAGS.feature_mode or given.mode
    if not (FLAGS.feature_mode or has_types or given.types()):
        mode = "text"
    if mode != given.mode:
        model.preprocessor = type(given)(
            given.tokenizer, given.sequence_length, mode, given.symbols, given.truncation
        )
    resolve(feature_mode=mode)
    return model


def _read(paths, flag, model):
    from keras_spanbert.data import semeval2010, tacred
    from keras_spanbert.data.columns import read_relations

    layouts = {_layout(path) for path in paths}
    if len(layouts) > 1:
        raise ValueError(
            "Files must be all TACRED's (.json), all SemEval's (.txt) or all have columns (.csv, "
            f".tsv, .jsonl); --benchmark says which. Received: {' '.join(paths)}"
        )
    needs_labels = flag != "predict_data"
    relations = None if model is None else list(model.relations)
    if layouts == {"tacred"}:
        examples = tacred.read(paths, needs_labels, relations)
    elif layouts == {"semeval2010"}:
        examples = semeval2010.read(paths, needs_labels)
        for example in examples if relations else []:
            if example["relation"] not in [None, *relations]:
                raise ValueError(
                    f"{' '.join(paths)}, id {example['id']}: the relation must be one of the "
                    f"model's, {', '.join(relations)}. Received: {example['relation']!r}"
                )
    else:
        examples = read_relations(
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
        )
    if model is not None and model.preprocessor.uses_types:
        _take_types(model.preprocessor, examples, paths)
    return examples


def _take_types(preprocessor, examples, paths):
    """Has the types of data known, by new symbols where the model can still learn them."""
    hint = ""
    if FLAGS.train_data:
        preprocessor.adapt(examples)
        hint = "; --feature_mode=text takes none"
    known = preprocessor.symbols
    for example in examples:
        for role, key in [("SUBJ", "subj_type"), ("OBJ", "obj_type")]:
            if f"{role}={example[key]}" not in known:
                raise ValueError(
                    f"{' '.join(paths)}, id {example['id']}: --feature_mode={preprocessor.mode} "
                    "takes types of subject and object that the model knows, of a table in "
                    f"--subject_type_column and --object_type_column{hint}. Received: `{key}` "
                    f"{example[key]!r}"
                )


def _stream(model, examples):
    if model.preprocessor.uses_types:
        # In the order of the released script: types to evaluate on have had their symbols before.
        _take_types(model.preprocessor, examples, FLAGS.train_data)
        log(f"Symbols for {len(model.preprocessor.types())} types of subjects and objects")
    return fine_tuning.length_grouped(model, examples)


def _evaluate(model, examples):
    scores = model.evaluate_relations(examples, FLAGS.batch_size)
    return {name: value for name, value in scores.items() if name != "by_relation"}


def _predict(model, examples):
    from keras_spanbert.data import semeval2010, tacred

    found = model.extract(examples, batch_size=FLAGS.batch_size)
    with user_input():
        if FLAGS.benchmark:
            writer = {"tacred": tacred, "semeval2010": semeval2010}[FLAGS.benchmark]
            relations = [answer["relation"] for answer in found]
            writer.write_predictions(FLAGS.predictions, examples, relations)
        else:
            columns.write_rows([{"id": e["id"], **a} for e, a in zip(examples, found)])
    log(f"Wrote the relations of {len(found):,} sentences to {FLAGS.predictions}")

"""`--task=token_classification`: labels words, for example with named entities."""

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.files import ending
from keras_spanbert.recipes import columns, fine_tuning
from keras_spanbert.recipes.checks import INPUTS, check_value, matching_files
from keras_spanbert.recipes.flags import FLAGS, Group
from keras_spanbert.recipes.recipe import Recipe
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.wording import format_count

_EXPORTS = (".json", ".spacy")  # Label Studio's and spaCy's, which have texts.
# Endings of files with named columns. Other files have one word per line.
_TABLES = (".csv", ".tsv", ".jsonl", ".jsonlines", *_EXPORTS)
_TEXTS = (
    "If these are texts: training and evaluation need .jsonl files with --text_column, or .json or "
    ".spacy files; prediction needs .csv, .tsv or .jsonl files with --text_column, or .txt files "
    "with --predictions in .jsonl"
)

group = Group("Token classification", "only for --task=token_classification.")
group.string(
    "words_column",
    "Column of the words of a sentence in .csv, .tsv and .jsonl files: a list in .jsonl files, "
    "else words separated by blanks. In files with one word per line, give the number of the "
    "column, counted from 0, or from the end with negative numbers. Default there: 0, the first "
    "column.",
    default="words",
)
group.boolean(
    "labels_are_entities",
    "Whether the labels mark entities: O for words outside of them, or a type with the prefix B-, "
    "I-, E- or S- (L- or U- in BILOU). With --nolabels_are_entities, each word has a label of any "
    "kind, such as its part of speech.",
    default=True,
)


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    fine_tuning.check()
    columns.check()
    for name in INPUTS:
        rule = (
            "Files must have a word per line, or end in .csv, .tsv or .jsonl (an object per line)"
        )
        refused = (".xml", *_EXPORTS) if name == "predict_data" else (".xml",)
        for path in matching_files(name):
            if ending(path) in refused:
                raise ValueError(f"{rule}. Received: {path}")
    are_tables = [list(map(_is_table, matching_files(name))) for name in INPUTS]
    rule = (
        "a column number for files with one word per line: counted from 0, or from the end with -1 "
        "for the last one"
    )
    if not all(map(all, are_tables)) and FLAGS.label_column:
        check_value("label_column", _column_number("label_column") is not None, rule)
    # If there are tables too, it may be their column.
    if not any(map(any, are_tables)) and FLAGS["words_column"].present:
        check_value("words_column", _column_number("words_column") is not None, rule)


def _column_number(flag):
    """Returns the number of the column that a flag gives, `None` for other values."""
    value = FLAGS[flag].value or ""
    return int(value) if value.removeprefix("-").isdecimal() else None


def endings() -> tuple[str, ...]:
    are_texts = _are_texts(matching_files("predict_data"))
    return (".jsonl",) if are_texts else (".conll", ".txt", *columns.EXTENSIONS)


def _is_table(path):
    return ending(path) in _TABLES


def _have_texts(paths):
    """Returns whether files are tables with a column of texts instead of words."""
    has_column = FLAGS["text_column"].present or all(ending(path) in _EXPORTS for path in paths)
    return bool(paths) and all(map(_is_table, paths)) and has_column


def _are_texts(paths):
    """Returns whether the names of files allow texts. A .txt file may also have words."""
    are_texts = [ending(path) == ".txt" for path in paths]
    is_json = ending(FLAGS.predictions or "") == ".jsonl"
    return _have_texts(paths) or bool(paths) and all(are_texts) and is_json


def model_arguments(examples):
    """Returns the labels of the training examples, as an argument of the model."""
    if "entities" in examples[0]:
        kinds = {entity["label"] for example in examples for entity in example["entities"]}
        names = ["O", *(f"{prefix}-{kind}" for kind in sorted(kinds) for prefix in "BI")]
    elif FLAGS.labels_are_entities:
        names = ks.data.conll.tag_names(examples)
    else:
        names = sorted({tag for example in examples for tag in example["tags"]})
    columns.check_labels(names, "label")
    return {"labels": names}


def read(paths, flag, model):
    if flag == "predict_data" and _are_texts(paths) and not _have_tags(paths, model.kinds):
        return _texts(paths)
    of_entities, kinds = FLAGS.labels_are_entities, None
    if model is not None:
        of_entities, kinds = model.is_of_entities, model.kinds
    if _have_texts(paths):
        column = FLAGS.label_column or "entities"
        flags = FLAGS.text_column, column, FLAGS.id_column
        examples = ks.data.columns.read_entities(paths, *flags, kinds)
        if model is not None:
            model.preprocess(examples)  # Warns about entities that are parts of a word.
        return examples
    rules = {"needs_labels": flag != "predict_data", "types": kinds, "entities": of_entities}
    examples = []
    for path in paths:
        if _is_table(path):
            tags = FLAGS.label_column or "tags"
            quoted = FLAGS.quoted_tsv or None
            examples += ks.data.columns.read_words(
                path, words=FLAGS.words_column, tags=tags, quoted=quoted, **rules
            )
        else:
            examples += _sentences(path, **rules)
    return examples


def _have_tags(paths, kinds):
    """Returns whether a file to predict on has tagged words. If so, all are read that way."""
    return any(ks.data.conll.has_tags(path, kinds) for path in paths if not _is_table(path))


def _sentences(path, **rules):
    """Reads a file with one word per line. If it seems to have texts, errors say so."""
    tags = _column_number("label_column")
    try:
        return ks.data.conll.read(
            path,
            column=-1 if tags is None else tags,
            words_column=_column_number("words_column") or 0,
            **rules,
        )
    except ValueError as error:
        if _have_tags([path], rules["types"] or ()):
            raise
        raise ValueError(f"{error}. {_TEXTS}") from None


def _texts(paths):
    """Returns the texts of files: the rows of tables, the lines of others."""
    from keras_spanbert.data.examples import check_not_empty
    from keras_spanbert.data.text_files import read_lines

    if all(map(_is_table, paths)):
        texts = ks.data.columns.read_texts(
            paths,
            text=FLAGS.text_column,
            id=FLAGS.id_column,
            needs_labels=False,
            quoted=FLAGS.quoted_tsv or None,
        )
        return [{name: example[name] for name in ("id", "text")} for example in texts]
    texts = [
        {"path": path, "line": number, "text": line}
        for path in paths
        for number, (_, line) in enumerate(read_lines(path), start=1)
        if line.strip()
    ]
    return check_not_empty(texts, paths)


def evaluate(model, examples):
    scores = model.evaluate_entities(examples, batch_size=FLAGS.batch_size)
    by_type = scores.pop("by_type", {})
    for kind, of_kind in by_type.items():
        scores.update({f"{kind}_{name}": value for name, value in of_kind.items()})
    return scores


def predict(model, examples):
    if "text" in examples[0]:
        found = model.tag([example["text"] for example in examples], FLAGS.batch_size)
        rows = [{**example, "entities": found} for example, found in zip(examples, found)]
        with exit_on_user_error():
            files.write_json_lines(FLAGS.predictions, rows)
        entities = format_count(sum(map(len, found)), "entity", "entities")
        log(f"Wrote {entities} of {format_count(len(rows), 'text')} to {FLAGS.predictions}")
        return
    tags = model.predict_tags(examples, FLAGS.batch_size)
    with exit_on_user_error():
        if ending(FLAGS.predictions) in columns.EXTENSIONS:
            rows = [{"words": x["words"], "tags": found} for x, found in zip(examples, tags)]
            columns.write_rows(rows)
        else:
            ks.data.conll.write_predictions(
                FLAGS.predictions, examples, tags, entities=model.is_of_entities
            )
    log(f"Wrote the tags of {format_count(len(tags), 'sentence')} to {FLAGS.predictions}")


RECIPE = Recipe(
    check=check,
    defaults={"sequence_length": 128, "batch_size": 16, "beta_2": 0.999, "epsilon": 1e-8},
    groups=("Labelled data",),
    endings=endings,
    learning_rate=5e-5,
    model_arguments=model_arguments,
    read=read,
    evaluate=evaluate,
    predict=predict,
)

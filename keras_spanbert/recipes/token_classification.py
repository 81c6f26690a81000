"""`--task=token_classification`: tagged words, as of named entities, and texts to find such in."""

import os

from keras_spanbert import stores
from keras_spanbert.recipes import columns, fine_tuning
from keras_spanbert.recipes.checks import check_value
from keras_spanbert.recipes.flags import FLAGS, group
from keras_spanbert.recipes.run import Run
from keras_spanbert.recipes.terminal import log, user_input

DEFAULTS = {"sequence_length": 128, "batch_size": 16, "beta_2": 0.999, "epsilon": 1e-6}
_EPOCHS = 3
_LEARNING_RATE = 5e-5
# Of files in columns by name; in others, a line is a word.
_TABLES = (".csv", ".tsv", ".jsonl", ".jsonlines")
_TEXTS = (
    "Were these texts: to train and to score they stand in .jsonl files with --text_column; to "
    "predict in .csv, .tsv or .jsonl with --text_column, or in .txt with --predictions in .jsonl"
)

string, integer, number, boolean, strings, choice = group("Token classification")
string("words_column", "words", "Column of a sentence's words in .csv, .tsv and .jsonl.")
boolean(
    "entities",
    True,
    "Whether tags are of entities: O, and B-, I-, E- or S- and a type. If not, each word has one "
    "of any kind, as parts of speech.",
)


def check() -> None:
    """Raises a ValueError for what the flags alone show to be wrong."""
    fine_tuning.check()
    are_texts = _are_texts(_files(FLAGS.predict_data))
    columns.check(
        "token_classification", (".jsonl",) if are_texts else (".conll", ".txt", *columns.ENDINGS)
    )
    for name in ["train_data", "eval_data", "predict_data"]:
        if not all(map(_is_table, _files(FLAGS[name].value))) and FLAGS.label_column:
            check_value(
                "label_column",
                FLAGS.label_column.lstrip("-").isdecimal(),
                "a number, of files of a word a line: the columns count from 0, from the end from "
                "-1",
            )


def run(run: Run) -> None:
    """Trains where there is data to train on, evaluates, finds entities, exports."""
    fine_tuning.fine_tune(
        run,
        _build,
        _read,
        fine_tuning.length_grouped,
        _evaluate,
        _predict,
        learning_rate=_LEARNING_RATE,
        epochs=_EPOCHS,
        arguments=_labels,
    )


def _files(patterns):
    return [path for pattern in patterns or [] for path in stores.find(pattern)]


def _is_table(path):
    return path.removesuffix(".gz").endswith(_TABLES)


def _have_texts(paths):
    """Whether files are tables of which a column of texts is named: others have words."""
    return bool(paths) and all(map(_is_table, paths)) and FLAGS["text_column"].present


def _are_texts(paths):
    """Whether files to predict may be texts, by their names: words may stand in .txt too."""
    are_texts = [path.removesuffix(".gz").endswith(".txt") for path in paths]
    is_json = (FLAGS.predictions or "").endswith(".jsonl")
    return _have_texts(paths) or bool(paths) and all(are_texts) and is_json


def _labels(examples):
    """The labels of the examples to train on, as an argument of the model."""
    from keras_spanbert.data import conll

    if "entities" in examples[0]:
        kinds = {entity["label"] for example in examples for entity in example["entities"]}
        names = ["O", *(f"{prefix}-{kind}" for kind in sorted(kinds) for prefix in "BI")]
    elif FLAGS.entities:
        names = conll.tag_names(examples)
    else:
        names = sorted({tag for example in examples for tag in example["tags"]})
    columns.check_labels(names, "labels")
    return {"labels": names}


def _build(**arguments):
    import keras_spanbert as ks

    return fine_tuning.build_model(ks.SpanBertTokenClassifier, **arguments)


def _read(paths, flag, model):
    from keras_spanbert.data.columns import read_entities, read_words

    if flag == "predict_data" and _are_texts(paths) and not _have_tags(paths, model.kinds):
        return _texts(paths)
    of_entities, kinds = FLAGS.entities, None
    if model is not None:
        of_entities, kinds = model.is_of_entities, model.kinds
    if _have_texts(paths):
        column = FLAGS.label_column or "entities"
        examples = read_entities(paths, FLAGS.text_column, column, FLAGS.id_column, kinds)
        if model is not None:
            model.preprocess(examples)  # Says which entities are parts of one word.
        return examples
    rules = {"needs_labels": flag != "predict_data", "types": kinds, "entities": of_entities}
    examples = []
    for path in paths:
        if _is_table(path):
            tags = FLAGS.label_column or "tags"
            examples += read_words(path, words=FLAGS.words_column, tags=tags, **rules)
        else:
            examples += _sentences(path, **rules)
    return examples


def _have_tags(paths, kinds):
    """Whether one of the files to predict has words with tags: all are to be read so then."""
    from keras_spanbert.data import conll

    return any(conll.has_tags(path, kinds) for path in paths if not _is_table(path))


def _sentences(path, **rules):
    """The sentences of a file of a word a line; where it has texts the message says so."""
    from keras_spanbert.data import conll

    try:
        return conll.read(path, column=int(FLAGS.label_column or -1), **rules)
    except ValueError as error:
        if _have_tags([path], rules["types"] or ()):
            raise
        raise ValueError(f"{error}. {_TEXTS}") from None


def _texts(paths):
    """The texts of files: the rows of tables, the lines of others."""
    from keras_spanbert.data.columns import read_texts
    from keras_spanbert.data.examples import check_some
    from keras_spanbert.data.text_files import read_lines

    if all(map(_is_table, paths)):
        texts = read_texts(paths, text=FLAGS.text_column, id=FLAGS.id_column, needs_labels=False)
        return [{name: example[name] for name in ("id", "text")} for example in texts]
    texts = [
        {"path": path, "line": number, "text": line}
        for path in paths
        for number, (_, line) in enumerate(read_lines(path), start=1)
        if line.strip()
    ]
    return check_some(texts, paths)


def _evaluate(model, examples):
    scores = model.evaluate_entities(examples, batch_size=FLAGS.batch_size)
    by_type = scores.pop("by_type", {})
    for kind, of_kind in by_type.items():
        scores.update({f"{kind}_{name}": value for name, value in of_kind.items()})
    return scores


def _predict(model, examples):
    from keras_spanbert import files
    from keras_spanbert.data import conll

    if "text" in examples[0]:
        found = model.tag([example["text"] for example in examples], FLAGS.batch_size)
        rows = [{**example, "entities": found} for example, found in zip(examples, found)]
        with user_input():
            files.write_json_lines(FLAGS.predictions, rows)
        total = sum(map(len, found))
        log(f"Wrote {total:,} entities of {len(rows):,} texts to {FLAGS.predictions}")
        return
    tags = model.predict_tags(examples, FLAGS.batch_size)
    ending = os.path.splitext(FLAGS.predictions)[1]
    with user_input():
        if ending in columns.ENDINGS:
            rows = [{"words": x["words"], "tags": found} for x, found in zip(examples, tags)]
            is_list = ending == ".jsonl"
            columns.write_rows(
                rows if is_list else [{n: " ".join(v) for n, v in row.items()} for row in rows]
            )
        else:
            conll.write_predictions(
                FLAGS.predictions, examples, tags, entities=model.is_of_entities
            )
    log(f"Wrote the tags of {len(tags):,} sentences to {FLAGS.predictions}")

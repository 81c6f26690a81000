"""`--task=coreference`: trains a resolver on documents with clusters, and finds clusters."""

import os

import keras_spanbert as ks
from keras_spanbert import files
from keras_spanbert.files import ending
from keras_spanbert.recipes import fine_tuning
from keras_spanbert.recipes.checks import check_file, matching_files, refuse
from keras_spanbert.recipes.flags import FLAGS, Group, set_flags, values
from keras_spanbert.recipes.recipe import Format, Recipe, formats_of
from keras_spanbert.recipes.run_folder import preset_warnings
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.wording import format_count

_MAX_LINES = 20  # The largest number of lines to log per text.
_LIMITS = ("max_spans_in_memory", "min_link_score")  # Flags of evaluation and prediction.

group = Group(
    "Coreference", "only for --task=coreference. A trained preset keeps the settings of its model."
)
group.choice(
    "coref_model_type",
    ["independent", "overlap"],
    "How a long document is cut into segments. independent: segments follow one another. overlap: "
    "each segment overlaps the next by half, so that each token has context on both sides. "
    "Default: independent.",
)
group.integer(
    "max_training_segments",
    "Largest number of segments (not sentences) per training document. In each epoch, a longer "
    "document is cropped to this many at a random position. Default: 3.",
)
group.integer("max_span_width", "Largest number of tokens per mention. Default: 30.")
group.integer("max_top_antecedents", "Number of candidate antecedents per mention. Default: 50.")
group.integer(
    "ffnn_size", "Number of units in each hidden layer of the scoring networks. Default: 3000."
)
group.integer(
    "coref_depth",
    "Number of rounds in which pairs of mentions are scored. Between rounds, each mention is "
    "updated from its likely antecedents. Default: 2.",
)
group.number(
    "top_span_ratio",
    "Number of candidate mentions to keep per token of the document. Default: 0.4.",
    upper_bound=1.0,
)
group.strings(
    "genres",
    "Genres that the model distinguishes, two letters each. The genre of a document is given by "
    "the first two letters of its key (doc_key). Default: the genres of OntoNotes.",
)
group.string(
    "document_genre",
    "Genre of plain text, which has none. It must be one of the model's genres (--genres). "
    "Default: the first of them.",
)
group.boolean(
    "singletons", "Also learn and predict clusters with a single mention. Default: false."
)
group.number(
    "head_learning_rate",
    "Initial learning rate of all layers above the encoder. It falls linearly to 0, without "
    "warm-up.",
    default=1e-4,
)
group.integer(
    "max_spans_in_memory",
    "Largest number of candidate mentions in memory at once, in evaluation and prediction. Texts "
    "with more are resolved in chunks.",
    default=2000,
)
group.number(
    "min_link_score",
    "Smallest probability with which a mention is linked to an earlier one, in evaluation and "
    "prediction. A higher value gives fewer and more certain links. Default: no minimum.",
    upper_bound=1.0,
)
group.path(
    "html",
    "New file for a web page that shows the clusters of a text, in paler colors where the model is "
    "less sure. --predict_data must name one text file (.txt). Default: no page.",
)

# Maps flags to arguments of the resolver. If a flag is not given, the preset's value is used.
_ARGUMENTS = {
    "sequence_length": "max_segment_len",
    "coref_model_type": "model_type",
    "max_training_segments": "max_training_sentences",
}
_ARGUMENTS |= {
    name: name
    for name in "max_span_width top_span_ratio max_top_antecedents ffnn_size coref_depth genres "
    "singletons".split()
}


# === Files ===
def find_format(paths: list[str]) -> Format | None:
    """Returns the format of files, `None` without files. Files of several formats are an error."""
    found = formats_of(FORMATS, paths)
    if len(found) > 1:
        raise ValueError(
            "All files must be of one kind: documents (.conll, .jsonlines) or texts (.txt). "
            f"Received: {' '.join(found.values())}"
        )
    return FORMATS[next(iter(found))] if found else None


def check() -> None:
    """Checks the flags. Raises `ValueError` if one is wrong."""
    texts = FORMATS["texts"]
    for name in ["train_data", "eval_data"]:
        if find_format(matching_files(name)) == texts:
            refuse(f"`--{name}` must have documents with clusters (.conll, .jsonlines)", name)
    predicted = matching_files("predict_data")
    if FLAGS.html:
        if find_format(predicted) != texts:
            refuse("`--html` needs a text (.txt) in --predict_data", "html")
        if len(predicted) > 1:
            raise ValueError(f"`--html` needs exactly one text. Received: {len(predicted)} files")
        check_file("html")
        if os.path.realpath(FLAGS.html) == os.path.realpath(FLAGS.predictions or ""):
            refuse("`--html` and --predictions must be two files", "html", "predictions")
    # The clusters of texts are also printed, so that --predictions is optional.
    fine_tuning.check(needs_predictions=find_format(predicted) != texts)


def _read_documents(paths, flag):
    from keras_spanbert.data.coreference_documents import check_has_clusters, has_subtokens

    documents = ks.data.coreference.read(paths)
    if flag != "predict_data":
        check_has_clusters(documents)
    elif ending(FLAGS.predictions) == ".conll" and any(map(has_subtokens, documents)):
        refuse(
            "`--predictions` must end in .jsonlines for documents of subtokens, because their "
            "words are not known",
            "predictions",
        )
    return documents


def _read_texts(paths, flag):
    from keras_spanbert.data.examples import check
    from keras_spanbert.data.text_files import read_text

    texts = [(path, read_text(path, FLAGS.encoding_errors)) for path in paths]
    for path, text in texts:
        check(text.strip(), path, "a text must not be empty", text)
    return texts


def build():
    """Builds the resolver of the preset."""
    given = {
        argument: FLAGS[name].value for name, argument in _ARGUMENTS.items() if FLAGS[name].present
    }
    with preset_warnings():
        resolver = ks.SpanBertCoreferenceResolver.from_preset(
            FLAGS.preset, **fine_tuning.arguments_of_backbone(), **given
        )
    resolver.check_preprocessor()
    set_flags(**{name: getattr(resolver, argument) for name, argument in _ARGUMENTS.items()})
    return resolver


def stream(resolver, documents):
    """Returns the stream of documents."""
    found = format_count(len(documents), "document")
    log(f"{found}; cutting into segments of {FLAGS.sequence_length} tokens")
    return resolver.batches(
        documents, FLAGS.batch_size, is_training=True, shuffle=True, seed=FLAGS.seed, pad=True
    )


def optimizer(resolver, steps):
    """Returns the optimizer, which has two learning rates."""
    from keras_spanbert.recipes.fit import accumulated_steps

    return ks.TwoRateAdam(
        ks.LinearWarmupDecay(FLAGS.learning_rate, FLAGS.warmup_steps, steps),
        # As in the released code, the heads have no warm-up.
        ks.LinearWarmupDecay(FLAGS.head_learning_rate, 0, steps),
        heads=resolver.head_names(),
        encoder_weight_decay=FLAGS.weight_decay,
        beta_2=FLAGS.beta_2,
        epsilon=FLAGS.epsilon,
        clip_norm=FLAGS.clip_norm or None,
        gradient_accumulation_steps=accumulated_steps(),
    )


# === Evaluation and prediction ===
def _predict_documents(resolver, documents):
    clusters = resolver.predict_clusters(documents, **values(*_LIMITS))
    write = ks.data.coreference.write_jsonlines
    if ending(FLAGS.predictions) == ".conll":
        write = ks.data.coreference.write_conll
        kept = [ks.data.coreference.nested_clusters(found) for found in clusters]
        found, written = (sum(len(c) for each in x for c in each) for x in (clusters, kept))
        clusters = kept
        if num_left_out := found - written:
            left_out = format_count(num_left_out, "mention")
            log(f"Left out {left_out}, which only .jsonlines can store")
    with exit_on_user_error():
        write(FLAGS.predictions, documents, clusters)
    log(f"Wrote the clusters of {format_count(len(documents), 'document')} to {FLAGS.predictions}")


def _one_line(text):
    """Returns at most 60 characters in one line, without control characters for a terminal."""
    line = " ".join(text[:60].split()) + ("…" if len(text) > 60 else "")
    return "".join(c if c.isprintable() else "\ufffd" for c in line)


def _predict_texts(resolver, data):
    from keras_spanbert.tasks.coreference.page import cluster_page

    texts = [text for _, text in data]
    with exit_on_user_error():  # The resolver may not know the genre.
        found = resolver.resolve(texts, genre=FLAGS.document_genre, scores=True, **values(*_LIMITS))
    for (path, _), result in zip(data, found):
        log(f"{path}:")
        for number, cluster in enumerate(result["clusters"][:_MAX_LINES], 1):
            main, *others = (
                f"{_one_line(m['text'])} ({m['start']} to {m['end']})" for m in cluster
            )
            others = f": {', '.join(others)}" if others else ""
            log(f"{number}. {main}, {format_count(len(cluster), 'mention')}{others}")
        if len(result["clusters"]) > _MAX_LINES:
            log(f"... and {len(result['clusters']) - _MAX_LINES:,} more lines")
        if not result["clusters"]:
            log("No clusters")
    with exit_on_user_error():
        if FLAGS.predictions:
            rows = [{"path": path, **result} for (path, _), result in zip(data, found)]
            files.write_json_lines(FLAGS.predictions, rows)
            log(f"Wrote the clusters of {format_count(len(data), 'text')} to {FLAGS.predictions}")
        if FLAGS.html:
            ((path, text),), (result,) = data, found
            with files.atomic_write(FLAGS.html) as file:
                file.write(cluster_page(text, result["clusters"], os.path.basename(path)))
            log(f"Wrote the page {FLAGS.html}")


FORMATS = {
    "documents": Format(
        (".conll", "_conll", ".conllu", ".jsonlines", ".jsonl"),
        _read_documents,
        _predict_documents,
        (".jsonlines", ".jsonl", ".conll"),
    ),
    "texts": Format((".txt",), _read_texts, _predict_texts, (".jsonlines", ".jsonl")),
}
RECIPE = Recipe(
    check=check,
    defaults={"batch_size": 1, "beta_2": 0.999, "epsilon": 1e-6},
    endings=lambda: find_format(matching_files("predict_data")).written,
    epochs=20,
    build=build,
    stream=stream,
    sequences=lambda resolver, stream: resolver.max_training_sentences,
    optimizer=optimizer,
    optimizer_flags=("head_learning_rate",),
    evaluation_flags=_LIMITS,
    prediction_flags=(*_LIMITS, "document_genre", "html"),
    read=lambda paths, flag, resolver: find_format(paths).read(paths, flag),
    evaluate=lambda resolver, documents: resolver.evaluate_clusters(documents, **values(*_LIMITS)),
    predict=lambda resolver, data: find_format(matching_files("predict_data")).write(
        resolver, data
    ),
)

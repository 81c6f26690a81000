"""The files that `--task=coreference` reads and writes: documents, GAP examples and texts."""

import os

from keras_spanbert.files import ending
from keras_spanbert.recipes import output_paths
from keras_spanbert.recipes.checks import format_flags, matching_files
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.terminal import exit_on_user_error, log
from keras_spanbert.wording import format_count

# Kinds of files by extension. Other files have documents.
_KINDS = {".txt": "text", ".tsv": "gap"}
_READ = (".conll", "_conll", ".conllu", ".jsonlines", ".jsonl", ".txt", ".txt.gz", ".tsv")
# Endings of predictions, by the kind of the files in --predict_data.
EXTENSIONS = {
    "documents": (".jsonlines", ".jsonl", ".conll"),
    "gap": (".tsv",),
    "text": (".jsonlines", ".jsonl"),
}
_MAX_LINES = 20  # The largest number of lines to log per text.


def file_kind(files: list[str]) -> str | None:
    """Returns the kind of the files: "documents", "gap", "text", or `None` without files.

    Raises:
        ValueError: if the ending of a file is unknown, or the files differ in kind.
    """
    kinds = {}
    for path in files:
        if not path.lower().endswith(_READ):
            raise ValueError(f"Files must end in {', '.join(_READ)}. Received: {path}")
        kinds[_KINDS.get(ending(path), "documents")] = path
    if len(kinds) > 1:
        raise ValueError(
            "All files must be of one kind: documents (.conll, .jsonlines), GAP (.tsv) or texts "
            f"(.txt). Received: {' '.join(kinds.values())}"
        )
    return next(iter(kinds), None)


def check() -> None:
    """Checks the flags that name files. Raises `ValueError` if one is wrong."""
    allowed = [None, "documents"] if FLAGS.train_data else [None, "documents", "gap"]
    for name in ["train_data", "eval_data"]:
        if file_kind(matching_files(name)) not in allowed:
            raise ValueError(
                f"`--{name}` must have documents with clusters (.conll, .jsonlines)"
                + ("" if FLAGS.train_data else ", or GAP examples (.tsv)")
                + f". Received: {' '.join(FLAGS[name].value)}"
            )
    predicted = matching_files("predict_data")
    if FLAGS.html:
        if file_kind(predicted) != "text":
            raise ValueError(
                f"`--html` needs a text (.txt) in --predict_data. Received: {format_flags('html')}"
            )
        if len(predicted) > 1:
            raise ValueError(f"`--html` needs exactly one text. Received: {len(predicted)} files")
        output_paths.check_file("html")


def read(paths: list[str], flag: str, resolver=None) -> list:
    """Reads documents, GAP examples, or pairs `(path, text)`, by the kind of the files."""
    from keras_spanbert.data import coreference, gap
    from keras_spanbert.data.coreference_documents import check_has_clusters, has_subtokens
    from keras_spanbert.data.text_files import read_text

    kind = file_kind(paths)
    if kind == "gap":
        return gap.read(paths)
    if kind == "text":
        return [(path, read_text(path, FLAGS.encoding_errors)) for path in paths]
    documents = coreference.read(paths)
    if flag != "predict_data":
        check_has_clusters(documents)
    elif ending(FLAGS.predictions) == ".conll" and any(map(has_subtokens, documents)):
        raise ValueError(
            "`--predictions` must end in .jsonlines for documents of subtokens, because their "
            f"words are not known. Received: {format_flags('predictions')}"
        )
    return documents


def evaluate(resolver, data: list) -> dict:
    """Returns the scores of documents or of GAP examples."""
    if file_kind(matching_files("eval_data")) == "documents":
        return resolver.evaluate_clusters(data, **_limits())
    from keras_spanbert import metrics

    scores = metrics.gap(data, _gap_predictions(resolver, data))
    log(
        ", ".join(f"{name} F1 {scores[name]['f1']:.2f}" for name in scores if name != "bias")
        + (f", bias {scores['bias']:.3f}" if scores["bias"] else "")
        + f", on {format_count(len(data), 'pronoun')}"
    )
    return scores


def predict(resolver, data: list) -> None:
    """Predicts, logs and writes clusters, or the answers to GAP examples."""
    kind = file_kind(matching_files("predict_data"))
    if kind == "text":
        _predict_texts(resolver, data)
    elif kind == "gap":
        from keras_spanbert.data import gap

        predictions = _gap_predictions(resolver, data)
        with exit_on_user_error():
            gap.write_predictions(FLAGS.predictions, predictions)
        log(f"Wrote the choices for {format_count(len(data), 'pronoun')} to {FLAGS.predictions}")
    else:
        from keras_spanbert.data import coreference

        clusters = resolver.predict_clusters(data, **_limits())
        write = coreference.write_jsonlines
        if ending(FLAGS.predictions) == ".conll":
            write = coreference.write_conll
            num_found = _num_mentions(clusters)
            clusters = [coreference.nested_clusters(found) for found in clusters]
            if num_left_out := num_found - _num_mentions(clusters):
                log(
                    f"Left out {format_count(num_left_out, 'mention')}, which only .jsonlines can "
                    "store"
                )
        with exit_on_user_error():
            write(FLAGS.predictions, data, clusters)
        log(f"Wrote the clusters of {format_count(len(data), 'document')} to {FLAGS.predictions}")


def _num_mentions(clusters):
    return sum(len(cluster) for found in clusters for cluster in found)


def _gap_predictions(resolver, examples):
    from keras_spanbert.data import gap

    found = _resolve(resolver, [example["text"] for example in examples])
    return {
        example["id"]: gap.refers_to(example, result["clusters"])
        for example, result in zip(examples, found)
    }


def _limits():
    return {
        "max_spans_in_memory": FLAGS.max_spans_in_memory,
        "min_link_score": FLAGS.min_link_score,
    }


def _resolve(resolver, texts, **kwargs):
    with exit_on_user_error():  # The resolver may not know the genre.
        return resolver.resolve(texts, genre=FLAGS.document_genre, **_limits(), **kwargs)


def _predict_texts(resolver, data):
    from keras_spanbert import files
    from keras_spanbert.tasks.coreference.page import cluster_lines, cluster_page

    found = _resolve(resolver, [text for _, text in data], scores=True)
    for (path, text), result in zip(data, found):
        lines = cluster_lines(text, result["clusters"]).splitlines()
        log(f"{path}:")
        log("\n".join(lines[:_MAX_LINES]))
        if len(lines) > _MAX_LINES:
            log(f"... and {len(lines) - _MAX_LINES:,} more lines")
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

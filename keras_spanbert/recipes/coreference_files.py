"""What `--task=coreference` reads and writes: documents with clusters, GAP's rows, texts."""

import os

from keras_spanbert import stores
from keras_spanbert.recipes import places
from keras_spanbert.recipes.flags import FLAGS
from keras_spanbert.recipes.terminal import log, user_input

# Kinds of files, by their endings; what ends otherwise has documents.
_KINDS = {".txt": "text", ".txt.gz": "text", ".tsv": "gap"}
_READ = (".conll", "_conll", ".jsonlines", ".jsonl", *_KINDS)
_ENDINGS = {
    "documents": (".jsonlines", ".jsonl", ".conll"),
    "gap": (".tsv",),
    "text": (".jsonlines", ".jsonl"),
}
_MOST_LINES = 20  # Of a text's clusters that are shown.


def kind_of(patterns) -> str | None:
    """What the files of globs hold: "documents", "gap" or "text", `None` where there are none.

    Raises:
        ValueError: where there are several kinds, or another one.
    """
    files = [path for pattern in patterns or [] for path in stores.find(pattern)]
    for path in files:
        if not path.endswith(_READ):
            raise ValueError(f"Files must end in {', '.join(_READ)}. Received: {path}")
    kinds = {
        next((kind for ending, kind in _KINDS.items() if path.endswith(ending)), "documents")
        for path in files
    }
    if len(kinds) > 1:
        raise ValueError(
            "Files must be all documents (.conll, .jsonlines), all GAP's (.tsv) or all texts "
            f"(.txt). Received: {' '.join(patterns)}"
        )
    return next(iter(kinds), None)


def check() -> None:
    """Raises a ValueError where flags and the kinds of files do not go together."""
    kinds = {name: kind_of(FLAGS[name].value) for name in ["train_data", "eval_data"]}
    allowed = ["documents"] if FLAGS.train_data else ["documents", "gap"]
    for name, kind in kinds.items():
        if kind and kind not in (["documents"] if name == "train_data" else allowed):
            raise ValueError(
                f"`--{name}` must have documents with clusters (.conll, .jsonlines)"
                + ("" if FLAGS.train_data else ", or be GAP's (.tsv)")
                + f". Received: {' '.join(FLAGS[name].value)}"
            )
    predicted = kind_of(FLAGS.predict_data)
    if FLAGS.predictions and predicted and not FLAGS.predictions.endswith(_ENDINGS[predicted]):
        raise ValueError(
            f"`--predictions` of such files must end in {' or '.join(_ENDINGS[predicted])}. "
            f"Received: --predictions={FLAGS.predictions}"
        )
    if FLAGS.html:
        if predicted != "text":
            raise ValueError(
                f"`--html` takes --predict_data of a text (.txt). Received: --html={FLAGS.html}"
            )
        num_texts = sum(len(list(stores.find(pattern))) for pattern in FLAGS.predict_data)
        if num_texts > 1:
            raise ValueError(f"`--html` shows one text. Received: {num_texts} files")
        places.check_file("html")


def read(paths: list[str], flag: str, resolver=None) -> list:
    """Documents, rows of GAP, or `(path, text)`, by the kind of a flag's files."""
    from keras_spanbert.data import coreference, gap
    from keras_spanbert.data.coreference_documents import check_labelled, in_subtokens
    from keras_spanbert.data.text_files import read_documents

    kind = kind_of(paths)
    if kind == "gap":
        return gap.read(paths)
    if kind == "text":
        return [
            (path, "".join(part for part, _ in read_documents(path, "file", FLAGS.encoding_errors)))
            for path in paths
        ]
    documents = coreference.read(paths)
    if flag != "predict_data":
        check_labelled(documents)
    elif FLAGS.predictions.endswith(".conll") and any(map(in_subtokens, documents)):
        raise ValueError(
            "`--predictions` of documents in subtokens must end in .jsonlines: their words are not "
            f"known. Received: --predictions={FLAGS.predictions}"
        )
    return documents


def evaluate(resolver, data: list) -> dict:
    """The scores of documents, or of GAP."""
    if kind_of(FLAGS.eval_data) == "documents":
        return resolver.evaluate_clusters(data, max_spans=FLAGS.max_spans)
    from keras_spanbert import metrics

    scores = metrics.gap(data, _gap_predictions(resolver, data))
    log(
        ", ".join(f"{name} F1 {scores[name]['f1']:.2f}" for name in scores if name != "bias")
        + (f", bias {scores['bias']:.3f}" if scores["bias"] else "")
        + f", on {len(data):,} pronouns"
    )
    return scores


def predict(resolver, data: list) -> None:
    """Writes and shows what is found."""
    kind = kind_of(FLAGS.predict_data)
    if kind == "text":
        _predict_texts(resolver, data)
    elif kind == "gap":
        from keras_spanbert.data import gap

        predictions = _gap_predictions(resolver, data)
        with user_input():
            gap.write_predictions(FLAGS.predictions, predictions)
        log(f"Wrote whom {len(data):,} pronouns refer to, to {FLAGS.predictions}")
    else:
        from keras_spanbert.data import coreference

        clusters = resolver.predict_clusters(data, max_spans=FLAGS.max_spans)
        is_conll = FLAGS.predictions.endswith(".conll")
        write = coreference.write_conll if is_conll else coreference.write_jsonlines
        with user_input():
            write(FLAGS.predictions, data, clusters)
        log(f"Wrote the clusters of {len(data):,} documents to {FLAGS.predictions}")


def _gap_predictions(resolver, examples):
    from keras_spanbert.data import gap

    found = _resolve(resolver, [example["text"] for example in examples])
    return {
        example["id"]: gap.refers_to(example, result["clusters"])
        for example, result in zip(examples, found)
    }


def _resolve(resolver, texts):
    with user_input():  # A genre that the resolver does not have.
        return resolver.resolve(texts, genre=FLAGS.genre, max_spans=FLAGS.max_spans)


def _predict_texts(resolver, data):
    from keras_spanbert import files
    from keras_spanbert.tasks.coreference.page import cluster_lines, cluster_page

    found = [result["clusters"] for result in _resolve(resolver, [text for _, text in data])]
    for (path, text), clusters in zip(data, found):
        lines = cluster_lines(text, clusters).splitlines()
        log(f"{path}:")
        log("\n".join(lines[:_MOST_LINES]))
        if len(lines) > _MOST_LINES:
            log(f"and {len(lines) - _MOST_LINES:,} more")
    with user_input():
        if FLAGS.predictions:
            rows = [{"path": path, "clusters": c} for (path, _), c in zip(data, found)]
            files.write_json_lines(FLAGS.predictions, rows)
            log(f"Wrote the clusters of {len(data):,} texts to {FLAGS.predictions}")
        if FLAGS.html:
            ((path, text),), (clusters,) = data, found
            with files.replacing(FLAGS.html) as file:
                file.write(cluster_page(text, clusters, os.path.basename(path)))
            log(f"Wrote the page {FLAGS.html}")

"""Clusters of documents in files, and their scores."""

from keras_spanbert.data.coreference_documents import clusters_in_words
from keras_spanbert.metrics import coreference

_MEASURES = ("muc", "b_cubed", "ceaf_e", "lea", "mentions")


def predict_clusters(resolver, documents: list[dict]) -> list:
    """See `SpanBertCoreferenceResolver.predict_clusters`."""
    found = []
    for document in documents:
        segmented = resolver.preprocessor.segment(document)
        clusters = resolver.score_document(segmented)["clusters"]
        is_in_words = segmented is not document
        found.append(clusters_in_words(segmented, clusters) if is_in_words else clusters)
    return found


def evaluate_clusters(resolver, documents: list[dict]) -> dict:
    """See `SpanBertCoreferenceResolver.evaluate_clusters`."""
    for document in documents:
        if "clusters" not in document:
            raise ValueError(
                "Documents must have `clusters` to score against. Received: "
                f"doc_key={document.get('doc_key')!r} without"
            )
    gold = [document["clusters"] for document in documents]
    predicted = predict_clusters(resolver, documents)
    without = coreference(*map(_without_singletons, (gold, predicted)))
    scores = coreference(gold, predicted) if resolver.singletons else without
    return {
        "average_f1": scores["average_f1"],
        **{
            f"{measure}_{name}": value
            for measure in _MEASURES
            for name, value in scores[measure].items()
        },
        "average_f1_without_singletons": without["average_f1"],
        "total": len(documents),
    }


def _without_singletons(documents):
    return [[cluster for cluster in clusters if len(cluster) > 1] for clusters in documents]

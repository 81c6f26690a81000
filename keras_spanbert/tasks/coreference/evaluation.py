"""Clusters of documents in files, and their scores."""

from keras_spanbert.data.coreference_documents import check_labelled, in_subtokens
from keras_spanbert.metrics import coreference
from keras_spanbert.models.arguments import check_counts
from keras_spanbert.tasks.coreference.decoding import clusters_of
from keras_spanbert.tasks.coreference.resolving import clusters_of_words, score_documents

_MEASURES = ("muc", "b_cubed", "ceaf_e", "lea", "mentions")


def predict_clusters(model, documents: list[dict], batch_size: int, max_spans: int) -> list:
    """See `SpanBertCoreferenceResolver.predict_clusters`."""
    check_counts(batch_size=batch_size, max_spans=max_spans)
    model.check_preprocessor()
    model.warn_if_untrained()
    documents = list(documents)
    segmented = [model.preprocessor.segment(document) for document in documents]
    # A document without a word has no segment.
    tensors = {
        i: model.preprocessor.tensors(document)
        for i, document in enumerate(segmented)
        if document["sentences"]
    }
    found = score_documents(model, tensors, model.input_settings(), batch_size, max_spans)
    return [
        _clusters(model, segmented[i], found[i], in_subtokens(document)) if i in found else []
        for i, document in enumerate(documents)
    ]


def _clusters(model, segmented, spans, is_in_subtokens):
    """Those of `score_documents`, in the units of the document."""
    if not is_in_subtokens:
        of_words = clusters_of_words(model, segmented, spans)
        return [[list(mention) for mention in cluster] for cluster in of_words]
    places = zip(spans["starts"].tolist(), spans["ends"].tolist())
    mention_scores = spans["mention_scores"] if model.singletons else None
    return clusters_of([list(x) for x in places], spans["best_antecedents"], mention_scores)


def evaluate_clusters(model, documents: list[dict], batch_size: int, max_spans: int) -> dict:
    """See `SpanBertCoreferenceResolver.evaluate_clusters`."""
    documents = list(documents)
    check_labelled(documents)
    gold = [document["clusters"] for document in documents]
    predicted = predict_clusters(model, documents, batch_size, max_spans)
    without = coreference(*map(_without_singletons, (gold, predicted)))
    scores = coreference(gold, predicted) if model.singletons else without
    return {
        "average_f1": scores["average_f1"],
        **{
            f"{measure}_{name}": value
            for measure in _MEASURES
            for name, value in scores[measure].items()
        },
        "average_f1_without_singletons": without["average_f1"],
        **{f"{measure}_f1_without_singletons": without[measure]["f1"] for measure in _MEASURES},
        "total": len(documents),
    }


def _without_singletons(documents):
    return [[cluster for cluster in clusters if len(cluster) > 1] for clusters in documents]

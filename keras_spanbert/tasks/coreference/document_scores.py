"""The scores of one document, as the released system has them: the body of `score_document`."""

import numpy as np

from keras_spanbert.tasks.coreference.batches import Settings, document_inputs, pad, sizes_of
from keras_spanbert.tasks.coreference.decoding import best_antecedents, clusters_of


def document_scores(model, settings: Settings, document: dict) -> tuple[dict, np.ndarray]:
    """Scores a document's spans and pairs of them, and resolves it.

    Args:
        model: `SpanBertCoreferenceResolver`.
        settings: `Settings`.
        document: dict, see the preprocessor's `segment`.

    Returns:
        `(result, labels)`, the dict of `score_document` without the loss, and int32
        `[K]`, the gold clusters of the spans that are kept, 0 for none.
    """
    inputs, labels = document_inputs(model.preprocessor.tensors(document), settings)
    padded, _ = pad(inputs, labels, sizes_of(inputs, settings), settings)
    outputs = model.predict_on_batch(padded)
    outputs = {name: np.asarray(array)[0] for name, array in outputs.items()}
    num_top = len(inputs["top_span_mask"])
    num_antecedents = min(settings.max_top_antecedents, num_top)
    top = outputs["top_spans"][:num_top]
    mention_scores = outputs["candidate_mention_scores"][: len(labels)]
    antecedents = outputs["top_antecedents"][:num_top, :num_antecedents]
    scores = outputs["top_antecedent_scores"][:num_top, : num_antecedents + 1]
    starts, ends = inputs["starts"][top], inputs["ends"][top]
    result = {
        "candidate_starts": inputs["starts"],
        "candidate_ends": inputs["ends"],
        "candidate_mention_scores": mention_scores,
        "top_span_starts": starts,
        "top_span_ends": ends,
        "top_span_mention_scores": mention_scores[top],
        "top_antecedents": antecedents,
        "top_antecedent_scores": scores,
        "clusters": clusters_of(
            list(zip(starts.tolist(), ends.tolist())),
            best_antecedents(scores, antecedents),
            mention_scores[top] if model.singletons else None,
        ),
    }
    return result, labels[top]

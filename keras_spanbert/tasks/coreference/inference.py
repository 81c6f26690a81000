"""Scores documents: whole ones in batches, long ones in chunks.

A chunk is a sequence of whole segments. Its spans are selected among its own candidates.
Their antecedents are among each other and among the spans of earlier chunks in a
memory, so memory does not depend on the length of a document.

S = segments, T = tokens, K = spans that are kept, M = spans in memory, D = size of a
span's embedding.
"""

import keras
import numpy as np

from keras_spanbert import distribution
from keras_spanbert.layers.array_functions import size, take
from keras_spanbert.models.one_thread import one_thread
from keras_spanbert.tasks.coreference.batches import document_inputs, largest, pad, padded_sizes
from keras_spanbert.tasks.coreference.decoding import extract_spans
from keras_spanbert.tasks.coreference.scoring import NO_SPAN
from keras_spanbert.tasks.coreference.segments import truncate
from keras_spanbert.tasks.coreference.spans import MAX_TOP_SPANS

# Maximum number of tokens of a chunk's segments, unless a single segment has more. Longer chunks
# take more memory. Shorter chunks take more time, because the spans in memory are projected once
# per chunk.
_CHUNK_TOKENS = 1024


@one_thread
def run(
    model, inputs: list[dict], sizes: dict | None = None, memory: dict | None = None, xp=np
) -> list:
    """Runs the model on documents, or on a chunk of one.

    Args:
        model: `SpanBertCoreferenceResolver`.
        inputs: dicts of `document_inputs`, the rows of a batch.
        sizes: dict to pad to, see `padded_sizes`. Defaults to `None`: sizes for these inputs.
        memory: dict from `Memory.inputs`. Defaults to `None`: whole documents.
        xp: `numpy` or `tensorflow.experimental.numpy`.

    Returns:
        For each row the dict of `score_document` without its candidates, clusters and
        loss. There is also `top_spans`, the indices of the spans among the
        candidates, and with a memory `spans`: see `ResolverLayers.outputs`.
    """
    sizes = sizes or largest(padded_sizes(x, model, xp) for x in inputs)
    rows = [pad(x, sizes, xp) for x in inputs]
    batch = {name: xp.concatenate([row[name] for row in rows], axis=0) for name in rows[0]}
    if memory is not None:
        batch = distribution.pad_to_batch_shards({**batch, "memory": memory}, len(inputs))
        jit_compile, model = model.jit_compile, model.resolver_layers.chunk_model
        model.jit_compile = jit_compile
    if xp is np:
        outputs = keras.tree.map_structure(np.asarray, model.predict_on_batch(batch))
    else:
        outputs = model(batch, training=False)
    return [_without_padding(x, row, outputs, xp) for row, x in enumerate(inputs)]


def _without_padding(inputs, row, outputs, xp):
    """Returns the outputs of a row of a batch: see `run`."""
    outputs = keras.tree.map_structure(lambda array: array[row], outputs)
    mention_scores = outputs["candidate_mention_scores"]
    # All other outputs have a row for each span that is kept.
    num_top = size(xp, inputs["top_span_mask"])
    found = keras.tree.map_structure(lambda array: array[:num_top], outputs)
    top = found["top_spans"]
    return {
        **found,
        "candidate_mention_scores": mention_scores[: size(xp, inputs["starts"])],
        "top_span_starts": take(xp, inputs["starts"], top),
        "top_span_ends": take(xp, inputs["ends"], top),
        "top_span_mention_scores": take(xp, mention_scores, top),
    }


def score_documents(
    model,
    documents: dict[int, dict],
    batch_size: int,
    max_spans_in_memory: int,
    min_link_score: float | None,
    given: set[int],
) -> dict[int, dict]:
    """Returns the kept spans of each document, with their best antecedents.

    Documents with at most `max_spans_in_memory` spans are scored whole, in batches of
    similar size with at most that many spans. Longer ones are scored in chunks.
    `documents` are dicts from the preprocessor's `tensors`, by number. `given` are the
    numbers of those whose gold mentions are the only spans. Returns the results of
    `extract_spans` by the same numbers.
    """
    num_spans = {
        # Not `num_top_spans`, which is limited to the maximum of the released graph.
        number: int(tensors["text_len"].sum() * model.top_span_ratio)
        for number, tensors in documents.items()
    }
    for number in given & documents.keys():
        num_spans[number] = max(num_spans[number], len(documents[number]["gold_starts"]))
    # The graph for whole documents keeps at most `MAX_TOP_SPANS`.
    max_whole = min(max_spans_in_memory, MAX_TOP_SPANS)
    found = {}
    waiting = sorted(documents, key=num_spans.__getitem__, reverse=True)
    while waiting:
        most = num_spans[waiting[0]]
        if most > max_whole:
            number = waiting.pop(0)
            found[number] = score_in_chunks(
                model, documents[number], max_spans_in_memory, min_link_score, number in given
            )
            continue
        num_rows = max(min(batch_size, max_spans_in_memory // max(most, 1)), 1)
        batch, waiting = waiting[:num_rows], waiting[num_rows:]
        rows = run(model, [document_inputs(documents[i], model, given=i in given) for i in batch])
        for number, row in zip(batch, rows):
            found[number] = extract_spans(row, min_link_score=min_link_score)
    return found


def score_in_chunks(
    model,
    tensors: dict,
    max_spans_in_memory: int,
    min_link_score: float | None = None,
    given: bool = False,
) -> dict:
    """Scores one document in chunks: see `score_documents`."""
    num_segments = max(_CHUNK_TOKENS // tensors["input_ids"].shape[1], 1)
    begins = [*range(0, len(tensors["input_ids"]), num_segments)]
    first_tokens = np.cumsum([0, *tensors["text_len"]])
    if given:  # A chunk contains its mentions as a whole.
        begins = [begin for begin in begins if not _is_within(tensors, first_tokens[begin])]
    chunk_ends = dict(zip(begins, [*begins[1:], len(tensors["input_ids"])]))

    def inputs_at(begin):
        num_segments = chunk_ends[begin] - begin
        inputs = document_inputs(truncate(tensors, begin, num_segments), model, given=given)
        inputs["segment_index"] = inputs["segment_index"] + begin
        if "overlap_ids" in tensors:
            # In training, windows do not reach beyond the run.
            windows = slice(begin, begin + num_segments + 1)
            inputs["overlap_token_ids"] = tensors["overlap_ids"][windows]
            inputs["overlap_padding_mask"] = tensors["overlap_mask"][windows]
        return inputs

    # All chunks have the same shape.
    sizes = largest(padded_sizes(inputs_at(begin), model) for begin in begins)
    layers = model.resolver_layers
    memory = Memory(max_spans_in_memory, layers.num_levels, layers.embedding_dim)
    found = []
    for begin in begins:
        first = memory.num_added
        remembered = memory.inputs()
        (row,) = run(model, [inputs_at(begin)], sizes, remembered)
        index = np.concatenate([remembered["index"][0], row["spans"]["index"]]) + first
        found.append(extract_spans(row, first_tokens[begin], index, min_link_score))
        memory.add(row["spans"], found[-1]["best_antecedents"])
    return {name: np.concatenate([chunk[name] for chunk in found]) for name in found[0]}


def _is_within(tensors, token):
    """Returns whether a gold mention begins before a token and does not end before it."""
    return np.any((tensors["gold_starts"] < token) & (tensors["gold_ends"] >= token))


class Memory:
    """The spans of a document that later ones may refer to, as inputs of a chunk's model.

    The newest half is always kept. Among the older spans, those without a cluster
    are dropped first, then those with a later mention of their cluster in memory,
    the oldest first. A memory therefore keeps a mention of entities that have not
    been mentioned for a long time.

    Args:
        size: int, M.
        num_levels, embedding_dim: ints, of the embeddings `[M, levels, D]`.
    """

    def __init__(self, size: int, num_levels: int, embedding_dim: int):
        self.size = size
        self.num_added = 0
        self.cluster_of = {}
        # In the order of `chunk_model`, because Keras on PyTorch flattens dicts in their order.
        self.spans = {
            "mention_scores": np.zeros(0, np.float32),
            **dict.fromkeys(["index", "speakers", "segments"], np.zeros(0, np.int32)),
            "embeddings": np.zeros((0, num_levels, embedding_dim), np.float32),
        }

    def inputs(self) -> dict:
        """Returns the inputs of `chunk_model`, always of the same shape."""
        missing = [(0, self.size - len(self.spans["index"]))]
        padded = {
            name: np.pad(array, missing + [(0, 0)] * (array.ndim - 1))[None]
            for name, array in self.spans.items()
        }
        padded["index"] -= np.int32(self.num_added)
        padded["index"][0, len(self.spans["index"]) :] = NO_SPAN
        return padded

    def add(self, spans: dict, antecedents: np.ndarray) -> None:
        """Adds the spans of a chunk, and drops others.

        `antecedents`, int `[K]`, are the numbers of the spans' antecedents in the
        document, -1 for none.
        """
        spans = {**spans, "index": spans["index"] + np.int32(self.num_added)}
        for span, antecedent in zip(spans["index"].tolist(), antecedents.tolist()):
            if antecedent >= 0:  # A cluster has the number of its first span.
                self.cluster_of[span] = self.cluster_of.setdefault(antecedent, antecedent)
        both = {name: np.concatenate([x, spans[name]]) for name, x in self.spans.items()}
        cluster_of = [self.cluster_of.get(i, -1) for i in both["index"].tolist()]
        kept = _spans_to_keep(np.array(cluster_of, np.int64), self.size)
        self.spans = {name: array[kept] for name, array in both.items()}
        self.num_added += len(antecedents)


def _spans_to_keep(cluster_of, size):
    """Returns which spans a memory keeps, given each span's cluster in order, -1 for none."""
    number = np.arange(len(cluster_of))
    if len(cluster_of) <= size:
        return number
    last_index = dict(zip(cluster_of.tolist(), number.tolist()))
    is_last = np.array([last_index[cluster] for cluster in cluster_of.tolist()]) == number
    rank = np.where(cluster_of < 0, 0, 1 + is_last)
    rank[len(rank) - size // 2 :] = 3  # The newest.
    return np.sort(np.argsort(rank, kind="stable")[-size:])

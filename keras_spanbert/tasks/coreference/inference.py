"""Pads documents, scores them whole or in chunks, and builds clusters from the scores.

A chunk is a sequence of whole segments. Antecedents of its spans are among each other and among the
spans of earlier chunks in a memory. S = segments, L = tokens of a segment, T = tokens of a
document, N = candidate spans, K = spans that are kept, M = spans in memory, D = size of a span's
embedding. `xp` is `numpy` or `tensorflow.experimental.numpy`.
"""

from collections.abc import Iterable

import keras
import numpy as np

from keras_spanbert import distribution
from keras_spanbert.data.batches import round_up
from keras_spanbert.data.coreference_documents import check_training_clusters
from keras_spanbert.layers.array_functions import (
    cumsum,
    distinct_numbers,
    fixed_point,
    int32,
    range_like,
    scatter_min,
    take,
    true_indices,
)
from keras_spanbert.models.keras_model import one_thread
from keras_spanbert.models.lora import forget_old_functions
from keras_spanbert.optional import tf, tnp
from keras_spanbert.tasks.coreference.layers import MAX_TOP_SPANS, num_top_spans
from keras_spanbert.tasks.coreference.preprocessor import (
    SEPARATOR_NUMBER,
    cut_into_segments,
    segment_rows,
    speaker_numbers,
    truncate,
)
from keras_spanbert.tasks.coreference.scoring import GIVEN, NO_SPAN
from keras_spanbert.tasks.coreference.splitting import split

# Results with a value for each span that is kept.
_OF_SPANS = (
    "top_span_starts", "top_span_ends", "top_span_mention_scores", "best_antecedents",
    "link_scores",
)  # fmt: skip
# Inputs with a value for each token.
_OF_TOKENS = ("token_places", "speaker_ids", "segment_index", "overlap_places")


def document_inputs(tensors: dict, model, xp=np, given: bool = False) -> dict:
    """Returns a document's inputs without padding, int32, from the preprocessor's `tensors`.

    They are `token_ids`, `padding_mask` `[S, L]`, `token_places`, `speaker_ids`, `segment_index`
    `[T]`, `starts`, `ends` `[N]`, `top_span_mask` `[K]` and `genre` `[]`. With overlap there are
    also `overlap_token_ids`, `overlap_padding_mask` `[S + 1, L]` and `overlap_places` `[T]`. If
    `given`, the gold mentions are the only candidates, and all are kept.
    """
    mask = tensors["input_mask"]
    is_overlap = "overlap_ids" in tensors
    is_token = mask_separators(mask, xp) if is_overlap else mask > 0
    segment, place = (int32(xp, x) for x in xp.nonzero(is_token))
    places = segment * mask.shape[1] + place
    if given:
        starts, ends = tensors["gold_starts"], tensors["gold_ends"]
        top_span_mask = xp.full_like(starts, GIVEN)
    else:  # All spans up to the maximum width that do not cross a sentence, sorted.
        sentence_map, num_tokens = tensors["sentence_map"], xp.size(places)
        first = range_like(xp, sentence_map)[:, None]
        last = first + np.arange(model.max_span_width, dtype=np.int32)
        sentences = take(xp, sentence_map, xp.minimum(last, num_tokens - 1))
        is_span = (last < num_tokens) & (sentences == sentence_map[:, None])
        starts, widths = (int32(xp, x) for x in xp.nonzero(is_span))
        ends = starts + widths
        num_top = num_top_spans(num_tokens, model.top_span_ratio, xp)
        top_span_mask = xp.ones((num_top,), np.int32)
    inputs = {
        "token_ids": tensors["input_ids"],
        "padding_mask": mask,
        "token_places": places,
        "speaker_ids": tensors["speaker_ids"][is_token],
        "segment_index": segment,
        "starts": starts,
        "ends": ends,
        "top_span_mask": top_span_mask,
        "genre": tensors["genre"],
    }
    if is_overlap:
        inputs["overlap_token_ids"] = tensors["overlap_ids"]
        inputs["overlap_padding_mask"] = tensors["overlap_mask"]
        inputs["overlap_places"] = true_indices(xp, mask_separators(tensors["overlap_mask"], xp))
    return inputs


def gold_clusters(tensors: dict, inputs: dict) -> np.ndarray:
    """Returns the gold cluster of each candidate of `document_inputs`, 0 for none: int32 `[N]`."""
    num_tokens = len(inputs["token_places"])
    starts, ends = (tensors[name].astype(np.int64) for name in ["gold_starts", "gold_ends"])
    is_inside = (starts >= 0) & (ends < num_tokens)
    wanted = (starts * num_tokens + ends)[is_inside]
    keys = inputs["starts"].astype(np.int64) * num_tokens + inputs["ends"]
    found = np.searchsorted(keys, wanted)  # Candidates are sorted.
    is_candidate = np.append(keys, -1)[found] == wanted
    labels = np.zeros(len(keys), np.int32)
    labels[found[is_candidate]] = tensors["cluster_ids"][is_inside][is_candidate]
    return labels


def mask_separators(mask, xp):
    """Returns where rows have tokens other than separators, their first and last tokens."""
    num_following = cumsum(xp, mask[:, ::-1], axis=1)[:, ::-1] - mask
    return (mask > 0) & (np.arange(mask.shape[1]) > 0) & (num_following > 0)


def padded_sizes(rows: Iterable[dict], model, xp=np) -> dict:
    """Returns the number of rows to pad each input of documents to, and the `length` of rows.

    Graphs have dynamic shapes. Otherwise there are only a few sizes: 1, 2, 3, 4, 5, 6, 7, 8, 10,
    12, 14, 16, 20, 24, ..., at most a quarter more than needed.
    """
    sizes = {"length": np.int32(1)}
    for inputs in rows:
        columns = np.arange(1, inputs["token_ids"].shape[1] + 1, dtype=np.int32)
        for name, array in inputs.items():
            if name != "genre":
                rows_of_it = array[:, 0] if len(array.shape) == 2 else array
                sizes[name] = xp.maximum(sizes.get(name, np.int32(0)), xp.size(rows_of_it))
            if name.endswith("padding_mask"):
                is_used = int32(xp, xp.any(array > 0, axis=0))
                sizes["length"] = xp.maximum(sizes["length"], xp.max(is_used * columns))
    num_needed = sizes["top_span_mask"]
    if xp is np:
        sizes = {name: round_up(int(number)) for name, number in sizes.items()}
    # Whole blocks of the widest span, which the attention of spans uses.
    for name in sizes.keys() & _OF_TOKENS:
        sizes[name] = -(-sizes[name] // model.max_span_width) * model.max_span_width
    num_top = num_top_spans(sizes["token_places"], model.top_span_ratio, xp)
    # That many antecedents are always chosen.
    num_top = xp.maximum(num_top, np.int32(model.max_top_antecedents))
    # Given mentions can be more than a model keeps.
    if xp is not np or num_needed <= num_top:
        sizes["top_span_mask"] = num_top
    sizes["length"] = xp.minimum(sizes["length"], np.int32(len(columns)))
    return sizes


def pad(inputs: dict, sizes: dict, xp=np) -> dict:
    """Returns the padded inputs of one document as a batch of one."""
    # Rows of padding have a mask of 1, because a softmax over nothing would be undefined.
    values = {"ends": -1, "padding_mask": 1, "overlap_padding_mask": 1}
    longest, length = inputs["token_ids"].shape[1], sizes["length"]
    padded = {}
    for name, array in inputs.items():
        if len(array.shape) == 2:
            array = array[:, :length]  # After the longest segment there is only padding.
        elif name.endswith("_places"):
            array = array // longest * length + array % longest
        if name != "genre":
            missing = sizes[name] - xp.size(array[:, 0] if len(array.shape) == 2 else array)
            widths = [(0, missing), (0, 0)][: len(array.shape)]
            array = xp.pad(array, widths, "constant", constant_values=values.get(name, 0))
        padded[name] = array[None]
    return padded


class Documents:
    """The arrays of documents, all padded to the same shape, for `Batches`.

    In training, a document with more segments than the model's `max_training_sentences` is cut to a
    run of that many, which the seed, the epoch and the document determine.
    """

    def __init__(self, model, documents: list[dict], is_training: bool, seed: int):
        model.check_preprocessor()
        if not documents:
            raise ValueError("There must be at least one document. Received: none")
        self.model = model
        self.tensors = [model.preprocessor.tensors(document) for document in documents]
        if is_training:
            check_training_clusters(documents)
        self.has_labels = all("clusters" in document for document in documents)
        self.max_segments = model.max_training_sentences if is_training else 10**9  # All.
        self.seed = seed
        # Large enough for any run of segments.
        runs = (
            self._inputs(truncate(document, first, self.max_segments))
            for document in self.tensors
            for first in range(self._num_runs(document))
        )
        self.sizes = padded_sizes(runs, model)

    def __len__(self):
        return len(self.tensors)

    def batch(self, numbers: Iterable[int], epoch: int) -> tuple:
        """Returns inputs, and labels if known, of documents in an epoch."""
        rows = [self.document(int(number), epoch) for number in numbers]
        batch = keras.tree.map_structure(lambda *arrays: np.concatenate(arrays), *rows)
        return batch if self.has_labels else batch[:1]

    def document(self, number: int, epoch: int) -> tuple[dict, dict]:
        """Returns inputs and labels of a document in an epoch, as a batch of one."""
        padded = pad(self._inputs(self.cut(number, epoch)), self.sizes)
        return padded, {"cluster_ids": padded.pop("cluster_ids")}

    def cut(self, number: int, epoch: int) -> dict:
        """Returns the arrays of the run of segments that is used of a document in an epoch."""
        tensors = self.tensors[number]
        generator = np.random.default_rng([self.seed, epoch, number])
        first = int(generator.integers(self._num_runs(tensors)))
        return truncate(tensors, first, self.max_segments)

    def _inputs(self, tensors):
        inputs = document_inputs(tensors, self.model)
        return {**inputs, "cluster_ids": gold_clusters(tensors, inputs)}

    def _num_runs(self, tensors):
        return max(len(tensors["input_ids"]) - self.max_segments, 0) + 1


# Maximum number of tokens of a chunk's segments, unless a single segment has more. Longer chunks
# take more memory. Shorter chunks take more time, because the spans in memory are projected once
# per chunk.
_CHUNK_TOKENS = 1024


@one_thread
def predict_rows(
    model,
    inputs: list[dict],
    min_link_score: float | None = None,
    sizes: dict | None = None,
    memory: dict | None = None,
    xp=np,
) -> list:
    """Runs the model on `inputs` of documents, the rows of a batch, or a chunk with its `memory`.

    Returns for each row the dict of `score_document` without its candidates, clusters and loss, but
    with `top_spans`, the indices of the spans among the candidates; the spans' `best_antecedents`
    `[K]`, -1 for none; their `link_scores` `[K]`, their probabilities among all antecedents and
    none; and with a memory `spans`: see `ResolverLayers.outputs`. `sizes` to pad to are by default
    those of the inputs.
    """
    sizes = sizes or padded_sizes(inputs, model, xp)
    rows = [pad(x, sizes, xp) for x in inputs]
    batch = {name: xp.concatenate([row[name] for row in rows], axis=0) for name in rows[0]}
    if memory is not None:
        batch = distribution.pad_to_batch_shards({**batch, "memory": memory}, len(inputs))
        jit_compile, model = model.jit_compile, model.resolver_layers.chunk_model
        model.jit_compile = jit_compile
        forget_old_functions(model)
    outputs = model.predict_on_batch(batch) if xp is np else model(batch, training=False)
    found = []
    for row, x in enumerate(inputs):
        num_top = xp.size(x["top_span_mask"])
        of_row = keras.tree.map_structure(
            lambda array, row=row, num_top=num_top: array[row][:num_top], outputs
        )
        # All other outputs have a row for each span that is kept.
        scores = outputs["candidate_mention_scores"][row][: xp.size(x["starts"])]
        of_row["candidate_mention_scores"] = scores
        columns = {"starts": x["starts"], "ends": x["ends"], "mention_scores": scores}
        for name, values in columns.items():
            of_row[f"top_span_{name}"] = take(xp, values, of_row["top_spans"])
        antecedents, scores = of_row["top_antecedents"], of_row["top_antecedent_scores"]
        place = xp.argmax(scores, axis=1)[:, None]  # 0 for none.
        with_none = xp.concatenate([-xp.ones_like(antecedents[:, :1]), antecedents], axis=1)
        best = xp.take_along_axis(with_none, place, axis=1)[:, 0]
        link_scores = 1 / xp.sum(xp.exp(scores - xp.max(scores, axis=1, keepdims=True)), axis=1)
        if min_link_score is not None:
            best = xp.where(link_scores < min_link_score, -1, best)
        of_row.update(best_antecedents=best, link_scores=link_scores)
        found.append(of_row)
    return found


def score_in_chunks(
    model,
    tensors: dict,
    max_spans_in_memory: int,
    min_link_score: float | None = None,
    given: bool = False,
) -> dict:
    """Scores one document in chunks. Returns what `cluster_mentions` needs."""
    num_segments = max(_CHUNK_TOKENS // tensors["input_ids"].shape[1], 1)
    begins = [*range(0, len(tensors["input_ids"]), num_segments)]
    first_tokens = np.cumsum([0, *tensors["text_len"]])
    if given:  # A chunk contains its mentions as a whole.
        starts, ends = tensors["gold_starts"], tensors["gold_ends"]
        is_cut = [np.any((starts < first_tokens[b]) & (ends >= first_tokens[b])) for b in begins]
        begins = [begin for begin, cut in zip(begins, is_cut) if not cut]
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
    sizes = padded_sizes(map(inputs_at, begins), model)
    layers = model.resolver_layers
    memory = Memory(max_spans_in_memory, layers.num_levels, layers.embedding_dim)
    found = []
    for begin in begins:
        first = memory.num_added
        remembered = memory.inputs()
        (row,) = predict_rows(model, [inputs_at(begin)], min_link_score, sizes, remembered)
        row["top_span_starts"] += first_tokens[begin]
        row["top_span_ends"] += first_tokens[begin]
        index = np.concatenate([remembered["index"][0], row["spans"]["index"]]) + first
        best = row["best_antecedents"]
        row["best_antecedents"] = np.where(best < 0, -1, index[best])
        memory.add(row["spans"], row["best_antecedents"])
        found.append([row[name] for name in _OF_SPANS])
    return {name: np.concatenate(arrays) for name, arrays in zip(_OF_SPANS, zip(*found))}


class Memory:
    """The spans of a document that later ones may refer to, as inputs of a chunk's model.

    It keeps `size` spans, M, with embeddings `[M, num_levels, embedding_dim]`.
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
        """Adds the spans of a chunk, with `antecedents` `[K]`, -1 for none, and drops others."""
        spans = {**spans, "index": spans["index"] + np.int32(self.num_added)}
        for span, antecedent in zip(spans["index"].tolist(), antecedents.tolist()):
            if antecedent >= 0:  # A cluster has the number of its first span.
                self.cluster_of[span] = self.cluster_of.setdefault(antecedent, antecedent)
        both = {name: np.concatenate([x, spans[name]]) for name, x in self.spans.items()}
        # The newest half is always kept. Among the older spans, those without a cluster are dropped
        # first, then those with a later mention of their cluster in memory, the oldest first.
        clusters = [self.cluster_of.get(i, -1) for i in both["index"].tolist()]
        last_index = {cluster: i for i, cluster in enumerate(clusters)}
        rank = [0 if c < 0 else 1 + (last_index[c] == i) for i, c in enumerate(clusters)]
        rank = np.array(rank, np.int64)
        rank[max(len(rank) - self.size // 2, 0) :] = 3  # The newest.
        kept = np.sort(np.argsort(rank, kind="stable")[-self.size :])
        self.spans = {name: array[kept] for name, array in both.items()}
        self.num_added += len(antecedents)


def word_clusters(xp, spans: dict, word_of, singletons: bool, given: bool = False) -> dict:
    """Returns the clusters of spans from `predict_rows`, in words: a dict of int32 `[K]`.

    It has `first` and `last`, the words of each span; `cluster`, a number that increases in the
    order of the clusters' first links, -1 for no mention; and `same`, the first span of the cluster
    that is the same words. Clusters of one mention follow if `singletons`. `word_of` `[T]` is the
    word of each token, -1 for a separator. A span of separators alone is no mention. If spans have
    the same words, the earlier cluster counts.
    """
    best = int32(xp, spans["best_antecedents"])
    span, never = range_like(xp, best), np.int32(NO_SPAN)  # `never` is after all others.
    is_word = word_of >= 0
    before = xp.concatenate([np.zeros(1, np.int32), cumsum(xp, is_word)], axis=0)
    # Between words before and after all others.
    words = [np.full(1, -1, np.int32), word_of[is_word], np.full(1, never)]
    words = xp.concatenate(words, axis=0)
    first = take(xp, words, take(xp, before, spans["top_span_starts"]) + 1)
    last = take(xp, words, take(xp, before, spans["top_span_ends"] + 1))

    def minimum(values, groups):
        """Returns the minimum of the values of each span's group."""
        return take(xp, scatter_min(xp, xp.zeros_like(span) + never, groups, values), groups)

    # === Clusters, in order of their first links; those of one mention follow ===
    (root,) = fixed_point(xp, lambda root: [take(xp, root, root)], [xp.where(best < 0, span, best)])
    order = minimum(xp.where(best < 0, never, span), root)
    is_alone = order == never
    order = xp.where(is_alone, span + never // 2, order)
    is_single = is_alone & ((spans["top_span_mention_scores"] > 0) | given) & singletons
    is_mention = (first <= last) & (is_single | ~is_alone)

    # === The same words, in the first of their clusters ===
    wide = [xp.asarray(place, dtype=np.int64) for place in (first, last)]
    place = distinct_numbers(xp, wide[0] * (1 << 32) + wide[1])
    order = xp.where(is_mention, order, never)
    is_mention &= order == minimum(order, place)
    same = minimum(xp.where(is_mention, span, never), place)
    if not singletons:
        is_other = is_mention & (same != minimum(xp.where(is_mention, same, never), root))
        is_mention &= minimum(xp.where(is_other, np.int32(-1), span), root) < 0
    cluster = xp.where(is_mention, order, np.int32(-1))
    return {"first": first, "last": last, "cluster": cluster, "same": same}


def cluster_mentions(
    spans: dict, word_of: np.ndarray, singletons: bool, given: bool = False
) -> tuple[list[dict], dict]:
    """Returns the clusters of spans in words, and the links within them: see `word_clusters`.

    Clusters are dicts from the `(first, last)` word of each mention to its highest score. Links are
    a dict from mentions, but not the first of a cluster, to `(antecedent, link score)`, the highest
    one.
    """
    found = word_clusters(np, spans, word_of, singletons, given)
    places = [*zip(found["first"].tolist(), found["last"].tolist())]
    numbers = found["cluster"].tolist()
    number_of = {place: number for place, number in zip(places, numbers) if number >= 0}
    antecedents = spans["best_antecedents"].tolist()
    scores = zip(spans["top_span_mention_scores"].tolist(), spans["link_scores"].tolist())
    clusters, links = {}, {}
    for place, number, antecedent, (score, link_score) in zip(places, numbers, antecedents, scores):
        if number < 0:
            continue
        mentions = clusters.setdefault(number, {})
        mentions[place] = max(score, mentions.get(place, score))
        if antecedent < 0 or place == next(iter(mentions)):
            continue
        link = places[antecedent], link_score
        is_link = link[0] != place and number_of.get(link[0]) == number
        if is_link and link_score > links.get(place, (None, -1.0))[1]:
            links[place] = link
    return [clusters[number] for number in sorted(clusters)], links


# === The SavedModel: graph code with the results of `resolve` ===
# B = texts. For one text, W = words.


def serve_clusters(model, text) -> dict:
    """Returns the clusters of texts, strings `[B]`, as a SavedModel serves them."""
    texts = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")  # Replaces invalid bytes.
    sentences = split(texts)

    def serve_one(i):
        words = sentences.words[i]
        cluster, first, last = tf.cond(
            tf.size(words) > 0,
            lambda: _mentions(model, words, sentences.sizes[i]),
            lambda: (tf.zeros([0], tf.int32),) * 3,
        )
        starts = tf.gather(sentences.starts[i], first)
        return cluster, starts, tf.gather(sentences.ends[i], last)

    ragged = tf.RaggedTensorSpec([None], tf.int32)
    cluster, start, end = tf.map_fn(
        serve_one,
        tf.range(tf.size(texts)),
        fn_output_signature=(ragged, ragged, ragged),
        parallel_iterations=1,
    )
    # The text that contains each mention.
    whole, sizes = tf.gather(texts, cluster.value_rowids()), end.values - start.values
    mention = tf.strings.substr(whole, start.values, sizes, unit="UTF8_CHAR")
    return {
        "mention": cluster.with_values(mention).to_tensor(""),
        "start": start.to_tensor(-1),
        "end": end.to_tensor(-1),
        "cluster": cluster.to_tensor(-1),
    }


def _mentions(model, words, sentence_sizes):
    """Returns cluster, first and last word of each mention of a text, in order of the text."""
    tensors, word_of = _tensors(model.preprocessor, words, sentence_sizes)
    most = int(MAX_TOP_SPANS / model.top_span_ratio)
    rule = f"A text must have at most {most} tokens. Use `resolve` for longer texts."
    check = tf.debugging.assert_less_equal(tf.size(word_of), most, message=rule)
    with tf.control_dependencies([check]):
        tensors = {name: tf.identity(x) for name, x in tensors.items()}
    (row,) = predict_rows(model, [document_inputs(tensors, model, tnp)], xp=tnp)
    found = word_clusters(tnp, row, word_of, model.singletons)

    # === Each mention once, in order of the text; clusters from 0 on by their first mentions ===
    is_first = (found["cluster"] >= 0) & (found["same"] == tf.range(tf.size(found["same"])))
    cluster, first, last = (
        tf.boolean_mask(found[n], is_first) for n in ("cluster", "first", "last")
    )
    key = tf.cast(first, tf.int64) * tf.size(word_of, tf.int64) + tf.cast(last, tf.int64)
    in_order = tf.argsort(key)
    _, number = tf.unique(tf.gather(cluster, in_order))
    return number, tf.gather(first, in_order), tf.gather(last, in_order)


def _tensors(preprocessor, words, sentence_sizes):
    """Returns the arrays of `tensors` for a text with at least one word, and `word_of`.

    `word_of` is int32 `[T]`, the word of each token of the document, -1 for a separator.
    """
    tokenizer, length = preprocessor.tokenizer, preprocessor.sequence_length
    # === Subtokens, at least one for each word ===
    found = tf.cast(tokenizer.traced(words), tf.int32)
    sizes = found.row_lengths()
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.math.count_nonzero(sizes == 0)], tokenizer.token_to_id(tokenizer.oov_token)),
        tf.cast(sizes == 0, tf.int64),
    )
    pieces = tf.concat([found, unknown], axis=1)
    sizes = tf.cast(pieces.row_lengths(), tf.int32)
    added = preprocessor.added_separators()
    separators = tokenizer.cls_token_id, tokenizer.sep_token_id
    segments = cut_into_segments(tnp, sizes, sentence_sizes, length, not added)
    ids = tf.gather(tf.concat([pieces.values, separators], axis=0), segments.index)
    (speaker,) = speaker_numbers(["-"], preprocessor.max_num_speakers, preprocessor.model_type)
    speakers = tf.where(segments.word_of < 0, SEPARATOR_NUMBER, speaker)
    rows = segment_rows(ids, speakers, segments.sizes, length, added, tnp)
    tensors = {**rows, "sentence_map": segments.sentence_of, "genre": tf.constant(0)}
    return tensors, segments.word_of

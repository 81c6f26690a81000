"""Texts to clusters of mentions, as graph code.

It is what `resolve` does, written with dynamic shapes: B = texts, M = most
mentions of a text; of one text, W = words, T = tokens, S = segments, L = longest
segment, K = spans that are kept.
"""

import collections

import numpy as np

from keras_spanbert.serving.tokenization import GraphTokenizer
from keras_spanbert.tasks.coreference.spans import MOST_TOP_SPANS
from keras_spanbert.tasks.coreference.splitting import split
from keras_spanbert.tasks.coreference.tensors import speaker_of_all

_Document = collections.namedtuple(
    "_Document",
    [
        "inputs",  # of the model, a batch of one
        "word_of",  # int32 [T], the word of each token of the document, -1 for a separator
        "num_top",  # int32, the spans to keep
    ],
)


def clusters(model):
    """The function of `text`, strings `[B]`, that a SavedModel serves.

    Args:
        model: `SpanBertCoreferenceResolver` with preprocessor.
    """
    import tensorflow as tf

    tokenize = GraphTokenizer(model.preprocessor.tokenizer)

    def serve(text):
        texts = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8")  # Mends what is invalid.
        sentences = split(texts)

        def of_one(i):
            words = sentences.words[i]
            cluster, first, last = tf.cond(
                tf.size(words) > 0,
                lambda: _mentions(model, tokenize, words, sentences.sizes[i]),
                lambda: (tf.zeros([0], tf.int32),) * 3,
            )
            starts = tf.gather(sentences.starts[i], first)
            return cluster, starts, tf.gather(sentences.ends[i], last)

        ragged = tf.RaggedTensorSpec([None], tf.int32)
        cluster, start, end = tf.map_fn(
            of_one,
            tf.range(tf.size(texts)),
            fn_output_signature=(ragged, ragged, ragged),
            parallel_iterations=1,
        )
        # Of each mention, the text that it is in.
        whole = tf.gather(texts, cluster.value_rowids())
        mention = tf.strings.substr(
            whole, start.values, end.values - start.values, unit="UTF8_CHAR"
        )
        return {
            "mention": cluster.with_values(mention).to_tensor(""),
            "start": start.to_tensor(-1),
            "end": end.to_tensor(-1),
            "cluster": cluster.to_tensor(-1),
        }

    return serve


def _mentions(model, tokenize, words, sentence_sizes):
    """Cluster, first and last word of each mention of a text, in order of the text."""
    import tensorflow as tf

    document = _document(model, tokenize, words, sentence_sizes)
    outputs = model(document.inputs, training=False)
    kept = document.num_top
    top = outputs["top_spans"][0, :kept]
    scores = outputs["top_antecedent_scores"][0, :kept]
    best = tf.argmax(scores, axis=1, output_type=tf.int32)
    place = tf.range(kept)
    antecedents = outputs["top_antecedents"][0, :kept]
    chosen = tf.gather(antecedents, tf.maximum(best - 1, 0), batch_dims=1)
    # Each span's first one of its cluster: twice as many links are followed in each round.
    root = tf.where(best > 0, chosen, place)
    (root,) = tf.while_loop(
        lambda root: tf.reduce_any(tf.gather(root, root) != root),
        lambda root: (tf.gather(root, root),),
        (root,),
    )
    is_alone = tf.gather(tf.math.unsorted_segment_sum(tf.ones_like(root), root, kept), root) == 1

    # === As `clusters_of_words`: none of separators alone, each of the same words once ===
    starts, ends = (tf.gather(document.inputs[name][0], top) for name in ["starts", "ends"])
    first, last = _words_of_tokens(document.word_of)
    first, last = tf.gather(first, starts), tf.gather(last, ends)
    is_mention = first <= last
    if model.singletons:
        mention_scores = tf.gather(outputs["candidate_mention_scores"][0], top)
        is_mention &= (mention_scores > 0) | ~is_alone
    else:
        is_mention &= ~is_alone
    # Clusters come by their first links, those of one mention behind them.
    first_link = tf.math.unsorted_segment_min(tf.where(root == place, kept, place), root, kept)
    order = tf.gather(first_link, root) + tf.where(is_alone, place + 1, 0)
    order = tf.where(is_mention, order, 3 * kept)
    key = tf.cast(first, tf.int64) * tf.size(document.word_of, tf.int64) + tf.cast(last, tf.int64)
    unique, same = tf.unique(key, tf.int32)
    best_order = tf.math.unsorted_segment_min(order, same, tf.size(unique))
    is_mention &= order == tf.gather(best_order, same)
    # Two of one cluster.
    first_place = tf.where(is_mention, place, kept)
    first_place = tf.math.unsorted_segment_min(first_place, same, tf.size(unique))
    is_mention &= place == tf.gather(first_place, same)
    if not model.singletons:
        size = tf.math.unsorted_segment_sum(tf.cast(is_mention, tf.int32), root, kept)
        is_mention &= tf.gather(size, root) > 1
    root, first, last = (tf.boolean_mask(x, is_mention) for x in (root, first, last))

    # === In order of the text; clusters from 0 on by their first mentions ===
    key = tf.boolean_mask(key, is_mention)
    in_order = tf.argsort(key, stable=True)
    _, number = tf.unique(tf.gather(root, in_order))
    return number, tf.gather(first, in_order), tf.gather(last, in_order)


def _words_of_tokens(word_of):
    """For each token the first word from it on, and the last up to it."""
    import tensorflow as tf

    is_word = word_of >= 0
    words = tf.boolean_mask(word_of, is_word)
    num_words = tf.reduce_max(word_of) + 1
    up_to = tf.cumsum(tf.cast(is_word, tf.int32))
    before = tf.cumsum(tf.cast(is_word, tf.int32), exclusive=True)
    following = tf.gather(tf.concat([words, [num_words]], axis=0), before)
    return following, tf.gather(tf.concat([[-1], words], axis=0), up_to)


def _document(model, tokenize, words, sentence_sizes):
    """The inputs of a text of a word or more."""
    import tensorflow as tf

    preprocessor = model.preprocessor
    tokenizer, length = preprocessor.tokenizer, preprocessor.sequence_length
    is_overlap = model.model_type == "overlap"

    # === Subtokens, each word's one or more ===
    tokens = tokenize(words)
    sizes = tf.cast(tokens.sizes, tf.int64)
    found = tf.RaggedTensor.from_row_lengths(tokens.ids, sizes)
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.math.count_nonzero(sizes == 0)], tokenizer.token_to_id(tokenizer.oov_token)),
        tf.cast(sizes == 0, tf.int64),
    )
    pieces = tf.concat([found, unknown], axis=1)
    word_of = tf.cast(pieces.value_rowids(), tf.int32)
    sentence_of_word = tf.repeat(tf.range(tf.size(sentence_sizes)), sentence_sizes)
    sentence_of = tf.gather(sentence_of_word, word_of)
    word_ends = tf.cast(pieces.row_limits(), tf.int32)
    sentence_ends = tf.gather(word_ends, tf.cumsum(sentence_sizes) - 1)

    # === Segments ===
    room = length - (3 if is_overlap else 2)
    limits = _segment_limits(sentence_ends, word_ends, room)
    contents = tf.RaggedTensor.from_row_limits(pieces.values, tf.cast(limits, tf.int64))
    rows = _with_separators(contents, tokenizer.cls_token_id, tokenizer.sep_token_id)
    inputs = _rows(rows, "token_ids", "padding_mask")
    # The place of each subtoken in the matrix of segments, behind [CLS].
    segment_of, place = _places(contents)
    width = tf.shape(inputs["token_ids"])[1]
    speaker = np.int32(speaker_of_all(preprocessor.max_num_speakers, preprocessor.model_type))
    if is_overlap:
        places = segment_of * width + place + 1
        speakers = tf.fill(tf.shape(places), speaker)
        windows = _windows(contents, length // 2)
        inputs |= _rows(
            _with_separators(windows, tokenizer.cls_token_id, tokenizer.sep_token_id),
            "overlap_token_ids",
            "overlap_padding_mask",
        )
        window_of, place = _places(windows)
        overlap_width = tf.shape(inputs["overlap_token_ids"])[1]
        inputs["overlap_places"] = window_of * overlap_width + place + 1
    else:
        # Separators are tokens of the document too, of the sentences around them.
        is_end = tf.reduce_any(limits[:, None] == sentence_ends[None, :], axis=1)
        firsts, lasts = contents.row_starts(), limits - 1
        next_sentence = tf.gather(sentence_of, lasts) + tf.cast(is_end, tf.int32)
        sentence_of = _around(contents, sentence_of, tf.gather(sentence_of, firsts), next_sentence)
        ones = tf.ones_like(lasts)
        word_of = _around(contents, word_of, -ones, -ones)
        speakers = _around(contents, tf.fill(tf.shape(contents.values), speaker), ones, ones)
        segment_of, place = _places(rows)
        places = segment_of * width + place

    # === Tokens and spans ===
    num_tokens = tf.size(places)
    most = int(MOST_TOP_SPANS / model.top_span_ratio)
    rule = f"A text must have at most {most} tokens; `resolve` takes longer ones."
    with tf.control_dependencies([tf.debugging.assert_less_equal(num_tokens, most, message=rule)]):
        num_tokens = tf.identity(num_tokens)
    widest = model.max_span_width
    starts = tf.repeat(tf.range(num_tokens), widest)
    ends = starts + tf.tile(tf.range(widest), [num_tokens])
    last = tf.minimum(ends, num_tokens - 1)
    is_candidate = (ends < num_tokens) & (
        tf.gather(sentence_of, starts) == tf.gather(sentence_of, last)
    )
    product = tf.cast(num_tokens, tf.float32) * np.float32(model.top_span_ratio)
    num_top = tf.minimum(MOST_TOP_SPANS, tf.cast(tf.floor(product), tf.int32))
    filled = tf.maximum(num_top, max(model.max_top_antecedents, 1))
    # The attention of spans goes by blocks of the widest span.
    padding = -num_tokens % widest
    inputs |= {
        "token_places": tf.pad(places, [[0, padding]]),
        "speaker_ids": tf.pad(speakers, [[0, padding]]),
        "segment_index": tf.pad(segment_of, [[0, padding]]),
        "starts": tf.boolean_mask(starts, is_candidate),
        "ends": tf.boolean_mask(ends, is_candidate),
        "top_span_mask": tf.cast(tf.range(filled) < num_top, tf.int32),
        "genre": tf.constant(0),
    }
    if is_overlap:
        inputs["overlap_places"] = tf.pad(inputs["overlap_places"], [[0, padding]])
    return _Document({name: x[None] for name, x in inputs.items()}, word_of, num_top)


def _segment_limits(sentence_ends, word_ends, room):
    """Where segments end, int32 `[S]`: see `segments.document_of_words`."""
    import tensorflow as tf

    num_tokens = word_ends[-1]

    def last_within(ends, most):
        return tf.gather(tf.concat([[0], ends], axis=0), tf.searchsorted(ends, [most], "right"))[0]

    def step(begin, limits):
        most = tf.minimum(begin + room, num_tokens)
        by_sentence, by_word = last_within(sentence_ends, most), last_within(word_ends, most)
        end = tf.where(by_word > begin, by_word, most)
        end = tf.where(by_sentence > begin, by_sentence, end)
        return end, tf.concat([limits, [end]], axis=0)

    _, limits = tf.while_loop(
        lambda begin, limits: begin < num_tokens,
        step,
        (tf.constant(0), tf.zeros([0], tf.int32)),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
    )
    return limits


def _windows(contents, half):
    """Ragged windows over the joints of segments: see `tensors.overlapping_windows`."""
    import tensorflow as tf

    none = tf.RaggedTensor.from_row_lengths(contents.values[:0], np.int64([0]))
    before = tf.concat([none, contents[:, half:]], axis=0)
    after = tf.concat([contents[:, :half], none], axis=0)
    return tf.concat([before, after], axis=1)


def _around(contents, values, first, last):
    """Values of subtokens, with those of the separators around each segment, in a row."""
    return _with_columns(contents.with_values(values), first, last).values


def _with_separators(rows, cls_token_id, sep_token_id):
    import tensorflow as tf

    ones = tf.ones([rows.nrows()], rows.dtype)
    return _with_columns(rows, cls_token_id * ones, sep_token_id * ones)


def _with_columns(rows, first, last):
    import tensorflow as tf

    return tf.concat([first[:, None], rows, last[:, None]], axis=1)


def _rows(rows, name, mask_name):
    """A ragged matrix as one with padding, and its mask."""
    import tensorflow as tf

    return {name: rows.to_tensor(0), mask_name: tf.ones_like(rows).to_tensor(0)}


def _places(rows):
    """The row and the place in it of each value of a ragged matrix."""
    import tensorflow as tf

    row = tf.cast(rows.value_rowids(), tf.int32)
    begins = tf.cast(tf.gather(rows.row_starts(), row), tf.int32)
    return row, tf.range(tf.size(row)) - begins

"""Fills blanks with the predictions of the pretraining heads."""

import numpy as np
from keras import ops

from keras_spanbert.checks import check_counts, check_in
from keras_spanbert.tasks.pretrain.objectives import mask_inputs
from keras_spanbert.text.strings import as_strings

_HEADS = ("mlm", "sbo")
_SCORES = ("both", *_HEADS)
# Texts are padded to multiples of this number, so that few shapes are compiled.
_BUCKET = 32


def fill(pretrainer, texts, top_k, score, batch_size):
    """See `SpanBertPretrainer.fill`."""
    check_in("score", score, score in _SCORES, f"one of {_SCORES}")
    rule = "'mlm' or 'both' for a model without an SBO head"
    check_in("score", score, score != "sbo" or pretrainer.span_boundary, rule)
    check_counts(top_k=top_k, batch_size=batch_size)
    if isinstance(texts, str):
        return fill(pretrainer, [texts], top_k, score, batch_size)[0]
    rows, tokenizer = _tokenize(pretrainer, texts), pretrainer.preprocessor.tokenizer
    return [
        [_candidates(tokenizer, mlm, sbo, top_k, score) for mlm, sbo in blanks]
        for blanks in _predict_blanks(pretrainer, rows, batch_size)
    ]


def score(pretrainer, texts, fillings, batch_size):
    """See `SpanBertPretrainer.score`."""
    check_counts(batch_size=batch_size)
    if isinstance(texts, str):
        return score(pretrainer, [texts], [fillings], batch_size)[0]
    texts = as_strings("texts", texts)
    if not isinstance(fillings, (list, tuple)) or len(fillings) != len(texts):
        count = len(fillings) if isinstance(fillings, (list, tuple)) else f"{fillings!r:.80}"
        raise ValueError(
            f"`fillings` must have a list for each text. Received: {count} for {len(texts)} texts"
        )
    rows, tokenizer = _tokenize(pretrainer, texts), pretrainer.preprocessor.tokenizer
    ids = [
        _tokenize_fillings(tokenizer, row, of_text, text)
        for row, of_text, text in zip(rows, fillings, texts)
    ]
    return [
        [_candidate(tokenizer, *heads, of_blank) for heads, of_blank in zip(blanks, of_text)]
        for blanks, of_text in zip(_predict_blanks(pretrainer, rows, batch_size), ids)
    ]


def _tokenize(pretrainer, texts):
    if pretrainer.preprocessor is None:
        raise ValueError("`fill` and `score` need a preprocessor. Received: preprocessor=None")
    return [_tokenize_blanks(pretrainer, text) for text in as_strings("texts", texts)]


def _tokenize_blanks(pretrainer, text):
    tokenizer = pretrainer.preprocessor.tokenizer
    pieces = text.split(tokenizer.mask_token)
    ids = [tokenizer.cls_token_id, *tokenizer(pieces[0])]
    for piece in pieces[1:]:
        ids += [tokenizer.mask_token_id, *tokenizer(piece)]
    ids.append(tokenizer.sep_token_id)
    if len(pieces) == 1 or len(ids) > pretrainer.backbone.max_sequence_length:
        raise ValueError(
            f"A text to fill must have a {tokenizer.mask_token} and at most "
            f"{pretrainer.backbone.max_sequence_length - 2} tokens. Received: "
            f"{len(pieces) - 1} masks and {len(ids) - 2} tokens in {text[:80]!r}"
        )
    return np.array(ids, "int32")


def _tokenize_fillings(tokenizer, row, fillings, text):
    """Returns token ids of the fillings of a text's blanks."""
    lengths = [stop - start for start, stop in _runs(row == tokenizer.mask_token_id)]
    given = as_strings("fillings", fillings)
    ids = [np.asarray(tokenizer(filling)).tolist() for filling in given]
    if [len(i) for i in ids] != lengths:
        raise ValueError(
            f"`fillings` must have as many tokens as the blanks have masks, {lengths} in "
            f"{text[:80]!r}. Received: {fillings!r}, of {[len(i) for i in ids]} tokens"
        )
    return ids


def _predict_blanks(pretrainer, rows, batch_size):
    """Returns log-probabilities `(mlm, sbo or None)`, `[tokens, V]`, of each row's blanks."""
    batches = (rows[i : i + batch_size] for i in range(0, len(rows), batch_size))
    return [row for batch in batches for row in _predict_batch(pretrainer, batch)]


def _predict_batch(pretrainer, rows):
    tokenizer = pretrainer.preprocessor.tokenizer
    runs = [_runs(row == tokenizer.mask_token_id) for row in rows]
    length = -(-max(map(len, rows)) // _BUCKET) * _BUCKET
    length = min(length, pretrainer.backbone.max_sequence_length)
    slots = max(sum(stop - start for start, stop in row) for row in runs)
    slots = -(-slots // 4) * 4

    token_ids = np.full((len(rows), length), tokenizer.pad_token_id, "int32")
    masks = np.zeros((4, len(rows), slots), "int32")
    for i, (row, blanks) in enumerate(zip(rows, runs)):
        token_ids[i, : len(row)] = row
        columns = [
            (position, start - 1, stop, position - start)
            for start, stop in blanks
            for position in range(start, stop)
        ]
        masks[:, i, : len(columns)] = np.transpose(columns)
    names = mask_inputs(pretrainer.span_boundary)
    logits = pretrainer.predict_on_batch(
        {
            "token_ids": token_ids,
            "segment_ids": np.zeros_like(token_ids),
            "padding_mask": (token_ids != tokenizer.pad_token_id).astype("int32"),
            **dict(zip(names, masks)),  # Only as many as the model takes.
        }
    )
    heads = [None, None]
    for i, name in enumerate(_HEADS):
        if name in logits:
            found = ops.log_softmax(ops.cast(logits[name], "float32"), axis=-1)
            heads[i] = np.array(ops.convert_to_numpy(found))
    if heads[1] is not None:
        # The released model has no SBO target for these offsets.
        heads[1][masks[3] >= pretrainer.max_span_tokens] = 0.0

    predicted = []
    for i, blanks in enumerate(runs):
        predicted.append([])
        slot = 0
        for start, stop in blanks:
            places = i, slice(slot, slot + stop - start)
            predicted[-1].append([head if head is None else head[places] for head in heads])
            slot += stop - start
    return predicted


def _candidates(tokenizer, mlm, sbo, top_k, score):
    """Returns the best fillings of one blank, from log-probabilities `[tokens, V]`."""
    heads = {"mlm": [mlm], "sbo": [sbo]}.get(score, [mlm, sbo])
    total = np.sum([head for head in heads if head is not None], axis=0)
    total[:, tokenizer.special_token_ids] = -np.inf
    total[:, tokenizer.vocabulary_size() :] = -np.inf  # Padding of the embedding.
    # Tokens are scored independently, so the best k prefixes are enough.
    best = [(0.0, ())]
    for row in total:
        tokens = np.argpartition(-row, min(top_k, len(row) - 1))[:top_k]
        tokens = tokens[np.isfinite(row[tokens])]
        best = [(s + row[t], (*ids, int(t))) for s, ids in best for t in tokens]
        best = sorted(best, key=lambda item: (-item[0], item[1]))[:top_k]
    return [_candidate(tokenizer, mlm, sbo, list(ids), float(value)) for value, ids in best]


def _candidate(tokenizer, mlm, sbo, token_ids, score=None):
    """Returns a filling and its log-probabilities. The score defaults to their sum."""
    positions = np.arange(len(token_ids))
    mlm, sbo = (h if h is None else float(h[positions, token_ids].sum()) for h in [mlm, sbo])
    return {
        "text": tokenizer.detokenize(token_ids),
        "token_ids": token_ids,
        "score": mlm + (sbo or 0.0) if score is None else score,
        "mlm": mlm,
        "sbo": sbo,
    }


def _runs(flags):
    """Returns runs of true flags as (start, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags, [0]]).astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))

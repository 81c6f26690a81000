"""Filling blanks with what both pretraining heads expect there."""

import numpy as np
from keras import ops

_SCORES = ("both", "mlm", "sbo")
# Texts are padded to multiples of this, so that few shapes are compiled.
_BUCKET = 32


def fill(pretrainer, texts, top_k, score, batch_size):
    """See `SpanBertPretrainer.fill`."""
    if pretrainer.preprocessor is None:
        raise ValueError("`fill` needs a preprocessor. Received: preprocessor=None")
    if score not in _SCORES:
        raise ValueError(f"`score` must be one of {_SCORES}. Received: score={score!r}")
    if top_k < 1:
        raise ValueError(f"`top_k` must be at least 1. Received: top_k={top_k}")
    if isinstance(texts, str):
        return fill(pretrainer, [texts], top_k, score, batch_size)[0]
    rows = [_tokenize_blanks(pretrainer, text) for text in texts]
    filled = []
    for start in range(0, len(rows), batch_size):
        filled += _fill_batch(pretrainer, rows[start : start + batch_size], top_k, score)
    return filled


def _tokenize_blanks(pretrainer, text):
    tokenizer = pretrainer.preprocessor.tokenizer
    pieces = text.split(tokenizer.mask_token)
    ids = [tokenizer.cls_token_id, *tokenizer(pieces[0])]
    for piece in pieces[1:]:
        ids += [tokenizer.mask_token_id, *tokenizer(piece)]
    ids.append(tokenizer.sep_token_id)
    if len(pieces) == 1 or len(ids) > pretrainer.backbone.max_sequence_length:
        raise ValueError(
            f"A text to fill must hold {tokenizer.mask_token} and at most "
            f"{pretrainer.backbone.max_sequence_length - 2} tokens. Received: "
            f"{len(pieces) - 1} masks and {len(ids) - 2} tokens in {text[:80]!r}"
        )
    return np.array(ids, "int32")


def _fill_batch(pretrainer, rows, top_k, score):
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
    names = ["mask_positions", "span_left", "span_right", "span_offsets"]
    logits = pretrainer.predict_on_batch(
        {
            "token_ids": token_ids,
            "segment_ids": np.zeros_like(token_ids),
            "padding_mask": (token_ids != tokenizer.pad_token_id).astype("int32"),
            **dict(zip(names, masks)),
        },
    )
    mlm, sbo = (_log_probabilities(logits[name]) for name in ("mlm", "sbo"))
    # The released model has no SBO target there.
    sbo[masks[3] >= pretrainer.max_span_tokens] = 0.0

    filled = []
    for i, blanks in enumerate(runs):
        filled.append([])
        slot = 0
        for start, stop in blanks:
            heads = [h[i, slot : slot + stop - start] for h in (mlm, sbo)]
            filled[-1].append(_candidates(tokenizer, *heads, top_k, score))
            slot += stop - start
    return filled


def _log_probabilities(logits):
    log_probabilities = ops.log_softmax(ops.cast(logits, "float32"), axis=-1)
    return np.array(ops.convert_to_numpy(log_probabilities))


def _candidates(tokenizer, mlm, sbo, top_k, score):
    """The best fillings of one blank, from log-probabilities `[tokens, V]`."""
    total = {"both": mlm + sbo, "mlm": mlm.copy(), "sbo": sbo.copy()}[score]
    total[:, tokenizer.special_token_ids] = -np.inf
    total[:, tokenizer.vocabulary_size() :] = -np.inf  # Padding of the embedding.
    # Tokens are scored on their own, so the best k prefixes suffice.
    best = [(0.0, ())]
    for row in total:
        tokens = np.argpartition(-row, min(top_k, len(row) - 1))[:top_k]
        tokens = tokens[np.isfinite(row[tokens])]
        best = [(s + row[t], (*ids, int(t))) for s, ids in best for t in tokens]
        best = sorted(best, key=lambda item: (-item[0], item[1]))[:top_k]
    positions = np.arange(len(total))
    return [
        {
            "text": tokenizer.detokenize(list(ids)),
            "token_ids": list(ids),
            "score": float(value),
            "mlm": float(mlm[positions, list(ids)].sum()),
            "sbo": float(sbo[positions, list(ids)].sum()),
        }
        for value, ids in best
    ]


def _runs(flags):
    """Runs of true flags as (start, stop)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags, [0]]).astype(int)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))

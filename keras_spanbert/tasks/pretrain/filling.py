"""Fills blanks with the predictions of the pretraining heads."""

import numpy as np
from keras import ops

from keras_spanbert.checks import check_counts, check_in
from keras_spanbert.tasks.pretrain.objectives import MASK_INPUTS
from keras_spanbert.text.strings import as_strings

_SCORES = ("both", "mlm", "sbo")
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
    rows = _tokenize(pretrainer, as_strings("texts", texts))
    tokenizer = pretrainer.preprocessor.tokenizer
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
    ids = []
    for row, of_text, text in zip(rows, fillings, texts):
        lengths = [stop - start for start, stop in _runs(row == tokenizer.mask_token_id)]
        given = as_strings("fillings", of_text)
        ids.append([np.asarray(tokenizer(filling)).tolist() for filling in given])
        found = list(map(len, ids[-1]))
        if found != lengths:
            raise ValueError(
                f"`fillings` must have as many tokens as the blanks have masks, {lengths} in "
                f"{text[:80]!r}. Received: {of_text!r}, of {found} tokens"
            )
    return [
        [_candidate(tokenizer, *heads, of_blank) for heads, of_blank in zip(blanks, of_text)]
        for blanks, of_text in zip(_predict_blanks(pretrainer, rows, batch_size), ids)
    ]


def _tokenize(pretrainer, texts):
    """Returns the token ids of texts with blanks, int32 `[tokens]` each."""
    if pretrainer.preprocessor is None:
        raise ValueError("`fill` and `score` need a preprocessor. Received: preprocessor=None")
    tokenizer, longest = pretrainer.preprocessor.tokenizer, pretrainer.backbone.max_sequence_length
    rows = []
    for text in texts:
        first, *others = text.split(tokenizer.mask_token)
        ids = [tokenizer.cls_token_id, *tokenizer(first)]
        for piece in others:
            ids += [tokenizer.mask_token_id, *tokenizer(piece)]
        ids.append(tokenizer.sep_token_id)
        if not others or len(ids) > longest:
            raise ValueError(
                f"A text to fill must have a {tokenizer.mask_token} and at most {longest - 2} "
                f"tokens. Received: {len(others)} masks and {len(ids) - 2} tokens in {text[:80]!r}"
            )
        rows.append(np.array(ids, "int32"))
    return rows


def _predict_blanks(pretrainer, rows, batch_size):
    """Yields log-probabilities `(mlm, sbo or None)`, `[tokens, V]`, of each row's blanks."""
    tokenizer = pretrainer.preprocessor.tokenizer
    for first in range(0, len(rows), batch_size):
        batch = rows[first : first + batch_size]
        runs = [_runs(row == tokenizer.mask_token_id) for row in batch]
        length = -(-max(map(len, batch)) // _BUCKET) * _BUCKET
        length = min(length, pretrainer.backbone.max_sequence_length)
        slots = max(sum(stop - start for start, stop in blanks) for blanks in runs)
        slots = -(-slots // 4) * 4

        token_ids = np.full((len(batch), length), tokenizer.pad_token_id, "int32")
        masks = np.zeros((4, len(batch), slots), "int32")
        for i, (row, blanks) in enumerate(zip(batch, runs)):
            token_ids[i, : len(row)] = row
            columns = [
                (position, start - 1, stop, position - start)
                for start, stop in blanks
                for position in range(start, stop)
            ]
            masks[:, i, : len(columns)] = np.transpose(columns)
        logits = pretrainer.predict_on_batch(
            {
                "token_ids": token_ids,
                "segment_ids": np.zeros_like(token_ids),
                "padding_mask": (token_ids != tokenizer.pad_token_id).astype("int32"),
                **dict(zip(MASK_INPUTS, masks)),  # The model ignores those of a missing SBO head.
            }
        )
        heads = {}
        for name in {"mlm", "sbo"} & set(logits):
            found = ops.log_softmax(ops.cast(logits[name], "float32"), axis=-1)
            heads[name] = np.array(ops.convert_to_numpy(found))
        if "sbo" in heads:
            # The released model has no SBO target for these offsets.
            heads["sbo"][masks[3] >= pretrainer.max_span_tokens] = 0.0
        for i, blanks in enumerate(runs):
            ends = np.cumsum([stop - start for start, stop in blanks])
            parts = {name: np.split(head[i], ends)[:-1] for name, head in heads.items()}
            yield list(zip(parts["mlm"], parts.get("sbo", [None] * len(blanks))))


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

"""Cloze report: chooses, fills and shows blanks in held-out sentences, to show what was learned."""

import re

import numpy as np

from keras_spanbert.tasks.pretrain.filling import score
from keras_spanbert.wording import format_count

# A corpus may be very large, so sentences are sampled only from its beginning.
_MAX_CHARACTERS = 4_000_000
_MIN_WORDS, _MAX_SENTENCE_CHARACTERS = 6, 300
_MAX_SPAN_WORDS = 4
_NUM_GUESSES = 3
_NUM_SHOWN = 4  # Examples of words, and of spans.
_NUM_RIGHT = 3  # Examples of words that the MLM head guesses right.
_MAX_SHOWN_CHARACTERS = 36  # On each side of a blank.

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")
# Words of letters only, not parts of words with hyphens or apostrophes.
_WORD = re.compile(r"(?<![\w'’-])[^\W\d_]+(?![\w'’-])")
_WORDS = re.compile(r"[^\W\d_]+(\s[^\W\d_]+)*")


def choose_blanks(preprocessor, texts, count: int = 600, seed: int = 0) -> list[dict]:
    """Chooses at most `count` words and short spans to blank, one per sentence, in random order.

    Returns dicts: `before`, `truth` and `after` (strings, parts of the sentence), `is_span`,
    `token_ids` (of the truth), `text` (the sentence with one `[MASK]` per token) and `has_sbo`,
    whether there is a token on each side, which SBO needs.
    """
    generator = np.random.default_rng(seed)
    sentences = _sentences(texts)
    blanks = []
    for i in generator.permutation(len(sentences)):
        if len(blanks) == count:
            break
        is_span = len(blanks) % 3 == 2
        num_words = int(generator.integers(2, _MAX_SPAN_WORDS + 1)) if is_span else 1
        blank = _blank(sentences[i], num_words, preprocessor, generator)
        if blank is not None:
            blanks.append(blank)
    return blanks


def _sentences(texts):
    sentences, num_characters = set(), 0
    for text in texts:
        for sentence in map(str.strip, _SENTENCE_END.split(text)):
            is_short = len(sentence) <= _MAX_SENTENCE_CHARACTERS
            if is_short and len(_WORD.findall(sentence)) >= _MIN_WORDS:
                sentences.add(sentence)
        num_characters += len(text)
        if num_characters >= _MAX_CHARACTERS:
            break
    return sorted(sentences)


def _blank(sentence, num_words, preprocessor, generator):
    """Returns a blank at a random place, or `None` if that place or sentence is unsuitable."""
    tokenizer = preprocessor.tokenizer
    words = list(_WORD.finditer(sentence))
    first = int(generator.integers(len(words) - num_words + 1))
    start, stop = words[first].start(), words[first + num_words - 1].end()
    before, truth, after = sentence[:start], sentence[start:stop], sentence[stop:]
    ids = np.asarray(tokenizer(truth)).tolist()
    num_before, num_after = (len(tokenizer(part)) for part in [before, after])
    if (
        not _WORDS.fullmatch(truth)
        or tokenizer.mask_token in before + after
        or tokenizer.token_to_id(tokenizer.oov_token) in ids
        or num_before + len(ids) + num_after > preprocessor.sequence_length - 2
    ):
        return None
    return {
        "before": before,
        "truth": truth,
        "after": after,
        "is_span": num_words > 1,
        "token_ids": ids,
        "text": before + " ".join([tokenizer.mask_token] * len(ids)) + after,
        "has_sbo": bool(num_before and num_after),
    }


def score_truths(pretrainer, blanks: list[dict]) -> list[float]:
    """Returns the MLM head's log-probability (nats) of each truth, summed over its tokens."""
    texts, truths = [blank["text"] for blank in blanks], [[blank["truth"]] for blank in blanks]
    # `pretrainer.score` would warn that the model is not trained yet.
    return [truth["mlm"] for (truth,) in score(pretrainer, texts, truths, batch_size=32)]


def fill_blanks(pretrainer, blanks: list[dict]) -> list[dict]:
    """Returns a dict per blank: `mlm`, the best fillings of the MLM head, and `sbo`, the best one.

    `sbo` is `None` if the blank begins or ends the sentence, where SBO is not trained, or if the
    model has no SBO head.
    """
    texts = [blank["text"] for blank in blanks]
    by_mlm = pretrainer.fill(texts, top_k=_NUM_GUESSES, score="mlm")
    by_sbo = [[[None]]] * len(blanks)
    if pretrainer.span_boundary:
        by_sbo = pretrainer.fill(texts, top_k=1, score="sbo")
    return [
        {"mlm": mlm, "sbo": sbo if blank["has_sbo"] else None}
        for blank, (mlm,), ((sbo,),) in zip(blanks, by_mlm, by_sbo)
    ]


def render(blanks, before, after, guesses, counts: np.ndarray, vocabulary) -> list[str]:
    """Returns lines of text that show statistics and example sentences.

    `before` and `after` come from `score_truths`, before and after training, and `guesses` from
    `fill_blanks`. `counts` `[V]` is how often each token occurs in the training text.
    """
    if not blanks:
        return ["No examples: no held-out sentence has at least 6 words and fits a block"]
    counts = np.asarray(counts)[: len(vocabulary)]
    is_word = [bool(_WORD.fullmatch(token)) for token in vocabulary]
    constant = int(np.argmax(np.where(is_word, counts, -1)))
    rows = list(zip(blanks, before, after, guesses))
    words = [row for row in rows if not row[0]["is_span"]]
    spans = [row for row in rows if row[0]["is_span"]]
    seen = [row for row in words if len(ids := row[0]["token_ids"]) == 1 and counts[ids[0]] > 0]
    headings = [
        f"{format_count(len(seen), 'held-out word')} seen in training, each blanked alone (of "
        f"{len(words):,}; the others are unseen or take several tokens)",
        f"{format_count(len(spans), 'held-out span')} of 2 to {_MAX_SPAN_WORDS} words, each "
        "blanked alone",
    ]
    lines = []
    for heading, section in zip(headings, [seen, spans]):
        if section:
            lines += [heading, *_statistics_lines(section, constant, vocabulary)]
    # Rare words first: "the" is right by its frequency alone.
    right = [row for row in seen if row[3]["mlm"][0]["token_ids"] == row[0]["token_ids"]]
    right.sort(key=lambda row: counts[row[0]["token_ids"][0]])
    if len(right) >= _NUM_RIGHT:
        lines.append(f"The {_NUM_RIGHT} rarest of the {len(right)} words that MLM guesses right:")
        for row in right[:_NUM_RIGHT]:
            lines += _example_lines(*row)
    lines.append("Drawn at random: [truth], and its probability per token before -> after training")
    for row in words[:_NUM_SHOWN] + spans[:_NUM_SHOWN]:
        lines += _example_lines(*row)
    return lines


def _statistics_lines(rows, constant, vocabulary):
    truths = [blank["token_ids"] for blank, *_ in rows]
    tokens = sum(map(len, truths))
    by_mlm = [found["mlm"][0]["token_ids"] for *_, found in rows]
    by_sbo = [found["sbo"] and found["sbo"]["token_ids"] for *_, found in rows]
    mlm = list(zip(truths, by_mlm))
    always = [(truth, [constant] * len(truth)) for truth in truths]
    sbo = [(truth, guess) for truth, guess in zip(truths, by_sbo) if guess]
    agreed = [(truth, a) for truth, a, b in zip(truths, by_sbo, by_mlm) if a == b]
    # SBO guesses no blank at the start or end of a sentence.
    of_sbo = f", SBO {_accuracy(sbo)} of {sum(len(truth) for truth, _ in sbo):,}" if sbo else ""
    yield (
        f"  right: MLM {_accuracy(mlm)} of {tokens:,} tokens{of_sbo}; "
        f'always "{vocabulary[constant]}": {_accuracy(always)}'
    )
    if agreed:
        yield (
            f"  MLM and SBO guess the same in {_format_percent(len(agreed) / len(sbo))} of blanks: "
            f"{_accuracy(agreed)} right"
        )
    was, now = (_format_percent(np.exp(sum(row[i] for row in rows) / tokens)) for i in [1, 2])
    yield (f"  probability per token (geometric mean, MLM): {was} before training, {now} after")


def _accuracy(pairs):
    """Returns the percentage of tokens right, from pairs of token ids of truths and guesses."""
    is_right = [a == b for truth, guess in pairs for a, b in zip(truth, guess)]
    return _format_percent(sum(is_right) / len(is_right))


def _example_lines(blank, before, after, guesses):
    left, right = blank["before"], blank["after"]
    if len(left) > _MAX_SHOWN_CHARACTERS:
        left = "..." + left[-_MAX_SHOWN_CHARACTERS:]
    if len(right) > _MAX_SHOWN_CHARACTERS:
        right = right[:_MAX_SHOWN_CHARACTERS] + "..."
    yield f"  {left}[{blank['truth']}]{right}"

    def per_token(log_probability):
        return _format_percent(np.exp(log_probability / len(blank["token_ids"])))

    shown = "  ".join(f"{g['text']} ({per_token(g['mlm'])})" for g in guesses["mlm"])
    if sbo := guesses["sbo"]:
        shown += f"   SBO: {sbo['text']} ({per_token(sbo['sbo'])})"
    yield f"    {per_token(before)} -> {per_token(after)}   MLM: {shown}"


def _format_percent(share):
    return f"{100 * share:.2g}%" if share < 0.0995 else f"{100 * share:.0f}%"

"""What a model learnt, on blanks in held-out sentences: choosing, measuring, showing.

```python
blanks = choose_blanks(pretrainer.preprocessor, texts)
before = score_truths(pretrainer, blanks)
...  # Training.
after = measure(pretrainer, blanks)
print("\\n".join(render(blanks, before, after, counts, tokenizer.get_vocabulary())))
```
"""

import re

import numpy as np

from keras_spanbert.tasks.pretrain.filling import score

# A corpus may be huge: sentences are sampled from its beginning.
_MOST_CHARACTERS = 4_000_000
_FEWEST_WORDS, _MOST_SENTENCE_CHARACTERS = 6, 300
_MOST_SPAN_WORDS = 4
_NUM_GUESSES = 3
_BATCH_SIZE = 32

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\s*\n\s*")
# Letters alone, and no part of a word with a hyphen or an apostrophe.
_WORD = re.compile(r"(?<![\w'’-])[^\W\d_]+(?![\w'’-])")
_WORDS = re.compile(r"[^\W\d_]+(\s[^\W\d_]+)*")


def choose_blanks(preprocessor, texts, num_words: int = 400, num_spans: int = 200, seed=0):
    """Chooses words and short spans to blank, each alone in a sentence of its own.

    The sentences are a random sample of those that have 6 words or more and
    fit a block; where there are too few, there are fewer blanks. Spans have 2
    to 4 words without punctuation between them.

    Args:
        preprocessor: `SpanBertPretrainerPreprocessor`.
        texts: iterable of strings, whose first 4 million characters are read.
        num_words: int. Blanks of one word. Defaults to `400`.
        num_spans: int. Blanks of several words. Defaults to `200`.
        seed: int. Fixes the choice. Defaults to `0`.

    Returns:
        List of dicts, in random order: `before`, `truth` and `after` (strings,
        parts of the sentence), `num_words`, `token_ids` (of the truth), `text`
        (the sentence with one `[MASK]` a token) and `has_sbo`, whether a token
        stands on either side, as SBO's targets have it.

    Example:
    ```python
    blanks = choose_blanks(pretrainer.preprocessor, ["The Congress of the United States met."])
    ```
    """
    generator = np.random.default_rng(seed)
    sentences = _sentences(texts)
    blanks = []
    wanted = {True: num_words, False: num_spans}
    for i in generator.permutation(len(sentences)):
        if not any(wanted.values()):
            break
        # In proportion to what is still wanted, so that few sentences serve both kinds.
        is_word = bool(generator.random() * sum(wanted.values()) < wanted[True])
        blank = _blank(sentences[i], is_word, preprocessor, generator)
        if blank is not None:
            blanks.append(blank)
            wanted[is_word] -= 1
    return blanks


def _sentences(texts):
    sentences, num_characters = set(), 0
    for text in texts:
        for sentence in _SENTENCE_END.split(text):
            sentence = sentence.strip()
            if len(sentence) <= _MOST_SENTENCE_CHARACTERS:
                if len(_WORD.findall(sentence)) >= _FEWEST_WORDS:
                    sentences.add(sentence)
        num_characters += len(text)
        if num_characters >= _MOST_CHARACTERS:
            break
    return sorted(sentences)


def _blank(sentence, is_word, preprocessor, generator):
    """One blank in a sentence, `None` where there is no place for it."""
    tokenizer = preprocessor.tokenizer
    words = list(_WORD.finditer(sentence))
    num_words = 1 if is_word else int(generator.integers(2, _MOST_SPAN_WORDS + 1))
    first = int(generator.integers(len(words) - num_words + 1))
    start, stop = words[first].start(), words[first + num_words - 1].end()
    before, truth, after = sentence[:start], sentence[start:stop], sentence[stop:]
    ids = np.asarray(tokenizer(truth)).tolist()
    text = before + " ".join([tokenizer.mask_token] * len(ids)) + after
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
        "num_words": num_words,
        "token_ids": ids,
        "text": text,
        "has_sbo": bool(num_before and num_after),
    }


def score_truths(pretrainer, blanks):
    """The MLM head's log-probability (nats) of each blank's truth, all its tokens together.

    Args:
        pretrainer: `SpanBertPretrainer` with a preprocessor.
        blanks: list, as `choose_blanks` gives.

    Returns:
        List of floats.
    """
    scored = [0.0] * len(blanks)
    order = _by_length(blanks)
    texts = [blanks[i]["text"] for i in order]
    truths = [[blanks[i]["truth"]] for i in order]
    # Not its method, which would warn of a model that is about to be trained.
    for i, (truth,) in zip(order, score(pretrainer, texts, truths, _BATCH_SIZE)):
        scored[i] = truth["mlm"]
    return scored


def _by_length(blanks):
    # Texts of like length share a batch, so that there is little padding.
    return np.argsort([len(blank["text"]) for blank in blanks], kind="stable").tolist()


def measure(pretrainer, blanks):
    """Has a model fill blanks.

    Args:
        pretrainer: `SpanBertPretrainer` with a preprocessor.
        blanks: list, as `choose_blanks` gives.

    Returns:
        List with a dict a blank: `log_probability` (of the truth, see
        `score_truths`), `guesses` (the MLM head's best, a list of
        `{"text", "token_ids", "probability"}`) and `sbo` (the SBO head's best,
        such a dict; `None` where the blank begins or ends the sentence, for
        there SBO is not trained; not there without SBO head).
    """
    scored = score_truths(pretrainer, blanks)
    order = _by_length(blanks)
    texts = [blanks[i]["text"] for i in order]
    by_mlm = pretrainer.fill(texts, top_k=_NUM_GUESSES, score="mlm")
    measured = [None] * len(blanks)
    for i, mlm in zip(order, by_mlm):
        measured[i] = {
            "log_probability": scored[i],
            "guesses": [_guess(candidate, "mlm") for candidate in mlm[0]],
        }
    by_sbo = pretrainer.fill(texts, top_k=1, score="sbo") if pretrainer.span_boundary else []
    for i, sbo in zip(order, by_sbo):
        measured[i]["sbo"] = _guess(sbo[0][0], "sbo") if blanks[i]["has_sbo"] else None
    return measured


def _guess(candidate, head):
    return {
        "text": candidate["text"],
        "token_ids": candidate["token_ids"],
        "probability": float(np.exp(candidate[head])),
    }


def summarize(blanks, before, after, counts: np.ndarray, vocabulary) -> dict:
    """Figures over all blanks.

    Args:
        blanks: list, as `choose_blanks` gives.
        before: list, as `score_truths` gives, of the model before training.
        after: list, as `measure` gives, of the model after it.
        counts: int `[V]`. Counts of the tokens in the training text.
        vocabulary: list of strings, the tokens.

    Returns:
        Dict with `words` and `spans`, each with figures of its blanks' tokens
        (see below), `words` of those words alone that are one token and were
        seen in training; `num_words`, of all blanked words; `constant`, the
        word most frequent in training, as text. The figures: `blanks`,
        `tokens`, `mlm` and `constant` (shares of tokens that the MLM head's
        best guess, and `constant`, have right), `probability_before` and
        `probability` (of the truth, geometric means a token), and over the
        blanks with an SBO target `sbo_blanks`, `sbo` (share of tokens right),
        `agreement` (share of blanks in which both heads have the same best
        guess), `agreed` (share of tokens right in these), and `mlm_differing`
        and `sbo_differing` (in the others). A figure of nothing is `None`.
    """
    counts = np.asarray(counts)
    seen = [
        blank["num_words"] == 1
        and len(blank["token_ids"]) == 1
        and counts[blank["token_ids"][0]] > 0
        for blank in blanks
    ]
    is_span = [blank["num_words"] > 1 for blank in blanks]
    constant = _most_frequent_word(counts, vocabulary)
    rows = list(zip(blanks, before, after))
    return {
        "words": _figures([row for row, flag in zip(rows, seen) if flag], constant),
        "spans": _figures([row for row, flag in zip(rows, is_span) if flag], constant),
        "num_words": sum(not flag for flag in is_span),
        "constant": vocabulary[constant],
    }


def _most_frequent_word(counts, vocabulary):
    """The id of the token that is most frequent of those that are words."""
    is_word = [bool(_WORD.fullmatch(token)) for token in vocabulary]
    return int(np.argmax(np.where(is_word, counts[: len(vocabulary)], -1)))


def _figures(rows, constant):
    tokens = sum(len(blank["token_ids"]) for blank, _, _ in rows)
    with_sbo = [(blank, after) for blank, _, after in rows if after.get("sbo")]
    agreed, differing = [], []
    for blank, after in with_sbo:
        same = after["sbo"]["token_ids"] == after["guesses"][0]["token_ids"]
        (agreed if same else differing).append((blank, after))
    return {
        "blanks": len(rows),
        "tokens": tokens,
        "mlm": _accuracy([(blank, after) for blank, _, after in rows], "mlm"),
        "constant": _share(sum(blank["token_ids"].count(constant) for blank, _, _ in rows), tokens),
        "probability_before": _mean_probability([b for _, b, _ in rows], tokens),
        "probability": _mean_probability([a["log_probability"] for _, _, a in rows], tokens),
        "sbo_blanks": len(with_sbo),
        "sbo": _accuracy(with_sbo, "sbo"),
        "agreement": _share(len(agreed), len(with_sbo)),
        "agreed": _accuracy(agreed, "mlm"),
        "mlm_differing": _accuracy(differing, "mlm"),
        "sbo_differing": _accuracy(differing, "sbo"),
    }


def _share(part, whole):
    return part / whole if whole else None


def _accuracy(pairs, head):
    """The share of the blanks' tokens that a head's best guess has right."""
    right = tokens = 0
    for blank, measured in pairs:
        guess = measured["guesses"][0] if head == "mlm" else measured["sbo"]
        tokens += len(blank["token_ids"])
        right += sum(a == b for a, b in zip(blank["token_ids"], guess["token_ids"]))
    return _share(right, tokens)


def _mean_probability(log_probabilities, tokens):
    return float(np.exp(sum(log_probabilities) / tokens)) if tokens else None


def choose_shown(blanks, before, after, count: int = 2):
    """Which blanks to show: some at random, and those whose truth gained most.

    Args:
        blanks, before, after: see `summarize`.
        count: int. How many words, and how many spans, of each kind. Defaults
            to `2`.

    Returns:
        Two lists of indices: at random, which are the first ones, as blanks
        stand in random order; and by the gain in log-probability a token, of
        the others.
    """
    gains = [
        (a["log_probability"] - b) / len(blank["token_ids"])
        for blank, b, a in zip(blanks, before, after)
    ]
    at_random, by_gain = [], []
    for is_word in [True, False]:
        group = [i for i, blank in enumerate(blanks) if (blank["num_words"] == 1) == is_word]
        at_random += group[:count]
        by_gain += sorted(group[count:], key=lambda i: (-gains[i], i))[:count]
    return at_random, by_gain


def render(blanks, before, after, counts: np.ndarray, vocabulary, width: int = 96) -> list[str]:
    """Lines of text that show figures and sentences.

    Args:
        blanks, before, after, counts, vocabulary: see `summarize`.
        width: int. Most characters of a line that shows a sentence. Defaults
            to `96`.

    Returns:
        List of strings, at most 30; one where there is nothing to show.
    """
    if not blanks:
        return ["No examples: no held-out sentence has 6 words or more and fits a block"]
    figures = summarize(blanks, before, after, counts, vocabulary)
    words, spans, constant = (figures[name] for name in ["words", "spans", "constant"])
    has_sbo = any("sbo" in found for found in after)
    lines = []
    if words["blanks"]:
        lines += [
            f"{words['blanks']:,} held-out words seen in training, each blanked alone (of "
            f"{figures['num_words']:,}; the others take several tokens)",
            *_figure_lines(words, constant, "words", has_sbo),
        ]
    if spans["blanks"]:
        lines += [
            f"{spans['blanks']:,} held-out spans of 2 to {_MOST_SPAN_WORDS} words "
            f"({spans['tokens']:,} tokens), each blanked alone",
            *_figure_lines(spans, constant, "tokens", has_sbo),
        ]
    at_random, by_gain = choose_shown(blanks, before, after)
    for title, indices in [
        (
            "Drawn at random: [truth], and its probability a token before and after training",
            at_random,
        ),
        (f"The largest gains (after over before) of all {len(blanks):,}", by_gain),
    ]:
        if indices:
            lines.append(title)
        for i in indices:
            lines += _example_lines(blanks[i], before[i], after[i], width)
    return lines


def _figure_lines(figures, constant, unit, has_sbo):
    sbo = f", SBO {_percent(figures['sbo'])}" if has_sbo else ""
    yield (
        f"  right: MLM {_percent(figures['mlm'])}{sbo} of {unit}; "
        f'always "{constant}": {_percent(figures["constant"])}'
    )
    if figures["sbo_blanks"]:
        line = f"  MLM and SBO guess the same in {_percent(figures['agreement'])} of blanks"
        if figures["agreed"] is not None:
            line += f": {_percent(figures['agreed'])} right"
        if figures["mlm_differing"] is not None:
            line += (
                f"; where they differ MLM {_percent(figures['mlm_differing'])}, "
                f"SBO {_percent(figures['sbo_differing'])}"
            )
        yield line
    yield (
        f"  probability of the truth a token (geometric mean, MLM): "
        f"{_percent(figures['probability_before'])} before training, "
        f"{_percent(figures['probability'])} after"
    )


def _example_lines(blank, before, after, width):
    truth = f"[{blank['truth']}]"
    room = max(0, width - 2 - len(truth))
    left, right = blank["before"], blank["after"]
    # Each side has half of the room, and what the other one leaves.
    right_room = max(room // 2, room - len(left))
    right = right if len(right) <= right_room else right[: max(0, right_room - 3)] + "..."
    left_room = room - len(right)
    left = left if len(left) <= left_room else "..." + left[len(left) - max(0, left_room - 3) :]
    yield f"  {left}{truth}{right}"

    def a_token(probability):
        return _percent(probability ** (1 / len(blank["token_ids"])))

    was, now = (a_token(float(np.exp(p))) for p in [before, after["log_probability"]])
    guesses = "  ".join(f"{g['text']} ({a_token(g['probability'])})" for g in after["guesses"])
    line = f"    {was} -> {now}   MLM: {guesses}"
    if after.get("sbo"):
        line += f"   SBO: {after['sbo']['text']} ({a_token(after['sbo']['probability'])})"
    yield line if len(line) <= width else line[: width - 3] + "..."


def _percent(share):
    if share is None:
        return "-"
    return f"{100 * share:.2g}%" if share < 0.0995 else f"{100 * share:.0f}%"

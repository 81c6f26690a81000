"""Examples of predictions before and after training."""

import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.runs import cloze_report

WORDS = (
    "the people of our country have made great progress in this year and their members met for "
    "peace with other nations"
).split()
VOCABULARY = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS), "Un", "##ited", ".", ",",
    "'", "s", "-",
]  # fmt: skip
ID = {token: i for i, token in enumerate(VOCABULARY)}
V, L = len(VOCABULARY), 23


@pytest.fixture(scope="module")
def pretrainer():
    preprocessor = ks.SpanBertPretrainerPreprocessor(
        ks.SpanBertTokenizer(VOCABULARY), sequence_length=L, seed=1
    )
    backbone = ks.SpanBertBackbone(V, 1, 2, 6, 10, dropout=0.0, max_sequence_length=L)
    return ks.SpanBertPretrainer(backbone, preprocessor, position_dim=3)


def texts(count=120, seed=0):
    generator = np.random.default_rng(seed)
    return [
        " ".join(generator.choice(WORDS, 9)) + ", " + " ".join(generator.choice(WORDS, 3)) + "."
        for _ in range(count)
    ]


def blank(truth, before="of ", after=" the people."):
    return {
        "before": before,
        "truth": truth,
        "after": after,
        "is_span": " " in truth,
        "token_ids": [ID[token] for token in truth.replace("United", "Un ##ited").split()],
    }


def guessed(mlm, sbo):
    def candidate(text, head):
        ids = [ID[token] for token in text.split()]
        return {"text": text, "token_ids": ids, head: len(ids) * np.log(0.5)}

    return {"mlm": [candidate(mlm, "mlm")], "sbo": sbo and candidate(sbo, "sbo")}


@pytest.mark.once
def test_blanks_are_words_and_spans_in_sentences(pretrainer):
    sentences = texts()
    blanks = cloze_report.choose_blanks(pretrainer.preprocessor, sentences, 60)
    lengths = [len(b["truth"].split()) for b in blanks]
    assert lengths.count(1) == 40 and {2, 3, 4} == set(lengths) - {1} and len(blanks) == 60
    whole = [b["before"] + b["truth"] + b["after"] for b in blanks]
    assert set(whole) <= set(sentences) and len(set(whole)) == 60
    for b, length in zip(blanks, lengths):
        assert b["is_span"] == (length > 1) and "," not in b["truth"]
        assert b["token_ids"] == list(pretrainer.preprocessor.tokenizer(b["truth"]))
        assert b["text"] == b["before"] + " ".join(["[MASK]"] * len(b["token_ids"])) + b["after"]
        assert b["has_sbo"] == (b["before"] != "")  # A full stop ends each sentence.
    assert not all(b["has_sbo"] for b in blanks)
    same, other = (
        cloze_report.choose_blanks(pretrainer.preprocessor, sentences, 60, seed) for seed in [0, 4]
    )
    assert blanks == same != other


@pytest.mark.once
@pytest.mark.parametrize(
    "text",
    [
        "our country met.",  # Fewer than 6 words.
        " ".join(["people"] * 30) + ".",  # More tokens than a block has.
        "country's nation's other's year-people peace-met members-in.",  # No whole words.
        "alpha beta gamma delta epsilon zeta eta.",  # Unknown words.
        "the people [MASK] our country have met in peace.",
    ],
)
def test_text_without_suitable_sentences_has_no_blanks(pretrainer, text):
    blanks = cloze_report.choose_blanks(pretrainer.preprocessor, [text])
    scores = cloze_report.score_truths(pretrainer, blanks)
    guesses = cloze_report.fill_blanks(pretrainer, blanks)
    assert blanks == scores == guesses == []
    (line,) = cloze_report.render(blanks, scores, scores, guesses, [1] * V, VOCABULARY)
    assert line.startswith("No examples") and len(line) <= 96


def test_fillings_equal_score_and_fill(pretrainer):
    blanks = cloze_report.choose_blanks(pretrainer.preprocessor, texts(), 20)
    scores = cloze_report.score_truths(pretrainer, blanks)
    assert len({len(b["text"]) for b in blanks}) > 5
    for b, scored, found in zip(blanks, scores, cloze_report.fill_blanks(pretrainer, blanks)):
        (truth,) = pretrainer.score(b["text"], [b["truth"]])
        assert scored == pytest.approx(truth["mlm"], abs=1e-4)
        (candidates,) = pretrainer.fill(b["text"], top_k=3, score="mlm")
        assert [g["token_ids"] for g in found["mlm"]] == [c["token_ids"] for c in candidates]
        if b["before"]:
            (best,) = pretrainer.fill(b["text"], top_k=1, score="sbo")[0]
            assert found["sbo"]["token_ids"] == best["token_ids"]
        else:
            assert found["sbo"] is None


COUNTS = np.ones(V, int)
COUNTS[[ID["people"], ID["peace"], ID[","]]] = [9, 0, 50]


@pytest.mark.once
def test_figures_computed_by_hand_and_examples():
    blanks = [
        blank("people"),
        blank("country"),
        blank("year", before=""),
        blank("peace"),  # Not seen in training.
        blank("United"),  # Two tokens.
        blank("great people"),
    ]
    before = np.log([0.04, 0.04, 0.04, 0.5, 0.5, 0.01])
    after = np.log([0.2, 0.4, 0.1, 0.5, 1, 0.25])
    guesses = [
        guessed("people", "people"), guessed("country", "the"), guessed("the", None),
        guessed("the", "the"), guessed("the the", "the the"), guessed("the people", "great people"),
    ]  # fmt: skip
    lines = cloze_report.render(blanks, before, after, guesses, COUNTS, VOCABULARY)
    assert lines[:7] == [
        "3 held-out words seen in training, each blanked alone (of 5; the others are unseen "
        "or take several tokens)",
        '  right: MLM 67% of 3 tokens, SBO 50% of 2; always "people": 33%',
        "  MLM and SBO guess the same in 50% of blanks: 100% right",
        "  probability per token (geometric mean, MLM): 4% before training, 20% after",
        "1 held-out span of 2 to 4 words, each blanked alone",
        '  right: MLM 50% of 2 tokens, SBO 100% of 2; always "people": 50%',
        "  probability per token (geometric mean, MLM): 10% before training, 50% after",
    ]
    blanks = [blank("great people", "a" * 60, "b" * 60)]
    guesses = [guessed("great people", "of peace")]
    before, after = [2 * np.log(0.0004)], [2 * np.log(0.3)]
    lines = cloze_report.render(blanks, before, after, guesses, COUNTS, VOCABULARY)
    assert lines[-2] == "  ..." + "a" * 36 + "[great people]" + "b" * 36 + "..."
    assert lines[-1] == "    0.04% -> 30%   MLM: great people (50%)   SBO: of peace (50%)"


@pytest.mark.once
def test_the_rarest_right_words_are_shown_if_there_are_enough():
    words = ["people", "country", "year", "great"]
    blanks = [blank(word, "of ") for word in words]
    scores = [-1.0] * 4
    guesses = [guessed(word, word) for word in words]
    lines = cloze_report.render(blanks, scores, scores, guesses, COUNTS, VOCABULARY)
    start = lines.index("The 3 rarest of the 4 words that MLM guesses right:")
    assert lines[start + 7].startswith("Drawn at random")
    # "people" is the most frequent of them.
    shown = [line.split("[")[1].split("]")[0] for line in lines[start + 1 : start + 7 : 2]]
    assert shown == ["country", "year", "great"]
    guesses[:2] = [guessed("the", "the")] * 2
    lines = cloze_report.render(blanks, scores, scores, guesses, COUNTS, VOCABULARY)
    assert not any("rarest" in line for line in lines)

"""Examples of what a model learnt."""

import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.runs import examples

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


def blank(truth, before="of ", after=" the people.", num_words=1):
    ids = [ID[token] for token in truth.replace("United", "Un ##ited").split()]
    return {
        "before": before,
        "truth": truth,
        "after": after,
        "num_words": num_words,
        "token_ids": ids,
        "text": before + " ".join(["[MASK]"] * len(ids)) + after,
        "has_sbo": bool(before and after),
    }


def measured(log_probability, mlm, sbo):
    def guess(text):
        ids = [ID[token] for token in text.split()]
        return {"text": text, "token_ids": ids, "probability": 0.5 ** len(ids)}

    return {
        "log_probability": log_probability,
        "guesses": [guess(mlm)],
        "sbo": sbo and guess(sbo),
    }


# === Blanks ===


@pytest.mark.once
def test_blanks_are_words_and_spans_of_their_sentences(pretrainer):
    sentences = texts()
    blanks = examples.choose_blanks(pretrainer.preprocessor, sentences, 40, 20)
    lengths = [b["num_words"] for b in blanks]
    assert lengths.count(1) == 40 and {2, 3, 4} == set(lengths) - {1} and len(blanks) == 60
    whole = [b["before"] + b["truth"] + b["after"] for b in blanks]
    assert set(whole) <= set(sentences) and len(set(whole)) == 60
    for b in blanks:
        assert len(b["truth"].split()) == b["num_words"] and "," not in b["truth"]
        assert b["token_ids"] == list(pretrainer.preprocessor.tokenizer(b["truth"]))
        assert b["text"] == b["before"] + " ".join(["[MASK]"] * len(b["token_ids"])) + b["after"]
        assert b["has_sbo"] == (b["before"] != "")  # A full stop ends each sentence.
    assert not all(b["has_sbo"] for b in blanks)


@pytest.mark.once
def test_blanks_are_fixed_by_the_seed(pretrainer):
    choose = lambda **kwargs: examples.choose_blanks(  # noqa: E731
        pretrainer.preprocessor, texts(), 10, 5, **kwargs
    )
    assert choose(seed=3) == choose(seed=3) != choose(seed=4)


@pytest.mark.once
@pytest.mark.parametrize(
    "text",
    [
        "",
        "our country met.",  # Fewer than 6 words.
        " ".join(["people"] * 30) + ".",  # More tokens than a block holds.
        "country's nation's other's year-people peace-met members-in.",  # No word by itself.
        "alpha beta gamma delta epsilon zeta eta.",  # Unknown words.
        "the people [MASK] our country have met in peace.",
    ],
)
def test_text_without_fitting_sentence_has_no_blanks_and_one_line_says_so(pretrainer, text):
    blanks = examples.choose_blanks(pretrainer.preprocessor, [text])
    assert blanks == examples.score_truths(pretrainer, blanks) == []
    (line,) = examples.render(blanks, [], examples.measure(pretrainer, blanks), [1] * V, VOCABULARY)
    assert line.startswith("No examples") and len(line) <= 96


@pytest.mark.once
def test_spans_do_not_cross_punctuation(pretrainer):
    text = "the people, our country, have made, great progress."
    for seed in range(20):
        for b in examples.choose_blanks(pretrainer.preprocessor, [text], 0, 1, seed):
            assert b["truth"] in text.replace(".", "").split(", ")


# === Measuring ===


def test_measures_are_those_of_score_and_fill_in_the_order_of_the_blanks(pretrainer):
    blanks = examples.choose_blanks(pretrainer.preprocessor, texts(), 12, 8)
    found = examples.measure(pretrainer, blanks)
    assert len({len(b["text"]) for b in blanks}) > 5
    for b, m in zip(blanks, found):
        (truth,) = pretrainer.score(b["text"], [b["truth"]])
        assert m["log_probability"] == pytest.approx(truth["mlm"], abs=1e-4)
        (candidates,) = pretrainer.fill(b["text"], top_k=3, score="mlm")
        assert [g["token_ids"] for g in m["guesses"]] == [c["token_ids"] for c in candidates]
        # In float32, of batches of other sizes.
        best = np.exp(candidates[0]["mlm"])
        assert m["guesses"][0]["probability"] == pytest.approx(best, rel=1e-4)
        if b["before"]:
            (best,) = pretrainer.fill(b["text"], top_k=1, score="sbo")[0]
            assert m["sbo"]["token_ids"] == best["token_ids"]
        else:
            assert m["sbo"] is None
    scored = examples.score_truths(pretrainer, blanks)
    np.testing.assert_allclose(scored, [m["log_probability"] for m in found], atol=1e-5)


# === Figures ===

COUNTS = np.ones(V, int)
COUNTS[[ID["people"], ID["peace"], ID[","]]] = [9, 0, 50]


@pytest.mark.once
def test_figures_are_those_worked_out_by_hand():
    blanks = [
        blank("people"),
        blank("country"),
        blank("year", before=""),
        blank("peace"),  # Not seen in training.
        blank("United"),  # Two tokens.
        blank("great people", num_words=2),
    ]
    before = [-4.0, -4.0, -4.0, -9.0, -9.0, -6.0]
    after = [
        measured(-1.0, "people", "people"),
        measured(-2.0, "country", "the"),
        measured(-3.0, "the", None),
        measured(-9.0, "the", "the"),
        measured(-9.0, "the the", "the the"),
        measured(-2.0, "the people", "great people"),
    ]
    figures = examples.summarize(blanks, before, after, COUNTS, VOCABULARY)
    assert figures["constant"] == "people" and figures["num_words"] == 5
    assert figures["words"] == {
        "blanks": 3,
        "tokens": 3,
        "mlm": 2 / 3,
        "constant": 1 / 3,
        "probability_before": pytest.approx(np.exp(-4)),
        "probability": pytest.approx(np.exp(-2)),
        "sbo_blanks": 2,
        "sbo": 1 / 2,
        "agreement": 1 / 2,
        "agreed": 1.0,
        "mlm_differing": 1.0,
        "sbo_differing": 0.0,
    }
    assert figures["spans"] == {
        "blanks": 1,
        "tokens": 2,
        "mlm": 1 / 2,
        "constant": 1 / 2,
        "probability_before": pytest.approx(np.exp(-3)),
        "probability": pytest.approx(np.exp(-1)),
        "sbo_blanks": 1,
        "sbo": 1.0,
        "agreement": 0.0,
        "agreed": None,
        "mlm_differing": 1 / 2,
        "sbo_differing": 1.0,
    }


@pytest.mark.once
def test_figures_without_any_sbo_target():
    blanks, after = [blank("people", before="")], [measured(-1.0, "people", None)]
    figures = examples.summarize(blanks, [-2.0], after, COUNTS, VOCABULARY)["words"]
    assert figures["mlm"] == 1.0 and figures["sbo_blanks"] == 0
    assert figures["sbo"] is figures["agreement"] is figures["agreed"] is None
    lines = examples.render(blanks, [-2.0], after, COUNTS, VOCABULARY)
    assert not any("guess the same" in line for line in lines)
    assert "SBO -" in lines[1] and "SBO" not in lines[-1]


@pytest.mark.once
def test_shown_are_the_first_and_those_that_gained_most_a_token():
    blanks = [blank("people")] * 6 + [blank("great people", num_words=2)] * 3
    before = [-5.0, -5.0, -5.0, -5.0, -5.0, -5.0, -8.0, -8.0, -8.0]
    gains = [4.0, 1.0, 0.5, 3.0, -1.0, 2.0, 6.0, 0.0, 1.0]
    after = [measured(b + g, "people", None) for b, g in zip(before, gains)]
    at_random, by_gain = examples.choose_shown(blanks, before, after, count=2)
    assert at_random == [0, 1, 6, 7] and by_gain == [3, 5, 8]
    assert examples.choose_shown(blanks[:1], before, after) == ([0], [])


# === Lines ===


@pytest.mark.once
def test_lines_fit_the_width_and_are_at_most_30(pretrainer):
    sentences = [text[:-1] + " " + "x" * 120 + "." for text in texts()] + texts(seed=1)
    blanks = examples.choose_blanks(pretrainer.preprocessor, sentences, 60, 40)
    before, after = examples.score_truths(pretrainer, blanks), examples.measure(pretrainer, blanks)
    lines = examples.render(blanks, before, after, COUNTS, VOCABULARY)
    assert 20 <= len(lines) <= 30 and max(map(len, lines)) <= 100
    for b in blanks[:1]:
        assert any(f"[{b['truth']}]" in line for line in lines)


@pytest.mark.once
@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("of ", " the people.", "  of [year] the people."),
        ("a" * 60, "b" * 10, "  ..." + "a" * 19 + "[year]" + "b" * 10),
        ("a" * 10, "b" * 60, "  " + "a" * 10 + "[year]" + "b" * 19 + "..."),
        ("a" * 60, "b" * 60, "  ..." + "a" * 13 + "[year]" + "b" * 13 + "..."),
    ],
)
def test_sentence_is_clipped_around_its_blank(before, after, shown):
    blanks = [blank("year", before, after)]
    lines = examples.render(
        blanks, [-5.0], [measured(-1.0, "year", "of")], COUNTS, VOCABULARY, width=40
    )
    assert shown in lines and all(len(line) <= 40 for line in lines[-2:])


@pytest.mark.once
def test_an_example_gives_percent_before_and_after_and_the_guesses():
    blanks = [blank("great people", num_words=2)]
    after = [measured(2 * np.log(0.3), "great people", "of peace")]
    lines = examples.render(blanks, [2 * np.log(0.0004)], after, COUNTS, VOCABULARY)
    assert lines[-1] == "    0.04% -> 30%   MLM: great people (50%)   SBO: of peace (50%)"
    assert lines[0] == "1 held-out spans of 2 to 4 words (2 tokens), each blanked alone"
    assert lines[1] == '  right: MLM 100%, SBO 0% of tokens; always "people": 50%'


def test_model_without_sbo_head_is_shown_without_it(pretrainer):
    preprocessor = ks.SpanBertPretrainerPreprocessor(
        pretrainer.preprocessor.tokenizer, sequence_length=L, span_boundary=False, seed=1
    )
    alone = ks.SpanBertPretrainer(pretrainer.backbone, preprocessor, span_boundary=False)
    blanks = examples.choose_blanks(preprocessor, texts(), num_words=6, num_spans=4)
    before, after = examples.score_truths(alone, blanks), examples.measure(alone, blanks)
    assert len(blanks) == 10 and not any("sbo" in found for found in after)
    lines = examples.render(blanks, before, after, np.ones(V), VOCABULARY)
    assert any("right: MLM" in line for line in lines) and not any("SBO" in x for x in lines)

import numpy as np
import pytest
from comparisons import assert_rows

import keras_spanbert as ks
from keras_spanbert.data import tacred

WORDS = ["a", "b", "c", "d", "e", "##x", "(", ")", "[", "]", "SE", "##P", "MA"]
VOCABULARY = ["[PAD]", *(f"[unused{i}]" for i in range(1, 12)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY += WORDS
MARKERS = ["SUBJ_START", "SUBJ_END", "OBJ_START", "OBJ_END"]
TWO_WORDS = "a b", (0, 0), (1, 1)


def build(mode="ner", length=16, adapt=True, vocabulary=VOCABULARY, **kwargs):
    tokenizer = ks.SpanBertTokenizer(vocabulary)
    preprocessor = ks.SpanBertRelationExtractorPreprocessor(tokenizer, length, mode, **kwargs)
    if adapt:
        preprocessor.adapt([example(*TWO_WORDS)])
    return preprocessor


def example(text, subject, object, types=("P", "O")):
    """Returns an example. Spans are the first and the last word."""
    spans = dict(zip(["subj_start", "subj_end", "obj_start", "obj_end"], [*subject, *object]))
    types = dict(zip(["subj_type", "obj_type"], types))
    return {"token": text.split(), **spans, **types, "relation": None}


def tokens(inputs, row=0):
    """Returns the tokens of a row as text, with symbols abbreviated to their numbers."""
    ids = inputs["token_ids"][row][inputs["padding_mask"][row] > 0]
    return " ".join(VOCABULARY[i] for i in ids).replace("[unused", "<").replace("]", "")


@pytest.fixture(scope="module")
def reference(finetuning, cased_tokenizer):
    folder, expected, features = finetuning("relation")
    examples = {name: tacred.read(folder / f"{name}.json") for name in ["train", "dev", "test"]}
    return examples, expected, features, cased_tokenizer


@pytest.mark.parametrize(
    "mode, length",
    [(m, 128) for m in ["ner", "text", "text_ner", "ner_text"]] + [("ner", 32), ("text", 48)],
)
def test_rows_equal_the_released_script(reference, mode, length):
    examples, expected, features, tokenizer = reference
    preprocessor = ks.SpanBertRelationExtractorPreprocessor(tokenizer, length, mode)
    for split in ["dev", "train", "test"]:
        preprocessor.adapt(examples[split])
    assert preprocessor.symbols == expected["special_tokens_dev_then_train_then_test"]
    group = mode if length == 128 else f"{mode}_{length}"
    splits = ["train", "dev", "test"] if length == 128 else ["dev"]
    for split in splits:
        assert_rows(preprocessor.inputs(examples[split]), features, f"{group}/{split}/")


def test_only_rows_that_would_lose_a_span_differ(reference):
    examples, _, _, tokenizer = reference
    preprocessor = ks.SpanBertRelationExtractorPreprocessor(tokenizer, 32)
    preprocessor.adapt(examples["dev"])
    released, own = preprocessor.inputs(examples["dev"]), preprocessor.rows(examples["dev"])
    types = list(preprocessor.types().values())
    has_all = np.isin(released["token_ids"], types).sum(axis=1) == 2
    assert 0 < has_all.sum() < len(has_all)
    is_equal = (released["token_ids"] == own["token_ids"]).all(axis=1)
    np.testing.assert_array_equal(is_equal, has_all)
    assert (own["token_ids"][~has_all, -1] == tokenizer.sep_token_id).all()


@pytest.mark.parametrize(
    "subject, object, ner, text, words",
    [
        ((0, 2), (1, 3), "<5 <6", "<1 a <3 b c <2 d <4", "a b c [SEP d"),
        ((1, 1), (0, 2), "<6 <5 d", "<3 a <1 b <2 c <4 d", "b [SEP a c"),
        ((0, 2), (1, 1), "<5 <6 d", "<1 a <3 b <4 c <2 d", "a b c [SEP"),
        ((0, 1), (0, 1), "<5 <6 c d", "<1 <3 a b <2 <4 c d", "a b [SEP"),
    ],
)
def test_words_in_both_spans_belong_to_the_subject(subject, object, ner, text, words):
    given = [example("a b c d", subject, object)]
    for mode, row in {"ner": ner, "text": text, "ner_text": f"{ner} [SEP {words}"}.items():
        assert tokens(build(mode).inputs(given)) == f"[CLS {row} [SEP"


def test_texts_are_split_at_blanks_and_spans_without_special_tokens():
    preprocessor = build("text")
    texts = {"text": ["a bx-LRB-c", " -LRB-  ad\u2003e"], "subject": [(2, 4), (8, 9)]}
    given = {**texts, "object": [(9, 10), (1, 6)]}
    # The span splits "bx-LRB-c" into "bx", "-LRB-" and "c".
    inputs = preprocessor.inputs(given)
    assert tokens(inputs) == "[CLS a <1 b ##x <2 ( <3 c <4 [SEP"
    assert tokens(inputs, 1) == "[CLS <3 ( <4 <1 a <2 d e [SEP"
    preprocessor = build("text", length=24)
    words = preprocessor.inputs([example("a [SEP] [unused1] b", (0, 0), (3, 3))])
    assert tokens(words).startswith("[CLS <1 a <2 [SEP [ [UNK ")
    text = preprocessor.inputs({"text": ["a [SEP] b"], "subject": [(0, 1)], "object": [(8, 9)]})
    assert tokens(text) == "[CLS <1 a <2 [ SE ##P  <3 b <4 [SEP"


@pytest.mark.parametrize(
    "mode, length, text, spans, row",
    [
        # The spans are far apart. 16 - 6 symbols and special tokens - 2 words leave room for the 8
        # nearest words: 1 and 3 before the spans, and 2 and 2 after them. The later of two words at
        # the same distance is left out.
        (*("text", 16, "b a c c c c c c c c c a b", [(1, 1), (11, 11)]),
         "[CLS b <1 a <2 c c c c c c <3 a <4 b [SEP"),
        # There is room for the middle. 16 - [CLS], [SEP] and these 6 leave 4 on each side.
        (*("ner", 16, "d " * 20 + "a c c c c b" + " e" * 20, [(20, 20), (25, 25)]),
         "[CLS d d d d <5 c c c c <6 e e e e [SEP"),
        # Long spans keep their ends: 10 words, two at each end of both, then those of the first.
        (*("text", 16, "a " + "c " * 30 + "b", [(0, 15), (16, 31)]),
         "[CLS <1 a c c c c c <2 <3 c c c b <4 [SEP"),
        # What follows the text is kept.
        (*("text_ner", 17, "a b " + "c " * 9 + "b b", [(0, 0), (12, 12)]),
         "[CLS <1 a <2 b c c c b <3 b <4 [SEP <5 [SEP <6 [SEP"),
        (*("ner_text", 17, "a b " + "c " * 9 + "b b", [(0, 0), (12, 12)]),
         "[CLS <5 b c c c c c c c b <6 [SEP a [SEP b [SEP"),
    ],
)  # fmt: skip
def test_truncated_rows_keep_what_matters(mode, length, text, spans, row):
    inputs = build(mode, length=length).call([example(text, *spans)])
    assert tokens(inputs) == row and inputs["padding_mask"].sum() == length


@pytest.mark.parametrize("mode", ["ner", "text", "text_ner", "ner_text"])
def test_truncated_rows_are_subsequences_with_all_symbols(mode):
    rng = np.random.default_rng(1)
    given = []
    for _ in range(300):
        n = int(rng.integers(1, 90))
        words = " ".join(rng.choice(["a", "b", "c", "bx"], n))
        spans = [sorted(rng.integers(0, n, 2).tolist()) for _ in range(2)]
        given.append(example(words, *spans))
    whole, cut = (build(mode, length=length).call(given) for length in [512, 24])
    num_cut = 0
    for row in range(len(given)):
        full, short = (tokens(inputs, row).split() for inputs in (whole, cut))
        rest = iter(full)
        assert all(token in rest for token in short), f"{full} {short}"
        symbols = [[token for token in side if token[0] == "<"] for side in (full, short)]
        assert symbols[0] == symbols[1]
        assert len(short) == min(len(full), 24)
        num_cut += len(full) > 24
    assert num_cut > 100


def test_long_rows_keep_spans_and_do_not_depend_on_others():
    text = "c " * 25_000 + "a" + " c" * 25_000
    preprocessor = build("text")
    given = {"text": [text], "subject": [(50_000, 50_001)], "object": [(100_000, 100_001)]}
    assert tokens(preprocessor.call(given)).count("<") == 4
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[:5], rng.integers(4, 30))) for _ in range(2_500)]
    given = [example(text, (1, 1), (2, 3)) for text in texts]  # More than are processed at once.
    preprocessor = build("ner_text")
    together = preprocessor.call(given)
    for i in [0, 1023, 1024, 2499]:
        for name, array in preprocessor.call([given[i]]).items():
            np.testing.assert_array_equal(together[name][i], array[0])


def test_symbols_are_assigned_in_order_until_none_is_left():
    preprocessor = build(adapt=False)
    for types in [("P", "P"), ("P", "O"), ("O", "P")]:
        preprocessor.adapt([example(*TWO_WORDS, types)])
    assert list(preprocessor.symbols) == [*MARKERS, "SUBJ=P", "OBJ=P", "OBJ=O", "SUBJ=O"]
    assert list(preprocessor.symbols.values()) == [f"[unused{i}]" for i in range(1, 9)]
    preprocessor = build(adapt=False)
    given = [example(*TWO_WORDS, (f"P{i}", None)) for i in range(8)]
    error = "an unused token.*Received: 12 symbols and 11 tokens. .* is SUBJ=P7"
    with pytest.raises(ValueError, match=error):
        preprocessor.adapt(given)
    preprocessor.adapt(given[:7])


def test_words_never_become_symbols():
    """A vocabulary without unused tokens is refused, unless symbols are given."""
    vocabulary = [token for token in VOCABULARY if not token.startswith("[unused")]
    preprocessor = build("text", vocabulary=vocabulary, adapt=False)
    given = [example(*TWO_WORDS)]
    for use in [preprocessor.adapt, preprocessor.inputs, lambda _: preprocessor.symbols]:
        with pytest.raises(ValueError, match=r"\[unused1\].*Received: 4 symbols and 0 tokens"):
            use(given)
    symbols = dict(zip(MARKERS, ["SE", "MA", "(", ")"]))
    preprocessor = build("text", vocabulary=vocabulary, adapt=False, symbols=symbols)
    assert preprocessor.inputs(given)["padding_mask"].sum() == 8
    with pytest.raises(ValueError, match="Received: 6 symbols and 4 tokens.* is SUBJ=P"):
        preprocessor.adapt(given)


@pytest.mark.parametrize(
    "symbols, error",
    [
        (["[unused1]"], "must be a dict of names to tokens, or None"),
        ({"SUBJ_START": "[unused1]"}, "a dict of SUBJ_START, SUBJ_END, OBJ_START, OBJ_END"),
        (dict.fromkeys(MARKERS, "x"), "of the vocab"),
        (dict.fromkeys(MARKERS, "a"), "a different token"),
    ],
)
def test_invalid_symbols_are_refused(symbols, error):
    with pytest.raises(ValueError, match=error):
        build(symbols=symbols, adapt=False).symbol_ids()

import json

import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.data import tacred

WORDS = ["a", "b", "c", "d", "e", "##x", "(", ")", "[", "]", "SE", "##P", "MA"]
VOCABULARY = ["[PAD]", *(f"[unused{i}]" for i in range(1, 12)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY += WORDS


def build(mode="ner", length=16, adapt=True, vocabulary=VOCABULARY, **kwargs):
    tokenizer = ks.SpanBertTokenizer(vocabulary)
    preprocessor = ks.SpanBertRelationExtractorPreprocessor(tokenizer, length, mode, **kwargs)
    if adapt:
        preprocessor.adapt([example("a b", (0, 0), (1, 1))])
    return preprocessor


def example(text, subject, object, types=("P", "O"), **more):
    """Spans are the first and the last word."""
    return {
        "token": text.split(),
        **{"subj_start": subject[0], "subj_end": subject[1]},
        **{"obj_start": object[0], "obj_end": object[1]},
        **{"subj_type": types[0], "obj_type": types[1]},
        "relation": None,
        **more,
    }


def tokens(inputs, row=0):
    """The tokens of a row as text, symbols by their numbers alone."""
    ids = inputs["token_ids"][row][inputs["padding_mask"][row] > 0]
    return " ".join(VOCABULARY[i] for i in ids).replace("[unused", "<").replace("]", "")


# === The released rows ===


@pytest.fixture(scope="module")
def reference(shared_data):
    folder = shared_data / "reference" / "finetuning" / "relation"
    examples = {name: tacred.read(folder / f"{name}.json") for name in ["train", "dev", "test"]}
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    with np.load(folder / "features.npz") as file:
        features = {name: file[name] for name in file.files}
    tokenizer = ks.SpanBertTokenizer(
        str(shared_data / "reference" / "vocab" / "bert_base_cased.txt")
    )
    return examples, expected, features, tokenizer


@pytest.mark.parametrize(
    "mode, length",
    [(m, 128) for m in ["ner", "text", "text_ner", "ner_text"]] + [("ner", 32), ("text", 48)],
)
def test_rows_are_those_of_the_released_script(reference, mode, length):
    examples, expected, features, tokenizer = reference
    preprocessor = ks.SpanBertRelationExtractorPreprocessor(tokenizer, length, mode)
    for split in ["dev", "train", "test"]:
        preprocessor.adapt(examples[split])
    assert preprocessor.symbols == expected["special_tokens_dev_then_train_then_test"]
    group = mode if length == 128 else f"{mode}_{length}"
    splits = ["train", "dev", "test"] if length == 128 else ["dev"]
    for split in splits:
        inputs = preprocessor.inputs(examples[split])
        for name, its_name in [
            ("token_ids", "input_ids"),
            ("segment_ids", "segment_ids"),
            ("padding_mask", "input_mask"),
        ]:
            assert inputs[name].dtype == np.int32
            wanted = features[f"{group}/{split}/{its_name}"]
            np.testing.assert_array_equal(inputs[name], wanted, err_msg=split)


@pytest.mark.parametrize("mode", ["ner", "text"])
def test_only_rows_that_would_lose_a_span_are_others(reference, mode):
    examples, _, _, tokenizer = reference
    preprocessor = ks.SpanBertRelationExtractorPreprocessor(tokenizer, 32, mode)
    preprocessor.adapt(examples["dev"])
    released, own = preprocessor.inputs(examples["dev"]), preprocessor.call(examples["dev"])
    ids = preprocessor.symbol_ids()
    needed = ["SUBJ_START", "SUBJ_END", "OBJ_START", "OBJ_END"]
    if mode == "ner":
        is_symbol = np.isin(released["token_ids"], list(preprocessor.types().values()))
        has_all = is_symbol.sum(axis=1) == 2
    else:
        is_symbol = np.isin(released["token_ids"], [ids[name] for name in needed])
        has_all = is_symbol.sum(axis=1) == 4
    assert 0 < has_all.sum() < len(has_all)
    is_equal = (released["token_ids"] == own["token_ids"]).all(axis=1)
    np.testing.assert_array_equal(is_equal, has_all)
    assert (own["token_ids"][~has_all, -1] == tokenizer.sep_token_id).all()
    as_released = ks.SpanBertRelationExtractorPreprocessor(
        tokenizer, 32, mode, preprocessor.symbols, truncation="released"
    )
    inputs = as_released.call(examples["dev"])
    np.testing.assert_array_equal(inputs["token_ids"], released["token_ids"])


def test_symbols_without_an_evaluation_set_are_others(reference):
    examples, expected, _, tokenizer = reference
    preprocessor = ks.SpanBertRelationExtractorPreprocessor(tokenizer)
    preprocessor.adapt(examples["train"])
    preprocessor.adapt(examples["test"])
    assert preprocessor.symbols == expected["special_tokens_train_then_test"]


# === Worked out by hand ===


@pytest.mark.parametrize(
    "mode, wanted",
    [
        ("ner", "[CLS a <6 d <5 b [SEP"),
        ("text", "[CLS a <3 b c <4 d <1 e <2 b [SEP"),
        ("text_ner", "[CLS a <3 b c <4 d <1 e <2 b [SEP <5 [SEP <6 [SEP"),
        ("ner_text", "[CLS a <6 d <5 b [SEP e [SEP b c [SEP"),
    ],
)
def test_modes(mode, wanted):
    given = [example("a b c d e b", (4, 4), (1, 2))]
    assert tokens(build(mode).inputs(given)) == wanted


@pytest.mark.parametrize(
    "subject, object, ner, text, words",
    [
        ((0, 2), (1, 3), "<5 <6", "<1 a <3 b c <2 d <4", "a b c [SEP d"),
        ((1, 1), (0, 2), "<6 <5 d", "<3 a <1 b <2 c <4 d", "b [SEP a c"),
        ((0, 2), (1, 1), "<5 <6 d", "<1 a <3 b <4 c <2 d", "a b c [SEP"),
        ((0, 1), (0, 1), "<5 <6 c d", "<1 <3 a b <2 <4 c d", "a b [SEP"),
    ],
)
def test_words_of_both_spans_are_the_subjects(subject, object, ner, text, words):
    given = [example("a b c d", subject, object)]
    for mode, row in {"ner": ner, "text": text, "ner_text": f"{ner} [SEP {words}"}.items():
        assert tokens(build(mode).inputs(given)) == f"[CLS {row} [SEP"


def test_words_of_texts_are_those_between_blanks_and_spans():
    preprocessor = build("text")
    texts = {"text": ["a bx-LRB-c", " -LRB-  ad\u2003e"], "subject": [(2, 4), (8, 9)]}
    given = {**texts, "object": [(9, 10), (1, 6)]}
    # The span cuts "bx-LRB-c" into "bx", "-LRB-" and "c".
    inputs = preprocessor.inputs(given)
    assert tokens(inputs) == "[CLS a <1 b ##x <2 ( <3 c <4 [SEP"
    assert tokens(inputs, 1) == "[CLS <3 ( <4 <1 a <2 d e [SEP"


def test_special_tokens_are_such_in_words_alone():
    preprocessor = build("text", length=24)
    words = preprocessor.inputs([example("a [SEP] [unused1] b", (0, 0), (3, 3))])
    assert tokens(words).startswith("[CLS <1 a <2 [SEP [ [UNK ")
    text = preprocessor.inputs({"text": ["a [SEP] b"], "subject": [(0, 1)], "object": [(8, 9)]})
    assert tokens(text) == "[CLS <1 a <2 [ SE ##P  <3 b <4 [SEP"


def test_far_spans_leave_out_the_middle():
    # 16 - 6 symbols and special tokens - 2 words = 8 that are nearest: 1 and 3 before the spans
    # as far as there are, 2 and 2 after; the ninth, at the same distance of 3, is the later one.
    given = [example("b a " + "c " * 9 + "a b", (1, 1), (11, 11))]
    assert tokens(build("text").call(given)) == "[CLS b <1 a <2 c c c c c c <3 a <4 b [SEP"
    assert tokens(build("text").inputs(given)) == "[CLS b <1 a <2 c c c c c c c c c <3 a"


def test_what_is_between_near_spans_comes_before_what_is_around():
    given = [example("d " * 20 + "a c c c c b" + " e" * 20, (20, 20), (25, 25))]
    # 16 - [CLS], [SEP] and the 6 in the middle: 4 on either side.
    assert tokens(build("ner").call(given)) == "[CLS d d d d <5 c c c c <6 e e e e [SEP"


def test_long_spans_keep_their_ends():
    # 10 words have room: two at each end of both spans, and the next ones of the first.
    given = [example("a " + "c " * 30 + "b", (0, 15), (16, 31))]
    assert tokens(build("text").call(given)) == "[CLS <1 a c c c c c <2 <3 c c c b <4 [SEP"


@pytest.mark.parametrize(
    "mode, wanted",
    [
        ("text_ner", "[CLS <1 a <2 b c c c b <3 b <4 [SEP <5 [SEP <6 [SEP"),
        ("ner_text", "[CLS <5 b c c c c c c c b <6 [SEP a [SEP b [SEP"),
    ],
)
def test_what_follows_the_text_is_kept(mode, wanted):
    given = [example("a b " + "c " * 9 + "b b", (0, 0), (12, 12))]
    row = build(mode, length=17).call(given)
    assert tokens(row) == wanted
    assert row["padding_mask"].sum() == 17


@pytest.mark.parametrize("mode", ["ner", "text", "text_ner", "ner_text"])
def test_cut_rows_are_parts_of_the_whole_ones_with_all_symbols(mode):
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


def test_row_of_100_000_characters_keeps_its_spans():
    text = "c " * 25_000 + "a" + " c" * 25_000
    preprocessor = build("text")
    given = {"text": [text], "subject": [(50_000, 50_001)], "object": [(100_000, 100_001)]}
    assert tokens(preprocessor.call(given)).count("<") == 4


def test_equal_words_in_other_rows_make_no_difference():
    rng = np.random.default_rng(0)
    given = []
    for _ in range(2_500):  # More than are laid out at once.
        n = int(rng.integers(2, 30))
        words = " ".join(rng.choice(WORDS[:5], n))
        spans = [sorted(rng.integers(0, n, 2).tolist()) for _ in range(2)]
        given.append(example(words, *spans))
    preprocessor = build("ner_text")
    together = preprocessor.call(given)
    for i in [0, 1023, 1024, 2499]:
        alone = preprocessor.call([given[i]])
        for name, array in together.items():
            np.testing.assert_array_equal(array[i], alone[name][0])


def test_columns_of_words_are_examples():
    preprocessor = build("ner")
    columns = {
        "text": [["a", "b", "c"]],
        "subject": np.array([[0, 2]]),
        "object": [(2, 3)],
        "subject_type": ["P"],
        "object_type": np.array(["O"]),
    }
    wanted = preprocessor.inputs([example("a b c", (0, 1), (2, 2))])
    np.testing.assert_array_equal(preprocessor.inputs(columns)["token_ids"], wanted["token_ids"])


# === Symbols ===


def test_symbols_are_in_order_of_first_use_and_more_can_come():
    preprocessor = build(adapt=False)
    assert preprocessor.symbols == {
        "SUBJ_START": "[unused1]",
        "SUBJ_END": "[unused2]",
        "OBJ_START": "[unused3]",
        "OBJ_END": "[unused4]",
    }
    preprocessor.adapt([example("a b", (0, 0), (1, 1), ("P", "P"))])
    preprocessor.adapt(
        [example("a b", (0, 0), (1, 1), types) for types in [("P", "O"), ("O", "P")]]
    )
    names = ["SUBJ=P", "OBJ=P", "OBJ=O", "SUBJ=O"]
    assert list(preprocessor.symbols)[4:] == names
    assert list(preprocessor.symbols.values()) == [f"[unused{i}]" for i in range(1, 9)]


def test_config_has_the_symbols():
    preprocessor = build("ner_text", truncation="released")
    config = {**preprocessor.get_config(), "tokenizer": preprocessor.tokenizer}
    again = ks.SpanBertRelationExtractorPreprocessor(**config)
    assert again.symbols == preprocessor.symbols and again.symbols["OBJ=O"] == "[unused6]"
    assert (again.mode, again.truncation, again.sequence_length) == ("ner_text", "released", 16)


def test_more_types_than_the_vocabulary_has_tokens_for():
    preprocessor = build(adapt=False)
    given = [example("a b", (0, 0), (1, 1), (f"P{i}", None)) for i in range(8)]
    with pytest.raises(
        ValueError, match="a token in store.*Received: 12 symbols, .* 11 tokens; .* is SUBJ=P7"
    ):
        preprocessor.adapt(given)
    preprocessor.adapt(given[:7])


def test_vocabulary_without_such_tokens_gives_up_its_last_ones(caplog):
    preprocessor = build("text", vocabulary=VOCABULARY[12:] + ["[PAD]"], adapt=False)
    assert list(preprocessor.symbols.values()) == ["[PAD]", "MA", "##P", "SE"]
    preprocessor.adapt([example("a b", (0, 0), (1, 1))])
    assert preprocessor.symbols["SUBJ=P"] == "]"
    assert caplog.text.count("no [unused1], [unused2], ...: its last tokens") == 1


@pytest.mark.parametrize(
    "symbols, error",
    [
        (["[unused1]"], "must be a dict of names to tokens, or None"),
        ({"SUBJ_START": "[unused1]"}, "must have SUBJ_START, SUBJ_END, OBJ_START, OBJ_END"),
        ({n: "x" for n in ["SUBJ_START", "SUBJ_END", "OBJ_START", "OBJ_END"]}, "of the vocab"),
        ({n: "a" for n in ["SUBJ_START", "SUBJ_END", "OBJ_START", "OBJ_END"]}, "of its own"),
    ],
)
def test_symbols_that_do_not_fit_are_an_error(symbols, error):
    with pytest.raises(ValueError, match=error):
        build(symbols=symbols, adapt=False).symbol_ids()


# === Mistakes ===


@pytest.mark.parametrize(
    "arguments, error",
    [
        (
            {"mode": "mask"},
            "`mode` must be one of ner, text, text_ner, ner_text. Received: mode='m",
        ),
        ({"length": 2}, "`sequence_length` must be at least 3"),
        ({"truncation": "longest"}, "`truncation` must be one of window, released"),
    ],
)
def test_argument_out_of_range(arguments, error):
    with pytest.raises(ValueError, match=error):
        build(**arguments)


@pytest.mark.parametrize(
    "wrong, error",
    [
        ([example("a b", (0, 2), (1, 1))], r"example 0 \(id '0'\): .* within the 2 words"),
        ([example("a b", (1, 0), (1, 1), id="x7")], r"example 0 \(id 'x7'\): `subj_start` and"),
        ([example("a b", (-1, 0), (1, 1))], "Received: -1, 0"),
        ([example("a b", (0, 0), (1, 1), (None, "O"))], "takes a type of the subject.*text"),
        ([example("a b", (0, 0), (1, 1), ("P", "Q"))], "type of the object.*: O. Received: 'Q'"),
        ([{"token": ["a"]}], "`subj_start` must be a int. Received: None"),
        (["a b"], "must be dicts, .* Received: 'a b' at 0"),
        ("a b", "must be a list of dicts"),
        ({"text": ["a b"]}, "must be a dict of text, subject, object .* keys text"),
        ({"text": ["a"], "subject": [], "object": [(0, 1)]}, "must be as many. Received: 1, 0"),
        ({"text": ["a"], "subject": [0], "object": [(0, 1)]}, r"Received: subjects\[0\]=0"),
        ({"text": ["a"], "subject": [(0, 1.0)], "object": [(0, 1)]}, r"two integers each"),
        ({"text": ["a b"], "subject": [(0, 1)], "object": [(1, 2)]}, "text 0: the object must be"),
        ({"text": ["a b"], "subject": [(0, 1)], "object": [(2, 4)]}, "from 0 to 3. Received: 2, 4"),
        ({"text": [""], "subject": [(0, 1)], "object": [(0, 1)]}, "from 0 to 0. Received: 0, 1"),
        ({"text": [["a"]], "subject": [(0, 1)], "object": [(0, 2)]}, "the object must be words"),
        ({"text": [3], "subject": [(0, 1)], "object": [(0, 1)]}, r"Received: texts\[0\]=3"),
    ],
)
def test_mistake_is_named(wrong, error):
    with pytest.raises(ValueError, match=error):
        build().inputs(wrong)


def test_bytes_and_lone_surrogates_count_as_the_replacement_character():
    preprocessor = build("text")
    spans = {"subject": [(0, 1)], "object": [(4, 5)]}
    broken = preprocessor.inputs({"text": ["a \ud800 b"], **spans})
    mixed = preprocessor.inputs({"text": np.array([b"a \xff b"]), **spans})
    assert tokens(broken) == tokens(mixed) == "[CLS <1 a <2 <3 b <4 [SEP"

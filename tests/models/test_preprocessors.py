"""Preprocessors follow the interface of keras-hub, on each backend and in `tf.data`."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from task_rows import padded

import keras_spanbert as ks

WORDS = "ann bob wrote it who é 日 a b c ##x ( ) . ,".split()
VOCABULARY = ["[PAD]", *(f"[unused{i}]" for i in range(1, 9)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY += WORDS
TOKENIZER = ks.SpanBertTokenizer(VOCABULARY)
L = 11
# Empty, blank, too long and unusual texts.
TEXTS = [
    "ann wrote it.", "", "bob " * 40, " \u3000\t",
    "Ann é e\u0301日日 a\u200db\u00a0c\ufffd \U0001f600", "cx " + "a" * 120 + " , it",
]  # fmt: skip
ODD = TEXTS[4]
CONTEXTS = ["it, ann wrote it " * 6, TEXTS[2], "who? bob wrote (it)", "日日 a", ODD, ODD]
WORD_LISTS = [text.split() for text in TEXTS]
WORD_LISTS[3] = ["\u200b", "[SEP]", "-LRB-", "a [MASK]", "[MASK]"]
WORD_LISTS[1] = ["cx", "a\u2003b"]
TAGS = [[["O", "B-x", "I-x"][i % 3] for i in range(len(words))] for words in WORD_LISTS]
SPANS = {
    "subj_start": [0, 1, 3, 2, 0, 1],
    "subj_end": [1, 1, 30, 3, 0, 1],
    "obj_start": [2, 0, 38, 4, 1, 0],
    "obj_end": [2, 1, 39, 4, 2, 3],
}
TYPES = {"subj_type": ["P", "P", "O", "P", "O", "O"], "obj_type": ["O", "P", "P", "O", "O", "P"]}
PLACES = {
    "subject": [(0, 3), (0, 2), (4, 7), (3, 4), (0, 3), (1, 4)],
    "object": [(4, 9), (4, 9), (4, 9), (0, 2), (4, 9), (2, 19)],
}
ROLES = {"subject_type": TYPES["subj_type"], "object_type": TYPES["obj_type"]}
NAMES = ["none", "some"]
SYMBOLS = ["SUBJ_START", "SUBJ_END", "OBJ_START", "OBJ_END", "SUBJ=P", "OBJ=O", "SUBJ=O", "OBJ=P"]
SYMBOLS = {name: f"[unused{i}]" for i, name in enumerate(SYMBOLS, start=1)}
RELATION = {"mode": "ner_text", "symbols": SYMBOLS, "label_names": NAMES}


def tensors(value):
    """Converts columns for `tf.data`, where lists of lists are ragged."""
    if isinstance(value, dict):
        return {name: tensors(column) for name, column in value.items()}
    return tf.ragged.constant(value) if isinstance(value[0], list) else tf.constant(value)


TEXT = ks.SpanBertTextClassifierPreprocessor
QUESTION = ks.SpanBertQuestionAnswererPreprocessor
CHOICE = ks.SpanBertMultipleChoicePreprocessor
RELATIONS = ks.SpanBertRelationExtractorPreprocessor
WORD = ks.SpanBertTokenClassifierPreprocessor
BY_NAME = {"label_names": NAMES}
SEVERAL = {"label_names": NAMES, "multi_label": True}
SOME = ["some", "none", "none", "some", "none", "none"]
SOME_LISTS = [["some", "none"], [], ["none"], ["some"], ["some"], ["none", "some"]]
ANSWERS = ["ann wrote", "", "b", "日", "e\u0301", ODD[4:]]
CHOICES = padded([["a", "bob é"], [ODD, " ", TEXTS[2]]] * 3)
ENDINGS = {"context": CONTEXTS, "prompt": TEXTS, "choices": [["a", ""], ["b", "c", "a"]] * 3}
PLACED = {"text": CONTEXTS, **PLACES}
RELEASED = {**RELATION, "truncation": "released"}
TAGGED = {"label_names": ["O", "B-x", "I-x"]}
NUMBERED = padded([[len(tag) for tag in tags] for tags in TAGS], -1)
# Preprocessor, its arguments, x and y.
CASES = {
    "texts": (TEXT, {}, TEXTS, [0.5, 1.0, -2.0, 0.0, 3.0, 4.0]),
    "pairs, classes by name": (TEXT, BY_NAME, {"text": TEXTS, "text_pair": TEXTS[::-1]}, SOME),
    "several labels by name": (TEXT, SEVERAL, TEXTS, SOME_LISTS),
    "several labels as 0 and 1": (TEXT, SEVERAL, TEXTS, np.eye(6, dtype="int64")[:, :2]),
    "questions": (
        QUESTION, {"doc_stride": 2, "max_question_length": 4},
        {"question": TEXTS, "context": CONTEXTS},
        {"text": ANSWERS, "answer_start": [38, -1, 5, 1, 6, 4]},
    ),
    "choices": (CHOICE, {}, {"prompt": TEXTS, "choices": CHOICES}, [1, 2, 0, 2, 1, 0]),
    "choices with contexts": (CHOICE, {}, ENDINGS, [1, 2, 0, 2, 1, 0]),
    "relations of words": (RELATIONS, RELATION, {"token": WORD_LISTS, **SPANS, **TYPES}, SOME),
    "relations of padded words": (
        RELATIONS, RELEASED, {"token": padded(WORD_LISTS), **SPANS, **TYPES}, [1, 0, 1, 0, 1, 0],
    ),
    "relations of words of texts": (
        RELATIONS, {"mode": "text"},
        {"text": WORD_LISTS, "subject": [(0, 1)] * 6, "object": [(1, 2)] * 6}, None,
    ),
    "relations of texts": (RELATIONS, RELATION, {**PLACED, **ROLES}, [1, 0, 1, 0, 1, 0]),
    "relations without types": (RELATIONS, {"mode": "text"}, PLACED, [1, 0, 1, 0, 1, 0]),
    "words": (WORD, {"doc_stride": 3, **TAGGED}, {"words": WORD_LISTS}, TAGS),
    "padded words": (WORD, TAGGED, {"words": padded(WORD_LISTS)}, padded(TAGS)),
    "padded words with integers as names": (
        WORD, {"label_names": ["1", "2"]}, {"words": padded(WORD_LISTS)},
        padded([["2"] * len(words) for words in WORD_LISTS]),
    ),
    "words with numbers": (WORD, {}, padded(WORD_LISTS), NUMBERED),
    "strings to tag": (WORD, {}, TEXTS, None),
}  # fmt: skip


def build(case):
    cls, arguments, x, y = CASES[case]
    preprocessor = cls(TOKENIZER, L, **arguments)
    weights = [1.0, 0.5, 2.0, 0.0, 1.0, 3.0]
    given = [(x,), (x, y), (x, y, weights)]
    return preprocessor, given[:1] if y is None else given


def check(found, expected):
    """Checks that structures, dtypes and values are equal."""
    keras.tree.assert_same_structure(found, expected)
    for array, like in zip(keras.tree.flatten(found), keras.tree.flatten(expected)):
        array, like = np.asarray(array), np.asarray(like)
        assert array.dtype == like.dtype
        np.testing.assert_array_equal(array, like)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_results_in_tf_data_equal_eager_results(case):
    preprocessor, forms = build(case)
    for given in forms[-2:]:
        expected = preprocessor(*given)
        parts = keras.utils.unpack_x_y_sample_weight(expected)
        # The label of a word is on one of its tokens. The others have weight 0.
        adds_weights = isinstance(preprocessor, WORD) and len(given) > 1
        has_parts = [True, len(given) > 1, len(given) > 2 or adds_weights]
        assert [part is not None for part in parts] == has_parts
        columns = tuple(tensors(part) for part in given)
        dataset = tf.data.Dataset.from_tensor_slices(columns if len(given) > 1 else columns[0])
        mapped = dataset.batch(100).map(preprocessor)
        check(mapped.get_single_element(), expected)
        spec = keras.utils.unpack_x_y_sample_weight(mapped.element_spec)[0]
        assert spec["token_ids"].shape[-1] == L  # The model is built for this length.
    # Batches with a smaller last one, in threads.
    batches = list(dataset.batch(4).map(preprocessor, num_parallel_calls=2))
    assert len(batches) == 2
    rows = [keras.utils.unpack_x_y_sample_weight(batch)[0]["token_ids"] for batch in batches]
    assert sum(len(x) for x in rows) == len(parts[0]["token_ids"])
    preprocessor.sequence_length = 17  # It can be changed.
    expected = preprocessor(*forms[-1])
    assert keras.utils.unpack_x_y_sample_weight(expected)[0]["token_ids"].shape[-1] == 17
    check(dataset.batch(6).map(preprocessor).get_single_element(), expected)


def test_masks_in_tf_data_equal_eager_masks():
    cls = ks.SpanBertPretrainerPreprocessor
    preprocessor = cls(TOKENIZER, L, max_predictions=4)
    for length in [L, 17]:
        preprocessor.sequence_length = length
        expected = preprocessor(TEXTS, seed=3)
        dataset = tf.data.Dataset.from_tensor_slices(TEXTS).batch(6)
        found = dataset.map(lambda x: preprocessor(x, seed=3)).get_single_element()
        expected = keras.tree.map_structure(keras.ops.convert_to_numpy, expected)
        check(found, expected)
        assert expected[0]["token_ids"].shape == (6, length)
    assert cls.from_config(preprocessor.get_config()).get_config() == preprocessor.get_config()


@pytest.mark.parametrize(
    "case", ["texts", "pairs, classes by name", "choices", "relations of padded words"]
)
def test_single_row_equals_row_of_a_batch(case):
    preprocessor, forms = build(case)
    expected = preprocessor(*forms[-1])
    dataset = tf.data.Dataset.from_tensor_slices(tuple(map(tensors, forms[-1])))
    check(dataset.map(preprocessor).batch(6).get_single_element(), expected)
    x = forms[0][0]
    first = {name: column[0] for name, column in x.items()} if isinstance(x, dict) else x[0]
    check(preprocessor(first), {name: array[0] for name, array in expected[0].items()})


def test_mapped_dataset_keeps_its_labels():
    preprocessor, forms = build("pairs, classes by name")
    dataset = tf.data.Dataset.from_tensor_slices(tuple(map(tensors, forms[1]))).batch(2)
    mapped = dataset.map(preprocessor)
    preprocessor.label_names = preprocessor.label_names[::-1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Map it again"):
        next(iter(mapped))


def relations_of(texts):
    spans = {"subj_start": 0, "subj_end": 0, "obj_start": 1, "obj_end": 1}
    types = {"subj_type": None, "obj_type": None, "relation": None}
    preprocessor = RELATIONS(TOKENIZER, L, mode="text", symbols=SYMBOLS)
    return preprocessor([{"token": text.split(), **spans, **types} for text in texts])


@pytest.mark.parametrize(
    ("make_rows", "num_others"),  # The number of other tokens in a row.
    [
        (lambda texts: TEXT(TOKENIZER, L).inputs(["a"] * len(texts), texts), 4),
        (lambda texts: CHOICE(TOKENIZER, L).inputs(["a"], [texts]), 4),
        (lambda texts: WORD(TOKENIZER, L).inputs([text.split() for text in texts]), 2),
        (relations_of, 6),
    ],
)
def test_cut_rows_are_counted(make_rows, num_others, caplog):
    most = L - num_others
    make_rows(["b " * size for size in [2, most, most - 1, most]])
    assert not caplog.messages
    make_rows(["b " * size for size in [most + 1, 2, most, most + 7]])
    rule = "`sequence_length` (--sequence_length) changes this"
    assert caplog.messages == [f"Rows longer than 11 tokens were cut: 2 of 4. {rule}"]


def test_cut_rows_are_logged_once_for_each_number_of_rows(caplog):
    preprocessor = TEXT(TOKENIZER, L)
    for _ in range(2):
        preprocessor(["b " * 10] * 1000 + ["b"] * 500)
        preprocessor(["b " * 10, "b"])
        preprocessor(["b " * 10] * 2)
    logged = [message.split(": ")[1].partition(". ")[0] for message in caplog.messages]
    assert logged == ["1,000 of 1,500", "1 of 2"]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_tuple_of_strings_is_rows(size):
    preprocessor, _ = build("texts")
    check(preprocessor(tuple(TEXTS[:size])), preprocessor(TEXTS[:size]))
    # Any other tuple is a batch, as Grain passes it.
    check(preprocessor((TEXTS[:size], [1.0] * size)), preprocessor(TEXTS[:size], [1.0] * size))


@pytest.mark.once
@pytest.mark.parametrize(
    "case, changes, y, message",
    [
        ("texts", {}, ["some"] * 6, "a name if `label_names` are set"),
        ("texts", {}, np.array([2**31] * 6), "fit in 32 bits in a graph"),
        ("pairs, classes by name", {"text": [1] * 6}, None, "`texts` must be a list of strings"),
        ("questions", {}, ["ann"] * 6, "a dict of these columns"),
        ("choices", {}, [0.0] * 6, "one of its question's choices"),
        ("relations of words", {"subj_end": None}, None, "Received: keys token, subj"),
        ("padded words", {"words": TEXTS}, None, "lists of words"),
        ("words", {}, ["O"] * 6, "a label for each word"),
    ],
)
def test_errors_in_tf_data(case, changes, y, message):
    preprocessor, ((x,), *_) = build(case)
    x = {**x, **changes} if changes else x
    x = {n: column for n, column in x.items() if column is not None} if changes else x
    given = tensors(x) if y is None else (tensors(x), tensors(y))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.data.Dataset.from_tensor_slices(given).batch(6).map(preprocessor).get_single_element()


def test_label_names_come_from_the_model(tmp_path):
    backbone = ks.SpanBertBackbone(len(VOCABULARY), 1, 2, 6, 7, max_sequence_length=L)
    preprocessor, _ = build("texts")
    names = [["dull", "good"], ["good", "dull"]]
    one, other = (
        ks.SpanBertTextClassifier(backbone, preprocessor=preprocessor, class_names=of)
        for of in names
    )
    labels = ["good", "dull", "good"]
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS[:3], labels)).batch(3)
    # Both models share a preprocessor, which has the labels of the last one.
    for model, expected in [(one, [1, 0, 1]), (other, [0, 1, 0])]:
        assert model.preprocess(TEXTS[:3], labels)[1].tolist() == expected
        _, found = dataset.map(model.preprocessor).get_single_element()
        assert found.numpy().tolist() == expected
    one.save_to_preset(str(tmp_path / "preset"))
    alone = ks.SpanBertTextClassifierPreprocessor.from_preset(str(tmp_path / "preset"))
    assert alone(TEXTS[:3], labels)[1].tolist() == [1, 0, 1]
    regression = ks.SpanBertTextClassifier(backbone, 1, preprocessor)
    assert regression.preprocessor.label_names is None

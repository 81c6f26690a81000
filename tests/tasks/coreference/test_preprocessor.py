import numpy as np
import pytest

import keras_spanbert as ks
from keras_spanbert.tasks.coreference.tensors import truncate

MODEL_TYPES = ["independent", "overlap"]


def as_sets(clusters):
    return {frozenset(map(tuple, cluster)) for cluster in clusters}


@pytest.fixture(scope="module")
def preprocessors(reference):
    tokenizer = ks.SpanBertTokenizer(str(reference.vocabulary))
    return {
        name: ks.SpanBertCoreferenceResolverPreprocessor(tokenizer, 128, name)
        for name in MODEL_TYPES
    }


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_segments_of_words_are_those_of_the_released_script(reference, preprocessors, model_type):
    expected = reference.documents(model_type)
    words = reference.words()
    assert len(words) == len(expected) == 4
    for document, of_script in zip(words, expected):
        found = preprocessors[model_type].segment(document)
        assert as_sets(found.pop("clusters")) == as_sets(of_script["clusters"])
        assert found == {name: of_script[name] for name in found}
        assert len(found) == 5


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_tensors_are_those_of_the_released_code(reference, preprocessors, model_type):
    for i, document in enumerate(reference.documents(model_type)):
        tensors = preprocessors[model_type].tensors(document)
        expected = reference.arrays(f"inputs/{model_type}_doc{i}")
        assert set(tensors) == set(expected) - {"doc_key"}
        for name, array in tensors.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_documents_are_cut_as_by_the_released_code(reference, preprocessors, model_type, offset):
    document = reference.documents(model_type)[3]
    cut = truncate(preprocessors[model_type].tensors(document), offset, 8)
    expected = reference.arrays(f"training/truncated_{model_type}_doc3_offset{offset}")
    for name, array in cut.items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    assert set(expected) - set(cut) == {"loss", "top_span_starts", "top_span_ends"}


def preprocessor(tokenizer, **kwargs):
    return ks.SpanBertCoreferenceResolverPreprocessor(tokenizer, **{"sequence_length": 7, **kwargs})


def test_segments_end_with_a_sentence_else_with_a_word_else_within_it(tokenizer):
    sentences = [["ann", "."], ["she", "was", "old", "."], ["..............", "it"]]
    segmented = preprocessor(tokenizer).segment({"sentences": sentences})
    assert [s[1:-1] for s in segmented["sentences"]] == [
        ["ann", "."],
        ["she", "was", "old", "."],
        ["."] * 5,
        ["."] * 5,
        ["."] * 4 + ["it"],
    ]
    # The next sentence's number is on the separator before it, as in the released files.
    assert segmented["sentence_map"][:7] == [0, 0, 0, 1, 1, 1, 1]


def test_mentions_are_placed_by_their_words_pieces(tokenizer):
    document = {"sentences": [["ann", "old.", "he"]], "clusters": [[(1, 2), (0, 1)]]}
    segmented = preprocessor(tokenizer).segment(document)
    assert segmented["sentences"] == [["[CLS]", "ann", "old", ".", "he", "[SEP]"]]
    assert segmented["clusters"] == [[[2, 4], [1, 3]]]
    assert segmented["subtoken_map"] == [0, 0, 1, 1, 2, 2]


def test_clusters_that_share_a_mention_are_one(tokenizer):
    clusters = [[(0, 0), (0, 0)], [(1, 1), (2, 2)], [(2, 2), (0, 0)], [(3, 3)]]
    document = {"sentences": [["ann", "she", "he", "it"]], "clusters": clusters}
    segmented = preprocessor(tokenizer).segment(document)["clusters"]
    assert as_sets(segmented) == {frozenset([(1, 1), (2, 2), (3, 3)]), frozenset([(4, 4)])}
    assert sum(map(len, segmented)) == 4


def test_words_without_pieces_keep_their_place(tokenizer):
    document = {"sentences": [["ann", "\u200b", "/."]]}
    segmented = preprocessor(tokenizer).segment(document)
    assert segmented["sentences"] == [["[CLS]", "ann", "[UNK]", ".", "[SEP]"]]


def test_document_without_words_has_no_segments(tokenizer):
    for model_type in MODEL_TYPES:
        for sentences in [[], [[]], [[], []]]:
            tensors = preprocessor(tokenizer, model_type=model_type).tensors(
                {"sentences": sentences}
            )
            assert tensors["input_ids"].shape == (0, 7)


def test_sentences_without_words_are_passed_over(tokenizer):
    document = {"sentences": [[], ["ann"], []], "clusters": [[(0, 0)], []]}
    segmented = preprocessor(tokenizer).segment(document)
    assert segmented["sentences"] == [["[CLS]", "ann", "[SEP]"]]
    assert segmented["clusters"] == [[[1, 1]], []]


def test_document_in_subtokens_is_not_cut_and_has_the_same_defaults(tokenizer):
    document = {
        "sentences": [["[CLS]", "ann", "she", "[SEP]"]],
        "sentence_map": [0, 0, 0, 1],
        "clusters": [[[1, 1], [1, 1]], [[2, 2], [1, 1]]],
    }
    segmented = preprocessor(tokenizer).segment(document)
    assert segmented["sentences"] == document["sentences"]
    assert segmented["sentence_map"] == [0, 0, 0, 1]
    assert segmented["speakers"] == [["-"] * 4] and segmented["doc_key"] == ""
    assert as_sets(segmented["clusters"]) == {frozenset([(1, 1), (2, 2)])}
    assert sum(map(len, segmented["clusters"])) == 2
    assert "speakers" not in document  # It stays the caller's.


def test_speakers_beyond_the_most_share_a_number(tokenizer):
    names = ["a", "b", "c", "d"]
    document = {"sentences": [["he"] * 4], "speakers": [names]}
    for model_type, other in [("independent", 3), ("overlap", 0)]:
        tensors = preprocessor(tokenizer, model_type=model_type, max_num_speakers=4).tensors(
            document
        )
        assert tensors["speaker_ids"][0, 1:5].tolist() == [2, 3, other, other]


def test_genre_is_the_begin_of_the_key_or_the_first(tokenizer):
    for key, number in [("tc/x_0", 5), ("emma", 0), ("", 0)]:
        document = {"sentences": [["he"]], "doc_key": key}
        assert preprocessor(tokenizer).tensors(document)["genre"] == number


def test_preprocessor_of_its_config_is_the_same(tokenizer):
    first = preprocessor(tokenizer, model_type="overlap", genres=["xx"], max_num_speakers=3)
    second = ks.SpanBertCoreferenceResolverPreprocessor.from_config(first.get_config())
    config = second.get_config()
    for name in ["sequence_length", "model_type", "genres", "max_num_speakers"]:
        assert config[name] == first.get_config()[name]


@pytest.mark.parametrize(
    "document, error",
    [
        ({}, "`sentences` must be a list. Received: None"),
        ({"sentences": ["he"]}, "must be lists of strings. Received: .*'he'"),
        ({"sentences": [["he", 3]]}, "must be lists of strings. Received: .*3"),
        ({"sentences": [["he"]], "doc_key": 7}, "`doc_key` must be a str. Received: 7"),
        ({"sentences": [["he"]], "speakers": [["a", "b"]]}, r"Received: speakers\[0\] of 2 for 1"),
        ({"sentences": [["he"]], "speakers": []}, "Received: 0 lists for 1"),
        ({"sentences": [["he"]], "clusters": [[(0, 1)]]}, "within the 1 tokens of the text"),
        ({"sentences": [["he"]], "clusters": [[(1, 0)]]}, r"Received: .*\(1, 0\)"),
        ({"sentences": [["he"]], "clusters": [[0]]}, "must be two integers. Received: .*=0"),
        ({"sentences": [["he"] * 3], "sentence_map": [0]}, "one integer a token, 3 in all"),
        (
            {"sentences": [["he"]], "sentence_map": [0], "clusters": [[(0, 1)]]},
            "within the 1 tokens of the text",
        ),
        (
            {"sentences": [["[CLS]", *["he"] * 6, "[SEP]"]], "sentence_map": [0] * 8},
            "at most the preprocessor's 7 tokens. Received: 8",
        ),
        (
            {"sentences": [["he"]], "sentence_map": [0]},
            r"must be stored with \[CLS\] and \[SEP\]. Received: \['he'\]",
        ),
        ({"sentences": [["he"]], "subtoken_map": [0]}, "must have a `sentence_map`"),
    ],
)
def test_mistake_in_a_document_is_told(tokenizer, document, error):
    with pytest.raises(ValueError, match=error):
        preprocessor(tokenizer).tensors(document)


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"model_type": "both"}, "`model_type` must be one of"),
        ({"sequence_length": 3}, "`sequence_length` must be 4 or more"),
        ({"max_num_speakers": 1}, "`max_num_speakers` must be 2 or more"),
    ],
)
def test_mistake_in_an_argument_names_it(tokenizer, arguments, error):
    with pytest.raises(ValueError, match=error):
        preprocessor(tokenizer, **arguments)

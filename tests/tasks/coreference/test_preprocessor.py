import numpy as np
import pytest
import tiny_resolver
from data_files import to_sets

import keras_spanbert as ks
from keras_spanbert.tasks.coreference.preprocessor import truncate

MODEL_TYPES = ["independent", "overlap"]


@pytest.fixture(scope="module")
def preprocessors(cased_tokenizer):
    cls = ks.SpanBertCoreferenceResolverPreprocessor
    return {name: cls(cased_tokenizer, 128, name) for name in MODEL_TYPES}


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_segments_equal_the_released_script(reference, preprocessors, model_type):
    expected = reference.documents(model_type)
    words = ks.data.coreference.read(reference.folder / "gold.conll")
    assert len(words) == len(expected) == 4
    for document, of_script in zip(words, expected):
        found = preprocessors[model_type].segment(document)
        assert to_sets(found.pop("clusters")) == to_sets(of_script["clusters"])
        assert found == {name: of_script[name] for name in found}
        assert len(found) == 5


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_tensors_equal_the_released_code(reference, preprocessors, model_type):
    for i, document in enumerate(reference.documents(model_type)):
        tensors = preprocessors[model_type].tensors(document)
        expected = reference.arrays(f"inputs/{model_type}_doc{i}")
        assert set(tensors) == set(expected) - {"doc_key"}
        for name, array in tensors.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_documents_are_cut_like_the_released_code(reference, preprocessors, model_type):
    document = reference.documents(model_type)[3]
    for offset in [0, 1, 4]:
        cut = truncate(preprocessors[model_type].tensors(document), offset, 8)
        expected = reference.arrays(f"training/truncated_{model_type}_doc3_offset{offset}")
        for name, array in cut.items():
            np.testing.assert_array_equal(array, expected[name], err_msg=name)
        assert set(expected) - set(cut) == {"loss", "top_span_starts", "top_span_ends"}


def preprocessor(**kwargs):
    arguments = {"sequence_length": 7, **kwargs}
    return ks.SpanBertCoreferenceResolverPreprocessor(tiny_resolver.tokenizer(), **arguments)


@pytest.mark.parametrize(
    "sentences, segments",
    [
        ([["ann", "."], ["she", "was", "old", "."]], [["ann", "."], ["she", "was", "old", "."]]),
        ([["." * 14, "it"]], [["."] * 5, ["."] * 5, ["."] * 4 + ["it"]]),
        ([["ann", "\u200b", "/."]], [["ann", "[UNK]", "."]]),  # Words without pieces, OntoNotes.
        ([[], ["ann", "old."], []], [["ann", "old", "."]]),
    ],
)
def test_segments_end_after_a_sentence_or_a_word(sentences, segments):
    segmented = preprocessor().segment({"sentences": sentences})
    assert segmented["sentences"] == [["[CLS]", *segment, "[SEP]"] for segment in segments]


def test_clusters_with_a_common_mention_are_merged():
    clusters = [[(0, 0), (0, 0)], [(1, 1), (2, 2)], [(2, 2), (0, 0)], [(3, 3)]]
    document = {"sentences": [["ann", "she", "he", "it"]], "clusters": clusters}
    segmented = preprocessor().segment(document)["clusters"]
    assert to_sets(segmented) == [[(1, 1), (2, 2), (3, 3)], [(4, 4)]]


def test_invalid_subtokens_are_unknown():
    document = {"sentences": [["[CLS]", "\ud800", "zzz", "[SEP]"]], "sentence_map": [0] * 4}
    (_, invalid, unknown, _) = preprocessor().tensors(document)["input_ids"][0][:4]
    assert invalid == unknown


def test_subtoken_document_is_not_split_again():
    document = {
        "sentences": [["[CLS]", "ann", "she", "[SEP]"]],
        "sentence_map": [0, 0, 0, 1],
        "clusters": [[[1, 1], [1, 1]], [[2, 2], [1, 1]]],
    }
    segmented = preprocessor().segment(document)
    assert segmented["sentences"] == document["sentences"]
    assert segmented["sentence_map"] == [0, 0, 0, 1]
    assert segmented["speakers"] == [["-"] * 4] and segmented["doc_key"] == ""
    assert to_sets(segmented["clusters"]) == [[(1, 1), (2, 2)]]
    assert "speakers" not in document  # The argument is not changed.


def test_numbers_of_speakers_and_genres():
    names = ["a", "b", "c", "d"]
    document = {"sentences": [["he"] * 4], "speakers": [names]}
    for model_type, other in [("independent", 3), ("overlap", 0)]:
        cutter = preprocessor(model_type=model_type, max_num_speakers=4)
        tensors = cutter.tensors(document)
        assert tensors["speaker_ids"][0, 1:5].tolist() == [2, 3, other, other]
    for key, number in [("tc/x_0", 5), ("emma", 0), ("zz9/a", 0), ("", 0)]:
        document = {"sentences": [["he"]], "doc_key": key}
        assert preprocessor().tensors(document)["genre"] == number
    for key in ["zz/x_0", "zz", "zz_1"]:
        with pytest.raises(ValueError, match=f"one of bc, .* `genres` .--genres.*: '{key}'"):
            preprocessor().tensors({"sentences": [["he"]], "doc_key": key})
    assert preprocessor(genres=("zz",)).tensors(document | {"doc_key": "zz/1"})

"""Every argument of the public names refuses values of other kinds, with the rule and the value."""

import inspect
import math
import re

import numpy as np
import pytest
from tiny_models import VOCABULARY, L, V

import keras_spanbert as ks

TOKENIZER = ks.SpanBertTokenizer([*VOCABULARY, *(f"[unused{i}]" for i in range(1, 9))])
BACKBONE = ks.SpanBertBackbone(V + 8, 1, 2, 6, 7, max_sequence_length=L)
MASKING = ks.SpanMasking(V, mask_token_id=4, scheme="entity")
TEXTS = ["a b", "c d"]
SIZES = dict.fromkeys(["vocabulary_size", "num_layers", "num_heads", "hidden_dim"], 2)
PREPROCESSOR = {"tokenizer": TOKENIZER}
MODEL = {"backbone": BACKBONE}
SQUAD = ks.SpanBertQuestionAnswererPreprocessor(TOKENIZER, L, 2, 3)
RELATIONS = ks.SpanBertRelationExtractorPreprocessor(TOKENIZER, L, "text")
CLASSIFIER = ks.SpanBertTextClassifier(
    BACKBONE, 2, ks.SpanBertTextClassifierPreprocessor(TOKENIZER, L)
)
ANSWERER = ks.SpanBertQuestionAnswerer(BACKBONE, SQUAD)
CHOOSER = ks.SpanBertMultipleChoice(BACKBONE, ks.SpanBertMultipleChoicePreprocessor(TOKENIZER, L))
EXTRACTOR = ks.SpanBertRelationExtractor(BACKBONE, ["no", "yes"], RELATIONS)
TAGGER = ks.SpanBertTokenClassifier(
    BACKBONE, ["O", "B-x"], ks.SpanBertTokenClassifierPreprocessor(TOKENIZER, L)
)
PRETRAINER = ks.SpanBertPretrainer(BACKBONE, ks.SpanBertPretrainerPreprocessor(TOKENIZER, L))
RESOLVER = {"max_segment_len": L, "ffnn_size": 3, "feature_size": 3}
# Functions, and arguments with which they work.
FUNCTIONS = [
    (ks.SpanBertBackbone, {**SIZES, "intermediate_dim": 2}),
    (BACKBONE.flops, {"sequence_length": 4}),
    (ks.SpanMasking, {"vocabulary_size": 9, "mask_token_id": 4}),
    (MASKING.num_predictions, {"sequence_length": 4}),
    (MASKING.drawn_span_lengths, {"batch_size": 2, "sequence_length": 4, "seed": 1}),
    (MASKING.call, {"token_ids": [[5, 6]], "span_marks": [[0, 1]]}),
    (ks.NextSentencePairs, {"vocabulary_size": 9, "sep_token_id": 3}),
    (ks.SpanBoundaryHead, {"vocabulary_size": 9}),
    (ks.SpanBertTokenizer, {
        "vocabulary": VOCABULARY, "sequence_length": None, "special_tokens_in_strings": False,
    }),
    (ks.AdamW, {}), (ks.TwoRateAdam, {}),
    (ks.LinearWarmupDecay, {"peak": 0.1, "warmup_steps": 1, "total_steps": 3}),
    (ks.Batches, {"arrays": (np.ones(4),), "batch_size": 2, "seed": 1}),
    (ks.SpanBertPretrainerPreprocessor, PREPROCESSOR),
    (ks.SpanBertTextClassifierPreprocessor, PREPROCESSOR),
    (ks.SpanBertTokenClassifierPreprocessor, PREPROCESSOR),
    (ks.SpanBertMultipleChoicePreprocessor, PREPROCESSOR),
    (ks.SpanBertQuestionAnswererPreprocessor, PREPROCESSOR),
    (ks.SpanBertRelationExtractorPreprocessor, PREPROCESSOR),
    (ks.SpanBertCoreferenceResolverPreprocessor, PREPROCESSOR),
    (ks.SpanBertPretrainer, MODEL), (ks.SpanBertTextClassifier, {**MODEL, "num_classes": 2}),
    (ks.SpanBertTokenClassifier, {**MODEL, "labels": ["O"]}),
    (ks.SpanBertMultipleChoice, MODEL), (ks.SpanBertQuestionAnswerer, MODEL),
    (ks.SpanBertRelationExtractor, {**MODEL, "relations": ["no", "yes"]}),
    (ks.SpanBertCoreferenceResolver, {**MODEL, **RESOLVER}),
    (CLASSIFIER.fit, {"x": TEXTS, "y": [0, 1], "verbose": 0}),
    (CLASSIFIER.classify, {"texts": TEXTS}),
    (ANSWERER.answer, {"questions": TEXTS, "contexts": TEXTS}),
    (CHOOSER.choose, {"prompts": TEXTS, "choices": [["a", "b"]] * 2}),
    (EXTRACTOR.extract, {
        "texts": TEXTS, "subjects": [(0, 1)] * 2, "objects": [(2, 3)] * 2,
    }),
    (TAGGER.tag, {"texts": TEXTS}), (TAGGER.predict_tags, {"words": [["a"]]}),
    (PRETRAINER.fill, {"texts": ["a [MASK]"]}),
    (PRETRAINER.score, {"texts": ["a [MASK]"], "fillings": [["b"]]}),
    (ks.metrics.glue, {"task": "rte", "labels": ["entailment"], "predictions": ["entailment"]}),
    (ks.metrics.relation, {"labels": ["a"], "predictions": ["a"]}),
    (ks.metrics.semeval2010_task8, {"labels": ["Other"], "predictions": ["Other"]}),
    (ks.metrics.entities, {"gold": [["O"]], "predicted": [["O"]]}),
    (ks.metrics.coreference, {"gold": [[[(0, 0)]]], "predicted": [[[(0, 0)]]]}),
    (ks.metrics.gap, {"examples": [
        {"id": "1", "pronoun": "her", "a_coref": True, "b_coref": False},
    ], "predictions": {}}),
]  # fmt: skip
# Arguments for which Keras has the rules, and those that take any string or value.
OTHERS = {
    *("name", "dtype", "activation", "kernel_initializer", "token_embedding", "verbose", "shuffle"),
    *("callbacks", "validation_data", "class_weight", "x", "y", "sample_weight", "arrays"),
}
ARRAYS = {"token_ids", "span_marks", "unigram_counts"}
STRINGS = {"texts", "words", "no_relation"}


def defaults(function):
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is not p.VAR_KEYWORD}


def values(name, default):
    given = [math.nan, [math.nan], *([] if name in STRINGS else ["a", "0.1"])]
    return given if default is None else [None, *given]


CASES = [
    (function, arguments, name, value)
    for function, arguments in FUNCTIONS
    for name, default in {**arguments, **defaults(function)}.items()
    if name not in OTHERS
    for value in values(name, default)
    # These are valid.
    if (name, value) not in [("global_clipnorm", None), ("clip_norm", None)]
    if (name, value) != ("validation_split", None)
    if not (name == "vocabulary" and isinstance(value, str))  # No such file.
]


def test_functions_accept_their_arguments():
    for function, arguments in FUNCTIONS:
        function(**arguments)


@pytest.mark.parametrize(
    "function, arguments, name, value",
    CASES,
    ids=[f"{f.__qualname__}-{name}-{value}" for f, _, name, value in CASES],
)
def test_values_of_other_kinds_are_refused(function, arguments, name, value):
    with pytest.raises(ValueError) as error:
        function(**{**arguments, name: value})
    assert " must " in str(error.value)
    (item,) = value if isinstance(value, list) else [value]  # Messages may have only the item.
    received = str(error.value).split("Received: ")[1]
    assert str(item) in received or name in ARRAYS  # Messages about arrays have their shapes.


def test_a_checkpoint_takes_a_stream_and_not_its_dataset(tmp_path):
    stream = ks.Batches((np.ones(4),), 2, seed=1)
    ks.TrainingCheckpoint(str(tmp_path), every=1, data=stream).close()
    with pytest.raises(ValueError, match="`data` must be a stream, .* Received: generator"):
        ks.TrainingCheckpoint(str(tmp_path), every=1, data=(batch for batch in stream))
    with pytest.raises(ValueError, match="`every` must be at least 1. Received: every=0"):
        ks.TrainingCheckpoint(str(tmp_path), every=0)


def test_an_unknown_version_of_onnx_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`opset_version` must be .* Received: opset_version=12"):
        CLASSIFIER.export(str(tmp_path / "a.onnx"), format="onnx", opset_version=12)


@pytest.mark.parametrize("value", [None, math.nan, 3, [1]])
def test_other_values_are_no_paths(value):
    data = ks.data
    readers = [
        data.squad.read, data.conll.read, data.tacred.read, data.gap.read, data.swag.read,
        data.coreference.read, data.semeval2010.read, data.semeval2010.read_answers,
        data.columns.read_texts, lambda path: data.glue.read(path, "rte", "dev"), ks.Corpus,
        ks.PreparedCorpus, lambda path: ks.TrainingCheckpoint(path, every=1),
        ks.checkpoints.from_huggingface, ks.checkpoints.from_fairseq,
        ks.checkpoints.from_coreference, ks.SpanBertBackbone.from_preset,
        lambda path: ks.checkpoints.to_huggingface(CLASSIFIER, path),
        CLASSIFIER.save_to_preset, lambda path: ks.serving.export_saved_model(CLASSIFIER, path),
        lambda path: CLASSIFIER.export(path, format="onnx"),
    ]  # fmt: skip
    for read in readers:
        with pytest.raises(ValueError, match=rf"path.*Received: .*{re.escape(str(value))}"):
            read(value)

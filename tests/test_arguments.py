"""Every argument of the public names refuses values of other kinds, with the rule and the value."""

import inspect
import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny_extractor import build as build_extractor
from tiny_models import VOCABULARY, L, V
from tiny_tasks import TASKS

import keras_spanbert as ks

TOKENIZER = ks.SpanBertTokenizer([*VOCABULARY, *(f"[unused{i}]" for i in range(1, 9))])
BACKBONE = ks.SpanBertBackbone(V + 8, 1, 2, 6, 7, max_sequence_length=L)
MASKING = ks.SpanMasking(V, mask_token_id=4, scheme="entity")
MASKS = ks.SpanMasking(V, 4, range(8, V), (0, 2, 3, 4)).call
TEXTS = ["a b", "c d"]
SIZES = dict.fromkeys(["vocabulary_size", "num_layers", "num_heads", "hidden_dim"], 2)
PREPROCESSOR = {"tokenizer": TOKENIZER}
MODEL = {"backbone": BACKBONE}
CLASSIFIER, ANSWERER, CHOOSER, TAGGER = (
    TASKS[name].build() for name in ["texts", "questions", "choices", "words"]
)
EXTRACTOR = build_extractor()
PRETRAINER = ks.SpanBertPretrainer(BACKBONE, ks.SpanBertPretrainerPreprocessor(TOKENIZER, L))
RESOLVER = {"max_segment_len": L, "ffnn_size": 3, "feature_size": 3}
DOCUMENTS = ks.SpanBertCoreferenceResolverPreprocessor(TOKENIZER, L)
COREFERENCE = ks.SpanBertCoreferenceResolver(BACKBONE, DOCUMENTS, max_span_width=3, **RESOLVER)
RESOLVE = COREFERENCE.resolve
WITHOUT = ks.SpanBertCoreferenceResolver(BACKBONE, **RESOLVER)  # Without a preprocessor.
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


# Arguments with values of the right kind that are refused: function, arguments that differ from
# those above, error.
VALID = {**dict(FUNCTIONS), RESOLVE: {"texts": "Ann"}}
VALID |= {MASKS: {"token_ids": [[5, 6]]}, PRETRAINER.fit: {"verbose": 0}}
for method in [COREFERENCE.fit, COREFERENCE.predict_clusters, WITHOUT.score_document]:
    VALID[method] = {}
for method in [DOCUMENTS.tensors, PRETRAINER.preprocessor.call]:
    VALID[method] = {}
NO_DOCUMENT = "must be a dict with `sentences`. Received: 'ann"
NO_RULE = r"at least two names.*Received:.*\['a'\]"
INVALID = [
    (ks.SpanMasking, {"mask_rate": 0.0}, "mask_rate=0.0"),
    (ks.SpanMasking, {"geometric_p": 0}, "geometric_p=0"),
    (ks.SpanMasking, {"mask_token_rate": 0.8, "random_token_rate": 0.3}, "random_token_rate=0.3"),
    (ks.SpanMasking, {"max_predictions": 0}, "max_predictions=0"),
    (ks.SpanMasking, {"num_mask_copies": 0}, "num_mask_copies=0"),
    (ks.SpanMasking, {"seed": 1.5}, "seed=1.5"),
    (ks.SpanMasking, {"mask_token_id": 9}, r"\[0, 9\). Received: mask_token_id=9"),
    (MASKS, {"token_ids": [[5, V]]}, f"ids from 5 to {V}"),
    (MASKS, {"token_ids": [[5.0, 7.0]]}, "integers of shape .* Received: dtype=float"),
    (MASKS, {"token_ids": np.array([["a", "b"]])}, "integers of shape .* Received: dtype=<U1"),
    (MASKS, {"token_ids": [[5, 6, 7], [5, 6], [6, 7]]}, "the same length.* lengths 2, 3"),
    *((MASKS, {"seed": seed}, "an int or two ints") for seed in [1.5, True, [1, 2, 3], 2**70]),
    *(
        (MASKS, {"unigram_counts": counts}, f"`unigram_counts` must be {V} counts, none nega")
        for counts in [np.ones(V - 1), -np.ones(V), np.eye(V)[3], [math.nan] * V]
    ),
    (ks.NextSentencePairs, {"short_rate": 2}, r"\[0, 1\]. Received: short_rate=2"),
    (ks.NextSentencePairs, {"sentence_end_token_ids": [9]}, r"\[0, 9\). Received: .*=\(9,\)"),
    (ks.SpanBertBackbone, {"dropuot": 0.1}, "has no such argument. Received: dropuot=0.1"),
    (ks.SpanBertTokenClassifier, {"lables": 3}, "TokenClassifier` has no .*: lables=3"),
    (ks.SpanBoundaryHead, {"token_embedding": keras.layers.ReversibleEmbedding(5, 6)}, "size=9"),
    (ks.SpanBertTokenizer, {"vocabulary": [*VOCABULARY, "\ud800"]}, r"'\\ud800' on line 14"),
    (ks.SpanBertTokenizer, {"vocabulary": [*VOCABULARY, 7]}, "7 on line 14"),
    (ks.SpanBertTokenizer, {"vocabulary": [*VOCABULARY, "a"]},
     "'a' on line 6 and again on line 14"),
    (ks.SpanBertTokenizer, {"vocabulary": VOCABULARY[:4]}, r"\[MASK\]"),
    (ks.LinearWarmupDecay, {"warmup_steps": -1}, "warmup_steps=-1, total_steps=3"),
    (ks.LinearWarmupDecay, {"warmup_steps": 4}, "warmup_steps=4, total_steps=3"),
    (ks.LinearWarmupDecay, {"peak": math.inf}, "peak=inf"),
    *(
        (ks.Batches, {"batch_size": size}, f"1 to the number of rows, 4. Received: .*={size}$")
        for size in [5, 10**12, 0]
    ),
    (ks.Batches, {"arrays": (np.ones(0),)}, "at least one row. Received: num_rows=0"),
    (ks.SpanBertTextClassifierPreprocessor, {"sequence_length": 2}, "an integer of at least 3"),
    (ks.SpanBertTextClassifierPreprocessor, {"sequence_length": True}, "be an integer.*=True"),
    (ks.SpanBertQuestionAnswererPreprocessor, {"doc_stride": 0}, "at least 1. .*: doc_stride=0"),
    (ks.SpanBertQuestionAnswererPreprocessor,
     {"sequence_length": 24, "doc_stride": 16, "max_question_length": 6},
     "must allow the question.*length=24.*doc_stride=16"),
    (ks.SpanBertMultipleChoicePreprocessor, {"sequence_length": 4}, "at least 5.*_length=4"),
    (ks.SpanBertTokenClassifierPreprocessor, {"sequence_length": 16, "doc_stride": 15},
     "at most .* less 2 .* doc_stride=15"),
    (ks.SpanBertCoreferenceResolverPreprocessor, {"sequence_length": 3}, "must be 4 or more"),
    (ks.SpanBertCoreferenceResolverPreprocessor, {"max_num_speakers": 1}, "must be 2 or more"),
    (ks.SpanBertCoreferenceResolver, {"max_span_width": 0}, "`max_span_width` must be 1 or more"),
    (ks.SpanBertCoreferenceResolver, {"top_span_ratio": 0.0}, r"_ratio` must be in \(0, 1\]"),
    (ks.SpanBertCoreferenceResolver, {"dropout_rate": 1.0}, r"_rate` must be in \[0, 1\)"),
    (ks.SpanBertCoreferenceResolver, {"max_segment_len": L + 1}, f"at most the backbone's {L}"),
    (ks.SpanBertCoreferenceResolver, {"max_segment_len": L - 1, "preprocessor": DOCUMENTS},
     f"`max_segment_len` must be the preprocessor's, {L}"),
    (ks.SpanBertCoreferenceResolver, {"genres": ()}, "`genres` must have at least one"),
    (ks.SpanBertTextClassifier, {"num_classes": 0}, "at least 1"),
    (ks.SpanBertTextClassifier, {"num_classes": 3, "class_names": ["a", "b"]},
     "a list of 3 names, as `num_classes`"),
    (ks.SpanBertTextClassifier, {"num_classes": None, "class_names": ["a"]}, NO_RULE),
    (ANSWERER.answer, {"top_k": 0}, "`top_k` must be at least 1. Received: top_k=0"),
    (ANSWERER.answer, {"questions": "who"}, "list of strings, as `contexts`. .*'who'"),
    (PRETRAINER.fit, {"x": "text"}, "at least one row .* Received: x='text', of type str"),
    (PRETRAINER.fit, {"x": ["a", 7]}, r"must be a string. Received: x\[1\]=7, of type int"),
    (PRETRAINER.fit, {"x": iter([[7]])}, r"must have batches of the model's arrays.*: \[7\]"),
    (PRETRAINER.fit, {"x": tf.data.Dataset.from_tensors([7])}, "of strings, .*: element_spec"),
    (PRETRAINER.fit, {"x": TEXTS, "y": [1, 1]}, r"must be None .* Received: y=\[1, 1"),
    (PRETRAINER.fit, {"x": iter([TEXTS]), "y": [1]}, ".*list_iterator.* include it"),
    (PRETRAINER.fit, {"x": TEXTS, "validation_split": 1.5}, "validation_split=1.5 of 2 rows"),
    (PRETRAINER.preprocessor.call, {"x": TEXTS, "y": [1]}, "because labels and weights are made"),
    (PRETRAINER.preprocessor.call, {"x": TEXTS, "sample_weight": [1.0]}, "must be None because"),
    (PRETRAINER.fill, {"texts": "no blank"}, "0 masks"),
    (PRETRAINER.fill, {"texts": "a " * 20 + "[MASK]"}, "21 tokens"),
    (PRETRAINER.score, {"fillings": [["b d"]]}, r"\[1\] in .a \[MASK\].. Received: .*of \[2\]"),
    (PRETRAINER.score, {"texts": "a [MASK]", "fillings": "a"}, "fillings=.a., of type str"),
    (RESOLVE, {"texts": [3]}, r"a string, or a list of sentences.*Received: texts\[0\]=3"),
    (RESOLVE, {"texts": [["Ann", "left"]]}, "each a list of words"),
    (RESOLVE, {"genre": "novel"}, r"one of the resolver's, \['bc', .*'novel'"),
    (RESOLVE, {"texts": ["Ann"], "genre": ["nw", "nw"]}, "each of the 1 texts. Received: 2"),
    (RESOLVE, {"texts": ["Ann"], "speakers": [[(0, 4, "Ann")]]}, "in the 3 characters of the text"),
    (RESOLVE, {"texts": ["Ann"], "speakers": [["Ann"]]}, r"a list of \(start, end, name\)"),
    (RESOLVE, {"texts": [[["Ann"]]], "speakers": [[["A", "B"]]]}, r"one for each word: \[1\]"),
    (RESOLVE, {"texts": [[["Ann"]]], "speakers": [["A"]]}, "a list of names for each sentence"),
    (RESOLVE, {"max_spans_in_memory": 0}, "`max_spans_in_memory` must be at least 1"),
    (RESOLVE, {"mentions": [(0, 4)]}, r"`mentions\[0\]` must be .*in the 3 characters.*\(0, 4\)"),
    (RESOLVE, {"mentions": [(-1, 2)]}, r"Received: \(-1, 2\)"),
    (RESOLVE, {"mentions": [(2, 2)]}, r"not empty.*Received: \(2, 2\)"),
    (RESOLVE, {"mentions": [(True, 2)]}, r"a list of \(start, end\)"),
    (RESOLVE, {"mentions": 3}, "Received: 3"),
    (RESOLVE, {"texts": "a b", "mentions": [(1, 2)]}, r"contain a word. Received: \(1, 2\), ' '"),
    (RESOLVE, {"texts": ["Ann"], "mentions": [(0, 1), (1, 2)]}, "each of the 1 texts. Received: 2"),
    (RESOLVE, {"texts": ["Ann"], "mentions": [(0, 3)]}, r"a list of \(start, end\).*Received: 0"),
    (RESOLVE, {"texts": [[["Ann"]]], "mentions": [[(0, 2)]]}, "in the 1 words of the text"),
    (RESOLVE, {"texts": ["ann she bob he it."], "mentions": [[(0, 14)]]},
     r"`mentions\[0\]` must have at most .*`max_span_width` of 3 tokens.*4 tokens, 'ann she"),
    (RESOLVE, {"min_link_score": 1.5}, r"`min_link_score` must be a number in \[0, 1\].*=1.5"),
    (RESOLVE, {"min_link_score": math.nan}, "min_link_score=nan"),
    (RESOLVE, {"min_link_score": True}, "min_link_score=True"),
    (DOCUMENTS.tensors, {"document": {}}, "`sentences` must be a list. Received: None"),
    (DOCUMENTS.tensors, {"document": {"sentences": [["a"]], "clusters": [[(0, 1)]]}},
     "within the 1 tokens of the text"),
    (DOCUMENTS.tensors,
     {"document": {"sentences": [["[CLS]", *"aaaaaaaaaa", "[SEP]"]], "sentence_map": [0] * 12}},
     "at most the preprocessor's 11 tokens. Received: 12"),
    (DOCUMENTS.tensors, {"document": {"sentences": [["a"]], "sentence_map": [0]}},
     r"must be stored with \[CLS\] and \[SEP\]. Received: \['a'\]"),
    (DOCUMENTS.tensors, {"document": {"sentences": [["a"]], "subtoken_map": [0]}},
     "must have a `sentence_map`"),
    (COREFERENCE.fit, {"x": ["ann left ."]}, NO_DOCUMENT),
    (COREFERENCE.predict_clusters, {"documents": ["ann left ."]}, NO_DOCUMENT),
    (WITHOUT.score_document, {"document": {"sentences": [["a"]]}}, "Strings need a preprocessor"),
    (ks.metrics.coreference, {"gold": [], "predicted": []}, "contain documents. Received: none"),
    (ks.metrics.coreference, {"gold": [[], []]}, "the same documents. Received: 2 and 1 of them"),
    (ks.metrics.coreference, {"gold": [[[(0, 1, 2)]]]}, r"Received: gold\[0\]\[0\]\[0\]=\(0"),
    (ks.metrics.coreference, {"predicted": [[[(0, 0), (2, 1)]]]}, r"before it. .*\[1\]=\(2, 1\)"),
    (ks.metrics.coreference, {"gold": [[[(0.5, 1)]]]}, "must be a pair of integers"),
    (ks.metrics.coreference, {"predicted": {"a": 1}},
     "lists of documents.*predicted={'a': 1}, whi"),
    (ks.metrics.coreference, {"gold": [["ab"]]}, r"\[0\]='ab', which is not a list of mentions"),
    (ks.metrics.entities, {"gold": [], "predicted": []}, "one or more. Received: 0 and 0"),
    (ks.metrics.entities, {"gold": [["O", "O"]]}, "same words. .*: 2 and 1 tags in sentence 0"),
    (ks.metrics.entities, {"gold": [["person"]]}, r"O or B-type, .*: gold\[0\]\[0\]='person'"),
    (ks.metrics.entities, {"predicted": [[3]]}, r"predicted\[0\]\[0\]=3"),
    (ks.metrics.glue, {"labels": [], "predictions": []}, "one or more. Received: 0 and 0"),
    (ks.metrics.glue, {"labels": ["neutral"]}, r"of entailment, not_entailment.*\[0\]='neutral'"),
    (ks.metrics.glue, {"predictions": [2]}, r"indices below 2. Received: predictions\[0\]=2"),
    (ks.metrics.glue, {"task": "sts-b", "labels": [1.0, 2.0], "predictions": [1.0, math.nan]},
     "`predictions` must be finite numbers"),
    (ks.metrics.relation, {"predictions": ["a", "b"]}, "one or more. Received: 1 and 2"),
    (ks.metrics.relation, {"labels": [0], "predictions": [0]}, r"all integers.*='no_relation'"),
    (ks.metrics.relation, {"predictions": [1]}, r"labels\[0\]='a', predictions\[0\]=1"),
    (ks.metrics.semeval2010_task8, {"predictions": ["Cause-Effect"]},
     r"by \(e1,e2\) or .*-Effect'"),
    (ks.metrics.semeval2010_task8, {"labels": ["Love-Hate(e1,e2)"]}, r"labels\[0\]='Love-Hate\("),
    (ks.metrics.semeval2010_task8, {"labels": [], "predictions": []},
     "one or more. Received: 0 an"),
]  # fmt: skip


@pytest.mark.parametrize("function, changes, message", INVALID)
def test_invalid_values_are_refused(function, changes, message):
    with pytest.raises(ValueError, match=message):
        function(**{**VALID[function], **changes})


def test_a_checkpoint_takes_a_stream_and_not_its_dataset(tmp_path):
    stream = ks.Batches((np.ones(4),), 2, seed=1)
    ks.TrainingCheckpoint(str(tmp_path), every=1, data=stream).close()
    with pytest.raises(ValueError, match="`data` must be a stream, .* Received: generator"):
        ks.TrainingCheckpoint(str(tmp_path), every=1, data=(batch for batch in stream))
    with pytest.raises(ValueError, match="`every` must be a positive integer. Received: every=0"):
        ks.TrainingCheckpoint(str(tmp_path), every=0)


@pytest.mark.parametrize("value", [None, math.nan, 3, [1]])
def test_other_values_are_no_paths(value):
    data = ks.data
    readers = [
        data.squad.read, data.conll.read, data.tacred.read, data.swag.read,
        data.coreference.read, data.semeval2010.read, data.semeval2010.read_answers,
        data.columns.read_texts, lambda path: data.glue.read(path, "rte", "dev"), ks.Corpus,
        ks.PreparedCorpus, lambda path: ks.TrainingCheckpoint(path, every=1),
        ks.checkpoints.from_huggingface, ks.checkpoints.from_fairseq,
        ks.checkpoints.from_coreference, ks.SpanBertBackbone.from_preset,
        lambda path: ks.checkpoints.to_huggingface(CLASSIFIER, path),
        CLASSIFIER.save_to_preset, lambda path: ks.serving.export_saved_model(CLASSIFIER, path),
    ]  # fmt: skip
    for read in readers:
        with pytest.raises(ValueError, match=rf"path.*Received: .*{re.escape(str(value))}"):
            read(value)

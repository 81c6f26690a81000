"""keras-hub's own tests pass for the backbone, the tokenizer, layers, preprocessors and tasks."""

import grain
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_hub.src.tests import test_case
from tiny_models import VOCABULARY

import keras_spanbert as ks
from keras_spanbert.layers.attention import SelfAttention
from keras_spanbert.layers.tied_head import MaskedLMHead
from keras_spanbert.layers.transformer_layer import TransformerLayer

L, H = 11, 6
TOKENIZER = ks.SpanBertTokenizer([*VOCABULARY, *(f"[unused{i}]" for i in range(1, 7))])
V = TOKENIZER.vocabulary_size()
TEXTS = ["a bc", "d e f g", "b"]
LABELS, NAMES, WEIGHTS = [0, 1, 1], ["no", "yes", "yes"], [1.0, 0.5, 2.0]
TOKENS = [["a", "bc", ""], ["d", "e", "f"], ["g", "", ""]]
QUESTIONS = {"question": TEXTS, "context": ["a b c", "d " * 20, "e f"]}
ANSWERS = {"text": ["b", "d", ""], "answer_start": [2, 2, -1]}
SPANS = {"subject": [[0, 1], [0, 1], [0, 1]], "object": [[2, 4], [2, 3], [0, 1]]}
EXAMPLES = {
    "token": TOKENS,
    **{name: [0, 1, 0] for name in ["subj_start", "subj_end"]},
    **{name: [1, 2, 0] for name in ["obj_start", "obj_end"]},
    **{name: ["A", "A", "A"] for name in ["subj_type", "obj_type"]},
}
SYMBOLS = ["SUBJ_START", "SUBJ_END", "OBJ_START", "OBJ_END", "SUBJ=A", "OBJ=A"]
SYMBOLS = {name: f"[unused{i}]" for i, name in enumerate(SYMBOLS, start=1)}
TYPED = {"mode": "ner_text", "symbols": SYMBOLS}
NAMED = {"label_names": ["no", "yes"]}
TAGGED = {"label_names": ["O", "B-x"]}
TAGS = [["O", "B-x", ""], ["O", "O", "B-x"], ["O", "", ""]]
# All tokens are masked, so that the masks do not depend on the random draws.
CERTAIN = {"mask_rate": 1.0, "mask_token_rate": 1.0, "random_token_rate": 0.0}
TEXT = ks.SpanBertTextClassifierPreprocessor
ANSWER = ks.SpanBertQuestionAnswererPreprocessor, {"doc_stride": 3, "max_question_length": 3}
CHOICE = ks.SpanBertMultipleChoicePreprocessor
RELATION = ks.SpanBertRelationExtractorPreprocessor
WORD = ks.SpanBertTokenClassifierPreprocessor
CHOICES = {"prompt": TEXTS, "choices": [["a", "b"], ["c d", "e"], ["f", "g"]]}
# Preprocessor, its arguments, and the arguments of its call.
PREPROCESSORS = {
    "texts": (TEXT, {}, TEXTS),
    "classes": (TEXT, {}, (TEXTS, LABELS)),
    "weights": (TEXT, NAMED, (TEXTS, NAMES, WEIGHTS)),
    "numbers": (TEXT, {}, (TEXTS, WEIGHTS)),
    "pairs": (TEXT, {}, ({"text": TEXTS, "text_pair": TEXTS[::-1]}, LABELS)),
    "several": (TEXT, {**NAMED, "multi_label": True}, (TEXTS, [[0, 1], [1, 0], [1, 1]])),
    "choices": (CHOICE, {}, (CHOICES, LABELS)),
    "relations": (RELATION, {"mode": "text", **NAMED}, ({"text": TEXTS, **SPANS}, NAMES)),
    "examples": (RELATION, TYPED, (EXAMPLES, LABELS)),
    "untagged": (WORD, {}, TEXTS),
    "masks": (ks.SpanBertPretrainerPreprocessor, CERTAIN, TEXTS),
}  # fmt: skip
# keras-hub's test maps single rows, too. These preprocessors take only batches.
BATCHES = {
    # A question has as many rows as windows.
    "questions": (*ANSWER, (QUESTIONS, ANSWERS)),
    # The words of a single row would be read as texts.
    "words": (WORD, TAGGED, ({"words": TOKENS}, TAGS)),
    # Pairs take their second segments from other rows.
    "next sentences": (
        ks.SpanBertPretrainerPreprocessor, {**CERTAIN, "next_sentence": True, "seed": 1}, TEXTS,
    ),
}  # fmt: skip
# Task, its arguments, and the name of its preprocessor and data.
TASKS = {
    "classes": (ks.SpanBertTextClassifier, {"num_classes": 2}, (3, 2)),
    "weights": (ks.SpanBertTextClassifier, {"class_names": ["no", "yes"]}, (3, 2)),
    "numbers": (ks.SpanBertTextClassifier, {"num_classes": 1}, (3, 1)),
    "pairs": (ks.SpanBertTextClassifier, {"num_classes": 2}, (3, 2)),
    "several": (ks.SpanBertTextClassifier, {"num_classes": 2, "multi_label": True}, (3, 2)),
    "questions": (ks.SpanBertQuestionAnswerer, {}, None),
    "choices": (ks.SpanBertMultipleChoice, {}, (3, 2)),
    "relations": (ks.SpanBertRelationExtractor, {"relations": ["no", "yes"]}, (3, 2)),
    "examples": (ks.SpanBertRelationExtractor, {"relations": ["no", "yes"]}, (3, 2)),
    "words": (ks.SpanBertTokenClassifier, {"labels": ["O", "B-x"]}, (3, L, 2)),
    "masks": (ks.SpanBertPretrainer, {"position_dim": 3}, {"mlm": (3, L, V), "sbo": (3, L, V)}),
}


@pytest.fixture
def case():
    keras.utils.set_random_seed(1)
    return test_case.TestCase("run_layer_test")  # The constructor needs the name of any method.


def backbone(**kwargs):
    return ks.SpanBertBackbone(V, 1, 2, H, 7, max_sequence_length=L, dropout=0.0, **kwargs)


def preprocessor(name, sequence_length=L):
    cls, arguments, _ = {**PREPROCESSORS, **BATCHES}[name]
    return cls(TOKENIZER, sequence_length=sequence_length, **arguments)


def test_backbone(case):
    ids = keras.ops.ones((2, 5), "int32")
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": H, "intermediate_dim": 7}
    case.run_backbone_test(
        ks.SpanBertBackbone,
        {"vocabulary_size": 10, "max_sequence_length": 5, **sizes},
        {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids},
        expected_output_shape=(2, 5, H),
    )


# Tokens of `dtype="string"` cannot be tested: keras-hub has no `detokenize` for them.
@pytest.mark.parametrize("length, detokenized", [
    (None, ["a bc", "d e f g", "b"]),
    (4, ["a bc [PAD]", "d e f g", "b [PAD] [PAD] [PAD]"]),
])  # fmt: skip
def test_tokenizer(case, length, detokenized):
    arguments = {"vocabulary": VOCABULARY, "sequence_length": length}
    case.run_preprocessing_layer_test(
        ks.SpanBertTokenizer, arguments, TEXTS, expected_detokenize_output=detokenized
    )


@pytest.mark.parametrize("name", PREPROCESSORS)
def test_preprocessor(case, name):
    cls, arguments, data = PREPROCESSORS[name]
    case.init_kwargs = {"tokenizer": TOKENIZER, "sequence_length": L, **arguments}
    case.run_preprocessor_test(cls, case.init_kwargs, data)


@pytest.mark.parametrize("name", BATCHES)
def test_preprocessor_of_batches(case, name):
    layer, data = preprocessor(name), BATCHES[name][-1]
    case.run_serialization_test(layer)
    # Without a seed, each call of the pretrainer's preprocessor draws new pairs.
    kwargs = {"seed": 5} if name == "next sentences" else {}

    def call(*given):
        return layer(*given, **kwargs)

    given = data if isinstance(data, tuple) else (data,)
    expected = call(*given)
    found = tf.data.Dataset.from_tensor_slices(given).batch(3).map(call).get_single_element()
    case.assertAllClose(expected, found)
    (found,) = grain.MapDataset.source([given]).map(lambda given: call(*given))
    test_case.assert_grain_safe_types(found)
    case.assertAllClose(expected, found)


def test_coreference(case):
    """Documents are nested Python structures, which `tf.data` cannot hold."""
    layer = ks.SpanBertCoreferenceResolverPreprocessor(TOKENIZER, sequence_length=L)
    case.run_serialization_test(layer)
    sizes = {"max_segment_len": L, "ffnn_size": 5, "feature_size": 3}
    resolver = ks.SpanBertCoreferenceResolver(backbone(), layer, **sizes)
    case.run_serialization_test(resolver)


@pytest.mark.parametrize("name", TASKS)
def test_task(case, name):
    cls, arguments, shape = TASKS[name]
    data = {**PREPROCESSORS, **BATCHES}[name][-1]
    case.run_task_test(
        cls,
        {"backbone": backbone(), "preprocessor": preprocessor(name), **arguments},
        data if isinstance(data, tuple) else (data,),
        expected_output_shape=shape,
    )


def test_span_masking(case):
    arguments = {"vocabulary_size": V, "mask_token_id": 4, **CERTAIN}
    token_ids = np.array([[2, 5, 6, 7, 3, 0], [2, 8, 9, 10, 11, 3]], "int32")
    case.run_preprocessing_layer_test(ks.SpanMasking, arguments, token_ids)


def test_next_sentence_pairs(case):
    """Single rows cannot be tested: pairs take their second segments from other rows."""
    layer = ks.NextSentencePairs(vocabulary_size=V, sep_token_id=3)
    case.run_serialization_test(layer)
    token_ids = np.array([[2, 5, 6, 7, 8, 3], [2, 8, 9, 10, 11, 3]], "int32")
    expected = layer(token_ids, seed=1)
    (found,) = grain.MapDataset.source([token_ids]).map(lambda x: layer(x, seed=1))
    test_case.assert_grain_safe_types(found)
    case.assertAllClose(expected, found)


@pytest.mark.parametrize("cls, arguments, inputs, shape, num_weights", [
    (ks.SpanBoundaryHead, {"vocabulary_size": V, "position_dim": 5},
     ["span_left", "span_right", "span_offsets"], (2, 3, V), 11),
    (MaskedLMHead, {"vocabulary_size": V}, ["mask_positions"], (2, 3, V), 6),
    (TransformerLayer, {"num_heads": 2, "intermediate_dim": 5}, [], (2, 7, 4), 16),
    (SelfAttention, {"num_heads": 2}, [], (2, 7, 4), 8),
])  # fmt: skip
def test_layer(case, cls, arguments, inputs, shape, num_weights):
    x = keras.random.uniform((2, 7, 4))
    if inputs:
        x = {"sequence_output": x, **{name: keras.ops.ones((2, 3), "int32") for name in inputs}}
    case.run_layer_test(
        cls, arguments, x, expected_output_shape=shape, expected_num_trainable_weights=num_weights
    )


def test_uncompiled_models_predict_and_are_saved(tmp_path):
    model = ks.SpanBertTextClassifier(backbone(), 2, preprocessor("classes"), compile=False)
    logits = model.predict(TEXTS, verbose=0)
    with pytest.raises(ValueError, match="You must call `compile"):
        model.fit(TEXTS, LABELS)
    with pytest.raises(ValueError, match=r"`compile\(\)`"):
        model.evaluate(TEXTS, LABELS)
    model.save_to_preset(tmp_path / "preset")
    again = ks.SpanBertTextClassifier.from_preset(tmp_path / "preset")
    np.testing.assert_allclose(again.predict(TEXTS, verbose=0), logits, atol=1e-6)

"""keras-hub's own tests pass for the backbone, the tokenizer, layers, preprocessors and tasks."""

import functools

import grain
import keras
import numpy as np
import pytest
import tensorflow as tf
import tiny_chooser
import tiny_classifier
import tiny_resolver
import tiny_tagger
from keras_hub.src.tests import test_case
from tiny_models import VOCABULARY, L, V, backbone, tokenizer
from tiny_tasks import TASKS

import keras_spanbert as ks
from keras_spanbert.layers.attention import SelfAttention
from keras_spanbert.layers.tied_head import MaskedLMHead
from keras_spanbert.layers.transformer_layer import TransformerLayer

TEXTS = ["a bc", "d e f g", "b"]
WEIGHTS = [1.0, 0.5, 2.0]
# All tokens are masked, so that the masks do not depend on the random draws.
CERTAIN = {"mask_rate": 1.0, "mask_token_rate": 1.0, "random_token_rate": 0.0}


def build_pretrainer(objectives=None, **kwargs):
    objectives = objectives or {}
    arguments = {**CERTAIN, **objectives, **kwargs}
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer(), L, **arguments)
    return ks.SpanBertPretrainer(backbone(), preprocessor, position_dim=3, **objectives)


# A function that builds a model, and the arguments of a call of its preprocessor.
CASES = {
    **{name: (task.build, task.forms["columns"]) for name, task in TASKS.items()},
    "texts_with_several_labels": (
        tiny_classifier.build_multi_label, TASKS["texts_with_several_labels"].forms["numbers"],
    ),
    "choices": (tiny_chooser.build, ({"prompt": TEXTS, "choices": [TEXTS] * 3}, [0, 1, 2])),
    "weights": (tiny_classifier.build, (TEXTS, ["bad", "good", "good"], WEIGHTS)),
    "numbers": (functools.partial(tiny_classifier.build, num_classes=1), (TEXTS, WEIGHTS)),
    "pairs": (tiny_classifier.build, ({"text": TEXTS, "text_pair": TEXTS[::-1]}, [0, 1, 1])),
    "masks": (build_pretrainer, (TEXTS,)),
    "untagged": (tiny_tagger.build, (TEXTS,)),
    "next sentences": (
        functools.partial(build_pretrainer, {"next_sentence": True}, seed=1), (TEXTS,),
    ),
}  # fmt: skip
# keras-hub's test maps single rows, too, and these preprocessors take only batches: a question has
# several rows, the words of a row would be read as texts, and pairs need texts of other rows.
BATCHES = ["questions", "words", "next sentences"]


@pytest.fixture
def case():
    keras.utils.set_random_seed(1)
    return test_case.TestCase("run_layer_test")  # The constructor needs the name of any method.


def test_backbone(case):
    ids = keras.ops.ones((2, 5), "int32")
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
    case.run_backbone_test(
        ks.SpanBertBackbone,
        {"vocabulary_size": 10, "max_sequence_length": 5, **sizes},
        {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids},
        expected_output_shape=(2, 5, 6),
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


@pytest.mark.parametrize("name", [name for name in CASES if name not in BATCHES])
def test_preprocessor(case, name):
    build, data = CASES[name]
    layer = build().preprocessor
    case.init_kwargs = {**layer.get_config(), "tokenizer": layer.tokenizer}
    case.run_preprocessor_test(type(layer), case.init_kwargs, data)


@pytest.mark.parametrize("name", BATCHES)
def test_preprocessor_of_batches(case, name):
    build, given = CASES[name]
    layer = build().preprocessor
    case.run_serialization_test(layer)
    # Without a seed, each call of the pretrainer's preprocessor draws new pairs.
    call = functools.partial(layer, **({"seed": 5} if name == "next sentences" else {}))
    expected = call(*given)
    dataset = tf.data.Dataset.from_tensor_slices(given).batch(10)
    case.assertAllClose(expected, dataset.map(call).get_single_element())
    (found,) = grain.MapDataset.source([given]).map(lambda given: call(*given))
    test_case.assert_grain_safe_types(found)
    case.assertAllClose(expected, found)


def test_coreference(case):
    """Documents are nested Python structures, which `tf.data` cannot hold."""
    resolver = tiny_resolver.build()
    case.run_serialization_test(resolver.preprocessor)
    case.run_serialization_test(resolver)


@pytest.mark.parametrize("name", [x for x in CASES if x not in ("untagged", "next sentences")])
def test_task(case, name):
    build, data = CASES[name]
    model = build()
    arguments = {name: getattr(model, name) for name in model.config_names}
    arguments |= {"backbone": model.backbone, "preprocessor": model.preprocessor}
    case.run_task_test(type(model), arguments, data)


def test_span_masking(case):
    arguments = {"vocabulary_size": V, "mask_token_id": 4, **CERTAIN}
    token_ids = np.array([[2, 5, 6, 7, 3, 0], [2, 8, 9, 10, 11, 3]], "int32")
    case.run_preprocessing_layer_test(ks.SpanMasking, arguments, token_ids)


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
    model = tiny_classifier.build(compile=False)
    texts, labels = tiny_classifier.rows(3)
    logits = model.predict(texts, verbose=0)
    with pytest.raises(ValueError, match="You must call `compile"):
        model.fit(texts, labels)
    with pytest.raises(ValueError, match=r"`compile\(\)`"):
        model.evaluate(texts, labels)
    model.save_to_preset(tmp_path)
    again = ks.SpanBertTextClassifier.from_preset(tmp_path)
    np.testing.assert_allclose(again.predict(texts, verbose=0), logits, atol=1e-6)

"""Everything public that Keras can clone and save comes back the same, on any backend."""

import importlib.util
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_spanbert
from keras_spanbert.layers.transformer_layer import TransformerLayer

V, L = 13, 11
VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##c d e f g h".split()


def tokenizer():
    return keras_spanbert.SpanBertTokenizer(VOCABULARY)


def backbone():
    sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 6, "intermediate_dim": 7}
    return keras_spanbert.SpanBertBackbone(V, max_sequence_length=L, **sizes)


def transformer_layer():
    inputs = keras.Input((None, 6))
    return keras.Model(inputs, TransformerLayer(intermediate_dim=7, num_heads=2)(inputs))


def pretrainer():
    arguments = {"sequence_length": L, "max_predictions": 3, "seed": 1}
    preprocessor = keras_spanbert.SpanBertPretrainerPreprocessor(tokenizer(), **arguments)
    model = keras_spanbert.SpanBertPretrainer(backbone(), preprocessor, position_dim=3)
    schedule = keras_spanbert.LinearWarmupDecay(1e-3, warmup_steps=2, total_steps=5)
    model.compile(keras_spanbert.AdamW(schedule))
    return model


def answerer():
    preprocessor = keras_spanbert.SpanBertQuestionAnswererPreprocessor(
        tokenizer(), sequence_length=L, doc_stride=2, max_question_length=3
    )
    return keras_spanbert.SpanBertQuestionAnswerer(backbone(), preprocessor, null_threshold=1.5)


def model_of_a_user():
    encoder = backbone()
    positions = {name: keras.Input((None,), dtype="int32", name=name) for name in POSITIONS}
    head = keras_spanbert.SpanBoundaryHead(
        token_embedding=encoder.token_embedding, position_dim=3, name="sbo_head"
    )
    logits = head(encoder(encoder.input), *(positions[name] for name in POSITIONS))
    return keras.Model({**encoder.input, **positions}, logits)


POSITIONS = ["span_left", "span_right", "span_offsets"]
MODELS = {
    build.__name__: build
    for build in [backbone, transformer_layer, pretrainer, answerer, model_of_a_user]
}


def inputs(model):
    if not isinstance(model.input, dict):
        return np.random.default_rng(0).normal(size=(2, L, 6)).astype("float32")
    ones = {"token_ids": np.arange(2 * L).reshape(2, L) % V, "padding_mask": np.ones((2, L))}
    ones["segment_ids"] = np.zeros((2, L))
    positions = {name: np.full((2, 3), 4) for name in model.input if name not in ones}
    return {name: x.astype("int32") for name, x in {**ones, **positions}.items()}


def outputs(model):
    found = keras.tree.flatten(model(inputs(model)))
    return [keras.ops.convert_to_numpy(x) for x in found]


def write_files(folder):
    """Files of all models, and what these compute."""
    expected = {}
    for name, build in MODELS.items():
        model = build()
        if model.compiled:
            model.optimizer.build(model.trainable_variables)
        model.save(folder / f"{name}.keras")
        expected.update({f"{name}_{i}": x for i, x in enumerate(outputs(model))})
    np.savez(folder / "expected.npz", **expected)


@pytest.mark.filterwarnings("error::UserWarning:keras")
def test_files_load(tmp_path):
    write_files(tmp_path)
    check_files(tmp_path)


# Those of TensorFlow load on the others in test_version_0_1.py too, in this process.
@pytest.mark.once
@pytest.mark.slow
def test_files_load_in_another_process_on_another_backend(tmp_path):
    write_files(tmp_path)
    others = [name for name in ["torch", "jax"] if importlib.util.find_spec(name)]
    backend = [*others, keras.backend.backend()][0]
    command = [sys.executable, "-W", "error::UserWarning:keras", __file__, str(tmp_path)]
    subprocess.run(command, env={**os.environ, "KERAS_BACKEND": backend}, check=True)


def check_files(folder):
    expected = np.load(os.path.join(folder, "expected.npz"))
    for name in MODELS:
        model = keras.models.load_model(os.path.join(folder, f"{name}.keras"))
        for i, x in enumerate(outputs(model)):
            np.testing.assert_allclose(x, expected[f"{name}_{i}"], atol=1e-5)
        if isinstance(model, keras_spanbert.SpanBertPretrainer):
            for head in [model.mlm_head, model.sbo_head]:
                assert head.token_embedding is model.backbone.token_embedding
            schedule = model.optimizer.get_config()["learning_rate"]
            assert schedule["class_name"] == "LinearWarmupDecay"
        if name == "model_of_a_user":
            (encoder,) = (x for x in model.layers if isinstance(x, keras_spanbert.SpanBertBackbone))
            assert model.get_layer("sbo_head").token_embedding is encoder.token_embedding
        if hasattr(model, "preprocessor"):
            assert list(model.preprocessor.tokenizer("a bc")) == [5, 6, 7]


@pytest.mark.parametrize("name", MODELS)
def test_clones_compute_the_same(name):
    model = MODELS[name]()
    clone = keras.models.clone_model(model)
    assert [w.path for w in clone.weights] == [w.path for w in model.weights]
    clone.set_weights(model.get_weights())
    for ours, theirs in zip(outputs(model), outputs(clone)):
        np.testing.assert_allclose(theirs, ours, atol=1e-6)
    assert not {id(w) for w in clone.weights} & {id(w) for w in model.weights}


@pytest.mark.parametrize(
    "build",
    [
        tokenizer,
        lambda: pretrainer().preprocessor,
        lambda: answerer().preprocessor,
        lambda: pretrainer().optimizer,
        lambda: keras_spanbert.LinearWarmupDecay(1e-3, warmup_steps=2, total_steps=5),
        lambda: keras_spanbert.SpanMasking(V, 4, (7,), (0, 1, 2, 3, 4), seed=1),
    ],
)
def test_configs_of_what_is_no_model_come_back(build):
    thing = build()
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(thing)))
    copy = keras.saving.deserialize_keras_object(config)
    assert keras.saving.serialize_keras_object(copy) == keras.saving.serialize_keras_object(thing)


def test_span_masking_is_part_of_a_model_on_tensorflow_alone(tmp_path):
    token_ids = keras.Input((L,), dtype="int32")
    masking = keras_spanbert.SpanMasking(V, 4, max_predictions=3, seed=1)
    if keras.backend.backend() != "tensorflow":
        with pytest.raises(ValueError, match="in `tf.data`.*on TensorFlow alone"):
            masking(token_ids)
        return
    model = keras.Model(token_ids, masking(token_ids))
    model.save(tmp_path / "masking.keras")
    copies = [keras.models.clone_model(model), keras.models.load_model(tmp_path / "masking.keras")]
    x = np.full((2, L), 7)
    expected = model.predict(x, verbose=0)
    for copy in copies:
        for name, value in copy.predict(x, verbose=0).items():
            np.testing.assert_array_equal(value, expected[name])


if __name__ == "__main__":
    check_files(sys.argv[1])

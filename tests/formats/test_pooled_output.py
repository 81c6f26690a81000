"""A backbone with the pooler of BERT, compared with `transformers`."""

import keras
import numpy as np
import pytest
from bert_checkpoints import build, compute, encode, inputs, load, write

import keras_spanbert as ks
from keras_spanbert.serving.saved_model import embeddings

NAMES = ["sequence_output", "pooled_output"]


def compute_outputs(model):
    found = compute(model, inputs())
    return [found.last_hidden_state.numpy(), found.pooler_output.numpy()]


@pytest.fixture(scope="module")
def bert(transformers, tmp_path_factory):
    """The folder of a `BertModel` with a pooler, and its outputs."""
    model = build(transformers.BertModel)
    return write(model, tmp_path_factory.mktemp("bert")), compute_outputs(model)


def outputs(backbone):
    found = backbone(inputs(), training=False)
    assert sorted(found) == sorted(NAMES)
    return [keras.ops.convert_to_numpy(found[name]) for name in NAMES]


def check(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.fixture(scope="module")
def backbone(bert):
    return ks.SpanBertBackbone.from_preset(bert[0], pooled_output=True)


def test_outputs_equal_transformers(bert, backbone):
    check(outputs(backbone), bert[1])
    predicted = backbone.predict(inputs(), verbose=0)
    check([predicted[name] for name in NAMES], bert[1])
    model = keras.Model(backbone.input, backbone(backbone.input)["pooled_output"])
    check([model.predict(inputs(), verbose=0)], bert[1][1:])


def test_presets_and_files_round_trip(transformers, bert, backbone, tmp_path):
    ks.checkpoints.to_huggingface(backbone, tmp_path / "out")
    check(compute_outputs(load(transformers.BertModel, tmp_path / "out")), bert[1])
    backbone.save_to_preset(tmp_path / "preset")
    backbone.save(tmp_path / "backbone.keras")
    check(outputs(ks.SpanBertBackbone.from_preset(tmp_path / "preset")), bert[1])
    check(outputs(keras.saving.load_model(tmp_path / "backbone.keras")), bert[1])
    ks.checkpoints.convert(str(tmp_path / "preset"), str(tmp_path / "converted"))
    again = ks.SpanBertBackbone.from_preset(tmp_path / "converted", pooled_output=True)
    check(outputs(again), bert[1])


def test_preset_with_a_pooler_loads_without_it(bert, backbone, tmp_path):
    backbone.save_to_preset(tmp_path / "preset")
    ks.SpanBertTokenizer.from_preset(bert[0]).save_to_preset(tmp_path / "preset")
    plain = ks.SpanBertBackbone.from_preset(tmp_path / "preset", pooled_output=False)
    tagger = ks.SpanBertTokenClassifier.from_preset(tmp_path / "preset", labels=["O", "B"])
    for encoder in [plain, tagger.backbone]:
        assert not encoder.pooled_output and "pooled_output" not in encoder.get_config()
        assert not [weight.path for weight in encoder.weights if "pooler" in weight.path]
        check([encode(encoder, inputs())], bert[1][:1])


@pytest.mark.once
@pytest.mark.parametrize("source", ["preset", "checkpoint"])
def test_missing_pooler_is_initialized(bert, source, tmp_path, caplog):
    plain = ks.SpanBertBackbone.from_preset(bert[0])
    if source == "preset":
        plain.save_to_preset(tmp_path / "plain")
    else:
        ks.checkpoints.to_huggingface(plain, tmp_path / "plain")
    backbone = ks.SpanBertBackbone.from_preset(tmp_path / "plain", pooled_output=True)
    assert f"{tmp_path / 'plain'} has no weights for pooler, which start" in caplog.text
    check(outputs(backbone)[:1], bert[1][:1])
    # The pooler is a new dense layer with tanh on [CLS].
    kernel, bias = backbone.pooler.get_weights()
    assert kernel.std() == pytest.approx(0.88 * 0.3, rel=0.1) and not bias.any()
    check(outputs(backbone)[1:], [np.tanh(bert[1][0][:, 0] @ kernel)])


@pytest.mark.once
def test_task_refuses_a_backbone_with_a_pooler(backbone):
    for arguments, named in [((backbone,), {}), ((), {"backbone": backbone})]:
        with pytest.raises(ValueError, match="`pooled_output=False`.*Received: backbone=<SpanBert"):
            ks.SpanBertQuestionAnswerer(*arguments, **named)


@pytest.mark.once("tensorflow")
def test_served_embeddings_include_the_pooler(bert, backbone):
    import tensorflow as tf

    serve = embeddings(backbone, ks.SpanBertTokenizer.from_preset(bert[0]), longest=11)
    served = serve(tf.constant(["The house is", "the"]))
    ids = served["token_ids"].numpy()
    x = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": served["padding_mask"].numpy()}
    expected = backbone(x)
    check([served["embeddings"], served["pooled_output"]], [expected[name] for name in NAMES])

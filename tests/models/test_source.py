"""Presets and checkpoints are opened and built in the same way."""

import keras
import pytest
from bert_checkpoints import assert_same
from comparisons import assert_close
from tiny_models import VOCABULARY, L, V, answerer, backbone, outputs, pretrainer

import keras_spanbert as ks
from keras_spanbert.models.source import open_source

pytestmark = pytest.mark.once


def test_preset_and_folder_give_the_same_objects(tmp_path):
    model = pretrainer()
    model.save_to_preset(tmp_path / "preset")
    ks.checkpoints.to_huggingface(model, tmp_path / "folder")
    preset, folder = sources = [open_source(tmp_path / name) for name in ["preset", "folder"]]
    assert (preset.task, folder.task) == (ks.SpanBertPretrainer, None)
    assert preset.saved(ks.SpanBertPretrainer)["position_dim"] == 3
    assert preset.saved(ks.SpanBertQuestionAnswerer) is folder.saved(ks.SpanBertPretrainer) is None
    for source in sources:
        assert source.name == str(tmp_path / ("preset" if source is preset else "folder"))
        assert source.settings["max_position_embeddings"] == L
        assert source.has_vocabulary and not source.is_quantized
        assert ks.SpanBertTokenizer.from_source(source).get_vocabulary() == VOCABULARY
        assert_same(ks.SpanBertPretrainer.from_source(source), model)
        assert_same(ks.SpanBertBackbone.from_source(source), model.backbone)


def test_backbone_without_vocabulary_is_opened_as_a_task(tmp_path, caplog):
    saved = backbone()
    saved.save_to_preset(tmp_path)
    model = ks.SpanBertQuestionAnswerer.from_preset(tmp_path)
    assert model.preprocessor is None and model.untrained_heads()
    assert_same(model.backbone, saved)
    assert caplog.messages == [
        f"{tmp_path} has no vocabulary: the model has no preprocessor",
        f"{tmp_path} has no weights for the head of SpanBertQuestionAnswerer, which starts from "
        "random weights",
    ]
    with pytest.raises(ValueError, match="must have a tokenizer. Received: a preset without"):
        ks.SpanBertTokenizer.from_preset(tmp_path)
    (tmp_path / "model.weights.h5").unlink()
    with pytest.raises(ValueError, match="must contain model.weights.h5"):
        ks.SpanBertBackbone.from_preset(tmp_path)


def test_preprocessor_fits_the_arguments_of_a_task_of_another_preset(tmp_path):
    answerer().save_to_preset(tmp_path)
    arguments = {"max_span_tokens": 7, "next_sentence": True}
    model = ks.SpanBertPretrainer.from_preset(tmp_path, **arguments)
    model.check_preprocessor()
    assert model.preprocessor.masking_config["max_span_tokens"] == 7


@keras.saving.register_keras_serializable(package="test_source")
class ScaledPretrainer(ks.SpanBertPretrainer):
    def __init__(self, backbone, preprocessor=None, scale=1.0, **kwargs):
        super().__init__(backbone, preprocessor, **kwargs)
        self.scale = scale


def test_subclass_takes_its_own_arguments_those_of_its_parent_and_rates(tmp_path):
    pretrainer().save_to_preset(tmp_path)
    model = ScaledPretrainer.from_preset(
        tmp_path, scale=2.0, next_sentence=True, dropout=0.4, dtype="float32"
    )
    assert (type(model), model.scale, model.backbone.dropout) == (ScaledPretrainer, 2.0, 0.4)
    assert model.objectives == ("mlm", "sbo", "nsp") and model.preprocessor.next_sentence
    model.save_to_preset(tmp_path / "child")
    both = ks.SpanBertPretrainer.from_preset(tmp_path / "child")
    assert type(both) is ScaledPretrainer
    assert_close(outputs(both), outputs(model))
    fresh = ScaledPretrainer.from_preset(tmp_path, load_weights=False)
    assert set(fresh.untrained_heads()) == {"mlm_head", "sbo_head"}


def test_given_tokenizer_keeps_its_vocabulary(tmp_path):
    answerer().save_to_preset(tmp_path)
    words = [*VOCABULARY[: V - 1], "other"]
    preprocessor = ks.SpanBertQuestionAnswererPreprocessor.from_preset(
        tmp_path, tokenizer=ks.SpanBertTokenizer(words)
    )
    assert preprocessor.tokenizer.get_vocabulary() == words
    assert preprocessor.doc_stride == 2

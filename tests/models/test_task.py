"""Behaviour shared by the models of all tasks."""

import keras
import pytest

import keras_spanbert as ks

L = 13
TOKENS = "[PAD] [UNK] [CLS] [SEP] [MASK] ann she left . who".split()
TEXT = "ann left . she left ."
ARGUMENTS = {
    ks.SpanBertPretrainer: ({"position_dim": 3}, {}),
    ks.SpanBertQuestionAnswerer: ({}, {"doc_stride": 2, "max_question_length": 3}),
    ks.SpanBertCoreferenceResolver: ({"max_segment_len": L, "ffnn_size": 5}, {}),
}


def build(cls):
    backbone = ks.SpanBertBackbone(len(TOKENS), 1, 2, 6, 7, max_sequence_length=L)
    arguments, of_preprocessor = ARGUMENTS[cls]
    preprocessor = cls.preprocessor_cls(ks.SpanBertTokenizer(TOKENS), L, **of_preprocessor)
    return cls(backbone, preprocessor, **arguments)


def arrays(model):
    if isinstance(model, ks.SpanBertCoreferenceResolver):
        return model.batches([{"sentences": [TEXT.split()]}])[0][0]
    is_pretrainer = isinstance(model, ks.SpanBertPretrainer)
    x = [TEXT] if is_pretrainer else {"question": ["who left"], "context": [TEXT]}
    return model.preprocess(x)[0]


@pytest.mark.parametrize("cls", ARGUMENTS)
@pytest.mark.parametrize("how", ["built", "loaded"])
def test_first_batch_is_preprocessed_once(cls, how, tmp_path, monkeypatch):
    model = build(cls)
    if how == "loaded":
        model.save(tmp_path / "model.keras")
        model = keras.saving.load_model(tmp_path / "model.keras", compile=False)
    x = arrays(build(cls))  # With another model, since preprocessing builds a model.
    calls, call = [], cls.call
    monkeypatch.setattr(cls, "call", lambda *args, **kw: calls.append(0) or call(*args, **kw))
    model.predict_on_batch(x)
    assert len(calls) == 1

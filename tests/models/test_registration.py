"""Saving warns about classes that cannot be loaded."""

import keras
import numpy as np
import pytest
from tiny_models import VOCABULARY

import keras_spanbert as ks

PARTS = {
    "task": ks.SpanBertTextClassifier,
    "preprocessor": ks.SpanBertTextClassifierPreprocessor,
    "backbone": ks.SpanBertBackbone,
    "tokenizer": ks.SpanBertTokenizer,
}
OWN = {name: type(f"Own{name.title()}", (cls,), {}) for name, cls in PARTS.items()}


def build(**classes):
    task, preprocessor, backbone, tokenizer = {**PARTS, **classes}.values()
    return task(
        backbone(len(VOCABULARY), 1, 2, 6, 7, max_sequence_length=11),
        num_classes=2,
        preprocessor=preprocessor(tokenizer(VOCABULARY), 7),
    )


def classes(model):
    parts = [model, model.preprocessor, model.backbone, model.preprocessor.tokenizer]
    return [type(part) for part in parts]


@pytest.mark.parametrize("name", ["task", "tokenizer"])
def test_unregistered_class(name, tmp_path, caplog):
    cls = OWN[name]
    model = build(**{name: cls})
    with pytest.raises(ValueError) as error:
        model.save_to_preset(tmp_path / "preset")
    decorator = '@keras.saving.register_keras_serializable(package="my_package")'
    assert decorator in str(error.value) and f"`class {cls.__name__}`" in str(error.value)
    assert not (tmp_path / "preset").exists()

    # A `.keras` file can still be loaded with `custom_objects`.
    for _ in range(2):
        model.save(tmp_path / "model.keras")
    logged = [message for message in caplog.messages if "registered" in message]
    assert logged == [str(error.value)]
    with pytest.raises(TypeError):
        keras.saving.load_model(tmp_path / "model.keras", compile=False)
    objects = {cls.__name__: cls}
    keras.saving.load_model(tmp_path / "model.keras", custom_objects=objects, compile=False)
    with keras.saving.custom_object_scope(objects):
        model.save_to_preset(tmp_path / "preset")
        loaded = type(model).from_preset(tmp_path / "preset")
    assert classes(loaded) == classes(model) and loaded.preprocessor.sequence_length == 7
    x = model.preprocessor.call(["a bc"])
    np.testing.assert_allclose(loaded.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-6)


@keras.saving.register_keras_serializable(package="tests")
class ObservingBackbone(ks.SpanBertBackbone):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.declared = ks.SpanBertTextClassifier.backbone_cls


def test_loading_does_not_change_a_backbone_subclass(tmp_path):
    build(backbone=ObservingBackbone).save_to_preset(tmp_path)
    loaded = ks.SpanBertTextClassifier.from_preset(tmp_path)
    assert type(loaded.backbone) is ObservingBackbone
    assert loaded.backbone.declared is ks.SpanBertBackbone
    for cls in [ks.SpanBertTextClassifierPreprocessor, ks.SpanBertTokenizer]:
        assert type(cls.from_preset(tmp_path)) is cls
    # Another task creates its own head and preprocessor.
    chooser = ks.SpanBertMultipleChoice.from_preset(tmp_path)
    assert type(chooser.backbone) is ObservingBackbone
    assert type(chooser.preprocessor) is ks.SpanBertMultipleChoicePreprocessor


def test_parts_of_a_task_are_checked(tmp_path):
    model = build(**{**OWN, "task": ks.SpanBertTextClassifier})
    for part in [model.backbone, model.preprocessor, model.preprocessor.tokenizer]:
        with pytest.raises(ValueError, match=f"above `class {type(part).__name__}`"):
            part.save_to_preset(tmp_path / "preset")

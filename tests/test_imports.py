"""The package can be imported in any order, and its classes are registered with Keras."""

import pytest
from processes import run_python


# test_package.py tests imports that start with the commands.
def test_package_can_be_imported_first():
    program = (
        "import keras_spanbert as ks, keras; "
        "assert keras.saving.get_registered_object('keras_spanbert>SpanBertBackbone'); "
        "import keras_hub, sys; assert 'spacy' not in sys.modules; "
        "ks.data.squad.read; ks.data.mrqa.read; "
        "ks.data.coreference.read; ks.data.gap.read; ks.data.glue.read; "
        "ks.data.columns.read_texts; ks.data.tacred.read; ks.data.semeval2010.read; "
        "ks.data.swag.read; ks.data.conll.read"
    )
    assert "Error" not in run_python("-c", program)[0]


def test_public_modules_are_listed_and_unknown_names_are_errors():
    import keras_spanbert as ks

    for name in ["checkpoints", "data", "metrics", "serving"]:
        assert name in ks.__all__ and name in dir(ks)
    with pytest.raises(AttributeError, match="no attribute 'SpanBert'"):
        ks.SpanBert  # noqa: B018

"""The package imports in any order, and its classes are known to Keras."""

import subprocess
import sys

import pytest


# What begins with the module of a command, test_package.py runs.
def test_package_is_the_first_import():
    program = (
        "import keras_spanbert as ks, keras; "
        "assert keras.saving.get_registered_object('keras_spanbert>SpanBertBackbone'); "
        "import keras_hub, sys; assert 'spacy' not in sys.modules; "
        "ks.data.squad.read; ks.data.mrqa.read; "
        "ks.data.coreference.read; ks.data.gap.read; ks.data.glue.read; "
        "ks.data.columns.read_texts; ks.data.tacred.read; ks.data.semeval2010.read; "
        "ks.data.swag.read; ks.data.conll.read"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stdout


def test_unknown_name_is_an_attribute_error():
    import keras_spanbert as ks

    with pytest.raises(AttributeError, match="no attribute 'SpanBert'"):
        ks.SpanBert  # noqa: B018

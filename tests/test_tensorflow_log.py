"""The library in a new process: messages of TensorFlow are kept off stderr, others are not."""

import pytest
from processes import run_python

# Until the end of the first epoch.
FIT = """
import sys
import keras_spanbert as ks
import keras

words = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h".split()
preprocessor = ks.SpanBertPretrainerPreprocessor(
    ks.SpanBertTokenizer(words), sequence_length=8, seed=1
)
backbone = ks.SpanBertBackbone(len(words), 1, 2, 16, 16)
ks.SpanBertPretrainer(backbone, preprocessor).fit(["a b c d e f"] * 4, batch_size=4, verbose=0)
assert keras.saving.get_registered_object("keras_spanbert>SpanBertBackbone")
assert "spacy" not in sys.modules
for name in "squad mrqa coreference glue tacred semeval2010 swag conll".split():
    getattr(ks.data, name).read
ks.data.columns.read_texts
"""
LOAD = """
import os
os.environ["KERAS_SPANBERT_LAZY"] = "1"
from keras_spanbert import tensorflow_log
with tensorflow_log.suppress_startup_log():
    os.write(2, b"mine\\n")
    import tensorflow
"""


def capture_stderr(program, level=None):
    return run_python("-c", program, TF_CPP_MIN_LOG_LEVEL=level)[1]


# tests/recipes/test_pretrain.py tests the stderr of a run on TensorFlow.
@pytest.mark.long
@pytest.mark.once("torch")
def test_fit_in_a_script_prints_nothing_to_stderr():
    assert capture_stderr(FIT) == ""


@pytest.mark.long
@pytest.mark.once
def test_only_other_messages_during_import_are_shown_by_default():
    assert capture_stderr(LOAD) == "mine\n"
    lines = capture_stderr(LOAD, "0").splitlines()
    assert lines[0] == "mine" and len(lines) > 1

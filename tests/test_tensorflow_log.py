"""Nothing of TensorFlow's log stands on the user's stderr, and all of the user's does."""

import os
import subprocess
import sys

import pytest

# Up to the first epoch, which is where a script's reader looks for the loss.
FIT = """
import keras_spanbert as ks

words = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h".split()
preprocessor = ks.SpanBertPretrainerPreprocessor(
    ks.SpanBertTokenizer(words), sequence_length=8, seed=1
)
backbone = ks.SpanBertBackbone(len(words), 1, 2, 16, 16)
ks.SpanBertPretrainer(backbone, preprocessor).fit(["a b c d e f"] * 4, batch_size=4, verbose=0)
"""
LOAD = """
import os
os.environ["KERAS_SPANBERT_LAZY"] = "1"
from keras_spanbert import tensorflow_log
with tensorflow_log.held_back():
    os.write(2, b"mine\\n")
    import tensorflow
"""


def stderr_of(program, **environment):
    inherited = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_fit_of_a_users_script_tells_nothing_on_stderr():
    assert stderr_of(FIT) == ""


@pytest.mark.once
def test_what_others_tell_while_it_loads_is_told():
    assert stderr_of(LOAD) == "mine\n"


@pytest.mark.once
def test_log_that_the_user_asked_for_is_shown():
    lines = stderr_of(LOAD, TF_CPP_MIN_LOG_LEVEL="0").splitlines()
    assert lines[0] == "mine" and len(lines) > 1

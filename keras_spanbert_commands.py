"""The commands of an installed package.

Outside the package, so that mistakes in flags are reported before it is imported.
"""

import os


def train() -> None:
    """`spanbert-train`: see `train.py`."""
    os.environ["KERAS_SPANBERT_LAZY"] = "1"
    from keras_spanbert.console import protect_output

    protect_output()  # Before libraries keep the streams.
    from keras_spanbert.recipes import main

    main()


def convert() -> int:
    """`spanbert-convert`: see `keras_spanbert.checkpoints`."""
    os.environ["KERAS_SPANBERT_LAZY"] = "1"
    from keras_spanbert.optional import exit_without_backend

    exit_without_backend("spanbert-convert")
    from keras_spanbert import SpanBertBackbone  # noqa: F401, loads the backend and all classes.
    from keras_spanbert.checkpoints.__main__ import main

    return main(program="spanbert-convert")

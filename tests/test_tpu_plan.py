"""What `benchmarks/tpu_plan.py` makes of the parts of a step; that it compiles takes minutes."""

import importlib
import json
import pathlib
import sys

import pytest

BENCHMARKS = pathlib.Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def tpu_plan(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("tpu_plan")


def part(moved, collectives=()):
    numbers = {"flops": 1, "integer_ops": 2, "generator_words": 0, "cycles": 3, "cpu_seconds": 5}
    return {"bytes": moved, **numbers, "collectives": list(collectives), "draws": []}


def all_reduce(count):
    return ["all-reduce", "bf16", {"count": count, "bytes": 7 * count}]


def test_without_the_compiler_it_says_what_to_install(tpu_plan, monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(sys, "argv", ["tpu_plan.py"])
    assert tpu_plan.main() is None  # Exit code 0.
    printed = capsys.readouterr().out
    assert "pip install libtpu" in printed and len(printed.splitlines()) == 1


def test_further_layers_cost_what_the_second_adds(tpu_plan):
    one, two = part(11, [all_reduce(1)]), part(17, [all_reduce(2)])
    further = tpu_plan.combined((4, two), (-4, one))
    assert further["bytes"] == 4 * (17 - 11)
    assert further["collectives"] == [["all-reduce", "bf16", {"count": 4, "bytes": 28}]]


def test_the_largest_batch_lies_on_the_line_of_two(tpu_plan):
    memory = {
        "state": 100,
        "gradients": {"begin": 10, "end": 30},
        # 4 a row and 20, and 2 a row and 5.
        "activations": {8: {"begin": 52, "end": 21}, 3: {"begin": 32, "end": 11}},
    }
    assert tpu_plan.largest_batch(memory, 190) == 15  # (190 - 100 - 10 - 20) / 4
    assert tpu_plan.largest_batch(memory, 100) == 0
    del memory["activations"][3]
    assert tpu_plan.largest_batch(memory, 190) == 12  # (190 - 100 - 10) / (52 / 8)


def test_rows_of_a_file_are_drawn(tpu_plan, monkeypatch, tmp_path):
    row = {
        "label": "before",
        "flags": {"topology": "v5e:2x4", "parts": ["heads"]},
        "parts": {"heads": part(11)},
        "sum": part(11),
    }
    results, plot = tmp_path / "plan.jsonl", tmp_path / "plan.png"
    results.write_text(f"{json.dumps(row)}\n" * 2)
    argv = ["tpu_plan.py", "--draw_only", f"--json={results}", f"--plot={plot}"]
    monkeypatch.setattr(sys, "argv", argv)
    tpu_plan.main()
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_flags_that_do_not_go_together_are_refused(tpu_plan, monkeypatch, capsys):
    for argv, message in [
        (["--parts=heads,tails"], "Received: tails"),
        (["--topology=v9:2x2"], "must begin with one of v5e, v5p, v6e: v9:2x2"),
        (["--draw_only"], "--draw_only takes --json and --plot"),
    ]:
        monkeypatch.setattr(sys, "argv", ["tpu_plan.py", *argv])
        with pytest.raises(SystemExit):
            tpu_plan.main()
        assert message in capsys.readouterr().err

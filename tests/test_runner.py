"""`python -m tests`: which processes it starts, and how it ends."""

import pathlib

import pytest

from tests import __main__ as runner
from tests import conftest

ROOT = pathlib.Path(__file__).parent.parent


def test_each_backend_runs_each_test_file_once():
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    for backend in runner.BACKENDS:
        found = []
        for job in runner.jobs([]):
            if job.backend == backend:
                ignored = [a.partition("=")[2] for a in job.arguments if a.startswith("--ignore=")]
                folders = [a for a in job.arguments if not a.startswith("-")] or ["tests"]
                found += [
                    file
                    for file in files
                    if any(file.startswith(f"{folder}/") for folder in folders)
                    and not any(file.startswith(f"{folder}/") for folder in ignored)
                ]
        assert sorted(found) == sorted(files) and len(files) > 40


def test_arguments_go_to_pytest_on_each_backend_and_fast_takes_one(monkeypatch):
    jobs = runner.jobs(["tests/layers", "-x"])
    assert [job.backend for job in jobs] == list(runner.BACKENDS)
    assert {job.arguments for job in jobs} == {("tests/layers", "-x")}
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    (job,) = runner.jobs(["--fast", "-x"])
    assert job.backend == "jax" and job.arguments == ("-m", "not slow", "-x")


@pytest.mark.parametrize(
    ("codes", "expected"), [([0, 0, 0], 0), ([0, 5, 5], 0), ([0, 1, 0], 1), ([2, 0, 0], 1)]
)
def test_at_most_two_run_at_once_and_a_failure_is_named(codes, expected, monkeypatch, capsys):
    running, most = [], []

    class Process:
        def __init__(self, job, returncode):
            self.job, self.returncode = job, returncode
            running.append(self)
            most.append(len(running))

        def poll(self):
            if self in running:
                running.remove(self)
            return self.returncode

    def start(job, output, compiled):
        output.write(f"3 passed on {job.backend}\n")
        return Process(job, codes[runner.BACKENDS.index(job.backend)])

    monkeypatch.setattr(runner, "start", start)
    assert runner.main(["tests/layers"]) == expected
    out, err = capsys.readouterr()
    assert max(most) == 2 and len(most) == 3
    for backend, code in zip(runner.BACKENDS, codes):
        assert f"3 passed on {backend}" in out
        assert (f"KERAS_BACKEND={backend}" in err) == (code in (1, 2))


def test_a_test_that_runs_once_does_so_on_one_backend(request):
    for added, backend in [
        ([], None),
        (["once"], "tensorflow"),
        (["on_torch"], None),
        (["once", "on_torch"], "torch"),
        ([pytest.mark.once("tensorflow"), "once", "on_torch"], "tensorflow"),
        ([pytest.mark.once("torch")], "torch"),
    ]:
        item = pytest.Function.from_parent(request.node.parent, name="f", callobj=lambda: None)
        for mark in added:
            item.add_marker(mark)
        assert conftest.backend_of(item) == backend

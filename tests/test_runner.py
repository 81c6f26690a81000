"""`python -m tests`: its jobs and exit code."""

import pytest
from processes import ROOT

from tests import __main__ as runner
from tests import conftest


@pytest.mark.parametrize(("given", "expected"), [([], "not long"), (["--long"], "long")])
def test_each_backend_runs_each_file_once(given, expected):
    files = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}
    for backend in runner.BACKENDS:
        found = []
        for job in runner.jobs(given):
            if job.backend == backend:
                *arguments, option, marked = job.arguments
                assert (option, marked) == ("-m", expected)
                ignored = tuple(a[9:] + "/" for a in arguments if a.startswith("--ignore="))
                chosen = tuple(f"{a}/" for a in arguments if a.startswith("tests/")) or "tests/"
                found += [
                    file
                    for file in files
                    if f"{file}/".startswith(chosen) and not f"{file}/".startswith(ignored)
                ]
        others = files.difference(runner.DOCS)
        assert sorted(found) == sorted(files if backend == "torch" else others)
        assert len(others) > 40
    for path in runner.DOCS:  # They run on PyTorch only.
        assert path.removeprefix("tests/") in {*conftest.ONCE}.intersection(conftest.ON_TORCH)


def test_gpu_jobs_run_existing_tests_on_pytorch_and_jax():
    jobs = runner.jobs(["--gpu"])
    assert [job.backend for job in jobs] == ["torch", "jax"]
    *paths, option, plugin = jobs[0].arguments
    assert all((ROOT / path).exists() for path in paths)
    assert (option, plugin) == ("-p", "tests.no_tensorflow")


@pytest.mark.parametrize(("codes", "expected"), [([0, 5, 5], 0), ([0, 1, 0], 1), ([2, 0, 0], 1)])
def test_failed_jobs_are_named(codes, expected, monkeypatch, capsys):
    def run(job, compiled):
        return codes[runner.BACKENDS.index(job.backend)], 1.0, f"3 passed on {job.backend}"

    monkeypatch.setattr(runner, "run", run)
    assert runner.main(["tests/layers"]) == expected
    out, err = capsys.readouterr()
    for backend, code in zip(runner.BACKENDS, codes):
        assert f"3 passed on {backend}" in out
        assert (f"KERAS_BACKEND={backend}" in err) == (code in (1, 2))


def test_once_tests_run_on_one_backend(request):
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
        assert conftest.required_backend(item) == backend

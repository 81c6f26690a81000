"""The installed wheel works in an empty folder, without the checkout."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest
from processes import run_python

ROOT = pathlib.Path(__file__).parent.parent
TIMEOUT = 180
# Modules outside the package.
MODULES = ["keras_spanbert_commands.py", "keras_spanbert_spacy.py"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    # Builds from a copy, since build files in the checkout would get into the next wheel.
    source = tmp_path_factory.mktemp("source")
    for name in ["keras_spanbert", "configs"]:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    for name in ["setup.cfg", "pyproject.toml", "README.md", "LICENSE", *MODULES]:
        shutil.copy(ROOT / name, source)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", f"--wheel-dir={folder}", "."],
        cwd=source,
        check=True,
        timeout=TIMEOUT,
    )
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """A folder with the installed wheel."""
    site = tmp_path_factory.mktemp("site")
    install = ["install", "--quiet", "--no-deps", "--no-index", f"--target={site}", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=TIMEOUT)
    return site


@pytest.fixture(scope="module")
def run(site, tmp_path_factory):
    """Runs an installed command in an empty folder."""
    folder = tmp_path_factory.mktemp("empty")

    def run(command, *arguments, **variables):
        environment = {**os.environ, "PYTHONPATH": str(site), **variables}
        return subprocess.run(
            [sys.executable, "-P", str(site / "bin" / command), *arguments], cwd=folder,
            env=environment, capture_output=True, text=True, timeout=TIMEOUT,
        )  # fmt: skip

    run.folder = folder
    return run


def test_wheel_has_the_package_without_tests(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "keras_spanbert/py.typed" in names
    for path in [*(ROOT / name for name in MODULES), *ROOT.glob("keras_spanbert/**/*.py")]:
        assert str(path.relative_to(ROOT)) in names
    flagfiles = {path.name for path in ROOT.glob("configs/**/*.cfg")}
    assert flagfiles == {pathlib.Path(name).name for name in names if name.endswith(".cfg")}
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "train"))]


def test_installed_command_trains_and_converts(run, texts):
    assert "--mask_rate" in run("spanbert-train", "--help").stdout
    backend = {"KERAS_BACKEND": "torch"} if importlib.util.find_spec("torch") else {}
    done = run(
        "spanbert-train", f"--train_data={texts}", "--output=trained", "--vocabulary_size=200",
        "--sequence_length=16", "--batch_size=4", "--steps=2", "--eval_steps=1", **backend,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    metrics = json.loads((run.folder / "trained" / "metrics.json").read_text())
    assert metrics["steps"] == 2
    done = run("spanbert-convert", "trained", "for-transformers")
    assert done.returncode == 0 and "written, for BertForMaskedLM" in done.stdout, done.stderr
    assert (run.folder / "for-transformers" / "model.safetensors").exists()


def test_import_adds_less_than_half_a_second_to_keras_hub():
    program = (
        "import time, keras_hub; t = time.process_time(); import keras_spanbert; "
        "print(time.process_time() - t)"
    )
    out, _ = run_python("-c", program)
    assert float(out.split()[-1]) < 0.5


def test_spacy_finds_the_component_without_loading_a_backend(site, tmp_path):
    pytest.importorskip("spacy", reason="spaCy is not installed (extra [spacy])")
    program = (
        "import sys, spacy; nlp = spacy.blank('en'); nlp.add_pipe('spanbert_coreference'); "
        "assert 'keras_spanbert_spacy' in sys.modules; assert 'keras' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        timeout=TIMEOUT,
    )
    assert done.returncode == 0

"""The installed package works in an empty folder, without the checkout."""

import importlib.util
import json
import shutil
import subprocess
import sys

import pytest
from processes import ROOT, run_python

# Modules outside the package.
MODULES = ["keras_spanbert_commands.py", "keras_spanbert_spacy.py"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the installed package."""
    # Installs a copy, since build files in the checkout would get into the next wheel.
    source, site = (tmp_path_factory.mktemp(name) for name in ["source", "site"])
    for name in ["keras_spanbert", "configs"]:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ["setup.cfg", "pyproject.toml", "README.md", "LICENSE", *MODULES]:
        shutil.copy(ROOT / name, source)
    install = ["install", "--quiet", "--no-deps", f"--target={site}", source]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, timeout=180)
    return site


def test_package_has_all_modules_and_no_tests(site):
    names = {str(path.relative_to(site)) for path in site.rglob("*")}
    paths = [*(ROOT / name for name in MODULES), *ROOT.glob("keras_spanbert/**/*.py")]
    assert {"keras_spanbert/py.typed", *(str(path.relative_to(ROOT)) for path in paths)} <= names
    flagfiles = {path.name for path in ROOT.glob("configs/**/*.cfg")}
    assert flagfiles == {path.name for path in site.rglob("*.cfg")}
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "train"))]


def test_installed_command_trains_and_converts(site, texts, tmp_path):
    def run(command, *arguments, **variables):
        command = ["-P", site / "bin" / command, *arguments]
        return run_python(*command, cwd=tmp_path, PYTHONPATH=str(site), **variables)[0]

    assert "--mask_rate" in run("spanbert-train", "--help")
    backend = {"KERAS_BACKEND": "torch"} if importlib.util.find_spec("torch") else {}
    run(
        "spanbert-train", f"--train_data={texts}", "--output=trained", "--vocabulary_size=200",
        "--sequence_length=16", "--batch_size=4", "--steps=2", "--eval_steps=1", **backend,
    )  # fmt: skip
    metrics = json.loads((tmp_path / "trained" / "metrics.json").read_text())
    assert metrics["steps"] == 2
    out = run("spanbert-convert", "trained", "for-transformers")
    assert "written, for BertForMaskedLM" in out
    assert (tmp_path / "for-transformers" / "model.safetensors").exists()


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
    run_python("-P", "-c", program, cwd=tmp_path, PYTHONPATH=str(site))

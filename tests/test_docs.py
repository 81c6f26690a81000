"""Pages and tour: examples run and print what is shown, commands and links are right."""

import ast
import json
import re
import shlex
import sys

import pytest
from absl import flags
from absl.testing import flagsaver
from processes import ROOT, run_python

import keras_spanbert as ks
from keras_spanbert.recipes.run import define_flags, parse_flags

define_flags()  # Otherwise flagsaver would remove them at the end of a test.

sys.path.insert(0, str(ROOT / "docs"))
import record  # noqa: E402

INDEX = ROOT / "docs" / "README.md"
PAGES = [ROOT / name / "README.md" for name in ["benchmarks", "configs", "examples"]]
PAGES += [*record.PAGES, *ROOT.glob("docs/reference/*.md")]
PAGES.remove(ROOT / "CHANGELOG.md")  # It names what is gone.
PAGES.sort()
SECTIONS = ["What it does", "Try it", "In Python", "Which option when", "How good", "Limits"]
SECTIONS += ["Next"]
TRAINING = ["Fine-tune on your own data", "Train on your own text"]

# Beginnings of commands that are not part of an example. Their flags are checked.
NOT_RUN = (
    # They need other data, the network, Docker, a server, several processes or much time.
    "awk ", "head -n 1001 sst-2/", "git clone", "docker run", "curl", "torchrun",
    "until python train.py", "python train.py", "spanbert-train", "python benchmarks/",
    # They change the environment. Continuous integration does this too.
    "cd ", "export ", "source ", "pip install", "python -m venv", "optimum-cli",
    # They are for developers, or are run in `test_blocks_of_a_page_print_what_it_shows`.
    "mkdocs ", "ruff ", "python -m pytest", "python -m tests", "python docs/",
    "python examples/", "bash examples/",
    # They are names of commands.
    "python -m keras_spanbert.checkpoints", "spanbert-convert",
)  # fmt: skip
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
VARIABLE = re.compile(r'^[A-Z][A-Z0-9_]*=("[^"]*"|\S+) ')
LANGUAGES = ("python", "sh", "text", "json", "html")


def identify(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", record.PAGES, ids=identify)
def test_page_shows_the_code_of_its_examples(path):
    text = path.read_text()
    assert record.render(text, {}) == text, "Run `python docs/record.py`"


@pytest.mark.parametrize("path", record.EXAMPLES, ids=identify)
def test_pages_show_each_part_of_an_example(path):
    shown = {
        (name, part): output
        for page in record.PAGES
        for name, part, _, output in record.SHOWN.findall(page.read_text())
    }
    for part, code in record.parts(path).items():
        assert (identify(path), part) in shown, f"No page shows {part}"
        if "print(" in code or path.suffix == ".sh":
            assert shown[identify(path), part], f"{part} has no recorded output"


@pytest.mark.once("torch")
@pytest.mark.long
@pytest.mark.parametrize("page", filter(record.blocks, record.PAGES), ids=identify)
def test_blocks_of_a_page_print_what_it_shows(page):
    printed = record.run(page)
    compares_numbers = True
    for name, part, code, recorded in record.SHOWN.findall(page.read_text()):
        compares_numbers = compares_numbers and not record.trains(code)
        out = printed[name, part]
        message = f"{part} printed:\n{out}\nrecorded:\n{recorded}"
        assert record.same(recorded, out, compares_numbers), message
        assert record.learns(code, out), f"{part} scores no better than chance:\n{out}"


def test_trained_models_of_the_pages_have_learned():
    for page in record.PAGES:
        for name, part, code, out in record.SHOWN.findall(page.read_text()):
            assert record.learns(code, out), f"{name}, {part} scores no better than chance"


def test_index_of_examples_lists_all_files():
    text = (ROOT / "examples" / "README.md").read_text()
    files = [*record.EXAMPLES, *ROOT.glob("examples/data/*")]
    missing = [path for path in files if f"]({path.relative_to(ROOT / 'examples')})" not in text]
    assert not missing
    long = [path for path in ROOT.glob("examples/data/*") if path.read_text().count("\n") > 50]
    assert not long, "Data files have at most fifty lines"


def test_outputs_are_compared():
    step = "step 5/20  loss 0.701  accuracy 40.00"
    assert record.same(step, "step 5/20  loss 0.702  accuracy 40.10")
    assert not record.same(step, "step 5/20  loss 0.801  accuracy 40.00")
    assert not record.same(step, "step 5/20  loss 0.701  accuracy 50.00")
    assert record.same(step, "step 5/20  loss 0.801  accuracy 50.00", compares_numbers=False)
    assert not record.same("Anna 0.90", "Tom 0.90")
    assert not record.same("Anna 0.90", "Tom 0.90", compares_numbers=False)
    blank = "  I [saw] it.   MLM: saw (2%)  read (1%)\n"
    other = blank.replace("read", "sold")
    assert record.same(blank, other, compares_numbers=False) and not record.same(blank, other)
    assert not record.same(blank, other.replace("[saw]", "[sold]"), compares_numbers=False)
    log = f"3/20  0:10 left\n{step}  1,047 tokens/s  54 ms per step\n"
    assert record.tidy(log) == f"{step}  ...\n"


def commands(code):
    """Returns the commands of a shell block, with continued lines joined."""
    for line in code.replace("\\\n", " ").splitlines():
        yield from (" ".join(part.split()) for part in line.split(" && ") if part.strip())


@pytest.mark.parametrize("path", PAGES, ids=identify)
def test_commands_flags_and_files_of_a_page_exist(path):
    text = path.read_text()
    prose = BLOCK.sub("", text)
    fences = [line for line in text.splitlines() if line.lstrip().startswith(("```", "~~~"))]
    assert len(fences) == 2 * len(BLOCK.findall(text)), "A code fence is not closed"
    # Blocks outside of examples are commands that the tests cannot run, or Python that parses.
    for language, code in BLOCK.findall(record.SHOWN.sub("", text)):
        assert language in LANGUAGES, f"A code block with language {language!r}"
        if language == "python":
            ast.parse(code)
        for command in commands(code) if language == "sh" else ():
            check_command(command)
    start = re.compile(r"(KERAS_\w+=\S+ )*(python|spanbert-\w+|torchrun) ")
    for command in filter(start.match, INLINE.findall(prose)):
        check_command(command)
    scripts = [*ROOT.glob("benchmarks/*.py"), ROOT / "keras_spanbert/checkpoints/__main__.py"]
    sources = "".join(script.read_text() for script in scripts)
    known = [*flags.FLAGS, "flagfile", "help", "helpfull", "version"]
    for name in re.findall(r"`--(\w+)", prose):
        assert name in known or f'"--{name}"' in sources, f"No command has a flag --{name}"
    folders = "benchmarks|configs|docs|examples|keras_spanbert|tests"
    names = re.findall(rf"`((?:{folders})/[^`\s<]*)`", text)
    assert not [name for name in names if not any(ROOT.glob(name.rstrip("/")))]


def check_command(command):
    while match := VARIABLE.match(command):
        command = command[match.end() :]
    assert command.startswith(NOT_RUN), f"Not in NOT_RUN: {command}"
    if command.startswith("until "):
        command = command.removeprefix("until ").partition(";")[0]
    words = shlex.split(command)
    words[0] = words[0].replace("spanbert-train", "train.py")
    scripts = [i for i, word in enumerate(words) if word.endswith(".py")]
    if not scripts:
        return
    script, arguments = words[scripts[0]], words[scripts[0] + 1 :]
    if "--help" in arguments:
        return
    if script == "train.py":
        with flagsaver.flagsaver():
            parse_flags(["train.py", *arguments])
    else:
        source = (ROOT / script).read_text()
        names = [word.split("=")[0] for word in arguments if word.startswith("--")]
        missing = [name for name in names if name.strip("-") not in source]
        assert not missing, f"{script} has no {' '.join(missing)}"


@pytest.mark.parametrize("path", PAGES, ids=identify)
def test_no_command_chooses_the_best_model_on_test_data(path):
    text = path.read_text()
    lines = [command for _, code in BLOCK.findall(text) for command in commands(code)]
    for command in [*lines, *INLINE.findall(text)]:
        if "--train_data=" in command:
            name = command.partition("--eval_data=")[2].split(" ")[0]
            assert "test" not in name.lower(), command


def test_scores_of_presets_are_those_of_their_cards():
    rows = [
        row
        for path in ROOT.glob("docs/*.md")
        for row in re.findall(r"^\| the preset `([\w-]+)`(.*)", path.read_text(), re.MULTILINE)
    ]
    assert len(rows) == 3
    for preset, row in rows:
        card = (ROOT / "saved_models" / preset / "README.md").read_text()
        scores = {f"{float(score):.1f}" for score in re.findall(r"\d+\.\d+", card)}
        found = re.findall(r"\d+\.\d", row.replace("SQuAD 1.1", ""))
        assert found and set(found) <= scores, row


def test_examples_write_to_different_paths():
    """All pages can be pasted into one clone."""
    flag = re.compile(r"--(?:output|predictions|export|html)=(\S+)")
    texts = [part for path in record.EXAMPLES for part in record.parts(path).values()]
    written = [path for text in texts if "--resume" not in text for path in flag.findall(text)]
    assert len(set(written)) == len(written) and all(path[:4] == "out/" for path in written)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def table_of(heading):
    """Returns the pages in a table of docs/README.md."""
    text = INDEX.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [ROOT / "docs" / link for link in re.findall(r"^\| \[[^]]*\]\((.*?)\)", text, re.M)]


GUIDES = {heading: table_of(heading) for heading in ["Start", "Tasks", "How to", "Results"]}


@pytest.mark.parametrize("path", GUIDES["Tasks"] + GUIDES["How to"], ids=identify)
def test_guide_has_the_sections_of_a_guide(path):
    text = path.read_text()
    headings = re.findall(r"^## (.*)$", BLOCK.sub("", text), re.MULTILINE)
    assert [heading for heading in headings if heading not in TRAINING] == SECTIONS
    if path in GUIDES["Tasks"]:
        assert headings[2] in TRAINING
        assert record.SHOWN.search(text), "A guide has at least one example"


LISTED = {path for paths in GUIDES.values() for path in paths}.intersection(ROOT.glob("docs/*.md"))


def test_index_lists_each_page():
    missing = {*ROOT.glob("docs/*.md")} - LISTED - {INDEX}
    assert not missing, f"Not in a table of docs/README.md: {sorted(map(identify, missing))}"


@pytest.mark.parametrize("path", PAGES, ids=identify)
def test_links_work(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", path.read_text())):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name) if name else path
        assert target.exists(), f"{path}: {link} leads nowhere"
        if anchor.startswith("keras_spanbert."):
            assert anchor in reference_entries(target), f"{path}: {link} has no entry"
        elif anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings]
            assert anchor in anchors, f"{path}: {link} does not match a heading"


def reference_entries(path):
    """Returns the names that a page of docs/reference/ documents."""
    text = path.read_text()
    names = set(re.findall(r"^::: (\S+)", text, re.MULTILINE))
    if "\n{models}\n" in text:
        names |= {f"keras_spanbert.{x}" for x in dir(ks) if x.startswith("SpanBert")}
    if "\n{preprocessors}\n" in text:
        names |= {f"keras_spanbert.{x}" for x in dir(ks) if x.endswith("Preprocessor")}
    return names


@pytest.mark.parametrize("path", sorted(LISTED), ids=identify)
def test_the_first_mention_of_a_class_is_a_link_to_the_reference(path):
    text = BLOCK.sub("", path.read_text())
    for name in {x for x in ks.__all__ if x[0].isupper()}:
        first = re.search(rf"\[?`(ks\.)?{name}`(\]\(\S*#keras_spanbert\.{name}\))?", text)
        assert first is None or first[2], f"`{name}` is not a link"


# `python docs/run_tour.py` renews the outputs of the tour.
TOUR = json.loads((ROOT / "docs" / "tour.ipynb").read_text())["cells"]
TOUR = [cell for cell in TOUR if cell["cell_type"] == "code"]


def test_tour_has_outputs_without_warnings_and_paths():
    assert sum(bool(cell["outputs"]) for cell in TOUR) >= 8
    text = json.dumps([cell["outputs"] for cell in TOUR])
    assert not re.search(r"stderr|Warning|/home/|/root/|site-packages", text)


@pytest.mark.long
def test_tour_runs_and_prints_the_same_answers():
    code = "\n".join("".join(cell["source"]) for cell in TOUR)
    assert "STEPS, EPOCHS = 10, 10" in code
    code = code.replace("STEPS, EPOCHS = 10, 10", "STEPS, EPOCHS = 6, 2")
    code = code.replace("warmup_steps=10", "warmup_steps=2")
    out, _ = run_python("-c", code, MPLBACKEND="agg")
    outputs = [output for cell in TOUR for output in cell["outputs"]]
    printed = "".join(text for output in outputs for text in output.get("text", []))
    # Scores may differ in the last digit.
    without_scores = re.compile(r"-?\d+\.\d+|\d+%")
    assert without_scores.sub("", out) == without_scores.sub("", printed)

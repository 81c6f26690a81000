"""Puts examples and what they print into the pages: `python docs/record.py [EXAMPLE ...]`.

A file in `examples/` has parts, each under a line `# %% name`. A page shows a part after a line
`<!-- example: examples/file.py name -->`: its code, and below it what the part printed. Without
arguments, this script runs no example and only copies the code. `all` runs every example.

Examples run in a folder that looks like a fresh clone, and each one alone. They run on the backend
in `KERAS_BACKEND`; the outputs in the pages are those of PyTorch.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("saved_models/*/README.md")]
EXAMPLES = sorted(path for path in ROOT.glob("examples/*") if path.suffix in (".py", ".sh"))
LANGUAGES = {".py": "python", ".sh": "sh"}
# The marker, and the blocks of code and output that follow it.
SHOWN = re.compile(
    r"^<!-- example: (\S+) (\S+) -->\n"
    r"(?:\n```(?:python|sh)\n(.*?)^```\n)?(?:\n```text\n(.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
PART = re.compile(r"^# %% (\S+).*\n", re.MULTILINE)
SEPARATOR = "=== part "
# Two runs differ in their progress, which a terminal overwrites, their speed and their times.
PROGRESS = re.compile(r"^(?:\d+/\d+  |Reading |Tokenizing: ).*\n", re.MULTILINE)
TIME = re.compile(r"^\d\d:\d\d |  [\d:]+ left$| in [\d.]+ s\b", re.MULTILINE)
SPEED = re.compile(r"  [\d.,]+k? tokens/s.*")
# Guesses of a model that was just trained also differ between processors.
GUESSES = re.compile(r"(?<=   MLM: ).*")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
ABSOLUTE, RELATIVE = 0.02, 0.02  # Largest differences of numbers from the recorded ones.


def parts(path):
    """Returns the code of each part of an example by name."""
    _, *rest = PART.split(path.read_text())
    return {name: code.strip("\n") + "\n" for name, code in zip(rest[::2], rest[1::2])}


def run(path):
    """Runs an example as in a fresh clone. Returns what each part prints."""
    call = "print('{}', flush=True)\n" if path.suffix == ".py" else "echo '{}'\n"
    code = PART.sub(lambda m: call.format(SEPARATOR + m[1]), path.read_text())
    with tempfile.TemporaryDirectory() as folder:
        clone = pathlib.Path(folder, "clone")
        link_clone(clone)
        # With its own name, an example could hide a package.
        script = pathlib.Path(folder, f"example{path.suffix}")
        script.write_text(code)
        program = [sys.executable] if path.suffix == ".py" else ["bash", "-euo", "pipefail"]
        done = subprocess.run(
            [*program, str(script)],
            cwd=clone,
            env=environment(folder),
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{path.name} failed:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
        out = done.stdout.replace(f"{clone}/", "")
    _, *rest = re.split(rf"^{SEPARATOR}(\S+)\n", out, flags=re.MULTILINE)
    return {name: tidy(text) for name, text in zip(rest[::2], rest[1::2])}


def link_clone(clone):
    """Makes a folder with links to the files of the repository, in which examples may write."""
    (clone / "saved_models").mkdir(parents=True)
    for card in ROOT.glob("saved_models/*/README.md"):  # The presets that come with the project.
        (clone / "saved_models" / card.parent.name).symlink_to(card.parent)
    for name in ["benchmarks", "configs", "docs", "examples", "keras_spanbert", "train.py"]:
        (clone / name).symlink_to(ROOT / name)


def environment(cache):
    """Returns the environment of an example: this Python and this code first, no cached text."""
    bin_folder = pathlib.Path(sys.executable).parent
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "KERAS_SPANBERT_CACHE": cache}


def tidy(out):
    """Leaves out what differs between two runs."""
    lines = SPEED.sub("  ...", TIME.sub("", PROGRESS.sub("", out))).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines).strip("\n") + "\n" if out.strip() else ""


def trains(path):
    """Whether an example trains. Then its numbers differ between processors."""
    return any(word in path.read_text() for word in ["fit(", "--train_data"])


def same(recorded, printed, compares_numbers=True):
    """Whether two outputs have the same words, and numbers that are almost equal."""
    if not compares_numbers:
        recorded, printed = GUESSES.sub("", recorded), GUESSES.sub("", printed)
    if NUMBER.sub("#", recorded) != NUMBER.sub("#", printed):
        return False
    if not compares_numbers:
        return True
    pairs = zip(map(float, NUMBER.findall(recorded)), map(float, NUMBER.findall(printed)))
    return all(abs(a - b) <= ABSOLUTE + RELATIVE * abs(a) for a, b in pairs)


def render(text, printed):
    """Returns the text of a page with the code of its examples, and new outputs if given.

    Args:
        text: the page.
        printed: dict of outputs, by (file, part). Other outputs do not change.
    """

    def show(match):
        name, part, _, output = match.groups()
        path = ROOT / name
        blocks = f"\n```{LANGUAGES[path.suffix]}\n{parts(path)[part]}```\n"
        output = printed.get((name, part), output)
        if output:
            blocks += f"\n```text\n{output}```\n"
        return f"<!-- example: {name} {part} -->\n{blocks}"

    return SHOWN.sub(show, text)


def main():
    names = sys.argv[1:]
    chosen = EXAMPLES if names == ["all"] else [pathlib.Path(name).resolve() for name in names]
    printed = {}
    for path in chosen:
        outputs = run(path)
        name = str(path.relative_to(ROOT))
        printed |= {(name, part): out for part, out in outputs.items()}
        print(f"Ran {name}", flush=True)
    for page in PAGES:
        text = page.read_text()
        new = render(text, printed)
        if new != text:
            page.write_text(new)
            print(f"Wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

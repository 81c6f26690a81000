"""Puts examples and what they print into the pages: `python docs/record.py [PAGE ...]`.

A file in `examples/` has parts, each under a line `# %% name`. A page shows a part after a line
`<!-- example: examples/file.py name -->`: its code, and below it what the part printed. Without
arguments, this script runs no example and only copies the code. `all` runs every page.

The blocks of a page run in order, in a folder that looks like a fresh clone, with one shell and one
Python for the page.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("saved_models/*/README.md")]
EXAMPLES = sorted(path for path in ROOT.glob("examples/*") if path.suffix in (".py", ".sh"))
EXAMPLES.remove(ROOT / "examples" / "demo.py")  # A server, see tests/test_demo.py.
LANGUAGES = {".py": "python", ".sh": "sh"}
# The marker, and the blocks of code and output that follow it.
SHOWN = re.compile(
    r"^<!-- example: (\S+) (\S+) -->\n"
    r"(?:\n```(?:python|sh)\n(.*?)^```\n)?(?:\n```text\n(.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
PART = re.compile(r"^# %% (\S+).*\n", re.MULTILINE)
END = "=== end of block"
# Programs that run a file for each line of their input.
SESSIONS = {
    ".py": [
        *[sys.executable, "-uc"],
        "import sys\n"
        "for block in map(str.strip, sys.stdin):\n"
        "    exec(compile(open(block).read(), block, 'exec'))\n"
        f"    print('\\n{END}')",
    ],
    ".sh": [
        *["bash", "-euo", "pipefail", "-c"],
        "while read -r block; do\n"
        '. "$block" < /dev/null\n'
        "COLUMNS=80 LINES=24\n"  # An interactive shell does this after each command.
        f"printf '\\n{END}\\n'\n"
        "done",
    ],
}
# Two runs differ in their progress, which a terminal overwrites, their speed and their times.
PROGRESS = re.compile(r"^(?:\d+/\d+  |Reading |Tokenizing: ).*\n", re.MULTILINE)
TIME = re.compile(r"^\d\d:\d\d |  [\d:]+ left$| in [\d.]+ s\b", re.MULTILINE)
SPEED = re.compile(r"  [\d.,]+k? tokens/s.*")
# Guesses of a model that was just trained also differ between processors.
GUESSES = re.compile(r"(?<=   MLM: ).*")
# Scores of models in percent. Models of the examples that have learned score higher than `CHANCE`:
# the F1 of a model that gives all rows one of two classes is 67. A guess among three choices is
# right in 33% of the rows.
SCORE = re.compile(r"\b(?:score|accuracy|F1) (\d+\.\d{1,2})\b")
CHANCE, CHANCE_OF_CHOICES = 70, 50
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
ABSOLUTE, RELATIVE = 0.02, 0.02  # Largest differences of numbers from the recorded ones.


def parts(path):
    """Returns the code of each part of an example by name."""
    _, *rest = PART.split(path.read_text())
    return {name: code.strip("\n") + "\n" for name, code in zip(rest[::2], rest[1::2])}


def blocks(page):
    """Returns the example and the name of the part that each block of a page shows."""
    return [(ROOT / name, part) for name, part, _, _ in SHOWN.findall(page.read_text())]


def run(page):
    """Runs the blocks of a page in order, in one folder, as if they were pasted.

    The folder looks like a fresh clone. Returns what each block prints, by (file, part).
    """
    printed, sessions = {}, {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        clone = pathlib.Path(folder, "clone")
        link_clone(clone)
        errors = stack.enter_context(open(pathlib.Path(folder, "stderr"), "w+"))
        for path, part in blocks(page):
            if path.suffix not in sessions:
                session = subprocess.Popen(
                    SESSIONS[path.suffix],
                    cwd=clone,
                    env=environment(folder),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                )
                sessions[path.suffix] = stack.enter_context(session)
            session = sessions[path.suffix]
            block = pathlib.Path(folder, f"{part}{path.suffix}")
            block.write_text(parts(path)[part])
            print(block, file=session.stdin, flush=True)
            lines = []
            for line in iter(session.stdout.readline, f"{END}\n"):
                if not line:  # The session has ended.
                    errors.seek(0)
                    out = "".join(lines)[-3000:]
                    raise RuntimeError(f"{path.name}, {part}:\n{out}\n{errors.read()[-3000:]}")
                lines.append(line)
            out = "".join(lines).replace(f"{clone}/", "")
            printed[str(path.relative_to(ROOT)), part] = tidy(out)
    return printed


def link_clone(clone):
    """Makes a folder with links to the files of the repository, in which examples may write."""
    (clone / "saved_models").mkdir(parents=True)
    for card in ROOT.glob("saved_models/*/README.md"):  # The presets that come with the project.
        (clone / "saved_models" / card.parent.name).symlink_to(card.parent)
    for name in ["benchmarks", "configs", "docs", "examples", "keras_spanbert", "train.py"]:
        (clone / name).symlink_to(ROOT / name)


def environment(cache):
    """Returns the environment of a page: this Python and code first, TensorFlow, no cached text."""
    bin_folder = pathlib.Path(sys.executable).parent
    path = f"{bin_folder}{os.pathsep}{os.environ['PATH']}"
    ours = {"PATH": path, "PYTHONPATH": str(ROOT), "KERAS_SPANBERT_CACHE": cache}
    return {**os.environ, **ours, "KERAS_BACKEND": "tensorflow"}


def tidy(out):
    """Leaves out what differs between two runs."""
    lines = SPEED.sub("  ...", TIME.sub("", PROGRESS.sub("", out))).splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines).strip("\n") + "\n" if out.strip() else ""


def trains(code):
    """Whether a block trains. Then its numbers and later ones differ between processors."""
    return any(word in code for word in ["fit(", "--train_data"])


def learns(code, out):
    """Whether the best score that a block prints is above chance. Only training counts."""
    scores = [float(score) for score in SCORE.findall(out)] if trains(code) else []
    chance = CHANCE_OF_CHOICES if "choice" in code else CHANCE
    return not scores or max(scores) > chance


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
    chosen = PAGES if names == ["all"] else [pathlib.Path(name).resolve() for name in names]
    printed = {}
    for page in filter(blocks, chosen):
        printed[page] = run(page)
        print(f"Ran {page.relative_to(ROOT)}", flush=True)
    for page in PAGES:
        text = page.read_text()
        new = render(text, printed.get(page, {}))
        if new != text:
            page.write_text(new)
            print(f"Wrote {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

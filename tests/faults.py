"""Draws one-line faults in the library, and tells which of them the default tests notice.

    python -m tests.faults --seed=1 --count=20            tests that concern the changed file
    python -m tests.faults --seed=1 --count=20 --all      then all others, if none has failed
    python -m tests.faults --seed=1 tests/metrics -k f1   arguments for pytest

`--list` only prints the faults. The library is changed in a copy of the checkout. Lines are drawn
with equal probabilities. Tests cannot notice a fault that leaves the program as it was.
"""

import argparse
import ast
import operator
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

from tests.__main__ import BACKENDS, ROOT, SHARING

OPERATORS = {
    "Eq": "!=", "NotEq": "==", "Lt": "<=", "LtE": "<", "Gt": ">=", "GtE": ">", "In": "not in",
    "NotIn": "in", "Is": "is not", "IsNot": "is", "Add": "-", "Sub": "+", "Mult": "+", "Div": "*",
    "FloorDiv": "+", "And": "or", "Or": "and",
}  # fmt: skip
# Nothing inside of these nodes and fields is changed: messages, imports, annotations.
SKIPPED = (ast.Raise, ast.JoinedStr, ast.ImportFrom, "annotation", "returns", "decorator_list")
start_of = operator.attrgetter("lineno", "col_offset")
end_of = operator.attrgetter("end_lineno", "end_col_offset")


def changes(node):
    """Yields `(start, end, text)` for each fault in a node: the new text from start to end."""
    match node:
        case (
            ast.Compare(left=left, ops=[op], comparators=[right])
            | ast.BinOp(left=left, op=op, right=right)
            | ast.BoolOp(values=[left, right, *_], op=op)
        ) if type(op).__name__ in OPERATORS:
            yield end_of(left), start_of(right), f" {OPERATORS[type(op).__name__]} "
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield start_of(node), start_of(operand), ""
        case ast.Constant(value=int() | float() as value):
            new = not value if isinstance(value, bool) else value + 1
            yield start_of(node), end_of(node), str(new)
        case ast.Call(args=args, keywords=[*others, last]) if args or others:
            yield end_of([*args, *others][-1]), end_of(last), ""
        case ast.Return(value=ast.expr() as value):
            yield start_of(value), end_of(value), "None"
        case ast.If(test=test) | ast.IfExp(test=test) if isinstance(test, ast.Name | ast.Call):
            yield start_of(test), start_of(test), "not "
        case ast.Subscript(slice=ast.Name() as index):
            yield end_of(index), end_of(index), " + 1"


def nodes(node):
    """Yields the nodes of a tree that may be changed."""
    is_log = isinstance(node, ast.Call) and ast.unparse(node.func).startswith(("LOG", "print"))
    if type(node) not in SKIPPED and not is_log:
        yield node
        for name, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if name not in SKIPPED and isinstance(child, ast.AST):
                    yield from nodes(child)


def draw(seed, count):
    """Returns `(path, line, content)` for each fault, with the whole content of the file."""
    places = {}
    for path in sorted(ROOT.glob("keras_spanbert/**/*.py")):
        for node in nodes(ast.parse(path.read_bytes())):
            for (first, left), (last, right), text in changes(node):
                if first == last:
                    places.setdefault((path, first), []).append((left, right, text.encode()))
    generator, faults, keys = random.Random(seed), [], sorted(places)
    while len(faults) < count:
        path, line = keys.pop(generator.randrange(len(keys)))
        left, right, text = generator.choice(places[path, line])
        lines = path.read_bytes().splitlines(keepends=True)  # Columns are bytes, too.
        lines[line - 1] = lines[line - 1][:left] + text + lines[line - 1][right:]
        try:  # Parentheses may be around an operand.
            ast.parse(b"".join(lines))
        except SyntaxError:
            continue
        faults.append((path.relative_to(ROOT), line, b"".join(lines)))
    return faults


def concerned(path):
    """Returns the test files in the folder of a module, with its name, or which import it."""
    folder, name = path.parent.relative_to("keras_spanbert"), ".".join(path.with_suffix("").parts)
    return [
        str(test.relative_to(ROOT))
        for test in sorted(ROOT.glob("tests/**/test_*.py"))
        if (folder.parts and test.is_relative_to(ROOT / "tests" / folder))
        or path.stem in test.stem
        or re.search(rf"\b{name}\b", test.read_text())
    ]


def failure(copy, arguments):
    """Runs pytest on one backend after the other. Returns the first failure, or `None`."""
    for backend in reversed(BACKENDS):
        # Python would not notice that a file has changed if its size and second are the same.
        variables = {"KERAS_BACKEND": backend, "PYTHONPATH": copy, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            ["timeout", "3600", sys.executable, "-m", "pytest", "-qxm", "not long", *arguments],
            cwd=copy, env={**os.environ, **SHARING, **variables}, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode not in (0, 5):  # 5: no test on this backend.
            found = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
            return f"{backend}: {found[0] if found else f'exit code {done.returncode}'}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--list", action="store_true")
    args, arguments = parser.parse_known_args()
    noticed = 0
    with tempfile.TemporaryDirectory() as copy:
        for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
            os.makedirs(pathlib.Path(copy, name).parent, exist_ok=True)
            shutil.copy(ROOT / name, pathlib.Path(copy, name))
        for path, line, content in draw(args.seed, args.count):
            old = (ROOT / path).read_bytes()
            print(f"{path}:{line}", flush=True)
            for mark, text in [("-", old), ("+", content)]:
                print(f"  {mark} {text.splitlines()[line - 1].decode().strip()}", flush=True)
            if not args.list:
                pathlib.Path(copy, path).write_bytes(content)
                found = failure(copy, arguments or concerned(path))
                found = found or (failure(copy, []) if args.all else None)
                pathlib.Path(copy, path).write_bytes(old)
                noticed += found is not None
                print(f"  {found or 'NOT NOTICED'}", flush=True)
    print(f"{noticed} of {args.count} faults noticed" * (not args.list))


if __name__ == "__main__":
    main()

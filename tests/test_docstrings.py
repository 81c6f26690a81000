"""Docstrings: each argument exists, and its default is the one that the docstring states."""

import ast
import importlib
import inspect
import pkgutil
import re

import pytest

import keras_spanbert

MODULES = sorted(m.name for m in pkgutil.walk_packages(keras_spanbert.__path__, "keras_spanbert."))
MODULES.remove("keras_spanbert.checkpoints.__main__")  # It runs a command.
ARGUMENTS = re.compile(r"^Args:\n(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^    (\w[\w, ]*):((?:.*\n? {8})*.*)", re.MULTILINE)
OTHER = re.compile(r"\b[Ss]ee\s+`([\w.]+)`")
DEFAULT = re.compile(r"Defaults\s+to\s+`([^`]+)`")


def documented(module):
    """Yields a module's functions, methods and classes with documented arguments, and the text."""
    for item in vars(module).values():
        if getattr(item, "__module__", None) == module.__name__:
            own = vars(item).values() if inspect.isclass(item) else []
            for x in [item, *(inspect.unwrap(getattr(part, "__func__", part)) for part in own)]:
                is_code = inspect.isclass(x) or inspect.isfunction(x)
                found = is_code and ARGUMENTS.search(inspect.cleandoc(x.__doc__ or ""))
                if found:
                    yield x, found[1]


@pytest.mark.once("torch")
def test_documented_arguments_and_defaults_are_those_of_the_code():
    items = [item for name in MODULES for item in documented(importlib.import_module(name))]
    of_name = {}  # By names such as `SpanMasking`, `Corpus.blocks` and `keras_spanbert.api.f`.
    for x, _ in items:
        for name in [x.__qualname__, f"{x.__module__}.{x.__qualname__}"]:
            of_name[name] = inspect.signature(x).parameters
    num_checked = 0
    for function, text in items:
        parameters = inspect.signature(function).parameters
        near = [f"{function.__module__}.{function.__qualname__}".rpartition(".")[0] + "."]
        near += [f"{function.__module__}.", ""]
        for names, entry in ENTRY.findall(text):
            stated, other = DEFAULT.search(entry), OTHER.search(entry)
            for argument in names.split(", "):
                place = f"{function.__module__}: {function.__qualname__}({argument})"
                assert argument in parameters or "kwargs" in parameters, place
                default = argument in parameters and parameters[argument].default
                found = [of_name.get(start + other[1]) for start in near] if other else []
                theirs = next(filter(None, found), {}).get(argument)
                if stated and argument in parameters:
                    num_checked += 1
                    assert repr(default) == repr(ast.literal_eval(stated[1])), place
                elif theirs and theirs.default is not theirs.empty:
                    num_checked += 1
                    assert default == theirs.default, f"{place} differs from {other[1]}"
    assert num_checked > 300

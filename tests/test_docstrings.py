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
    num_checked = 0
    for name in MODULES:
        for function, text in documented(importlib.import_module(name)):
            parameters = inspect.signature(function).parameters
            for names, entry in ENTRY.findall(text):
                stated = DEFAULT.search(entry)
                for argument in names.split(", "):
                    place = f"{name}: {function.__qualname__}({argument})"
                    assert argument in parameters or "kwargs" in parameters, place
                    if stated and argument in parameters:
                        default = parameters[argument].default
                        num_checked += 1
                        assert repr(default) == repr(ast.literal_eval(stated[1])), place
    assert num_checked > 200

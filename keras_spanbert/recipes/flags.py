"""Defines, groups, reads and records flags. Only recipes read flags.

`shared_flags` and `training_flags` define flags for all recipes; a recipe defines its own.
"""

import functools
import textwrap

from absl import flags

FLAGS = flags.FLAGS
# The group names with the text that introduces each group, in the order of `--help`.
_GROUPS = {}

# Advice about flags that earlier versions had.
_SEVERAL_RUNS = "For several seeds or values of flags, use spanbert-compare (docs/fine_tuning.md)"
REMOVED = {"grid": _SEVERAL_RUNS, "num_seeds": _SEVERAL_RUNS}


def group(name: str, about: str = "") -> list:
    """Returns the functions that define flags, which `--help` shows under `name`.

    `about` introduces the group. Give it where the group's first flags are defined. Integers must
    be at least 1 and other numbers at least 0, unless `lower_bound` is given.
    """
    _GROUPS.setdefault(name, about)
    kinds = ["string", "integer", "float", "bool", "list", "enum"]
    bounds = {"integer": {"lower_bound": 1}, "float": {"lower_bound": 0.0}}
    return [
        functools.partial(
            getattr(flags, f"DEFINE_{kind}"), module_name=name, **bounds.get(kind, {})
        )
        for kind in kinds
    ]


def set_flags(**values) -> None:
    """Sets flags to the values that the run uses, so that `run.json` records them."""
    for name, value in values.items():
        setattr(FLAGS, name, value)


def own_flags(*groups: str) -> list:
    """Returns this program's flags, or those of some groups, in the order of `--help`."""
    return [flag for name in groups or _GROUPS for flag in FLAGS.get_flags_for_module(name)]


def values() -> dict:
    """Returns the values of this program's flags."""
    return {flag.name: flag.value for flag in own_flags()}


def given() -> dict:
    """Returns the values of the flags that the user gave, in this run or the resumed one."""
    found = {flag.name: flag.value for flag in own_flags() if flag.present}
    found.pop("resume", None)
    return found


# === Help ===
def help_text() -> str:
    """Returns the text of `--help`: all flags, in the order of their definition."""
    return _format_groups(lambda flags: "\n".join(["", *map(_describe, flags)]))


def short_help_text() -> str:
    """Returns the text of `--helpshort`: the names of all flags."""
    return _format_groups(lambda flags: _wrap(" ".join(map(_name, flags)), 2, 2))


def full_help_text() -> str:
    """Returns the text of `--helpfull`: also the flags of libraries."""
    others = sorted(set(FLAGS.flags_by_module_dict()) - set(_GROUPS))
    return "\n".join([help_text(), *map(FLAGS.module_help, others)])


def _format_groups(text_of):
    """Returns all groups, each with its introduction and the text of its flags."""
    return "\n".join(
        f"{_wrap(f'{name}: {about}', 0, 0)}\n{text_of(FLAGS.get_flags_for_module(name))}\n"
        for name, about in _GROUPS.items()
    )


def _describe(flag):
    """Returns a flag's name, values and default, with its help text below."""
    text, facts = flag.help, [flag.parser.syntactic_help]
    if flag.flag_type() == "string enum":
        text = text.partition(">: ")[2]  # absl puts the values before the text.
        facts = [f"one of {', '.join(flag.parser.enum_values)}"]
    elif flag.flag_type() == "comma separated list of strings":
        facts = ["a list, separated by commas"]
    if flag.default_unparsed not in (None, []):
        facts.append(f"default: {flag.default_as_str.strip(chr(39))}")
    details = "; ".join(filter(None, facts))
    head = f"{_name(flag)} ({details})" if details else _name(flag)
    return f"{_wrap(head, 2, 2)}\n{_wrap(text, 6, 6)}"


def _name(flag):
    return f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"


def _wrap(text, indent, first_indent):
    return textwrap.fill(
        text,
        width=88,
        initial_indent=" " * first_indent,
        subsequent_indent=" " * indent,
        break_on_hyphens=False,
        break_long_words=False,
    )

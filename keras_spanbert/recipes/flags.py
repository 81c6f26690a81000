"""Defines, groups, reads and records flags. Only recipes read flags."""

import functools
import textwrap

from absl import flags

FLAGS = flags.FLAGS
# The group names with the text that introduces each group, in the order of definition.
_GROUPS = {}
# Flags that only `--helpfull` shows.
_RARE = set()
# Flags that the help of a task shows first, if the task uses them.
_COMMON = [
    *["task", "preset", "train_data", "eval_data", "predict_data", "predictions", "output"],
    *["export", "resume", "steps", "epochs", "batch_size", "learning_rate", "sequence_length"],
    *["dtype", "seed"],
]
# Advice about flags that earlier versions had.
_SEVERAL_RUNS = (
    "For several seeds or values of flags, use benchmarks/compare.py (docs/fine_tuning.md)"
)
REMOVED = {
    "benchmark": "Use --dataset",
    "grid": _SEVERAL_RUNS,
    "max_training_sentences": "Use --max_training_segments",
    "no_relation": "Use --negative_label",
    "num_seeds": _SEVERAL_RUNS,
    "replacement": "Use --mask_replacement",
}


class Group:
    """Defines flags that the help shows under one name.

    `about` introduces the group. Give it where the group's first flags are defined. Flags that are
    `rare` are shown only by `--helpfull`.
    """

    def __init__(self, name: str, about: str = ""):
        self.name = name
        _GROUPS.setdefault(name, about)

    def _define(self, define, name, *arguments, default=None, rare=False, **bounds):
        """Defines a flag. The arguments are the values of a choice, and the text for the help."""
        define(name, default, *arguments, module_name=self.name, **bounds)
        if rare:
            _RARE.add(name)

    string = functools.partialmethod(_define, flags.DEFINE_string)
    strings = functools.partialmethod(_define, flags.DEFINE_list)
    boolean = functools.partialmethod(_define, flags.DEFINE_bool)
    choice = functools.partialmethod(_define, flags.DEFINE_enum)
    integer = functools.partialmethod(_define, flags.DEFINE_integer, lower_bound=1)
    number = functools.partialmethod(_define, flags.DEFINE_float, lower_bound=0.0)


def set_flags(**values) -> None:
    """Sets flags to the values that the run uses, so that `run.json` records them."""
    for name, value in values.items():
        setattr(FLAGS, name, value)


def own_flags(*groups: str) -> list:
    """Returns this program's flags, or those of some groups, in the order of definition."""
    return [flag for name in groups or _GROUPS for flag in FLAGS.get_flags_for_module(name)]


def given() -> dict:
    """Returns the values of the flags that the user gave, in this run or the resumed one."""
    found = {flag.name: flag.value for flag in own_flags() if flag.present}
    found.pop("resume", None)
    return found


# === Help ===
def help_text(kind: str, groups: list[str], unused: list[str]) -> str:
    """Returns the text of `--help`, `--helpshort` (only names) or `--helpfull` (all flags).

    `groups` are those of the task, without the flags `unused`.
    """
    others = []
    if kind == "helpfull":
        groups, unused = list(_GROUPS), []
        others = sorted(set(FLAGS.flags_by_module_dict()) - set(_GROUPS))
    hidden, parts = set(unused), []
    if kind == "help":
        hidden |= _RARE
        found = {flag.name: flag for flag in own_flags(*groups) if flag.name not in hidden}
        common = [found[name] for name in _COMMON if name in found]
        parts.append(("Common", "the flags of most runs.", common))
        hidden.update(_COMMON)
    for name in groups:
        shown = [flag for flag in own_flags(name) if flag.name not in hidden]
        parts.append((name, _GROUPS.get(name), shown))
    texts = []
    for name, about, shown in parts:
        if shown:
            text = "\n".join(["", *map(_describe, shown)])
            if kind == "helpshort":
                text = _wrap(" ".join(map(_name, shown)), 2)
            texts.append(f"{_wrap(f'{name}: {about}', 0)}\n{text}\n")
    return "\n".join(["\n".join(texts), *map(FLAGS.module_help, others)])


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
    return f"{_wrap(head, 2)}\n{_wrap(text, 6)}"


def _name(flag):
    return f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}"


def _wrap(text, indent):
    options = {"break_on_hyphens": False, "break_long_words": False}
    return textwrap.indent(textwrap.fill(text, 88 - indent, **options), " " * indent)

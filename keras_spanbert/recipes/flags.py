"""Defines, groups, reads and records flags. Only recipes read flags."""

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
_SEVERAL_RUNS = "For several seeds or values of flags, use spanbert-compare (docs/fine_tuning.md)"
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

    def string(self, name: str, text: str, default: str | None = None, **kwargs) -> None:
        self._define(flags.DEFINE_string, name, default, text, **kwargs)

    def strings(self, name: str, text: str, default: list | None = None, **kwargs) -> None:
        self._define(flags.DEFINE_list, name, default, text, **kwargs)

    def boolean(self, name: str, text: str, default: bool | None = None, **kwargs) -> None:
        self._define(flags.DEFINE_bool, name, default, text, **kwargs)

    def choice(self, name: str, values: list, text: str, default=None, **kwargs) -> None:
        self._define(flags.DEFINE_enum, name, default, values, text, **kwargs)

    def integer(self, name: str, text: str, default=None, lower_bound=1, **kwargs) -> None:
        self._define(flags.DEFINE_integer, name, default, text, lower_bound=lower_bound, **kwargs)

    def number(self, name: str, text: str, default=None, lower_bound=0.0, **kwargs) -> None:
        self._define(flags.DEFINE_float, name, default, text, lower_bound=lower_bound, **kwargs)

    def _define(self, define, name, *arguments, rare=False, **bounds):
        define(name, *arguments, module_name=self.name, **bounds)
        if rare:
            _RARE.add(name)


def set_flags(**values) -> None:
    """Sets flags to the values that the run uses, so that `run.json` records them."""
    for name, value in values.items():
        setattr(FLAGS, name, value)


def own_flags(*groups: str) -> list:
    """Returns this program's flags, or those of some groups, in the order of definition."""
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
def help_text(groups: list[str], unused: list[str]) -> str:
    """Returns the text of `--help`: the flags of a task, the common ones first.

    `groups` are those of the task, without the flags `unused`.
    """
    found = {f.name: f for f in own_flags(*groups) if f.name not in {*unused, *_RARE}}
    common = [found.pop(name) for name in _COMMON if name in found]
    parts = [("Common", "the flags of most runs.", common)]
    for name in groups:
        parts.append((name, _GROUPS.get(name), [f for f in own_flags(name) if f.name in found]))
    return _format(parts, lambda flags: "\n".join(["", *map(_describe, flags)]))


def short_help_text(groups: list[str], unused: list[str]) -> str:
    """Returns the text of `--helpshort`: the names of the flags of a task."""
    found = {name: [f for f in own_flags(name) if f.name not in unused] for name in groups}
    parts = [(name, _GROUPS.get(name), flags) for name, flags in found.items()]
    return _format(parts, lambda flags: _wrap(" ".join(map(_name, flags)), 2, 2))


def full_help_text() -> str:
    """Returns the text of `--helpfull`: the flags of all tasks and of libraries."""
    parts = [(name, about, own_flags(name)) for name, about in _GROUPS.items()]
    own = _format(parts, lambda flags: "\n".join(["", *map(_describe, flags)]))
    others = sorted(set(FLAGS.flags_by_module_dict()) - set(_GROUPS))
    return "\n".join([own, *map(FLAGS.module_help, others)])


def _format(parts, text_of):
    """Returns groups of flags that are not empty, each with its introduction and their text."""
    return "\n".join(
        f"{_wrap(f'{name}: {about}', 0, 0)}\n{text_of(flags)}\n"
        for name, about, flags in parts
        if flags
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

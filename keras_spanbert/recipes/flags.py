"""Defines, groups, reads and records flags. Only recipes read flags."""

import functools
import textwrap

from absl import flags

from keras_spanbert.checks import expand_home


class _Flags:
    """The flags of absl. `read` has the names of those that were read since it was cleared."""

    def __init__(self):
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return flags.FLAGS[name]

    def __getattr__(self, name):
        self.read.add(name)
        return getattr(flags.FLAGS, name)

    def __iter__(self):
        return iter(flags.FLAGS)

    def __call__(self, arguments):
        return flags.FLAGS(arguments)


FLAGS = _Flags()
# The group names with the text that introduces each group, in the order of definition.
_GROUPS = {}
# Flags that `--help` explains, if the task uses them.
_COMMON = [
    *["task", "preset", "train_data", "eval_data", "predict_data", "predictions", "output"],
    *["export", "resume", "steps", "epochs", "batch_size", "learning_rate", "sequence_length"],
    *["dtype", "seed"],
]
# Names that other programs and earlier versions use, and what to use here.
ADVICE = {
    other: f"--{name}"
    for name, others in {
        "batch_size": "bs batch train_batch_size per_device_train_batch_size",
        "checkpoint_every": "save_steps save_every",
        "dataset": "benchmark task_name dataset_name",
        "distribution": "gpus num_gpus devices strategy",
        "doc_stride": "stride",
        "dtype": "bf16 fp16 amp precision mixed_precision",
        "epochs": "num_epochs num_train_epochs max_epochs",
        "eval_data": "eval_file dev_data dev_file validation_data validation_file",
        "eval_every": "eval_steps_every evaluation_every",
        "export": "saved_model export_dir",
        "gradient_accumulation": "gradient_accumulation_steps accumulate accumulation_steps",
        "learning_rate": "lr rate",
        "lowercase": "do_lower_case lower_case uncased",
        "mask_rate": "mlm_probability mask_prob masked_lm_prob",
        "mask_replacement": "replacement",
        "max_span_words": "max_span_length span_upper",
        "max_training_segments": "max_training_sentences max_segments",
        "negative_label": "no_relation",
        "output": "output_dir out save_dir model_dir",
        "patience": "early_stopping early_stopping_patience",
        "predict_data": "test_data test_file predict_file input",
        "predictions": "predict_output predictions_file",
        "preset": "model model_name model_name_or_path checkpoint init_checkpoint pretrained",
        "sequence_length": "max_length max_seq_length max_seq_len seq_length seq_len",
        "steps": "max_steps num_steps train_steps num_train_steps",
        "tensorboard": "wandb report_to logger",
        "train_data": "train_file data input_file data_dir corpus",
        "vocabulary": "vocab vocab_file tokenizer",
        "vocabulary_size": "vocab_size",
        "warmup_steps": "warmup warmup_ratio warmup_proportion",
    }.items()
    for other in others.split()
} | dict.fromkeys(
    ["grid", "num_seeds", "seeds"], "benchmarks/compare.py (docs/fine_tuning.md) for several runs"
)


class _PathParser(flags.ArgumentParser):
    def parse(self, argument):
        return expand_home(argument)


class _PathsParser(flags.ListParser):
    def parse(self, argument):
        return list(map(expand_home, super().parse(argument)))


_define_path = functools.partial(flags.DEFINE, _PathParser(), serializer=flags.ArgumentSerializer())
_define_paths = functools.partial(
    flags.DEFINE, _PathsParser(), serializer=flags.CsvListSerializer(",")
)


class Group:
    """Defines flags that the help shows under one name.

    `about` introduces the group. Give it where the group's first flags are defined.
    """

    def __init__(self, name: str, about: str = ""):
        self.name = name
        _GROUPS.setdefault(name, about)

    def _define(self, define, name, *arguments, default=None, **bounds):
        """Defines a flag. The arguments are the values of a choice, and the text for the help."""
        define(name, default, *arguments, module_name=self.name, **bounds)

    string = functools.partialmethod(_define, flags.DEFINE_string)
    strings = functools.partialmethod(_define, flags.DEFINE_list)
    path = functools.partialmethod(_define, _define_path)
    paths = functools.partialmethod(_define, _define_paths)
    boolean = functools.partialmethod(_define, flags.DEFINE_bool)
    choice = functools.partialmethod(_define, flags.DEFINE_enum)
    integer = functools.partialmethod(_define, flags.DEFINE_integer, lower_bound=1)
    number = functools.partialmethod(_define, flags.DEFINE_float, lower_bound=0.0)


def set_flags(**values) -> None:
    """Sets flags to the values that the run uses, so that `run.json` records them."""
    for name, value in values.items():
        setattr(flags.FLAGS, name, value)


def values(*names: str) -> dict:
    """Returns the values of flags by name, for arguments of the same names."""
    return {name: FLAGS[name].value for name in names}


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
    """Returns the text of `--help` (common flags), `--helpshort` (names) or `--helpfull` (all).

    `groups` are those of the task, without the flags `unused`.
    """
    if kind == "helpfull":
        parts = [
            "\n".join([_wrap(f"{name}: {text}", 0), "", *map(_describe, own_flags(name)), ""])
            for name, text in _GROUPS.items()
        ]
        others = sorted(set(FLAGS.flags_by_module_dict()) - set(_GROUPS))
        return "\n".join([*parts, *map(FLAGS.module_help, others)])
    found = {flag.name: flag for flag in own_flags(*groups) if flag.name not in unused}
    if kind == "helpshort":
        return _names(found.values())
    common = [found.pop(name) for name in _COMMON if name in found]
    return "\n".join([*map(_describe, common), "", "More flags:", _names(found.values())])


def _names(flags):
    return _wrap(" ".join(map(_name, flags)), 2)


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

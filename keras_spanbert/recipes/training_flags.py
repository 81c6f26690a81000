"""Flags of training, for every recipe. `checks` checks their values."""

from keras_spanbert.recipes.flags import group

string, integer, number, boolean, strings, choice = group(
    "Training", "length of the run, optimizer, devices and checkpoints."
)
integer(
    "steps",
    None,
    "Number of training steps, of one batch each. Default: 1600 for pretraining; other tasks use "
    "--epochs.",
)
integer(
    "epochs",
    None,
    "Number of passes over the training data. --epochs and --steps cannot both be given. Default: "
    "pretraining uses --steps; 2 for question answering, 20 for coreference, 10 for relation "
    "extraction, 3 for other tasks.",
)
integer(
    "batch_size",
    None,
    "Number of examples per step, over all devices: blocks in pretraining, windows in question "
    "answering, documents in coreference. Default: 64 for pretraining; 32 for question answering, "
    "classification and relation extraction; 16 for multiple choice and token classification; 1 "
    "for coreference.",
)
number(
    "learning_rate",
    None,
    "Peak learning rate. The rate rises linearly during warm-up, then falls linearly to 0. In "
    "coreference, this is the rate of the encoder; --head_learning_rate is that of the other "
    "layers. Default: 2e-3 for pretraining, 1e-4 for pretraining from --preset, 5e-5 for token "
    "classification, 2e-5 for other tasks.",
)
integer(
    "lora_rank",
    None,
    "Fine-tune with LoRA of this rank, for example 8: the encoder is frozen. Training "
    "changes only the layers above it, and small matrices that are added to its query and value "
    "projections. This needs less memory, and a --learning_rate about ten times as high. In the "
    "saved preset, the matrices are added to the weights. Not for pretraining. Default: no LoRA, "
    "all weights are trained.",
)
integer(
    "warmup_steps",
    None,
    "Number of steps in which the learning rate rises from 0 to its peak. In coreference, it "
    "applies to the encoder only. Default: a tenth of all steps.",
    lower_bound=0,
)
number(
    "weight_decay",
    0.01,
    "Weight decay of AdamW. Biases and layer normalizations are not decayed. In coreference, it "
    "applies to the encoder only.",
)
number(
    "beta_2",
    None,
    "AdamW's decay rate of the moving average of squared gradients. Default: 0.98 for "
    "pretraining, 0.999 for other tasks.",
    upper_bound=1.0,
)
number(
    "epsilon",
    None,
    "AdamW's epsilon, a small number that avoids division by zero. In coreference, it applies to "
    "the encoder only. Default: 1e-8 for pretraining and question answering, 1e-6 for other "
    "tasks.",
)
number(
    "clip_norm",
    1.0,
    "Largest global norm of the gradients. Larger gradients are scaled down. 0 means no limit. In "
    "coreference, it applies to the gradients of the encoder and of the other layers separately.",
)
integer(
    "eval_every",
    None,
    "Number of steps between evaluations on --eval_data or the held-out text. Default: a tenth of "
    "all steps for pretraining, one epoch for other tasks.",
)
choice(
    "distribution",
    "auto",
    ["auto", "none", "data", "model"],
    "How to use several devices. none: train on one device. data: each device holds the whole "
    "model and trains on a part of every batch. model: the devices of a process hold one "
    "model together, each a part of the weights; with one device per process, all devices do (JAX "
    "only). auto: data if there are several devices, else none.",
)
integer(
    "gradient_accumulation",
    1,
    "Number of batches whose gradients are averaged for one update of the weights. --steps and "
    "--warmup_steps count batches, not updates. Not supported with TensorFlow on several devices.",
)
integer(
    "steps_per_execution",
    1,
    "Number of steps per call of the compiled training function, on TensorFlow and JAX. Values "
    "above 1 save time if steps are short. It must divide --steps and --eval_every.",
)
choice(
    "jit_compile",
    "auto",
    ["auto", "true", "false"],
    "Whether to compile the training step: with XLA on TensorFlow and JAX; on PyTorch only the "
    "transformer layers, with torch.compile. auto: Keras's choice, and on PyTorch only on GPUs.",
)
boolean(
    "tensorboard",
    False,
    "Write losses and scores for TensorBoard, to the folder tensorboard/ in --output.",
)
integer(
    "profile_steps",
    None,
    "Number of steps to trace with the profiler of the backend. The trace starts at the sixth "
    "step and is written to the folder profile/ in --output. Default: no trace.",
)
integer(
    "checkpoint_every",
    500,
    "Number of steps between checkpoints. --resume continues from the newest checkpoint.",
)
integer("keep_checkpoints", 3, "Number of checkpoints to keep. Older ones are deleted.")

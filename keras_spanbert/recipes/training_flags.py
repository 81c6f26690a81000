"""Flags of training, for every recipe. `checks` checks their values."""

from keras_spanbert.recipes.flags import define

define(
    "Training",
    "length of the run, optimizer, devices and checkpoints.",
    """
    steps: integer
        Number of training steps, of one batch each. Default: 1600 for pretraining; other tasks use
        --epochs.

    epochs: integer
        Number of passes over the training data. --epochs and --steps cannot both be given. Default:
        pretraining uses --steps; 2 for question answering, 20 for coreference, 10 for relation
        extraction, 3 for other tasks.

    batch_size: integer
        Number of examples per step, over all devices: blocks in pretraining, windows in question
        answering, documents in coreference. Default: 64 for pretraining; 32 for question answering,
        classification and relation extraction; 16 for multiple choice and token classification; 1
        for coreference.

    learning_rate: number
        Peak learning rate. The rate rises linearly during warm-up, then falls linearly to 0. In
        coreference, this is the rate of the encoder; --head_learning_rate is that of the other
        layers. Default: 2e-3 for pretraining, 1e-4 for pretraining from --preset, 5e-5 for token
        classification, 2e-5 for other tasks.

    warmup_steps: integer from 0
        Number of steps in which the learning rate rises from 0 to its peak. In coreference, it
        applies to the encoder only. Default: a tenth of all steps.

    weight_decay: number = 0.01
        Weight decay of AdamW. Biases and layer normalizations are not decayed. In coreference, it
        applies to the encoder only.

    beta_2: number to 1.0
        AdamW's decay rate of the moving average of squared gradients. Default: 0.98 for
        pretraining, 0.999 for other tasks.

    epsilon: number
        AdamW's epsilon, a small number that avoids division by zero. In coreference, it applies to
        the encoder only. Default: 1e-8 for pretraining and question answering, 1e-6 for other
        tasks.

    clip_norm: number = 1.0
        Largest global norm of the gradients. Larger gradients are scaled down. 0 means no limit. In
        coreference, it applies to the gradients of the encoder and of the other layers separately.

    eval_every: integer
        Number of steps between evaluations on --eval_data or the held-out text. Default: a tenth of
        all steps for pretraining, one epoch for other tasks.

    eval_steps: integer = 100
        Largest number of batches per evaluation in pretraining.

    distribution: choice of auto, none, data, model = auto
        How to use several devices. none: train on one device. data: each device holds the whole
        model and trains on a part of every batch. model: the devices of a process hold one model
        together, each a part of the weights; with one device per process, all devices do (JAX
        only). auto: data if there are several devices, else none.

    gradient_accumulation: integer = 1
        Number of batches whose gradients are averaged for one update of the weights. --steps and
        --warmup_steps count batches, not updates. Not supported with TensorFlow on several devices.

    steps_per_execution: integer = 1
        Number of steps per call of the compiled training function, on TensorFlow and JAX. Values
        above 1 save time if steps are short. It must divide --steps and --eval_every.

    jit_compile: choice of auto, true, false = auto
        Whether to compile the training step: with XLA on TensorFlow and JAX, with torch.compile on
        PyTorch. auto lets Keras decide.

    tensorboard: boolean = false
        Write losses and scores for TensorBoard, to the folder tensorboard/ in --output.

    profile_steps (formerly profile): integer
        Number of steps to trace with the profiler of the backend. The trace starts at the sixth
        step and is written to the folder profile/ in --output. Default: no trace.

    checkpoint_every: integer = 500
        Number of steps between checkpoints. --resume continues from the newest checkpoint.

    keep_checkpoints: integer = 3
        Number of checkpoints to keep. Older ones are deleted.
    """,
)

"""A user's script for tests: trains a few steps and writes what each process saw."""

import json
import os
import signal
import sys
import time

if os.environ["KERAS_BACKEND"] == "torch":
    import torch  # noqa: F401  (TensorFlow imported first would break it)
if "JAX_ENABLE_COMPILATION_CACHE" in os.environ:
    import jax

    # JAX reads this during import, and a forked process has already imported JAX.
    jax.config.update("jax_enable_compilation_cache", False)
import tensorflow as tf

if "LOGICAL_CPUS" in os.environ:
    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * int(os.environ["LOGICAL_CPUS"])
    tf.config.set_logical_device_configuration(cpu, configuration)

import keras
import numpy as np

import keras_spanbert as ks
from keras_spanbert.data.batches import Batches
from keras_spanbert.data.corpus import SPECIAL_TOKENS, Corpus
from keras_spanbert.data.training_stream import TrainingStream
from keras_spanbert.models.lora import lora_layers

STEPS, BATCH_SIZE = 10, 8
# In fine-tuning, the last batch has one row, and nothing for the second device.
FEW, ROWS = 4, 9
WORDS = [f"{a}{b}" for a in "bcdfgh" for b in "aeiou"]
# The sizes in runs of train.py.
SIZES = {"num_layers": 1, "hidden_dim": 16, "intermediate_dim": 32}


def tokenizer():
    return ks.SpanBertTokenizer([*SPECIAL_TOKENS, *WORDS])


def backbone():
    keras.utils.set_random_seed(0)
    vocabulary_size = len(SPECIAL_TOKENS) + len(WORDS)
    return ks.SpanBertBackbone(vocabulary_size, 1, 2, 8, 16, dropout=0.0, max_sequence_length=12)


def weights_of(model, distribution):
    with distribution.local(model) as local:
        return [np.asarray(w, "float64").ravel().tolist() for w in local.get_weights()]


def write(result, distribution, output):
    with open(os.path.join(output, f"{distribution.process}.json"), "w") as file:
        json.dump({**result, "replicas": distribution.num_replicas}, file)


def pretrain(mode, texts, output, dies=None):
    # Tests wait until a dead process is noticed.
    distribution = ks.distribute(mode, **({"dead_after": 20} if dies else {}))
    distribution.check_batch_size(BATCH_SIZE)
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer(), sequence_length=12, mask_rate=0.3)
    corpus = Corpus(texts).prepared(preprocessor)
    counts, num_blocks = corpus.token_counts()
    stream = TrainingStream(corpus, preprocessor, BATCH_SIZE, seed=1, unigram_counts=counts)
    with distribution.scope():
        model = ks.SpanBertPretrainer(backbone(), position_dim=6)
        model.compile(ks.AdamW(1e-2))

    class Die(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1 and distribution.process == 1:
                # Only in the process that is stopped.
                while not os.path.exists(os.path.join(output, "0.json")):
                    time.sleep(0.1)
                open(os.path.join(output, "died"), "w").close()
                if dies == "frozen":  # Like a host without power: connections stay open.
                    os.kill(os.getpid(), signal.SIGSTOP)
                raise OSError("full disk")

    evaluation = corpus.training_dataset(preprocessor, BATCH_SIZE, seed=2).take(2)
    evaluation = evaluation.apply(tf.data.experimental.assert_cardinality(2))
    checkpoint = ks.TrainingCheckpoint(os.path.join(output, "checkpoints"), 5, data=stream)
    history = model.fit(
        distribution.dataset(stream),
        epochs=STEPS,
        steps_per_epoch=1,  # Gives the loss of each step.
        validation_data=distribution.split(evaluation),
        validation_freq=STEPS // 2,  # Feeding several devices restarts each time.
        callbacks=[checkpoint],
        shuffle=False,
        verbose=0,
    ).history
    rows = []
    dataset = corpus.training_dataset(preprocessor, BATCH_SIZE, seed=1)
    dataset = dataset.take(num_blocks // BATCH_SIZE)
    with distribution.scope():
        strategy = tf.distribute.get_strategy()
    for x, _, _ in strategy.experimental_distribute_dataset(distribution.split(dataset)):
        parts = strategy.experimental_local_results(x["token_ids"])
        rows.append(np.concatenate([part.numpy() for part in parts]).tolist())
    result = {
        "history": history,
        "weights": weights_of(model, distribution),
        "rows": rows,
        "checkpoint": checkpoint.newest,
        "sharded": sorted(
            v.path
            for v in model.trainable_variables
            if keras.backend.backend() == "jax" and not v.value.is_fully_replicated
        ),
    }
    write(result, distribution, output)
    if dies:
        dataset = distribution.dataset(stream)
        model.fit(dataset, epochs=100_000, steps_per_epoch=1, callbacks=[Die()], verbose=0)


def fine_tune(mode, output):
    """Trains each model for two epochs."""
    distribution = ks.distribute(mode)
    result = {}
    for build in [regression, resolver, lora]:
        with distribution.scope():
            model, stream = build()
            model.compile(keras.optimizers.SGD(0.1))  # With Adam, a wrong factor would not show.
        history = model.fit(
            distribution.dataset(stream),
            epochs=2 * stream.num_batches,
            steps_per_epoch=1,  # Gives the loss of each step.
            shuffle=False,
            verbose=0,
        ).history
        result[build.__name__] = {"history": history, "weights": weights_of(model, distribution)}
    write(result, distribution, output)


def texts():
    return [" ".join(WORDS[i : i + 3 + i % 4]) for i in range(ROWS)]


def regression():
    preprocessor = ks.SpanBertTextClassifierPreprocessor(tokenizer(), 12)
    model = ks.SpanBertTextClassifier(backbone(), 1, preprocessor, dropout=0.0)
    numbers = np.linspace(-1.0, 2.0, ROWS)
    return model, Batches(model.preprocess(texts(), numbers), FEW, seed=1, by_length=True)


def lora():
    model, stream = regression()
    model.backbone.enable_lora(2)
    for layer in lora_layers(model):  # The first step would not change zeros clearly.
        layer.lora_kernel_b.assign(np.full(layer.lora_kernel_b.shape, 0.1))
    return model, stream


def resolver():
    model = ks.SpanBertCoreferenceResolver(
        backbone(), ks.SpanBertCoreferenceResolverPreprocessor(tokenizer(), sequence_length=12),
        max_segment_len=12, max_span_width=2, max_top_antecedents=3, ffnn_size=5, feature_size=3,
        dropout_rate=0.0,
    )  # fmt: skip
    documents = [{"sentences": [text.split()], "clusters": [[(0, 0), (2, 2)]]} for text in texts()]
    return model, model.batches(documents, FEW, shuffle=True, seed=1, pad=True)


def train(*flags):
    """Runs train.py, first with a batch size that is not a multiple of the number of devices."""
    from train_script import run_in_process

    ks.SpanBertBackbone.SIZES["tiny"].update(SIZES)
    try:
        run_in_process(*flags, "--batch_size=5")
    except SystemExit as end:
        print("code", end.code)
    run_in_process(*flags)


def clip(output):
    """Writes the first moments of optimizers whose two replicas have different gradients."""

    def clipped(optimizer):
        variables = [keras.Variable([0.0], name=name) for name in "abc"]
        optimizer.build(variables)

        @tf.function
        def step():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            number = 8.0 * tf.cast(number, "float32")
            optimizer.apply([8.0 + number * tf.ones(1), 4.0 * number * tf.ones(1), None], variables)

        tf.distribute.get_strategy().run(step)
        return [float(v.numpy()[0]) for v in optimizer.variables if "momentum" in v.path]

    with ks.distribute().scope():
        optimizers = {
            "norm of all": ks.AdamW(loss_scale_factor=8.0),
            "norm of each": ks.AdamW(clipnorm=1.0, loss_scale_factor=8.0),
            "value": ks.AdamW(clipvalue=0.5, loss_scale_factor=8.0),
            "norm of a group": ks.TwoRateAdam(heads=["c"], loss_scale_factor=8.0),
            "nothing": ks.AdamW(global_clipnorm=None, loss_scale_factor=8.0),
        }
        found = {name: clipped(optimizer) for name, optimizer in optimizers.items()}
        # Gradients of embedding rows stay sparse.
        model = keras.Sequential([keras.layers.Embedding(5, 3), keras.layers.Dense(1)])
        model.compile(ks.AdamW(1e-2, global_clipnorm=None), "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 4, 1)), 4, verbose=0)
    with open(os.path.join(output, "0.json"), "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    {f.__name__: f for f in [pretrain, fine_tune, train, clip]}[sys.argv[1]](*sys.argv[2:])

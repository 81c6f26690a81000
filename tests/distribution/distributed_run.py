"""A user's own script: pretrains a few steps and writes what each process saw, for tests."""

import json
import os
import signal
import sys
import time

if os.environ["KERAS_BACKEND"] == "torch":
    import torch  # noqa: F401  (TensorFlow imported first would break it)
if "JAX_ENABLE_COMPILATION_CACHE" in os.environ:
    import jax

    # A forked process has JAX, which reads this when it is imported.
    jax.config.update("jax_enable_compilation_cache", False)
import tensorflow as tf

if "LOGICAL_CPUS" in os.environ:
    cpu = tf.config.list_physical_devices("CPU")[0]
    configuration = [tf.config.LogicalDeviceConfiguration()] * int(os.environ["LOGICAL_CPUS"])
    tf.config.set_logical_device_configuration(cpu, configuration)

import keras
import numpy as np

import keras_spanbert as ks
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.training_stream import TrainingStream
from keras_spanbert.data.vocabulary import SPECIAL_TOKENS

STEPS, BATCH_SIZE = 10, 8
WORDS = [f"{a}{b}" for a in "bcdfgh" for b in "aeiou"]


def main(mode, texts, output, dies=None):
    # Tests wait for the death of one to be noticed.
    distribution = ks.distribute(mode, **({"dead_after": 8} if dies else {}))
    distribution.check_batch_size(BATCH_SIZE)
    keras.utils.set_random_seed(0)
    tokenizer = ks.SpanBertTokenizer([*SPECIAL_TOKENS, *WORDS])
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, sequence_length=12, mask_rate=0.3)
    corpus = Corpus(texts)
    counts, _ = corpus.token_counts(tokenizer, 12)
    stream = TrainingStream(
        corpus, preprocessor, BATCH_SIZE, seed=1, shuffle_blocks=16, unigram_counts=counts
    )
    with distribution.scope():
        backbone = ks.SpanBertBackbone(
            tokenizer.vocabulary_size(), 1, 2, 8, 16, dropout=0.0, max_sequence_length=12
        )
        model = ks.SpanBertPretrainer(backbone, position_dim=6)
        model.compile(ks.AdamW(1e-2))

    class Die(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1 and distribution.process == 1:
                # By the process that is stopped with this one.
                while not os.path.exists(os.path.join(output, "0.json")):
                    time.sleep(0.1)
                open(os.path.join(output, "died"), "w").close()
                if dies == "killed":
                    os._exit(7)
                if dies == "frozen":  # As a host without power: its connections stay open.
                    os.kill(os.getpid(), signal.SIGSTOP)
                raise OSError("full disk")

    evaluation = TrainingStream(stream.corpus, preprocessor, BATCH_SIZE, seed=2).dataset().take(2)
    evaluation = evaluation.apply(tf.data.experimental.assert_cardinality(2))
    checkpoint = ks.TrainingCheckpoint(os.path.join(output, "checkpoints"), 5, data=stream)
    history = model.fit(
        distribution.dataset(stream),
        epochs=STEPS,
        steps_per_epoch=1,  # The loss of each.
        validation_data=distribution.split(evaluation),
        validation_freq=STEPS // 2,  # Feeding several devices begins anew with each.
        callbacks=[checkpoint],
        shuffle=False,
        verbose=0,
    ).history
    with distribution.local(model) as local:
        weights = [np.asarray(w, "float64").ravel().tolist() for w in local.get_weights()]
    rows = []
    dataset = TrainingStream(stream.corpus, preprocessor, BATCH_SIZE, seed=1, epochs=1).dataset()
    with distribution.scope():
        strategy = tf.distribute.get_strategy()
    for x, _, _ in strategy.experimental_distribute_dataset(distribution.split(dataset)):
        parts = strategy.experimental_local_results(x["token_ids"])
        rows.append(np.concatenate([part.numpy() for part in parts]).tolist())
    result = {
        "history": history,
        "weights": weights,
        "rows": rows,
        "replicas": distribution.num_replicas,
        "checkpoint": checkpoint.newest,
        "sharded": sorted(
            v.path
            for v in model.trainable_variables
            if keras.backend.backend() == "jax" and not v.value.is_fully_replicated
        ),
    }
    with open(os.path.join(output, f"{distribution.process}.json"), "w") as file:
        json.dump(result, file)
    if dies:
        dataset = distribution.dataset(stream)
        model.fit(dataset, epochs=100_000, steps_per_epoch=1, callbacks=[Die()], verbose=0)


if __name__ == "__main__":
    main(*sys.argv[1:])

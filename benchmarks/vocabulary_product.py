"""Does one product with the vocabulary for both heads pay?

Milliseconds of a training step of two heads alone, from hidden states to losses, at base size:

    two  a product and a loss for each head, as `SpanBertPretrainer` computes;
    one  both heads' rows joined, one product, one loss.

    python benchmarks/vocabulary_product.py
    KERAS_BACKEND=torch python benchmarks/vocabulary_product.py

Limited by the product's FLOPs, which are the same.
"""

import argparse
import os
import statistics
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras  # noqa: E402
import numpy as np  # noqa: E402

from keras_spanbert.training.losses import WeightedMeanCrossentropy  # noqa: E402

VOCABULARY_SIZE, HIDDEN_DIM = 28_996, 768
WARM_UP_STEPS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--predictions", type=int, default=77, help="masked tokens of a sequence")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    keras.config.set_dtype_policy(args.dtype)
    seconds = {"two": [], "one": []}
    for _ in range(args.repeats):
        for name in seconds:
            seconds[name] += measure(name == "one", args)
    two, one = (statistics.median(values) for values in seconds.values())
    print(
        f"{keras.backend.backend()}, {args.dtype}, {args.batch_size} x {args.predictions} x "
        f"{VOCABULARY_SIZE}, {os.cpu_count()} CPU cores"
    )
    print(f"two {1e3 * two:,.0f} ms, one {1e3 * one:,.0f} ms, ratio one/two: {one / two:.2f}")


def measure(is_joined, args):
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    embedding = keras.layers.ReversibleEmbedding(VOCABULARY_SIZE, HIDDEN_DIM)
    embedding.build()
    inputs = [keras.Input((args.predictions, HIDDEN_DIM)) for _ in range(2)]
    heads = [keras.layers.Dense(HIDDEN_DIM, activation="gelu")(x) for x in inputs]
    if is_joined:
        heads = [keras.layers.Concatenate(axis=1)(heads)]
    model = keras.Model(inputs, [embedding(x, reverse=True) for x in heads])
    model.compile(
        "sgd",
        [WeightedMeanCrossentropy(from_logits=True) for _ in heads],
        jit_compile=keras.backend.backend() == "jax",
    )
    steps = 1 + WARM_UP_STEPS + args.steps
    generator = np.random.default_rng(0)
    shape = steps * args.batch_size, args.predictions
    x = [generator.normal(size=(*shape, HIDDEN_DIM)).astype("float32") for _ in inputs]
    y = [generator.integers(0, VOCABULARY_SIZE, shape).astype("int32") for _ in inputs]
    if is_joined:
        y = [np.concatenate(y, axis=1)]
    ends = []

    class Timer(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            float(logs["loss"])  # Waits for the device.
            ends.append(time.perf_counter())

    model.fit(x, y, args.batch_size, callbacks=[Timer()], shuffle=False, verbose=0)
    return np.diff(ends[WARM_UP_STEPS:]).tolist()


if __name__ == "__main__":
    main()

"""How fast is span masking?

Measures sequences per second in `tf.data`. `SpanMasking` computes all span outputs with a seed per
element. The peer, `keras_hub.layers.MaskedLMMaskGenerator`, masks single tokens. All schemes are
measured; for `entity`, a linguistic span of one to four tokens starts at every tenth token.

    python benchmarks/masking.py

The limit is the CPU cores, shared by the parallel calls of `map` and the operations inside them.
"""

import argparse
import os
import statistics

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras_hub  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from measuring import batches_per_second  # noqa: E402

import keras_spanbert  # noqa: E402

VOCABULARY_SIZE = 28996  # The cased vocabulary of BERT, also for the ids below.
PAD, CLS, SEP, MASK = 0, 101, 102, 103
BATCH_SIZE, LENGTH, MAX_PREDICTIONS = 256, 512, 77


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="timed seconds per repeat")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()

    generator = np.random.default_rng(0)
    ordinary = np.arange(MASK + 1, VOCABULARY_SIZE)
    continuation = generator.choice(ordinary, size=len(ordinary) // 5, replace=False)
    token_ids = generator.choice(ordinary, size=(BATCH_SIZE, LENGTH)).astype(np.int32)
    token_ids[:, 0], token_ids[:, -1] = CLS, SEP

    span_marks = np.zeros_like(token_ids)
    for start in range(1, LENGTH - 4, 10):
        span_marks[:, start] = 1
        num_more = generator.integers(4, size=(BATCH_SIZE, 1))
        span_marks[:, start + 1 : start + 4] = np.where(np.arange(3) < num_more, 2, 0)

    def span_masking(**kwargs):
        masking = keras_spanbert.SpanMasking(
            vocabulary_size=VOCABULARY_SIZE,
            mask_token_id=MASK,
            continuation_token_ids=continuation,
            special_token_ids=(PAD, CLS, SEP, MASK),
            max_predictions=MAX_PREDICTIONS,
            **kwargs,
        )
        marks = {"span_marks": span_marks} if kwargs.get("scheme") == "entity" else {}
        return lambda i, x: masking(x, seed=tf.stack([np.int64(1), i]), **marks)

    mask_generator = keras_hub.layers.MaskedLMMaskGenerator(
        vocabulary_size=VOCABULARY_SIZE,
        mask_selection_rate=0.15,
        mask_token_id=MASK,
        mask_selection_length=MAX_PREDICTIONS,
        unselectable_token_ids=[PAD, CLS, SEP, MASK],
    )
    batches = tf.data.Dataset.from_tensors(token_ids).repeat().enumerate()

    def dataset(function):
        return batches.map(function, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    datasets = {
        "SpanMasking": dataset(span_masking()),
        "MaskedLMMaskGenerator (peer)": dataset(lambda i, x: mask_generator(x)),
        "num_mask_copies=10": dataset(span_masking(num_mask_copies=10)),
    }
    for scheme in ["random_span", "whole_word", "subword", "entity"]:
        datasets[f"scheme={scheme}"] = dataset(span_masking(scheme=scheme))
    rates = {name: [] for name in datasets}
    for _ in range(args.repeats):
        for name, masked in datasets.items():
            rates[name].append(BATCH_SIZE * batches_per_second(masked, args.seconds))

    medians = {name: statistics.median(values) for name, values in rates.items()}
    peer = medians["MaskedLMMaskGenerator (peer)"]
    print(f"batches of {BATCH_SIZE} x {LENGTH}, M = {MAX_PREDICTIONS}, {os.cpu_count()} CPU cores")
    print(f"{'layer':<30}{'sequences/s':>13}{'ratio to peer':>15}")
    for name, rate in medians.items():
        print(f"{name:<30}{rate:>13,.0f}{rate / peer:>15.2f}")


if __name__ == "__main__":
    main()

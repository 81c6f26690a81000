"""How fast does text become masked training batches?

    python benchmarks/input.py

Preparing, which is done once: megabytes of English text per second. Reading: masked sequences of
512 tokens per second in batches of 256 with a global shuffle, compared with masking blocks that are
already in memory (the limit) and with `keras_hub.models.BertMaskedLMPreprocessor` (the peer), which
tokenizes text in memory in each pass and masks single tokens.
"""

import argparse
import glob
import os
import shutil
import statistics
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras_hub  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from measuring import batches_per_second, speeches  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data.prepared import prepare  # noqa: E402
from keras_spanbert.data.training_stream import mask_batches  # noqa: E402

LENGTH, BATCH_SIZE, MAX_PREDICTIONS = 512, 256, 77
CHUNK_CHARACTERS = 2000


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=8, help="of the speeches in the corpus")
    parser.add_argument("--seconds", type=float, default=8.0, help="of reading per repeat")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        corpus = ks.Corpus(write_copies(folder, args.copies))
        tokenizer = ks.SpanBertTokenizer(ks.Corpus(speeches()).train_vocabulary(20_000))
        megabytes = sum(os.path.getsize(name) for name in corpus.files) / 1e6
        print(f"{megabytes:,.0f} MB of text, blocks of {LENGTH}, {os.cpu_count()} CPU cores")
        seconds = []
        for i in range(args.repeats):
            began = time.perf_counter()
            prepared = prepare(corpus, tokenizer, LENGTH, os.path.join(folder, f"prepared-{i}"))
            seconds.append(time.perf_counter() - began)
        print(f"prepared at {megabytes / statistics.median(seconds):.1f} MB/s", flush=True)

        preprocessor = ks.SpanBertPretrainerPreprocessor(
            tokenizer, LENGTH, max_predictions=MAX_PREDICTIONS
        )
        blocks = prepared.read(np.arange(prepared.num_blocks()))
        in_memory = tf.data.Dataset.from_tensor_slices(blocks).repeat()
        datasets = {
            "prepared corpus": prepared.training_dataset(preprocessor, BATCH_SIZE, seed=1),
            "blocks in memory, in order (limit)": mask_batches(
                in_memory.batch(BATCH_SIZE, drop_remainder=True), preprocessor, 1
            ).prefetch(tf.data.AUTOTUNE),
            "BertMaskedLMPreprocessor (peer)": peer(corpus, tokenizer.get_vocabulary()),
        }
        speeds = {name: [] for name in datasets}
        for _ in range(args.repeats):
            for name, dataset in datasets.items():
                speeds[name].append(BATCH_SIZE * batches_per_second(dataset, args.seconds))
    print(f"{'masked sequences':<44}{'rows/s':>10}{'ratio':>8}")
    slowest = statistics.median(speeds["BertMaskedLMPreprocessor (peer)"])
    for name, values in speeds.items():
        value = statistics.median(values)
        print(f"{name:<44}{value:>10,.0f}{value / slowest:>8.2f}")


def write_copies(folder, copies):
    for i in range(copies):
        for name in sorted(glob.glob(speeches())):
            # A corpus lists a file once, also if links name it several times.
            shutil.copyfile(name, os.path.join(folder, f"{i:03d}-{os.path.basename(name)}"))
    return os.path.join(folder, "*.txt")


def peer(corpus, vocabulary):
    """Returns masked batches of keras-hub, from shuffled chunks of about a sequence each."""
    preprocessor = keras_hub.models.BertMaskedLMPreprocessor(
        keras_hub.models.BertTokenizer(vocabulary),
        sequence_length=LENGTH,
        mask_selection_length=MAX_PREDICTIONS,
    )
    chunks = [
        text[i : i + CHUNK_CHARACTERS]
        for text, _ in corpus.documents()
        for i in range(0, len(text), CHUNK_CHARACTERS)
    ]
    np.random.default_rng(0).shuffle(chunks)
    dataset = tf.data.Dataset.from_tensor_slices(chunks).repeat().batch(BATCH_SIZE)
    return dataset.map(preprocessor, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)


if __name__ == "__main__":
    main()

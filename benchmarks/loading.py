"""How long does loading a checkpoint take, and how much memory?

Measures the time and peak memory of loading BERT large with its MLM head (random weights) from a
file, with `SpanBertPretrainer.from_preset` and with `transformers.BertForMaskedLM` (the peer).

    python benchmarks/loading.py --file_format safetensors
    python benchmarks/loading.py --file_format bin
    python benchmarks/loading.py --size tiny  # seconds

Each measurement runs in its own process, after a first run that reads the file into the page cache.
Memory is the peak of the process relative to the file size. The limit is copying the bytes of the
file once into the weights. The peer maps the file and copies nothing until a weight is used, which
only PyTorch supports.
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="large", help="of SpanBertBackbone.SIZES")
    parser.add_argument("--file_format", choices=["safetensors", "bin"], default="safetensors")
    parser.add_argument("--backends", nargs="+", default=["tensorflow", "jax", "torch"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--load", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        return print(json.dumps(load(*args.load)))
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own, because a new process inherits the peak of this one.
        in_process(__file__, "--load", "write", f"{folder}:{args.size}:{args.file_format}")
        size = max(path.stat().st_size for path in pathlib.Path(folder).iterdir())
        print(f"{args.file_format}, {size / 1e6:,.0f} MB, {os.cpu_count()} CPU cores")
        print(f"{'loader':<30}{'s':>8}{'peak MB':>10}{'of file':>9}{'time/peer':>11}")
        loaders = [("transformers", "torch"), *(("keras_spanbert", b) for b in args.backends)]
        for loader, backend in loaders:
            # Keeps the log lines of the libraries out of the table.
            settings = {"stderr": subprocess.DEVNULL, "KERAS_BACKEND": backend}
            runs = [
                in_process(__file__, "--load", loader, folder, **settings)
                for _ in range(args.repeats + 1)
            ]
            seconds, peak = (statistics.median(values) for values in zip(*runs[1:]))
            if loader == "transformers":
                peer_seconds = seconds
            print(
                f"{loader + ', ' + backend:<30}{seconds:>8.2f}{peak / 1e6:>10,.0f}"
                f"{peak / size:>9.2f}{seconds / peer_seconds:>11.2f}"
            )


def load(loader, folder):
    """Returns the seconds and the peak memory of loading in this process."""
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
    started = time.perf_counter()
    function(folder)
    return time.perf_counter() - started, peak_bytes()


def write(folder, size, file_format):
    import torch
    import transformers

    from keras_spanbert import SpanBertBackbone

    sizes = SpanBertBackbone.SIZES[size]
    config = transformers.BertConfig(
        vocab_size=28_996,
        hidden_size=sizes["hidden_dim"],
        num_hidden_layers=sizes["num_layers"],
        num_attention_heads=sizes["num_heads"],
        intermediate_size=sizes["intermediate_dim"],
    )
    model = transformers.BertForMaskedLM(config)
    model.save_pretrained(folder)
    if file_format == "bin":
        os.remove(os.path.join(folder, "model.safetensors"))
        torch.save(model.state_dict(), os.path.join(folder, "pytorch_model.bin"))


if __name__ == "__main__":
    main()

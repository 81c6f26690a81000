"""What does SpanBERT base as published take on 8, 64 and 256 accelerators?

    KERAS_BACKEND=torch python benchmarks/scale.py --restart_seconds=62

Global batches of 256 rows of 512 (Joshi et al. 2020, section 4.2), 2.4 million steps, the data over
the devices, no attention dropout. It measures the CPU time and the bytes read per row of input, and
the speed of writing and reading a checkpoint of the base model. `--restart_seconds` is what
`restarts.py` measured. The rest is computed:

    v5e step = optimizer + rows / rows compiled x (schedule - optimizer) + exchange
    H200 step = bytes of other operations / bandwidth
                + max(FLOPs of the model / peak, bytes of products / bandwidth) + exchange
    exchange = 2 (n - 1) / n x gradients / link                     (a ring, not overlapped)

Schedules and bytes are those of `compiled_step.py`. All but the optimizer grows with the
rows. Peaks are published ones. So steps are lower bounds. Input cores are those that the input
of a host's devices keeps busy at that rate; a lost host costs, in all devices' hours, the steps
since the last checkpoint (half of `--checkpoint_every`), the restart, reading the checkpoint, and
compiling on TPUs (a core's time; PyTorch's steps, on GPUs, are not compiled).
"""

import argparse
import dataclasses
import functools
import json
import os
import pathlib
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from input_shards import cost  # noqa: E402
from measuring import speeches  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data.prepared import prepare  # noqa: E402
from keras_spanbert.layers.initializers import skip_initialization  # noqa: E402
from keras_spanbert.runs.cost import step_flops  # noqa: E402

BATCH_SIZE, LENGTH, NUM_PREDICTIONS = 256, 512, 80
STEPS, VOCABULARY_SIZE = 2_400_000, 28_996
DEVICES = (8, 64, 256)


@dataclasses.dataclass(frozen=True)
class Device:
    """An accelerator: peaks per second, devices of a host, bytes per second of a link."""

    name: str
    flops: float | None
    bandwidth: float | None
    a_host: int
    # Within a host, and between hosts.
    links: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Program:
    """A step for some rows, from `compiled_step.py`: ms of a v5e, or GB of an H200.

    `optimizer` is a part of `others`. `exchanged` is in GB.
    """

    rows: int
    products: float
    others: float
    optimizer: float
    exchanged: float
    compile_seconds: float


# Links, in one direction: 1,600 Gbit/s a chip of a v5e, and 8 chips a host; half of NVLink's 900
# GB/s in both, and a network card of 400 Gbit/s for each H200.
V5E = Device("v5e", None, None, 8, (200e9, 200e9))
H200 = Device("H200", 990e12, 4800e9, 8, (450e9, 50e9))
# `compiled_step.py ours --attention_dropout=0`. Gradients of an H200 are taken to be a v5e's.
PROGRAMS = {
    ("base", V5E): Program(16, 34.21, 13.98, 5.82, 0.355, 305),
    ("base", H200): Program(16, 11.65, 19.80, 4.09, 0.355, 0),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--restart_seconds", type=float, required=True)
    parser.add_argument("--checkpoint_every", type=int, default=500)
    parser.add_argument("--steps", type=int, default=24, help="of input to measure")
    parser.add_argument("--json", help="measurements go there, or come from there, if it exists")
    args = parser.parse_args()
    if args.json and os.path.exists(args.json):
        measured = json.loads(pathlib.Path(args.json).read_text())
    else:
        with tempfile.TemporaryDirectory() as folder:
            measured = {"input": measure_input(folder, args.steps), **measure_checkpoint(folder)}
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(measured, indent=2))
    per_row = measured["input"]
    print(f"input: {per_row['cpu_ms']:.3f} CPU ms, {per_row['bytes']:,.0f} bytes read per row")
    write, read = measured["write"] / 1e6, measured["read"] / 1e6
    print(f"checkpoint: {write:,.0f} MB/s written, {read:,.0f} read")
    rows = [
        row(size, device, number, measured, args) for size, device in PROGRAMS for number in DEVICES
    ]
    names = list(rows[0])
    print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
    for each in rows:
        print("| " + " | ".join(map(str, each.values())) + " |")


def measure_input(folder, steps) -> dict:
    """CPU time and bytes of a row of 512, beyond what starting takes."""
    corpus = ks.Corpus(speeches(), cross_documents=True)
    tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(VOCABULARY_SIZE))
    prepared = prepare(corpus, tokenizer, LENGTH, os.path.join(folder, "prepared"))
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH)
    counts, _ = prepared.token_counts()
    stream = ks.TrainingStream(prepared, preprocessor, BATCH_SIZE, seed=1, unigram_counts=counts)
    cpu_ms, read = cost(iter(stream.dataset()), steps)
    return {"cpu_ms": cpu_ms / BATCH_SIZE, "bytes": read / BATCH_SIZE}


def measure_checkpoint(folder) -> dict:
    """Bytes a second at which a checkpoint of the base model is written, and read."""
    model = pretrainer("base")
    model.compile()
    model.optimizer.build(model.trainable_variables)
    path = os.path.join(folder, "checkpoints")
    checkpoint = ks.TrainingCheckpoint(path, every=1)
    checkpoint.set_model(model)
    checkpoint.set_params({"steps": 1000})
    checkpoint.step = 1
    checkpoint.save()
    began = time.perf_counter()
    checkpoint.wait()
    written = time.perf_counter() - began
    checkpoint.close()
    began = time.perf_counter()
    ks.TrainingCheckpoint(path, every=1).close()
    read = time.perf_counter() - began
    size = sum(file.stat().st_size for file in pathlib.Path(path).rglob("*") if file.is_file())
    return {"write": size / written, "read": size / read}


def row(size, device, number, measured, args) -> dict:
    """Returns the estimates for a number of devices."""
    program, model = PROGRAMS[size, device], pretrainer(size)
    weights, rows = model.count_params(), BATCH_SIZE / number
    grown = rows / program.rows
    products = grown * program.products
    others = program.optimizer + grown * (program.others - program.optimizer)
    if device is V5E:
        products, others = products / 1e3, others / 1e3
    else:
        flops = step_flops(model, BATCH_SIZE, LENGTH, NUM_PREDICTIONS) / number
        products = max(flops / device.flops, 1e9 * products / device.bandwidth)
        others = 1e9 * others / device.bandwidth
    link = device.links[number > device.a_host and device.links[1] < device.links[0]]
    exchange = 2 * (number - 1) / number * 1e9 * program.exchanged / link
    step = products + others + exchange
    hosts = max(1, number // device.a_host)
    rows_a_second = BATCH_SIZE / step
    input_cores = measured["input"]["cpu_ms"] / 1e3 * rows_a_second / hosts
    checkpoint = 3 * 4 * weights
    lost = args.checkpoint_every / 2 * step + args.restart_seconds + checkpoint / measured["read"]
    lost += program.compile_seconds
    return {
        "model": size,
        "devices": f"{number} {device.name}",
        "step, ms": f"{1e3 * step:.1f}",
        "products, others, exchange": ", ".join(
            f"{1e3 * part:.1f}" for part in (products, others, exchange)
        ),
        "steps per day": f"{86_400 / step / 1e6:.2f} M",
        "2.4 M steps": f"{STEPS * step / 3600:.1f} h",
        "rows/s": f"{rows_a_second:,.0f}",
        "input cores per host": f"{input_cores:.2f}",
        "MB/s from storage": f"{measured['input']['bytes'] * rows_a_second / 1e6:.1f}",
        "checkpoint": f"{checkpoint / 1e9:.2f} GB, {checkpoint / measured['write']:.0f} s",
        "lost host": f"{lost:.0f} s, {lost * number / 3600:.1f} device h",
    }


@functools.cache
def pretrainer(size):
    sizes = ks.SpanBertBackbone.SIZES[size]
    with skip_initialization():
        return ks.SpanBertPretrainer(ks.SpanBertBackbone(VOCABULARY_SIZE, dtype="float32", **sizes))


if __name__ == "__main__":
    main()

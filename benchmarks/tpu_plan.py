"""What would a pretraining step cost on a TPU, by the account of its compiler?

It takes no TPU: `pip install libtpu` brings the compiler, which runs on a CPU. The parts of a step
(MLM and SBO, AdamW) are compiled as they run on the chips of a topology: embeddings, one layer and
two, heads with loss and metrics, optimizer. Their programs tell bytes, matrix products, random
numbers and exchanges between chips, all a chip and step, and what is held. A step is

    embeddings + first layer + (layers - 1) x what the second of two adds + heads + optimizer.

    python benchmarks/tpu_plan.py --size=base --batch_size=16 --attention_dropout=0
    python benchmarks/tpu_plan.py --size=large --batch_size=24 --rematerialize --topology=v5e:4x4
    python benchmarks/tpu_plan.py --parallel=model --parts=heads
    python benchmarks/tpu_plan.py --whole  # the step as one program too, to compare the sum with
    python benchmarks/tpu_plan.py --json=plan.jsonl --label=before --plot=plan.png

How bytes are counted stands in `hlo_bytes.py`. Times are what each would take at the chip's peak,
alone: a step takes no less than the longest. That of random numbers is an estimate: the programs'
operations on unsigned integers at the rate of the whole vector unit, which has other work too; the
hardware's generator counts one for 32 bits. `compiler` is the sum of the times that the compiler
itself expects of the instructions, without exchanges between chips.
"""

import argparse
import collections
import dataclasses
import importlib.util
import json
import math
import os
import pathlib
import sys
import time

import hlo_bytes


@dataclasses.dataclass(frozen=True)
class Chip:
    """Peaks of a chip, a second: bfloat16 FLOP, bytes, integer operations; and bytes of memory.

    The clock follows from FLOP/s and the matrix units. A core of a TPU computes 4 x 8 x 128 numbers
    a cycle in its vector unit: an estimate, after https://jax-ml.github.io/scaling-book/tpus.
    """

    flops: float
    bandwidth: float
    memory: float
    integer_ops: float
    hertz: float
    source: str


# Hertz: FLOP/s over 2 x the places of the matrix units (v5e 4 x 128^2, v5p 8, v6e 4 x 256^2).
CHIPS = {
    "v5e": Chip(197e12, 819e9, 16e9, 6.2e12, 1.5e9, "https://cloud.google.com/tpu/docs/v5e"),
    "v5p": Chip(459e12, 2765e9, 95e9, 14.3e12, 1.75e9, "https://cloud.google.com/tpu/docs/v5p"),
    "v6e": Chip(918e12, 1640e9, 32e9, 7.2e12, 1.75e9, "https://cloud.google.com/tpu/docs/v6e"),
}
# To compare with: the bytes stay those of the TPU's program.
H200 = (990e12, 4800e9)  # https://www.nvidia.com/en-us/data-center/h200
PARTS = ("embeddings", "layers", "heads", "optimizer")
COLUMNS = ("bytes", "flops", "integer_ops", "generator_words", "cycles", "cpu_seconds")


def main():
    args = parse_arguments()
    if args.draw_only:
        draw(args, [json.loads(line) for line in pathlib.Path(args.json).open()])
        return
    if not (importlib.util.find_spec("libtpu") or os.environ.get("TPU_LIBRARY_PATH")):
        print("Nothing to do: the TPU's compiler is not installed (pip install libtpu)")
        return
    set_environment(args)
    row = measure(args)
    show(row)
    if args.json:
        with open(args.json, "a") as file:
            file.write(json.dumps(row) + "\n")
    if args.plot:
        rows = [json.loads(line) for line in open(args.json)] if args.json else [row]
        draw(args, rows)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", help="of SpanBertBackbone.SIZES")
    parser.add_argument("--batch_size", type=int, default=16, help="a chip, or chips of one model")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--topology", default="v5e:2x4")
    parser.add_argument("--parallel", choices=["data", "model"], default="data")
    parser.add_argument("--shards", type=int, default=8, help="chips of one model")
    parser.add_argument("--dtype", default="mixed_bfloat16")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--attention_dropout", type=float, help="default: --dropout")
    parser.add_argument("--mask_rate", type=float, default=0.15)
    parser.add_argument("--rematerialize", action="store_true")
    parser.add_argument("--full_blocks", action="store_true", help="no padding mask")
    parser.add_argument("--parts", default=",".join(PARTS), help="which of them")
    parser.add_argument("--whole", action="store_true", help="compile the step as one program too")
    parser.add_argument("--largest", type=int, default=0, help="show so many of the largest moves")
    parser.add_argument("--label", default="", help="what the row is called in file and plot")
    parser.add_argument("--json", help="append the results to this file")
    parser.add_argument("--plot", help="draw the rows of --json, or this one, to this PNG")
    parser.add_argument("--draw_only", action="store_true", help="draw, and compile nothing")
    parser.add_argument("--hlo", help="write the programs to this folder")
    args = parser.parse_args()
    if args.attention_dropout is None:
        args.attention_dropout = args.dropout
    args.parts = args.parts.split(",")
    unknown = [part for part in args.parts if part not in PARTS]
    if unknown:
        parser.error(f"--parts must be among {','.join(PARTS)}. Received: {','.join(unknown)}")
    if args.topology.split(":")[0] not in CHIPS:
        parser.error(f"--topology must begin with one of {', '.join(CHIPS)}: {args.topology}")
    if args.draw_only and not (args.json and args.plot):
        parser.error("--draw_only takes --json and --plot")
    return args


def set_environment(args):
    """For JAX: no accelerator, and as many CPU devices as a model is to be cut over."""
    os.environ["KERAS_BACKEND"] = "jax"
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if args.parallel == "model":
        chips = math.prod(int(side) for side in args.topology.split(":")[1].split("x"))
        args.shards = min(args.shards, chips)
        flags = os.environ.get("XLA_FLAGS", "")
        count = f"--xla_force_host_platform_device_count={chips}"
        os.environ["XLA_FLAGS"] = f"{flags} {count}".strip()


# === Measuring ===


def measure(args):
    """The row of results: figures of the parts and of their sum."""
    started = time.monotonic()

    def log(text):
        print(f"{time.monotonic() - started:5.0f} s  {text}", flush=True)

    log("building the model")
    import keras

    keras.config.set_dtype_policy(args.dtype)
    parts = build(args, num_layers=2)
    held = {}

    def compiled(name, function, *arguments):
        log(f"compiling {name}")
        part = function(*arguments)
        for mover, moved in part.costs.movers.most_common(args.largest):
            print(f"         {moved / 1e9:8.3f} GB  {mover[:100]}")
        held[name] = part.held
        return figures(part)

    n, batch_size = parts.backbone.SIZES[args.size]["num_layers"], args.batch_size
    found = {}
    if "embeddings" in args.parts:
        found["embeddings"] = compiled("embeddings", parts.embeddings, batch_size)
    if "layers" in args.parts:
        found["first layer"] = compiled("1 layer", parts.layers, batch_size, 1)
        two = compiled("2 layers", parts.layers, batch_size, 2)
        found["further layers"] = combined((n - 1, two), (1 - n, found["first layer"]))
    if "heads" in args.parts:
        found["heads"] = compiled("heads", parts.heads_and_loss, batch_size)
    if "optimizer" in args.parts:
        one = compiled("optimizer, 1 layer", parts.optimizer, 1)
        two = compiled("optimizer, 2 layers", parts.optimizer, 2)
        found["optimizer"] = combined((n - 1, two), (2 - n, one))
    if args.whole:
        log("building the whole model")
        whole = build(args, num_layers=n)
        found["whole"] = compiled("the whole step", whole.whole, batch_size)
    log("done")
    row = {
        "label": args.label or f"{args.size} {batch_size} x {args.length}",
        "flags": vars(args),
        "num_chips": parts.num_chips,
        "num_predictions": parts.num_predictions,
        "model_flops": model_flops(parts, n, args),
        "parts": found,
        "sum": combined(*((1, part) for name, part in found.items() if name != "whole")),
        "draws": draws(parts, found, args),
    }
    if {"1 layer", "2 layers", "heads"} <= set(held):
        row["memory"] = memory(parts, n, held, batch_size, CHIPS[args.topology.split(":")[0]])
    if args.whole:
        row["whole_held"] = held["the whole step"]
    return row


def build(args, num_layers):
    import tpu_parts

    if args.hlo:
        pathlib.Path(args.hlo).mkdir(parents=True, exist_ok=True)
    return tpu_parts.Parts(
        args.size,
        num_layers,
        args.topology,
        args.parallel,
        args.shards,
        args.length,
        args.mask_rate,
        has_padding=not args.full_blocks,
        hlo=pathlib.Path(args.hlo) if args.hlo else None,
        backbone={
            "dropout": args.dropout,
            "attention_dropout": args.attention_dropout,
            "rematerialize": args.rematerialize,
        },
    )


def figures(part):
    """The figures of a compiled part, which add up."""
    costs = part.costs
    found = {name: getattr(costs, name) for name in COLUMNS if hasattr(costs, name)}
    found["cpu_seconds"] = part.cpu_seconds
    found["collectives"] = [
        [*kind, row] for kind, row in hlo_bytes.collectives_by_kind(costs.collectives).items()
    ]
    found["draws"] = [[list(shape), count] for shape, count in costs.draws.most_common(8)]
    return found


def combined(*terms):
    """The sum of figures, each times a number."""
    found = {name: sum(times * part[name] for times, part in terms) for name in COLUMNS}
    # What is compiled is compiled once, and for two layers what is one is compiled again.
    found["cpu_seconds"] = sum(part["cpu_seconds"] for _, part in terms)
    found["draws"] = [draw for _, part in terms for draw in part["draws"]]
    rows = collections.defaultdict(collections.Counter)
    for times, part in terms:
        for kind, dtype, row in part["collectives"]:
            for name, value in row.items():
                rows[kind, dtype][name] += times * value
    found["collectives"] = [[*kind, dict(row)] for kind, row in rows.items()]
    return found


def model_flops(parts, num_layers, args):
    """FLOPs of the model's matrix products a chip and step, whatever is computed beyond."""
    backbone = parts.backbone
    forward = backbone.flops(args.length) / backbone.num_layers * num_layers
    forward += parts.model.head_flops(parts.num_predictions)
    return 3.0 * args.batch_size * forward / parts.shards


def draws(parts, found, args):
    """The largest array of random numbers on a chip, and what a chip's share of it would be."""
    rows, size = args.batch_size * args.length, parts.backbone.hidden_dim
    share = rows * size if args.dropout else 0
    if args.attention_dropout:
        share = max(share, rows * args.length * parts.backbone.num_heads // parts.shards)
    shapes = [math.prod(shape) for part in found.values() for shape, _ in part["draws"]]
    return {"largest": max(shapes, default=0), "share": share}


def memory(parts, num_layers, held, batch_size, chip):
    """Bytes of a chip that a step holds, and the largest batch: what is kept grows with the rows.

    The most is held either when the backward pass begins, with what all layers keep and the heads'
    working memory, or when it ends, with all gradients.
    """
    backbone, model = parts.backbone, parts.model
    layer = parts.bytes_of(backbone.transformer_layers[0].trainable_variables)
    weights = parts.bytes_of(model.trainable_variables)
    weights += (num_layers - backbone.num_layers) * layer
    of_heads = weights - num_layers * layer
    kept = held["2 layers"] - held["1 layer"]
    working = held["1 layer"] - kept
    first = (num_layers * kept + held["heads"], of_heads)
    last = (kept + working, weights)
    # Weights, and two moments of each.
    state = 3 * weights
    largest = min(
        (chip.memory - state - gradients) / (activations / batch_size)
        for activations, gradients in (first, last)
    )
    return {
        "weights": weights,
        "kept_a_layer": kept,
        "state": state,
        "held": state + max(map(sum, (first, last))),
        "largest_batch": max(0, math.floor(largest)),
    }


# === Showing ===


def times(row, part):
    """Milliseconds of products, memory and random numbers at a chip's peak; and the compiler's."""
    chip = CHIPS[row["flags"]["topology"].split(":")[0]]
    flops = part["flops"]
    if part is row["sum"] and set(row["flags"]["parts"]) == set(PARTS):
        # Kernels may not say what they multiply.
        flops = max(flops, row["model_flops"])
    return {
        "matrix": 1e3 * flops / chip.flops,
        "memory": 1e3 * part["bytes"] / chip.bandwidth,
        "random": 1e3 * (part["integer_ops"] + part["generator_words"]) / chip.integer_ops,
        "compiler": 1e3 * part["cycles"] / chip.hertz,
    }


def show(row):
    flags = row["flags"]
    print(
        f"{flags['size']}, {flags['batch_size']} x {flags['length']} a "
        f"{'chip' if flags['parallel'] == 'data' else 'model'}, M = {row['num_predictions']}, "
        f"{flags['dtype']}, dropout {flags['dropout']}, of attention "
        f"{flags['attention_dropout']}, {flags['topology']}, {flags['parallel']} parallel"
        f"{', rematerialised' if flags['rematerialize'] else ''}"
    )
    print(
        f"{'a chip and step':<18}{'GB':>8}{'GFLOP':>9}{'random Gop':>12}"
        f"{'matrix ms':>11}{'memory':>9}{'random':>9}{'compiler':>10}{'limit':>9}{'CPU s':>8}"
    )
    for name, part in [*row["parts"].items(), ("sum", row["sum"])]:
        found = times(row, part)
        expected = found.pop("compiler")
        limit = max(found, key=found.get)
        print(
            f"{name:<18}{part['bytes'] / 1e9:>8.2f}{part['flops'] / 1e9:>9,.0f}"
            f"{(part['integer_ops'] + part['generator_words']) / 1e9:>12.1f}"
            f"{found['matrix']:>11.1f}{found['memory']:>9.1f}{found['random']:>9.1f}"
            f"{expected:>10.1f}{limit:>9}{part['cpu_seconds']:>8.0f}"
        )
    found = row["sum"]
    print(
        f"The model itself takes {row['model_flops'] / 1e9:,.0f} GFLOP. At the peaks of an H200 "
        f"the sum is {1e3 * found['flops'] / H200[0]:.1f} ms of products and "
        f"{1e3 * found['bytes'] / H200[1]:.1f} ms of memory"
    )
    for kind, dtype, of_kind in found["collectives"]:
        print(
            f"{kind}, {dtype}: {of_kind['count']} of {of_kind['bytes'] / 1e6:,.1f} MB together, "
            f"{of_kind['async']} started apart, {of_kind['overlapped']} of them beside other work"
        )
    if row["draws"]["share"]:
        is_whole = row["draws"]["largest"] > 1.5 * row["draws"]["share"]
        print(
            f"Random numbers: {row['draws']['largest']:,} at once, a chip's share is "
            f"{row['draws']['share']:,}{': each chip draws for others too' if is_whole else ''}"
        )
    if "memory" in row:
        held = row["memory"]
        print(
            f"Held: {held['held'] / 1e9:.2f} GB, of these {held['state'] / 1e9:.2f} weights and "
            f"moments; a layer keeps {held['kept_a_layer'] / 1e9:.3f}. The largest batch a chip: "
            f"{held['largest_batch']}"
        )
    if "whole_held" in row:
        print(f"The whole step holds {row['whole_held'] / 1e9:.2f} GB beside its arguments")


def draw(args, rows):
    """Bytes by part, and times, of each row."""
    from matplotlib.figure import Figure

    labels = [row["label"] for row in rows]
    height = 1.6 + 0.6 * len(rows)
    figure = Figure(figsize=(12, height), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    places = range(len(rows))
    starts = [0.0] * len(rows)
    for name in ("embeddings", "first layer", "further layers", "heads", "optimizer"):
        sizes = [row["parts"].get(name, {}).get("bytes", 0) / 1e9 for row in rows]
        left.barh(places, sizes, left=starts, label=name)
        starts = [start + size for start, size in zip(starts, sizes)]
    left.set_yticks(places, labels)
    left.invert_yaxis()
    left.set_xlabel("GB through memory, a chip and step")
    for i, name in enumerate(("matrix", "memory", "random")):
        values = [times(row, row["sum"])[name] for row in rows]
        label = "random numbers (estimate)" if name == "random" else name
        right.barh([place + 0.27 * (i - 1) for place in places], values, 0.25, label=label)
    right.set_xlabel("ms at the chip's peak")
    for axes in (left, right):
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=5, fontsize="small")
    figure.savefig(args.plot)
    print(f"Wrote {args.plot}")


if __name__ == "__main__":
    sys.exit(main())

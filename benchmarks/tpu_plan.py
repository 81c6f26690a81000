"""What would a pretraining step cost on a TPU, by the account of its compiler?

It takes no TPU: `pip install libtpu` brings the compiler, which runs on a CPU. The parts of a step
(MLM and SBO, AdamW) are compiled as they run on the chips of a topology: embeddings, one layer and
two, heads with loss and metrics, optimizer. Their programs tell bytes, matrix products, random
numbers and exchanges between chips, all a chip and step, what is held, and what compiling takes. A
step is

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
import importlib.util
import json
import math
import os
import pathlib
import sys
import time

import hlo_bytes
from tpu_report import CHIPS, PARTS, draw, show

# Flags that say where results go.
OF_OUTPUT = ("draw_only", "hlo", "json", "label", "largest", "plot")
COLUMNS = ("bytes", "flops", "integer_ops", "generator_words", "cycles", "cpu_seconds")


def main():
    args = parse_arguments()
    if args.draw_only:
        draw(args.plot, rows_of(args.json))
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
        draw(args.plot, rows_of(args.json) if args.json else [row])


def rows_of(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", help="of SpanBertBackbone.SIZES")
    parser.add_argument("--batch_size", type=int, default=16, help="a chip, or chips of one model")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--topology", default="v5e:2x4")
    parser.add_argument("--parallel", choices=["data", "model"], default="data")
    parser.add_argument("--shards", type=int, default=4, help="chips of one model")
    parser.add_argument("--dtype", default="mixed_bfloat16")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--attention_dropout", type=float, help="default: --dropout")
    parser.add_argument("--mask_rate", type=float, default=0.15)
    parser.add_argument("--predictions_multiple", type=int, default=8, help="M is one of it")
    parser.add_argument("--rematerialize", action="store_true")
    parser.add_argument("--scan_layers", action="store_true", help="with --whole")
    parser.add_argument("--full_blocks", action="store_true", help="no padding mask")
    parser.add_argument("--parts", default=",".join(PARTS), help="which of them")
    parser.add_argument("--whole", action="store_true", help="compile the step as one program too")
    parser.add_argument("--largest", type=int, default=0, help="show so many of the largest moves")
    parser.add_argument(
        "--second_batch_size",
        type=int,
        help="compile this one for its memory too, instead of taking it to grow with the rows",
    )
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
    second = None
    if args.second_batch_size and {"layers", "heads"} <= set(args.parts):
        size = args.second_batch_size
        for name, function, *count in [
            ("1 layer", parts.layers, 1),
            ("2 layers", parts.layers, 2),
            ("heads", parts.heads_and_loss),
        ]:
            compiled(f"{name} at batch {size}", function, size, *count)
        second = size
    log("done")
    row = {
        "label": args.label or f"{args.size} {batch_size} x {args.length}",
        "flags": {name: value for name, value in vars(args).items() if name not in OF_OUTPUT},
        "num_chips": parts.num_chips,
        "num_predictions": parts.num_predictions,
        "model_flops": model_flops(parts, n, args),
        "parts": found,
        "sum": combined(*((1, part) for name, part in found.items() if name != "whole")),
        "draws": draws(parts, found, args),
    }
    if {"1 layer", "2 layers", "heads"} <= set(held):
        row["memory"] = memory(parts, n, held, batch_size, second)
        fits = CHIPS[args.topology.split(":")[0]].memory
        row["memory"]["largest_batch"] = largest_batch(row["memory"], fits)
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
        args.predictions_multiple,
        has_padding=not args.full_blocks,
        hlo=pathlib.Path(args.hlo) if args.hlo else None,
        backbone={
            "dropout": args.dropout,
            "attention_dropout": args.attention_dropout,
            "rematerialize": args.rematerialize,
            "scan_layers": args.scan_layers,
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


def memory(parts, num_layers, held, batch_size, second):
    """Bytes of a chip that a step holds, at a batch size and, where there is one, a second one.

    The most is held either when the backward pass begins, with what all layers keep and the heads'
    working memory, or when it ends, with all gradients.
    """
    layers, model = parts.backbone.transformer_layers, parts.model
    layer = parts.bytes_of(layers[0].trainable_variables)
    weights = parts.bytes_of(model.trainable_variables) + (num_layers - len(layers)) * layer

    def activations(suffix):
        one, two, heads = (held[name + suffix] for name in ("1 layer", "2 layers", "heads"))
        kept = two - one
        return {"kept_a_layer": kept, "begin": num_layers * kept + heads, "end": one}

    found = {
        "state": 3 * weights,  # With two moments of each weight.
        "gradients": {"begin": weights - num_layers * layer, "end": weights},
        "activations": {batch_size: activations("")},
    }
    if second:
        found["activations"][second] = activations(f" at batch {second}")
    found["held"] = found["state"] + max(
        found["activations"][batch_size][when] + of_when
        for when, of_when in found["gradients"].items()
    )
    return found


def largest_batch(memory, fits):
    """The most rows that fit: what is held lies on a line, through 0 where one size is known."""
    (size, first), *others = memory["activations"].items()
    largest = math.inf
    for when, gradients in memory["gradients"].items():
        slope, start = first[when] / size, 0.0
        for other_size, other in others:
            grown = (first[when] - other[when]) / (size - other_size)
            # What fits into on-chip memory need not grow.
            if grown > 0:
                slope, start = grown, first[when] - grown * size
        largest = min(largest, (fits - memory["state"] - gradients - start) / slope)
    return max(0, math.floor(largest))


if __name__ == "__main__":
    sys.exit(main())

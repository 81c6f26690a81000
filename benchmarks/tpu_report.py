"""The peaks of chips, and what `tpu_plan.py` found as a table and a picture."""

import dataclasses


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


# Hertz: FLOP/s over 2 x the places of the matrix units (v5e 4 x 128^2, v5p 8 x 128^2); that of v6e
# is taken to be v5p's.
CHIPS = {
    "v5e": Chip(197e12, 819e9, 16e9, 6.2e12, 1.5e9, "https://cloud.google.com/tpu/docs/v5e"),
    "v5p": Chip(459e12, 2765e9, 95e9, 14.3e12, 1.75e9, "https://cloud.google.com/tpu/docs/v5p"),
    "v6e": Chip(918e12, 1640e9, 32e9, 7.2e12, 1.75e9, "https://cloud.google.com/tpu/docs/v6e"),
}
# To compare with: the bytes stay those of the TPU's program.
H200 = (990e12, 4800e9)  # https://www.nvidia.com/en-us/data-center/h200
PARTS = ("embeddings", "layers", "heads", "optimizer")


def times(row, part):
    """Milliseconds of products, memory and random numbers at a chip's peak; and the compiler's."""
    chip = CHIPS[row["flags"]["topology"].split(":")[0]]
    flops = part["flops"]
    if part is row["sum"] and is_whole_step(row):
        # Kernels may not say what they multiply.
        flops = max(flops, row["model_flops"])
    return {
        "matrix": 1e3 * flops / chip.flops,
        "memory": 1e3 * part["bytes"] / chip.bandwidth,
        "random": 1e3 * (part["integer_ops"] + part["generator_words"]) / chip.integer_ops,
        "compiler": 1e3 * part["cycles"] / chip.hertz,
    }


def is_whole_step(row):
    return set(row["flags"]["parts"]) == set(PARTS)


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
    if is_whole_step(row):
        print(
            f"The model itself takes {row['model_flops'] / 1e9:,.0f} GFLOP. At the peaks of an "
            f"H200 the sum is {1e3 * found['flops'] / H200[0]:.1f} ms of products and "
            f"{1e3 * found['bytes'] / H200[1]:.1f} ms of memory"
        )
    for kind, dtype, of_kind in found["collectives"]:
        print(
            f"{kind}, {dtype}: {of_kind['count']} of {of_kind['bytes'] / 1e6:,.1f} MB together, "
            f"{of_kind['async']} started apart, {of_kind['overlapped']} of them beside other work"
        )
    if row["draws"]["largest"]:
        is_whole = row["draws"]["largest"] > 1.5 * row["draws"]["share"]
        print(
            f"Random numbers: {row['draws']['largest']:,} at once, a chip's share is "
            f"{row['draws']['share']:,}{': each chip draws for others too' if is_whole else ''}"
        )
    if "memory" in row:
        held = row["memory"]
        for size, kept in held["activations"].items():
            print(f"At batch {size} a layer keeps {kept['kept_a_layer'] / 1e9:.3f} GB")
        print(
            f"Held: {held['held'] / 1e9:.2f} GB, of these {held['state'] / 1e9:.2f} weights and "
            f"moments. The largest batch a chip: {held['largest_batch']}"
        )
    if "whole_held" in row:
        print(f"The whole step holds {row['whole_held'] / 1e9:.2f} GB beside its arguments")


def draw(path, rows):
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
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize="small")
    figure.savefig(path)
    print(f"Wrote {path}")

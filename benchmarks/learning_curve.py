"""How does the held-out loss fall with tokens, model size and mask rate?

    python benchmarks/ablation.py benchmarks/plans/learning_curve.json FOLDER --seeds=1
    python benchmarks/learning_curve.py FOLDER --mask_rate=0.15

Fits, to all evaluations of the pretrainings in FOLDER of one mask rate but those of the first tenth
of their steps,

    loss = E + (A / N)^a + (B / D)^b

with N the parameters of the layers and D the tokens seen (Hoffmann et al. 2022, arXiv 2203.15556,
equation 10), least squares of Huber's kind. Prints the fit, the last loss of each run, and what
`--days` on a device would buy by it: N and D at which the fit is lowest for so many operations
(6 a parameter and token). That is extrapolation, far out of the fitted range, from the corpus of
the runs alone, which ends: it is marked as such, and left out where an exponent is at its bounds,
as where runs are too short for their size to matter. Runs that are not at their end count as far as
they are. Writes FOLDER/learning_curve.png.

Evaluations within a run come before its rate has fallen, so that they are worse than the last ones
of runs of that length; losses of different mask rates are of different tasks.
"""

import argparse
import pathlib

import numpy as np
from scipy import optimize

import keras_spanbert as ks
from keras_spanbert import files

# Dense bfloat16, operations a second, and the share of them that a step is taken to reach.
DEVICES = {"one H200": 989e12 * 0.45, "a TPU v5e-8": 8 * 197e12 * 0.45}
SKIPPED = 0.1
# Bounds of the exponents.
LOWEST, HIGHEST = 0.01, 2.0
SCORE = "val_mlm_cross_entropy"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--mask_rate", type=float, default=0.15)
    parser.add_argument("--days", type=float, default=1.0)
    args = parser.parse_args()
    runs = [run_of(path) for path in sorted(args.folder.glob("*/seed-*/pretrain/history.csv"))]
    runs = [run for run in runs if run["points"]]
    if not runs:
        parser.error(f"a folder must have runs that were evaluated; received: {args.folder}")
    for run in runs:
        tokens, loss = run["points"][-1]
        print(
            f"{run['name']}: {run['parameters']:,} parameters, mask rate {run['mask_rate']}, "
            f"{tokens:,} of {run['tokens']:,} tokens: {loss:.3f} nats"
        )
    fitted = [run for run in runs if run["mask_rate"] == args.mask_rate]
    sizes = {run["parameters"] for run in fitted}
    if len(sizes) < 3:
        parser.error(f"a fit takes runs of 3 sizes of one mask rate; there are {len(sizes)}")
    found, error = fit(fitted)
    E, A, a, B, b = found
    print(
        f"loss = {E:.3f} + ({A:.3g} / N)^{a:.3f} + ({B:.3g} / D)^{b:.3f}, off by {error:.3f} nats"
    )
    exponents = {"parameters": a, "tokens": b}
    unsettled = [name for name, x in exponents.items() if min(x - LOWEST, HIGHEST - x) < 1e-3]
    if unsettled:
        print(
            f"No extrapolation: these runs do not say how the loss falls with "
            f"{' and '.join(unsettled)}, whose exponent is at the bounds of the fit"
        )
    for device, rate in DEVICES.items() if not unsettled else ():
        operations = rate * 86_400 * args.days
        parameters, tokens, loss = best(found, operations)
        print(
            f"Extrapolation, {args.days:g} day(s) on {device}: {parameters:.3g} parameters, "
            f"{tokens:.3g} tokens, {loss:.2f} nats"
        )
    plot(args.folder / "learning_curve.png", fitted, found)
    print(f"Wrote {args.folder / 'learning_curve.png'}")


def run_of(path) -> dict:
    """What a pretraining was and came to; points are of tokens seen and held-out loss."""
    path = path.parent
    flags = files.read_json(path / "run.json")["flags"]
    # Of the flags, since a run that is not at its end has no preset yet.
    size = ks.SpanBertBackbone.SIZES[flags["size"]]
    hidden, inner = size["hidden_dim"], size["intermediate_dim"]
    parameters = size["num_layers"] * (4 * hidden**2 + 2 * hidden * inner)
    a_step = flags["batch_size"] * flags["sequence_length"]
    rows = files.read_csv(path / "history.csv")
    points = [
        (int(row["step"]) * a_step, float(row[SCORE]))
        for row in rows
        if int(row["step"]) > SKIPPED * flags["steps"] and row.get(SCORE)
    ]
    name = str(path.parent.relative_to(path.parent.parent.parent))
    return {
        "name": name,
        "parameters": parameters,
        "mask_rate": flags["mask_rate"],
        "tokens": flags["steps"] * a_step,
        "points": points,
    }


def loss_of(found, parameters, tokens):
    E, A, a, B, b = found
    return E + (A / parameters) ** a + (B / tokens) ** b


def fit(runs) -> tuple[np.ndarray, float]:
    """E, A, a, B and b, and the root of the mean squared error, in nats."""
    N, D, y = np.array(
        [(run["parameters"], tokens, loss) for run in runs for tokens, loss in run["points"]]
    ).T

    def residuals(x):
        return loss_of([x[0], np.exp(x[1]), x[2], np.exp(x[3]), x[4]], N, D) - y

    # What is fitted has valleys: the best of several starts.
    starts = [
        (0.5 * y.min(), np.log(N.mean()), a, np.log(D.mean()), b)
        for a in (0.1, 0.3)
        for b in (0.1, 0.3)
    ]
    bounds = [(0.0, 0.0, LOWEST, 0.0, LOWEST), (y.min(), 40.0, HIGHEST, 40.0, HIGHEST)]
    tried = [
        optimize.least_squares(residuals, start, bounds=bounds, loss="huber", f_scale=0.05)
        for start in starts
    ]
    x = min(tried, key=lambda one: one.cost).x
    found = np.array([x[0], np.exp(x[1]), x[2], np.exp(x[3]), x[4]])
    return found, float(np.sqrt(np.mean(residuals(x) ** 2)))


def best(found, operations) -> tuple[float, float, float]:
    """Parameters, tokens and loss where the fit is lowest for so many operations."""
    parameters = np.logspace(5, 11, 601)
    tokens = operations / (6 * parameters)
    losses = loss_of(found, parameters, tokens)
    i = int(np.argmin(losses))
    return float(parameters[i]), float(tokens[i]), float(losses[i])


def plot(path, runs, found) -> None:
    """The points of each run, and the fit through them."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for i, run in enumerate(runs):
        tokens, losses = np.array(run["points"]).T
        label = f"{run['name']}, {run['parameters']:.2g} parameters"
        axes.plot(tokens, losses, ".", color=f"C{i}", label=label)
        line = np.geomspace(tokens[0], 3 * tokens[-1], 50)
        axes.plot(line, loss_of(found, run["parameters"], line), color=f"C{i}", lw=0.8)
    axes.set_xscale("log")
    axes.set_xlabel("tokens seen")
    axes.set_ylabel("held-out cross-entropy of masked tokens (nats)")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    main()

"""How does the time per step grow with length, batch size, model size and mask rate?

Times steps of `SpanBertPretrainer` (MLM and SBO) like `training_step.py`, while one of the four
grows. Plots them to `benchmarks/step_cost.png`, together with the time for the FLOPs of the model
at the speed of a large matrix product, which is measured again after each case.

    python benchmarks/step_cost.py
    KERAS_BACKEND=torch python benchmarks/step_cost.py --size=small

The dashed line shows the time of a step if it consisted only of matrix products at full speed.
"""

import argparse
import os
import pathlib
import statistics

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras  # noqa: E402
import training_step  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="small", help="when another setting grows")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--plot", default=str(pathlib.Path(__file__).with_suffix(".png")))
    args = parser.parse_args()
    standard = {"size": args.size, "batch_size": args.batch_size, "length": 256, "rate": 0.15}
    grown = {
        "length": [128, 256, 384, 512],
        "batch_size": [2, 4, 8, 16],
        "size": ["tiny", "mini", "small", "base"],
        "rate": [0.05, 0.15, 0.3, 0.5],
    }
    backend = keras.backend.backend()
    print(f"{backend}, {args.dtype}, {os.cpu_count()} CPU cores")
    print(f"{'grows':<12}{'to':>8}{'ms':>10}{'ms of FLOPs':>13}{'share':>8}{'GFLOP/s':>10}")
    results = {}
    for name, values in grown.items():
        for value in values:
            case = {**standard, name: value}
            key = tuple(case.values())
            if key not in results:
                results[key] = measure(**case, args=args)
            seconds, flops, rate = results[key]
            print(
                f"{name:<12}{value:>8}{1e3 * seconds:>10,.0f}{1e3 * flops / rate:>13,.0f}"
                f"{flops / rate / seconds:>8.0%}{rate / 1e9:>10,.0f}",
                flush=True,
            )
    plot(args, standard, grown, results)
    print(f"Wrote {args.plot}")


def measure(size, batch_size, length, rate, args):
    """Returns the median seconds per step, its FLOPs, and the FLOP/s of a matrix product."""
    keras.backend.clear_session()
    settings = {"dropout": 0.1, "attention_dropout": None, "rematerialize": False}
    settings |= {"dtype": args.dtype, "steps": args.steps, "jit_compile": "auto"}
    found = training_step.measure(
        argparse.Namespace(
            variant="both",
            size=size,
            batch_size=batch_size,
            length=length,
            mask_rate=rate,
            **settings,
        )
    )
    return statistics.median(found["seconds"]), found["flops"], found["rate"]


def plot(args, standard, grown, results):
    from matplotlib.figure import Figure

    rate = statistics.median(rate for _, _, rate in results.values())

    figure = Figure(figsize=(12, 7), dpi=110, layout="constrained")
    for axes, (name, values) in zip(figure.subplots(2, 2).ravel(), grown.items()):
        found = [results[tuple({**standard, name: value}.values())] for value in values]
        times = [1e3 * seconds for seconds, _, _ in found]
        axes.plot(range(len(values)), times, "o-", label="step")
        axes.plot(
            range(len(values)),
            [1e3 * flops / rate for _, flops, _ in found],
            "--",
            label=f"its FLOPs at {rate / 1e9:,.0f} GFLOP/s",
        )
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        axes.set_xlabel({"rate": "mask rate"}.get(name, name.replace("_", " ")))
        axes.set_ylabel("ms")
        axes.set_ylim(bottom=0)
        axes.legend()
    others = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in standard.items())
    figure.suptitle(
        f"{keras.backend.backend()}, {args.dtype}, {os.cpu_count()} CPU cores; otherwise {others}"
    )
    figure.savefig(args.plot)


if __name__ == "__main__":
    main()

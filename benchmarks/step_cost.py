"""How does the time per step grow with length, batch size, model size and mask rate?

Times steps of `fit` on `SpanBertPretrainer` (MLM and SBO) while one of the four grows. Plots them
to `benchmarks/step_cost.png`, together with the time for the FLOPs of the model at the speed of a
large matrix product, which is measured again after each case.

    python benchmarks/step_cost.py
    KERAS_BACKEND=torch python benchmarks/step_cost.py --size=small

The dashed line shows the time of a step if it consisted only of matrix products at full speed.
"""

import argparse
import os
import pathlib
import statistics
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from measuring import matrix_rate  # noqa: E402

import keras_spanbert as ks  # noqa: E402
from keras_spanbert.runs import cost  # noqa: E402

VOCABULARY_SIZE = 28_996
WARM_UP_STEPS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="small", help="when another setting grows")
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--plot", default=str(pathlib.Path(__file__).with_suffix(".png")))
    args = parser.parse_args()
    keras.config.set_dtype_policy(args.dtype)
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
                results[key] = measure(steps=args.steps, **case)
            seconds, flops, rate = results[key]
            print(
                f"{name:<12}{value:>8}{1e3 * seconds:>10,.0f}{1e3 * flops / rate:>13,.0f}"
                f"{flops / rate / seconds:>8.0%}{rate / 1e9:>10,.0f}",
                flush=True,
            )
    plot(args, standard, grown, results)
    print(f"Wrote {args.plot}")


def measure(size, batch_size, length, rate, steps):
    """Returns the median seconds per step, its FLOPs, and the FLOP/s of a matrix product."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    backbone = ks.SpanBertBackbone(
        VOCABULARY_SIZE, max_sequence_length=512, **ks.SpanBertBackbone.SIZES[size]
    )
    model = ks.SpanBertPretrainer(backbone)
    model.compile(weighted_metrics=None)
    masking = ks.SpanMasking(VOCABULARY_SIZE, mask_token_id=103, mask_rate=rate)
    tokens = np.random.default_rng(0).integers(104, VOCABULARY_SIZE, (batch_size, length))
    masks = {k: np.array(v) for k, v in masking(tokens.astype("int32"), seed=1).items()}
    names = ["token_ids", "mask_positions", "span_left", "span_right", "span_offsets"]
    x = {name: masks[name] for name in names}
    x["segment_ids"] = np.zeros_like(masks["token_ids"])
    x["padding_mask"] = np.ones_like(masks["token_ids"])
    y = {"mlm": masks["mask_ids"], "sbo": masks["mask_ids"]}
    weights = {"mlm": masks["mask_weights"], "sbo": masks["span_weights"]}
    ends = []

    class Timer(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            float(logs["loss"])  # Waits for the device.
            ends.append(time.perf_counter())

    # The first step compiles, and there is no time before it to compare with.
    count = 1 + WARM_UP_STEPS + steps
    x, y, weights = (
        {name: np.concatenate([array] * count) for name, array in part.items()}
        for part in (x, y, weights)
    )
    model.fit(
        x, y, batch_size, sample_weight=weights, callbacks=[Timer()], shuffle=False, verbose=0
    )
    flops = cost.step_flops(model, batch_size, length, masks["mask_ids"].shape[1])
    rate = matrix_rate(keras.config.dtype_policy().compute_dtype)
    return statistics.median(np.diff(ends[WARM_UP_STEPS:])), flops, rate


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

"""What does an update of all variables cost on PyTorch?

Times `keras_spanbert.AdamW`, which clips by the global norm and updates in one fused call, on the
variables of a pretrainer. The peer is `keras.optimizers.AdamW` with the same settings. The two are
timed in turns.

    python benchmarks/optimizer.py
    python benchmarks/optimizer.py --size=tiny --repeats=2  # seconds
"""

import argparse
import os
import statistics
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "torch"

import keras  # noqa: E402
import torch  # noqa: E402

import keras_spanbert as ks  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", help="of SpanBertBackbone.SIZES")
    parser.add_argument("--repeats", type=int, default=6)
    args = parser.parse_args()
    backbone = ks.SpanBertBackbone(28_996, **ks.SpanBertBackbone.SIZES[args.size])
    variables = ks.SpanBertPretrainer(backbone).trainable_variables
    peer = keras.optimizers.AdamW(1e-4, weight_decay=0.01, epsilon=1e-8, global_clipnorm=1.0)
    peer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    optimizers = {"keras_spanbert.AdamW": ks.AdamW(1e-4), "keras.optimizers.AdamW (peer)": peer}
    grads = [torch.randn_like(variable.value) * 1e-3 for variable in variables]
    times = {name: [] for name in optimizers}
    for repeat in range(args.repeats + 1):
        for name, optimizer in optimizers.items():
            seconds = update(optimizer, grads, variables)
            if repeat:  # The first one creates the moments.
                times[name].append(seconds)

    size = sum(variable.value.numel() for variable in variables)
    threads = torch.get_num_threads()
    print(f"{args.size}, {len(variables)} variables of {size / 1e6:,.1f} M, {threads} threads")
    for name in optimizers:
        print(f"{name:<32}{1e3 * statistics.median(times[name]):>9,.0f} CPU ms")
    ours, others = times.values()
    ratios = sorted(other / own for own, other in zip(ours, others))
    print(f"{statistics.median(ratios):.2f} times as fast ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def update(optimizer, grads, variables):
    """Returns the CPU seconds of one update."""
    grads = [grad.clone() for grad in grads]  # They are clipped in place.
    started = time.process_time()
    optimizer.apply(grads, variables)
    return time.process_time() - started


if __name__ == "__main__":
    main()

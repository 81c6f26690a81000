"""How much host time does a training step take on PyTorch? A faster GPU cannot shorten it.

Times pretraining steps (MLM and SBO) of 12 layers of 32 units on one thread, so that arithmetic
takes almost no time. The peer is `BertForMaskedLM` of `transformers` with an SBO head, which has
the same objective. The two run in turns of a few steps in one process.

    python benchmarks/host_cost.py
    python benchmarks/host_cost.py --compiled   # this library's layers by torch.compile
"""

import argparse
import json
import os
import statistics
import time

from measuring import in_process

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "torch"

SIZES = {"num_layers": 12, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 64}
VOCABULARY_SIZE, LENGTH = 512, 16
TURN = 10  # Steps.


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiled", action="store_true", help="compile the transformer layers")
    parser.add_argument("--turns", type=int, default=6, help="timed turns, after two for warm-up")
    parser.add_argument("--dtype", choices=["float32", "mixed_bfloat16"], help="default: both")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args)))
        return
    arguments = [f"--turns={args.turns}", "--measure", *["--compiled"] * args.compiled]
    print(f"{'ms per step':<20}{'keras_spanbert':>16}{'transformers':>14}{'ratio':>8}")
    for dtype in [args.dtype] if args.dtype else ["float32", "mixed_bfloat16"]:
        ours, peer = in_process(__file__, *arguments, f"--dtype={dtype}")
        print(f"{dtype:<20}{ours:>16.1f}{peer:>14.1f}{ours / peer:>8.2f}", flush=True)


def measure(args):
    """Returns the median milliseconds of a step of this library and of the peer."""
    import keras
    import numpy as np
    import torch
    import training_step

    import keras_spanbert

    torch.set_num_threads(1)
    keras.config.set_dtype_policy(args.dtype)
    keras.utils.set_random_seed(0)
    keras_spanbert.SpanBertBackbone.SIZES["host"] = SIZES
    training_step.VOCABULARY_SIZE = VOCABULARY_SIZE
    case = argparse.Namespace(
        size="host", batch_size=1, length=LENGTH, dtype=args.dtype, dropout=0.1,
        attention_dropout=0.0, rematerialize=False, jit_compile=args.compiled, variant="both",
    )  # fmt: skip
    model = training_step.build_model(case)
    steps = TURN * (args.turns + 2)
    x, y, weights = keras.tree.map_structure(
        lambda array: np.concatenate([array] * steps), training_step.build_batch(case)
    )
    del x["padding_mask"]
    case.variant = "objective"
    turns = Turns(training_step.pytorch_step(case, has_mask=False))
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=turns.end_step)
    model.fit(x, y, 1, sample_weight=weights, shuffle=False, callbacks=[callback], verbose=0)
    return [statistics.median(seconds[2 * TURN :]) * 1e3 for seconds in (turns.ours, turns.peer)]


class Turns:
    """Times the steps of `fit`, and runs as many steps of the peer after each turn.

    Args:
        step: function without arguments, the peer's step.
    """

    def __init__(self, step):
        self.ours, self.peer = [], []
        self._step = step
        self._last = time.perf_counter()

    def end_step(self, number, logs=None):
        self._record(self.ours)
        if len(self.ours) % TURN == 0:
            for _ in range(TURN):
                self._step()
                self._record(self.peer)

    def _record(self, seconds):
        now = time.perf_counter()
        seconds.append(now - self._last)
        self._last = now


if __name__ == "__main__":
    main()

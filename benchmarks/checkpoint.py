"""How long does a checkpoint hold training up?

At base size: the copy of model, optimizer and metrics, which training waits for, and the writing,
with its sums and syncs, in the background. Beside it Keras's `save_weights`, which
`BackupAndRestore` calls and training waits for, without sums, syncs and metrics.

    python benchmarks/checkpoint.py

Limited by memory's speed, and the disk's.
"""

import argparse
import math
import os
import tempfile
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras  # noqa: E402

import keras_spanbert as ks  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    backbone = ks.SpanBertBackbone(28996, **ks.SpanBertBackbone.SIZES[args.size])
    model = ks.SpanBertPretrainer(backbone)
    model.compile()
    model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    size = 4 * sum(math.prod(variable.shape) for variable in variables)

    copies, writes, peers = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = ks.TrainingCheckpoint(os.path.join(folder, "checkpoints"), 1, keep=1)
        checkpoint.set_model(model)
        checkpoint.set_params({"steps": 1000})
        for step in range(args.repeats):
            checkpoint.step = step + 1
            began = time.perf_counter()
            checkpoint.save()
            copied = time.perf_counter()
            checkpoint.wait()
            written = time.perf_counter()
            model.save_weights(os.path.join(folder, "peer.weights.h5"))
            ended = time.perf_counter()
            copies.append(copied - began)
            writes.append(written - copied)
            peers.append(ended - written)
        checkpoint.close()
    print(f"{keras.backend.backend()}, {args.size}: {size / 1e9:.2f} GB")
    print(f"{min(copies):6.2f} s training waits")
    print(f"{min(writes):6.2f} s written behind it, {size / min(writes) / 1e6:,.0f} MB/s")
    print(
        f"{min(peers):6.2f} s save_weights (peer), training waits: {min(peers) / min(copies):.1f}"
    )


if __name__ == "__main__":
    main()

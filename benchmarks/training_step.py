"""What does a pretraining step cost, and what does computing only masked positions save?

Measures milliseconds per step of `fit` with the same backbone, optimizer and masks, for

    both      `SpanBertPretrainer`: MLM and SBO at the M masked positions;
    keras_adamw  the same with `keras.optimizers.AdamW`;
    mlm       the peer: the backbone and `keras_hub.layers.MaskedLMHead` at the M positions;
    pytorch   the released computation in plain PyTorch: MLM at all L positions, SBO at 15 slots for
              each of 18 spans (for L = 512), with weight 0 for unused slots;
    transformers  only MLM with `BertForMaskedLM` in PyTorch, at all L positions, with fused
              attention: the peer for JAX and PyTorch;
    objective  `transformers` with an SBO head at the M positions: the peer with our objective.

    python benchmarks/training_step.py
    KERAS_BACKEND=jax python benchmarks/training_step.py --variants=both,transformers
    python benchmarks/training_step.py --size tiny --batch_size 2 --length 64  # seconds
    python benchmarks/training_step.py --grow --size small --length 256

Each variant runs in its own process. The limit is the matrix products of the backbone and of the
heads with the vocabulary. The column "of rate" shows the FLOP/s of the model relative to those of a
large matrix product, and "first s" the seconds of the first step, which includes compilation.

`--grow` measures `both` while length, batch size, model size or mask rate grows. The host's time,
which a faster GPU cannot shorten, is that of 12 layers of 32 units on one thread:

    OMP_NUM_THREADS=1 KERAS_BACKEND=torch python benchmarks/training_step.py --size host \\
        --vocabulary_size 512 --batch_size 1 --length 16 --steps 60 --variants=both,objective
"""

import argparse
import json
import math
import os
import statistics
import sys
import time

from measuring import in_process, matrix_rate, peak_bytes

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

VARIANTS = {
    "both": "SpanBertPretrainer, MLM + SBO",
    "keras_adamw": "the same, Keras's AdamW (peer)",
    "mlm": "only MaskedLMHead (peer)",
    "pytorch": "all positions, plain PyTorch",
    "transformers": "BertForMaskedLM, PyTorch (peer)",
    "objective": "BertForMaskedLM, SBO (peer)",
}
IN_PYTORCH = ("pytorch", "transformers", "objective")
HOST = {"num_layers": 12, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 64}
GROWN = {
    "length": [128, 256, 384, 512],
    "batch_size": [2, 4, 8, 16],
    "size": ["tiny", "mini", "small", "base"],
    "mask_rate": [0.05, 0.15, 0.3, 0.5],
}
PAD, CLS, SEP, MASK = 0, 101, 102, 103
SPAN_SLOTS = 15
WARM_UP_STEPS = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="base", help="of SpanBertBackbone.SIZES, or host")
    parser.add_argument("--vocabulary_size", type=int, default=28_996)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--mask_rate", type=float, default=0.15)
    parser.add_argument("--steps", type=int, default=5, help="timed steps per repeat")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--dtype", default="float32", help="float32 or mixed_bfloat16")
    parser.add_argument("--rematerialize", action="store_true")
    parser.add_argument(
        "--jit_compile",
        action="store_true",
        help="compile with XLA on TensorFlow or torch.compile on PyTorch (JAX always compiles)",
    )
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--attention_dropout", type=float, help="if it differs from --dropout")
    parser.add_argument("--variants", default="both,mlm,pytorch")
    parser.add_argument("--variant", choices=VARIANTS, help=argparse.SUPPRESS)
    parser.add_argument("--grow", action="store_true", help="see above")
    args = parser.parse_args()
    if args.variant:
        return print(json.dumps((measure_pytorch if args.variant in IN_PYTORCH else measure)(args)))
    print(f"{os.environ['KERAS_BACKEND']}, {args.dtype}, {os.cpu_count()} CPU cores")
    if args.grow:
        return grow(args)
    variants = args.variants.split(",")
    peers = ("mlm", "transformers", "objective", "keras_adamw")
    peer = next((v for v in peers if v in variants), variants[0])
    results = {variant: [] for variant in variants}
    for _ in range(args.repeats):
        for variant in variants:
            results[variant].append(in_process(__file__, *sys.argv[1:], f"--variant={variant}"))
    seconds = {
        variant: statistics.median(s for run in runs for s in run["seconds"])
        for variant, runs in results.items()
    }
    print(f"{args.size}, {args.batch_size} x {args.length}, V = {args.vocabulary_size}")
    columns = f"{'ms':>10}{'sequences/s':>13}{'ratio to peer':>15}{'peak GB':>9}"
    print(f"{'step':<32}{columns}{'first s':>9}{'of rate':>9}")
    for variant, runs in results.items():
        peak = max(run["peak_bytes"] for run in runs) / 1e9
        first = statistics.median(run["first"] for run in runs)
        share = ""
        if "flops" in runs[0]:
            rate = statistics.median(run["rate"] for run in runs)
            share = f"{runs[0]['flops'] / seconds[variant] / rate:>9.0%}"
            share += f"  {runs[0]['flops'] / 1e9:,.0f} GFLOP per step, {rate / 1e9:,.0f} GFLOP/s"
        print(
            f"{VARIANTS[variant]:<32}{1000 * seconds[variant]:>10,.1f}"
            f"{args.batch_size / seconds[variant]:>13.2f}"
            f"{seconds[variant] / seconds[peer]:>15.2f}{peak:>9.2f}{first:>9.1f}{share}"
        )


def grow(args):
    """Prints the time per step and the time of its FLOPs at the rate of a product."""
    print(f"{'grows':<12}{'to':>8}{'ms':>10}{'ms of FLOPs':>13}{'share':>8}{'GFLOP/s':>10}")
    for name, values in GROWN.items():
        for value in values:
            run = in_process(__file__, *sys.argv[1:], "--variant=both", f"--{name}={value}")
            ms = 1e3 * statistics.median(run["seconds"])
            of_flops = 1e3 * run["flops"] / run["rate"]
            print(
                f"{name:<12}{value:>8}{ms:>10,.0f}{of_flops:>13,.0f}{of_flops / ms:>8.0%}"
                f"{run['rate'] / 1e9:>10,.0f}",
                flush=True,
            )


def measure(args):
    """Times the steps of a variant in this process."""
    import keras
    import numpy as np

    from keras_spanbert.runs import cost

    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(args.dtype)
    model = build_model(args)
    x, y, weights = build_batch(args)
    del x["padding_mask"]  # The blocks of `train.py` have no padding.
    steps = 1 + WARM_UP_STEPS + args.steps  # The first step compiles.
    x, y, weights = keras.tree.map_structure(
        lambda array: np.concatenate([array] * steps), (x, y, weights)
    )
    ends = [time.perf_counter()]

    def end_step(batch, logs):
        float(logs["loss"])  # Waits for the device.
        ends.append(time.perf_counter())

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=end_step)
    options = {"sample_weight": weights, "callbacks": [callback], "shuffle": False, "verbose": 0}
    keras.Model.fit(model, x, y, args.batch_size, **options)
    found = figures(ends)
    if args.variant == "both":  # The only one whose FLOPs can be counted.
        M = math.ceil(args.mask_rate * args.length)
        found["flops"] = cost.step_flops(model, args.batch_size, args.length, M)
        found["rate"] = matrix_rate(args.dtype.removeprefix("mixed_"))
    return found


def figures(ends):
    """Returns the seconds of the steps, from the moments when they ended, and the peak memory."""
    timed = ends[1 + WARM_UP_STEPS :]
    return {
        "seconds": [stop - start for start, stop in zip(timed, timed[1:])],
        "first": ends[1] - ends[0],
        "peak_bytes": peak_bytes(),
    }


def measure_pytorch(args):
    """Times the steps of a PyTorch variant in this process."""
    step = pytorch_step(args)
    ends = [time.perf_counter()]
    for _ in range(1 + WARM_UP_STEPS + args.steps):
        step()
        ends.append(time.perf_counter())
    return figures(ends)


def sizes(args):
    import keras_spanbert

    return HOST if args.size == "host" else keras_spanbert.SpanBertBackbone.SIZES[args.size]


def pytorch_step(args, device="cpu", has_mask=True):
    """Returns the training step of a PyTorch variant, a function that returns the loss."""
    import torch
    import transformers
    from torch.nn import functional

    H = sizes(args)["hidden_dim"]
    config = transformers.BertConfig(
        vocab_size=args.vocabulary_size,
        hidden_size=H,
        num_hidden_layers=sizes(args)["num_layers"],
        num_attention_heads=sizes(args)["num_heads"],
        intermediate_size=sizes(args)["intermediate_dim"],
        max_position_embeddings=args.length,
        hidden_dropout_prob=args.dropout,
        attention_probs_dropout_prob=attention_dropout(args),
        attn_implementation="eager" if args.variant == "pytorch" else "sdpa",
    )
    torch.manual_seed(0)
    bert = transformers.BertForMaskedLM(config).train().to(device)
    embedding = bert.bert.embeddings.word_embeddings.weight
    positions = torch.nn.Embedding(SPAN_SLOTS, 200, device=device)
    mlp = torch.nn.Sequential(
        *(torch.nn.Linear(2 * H + 200, H), torch.nn.GELU(), torch.nn.LayerNorm(H, 1e-12)),
        *(torch.nn.Linear(H, H), torch.nn.GELU(), torch.nn.LayerNorm(H, 1e-12)),
    ).to(device)
    bias = torch.nn.Parameter(torch.zeros(args.vocabulary_size, device=device))
    parameters = [*bert.parameters(), *positions.parameters(), *mlp.parameters(), bias]
    # Faster on a GPU. PyTorch chooses by itself on other devices.
    is_fused = True if device == "cuda" else None
    optimizer = torch.optim.AdamW(parameters, 1e-4, weight_decay=0.01, fused=is_fused)
    x, y, weights = (
        {name: torch.from_numpy(array).to(device) for name, array in part.items()}
        for part in build_batch(args)
    )
    padding_mask = x["padding_mask"] if has_mask else None

    def mean_loss(logits, ids, weights):
        losses = functional.cross_entropy(
            logits.flatten(0, 1), ids.flatten().long(), reduction="none"
        )
        return (losses * weights.flatten()).sum() / weights.sum()

    def mlm_loss():
        labels = torch.where(weights["mlm"] > 0, y["mlm"], -100).long()
        return bert(
            x["token_ids"].long(), padding_mask, x["segment_ids"].long(), labels=labels
        ).loss

    def both_losses():
        sequence_output = bert.bert(
            x["token_ids"].long(), padding_mask, x["segment_ids"].long()
        ).last_hidden_state
        mlm_logits = bert.cls(sequence_output)
        left, right = (
            sequence_output.gather(1, x[name].long()[:, :, None].expand(-1, -1, H))
            for name in ["span_left", "span_right"]
        )
        # Larger offsets have no weight.
        offsets = positions(x["span_offsets"].long().clamp(max=SPAN_SLOTS - 1))
        hidden = mlp(torch.cat([left, right, offsets], dim=-1))
        sbo_logits = functional.linear(hidden, embedding, bias)
        mlm = mean_loss(mlm_logits, y["mlm"], weights["mlm"])
        return mlm + mean_loss(sbo_logits, y["sbo"], weights["sbo"])

    def step():
        with torch.autocast(device, torch.bfloat16, enabled=args.dtype != "float32"):
            loss = mlm_loss() if args.variant == "transformers" else both_losses()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss.detach()

    return step


def attention_dropout(args):
    return args.dropout if args.attention_dropout is None else args.attention_dropout


def build_model(args):
    import keras
    import keras_hub

    import keras_spanbert

    backbone = keras_spanbert.SpanBertBackbone(
        vocabulary_size=args.vocabulary_size,
        max_sequence_length=args.length,
        dropout=args.dropout,
        attention_dropout=attention_dropout(args),
        rematerialize=args.rematerialize,
        **sizes(args),
    )
    loss, optimizer = "auto", keras_spanbert.AdamW()
    if args.variant == "keras_adamw":
        settings = {"weight_decay": 0.01, "epsilon": 1e-8, "global_clipnorm": 1.0}
        optimizer = keras.optimizers.AdamW(1e-4, **settings)
        optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    if args.variant == "mlm":
        mlm_head = keras_hub.layers.MaskedLMHead(
            token_embedding=backbone.token_embedding,
            intermediate_activation="gelu",
            layer_norm_epsilon=1e-12,
        )
        positions = keras.Input((None,), dtype="int32", name="mask_positions")
        inputs = {name: backbone.input[name] for name in ["token_ids", "segment_ids"]}
        outputs = {"mlm": mlm_head(backbone(inputs), positions)}
        model = keras.Model({**inputs, "mask_positions": positions}, outputs)
        reduction = {"reduction": "mean_with_sample_weight"}
        loss = {"mlm": keras.losses.SparseCategoricalCrossentropy(from_logits=True, **reduction)}
    else:
        model = keras_spanbert.SpanBertPretrainer(backbone)
    is_jax = os.environ["KERAS_BACKEND"] == "jax"
    model.compile(
        optimizer=optimizer,
        loss=loss,
        loss_weights={name: 1.0 for name in model.output},
        weighted_metrics=None,
        jit_compile="auto" if is_jax else args.jit_compile,
    )
    return model


def build_batch(args):
    """Returns `(x, y, sample_weight)` of random tokens in the layout of the variant."""
    import keras
    import numpy as np

    import keras_spanbert

    masking = keras_spanbert.SpanMasking(
        vocabulary_size=args.vocabulary_size,
        mask_token_id=MASK,
        mask_rate=getattr(args, "mask_rate", 0.15),
        continuation_token_ids=range(MASK + 1, MASK + 1 + args.vocabulary_size // 5),
        special_token_ids=(PAD, CLS, SEP, MASK),
    )
    shape = args.batch_size, args.length
    tokens = np.random.default_rng(0).integers(MASK + 1, args.vocabulary_size, shape, np.int32)
    tokens[:, 0], tokens[:, -1] = CLS, SEP
    # On PyTorch, `np.array` does not work on tensors on a GPU.
    masks = {
        name: keras.ops.convert_to_numpy(value) for name, value in masking(tokens, seed=1).items()
    }
    x = {
        "token_ids": masks["token_ids"],
        "segment_ids": np.zeros(shape, np.int32),
        "padding_mask": np.ones(shape, np.int32),
    }
    spans = {name: masks[name] for name in ["span_left", "span_right", "span_offsets"]}
    y = {"mlm": masks["mask_ids"], "sbo": masks["mask_ids"]}
    weights = {"mlm": masks["mask_weights"], "sbo": masks["span_weights"]}
    x["mask_positions"] = masks["mask_positions"]
    if args.variant in IN_PYTORCH:
        is_masked = np.zeros(shape, np.float32)
        np.maximum.at(
            is_masked,
            (np.arange(shape[0])[:, None], masks["mask_positions"]),
            masks["mask_weights"],
        )
        y["mlm"], weights["mlm"] = tokens, is_masked
    if args.variant == "pytorch":
        num_spans = max(1, 18 * args.length // 512)
        spans, y["sbo"], weights["sbo"] = released_slots(masks, num_spans)
    if args.variant == "mlm":
        return x, {"mlm": y["mlm"]}, {"mlm": weights["mlm"]}
    return x | spans, y, weights


def released_slots(masks, num_spans):
    """Returns inputs, targets and weights for SBO with `SPAN_SLOTS` slots per span."""
    import numpy as np

    batch_size, num_slots = len(masks["mask_ids"]), num_spans * SPAN_SLOTS
    spans = {
        name: np.zeros((batch_size, num_slots), np.int32)
        for name in ["span_left", "span_right", "span_offsets"]
    }
    spans["span_offsets"][:] = np.arange(num_slots) % SPAN_SLOTS
    ids = np.zeros((batch_size, num_slots), np.int32)
    weights = np.zeros((batch_size, num_slots), np.float32)
    for b in range(batch_size):
        has_target = masks["span_weights"][b] > 0
        lefts, span = np.unique(masks["span_left"][b, has_target], return_inverse=True)
        slot = span * SPAN_SLOTS + masks["span_offsets"][b, has_target]
        fits = span < num_spans
        ids[b, slot[fits]] = masks["mask_ids"][b, has_target][fits]
        weights[b, slot[fits]] = 1.0
        rights = np.zeros_like(lefts)
        rights[span] = masks["span_right"][b, has_target]
        for name, values in [("span_left", lefts), ("span_right", rights)]:
            values = np.repeat(values[:num_spans], SPAN_SLOTS)
            spans[name][b, : len(values)] = values
    return spans, ids, weights


if __name__ == "__main__":
    main()

"""What does a training step cost on one GPU or TPU, and what limits it?

Measures pretraining steps (MLM and SBO) on JAX and PyTorch, and steps of coreference. Peers:
`BertForMaskedLM` of `transformers` with an SBO head in PyTorch, which has the same objective, and
keras-hub's `BertMaskedLM`, which has no SBO.
Prints the time per step, the share of the dense bfloat16 peak, memory, the first step, the speed
relative to the peers, bfloat16 against float32, and on PyTorch the two mechanisms that save the
host's time: graphs of compiled layers, and calls of layers without Keras.

    python benchmarks/gpu.py              # all parts
    python benchmarks/gpu.py --part=2     # one of them
    python benchmarks/gpu.py --size=tiny --length=64 --device=cpu --steps=2  # tries it out

Each measurement has a process of its own. TensorFlow is not needed. If a backend or `transformers`
is not installed, its measurements fail with a message. Batches are masked before the first step.

Without a TPU, its compiler (`pip install libtpu`) estimates a step on one of 8 chips (v5e):

    python benchmarks/gpu.py --device=tpu --batch_size=16 --attention_dropout=0
    python benchmarks/gpu.py --device=tpu --batch_size=16 --library=keras_hub/jax

These are cycles of the compiler's schedule, which has none for custom kernels and exchanges. They
are split into matrix products (operations that contain one) and others, and by the layers that made
the operations, of which the ten largest are shown.
"""

import argparse
import collections
import fcntl
import functools
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

# Peak TFLOP/s of dense bfloat16 products by words in the GPU's name. The first match is used.
PEAKS = {"B200": 2250, "H100 PCIe": 756, "H100": 990, "H200": 990, "A100": 312, "L4": 121}
BACKENDS = ("torch", "jax")
PEERS = ("transformers", "keras_hub/jax", "keras_hub/torch")
BATCH_SIZES = {"base": 32, "large": 16, "minilm": 1}
MINILM = {"num_layers": 6, "num_heads": 12, "hidden_dim": 384, "intermediate_dim": 1536}
PROGRAM = __file__
TIMEOUT = 300  # Seconds.
WARM_UP_STEPS, WINDOWS = 5, 3
NUM_SEGMENTS = 11  # Segments of the coreference document.
CASE = {
    "task": "pretraining",
    "vocabulary_size": 28_996,
    "dtype": "mixed_bfloat16",
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "rematerialize": False,
    "has_mask": False,
    "is_direct": True,  # On PyTorch, whether layers are called without Keras.
    "jit_compile": "auto",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", help="of SpanBertBackbone.SIZES (default: base and large)")
    parser.add_argument("--batch_size", type=int, help="default: 32 for base, 16 for large")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10, help="in each of three timed windows")
    parser.add_argument("--device", choices=["gpu", "cpu", "tpu"], default="gpu")
    parser.add_argument("--part", type=int, nargs="+", help="of the parts, counted from 1")
    parser.add_argument("--library", choices=[*BACKENDS, *PEERS], help="run one library")
    parser.add_argument("--attention_dropout", type=float, default=0.1, help="of the TPU's step")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.device == "tpu":
        return estimate(args)
    if args.case:
        return print(json.dumps(measure(argparse.Namespace(**json.loads(args.case)))), flush=True)
    card = gpu_name() if args.device == "gpu" else "CPU"
    if card is None:
        print("No GPU was found, nothing was measured. Use --device=cpu to test the program.")
        return
    peak = next((x for words, x in PEAKS.items() if re.search(rf"\b{words}\b", card)), None)
    print(card)
    titles = measurements(args.size)
    for number in args.part or range(1, len(titles) + 1):
        title, cases = titles[number - 1]
        print(f"{number}. {title}", flush=True)
        peers = {}
        for case in cases:
            if args.library not in (None, case["library"]):
                continue
            row = measure_in_process(case := complete(case, args, card))
            if "error" in row:
                print(f"  {describe(case):<62}{row['error']}", flush=True)
                continue
            line = (
                f"{row['step_ms']:>9,.1f} ms{row['peak_gb']:>7.1f} GB  first {row['first']:.0f} s"
            )
            if "tflops" in row:
                line += f"{row['tflops']:>8.2f} TFLOP/s"
                line += f" ({row['tflops'] / peak:.0%} of the peak)" if peak else ""
            if case["library"] in PEERS:
                peers[case["library"]] = row["step_ms"]
            else:
                line += "".join(f", {ms / row['step_ms']:.2f} x {n}" for n, ms in peers.items())
            print(f"  {describe(case):<62}{line}", flush=True)


def measurements(size):
    """Returns titles and measurements, the most important first."""

    def cases(libraries, **changed):
        return [{"size": size or "base", "library": library, **changed} for library in libraries]

    libraries, document = [*PEERS, *BACKENDS], {"task": "coreference", "dtype": "float32"}
    mechanisms = [
        {"jit_compile": j, "is_direct": d} for j in ("auto", False) for d in (True, False)
    ]
    return [
        ("without attention dropout", cases(libraries)),
        ("with attention dropout", cases(libraries, attention_dropout=0.1)),
        (
            "padding mask",
            cases(BACKENDS, has_mask=True) + cases(BACKENDS, has_mask=True, attention_dropout=0.1),
        ),
        ("larger", cases(["transformers", *BACKENDS], size=size or "large")),
        (
            "coreference, one document of 11 segments",
            cases(BACKENDS, **document, size=size or "minilm"),
        ),
        ("float32", cases(BACKENDS, dtype="float32")),
        (
            "the two mechanisms on PyTorch",
            [c for m in mechanisms for c in cases(["torch"], attention_dropout=0.1, **m)],
        ),
    ]


def complete(case, args, card):
    """Returns a case with all settings."""
    case = {**CASE, **case, "length": args.length, "steps": args.steps, "card": card}
    if case["task"] == "coreference":
        return {**case, "batch_size": 1, "length": min(args.length, 128)}
    return {**case, "batch_size": args.batch_size or BATCH_SIZES.get(case["size"], 8)}


def gpu_name():
    """Returns the name of the first GPU, or `None` without a GPU."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        return None


def measure_in_process(case):
    """Returns the result of a case, or the error, from a process of its own."""
    backend = "jax" if case["library"].endswith("jax") else "torch"
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    # Otherwise JAX takes most of the memory at the start.
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if case["card"] == "CPU":
        environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, PROGRAM, f"--case={json.dumps(case)}"]
    options = {"env": environment, "capture_output": True, "text": True, "timeout": TIMEOUT}
    try:
        done = subprocess.run(command, **options)
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"took more than {TIMEOUT} seconds"}
    except (IndexError, ValueError):
        return {"error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}


def describe(case):
    words = [case["library"], case["size"], f"{case['batch_size']} x {case['length']}"]
    words += [case["dtype"].removeprefix("mixed_"), f"dropout {case['attention_dropout']:g}"]
    words += ["mask"] * case["has_mask"]
    words += ["not compiled"] * (not case["jit_compile"])
    return ", ".join(words + ["called by Keras"] * (not case["is_direct"]))


# === The steps of one case, in a process of its own ===


def measure(case):
    """Returns times, FLOPs, memory and compilations of a case's steps."""
    import keras

    from keras_spanbert.runs import cost

    if case.card != "CPU" and not cost.has_accelerator():
        return {"error": f"{keras.backend.backend()} sees no GPU"}
    case.variant = "objective" if case.library == "transformers" else "both"
    keras.utils.set_random_seed(0)
    keras.config.set_dtype_policy(case.dtype)
    if not case.is_direct:
        call_by_keras()
    clock = Clock(case.steps)
    run_steps(case, clock)
    row = {**clock.figures(), "peak_gb": cost.peak_memory() / 1e9}
    if case.task == "pretraining" and not case.library.startswith("keras_hub"):
        row["tflops"] = pretraining_flops(case) / row["step_ms"] / 1e9
    return row


def pretraining_flops(case):
    """Returns the FLOPs of a step of MLM and SBO, with heads at the masked positions only."""
    import training_step

    from keras_spanbert.runs import cost

    model = training_step.build_model(argparse.Namespace(**{**vars(case), "variant": "both"}))
    num_predictions = -(-15 * case.length // 100)
    return cost.step_flops(model, case.batch_size, case.length, num_predictions)


def run_steps(case, clock):
    """Runs all steps of a case. `clock` gets the loss of each."""
    import keras
    import training_step

    if case.library == "transformers":
        device = "cpu" if case.card == "CPU" else "cuda"
        step = training_step.pytorch_step(case, device, case.has_mask)
        for number in range(clock.ends[-1]):
            clock.step(number, step())
        return
    batch_end = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda number, logs: clock.step(number, logs["loss"])
    )
    fit(case, clock.ends[-1], batch_end)


class Clock:
    """Times the first step and windows of steps, which one process at a time runs.

    It waits for the device only at the ends of windows, because a run does not wait either.
    """

    def __init__(self, steps):
        self.steps = steps
        self.ends = [1, *(WARM_UP_STEPS + window * steps for window in range(WINDOWS + 1))]
        self.moments = [time.perf_counter()]
        self.turn = open(os.path.join(tempfile.gettempdir(), "keras_spanbert_gpu.lock"), "w")

    def step(self, number, loss):
        """Records the end of a step, counted from 0."""
        if number + 1 in self.ends:
            float(loss)
            if number + 1 == WARM_UP_STEPS:
                fcntl.flock(self.turn, fcntl.LOCK_EX)  # Until the process ends.
            self.moments.append(time.perf_counter())

    def figures(self):
        first, _, *windows = (b - a for a, b in itertools.pairwise(self.moments))
        return {"step_ms": 1e3 * statistics.median(windows) / self.steps, "first": first}


def call_by_keras():
    """Makes the library call all layers of models on PyTorch as Keras does."""
    from keras_spanbert.models import keras_model, torch_step

    keras_model.call_layers = lambda model, inputs, training: super(
        keras_model.KerasModel, model
    ).call(inputs, training=training)
    torch_step.call_directly = lambda model, inputs, training: model(inputs, training=training)


def fit(case, steps, callback):
    """Trains a model of this library or keras-hub on `steps` equal batches."""
    import keras
    import numpy as np

    from keras_spanbert.runs.callbacks import Callbacks

    model, batch = (coreference if case.task == "coreference" else pretraining)(case)
    x, y, weights = keras.tree.map_structure(
        lambda array: None if array is None else np.concatenate([array] * steps), batch
    )
    callbacks = Callbacks([callback], add_history=True, model=model)
    options = {"callbacks": callbacks, "shuffle": False, "verbose": 0}
    keras.Model.fit(model, x, y, case.batch_size, sample_weight=weights, **options)


def pretraining(case):
    """Returns a pretraining model and a batch for it."""
    import training_step

    x, y, weights = training_step.build_batch(case)
    if case.library.startswith("keras_hub"):
        model = keras_hub_model(case)
        return model, ({name: x[name] for name in model.input}, y["mlm"], weights["mlm"])
    if not case.has_mask:
        del x["padding_mask"]
    return training_step.build_model(case), (x, y, weights)


def keras_hub_model(case):
    """Returns a `BertMaskedLM`, which has one dropout rate, also for attention."""
    import keras
    import keras_hub
    import training_step

    backbone = keras_hub.models.BertBackbone(
        case.vocabulary_size, dropout=case.attention_dropout, **training_step.sizes(case)
    )
    model = keras_hub.models.BertMaskedLM(backbone)
    model.compile(keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0))
    return model


def coreference(case):
    """Returns an untrained resolver with the released settings, and a document as a batch for it.

    The document has random words in full segments, in each of which two words corefer.
    """
    import numpy as np

    import keras_spanbert as ks

    sizes = MINILM if case.size == "minilm" else ks.SpanBertBackbone.SIZES[case.size]
    words = [f"w{number}" for number in range(1000)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    backbone = ks.SpanBertBackbone(
        len(vocabulary), max_sequence_length=512, attention_dropout=case.attention_dropout, **sizes
    )
    preprocessor = ks.SpanBertCoreferenceResolverPreprocessor(
        ks.SpanBertTokenizer(vocabulary), case.length
    )
    resolver = ks.SpanBertCoreferenceResolver(
        backbone, preprocessor, max_segment_len=case.length, max_training_sentences=NUM_SEGMENTS
    )
    text = np.random.default_rng(0).choice(words, [NUM_SEGMENTS, case.length - 2]).tolist()
    starts = range(0, NUM_SEGMENTS * (case.length - 2), case.length - 2)
    document = {
        "doc_key": "nw/random",
        "sentences": text,
        "speakers": [["-"] * len(sentence) for sentence in text],
        "clusters": [[[start, start], [start + 2, start + 2]] for start in starts],
    }
    resolver.compile(jit_compile=case.jit_compile)
    x, y = resolver.batches([document], is_training=True).arrays.document(0, 0)
    return resolver, (x, y, None)


# === Estimates of the TPU's compiler ===

HERTZ = 1.5e9  # TPU v5e.
UNKNOWN = re.compile(r" (all-|reduce-scatter|collective-)[\w\-]*\(|tpu_custom_call")
PRODUCT = re.compile(r" (convolution|dot)\(")
NAME = re.compile(r"%([\w.\-]+)")


def estimate(args):
    """Compiles the step for a TPU that is not there, and prints what it costs."""
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    os.environ |= {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    case = {"size": args.size or "base", "library": args.library or "jax", "variant": "both"}
    case["attention_dropout"] = args.attention_dropout
    compiled, layers = compile_step(argparse.Namespace(**complete(case, args, "TPU")))
    memory = compiled.memory_analysis()
    print(f"arguments {memory.argument_size_in_bytes / 1e9:.2f} GB")
    print(f"temporaries {memory.temp_size_in_bytes / 1e9:.2f} GB")
    report(compiled.as_text(), layers)


def compile_step(case):
    """Returns the training step on 8 chips that share the data, and the names of the layers."""
    import jax
    import keras
    import numpy as np
    import training_step
    from jax.experimental import topologies

    from keras_spanbert.keras_private import build_training

    keras.config.set_dtype_policy(case.dtype)
    jax.default_backend = lambda: "tpu"  # Otherwise layers would choose operations for a CPU.
    chips = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices
    is_ours = case.library == "jax"
    model = training_step.build_model(case) if is_ours else keras_hub_model(case)
    rows, M = case.batch_size * len(chips), 8 * math.ceil(0.15 * case.length / 8)
    lengths = dict.fromkeys(["token_ids", "segment_ids", "padding_mask"], case.length)
    x = {name: np.zeros((rows, lengths.get(name, M)), "int32") for name in model.input}
    y, weights = np.zeros((rows, M), "int32"), np.ones((rows, M), "float32")
    if is_ours:
        y, weights = dict.fromkeys(model.output, y), dict.fromkeys(model.output, weights)
    build_training(model, (x, y, weights))
    groups = model.trainable_variables, model.non_trainable_variables
    groups += model.optimizer.variables, model.metrics_variables
    mesh = keras.distribution.DeviceMesh((len(chips),), ("batch",), chips)

    def shapes(arrays, *axes):
        place = jax.NamedSharding(mesh.backend_mesh, jax.P(*axes))
        shape = functools.partial(jax.ShapeDtypeStruct, sharding=place)
        return jax.tree.map(lambda array: shape(array.shape, array.dtype), arrays)

    state = shapes(tuple([variable.value for variable in group] for group in groups))
    shardings = None, jax.tree.map(lambda variable: variable.sharding, state)
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
    with keras.distribution.DataParallel(device_mesh=mesh, auto_shard_dataset=False).scope():
        lowered = step.lower(state, shapes((x, y, weights), "batch"))
    layers = {part for group in groups for v in group for part in v.path.split("/")[:-1]}
    return lowered.compile(), layers | {"compile_loss"}


def report(text, layers):
    """Prints what a program in HLO text costs, by kind and by layer."""
    kinds, groups, unknown = (collections.Counter() for _ in range(3))
    for line, is_product, path, cycles in operations(text):
        kinds["matrix products" if is_product else "other operations"] += cycles
        groups[group(path, layers)] += cycles
        if UNKNOWN.search(line):
            unknown[NAME.search(line)[1].rstrip(".0123456789")] += 1
    cycles = sum(kinds.values())
    print(f"{cycles:,} cycles, without", *(f"{n} x {name}" for name, n in unknown.items()))
    print(f"{'':<64}ms at 1.5 GHz")
    for rows in [("all", cycles), *kinds.most_common()], groups.most_common(10):
        print(*(f"{name:<64}{value / HERTZ * 1e3:.2f}" for name, value in rows), "", sep="\n")


def group(path, layers):
    """The last two layers of an operation's path, without numbers, and its direction."""
    names = (re.sub(r"_\d+$", "", n) for n in re.findall(r"\w+", path) if n in layers)
    names = list(dict.fromkeys(names))[-2:] or ["outside of layers"]
    return "/".join(names) + ", backward" * ("transpose" in path)


def operations(text):
    """Yields each operation: line, whether it is a product, path, and the cycles of all runs."""
    parts = re.split(r"\n(?=%|ENTRY )", text)[1:]
    computations = {NAME.search(part)[1]: part for part in parts}
    entry = next(name for name, part in computations.items() if part.startswith("ENTRY"))

    def inside(line):
        """Returns the text of what is fused in an operation, at all depths."""
        names = re.findall(r"\bcalls=%([\w.\-]+)", line)
        found = "".join(computations[name].partition("\n")[2] for name in names)
        return found + (inside(found) if found else "")

    def of(computation, runs):
        for line in re.split(r"\n  (?=(?:ROOT )?%)", computations[computation])[1:]:
            if called := re.search(r" (?:while|call)\(.*\b(?:body|to_apply)=%([\w.\-]+)", line):
                trips = re.search(r'known_trip_count":\{"n":"(\d+)|$', line)[1] or 1
                yield from of(called[1], runs * int(trips))
                continue
            cycles = sum(map(int, re.findall(r'estimated_cycles":"(\d+)', line)))
            fused = inside(line)
            paths = re.findall(r'op_name="([^"]*)"', line) or re.findall(
                r'op_name="([^"]*)"', fused
            )
            path = (paths or [""])[-1]
            yield line, bool(PRODUCT.search(line + fused)), path, runs * cycles

    return of(entry, 1)


if __name__ == "__main__":
    main()

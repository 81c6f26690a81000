"""What does a training step cost on one GPU or TPU, and what limits it?

Measures pretraining steps (MLM and SBO) on JAX and PyTorch, and steps of coreference. Peers:
`BertForMaskedLM` of `transformers` with an SBO head in PyTorch, which has the same objective,
keras-hub's `BertMaskedLM`, which has no SBO, and for coreference the released graph in PyTorch.
Prints the time per step, the share of the dense bfloat16 peak, memory, the first step, compilations
after the warm-up, the attention implementations, bfloat16 against float32, and on PyTorch the two
mechanisms that save the host's time: graphs of compiled layers, and calls of layers without Keras.

    python benchmarks/gpu.py              # all parts
    python benchmarks/gpu.py --part=2     # one of them
    python benchmarks/gpu.py --size=tiny --length=64 --device=cpu --steps=2  # tries it out

Each measurement has a process of its own. TensorFlow is not needed. If a backend or `transformers`
is not installed, its measurements fail with a message. Batches are masked before the first step.

Without a card, XLA's compilers estimate the step of JAX or of keras-hub on JAX: `pip install
libtpu` for a TPU v5e, `pip install "jax[cuda12]"` for an H200.

    python benchmarks/gpu.py --compile=tpu --library=jax --batch_size=16 --attention_dropout=0
    python benchmarks/gpu.py --compile=gpu --library=keras_hub/jax --batch_size=16

TPU: cycles of the compiler's schedule on one of 8 chips that share the data. It has none for custom
kernels and exchanges, which are listed with the size of their results. GPU: bytes of all operands
and results of each operation. Both are split into matrix products (operations that contain one) and
others, and by the layers that made the operations, of which the ten largest are shown.
"""

import argparse
import collections
import contextlib
import functools
import itertools
import json
import math
import os
import re
import statistics
import subprocess
import sys
import time

# Peak TFLOP/s of dense bfloat16 products by words in the GPU's name. The first match is used.
PEAKS = {"B200": 2250, "H100 PCIe": 756, "H100": 990, "H200": 990, "A100": 312, "L4": 121}
BACKENDS = ("torch", "jax")
PEERS = ("transformers", "keras_hub/jax", "keras_hub/torch", "released")
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
    "is_fused": True,
    "is_direct": True,  # On PyTorch, whether layers are called without Keras.
    "jit_compile": "auto",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", help="of SpanBertBackbone.SIZES (default: base and large)")
    parser.add_argument("--batch_size", type=int, help="default: 32 for base, 16 for large")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--steps", type=int, default=10, help="in each of three timed windows")
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--part", type=int, nargs="+", help="of the parts, counted from 1")
    parser.add_argument("--library", choices=[*BACKENDS, *PEERS], help="run one library")
    parser.add_argument("--peak", type=float, help="TFLOP/s in bfloat16, for unknown GPUs")
    parser.add_argument("--compile", choices=["tpu", "gpu"], help="only compile, see above")
    parser.add_argument("--attention_dropout", type=float, default=0.1, help="of --compile")
    parser.add_argument("--rematerialize", action="store_true", help="of --compile")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.compile:
        return estimate(args)
    if args.case:
        return print(json.dumps(measure(argparse.Namespace(**json.loads(args.case)))), flush=True)
    card = gpu_name() if args.device == "gpu" else "CPU"
    if card is None:
        print("No GPU was found, nothing was measured. Use --device=cpu to test the program.")
        return
    known = (tflops for words, tflops in PEAKS.items() if re.search(rf"\b{words}\b", card))
    peak = args.peak or next(known, None)
    print(card)
    step_ms = {}
    titles = measurements(args.size)
    for number in args.part or range(1, len(titles) + 1):
        title, cases = titles[number - 1]
        print(f"{number}. {title}", flush=True)
        cases = [complete(c, args, card) for c in cases if args.library in (None, c["library"])]
        for case in cases:
            row = measure_in_process(case)
            print(f"  {describe(case):<62}{format_row(row, peak)}", flush=True)
            step_ms[json.dumps(case, sort_keys=True)] = row.get("step_ms")
    print_ratios({case: ms for case, ms in step_ms.items() if ms})


def measurements(size):
    """Returns titles and measurements, the most important first."""
    first = {"size": size or "base"}
    libraries = [*BACKENDS, *PEERS[:3]]
    larger = [] if size else [{"size": "large", "library": x} for x in libraries[:3]]
    padded = [
        {**first, "library": backend, "attention_dropout": rate, "has_mask": True}
        for backend, rate in itertools.product(BACKENDS, [0.0, 0.1])
    ]
    plain = [{"is_fused": False}, {"dtype": "float32"}]
    document = {"task": "coreference", "size": size or "minilm", "dtype": "float32"}
    return [
        ("without attention dropout", [{**first, "library": x} for x in libraries]),
        (
            "with attention dropout",
            [{**first, "library": x, "attention_dropout": 0.1} for x in libraries],
        ),
        ("padding mask", padded),
        ("larger", larger),
        (
            "coreference, one document of 11 segments",
            [{**document, "library": x} for x in [*BACKENDS, "released"]],
        ),
        (
            "plain attention and float32",
            [{**first, "library": b, **x} for b in BACKENDS for x in plain],
        ),
        (
            "the two mechanisms on PyTorch",
            [
                {**first, "library": "torch", "jit_compile": jit_compile, "is_direct": is_direct}
                for jit_compile in ("auto", False)
                for is_direct in (True, False)
            ],
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


# === Output ===


def describe(case):
    words = [case["library"], case["size"], f"{case['batch_size']} x {case['length']}"]
    words += [case["dtype"].removeprefix("mixed_"), f"dropout {case['attention_dropout']:g}"]
    words += ["mask"] * case["has_mask"] + ["plain"] * (not case["is_fused"])
    words += ["not compiled"] * (not case["jit_compile"])
    return ", ".join(words + ["called by Keras"] * (not case["is_direct"]))


def format_row(row, peak):
    if "error" in row:
        return row["error"]
    rate = ""
    if "tflops" in row:
        share = f" ({row['tflops'] / peak:.0%} of the peak)" if peak else ""
        rate = f"{row['tflops']:>8.2f} TFLOP/s{share}"
    return (
        f"{row['step_ms']:>9,.1f} ms{rate}{row['peak_gb']:>7.1f} GB  "
        f"first {row['first_step_s']:.0f} s  compiled later {row['compiled_later']}"
    )


def print_ratios(step_ms):
    """Prints the speed of each case relative to its peers."""
    for key, ms in step_ms.items():
        case = json.loads(key)
        if case["library"] in PEERS:
            continue
        plain = {"jit_compile": "auto", "is_direct": True}
        others = {peer: {"library": peer, **plain} for peer in PEERS}
        others["plain attention"] = {"is_fused": False}
        others["float32"] = {"dtype": "float32"}
        for name, changed in others.items():
            other = {**case, **changed}
            other_ms = step_ms.get(json.dumps(other, sort_keys=True))
            if other_ms and other != case:
                print(f"  {describe(case):<62}{other_ms / ms:>6.2f} times as fast as {name}")


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
    with plain_attention() if not case.is_fused else contextlib.nullcontext():
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

    if case.library in ("transformers", "released"):
        device = "cpu" if case.card == "CPU" else "cuda"
        if case.library == "released":
            step = released_step(case, device)
        else:
            step = training_step.pytorch_step(case, device, case.has_mask)
        for number in range(clock.num_steps):
            clock.step(number, step())
        return
    batch_end = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda number, logs: clock.step(number, logs["loss"])
    )
    fit(case, clock.num_steps, batch_end)


class Clock:
    """Times windows of steps and counts the compilations after the warm-up.

    It waits for the device only at the ends of windows, because a run does not wait either.
    """

    def __init__(self, steps):
        self.steps = steps
        self.ends = [WARM_UP_STEPS + window * steps for window in range(WINDOWS + 1)]
        self.num_steps = self.ends[-1]
        self.started = time.perf_counter()
        self.seconds = []
        self.compilations = []
        self._count = count_compilations()

    def step(self, number, loss):
        """Records the end of a step, counted from 0."""
        if number and number + 1 not in self.ends:
            return
        float(loss)
        self.seconds.append(time.perf_counter() - self.started)
        self.compilations.append(self._count())
        self.started = time.perf_counter()

    def figures(self):
        first, _, *windows = self.seconds
        return {
            "step_ms": statistics.median(1e3 * seconds / self.steps for seconds in windows),
            "first_step_s": first,
            "compiled_later": self.compilations[-1] - self.compilations[1],
        }


def count_compilations():
    """Returns a function that counts how often XLA, or PyTorch's compiler, has compiled so far."""
    import keras

    if keras.backend.backend() == "torch":
        from torch._dynamo.utils import counters

        return lambda: counters["stats"]["unique_graphs"]
    import jax

    seen = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: seen.append(event) if "backend_compile" in event else None
    )
    return lambda: len(seen)


@contextlib.contextmanager
def plain_attention():
    """Inside this context, attention weights are computed and kept."""
    import keras

    keras.config.disable_flash_attention()
    if keras.backend.backend() != "torch":
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        yield


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


# === Coreference ===


def coreference(case):
    """Returns a resolver and a batch for it, one document."""
    resolver, batches = resolver_and_batches(case)
    resolver.compile(jit_compile=case.jit_compile)
    x, y = batches.arrays.document(0, 0)
    return resolver, (x, y, None)


def resolver_and_batches(case):
    """Returns an untrained resolver with the released settings, and batches of one document.

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
    return resolver, resolver.batches([document], max_segments=NUM_SEGMENTS)


def released_step(case, device):
    """Returns the training step of the released graph in PyTorch, which returns the loss."""
    import torch
    from coreference import Resolver, Training, released_tensors

    resolver, batches = resolver_and_batches(case)
    torch.set_default_device(device)  # The peer creates tensors there.
    settings = resolver.get_config(), resolver.backbone.checkpoint_settings()
    training = Training(Resolver(released_tensors(resolver), *reversed(settings)).to(device))
    return lambda: training.step(batches.arrays.cut(0, 0))


# === Estimates of XLA's compilers ===

HERTZ = 1.5e9  # TPU v5e.
VOCABULARY_SIZE = 28_996
# An H200 as XLA's `GpuTargetConfigProto`.
H200 = """
gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
device_memory_size: 150754820096 shared_memory_per_block_optin: 232448
cuda_compute_capability { major: 9 minor: 0 }
registers_per_core_limit: 65536 registers_per_block_limit: 65536 }
platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 } device_description_str: "NVIDIA H200"
"""
FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all")  # No bytes.
UNKNOWN = re.compile(r" (all-|reduce-scatter|collective-)[\w\-]*\(|tpu_custom_call")
PRODUCT = re.compile(r" (convolution|dot)\(|__cublas|__cudnn|xla\.gpu\.triton")
ARRAY = re.compile(r"\b(?:pred|[a-z]+(\d+)\w*)\[([\d,]*)\]")
INSTRUCTION = re.compile(r"(?:ROOT )?%([\w.\-]+) = (.*?) ([a-z][\w\-]*)\(([^)]*)\)")
NAME = re.compile(r"%([\w.\-]+)")

Operation = collections.namedtuple("Operation", "line path is_product cost size")


def estimate(args):
    """Compiles the step for a device that is not there, and prints what it costs."""
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    os.environ |= {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "XLA_FLAGS": ""}
    os.environ |= {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    case = complete({"size": args.size or "base", "library": args.library or "jax"}, args, "")
    case |= {"attention_dropout": args.attention_dropout, "rematerialize": args.rematerialize}
    compiled, layers = compile_step(argparse.Namespace(**case, variant="both"), args.compile)
    print(f"{time.process_time():.0f} CPU s")
    memory = compiled.memory_analysis()
    print(f"arguments {memory.argument_size_in_bytes / 1e9:.2f} GB")
    print(f"temporaries {memory.temp_size_in_bytes / 1e9:.2f} GB")
    report(compiled.as_text(), args.compile, layers)


def compile_step(case, device):
    """Returns the compiled training step, and the names of the model's layers."""
    import jax
    import keras
    import numpy as np
    import training_step
    from jax._src.xla_bridge import discover_pjrt_plugins
    from jax.experimental import topologies

    from keras_spanbert.keras_private import build_training
    from keras_spanbert.layers import jax_attention

    keras.config.set_dtype_policy("mixed_bfloat16")
    # Otherwise the layer and Keras would choose operations for a CPU.
    jax_attention._cudnn_supports = lambda *_: device == "gpu"
    jax.default_backend = lambda: device
    if device == "tpu":  # 8 chips, or one GPU.
        topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4")
    else:
        discover_pjrt_plugins()
        topology = topologies.get_topology_desc("", "cuda", target_config=H200, topology="1x1x1")
    is_ours = case.library == "jax"
    chips = topology.devices
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


def report(text, device, layers):
    """Prints what a program in HLO text costs, by kind and by layer."""
    kinds, groups, unknown = (collections.Counter() for _ in range(3))
    for operation in operations(text, device):
        kinds["matrix products" if operation.is_product else "other operations"] += operation.cost
        groups[group(operation.path, layers)] += operation.cost
        if UNKNOWN.search(operation.line):
            unknown[NAME.search(operation.line)[1].rstrip(".0123456789")] += operation.size
    cost, unit, scale = sum(kinds.values()), "GB", 1e9
    if device == "tpu":
        unit, scale = "ms at 1.5 GHz", HERTZ / 1e3
        print(f"{cost:,} cycles, without", *(f"{n} ({b / 1e9:.3f} GB)" for n, b in unknown.items()))
    print(f"{'':<64}{unit}")
    for rows in [("all", cost), *kinds.most_common()], groups.most_common(10):
        print(*(f"{name:<64}{value / scale:.2f}" for name, value in rows), "", sep="\n")


def group(path, layers):
    """The last two layers of an operation's path, without numbers, and its direction."""
    names = (re.sub(r"_\d+$", "", n) for n in re.findall(r"\w+", path) if n in layers)
    names = list(dict.fromkeys(names))[-2:] or ["outside of layers"]
    return "/".join(names) + ", backward" * ("transpose" in path)


def operations(text, device):
    """Yields each `Operation` of a program, with the cycles or bytes of all its runs."""
    parts = re.split(r"\n(?=%|ENTRY )", text)[1:]
    computations = {NAME.search(part)[1]: part for part in parts}
    entry = next(name for name, part in computations.items() if part.startswith("ENTRY"))
    return _operations(computations, entry, 1, device)


def _operations(computations, computation, runs, device):
    sizes = {}
    for line in re.split(r"\n  (?=(?:ROOT )?%)", computations[computation])[1:]:
        name, arrays, opcode, operands = INSTRUCTION.match(line).groups()
        sizes[name] = sum(
            math.prod(map(int, re.findall(r"\d+", shape))) * int(bits or 8) // 8
            for bits, shape in ARRAY.findall(arrays)
        )
        if opcode in ("while", "call"):
            called = re.search(r"\b(?:body|to_apply)=%([\w.\-]+)", line)[1]
            trips = re.search(r'known_trip_count":\{"n":"(\d+)|$', line)[1] or 1
            yield from _operations(computations, called, runs * int(trips), device)
            continue
        if device == "tpu":
            cost = sum(map(int, re.findall(r'estimated_cycles":"(\d+)', line)))
        elif opcode in FREE or opcode.endswith("-done"):
            cost = 0
        else:
            cost = sizes[name] + sum(sizes[operand] for operand in NAME.findall(operands))
        inside = fused_text(computations, line)
        paths = re.findall(r'op_name="([^"]*)"', line) or re.findall(r'op_name="([^"]*)"', inside)
        is_product, path = bool(PRODUCT.search(line + inside)), (paths or [""])[-1]
        yield Operation(line, path, is_product, runs * cost, runs * sizes[name])


def fused_text(computations, line):
    """Returns the text of what is fused in an operation, at all depths."""
    names = re.findall(r"\bcalls=%([\w.\-]+)", line)
    inside = "".join(computations[name].partition("\n")[2] for name in names)
    return inside + (fused_text(computations, inside) if inside else "")


if __name__ == "__main__":
    main()

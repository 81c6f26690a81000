"""What does a pretraining step cost on a TPU or a GPU, according to XLA's compilers?

Compiles the step of `SpanBertPretrainer` (MLM and SBO), or of keras-hub's `BertMaskedLM` (MLM),
with AdamW in bfloat16. It needs a compiler and no accelerator: `pip install libtpu` for a TPU v5e,
`pip install "jax[cuda12]"` for an H200.

    python benchmarks/compiled_step.py ours --device=tpu
    python benchmarks/compiled_step.py keras_hub --device=gpu --dropout=0

TPU: cycles of the compiler's schedule on one of 8 chips that share the data. It has none for custom
kernels and exchanges, which are listed with the size of their results. GPU: bytes of all operands
and results of each operation. Both are split into matrix products (operations that contain one) and
others, and by the layers that made the operations, of which the ten largest are shown.
"""

import argparse
import collections
import functools
import math
import os
import re
import time

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=["ours", "keras_hub"])
    parser.add_argument("--device", choices=["tpu", "gpu"], required=True)
    parser.add_argument("--size", default="base", help="of SpanBertBackbone.SIZES")
    parser.add_argument("--layers", type=int, help="default: those of --size")
    parser.add_argument("--batch_size", type=int, default=16, help="rows of a chip")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--attention_dropout", type=float, help="ours; default: --dropout")
    parser.add_argument("--rematerialize", action="store_true", help="ours")
    args = parser.parse_args()
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
    os.environ |= {"JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1", "XLA_FLAGS": ""}
    os.environ |= {"ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    compiled, layers = compile_step(args)
    print(f"{time.process_time():.0f} CPU s")
    memory = compiled.memory_analysis()
    print(f"arguments {memory.argument_size_in_bytes / 1e9:.2f} GB")
    print(f"temporaries {memory.temp_size_in_bytes / 1e9:.2f} GB")
    report(compiled.as_text(), args.device, layers)


def compile_step(args):
    """Returns the compiled training step, and the names of the model's layers."""
    import jax
    import keras
    import numpy as np
    from jax._src.xla_bridge import discover_pjrt_plugins
    from jax.experimental import topologies

    from keras_spanbert.keras_private import build_training
    from keras_spanbert.layers import jax_attention

    keras.config.set_dtype_policy("mixed_bfloat16")
    # Otherwise the layer and Keras would choose operations for a CPU.
    jax_attention._cudnn_supports = lambda *_: args.device == "gpu"
    jax.default_backend = lambda: args.device
    if args.device == "tpu":  # 8 chips, or one GPU.
        topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4")
    else:
        discover_pjrt_plugins()
        topology = topologies.get_topology_desc("", "cuda", target_config=H200, topology="1x1x1")
    chips, model = topology.devices, build_model(args)
    rows, M = args.batch_size * len(chips), 8 * math.ceil(0.15 * args.length / 8)
    lengths = dict.fromkeys(["token_ids", "segment_ids", "padding_mask"], args.length)
    x = {name: np.zeros((rows, lengths.get(name, M)), "int32") for name in model.input}
    y, weights = np.zeros((rows, M), "int32"), np.ones((rows, M), "float32")
    if args.library == "ours":
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


def build_model(args):
    import keras
    import keras_hub

    import keras_spanbert as ks

    sizes = {**ks.SpanBertBackbone.SIZES[args.size], "dropout": args.dropout}
    sizes["num_layers"] = args.layers or sizes["num_layers"]
    if args.library == "keras_hub":
        backbone = keras_hub.models.BertBackbone(VOCABULARY_SIZE, **sizes)
        model = keras_hub.models.BertMaskedLM(backbone)
        model.compile(keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0))
        return model
    rate = args.dropout if args.attention_dropout is None else args.attention_dropout
    sizes |= {"attention_dropout": rate, "rematerialize": args.rematerialize}
    backbone = ks.SpanBertBackbone(VOCABULARY_SIZE, **sizes)
    return ks.SpanBertPretrainer(backbone)  # Compiled with its own AdamW.


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

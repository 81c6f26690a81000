"""What a compiled program moves, multiplies, draws and exchanges, read from its optimised HLO.

`read(compiled.as_text())` gives the `Costs` of one run of a program that XLA compiled for a TPU.
All is a chip's: the program is what each chip runs, with the shapes of its parts.

Bytes are those that go through high-bandwidth memory, by these rules:

- Each instruction of the entry computation reads its operands and writes its results; those of a
  loop's body do so as often as it runs, of a conditional the branch counts that moves most.
- A buffer whose layout names another memory, as `S(1)`, on-chip memory, moves nothing.
- What names or groups buffers moves nothing: parameters, constants, tuples and their elements,
  bitcasts.
- A fusion reads the operands of the whole and writes its results; what is inside moves nothing.
- Of what is sliced or gathered the slice is read, and of what is updated in place the update is
  written, inside fusions too. A scatter also reads what it adds to.
- An instruction in two halves, `-start` and `-done`, counts once: operands at the start, results at
  the end. A prefetch into on-chip memory is one read.
- What a program prefetches at its end for its next run counts there, and not at its beginning
  (`cross_program_prefetch_index`) again.
- Kernels (`custom-call`) read each operand once, however often they come back to it.
- Elements count, without the padding of tiles.
"""

import dataclasses
import math
import re
from collections import Counter, defaultdict

import hlo

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)
# Of no bytes: names and groups of buffers, and scalars of the program.
_FREE = {
    "add-dependency",
    "after-all",
    "bitcast",
    "constant",
    "domain",
    "get-tuple-element",
    "opt-barrier",
    "optimization-barrier",
    "parameter",
    "partition-id",
    "replica-id",
    "tuple",
}
_FREE_CALLS = {"AllocateBuffer", "AssumeGatherIndicesInBound", "ConcatBitcast", "Sharding"}
_SLICES = ("slice", "dynamic-slice", "gather")
_UPDATES = ("dynamic-update-slice", "scatter")
# What a slice may be taken through: inside a fusion these are computed for the slice alone.
_VIEWS = ("bitcast", "convert", "copy", "reshape", "transpose")
# Of unsigned integers these are random numbers' alone, but for a few of an index.
_INTEGER = {"add", "subtract", "multiply", "xor", "or", "and", "not", "negate"}
_INTEGER |= {"shift-left", "shift-right-logical", "mulhi"}


@dataclasses.dataclass(frozen=True)
class Collective:
    """An exchange between chips, `count` of them in a run."""

    kind: str
    dtype: str
    bytes: int
    count: int
    is_async: bool
    is_overlapped: bool


@dataclasses.dataclass
class Costs:
    """What one run of a program costs a chip.

    Attributes:
        bytes: int. Through high-bandwidth memory.
        flops: int. Of matrix products and, where they say so, of kernels.
        integer_ops: int. Operations on unsigned integers, element by element: threefry's.
        generator_words: int. 32-bit words of the hardware's generator.
        draws: `Counter` of the shapes that random numbers are computed in, by operations.
        cycles: int. What the compiler expects instructions to take together.
        collectives: list of `Collective`.
        movers: `Counter` of the bytes of each instruction, by name and type.
    """

    bytes: int = 0
    flops: int = 0
    integer_ops: int = 0
    generator_words: int = 0
    draws: Counter = dataclasses.field(default_factory=Counter)
    cycles: int = 0
    collectives: list[Collective] = dataclasses.field(default_factory=list)
    movers: Counter = dataclasses.field(default_factory=Counter)


def read(text: str) -> Costs:
    """The costs of a program in HLO text, as `jax.stages.Compiled.as_text` gives it."""
    computations, entry = hlo.parse(text)
    costs = Costs()
    _add(computations, entry, 1, costs)
    costs.bytes = sum(costs.movers.values())
    return costs


# === The walk ===


def _add(computations, name, times, costs):
    """Adds what `times` runs of a computation cost whose instructions use memory."""
    instructions = computations[name]
    for instruction in instructions.values():
        opcode = instruction.opcode
        if opcode == "while":
            (body,) = instruction.called("body")
            _add(computations, body, times * _trips(computations, instruction), costs)
        elif opcode == "conditional":
            names = ("branch_computations", "true_computation", "false_computation")
            branches = []
            for branch in instruction.called(*names):
                branches.append(Costs())
                _add(computations, branch, times, branches[-1])
            _join(costs, max(branches, key=lambda branch: sum(branch.movers.values())))
        elif opcode == "call":
            for called in instruction.called("to_apply"):
                _add(computations, called, times, costs)
        else:
            moved = times * _moved(computations, instructions, instruction)
            if moved:
                shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in instruction.arrays[:3])
                costs.movers[f"{instruction.name} {shapes}"] += moved
            _add_work(computations, instructions, instruction, times, costs, instruction)


def _join(costs, branch):
    costs.flops += branch.flops
    costs.integer_ops += branch.integer_ops
    costs.generator_words += branch.generator_words
    costs.draws += branch.draws
    costs.cycles += branch.cycles
    costs.collectives += branch.collectives
    costs.movers += branch.movers


def _trips(computations, loop):
    known = re.search(r'"known_trip_count":\{"n":"?(\d+)', loop.attributes)
    if known:
        return int(known[1])
    (condition,) = loop.called("condition")
    limits = [
        int(i.text)
        for i in computations[condition].values()
        if i.opcode == "constant" and i.text.strip().isdigit()
    ]
    return max(limits, default=1)


# === Bytes ===


def _moved(computations, instructions, instruction):
    """Bytes through HBM of an instruction that uses memory."""
    opcode = instruction.opcode
    if opcode in _FREE or opcode.endswith("-update"):
        return 0
    if opcode == "custom-call" and _target(instruction) in _FREE_CALLS:
        return 0
    if "cross_program_prefetch_index" in instruction.attributes and _is_prefetched_at_the_end(
        instructions, instruction
    ):
        return 0
    if opcode.endswith("-done"):
        return instruction.hbm
    operands = [instructions[name] for name in instruction.operands]
    called = instruction.called("calls") if opcode in ("fusion", "async-start") else []
    base = opcode.removesuffix("-start")
    moved = 0
    for i, operand in enumerate(operands):
        if not operand.hbm:
            continue
        if called:
            moved += min(operand.hbm, _read(computations, called[0], i))
        elif base in _SLICES and i == 0:
            result = instruction.arrays[1 if opcode != base else 0]
            moved += operand.arrays[0].bytes_of(result.elements)
        elif base == "dynamic-update-slice" and i == 0:
            pass
        elif base == "scatter" and i == 0:
            moved += operands[-1].arrays[0].size
        else:
            moved += operand.hbm
    if opcode != base:
        return moved
    if called:
        written = _written(computations, called[0])
        sizes = [min(array.size, size) for array, size in zip(instruction.arrays, written)]
        return moved + sum(s for s, array in zip(sizes, instruction.arrays) if array.in_hbm)
    if base in _UPDATES and instruction.hbm:
        return moved + operands[1 if base == "dynamic-update-slice" else -1].arrays[0].size
    return moved + instruction.hbm


def _is_prefetched_at_the_end(instructions, start):
    """Whether what is copied is copied once more, for no instruction of this run."""
    used = {name for instruction in instructions.values() for name in instruction.operands}
    copies = {
        instruction.name
        for instruction in instructions.values()
        if instruction.opcode == start.opcode and instruction.operands == start.operands
    }
    return any(
        instruction.opcode.endswith("-done")
        and instruction.operands[0] in copies
        and instruction.name not in used
        for instruction in instructions.values()
    )


def _target(call):
    match = re.search(r'custom_call_target="([^"]*)"', call.attributes)
    return match[1] if match else ""


def _read(computations, name, index):
    """Bytes that a fused computation reads of its parameter of this number."""
    instructions = computations[name]
    parameters = [i for i in instructions.values() if i.opcode == "parameter"]
    (parameter,) = (p for p in parameters if int(p.text) == index)
    array, whole = parameter.arrays[0], sum(a.size for a in parameter.arrays)
    moved, seen, to_see = 0, set(), [parameter.name]
    while to_see:
        source = to_see.pop()
        for user in instructions.values():
            if source not in user.operands or (source, user.name) in seen:
                continue
            seen.add((source, user.name))
            is_first = user.operands[0] == source and source not in user.operands[1:]
            if user.opcode in _VIEWS:
                if user.is_root:
                    return whole
                to_see.append(user.name)
            elif user.opcode in _SLICES and is_first:
                moved += array.bytes_of(user.arrays[0].elements)
            elif user.opcode == "dynamic-update-slice" and is_first:
                pass
            elif user.opcode == "scatter" and is_first:
                moved += array.bytes_of(instructions[user.operands[-1]].arrays[0].elements)
            elif user.opcode == "fusion":
                (called,) = user.called("calls")
                for i, operand in enumerate(user.operands):
                    moved += _read(computations, called, i) if operand == source else 0
            else:
                return whole
    return min(moved, whole)


def _written(computations, name, is_buffer=None):
    """Bytes that a fused computation writes of each of its results.

    `is_buffer` says which of its parameters come from outside of all fusions; `None`: all.
    """
    instructions = computations[name]
    (root,) = (i for i in instructions.values() if i.is_root)
    results = [instructions[o] for o in root.operands] if root.opcode == "tuple" else [root]
    sizes = []
    for result in (_viewed(instructions, result) for result in results):
        if result.opcode == "fusion":
            of_operands = [_is_buffer(instructions, o, is_buffer) for o in result.operands]
            sizes += _written(computations, result.called("calls")[0], of_operands)
        elif result.opcode in _UPDATES and _is_buffer(instructions, result.operands[0], is_buffer):
            update = result.operands[1 if result.opcode == "dynamic-update-slice" else -1]
            sizes.append(instructions[update].arrays[0].size)
        else:
            sizes += [array.size for array in result.arrays]
    return sizes


def _viewed(instructions, instruction):
    while instruction.opcode in _VIEWS:
        instruction = instructions[instruction.operands[0]]
    return instruction


def _is_buffer(instructions, name, is_buffer):
    found = _viewed(instructions, instructions[name])
    return found.opcode == "parameter" and (is_buffer is None or is_buffer[int(found.text)])


# === Work ===


def _add_work(computations, instructions, instruction, times, costs, outer):
    """Adds FLOPs, random numbers, cycles and exchanges of an instruction and those fused in it."""
    opcode = instruction.opcode
    cycles = re.search(r'"estimated_cycles":"(\d+)"', instruction.attributes)
    if cycles and instruction is outer:
        costs.cycles += times * int(cycles[1])
    if opcode in ("fusion", "async-start"):
        for called in instruction.called("calls"):
            for inner in computations[called].values():
                _add_work(computations, computations[called], inner, times, costs, outer)
    elif opcode in ("convolution", "dot"):
        operands = [instructions[name].arrays[0] for name in instruction.operands]
        count = _convolution_flops if opcode == "convolution" else _dot_flops
        costs.flops += times * count(instruction, *operands)
    elif opcode == "custom-call":
        # Kernels may say what they take.
        flops = re.search(r'"flops":\s*"?(\d+)', instruction.attributes)
        costs.flops += times * int(flops[1]) if flops else 0
    elif opcode == "rng-bit-generator":
        drawn = instruction.arrays[-1]
        costs.generator_words += times * drawn.size // 4
        costs.draws[drawn.shape] += times * drawn.elements
    elif opcode.removesuffix("-start") in COLLECTIVES:
        costs.collectives.append(_collective(instructions, instruction, times, outer))
    elif opcode in _INTEGER and instruction.arrays[0].dtype in ("u8", "u16", "u32", "u64"):
        costs.integer_ops += times * instruction.arrays[0].elements
        if opcode == "xor":
            costs.draws[instruction.arrays[0].shape] += times * instruction.arrays[0].elements


def _dot_flops(dot, left, _):
    contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", dot.attributes)[1]
    depth = math.prod(left.shape[int(axis)] for axis in contracted.split(",") if axis)
    return 2 * dot.arrays[0].elements * depth


def _convolution_flops(convolution, left, right):
    """As XLA counts: places of a window that are padding, or between what is dilated, are none."""
    attributes, result = convolution.attributes, convolution.arrays[0]
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", attributes)
    left_labels, right_labels, result_labels = labels.groups()

    def size(array, labels, label):
        return array.shape[labels.index(label)]

    # The kernel's input features are those of a group.
    flops = 2 * size(result, result_labels, "b") * size(result, result_labels, "f")
    flops *= size(right, right_labels, "i")
    window = _window(attributes)
    for axis in (label for label in left_labels if label.isdigit()):
        i = int(axis)
        flops *= _valid_places(
            size(left, left_labels, axis),
            size(right, right_labels, axis),
            size(result, result_labels, axis),
            int(window["stride"][i]) if "stride" in window else 1,
            int(window["pad"][i].split("_")[0]) if "pad" in window else 0,
            int(window["lhs_dilate"][i]) if "lhs_dilate" in window else 1,
            int(window["rhs_dilate"][i]) if "rhs_dilate" in window else 1,
        )
    return flops


def _window(attributes):
    found = re.search(r"window=\{([^}]*)\}", attributes)
    pairs = (field.split("=") for field in found[1].split()) if found else ()
    return {name: value.split("x") for name, value in pairs}


def _valid_places(inputs, kernel, outputs, stride, pad, input_dilation, kernel_dilation):
    """Pairs of an output and a place of its window where there is an input."""
    most = (inputs - 1) * input_dilation
    places = 0
    for k in range(kernel):
        for o in range(outputs):
            place = o * stride + k * kernel_dilation - pad
            places += 0 <= place <= most and place % input_dilation == 0
    return places


def _collective(instructions, instruction, times, outer):
    kind = instruction.opcode.removesuffix("-start")
    arrays = [a for name in instruction.operands for a in instructions[name].arrays]
    results = instruction.arrays
    is_async = kind != instruction.opcode or outer.opcode == "async-start"
    size = sum(array.size for array in arrays)
    if kind == "all-gather":
        size = sum(a.size for a in results) - (size if kind != instruction.opcode else 0)
    return Collective(
        kind=kind,
        dtype=max(arrays, key=lambda array: array.size).dtype if arrays else results[0].dtype,
        bytes=size,
        count=times,
        is_async=is_async,
        is_overlapped=is_async and outer.name in instructions and _overlaps(instructions, outer),
    )


def _overlaps(instructions, start):
    """Whether something is computed between an instruction's start and its end."""
    names = list(instructions)
    for name in names[names.index(start.name) + 1 :]:
        instruction = instructions[name]
        if instruction.opcode.endswith("-done") and start.name in instruction.operands:
            return False
        if instruction.opcode in ("fusion", "convolution", "dot", "custom-call", "while"):
            return True
    return False


def collectives_by_kind(collectives: list[Collective]) -> dict[tuple, dict]:
    """Count, bytes and overlap of exchanges, by kind and dtype."""
    found = defaultdict(lambda: {"count": 0, "bytes": 0, "async": 0, "overlapped": 0})
    for one in collectives:
        row = found[one.kind, one.dtype]
        row["count"] += one.count
        row["bytes"] += one.count * one.bytes
        row["async"] += one.count * one.is_async
        row["overlapped"] += one.count * one.is_overlapped
    return dict(found)

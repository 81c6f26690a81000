"""HLO text, as `jax.stages.Compiled.as_text` gives it, to computations and instructions."""

import dataclasses
import math
import re
from collections.abc import Iterator

# Of the other dtypes the first number in the name.
_BITS = {"pred": 8, "token": 0, "opaque": 0}

_LEAF = re.compile(r"([a-z]\w*)\[([\d,<=]*)\](\{[^}]*\})?")
_NAME = re.compile(r"%([\w.\-]+)")
_SPACE = re.compile(r"S\((\d+)\)")
_HEAD = re.compile(r"(ENTRY )?%?([\w.\-]+) \(.*\{$")
_START = re.compile(r"  (ROOT )?%?[\w.\-]+ = ")
_BRACKET = re.compile(r"[()]")


@dataclasses.dataclass(frozen=True)
class Array:
    """An array of an instruction's type: `dtype[shape]`, and whether it is in HBM."""

    dtype: str
    shape: tuple[int, ...]
    in_hbm: bool

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def bytes_of(self, elements: int) -> int:
        bits = _BITS.get(self.dtype)
        if bits is None:
            bits = int(re.search(r"\d+", self.dtype)[0])
        return (elements * bits + 7) // 8

    @property
    def size(self) -> int:
        return self.bytes_of(self.elements)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """`name = arrays opcode(operands), attributes`; `text` is what stands for the operands."""

    name: str
    arrays: tuple[Array, ...]
    opcode: str
    operands: tuple[str, ...]
    text: str
    attributes: str
    is_root: bool

    @property
    def hbm(self) -> int:
        return sum(array.size for array in self.arrays if array.in_hbm)

    def called(self, *names: str) -> list[str]:
        """Names of the computations that attributes of these names call."""
        found = []
        for name in names:
            match = re.search(rf"\b{name}=(\{{[^}}]*\}}|%[\w.\-]+)", self.attributes)
            found += _NAME.findall(match[1]) if match else []
        return found


def parse(text: str) -> tuple[dict[str, dict[str, Instruction]], str]:
    """Computations by name, each a dict of its instructions in order, and the entry's name."""
    written, entry, current = {}, None, None
    for line in text.splitlines():
        head = None if line.startswith(" ") else _HEAD.match(line)
        if head:
            current = written.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif line == "}":
            current = None
        elif current is not None and _START.match(line):
            current.append(line.strip())
        elif current:
            current[-1] += f" {line}"  # Attributes of kernels may go over several lines.
    if entry is None:
        raise ValueError(f"HLO text must have an ENTRY computation. Received: {text[:80]!r}")
    computations = {}
    for name, lines in written.items():
        instructions = map(_instruction, lines)
        computations[name] = {instruction.name: instruction for instruction in instructions}
    return computations, entry


def _instruction(line):
    is_root = line.startswith("ROOT ")
    name, _, rest = line.removeprefix("ROOT ").partition(" = ")
    end = _closing(rest, 0) + 1 if rest.startswith("(") else rest.index(" ")
    opcode, _, rest_of = rest[end:].strip().partition("(")
    close = _closing("(" + rest_of, 0) - 1
    text = re.sub(r"/\*.*?\*/", "", rest_of[:close])
    return Instruction(
        name.lstrip("%"),
        tuple(_arrays(rest[:end])),
        opcode,
        tuple(_NAME.findall(text)),
        text,
        rest_of[close + 1 :],
        is_root,
    )


def _closing(text, start):
    """Where the bracket that opens at `start` closes."""
    depth = 0
    for match in _BRACKET.finditer(text, start):
        depth += 1 if match[0] == "(" else -1
        if not depth:
            return match.start()
    raise ValueError(f"A bracket of HLO text is open: {text[:80]!r}")


def _arrays(text) -> Iterator[Array]:
    for dtype, shape, layout in _LEAF.findall(text):
        space = _SPACE.search(layout)
        sizes = tuple(int(size.lstrip("<=")) for size in shape.split(",") if size)
        yield Array(dtype, sizes, in_hbm=not space or space[1] == "0")

"""Read a serialised HloProto into instructions: names, opcodes, shapes, operands, source lines.

Field numbers are those of xla/service/hlo.proto and xla/xla_data.proto.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from opscope.core.schema import Arg, Frame, TensorSpec

from .wire import Fields, WireError, fields, number, numbers, spans, text

#: XLA's PrimitiveType → opscope's dtype names.
DTYPES: Final = {
    1: "bool", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "u8", 7: "u16", 8: "u32", 9: "u64",
    10: "f16", 11: "f32", 12: "f64", 15: "c64", 16: "bf16", 18: "c128", 19: "f8e5m2",
    20: "f8e4m3fn", 21: "i4", 22: "u4", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 32: "f4e2m1",
    33: "f8e8m0fnu",
}  # fmt: skip
_TUPLE: Final = 13
_NO_TENSOR: Final = (0, 14, 17)
#: A frame with a line number from here on is ignored.
MAX_LINE: Final = 1 << 31
#: Tuples nested deeper than this are refused, and longer stacks of frames are cut.
MAX_DEPTH: Final = 32


@dataclass(slots=True)
class Instruction:
    """One instruction; ``message`` has all its fields, as some are only for certain opcodes."""

    name: str
    opcode: str
    shape: Arg
    operands: tuple[int, ...]
    called: tuple[int, ...]
    op_name: str
    frames: tuple[Frame, ...]
    message: Fields


@dataclass(slots=True)
class Module:
    """One program compiled by XLA. ``data``: the bytes that the instructions' spans point into."""

    data: bytes
    name: str
    instructions: dict[int, Instruction] = field(default_factory=dict)
    computations: dict[int, list[int]] = field(default_factory=dict)
    roots: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of_proto(cls, data: bytes) -> Module:
        """Return the module in a serialised HloProto. Raises WireError if ``data`` is not one."""
        module_spans = spans(fields(data, 0, len(data)), 1)
        if not module_spans:
            raise WireError("the HloProto has no module")
        return cls._of(data, *module_spans[-1])

    @classmethod
    def of_module(cls, data: bytes) -> Module:
        """Return the module in a serialised HloModuleProto. Raises WireError if ``data`` is not one."""
        return cls._of(data, 0, len(data))

    @classmethod
    def _of(cls, data: bytes, start: int, end: int) -> Module:
        message = fields(data, start, end)
        module = cls(data, text(data, message, 1))
        index = spans(message, 17)
        stacks = _Stacks(data, fields(data, *index[-1]) if index else {})
        for span in spans(message, 3):
            computation = fields(data, *span)
            identifier = number(computation, 5)
            module.roots[identifier] = number(computation, 6)
            members = module.computations[identifier] = []
            for instruction_span in spans(computation, 2):
                members.append(_instruction(module, fields(data, *instruction_span), stacks))
        return module


def _instruction(module: Module, message: Fields, stacks: _Stacks) -> int:
    data = module.data
    metadata_spans = spans(message, 7)
    metadata = fields(data, *metadata_spans[-1]) if metadata_spans else {}
    shape = spans(message, 3)
    identifier = number(message, 35)
    module.instructions[identifier] = Instruction(
        text(data, message, 1),
        text(data, message, 2),
        _shape(data, *shape[-1]) if shape else None,
        numbers(data, message, 36),
        numbers(data, message, 38),
        # an instruction made of several has all their paths, "a/mul;a/broadcast_in_dim": take the first
        text(data, metadata, 2).partition(";")[0],
        stacks.frames(data, metadata),
        message,
    )
    return identifier


def _shape(data: bytes, start: int, end: int, depth: int = 0) -> Arg:
    message = fields(data, start, end)
    kind = number(message, 2)
    if kind == _TUPLE:
        if depth >= MAX_DEPTH:
            raise WireError("tuples nested too deep")
        return tuple(_shape(data, *span, depth + 1) for span in spans(message, 4))
    if kind in _NO_TENSOR:
        return None
    dims = numbers(data, message, 3)
    layout = spans(message, 5)
    order = numbers(data, fields(data, *layout[-1]), 1) if layout else ()
    plain = len(order) != len(dims) or order == tuple(range(len(dims) - 1, -1, -1))
    return TensorSpec(DTYPES.get(kind, "?"), dims, None if plain else order)


class _Stacks:
    """The module's tables of files, locations and stack frames; numbers in them count from 1."""

    def __init__(self, data: bytes, index: Fields) -> None:
        self._files = [data[slice(*span)].decode("utf-8", "replace") for span in spans(index, 1)]
        self._locations = [fields(data, *span) for span in spans(index, 3)]
        self._stacks = [fields(data, *span) for span in spans(index, 4)]
        self._known: dict[int, tuple[Frame, ...]] = {}

    def frames(self, data: bytes, metadata: Fields) -> tuple[Frame, ...]:
        """Return the call stack of an instruction, innermost first; older modules have one line only."""
        identifier = number(metadata, 15)
        if identifier in self._known:
            return self._known[identifier]
        stack: list[Frame] = []
        at = identifier
        for _ in range(MAX_DEPTH):  # in a malicious file a frame may call itself
            if not 0 < at <= len(self._stacks):
                break
            frame = self._stacks[at - 1]
            location = number(frame, 1)
            if 0 < location <= len(self._locations):
                where = self._locations[location - 1]
                file = number(where, 1)
                line = number(where, 3)
                if 0 < file <= len(self._files) and 0 <= line < MAX_LINE:
                    stack.append((self._files[file - 1], line))
            at = number(frame, 2)
        if stack:
            self._known[identifier] = tuple(stack)
            return tuple(stack)
        file_name, line = text(data, metadata, 3), number(metadata, 4)
        return ((file_name, line),) if file_name and 0 <= line < MAX_LINE else ()

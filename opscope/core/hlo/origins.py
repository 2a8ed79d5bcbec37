"""Find where an HLO instruction comes from: its path in the framework, and the user's source lines.

XLA's rewrites make instructions without either: a gradient's convolution in another layout, the copies around
it. The origin of such an instruction is found through the instructions that it reads and the instructions
that read it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from opscope.core.schema import Frame

from .module import Instruction, Module
from .wire import number

#: (path, frames, name of the instruction with both); the path is "" if unknown.
Origin: TypeAlias = "tuple[str, tuple[Frame, ...], str]"

#: Opcodes that do not run by themselves: no event names them.
NOT_RUN: Final = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})
#: Opcodes that only move data: an instruction that consists of such opcodes alone belongs to the instruction
#: that reads it.
_MOVES: Final = frozenset(
    {"copy", "transpose", "reshape", "bitcast", "convert", "parameter", "pad"}
)
#: Prefix of PyTorch/XLA's op names (``aten__addmm``); the op's scope has this name with a number.
ATEN: Final = "aten__"
_CONTRACTIONS: Final = frozenset({"convolution", "dot"})
#: The framework's names of contractions, as the last part of a path.
_CALLED: Final = re.compile(r"(?i)(?:dot|conv|matmul|einsum)\w*\Z")
#: How many instructions away an origin is searched for.
REACH: Final = 4
#: Most instructions that are searched for one origin, so that no module makes the search slow.
MAX_SEEN: Final = 256


class Origins:
    """The origins of a module's instructions."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._known: dict[int, Origin] = {}
        self._users: dict[int, list[int]] = {}
        #: Instructions inside fused regions.
        self._fused = {
            identifier
            for instruction in module.instructions.values()
            if instruction.opcode == "fusion"
            for computation in instruction.called
            for identifier in module.computations.get(computation, ())
        }
        for place, one in module.instructions.items():
            for operand in one.operands:
                self._users.setdefault(operand, []).append(place)
            work = self._contraction(one)
            named = next(
                filter(_has_origin, (one, *inside(module, one)) if work is None else (work,)), None
            )
            if named is not None:
                self._known[place] = (named.op_name, named.frames, named.name)
        for place, one in module.instructions.items():
            if place not in self._known and self._contraction(one) is not None:
                left = self._on_result(place)
                if left is not None:
                    self._known[place] = left
        self._gradients()

    def of(self, identifier: int) -> Origin:
        """Return the instruction's own origin, else that of an instruction fused in it, else its neighbours'.

        A copy gets the origin of its reader, any other instruction the origin of its operands. A backward
        neighbour comes first, because instructions that a rewrite makes from forward values for a gradient
        belong to the gradient.
        """
        if identifier in self._known:
            return self._known[identifier]
        instruction = self._module.instructions[identifier]
        named = next(filter(_has_origin, (instruction, *inside(self._module, instruction))), None)
        if named is not None:  # this is a contraction that has lost its own path
            return (named.op_name, named.frames, named.name)
        parts = [*inside(self._module, instruction)] or [instruction]
        ways = [self._operands, self._readers]
        if all(part.opcode in _MOVES for part in parts):
            ways.reverse()
        for follow in ways:
            origin = self._nearest(identifier, follow)
            if origin is not None:
                return origin
        return ("", (), instruction.name)

    def _operands(self, identifier: int) -> Sequence[int]:
        return self._module.instructions[identifier].operands

    def _readers(self, identifier: int) -> Sequence[int]:
        return self._users.get(identifier, ())

    def _nearest(self, identifier: int, follow: Callable[[int], Sequence[int]]) -> Origin | None:
        level, seen = [identifier], {identifier}
        for _ in range(REACH):
            reached = [at for origin in level for at in follow(origin)]
            level = []
            for at in reached:
                if at not in seen and at in self._module.instructions and len(seen) < MAX_SEEN:
                    seen.add(at)
                    level.append(at)
            origins_there = [self._known[at] for at in level if at in self._known]
            if origins_there:
                backward = [origin for origin in origins_there if "transpose(" in origin[0]]
                return (backward or origins_there)[0]
        return None

    def _on_result(self, identifier: int) -> Origin | None:
        """Return the origin that a rewrite moved from a contraction to what reshapes its result.

        That instruction reads the contraction, or a fused region's parameter which is the contraction.
        """
        read = [identifier]
        instructions = self._module.instructions
        for user in self._users.get(identifier, ()):
            reader = instructions[user]
            if reader.opcode != "fusion":
                continue
            which = {at for at, operand in enumerate(reader.operands) if operand == identifier}
            for computation in reader.called:
                for at in self._module.computations.get(computation, ()):
                    inner = instructions[at]
                    if inner.opcode == "parameter" and number(inner.message, 9) in which:
                        read.append(at)
        for at in read:
            for user in self._users.get(at, ()):
                reader = instructions[user]
                path = reader.op_name
                if reader.opcode in _MOVES and _is_path(path) and _CALLED.search(path):
                    return (reader.op_name, reader.frames, reader.name)
        return None

    def _gradients(self) -> None:
        """Give contractions without a path the origin of a gradient, if a forward contraction reads the
        same tensor."""
        kinds = {
            at: work.opcode
            for at, instruction in self._module.instructions.items()
            if at not in self._fused and (work := self._contraction(instruction)) is not None
        }
        places = list(kinds)
        bare = [at for at in places if at not in self._known]
        if not bare:
            return
        forward: dict[int, int] = {}
        for at in places:
            path = self._known.get(at, ("",))[0]
            if "jvp(" in path and "transpose(" not in path:
                for source in self._sources(at):
                    forward.setdefault(source, at)
        for at in bare:
            shared = [forward[source] for source in self._sources(at) if source in forward]
            same = [f for f in shared if kinds[f] == kinds[at]]
            if same:
                path, frames, name = self._known[same[0]]
                self._known[at] = (_transpose(path), frames, name)

    def _contraction(self, instruction: Instruction) -> Instruction | None:
        """Return the product or convolution that the instruction is, or that is fused into it; else None."""
        if instruction.opcode in _CONTRACTIONS:
            return instruction
        return next(
            (i for i in inside(self._module, instruction) if i.opcode in _CONTRACTIONS), None
        )

    def _sources(self, identifier: int) -> list[int]:
        """Return the instructions that are read, looking through copies and changes of layout."""
        sources = []
        for operand in self._module.instructions[identifier].operands:
            at = operand
            for _ in range(REACH):
                instruction = self._module.instructions.get(at)
                if instruction is None or len(instruction.operands) != 1:
                    break
                parts = [*inside(self._module, instruction)] or [instruction]
                if not all(part.opcode in _MOVES for part in parts):
                    break
                at = instruction.operands[0]
            sources.append(at)
        return sources


def _has_origin(instruction: Instruction) -> bool:
    return _is_path(instruction.op_name) and instruction.opcode not in NOT_RUN


def _is_path(name: str) -> bool:
    """Return whether the name is an origin; PyTorch's op names are origins even without an open scope."""
    return "/" in name or name.startswith(ATEN)


def _transpose(path: str) -> str:
    """Return the gradient's path: ``jit(f)/jvp(net)/conv/…`` → ``jit(f)/transpose(jvp(net))/conv/…``."""
    parts = path.split("/")
    return "/".join(f"transpose({part})" if part.startswith("jvp(") else part for part in parts)


def inside(module: Module, instruction: Instruction) -> Iterator[Instruction]:
    """Yield the instructions of a fused region, its root first; none for any other instruction."""
    if instruction.opcode != "fusion":
        return
    for computation in instruction.called:
        root = module.roots.get(computation)
        members = module.computations.get(computation, ())
        for member in sorted(members, key=lambda at: at != root):
            yield module.instructions[member]

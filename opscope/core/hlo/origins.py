"""Find where an HLO instruction comes from: its path in the framework, and the user's source lines.

XLA's rewrites make instructions without either: a gradient's convolution in another layout, the copies
around it. Their origin is found through the instructions that they read and those that read them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from opscope.core.schema import Frame

from .module import Instruction, Module
from .wire import number

#: (path, frames, name of the instruction that has them); the path is "" if unknown.
Origin: TypeAlias = "tuple[str, tuple[Frame, ...], str]"

#: Opcodes that run nothing themselves: no event names them.
NOT_RUN: Final = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast"})
#: Opcodes that only move data: an instruction of these alone belongs to the instruction that reads it.
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
            place
            for one in module.instructions.values()
            if one.opcode == "fusion"
            for computation in one.called
            for place in module.computations.get(computation, ())
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

    def of(self, place: int) -> Origin:
        """Return the instruction's own origin, else that of what was fused in it, else its neighbours'.

        A copy has its reader's origin, anything else that of its operands. A backward neighbour comes first,
        because what a rewrite makes from forward values for a gradient is part of the gradient.
        """
        if place in self._known:
            return self._known[place]
        one = self._module.instructions[place]
        named = next(filter(_has_origin, (one, *inside(self._module, one))), None)
        if named is not None:  # a contraction that has lost its own path
            return (named.op_name, named.frames, named.name)
        parts = [*inside(self._module, one)] or [one]
        ways = [self._operands, self._readers]
        if all(part.opcode in _MOVES for part in parts):
            ways.reverse()
        for follow in ways:
            found = self._nearest(place, follow)
            if found is not None:
                return found
        return ("", (), one.name)

    def _operands(self, place: int) -> Sequence[int]:
        return self._module.instructions[place].operands

    def _readers(self, place: int) -> Sequence[int]:
        return self._users.get(place, ())

    def _nearest(self, place: int, follow: Callable[[int], Sequence[int]]) -> Origin | None:
        level, seen = [place], {place}
        for _ in range(REACH):
            reached = [at for origin in level for at in follow(origin)]
            level = []
            for at in reached:
                if at not in seen and at in self._module.instructions and len(seen) < MAX_SEEN:
                    seen.add(at)
                    level.append(at)
            known = [self._known[at] for at in level if at in self._known]
            if known:
                backward = [origin for origin in known if "transpose(" in origin[0]]
                return (backward or known)[0]
        return None

    def _on_result(self, place: int) -> Origin | None:
        """Return the origin that a rewrite moved from a contraction to what reshapes its result.

        That instruction reads the contraction, or a fused region's parameter which is the contraction.
        """
        read = [place]
        instructions = self._module.instructions
        for user in self._users.get(place, ()):
            one = instructions[user]
            if one.opcode != "fusion":
                continue
            which = {at for at, operand in enumerate(one.operands) if operand == place}
            for computation in one.called:
                for at in self._module.computations.get(computation, ()):
                    inner = instructions[at]
                    if inner.opcode == "parameter" and number(inner.message, 9) in which:
                        read.append(at)
        for at in read:
            for user in self._users.get(at, ()):
                one = instructions[user]
                path = one.op_name
                if one.opcode in _MOVES and _is_path(path) and _CALLED.search(path):
                    return (one.op_name, one.frames, one.name)
        return None

    def _gradients(self) -> None:
        """Give contractions without a path the origin of a gradient, if a forward one reads the same."""
        kinds = {
            at: work.opcode
            for at, one in self._module.instructions.items()
            if at not in self._fused and (work := self._contraction(one)) is not None
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
                self._known[at] = (_transposed(path), frames, name)

    def _contraction(self, one: Instruction) -> Instruction | None:
        """Return the product or convolution that the instruction is or has fused in it; else None."""
        if one.opcode in _CONTRACTIONS:
            return one
        return next((i for i in inside(self._module, one) if i.opcode in _CONTRACTIONS), None)

    def _sources(self, place: int) -> list[int]:
        """Return the instructions that are read, looking through copies and changes of layout."""
        found = []
        for operand in self._module.instructions[place].operands:
            at = operand
            for _ in range(REACH):
                one = self._module.instructions.get(at)
                if one is None or len(one.operands) != 1:
                    break
                parts = [*inside(self._module, one)] or [one]
                if not all(part.opcode in _MOVES for part in parts):
                    break
                at = one.operands[0]
            found.append(at)
        return found


def _has_origin(one: Instruction) -> bool:
    return _is_path(one.op_name) and one.opcode not in NOT_RUN


def _is_path(name: str) -> bool:
    """Return whether the name is an origin; PyTorch's op names are so even without an open scope."""
    return "/" in name or name.startswith(ATEN)


def _transposed(path: str) -> str:
    """Return the gradient's path: ``jit(f)/jvp(net)/conv/…`` → ``jit(f)/transpose(jvp(net))/conv/…``."""
    parts = path.split("/")
    return "/".join(f"transpose({part})" if part.startswith("jvp(") else part for part in parts)


def inside(module: Module, one: Instruction) -> Iterator[Instruction]:
    """Yield the instructions of a fused region, its root first; none for any other instruction."""
    if one.opcode != "fusion":
        return
    for computation in one.called:
        root = module.roots.get(computation)
        members = module.computations.get(computation, ())
        for place in sorted(members, key=lambda at: at != root):
            yield module.instructions[place]

"""What a call does that XLA's CPU backend compiled as one function, as it does a small loop.

Nothing in it runs by itself, so its FLOPs are summed here: a loop's by the turns that XLA knows of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from .module import Instruction, Module
from .origins import NOT_RUN
from .wire import fields, spans, text

_SMALL: Final = "xla_cpu_small_call"
#: Loops within loops that are followed.
_NESTED: Final = 32
_LARGEST: Final = 1 << 62

Work = tuple[int, int]


def is_compiled_whole(module: Module, one: Instruction) -> bool:
    """Whether nothing that this instruction calls runs by itself."""
    data = module.data
    return one.opcode == "call" and any(
        text(data, fields(data, *entry), 1) == _SMALL
        for attributes in spans(one.message, 68)
        for entry in spans(fields(data, *attributes), 1)
    )


def work(module: Module, one: Instruction, of: Callable[[Instruction], Work | str]) -> Work | str:
    """Matrix and vector FLOPs of all that ``one`` calls, or why they are not known.

    ``of`` tells them of a single instruction.
    """
    return _called(module, one, of, {}, 0)


def _called(
    module: Module,
    one: Instruction,
    of: Callable[[Instruction], Work | str],
    known: dict[int, Work | str],
    depth: int,
) -> Work | str:
    turns = _turns(module, one) if one.opcode == "while" else 1
    if turns is None:
        return "a loop whose number of turns is not known"
    matrix = vector = 0
    for computation in one.called:
        # each once: a file that lies takes no longer for it, and one within itself has no end
        if computation not in known:
            known[computation] = "a computation within itself"
            known[computation] = _sum(module, computation, of, known, depth)
        found = known[computation]
        if isinstance(found, str):
            return found
        matrix, vector = matrix + turns * found[0], vector + turns * found[1]
    return (matrix, vector) if max(matrix, vector) < _LARGEST else "too many turns to be true"


def _sum(
    module: Module,
    computation: int,
    of: Callable[[Instruction], Work | str],
    known: dict[int, Work | str],
    depth: int,
) -> Work | str:
    matrix = vector = 0
    for place in module.computations.get(computation, ()):
        part = module.instructions[place]
        if part.opcode in NOT_RUN:
            continue
        if part.opcode == "conditional":
            return "which branch is taken is not known"
        if part.opcode not in ("while", "call"):
            found = of(part)
        elif depth < _NESTED:
            found = _called(module, part, of, known, depth + 1)
        else:
            found = "loops too deep inside one another"
        if isinstance(found, str):
            return found
        matrix, vector = matrix + found[0], vector + found[1]
    return matrix, vector


def _turns(module: Module, one: Instruction) -> int | None:
    """How often a loop's body runs, from its backend_config (JSON); None where XLA does not know."""
    try:
        config: Any = json.loads(text(module.data, one.message, 43) or "{}")
        turns = int(config["known_trip_count"]["n"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return turns if 0 <= turns < _LARGEST else None

"""Sum the FLOPs of a call that XLA's CPU backend compiles as one function, such as a small loop.

No instruction in such a call runs by itself. The FLOPs of a loop's body count once per iteration, if XLA
knows the number of iterations.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from .module import Instruction, Module
from .origins import NOT_RUN
from .wire import fields, spans, text

_SMALL: Final = "xla_cpu_small_call"
#: How deep nested loops are followed.
_NESTED: Final = 32
_LARGEST: Final = 1 << 62

Work = tuple[int, int]


def is_compiled_whole(module: Module, instruction: Instruction) -> bool:
    """Return whether the instruction is a call compiled as one function: nothing in it runs by itself."""
    data = module.data
    return instruction.opcode == "call" and any(
        text(data, fields(data, *entry), 1) == _SMALL
        for attributes in spans(instruction.message, 68)
        for entry in spans(fields(data, *attributes), 1)
    )


def work(
    module: Module, instruction: Instruction, of: Callable[[Instruction], Work | str]
) -> Work | str:
    """Return matrix and vector FLOPs of all that ``instruction`` calls, or why they are unknown.

    ``of`` returns the FLOPs of a single instruction.
    """
    return _call(module, instruction, of, {}, 0)


def _call(
    module: Module,
    work_of_part: Instruction,
    of: Callable[[Instruction], Work | str],
    totals: dict[int, Work | str],
    depth: int,
) -> Work | str:
    turns = _turns(module, work_of_part) if work_of_part.opcode == "while" else 1
    if turns is None:
        return "a loop with an unknown number of iterations"
    matrix = vector = 0
    for computation in work_of_part.called:
        # each once: a malicious file must not take longer, and a computation that contains itself has no end
        if computation not in totals:
            totals[computation] = "a computation that calls itself"
            totals[computation] = _sum(module, computation, of, totals, depth)
        total = totals[computation]
        if isinstance(total, str):
            return total
        matrix, vector = matrix + turns * total[0], vector + turns * total[1]
    return (matrix, vector) if max(matrix, vector) < _LARGEST else "implausibly many iterations"


def _sum(
    module: Module,
    computation: int,
    of: Callable[[Instruction], Work | str],
    totals: dict[int, Work | str],
    depth: int,
) -> Work | str:
    matrix = vector = 0
    for identifier in module.computations.get(computation, ()):
        part = module.instructions[identifier]
        if part.opcode in NOT_RUN:
            continue
        if part.opcode == "conditional":
            return "a conditional: the branch that it takes is not known"
        if part.opcode not in ("while", "call"):
            found = of(part)
        elif depth < _NESTED:
            found = _call(module, part, of, totals, depth + 1)
        else:
            found = "loops nested too deep"
        if isinstance(found, str):
            return found
        matrix, vector = matrix + found[0], vector + found[1]
    return matrix, vector


def _turns(module: Module, instruction: Instruction) -> int | None:
    """Return how often a loop's body runs, from its backend_config (JSON); None if XLA does not know."""
    try:
        config: Any = json.loads(text(module.data, instruction.message, 43) or "{}")
        turns = int(config["known_trip_count"]["n"])
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return turns if 0 <= turns < _LARGEST else None

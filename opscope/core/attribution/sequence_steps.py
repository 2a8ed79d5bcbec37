"""Read a process's sequence of outermost ops and layers, and look for iterations in it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.op_periods import ALIKE, Period, period
from opscope.core.dialects import Reading
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE, Ints, nest
from opscope.core.tables.lanes import lanes_of

#: Parameters that name the place of a call: its node in a graph, its layer, DLProf's id.
_PLACES: Final = ("node", "op_name", "layer", "op_id")
#: Most ops of a process that are examined. 1 M ops take 0.5 s.
MAX_OPS: Final = 4_000_000
TOO_MANY: Final = f"more than {MAX_OPS:,} ops: the sequence was not looked at"
#: Factor of the confidence if other threads do not take part in the iterations.
UNEVEN: Final = 0.5
OTHERS: Final = "other threads do not do the same in each"
NO_OPS: Final = "no ops in this process"


#: The compiled function at the beginning of XLA's path of an operation.
_FUNCTION: Final = re.compile(r"(?:p?jit|pmap)\((.+?)\)/")
#: Parts of a path in a graph that run more than once per run of the graph.
_LOOP: Final = re.compile(r"(?:^|[/ ])(?:while|scan|map_fn|body)(?:_\d+)?(?:/|$| )")


def function_of(reading: Reading) -> str | None:
    """Return the function that XLA compiled an operation in; None for other readings."""
    if reading.role != "op" or reading.call is None:
        return None
    path = reading.call.param("op_name") or reading.call.param("node") or ""
    match = _FUNCTION.match(path) if isinstance(path, str) else None
    if match:
        return match.group(1)
    name = reading.graph or reading.call.param("function")
    return name if isinstance(name, str) and reading.call.name.startswith("hlo::") else None


@dataclass(frozen=True, slots=True)
class Symbols:
    """Numbers for the texts of ops and layers, by the place that they name.

    ``number``: per reading a number shared by calls of one op at one place, whatever their shapes (those of a
    decoder's cache grow); -1 for a range that is neither op nor layer. Per number, ``named``: whether the
    text names the place; ``graph``: a number for the graph or compiled function around it (-1: none).
    """

    number: Ints
    named: NDArray[np.bool_]
    graph: Ints

    @classmethod
    def of(cls, meaning: Meaning) -> Symbols:
        """Read each distinct text once."""
        numbers_by_name: dict[tuple[str, ...], int] = {}
        graphs: dict[str, int] = {}
        named: list[bool] = []
        graph: list[int] = []

        def number(reading: Reading) -> int:
            name, location = _name(reading)
            if not name:
                return NONE
            own = numbers_by_name.setdefault((name, *location), len(named))
            if len(numbers_by_name) > len(named):
                named.append(bool(location) and not _LOOP.search(" ".join(location)))
                around = function_of(reading) or reading.graph
                graph.append(NONE if around is None else graphs.setdefault(around, len(graphs)))
            return own

        numbers = meaning.each(number, np.int64)
        return cls(numbers, np.array(named, bool), np.array(graph, np.int64))


def _name(reading: Reading) -> tuple[str, tuple[str, ...]]:
    """Return the name of an op or layer ("" for other ranges) and the texts that show its place."""
    if reading.role == "layer" and reading.layer:
        return "layer", (reading.layer,)
    if reading.role != "op" or reading.call is None:
        return "", ()
    params = (reading.call.param(name) for name in _PLACES)
    parts = (reading.key, reading.graph, reading.layer, *params)
    return reading.call.name, tuple(part for part in parts if isinstance(part, str) and part)


def sequence_steps(
    ranges: pl.DataFrame,
    meaning: Meaning,
    is_op: NDArray[np.bool_],
    symbols: Symbols,
    mine: NDArray[np.bool_],
) -> tuple[Period, int] | str:
    """Return the iterations of the process's ranges ``mine``, and their thread; or why there are none."""
    layer = meaning.role == ROLE["layer"]
    rows = np.flatnonzero(mine & (is_op | layer) & (symbols.number[meaning.reading] >= 0))
    if not np.any(is_op[rows]):
        return NO_OPS
    if len(rows) > MAX_OPS:
        return TOO_MANY
    start = ranges["start"].gather(rows).to_numpy()
    end = ranges["end"].gather(rows).fill_null(0).to_numpy()
    thread = ranges["thread"].gather(rows).fill_null(NONE).to_numpy()
    lanes = lanes_of(np.zeros_like(thread), thread)
    outer = np.zeros(len(rows), bool)
    most: tuple[int, int, Ints] | None = None
    for (_, number), here in lanes.rows(np.ones(len(rows), bool)):
        tree = nest(start[here], end[here])
        top = here[tree.order[tree.parent < 0]]
        outer[top] = True
        if most is None or len(top) > most[0]:
            most = len(top), number, top
    assert most is not None
    reading = symbols.number[meaning.reading[rows]]
    flags = symbols.named, symbols.graph
    steps: Period | str = period(reading[most[2]], start[most[2]], end[most[2]], *flags)
    if isinstance(steps, str) and len(lanes.keys) > 1:
        # the nodes of a graph run on any free thread of a pool
        top = np.flatnonzero(outer)
        top = top[np.argsort(start[top], kind="stable")]
        again = period(reading[top], start[top], end[top], *flags)
        steps = steps if isinstance(again, str) else again
    if isinstance(steps, str):
        return steps
    if len(lanes.keys) > 1 and not _whole(steps, start[outer]):
        doubt = "; ".join(filter(None, (steps.doubt, OTHERS)))
        steps = replace(steps, confidence=steps.confidence * UNEVEN, doubt=doubt)
    return steps, most[1]


def _whole(period: Period, start: Ints) -> bool:
    """Return whether nearly all iterations have about as many ops, on all threads together, as the usual
    one."""
    counts = np.diff(np.searchsorted(np.sort(start), period.bounds))
    usual = float(np.median(counts))
    near = np.abs(counts - usual) <= max(0.1 * usual, 1)
    return bool(near.mean() >= ALIKE)

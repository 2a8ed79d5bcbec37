"""The phases of each step: input, forward, backward, optimizer, and the time outside them.

A process's time is cut into disjoint stretches. Ranges that mark phases come first; where none is open the
direction of the outermost ops shows the phase, and a gap between two stretches of one phase belongs to that
phase (unless ranges mark this phase, a step begins or ends in the gap, or there are no steps). Where threads
work in several phases at once, the first of ``PHASES`` gets the time: a loader that works ahead hides behind
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.steps.step_times import (
    Spans,
    covered,
    processes_of,
    step_at,
    step_bounds,
)
from opscope.core.dialects import Reading
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints, merge, nest, subtract
from opscope.core.tables.lanes import lanes_of

#: The phases, by precedence.
PHASES: Final = ("optimizer", "backward", "forward", "input")
OUTSIDE: Final = "outside"
#: In which order tables show them.
SHOWN: Final = ("input", "forward", "backward", "optimizer", OUTSIDE)
HOST: Final = "host"
_TABLES: Final = ("kernels", "memops")
DEVICE: Final = "device"
_CODE: Final = np.array(
    [PHASES.index(name) if name in PHASES else NONE for name in DIRECTIONS] + [NONE], np.int64
)


class Phases:
    """The stretches of each process in each phase, for the steps ``found`` (``step_times.steps_of``)."""

    def __init__(self, ops: Ops, table: pl.DataFrame) -> None:
        self._ops = ops
        self.steps = table
        self._launched = _launched(ops)
        self.stretches: dict[int, tuple[Ints, Ints, Ints]] = {}
        #: Where the phases of each process were seen: on the host, or by the kernels on the device.
        self.seen_on: dict[int, str] = {}
        marked, by_ops = self._mark(), self._by_ops()
        by_kernels: dict[int, dict[int, Spans]] | None = None
        wanted = table["process"].drop_nulls().unique().sort().to_list()
        for process in wanted:
            where = HOST
            ranges, of_ops = marked.get(process, {}), by_ops.get(process, {})
            if not ranges and not of_ops:
                by_kernels = self._by_kernels() if by_kernels is None else by_kernels
                where, of_ops = DEVICE, by_kernels.get(process, {})
            if ranges or of_ops:
                mine = table.filter(pl.col("process") == process)
                edges = np.sort(np.concatenate([mine[n].to_numpy() for n in ("start", "end")]))
                # without steps, a gap may be anything
                stepping = bool(mine["step"].is_not_null().any())
                self.stretches[process] = _disjoint(ranges, of_ops, edges, stepping)
                self.seen_on[process] = where

    def _mark(self) -> dict[int, dict[int, Spans]]:
        """Return per process and phase the time in which the innermost phase of a thread is that one."""
        attribution = self._ops.attribution
        ranges, meaning = attribution.trace["ranges"], attribution.meaning
        codes = np.array(
            [
                _marks(reading, text)
                for reading, text in zip(meaning.readings, meaning.texts, strict=True)
            ],
            np.int64,
        )
        if not (codes >= 0).any():
            return {}
        each = codes[meaning.reading]
        rows = np.flatnonzero(each != NONE - 1)
        process = processes_of(ranges["process"].gather(rows))
        thread = ranges["thread"].gather(rows).fill_null(NONE).to_numpy()
        start, end = (ranges[name].gather(rows).to_numpy() for name in ("start", "end"))
        parts: dict[int, dict[int, list[Spans]]] = {}
        for key, here in lanes_of(process, thread).rows(np.ones(len(rows), bool)):
            tree = nest(start[here], end[here])
            times = np.unique(np.concatenate((tree.start, tree.end)))
            row = tree.innermost(times[:-1])
            code = at(each[rows[here]], row, NONE)
            for phase in np.unique(code[code >= 0]).tolist():
                mine = np.flatnonzero(code == phase)
                spans = merge(times[mine], times[mine + 1])
                parts.setdefault(key[0], {}).setdefault(phase, []).append(spans)
        return _join(parts)

    def _by_ops(self) -> dict[int, dict[int, Spans]]:
        """Return the same of the outermost ops that begin in no phase of their thread."""
        ops = self._ops
        ranges = ops.attribution.trace["ranges"]
        rows = ops.rows[ops.times.parent < 0]
        rows = rows[
            ranges["thread"].gather(rows).is_not_null().to_numpy()
        ]  # others stand for kernels
        process = processes_of(ranges["process"].gather(rows))
        thread = ranges["thread"].gather(rows).fill_null(NONE).to_numpy()
        start, end = (ranges[name].gather(rows).to_numpy() for name in ("start", "end"))
        code = _CODE[ops.direction(rows)]
        code = np.where(ops.context.numbers("phase", process, thread, start) >= 0, NONE, code)
        return _by_code(process, code, start, end)

    def _by_kernels(self) -> dict[int, dict[int, Spans]]:
        launched, trace = self._launched, self._ops.attribution.trace
        start, end = (
            np.concatenate([trace[name][edge].fill_null(0).to_numpy() for name in _TABLES])
            for edge in ("start", "end")
        )
        return _by_code(launched.process, launched.code, start, end)

    def host(self) -> dict[str, pl.Series]:
        """Return per phase and outside the time (ns) of each step.

        A phase that its process was never seen in is null, not 0: nothing shows that the source marks it.
        """
        count = len(self.steps)
        values = {name: np.zeros(count, np.int64) for name in (*PHASES, OUTSIDE)}
        is_stated = {name: np.zeros(count, bool) for name in values}
        process = processes_of(self.steps["process"])
        for number, (first, last, code) in self.stretches.items():
            rows = np.flatnonzero(process == number)
            start, end = (self.steps[n].gather(rows).to_numpy() for n in ("start", "end"))
            rest = end - start
            for index, name in enumerate(PHASES):
                mine = code == index
                values[name][rows] = covered((first[mine], last[mine]), start, end)
                is_stated[name][rows] = mine.any()
                rest = rest - values[name][rows]
            values[OUTSIDE][rows], is_stated[OUTSIDE][rows] = rest, True
        return {
            name: pl.Series(name, values[name]).set(pl.Series(~is_stated[name]), None)
            for name in SHOWN
        }

    def on_device(self) -> pl.DataFrame:
        """Return per step (``row``) and ``phase`` the summed duration (ns) of what was launched in it:
        ``device_time``, and ``kernels``, how many kernels.

        The op's direction decides; without one (collectives) the phase that was open on the host at the
        launch; else it is outside. If the source records no launches, the step is the one in which it ran.
        """
        launched = self._launched
        code = launched.code.copy()
        for number, (first, last, phase) in self.stretches.items():
            here = np.flatnonzero((launched.process == number) & (code < 0) & (launched.time >= 0))
            index = np.searchsorted(first, launched.time[here], side="right") - 1
            inside = (index >= 0) & (launched.time[here] < at(last, index, -1))
            code[here[inside]] = phase[index[inside]]
        row = step_at(self.steps, launched.process, launched.time)
        names = [*PHASES, OUTSIDE]
        frame = pl.DataFrame(
            {"row": row, "code": code, "time": launched.lasted, "kernel": launched.is_kernel}
        ).filter(pl.col("row") >= 0)
        return frame.group_by("row", "code").agg(
            pl.col("time").sum().alias("device_time"),
            pl.col("kernel").sum().cast(pl.Int64).alias("kernels"),
        ).select(
            "row",
            pl.col("code").replace_strict(
                {**dict(enumerate(PHASES)), NONE: OUTSIDE}, return_dtype=pl.Enum(names)
            ).cast(pl.String).alias("phase"),
            "device_time",
            "kernels",
        )  # fmt: skip


class _Launched:
    """The kernels and copies of a trace. ``lasted``: their durations; ``time``: of the launch, -1 if unknown
    (both in ns); ``code``: the phase."""

    __slots__ = ("code", "is_kernel", "lasted", "process", "time")

    def __init__(
        self, columns: Sequence[Sequence[NDArray[Any]]], is_kernel: NDArray[np.bool_]
    ) -> None:
        joined = [np.concatenate(parts) for parts in zip(*columns, strict=True)]
        self.process, self.lasted, self.time, self.code = joined
        self.is_kernel = is_kernel


def _launched(ops: Ops) -> _Launched:
    attribution = ops.attribution
    trace = attribution.trace
    calls = trace["calls"]["start"].fill_null(NONE).to_numpy()
    columns = []
    for name, launched in zip(_TABLES, (attribution.kernels, attribution.memops), strict=True):
        table = trace[name]
        process = processes_of(table["process"])
        start, end = (table[column].fill_null(0).to_numpy() for column in ("start", "end"))
        if trace.has("calls"):
            call = np.where(launched.replay >= 0, launched.replay, launched.call).astype(np.int64)
            time = at(calls, call)
        else:
            time = start
        op = launched.op.astype(np.int64)
        code = np.full(len(op), NONE, np.int64)
        has = op >= 0
        code[has] = _CODE[ops.direction(op[has])]
        columns.append((process, end - start, time, code))
    counts = [len(trace[name]) for name in _TABLES]
    return _Launched(columns, np.repeat([True, False], counts))


def _marks(reading: Reading, text: str) -> int:
    """Return the phase that a range marks; -1 if it is another one, -2 if the range is no phase."""
    if reading.role not in ("phase", "user"):
        return NONE - 1
    name = reading.direction or (text if reading.role == "phase" else None)
    if name is None or name == "communication":  # which is part of the phase around it
        return NONE - 1
    return PHASES.index(name) if name in PHASES else NONE


def _by_code(process: Ints, code: Ints, start: Ints, end: Ints) -> dict[int, dict[int, Spans]]:
    spans_by_code: dict[int, dict[int, Spans]] = {}
    for number in np.unique(process[code >= 0]).tolist():
        here = process == number
        for phase in range(len(PHASES)):
            rows = np.flatnonzero(here & (code == phase))
            if len(rows):
                spans_by_code.setdefault(int(number), {})[phase] = merge(start[rows], end[rows])
    return spans_by_code


def _join(parts: dict[int, dict[int, list[Spans]]]) -> dict[int, dict[int, Spans]]:
    return {
        process: {
            phase: merge(*(np.concatenate(both) for both in zip(*spans, strict=True)))
            for phase, spans in phases.items()
        }
        for process, phases in parts.items()
    }


def _disjoint(
    ranges: dict[int, Spans], of_ops: dict[int, Spans], edges: Ints, fill: bool
) -> tuple[Ints, Ints, Ints]:
    """Return start, end and phase of disjoint stretches in order; ``fill``: gaps that no edge is in."""
    firsts, lasts, codes = [], [], []
    taken: Spans = (np.empty(0, np.int64), np.empty(0, np.int64))
    for source in (ranges, of_ops):
        for phase in range(len(PHASES)):
            if phase not in source:
                continue
            left = subtract(source[phase], taken)
            firsts.append(left[0])
            lasts.append(left[1])
            codes.append(np.full(len(left[0]), phase, np.int64))
            taken = merge(np.concatenate((taken[0], left[0])), np.concatenate((taken[1], left[1])))
    first, last, code = (np.concatenate(columns) for columns in (firsts, lasts, codes))
    order = np.argsort(first, kind="stable")
    first, last, code = first[order], last[order], code[order]
    if not fill:
        return first, last, code
    same = code[1:] == code[:-1]
    same &= ~np.isin(code[1:], list(ranges))
    touches = np.searchsorted(edges, last[:-1], "left") == np.searchsorted(
        edges, first[1:], "right"
    )
    last[:-1] = np.where(same & touches, first[1:], last[:-1])
    return first, last, code


def phases_of_steps(profile: Answers) -> Phases:
    """The phases of each step."""
    return Phases(profile.of(op_index), profile.of(step_bounds))

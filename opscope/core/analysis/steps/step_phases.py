"""The phases of each step: input, forward, backward, optimizer, and the time outside them.

A process's time is cut into disjoint stretches, by the ranges and ops that run. On a thread the innermost
range that marks a phase counts, and inside it an op of another direction: a closure's forward pass in an
optimizer's step, the setting of gradients to zero between forward and backward. (A forward op in the backward
pass recomputes, and belongs to the backward pass.) Where no range marks a phase, the direction of the ops
shows it, and a gap between two stretches of one phase belongs to that phase, unless ranges mark this phase,
an op of no direction runs or a step begins or ends in the gap, or there are no steps. Where threads work in
several phases at once, the first of ``PHASES`` gets the time: a loader that works ahead hides behind the
rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.directions import MINDSPORE_LOADER, holders
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.steps.step_times import (
    Spans,
    covered,
    processes_of,
    step_at,
    step_bounds,
)
from opscope.core.dialects import Reading
from opscope.core.once import once
from opscope.core.schema import DIRECTIONS
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints, merge, nest, subtract
from opscope.core.tables.lanes import lanes_of

#: The phases, by precedence.
PHASES: Final = ("optimizer", "backward", "forward", "input")
OUTSIDE: Final = "outside"
#: The order of phases in tables.
SHOWN: Final = ("input", "forward", "backward", "optimizer", OUTSIDE)
HOST: Final = "host"
_TABLES: Final = ("kernels", "memops")
DEVICE: Final = "device"
_OPTIMIZER, _BACKWARD, _FORWARD = range(3)
#: Represents the time of ops that have no direction.
_NO_PHASE: Final = len(PHASES)
#: Per process and thread: starts, ends and phases of ranges. Per process and phase: disjoint spans.
ByLane: TypeAlias = dict[tuple[int, int], tuple[Ints, Ints, Ints]]
ByProcess: TypeAlias = dict[int, dict[int, Spans]]
Parts: TypeAlias = dict[int, dict[int, list[Spans]]]
_NO_ITEMS: Final = (np.empty(0, np.int64),) * 3
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
        #: Where the phases of each process were recorded: on the host, or by the kernels on the device.
        self.seen_on: dict[int, str] = {}
        self._code = _CODE[ops.direction(ops.rows)]
        marked, by_ops, closing = self._by_what_runs()
        by_kernels: dict[int, dict[int, Spans]] | None = None
        # processes without steps are included, so that their phases are the same with and without other
        # processes beside them
        processes = pl.concat([table["process"], ops.attribution.trace["ranges"]["process"]])
        wanted = processes.drop_nulls().unique().sort().to_list()
        for process in wanted:
            where = HOST
            sources = [part.get(process, {}) for part in (marked, by_ops, closing)]
            if not any(set(source) - {_NO_PHASE} for source in sources):
                by_kernels = self._by_kernels() if by_kernels is None else by_kernels
                where, sources = DEVICE, [by_kernels.get(process, {})]
            if any(set(source) - {_NO_PHASE} for source in sources):
                mine = table.filter(pl.col("process") == process)
                edges = np.sort(np.concatenate([mine[n].to_numpy() for n in ("start", "end")]))
                # without steps, a gap may be anything
                stepping = bool(mine["step"].is_not_null().any())
                ranged = set() if where == DEVICE else self._ranged.get(process, set())
                self.stretches[process] = _disjoint(sources, ranged, edges, stepping)
                self.seen_on[process] = where

    def _by_what_runs(self) -> tuple[ByProcess, ByProcess, ByProcess]:
        """Return per process and phase the time shown by ranges, the time shown by ops outside them, and
        the time shown only by an optimizer's range around a closure."""
        marks, lane_tops, others = self._marks(), *self._tops()
        self._ranged: dict[int, set[int]] = {}
        inside: Parts = {}
        closing: Parts = {}
        for key in sorted(set(marks) | set(lane_tops)):
            items = [
                part.get(key, _NO_ITEMS)
                for part in (marks, self._closures, self._cuts(), lane_tops)
            ]
            kind = np.repeat(np.arange(len(items)), [len(item[0]) for item in items])
            start, end, code = (np.concatenate(columns) for columns in zip(*items, strict=True))
            self._ranged.setdefault(key[0], set()).update(code[(kind == 0) & (code >= 0)].tolist())
            tree = nest(start, end)
            times = np.unique(np.concatenate((tree.start, tree.end)))
            row = tree.innermost(times[:-1])
            shown, of_op = at(code, row, NONE), at(kind, row, NONE) == len(items) - 1
            _follow(shown, of_op)
            rest = (at(kind, row, NONE) == 1) & (shown == _OPTIMIZER)
            for parts, chosen in ((inside, ~rest), (closing, rest)):
                for phase in np.unique(shown[chosen & (shown >= 0)]).tolist():
                    mine = np.flatnonzero(chosen & (shown == phase))
                    spans = merge(times[mine], times[mine + 1])
                    parts.setdefault(key[0], {}).setdefault(phase, []).append(spans)
        return _join(inside), others, _join(closing)

    def _marks(self) -> ByLane:
        """Return per process and thread the ranges that mark phases: start, end, phase (-1: another)."""
        attribution = self._ops.attribution
        meaning = attribution.meaning
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
        return self._lanes(rows, each[rows])

    def _lanes(self, rows: Ints, code: Ints) -> ByLane:
        ranges = self._ops.attribution.trace["ranges"]
        process = processes_of(ranges["process"].gather(rows))
        thread = ranges["thread"].gather(rows).fill_null(NONE).to_numpy()
        start, end = (ranges[name].gather(rows).to_numpy() for name in ("start", "end"))
        return {
            key: (start[here], end[here], code[here])
            for key, here in lanes_of(process, thread).rows(np.ones(len(rows), bool))
        }

    @once
    def _closures(self) -> ByLane:
        """The optimizer steps that ran a closure."""
        rows = self._ops.closures()
        return self._lanes(rows, np.full(len(rows), _OPTIMIZER, np.int64)) if len(rows) else {}

    def _cuts(self) -> ByLane:
        """The time in forward phases that does not belong to a forward pass."""
        return {
            key: (*spans, np.full(len(spans[0]), NONE, np.int64))
            for key, spans in self._ops.cuts().items()
        }

    def _tops(self) -> tuple[ByLane, ByProcess]:
        """Return the outermost ops of each direction: those in ranges that mark another phase or in closures,
        by process and thread; and the time of the other outermost ops, by process and phase."""
        ops = self._ops
        ranges, code = ops.attribution.trace["ranges"], self._code
        closures = ops.closures()
        is_closure = np.isin(ops.rows, closures)
        above = ops.times.parent.astype(np.int64)
        top = (above < 0) | (at(code, above) != code) | at(is_closure, above, False)
        top &= ~is_closure & ((code >= 0) | (ops.direction(ops.rows) == NONE))
        rows, code = ops.rows[top], code[top]
        # ranges without a thread stand for kernels
        is_known = ranges["thread"].gather(rows).is_not_null().to_numpy()
        rows, code = rows[is_known], code[is_known]
        process = processes_of(ranges["process"].gather(rows))
        thread = ranges["thread"].gather(rows).fill_null(NONE).to_numpy()
        start, end = (ranges[name].gather(rows).to_numpy() for name in ("start", "end"))
        phase = ops.context.numbers("phase", process, thread, start)
        names = ops.context.texts("phase")
        phases = np.array([PHASES.index(n) if n in PHASES else NONE for n in names], np.int64)
        marked = at(phases, phase)
        around = phase >= 0
        if len(closures):
            inside = holders(ops.attribution, closures, rows)
            marked[inside], around = NONE, around | inside
        # ops that a backward pass recomputes belong to it
        other = around & (code != marked) & (code >= 0)
        other &= (code != _FORWARD) | (marked != _BACKWARD)
        spans = _by_code(
            process, np.where(around, NONE, np.where(code < 0, _NO_PHASE, code)), start, end
        )
        return self._lanes(rows[other], code[other]), spans

    def _by_kernels(self) -> dict[int, dict[int, Spans]]:
        launched, trace = self._launched, self._ops.attribution.trace
        start, end = (
            np.concatenate([trace[name][edge].fill_null(0).to_numpy() for name in _TABLES])
            for edge in ("start", "end")
        )
        return _by_code(launched.process, launched.code, start, end)

    def host(self) -> dict[str, pl.Series]:
        """Return per phase, and outside all phases, the time (ns) of each step. A phase that never occurs in
        a process is null, not 0, because the source may not mark it."""
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
        """Return per step (``row``) and ``phase`` the total duration (ns) of the work launched in it
        (``device_time``), and the number of ``kernels``.

        The op's direction decides. For a forward op that the backward pass runs again, and without a
        direction (collectives), the phase open on the host at the launch decides; else the work is outside.
        If the source records no launches, the step is the one in which the work ran.
        """
        launched = self._launched
        code = self._placed(launched.process, launched.time, launched.code)
        row = step_at(self.steps, launched.process, launched.time)
        return _by_phase(
            row, code, device_time=launched.lasted, kernels=launched.is_kernel.astype(np.int64)
        )

    def of_ops(self) -> pl.DataFrame:
        """Return per step (``row``) and ``phase`` the time (ns) of its ops, each without those inside it. The
        op's direction decides which phase, as it does for work that the op launched."""
        ops = self._ops
        process, thread, start = ops.places(ops.rows)
        with_thread = np.flatnonzero(thread != NONE)  # ranges without a thread stand for kernels
        process, start = process[with_thread].astype(np.int64), start[with_thread]
        code = self._placed(process, start, self._code[with_thread])
        row = step_at(self.steps, process, start)
        return _by_phase(row, code, op_time=ops.times.self_time[with_thread])

    def _placed(self, process: Ints, time: Ints, code: Ints) -> Ints:
        """Return the phases of work with these directions (codes) that began on the host at these times."""
        placed: Ints = code.copy()
        for number, (first, last, phase) in self.stretches.items():
            undecided = (code < 0) | (code == _FORWARD)
            here = np.flatnonzero((process == number) & (time >= 0) & undecided)
            index = np.searchsorted(first, time[here], side="right") - 1
            inside = (index >= 0) & (time[here] < at(last, index, -1))
            around = np.where(inside, at(phase, index), NONE)
            # a backward pass recomputes forward ops
            takes = (code[here] < 0) | (around == _BACKWARD)
            placed[here[takes]] = around[takes]
        return placed


def _by_phase(row: Ints, code: Ints, **sums: Ints) -> pl.DataFrame:
    """Return the sums of columns by step (``row``) and ``phase``; work outside steps is left out."""
    frame = pl.DataFrame({"row": row, "code": code, **sums}).filter(pl.col("row") >= 0)
    names = {**dict(enumerate(PHASES)), NONE: OUTSIDE}
    phase = pl.col("code").replace_strict(names, return_dtype=pl.Enum([*PHASES, OUTSIDE]))
    return (
        frame.group_by("row", "code")
        .agg(pl.col(name).sum() for name in sums)
        .select("row", phase.cast(pl.String).alias("phase"), *sums)
    )


class _Launched:
    """The kernels and copies of a trace. ``lasted``: their durations; ``time``: when they were launched, -1
    if unknown (both in ns); ``code``: their phase."""

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
    """Return the phase that a range marks; -1 for an unknown phase, -2 if the range marks none."""
    if reading.role == "user" and text == MINDSPORE_LOADER:
        return PHASES.index("input")
    if reading.role not in ("phase", "user"):
        return NONE - 1
    name = reading.direction or (text if reading.role == "phase" else None)
    if name is None or name == "communication":  # the range belongs to the phase around it
        return NONE - 1
    return PHASES.index(name) if name in PHASES else NONE


def _follow(code: Ints, of_op: NDArray[np.bool_]) -> None:
    """Give the time between two ops of a closure to their phase: from a forward or backward op to the next op
    of its phase, or from forward to backward. ``code``: of consecutive stretches; changed in place."""
    rows = np.flatnonzero(of_op)
    if len(rows) < 2:
        return
    before, after = code[rows[:-1]], code[rows[1:]]
    joins = (before == after) | ((before == _FORWARD) & (after == _BACKWARD))
    joins &= (rows[1:] == rows[:-1] + 2) & np.isin(before, (_FORWARD, _BACKWARD))
    gap = rows[:-1][joins] + 1
    code[gap[code[gap] == _OPTIMIZER]] = code[gap[code[gap] == _OPTIMIZER] - 1]


def _by_code(process: Ints, code: Ints, start: Ints, end: Ints) -> ByProcess:
    spans_by_code: ByProcess = {}
    for number in np.unique(process[code >= 0]).tolist():
        here = process == number
        for phase in np.unique(code[here & (code >= 0)]).tolist():
            rows = np.flatnonzero(here & (code == phase))
            spans_by_code.setdefault(int(number), {})[phase] = merge(start[rows], end[rows])
    return spans_by_code


def _join(parts: Parts) -> ByProcess:
    return {
        process: {
            phase: merge(*(np.concatenate(both) for both in zip(*spans, strict=True)))
            for phase, spans in phases.items()
        }
        for process, phases in parts.items()
    }


def _disjoint(
    sources: Sequence[dict[int, Spans]], ranged: set[int], edges: Ints, fill: bool
) -> tuple[Ints, Ints, Ints]:
    """Return start, end and phase of disjoint stretches in order; of ``sources``, the first comes first.

    ``fill``: fill gaps that contain no edge, except in phases that are ``ranged``, before the last of three
    sources is applied.
    """
    first, last, code = (np.empty(0, np.int64) for _ in range(3))
    for number, source in enumerate(sources):
        for phase in sorted(source):
            left = subtract(source[phase], merge(first, last))
            first, last = np.append(first, left[0]), np.append(last, left[1])
            code = np.append(code, np.full(len(left[0]), phase, np.int64))
        order = np.argsort(first, kind="stable")
        first, last, code = first[order], last[order], code[order]
        if fill and number == min(1, len(sources) - 1):
            same = (code[1:] == code[:-1]) & ~np.isin(code[1:], [*ranged, _NO_PHASE])
            touches = np.searchsorted(edges, last[:-1], "left") == np.searchsorted(
                edges, first[1:], "right"
            )
            last[:-1] = np.where(same & touches, first[1:], last[:-1])
    shown = code != _NO_PHASE
    return first[shown], last[shown], code[shown]


def phases_of_steps(profile: Answers) -> Phases:
    """The phases of each step."""
    return Phases(profile.of(op_index), profile.of(step_bounds))

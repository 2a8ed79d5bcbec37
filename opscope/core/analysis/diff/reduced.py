"""What a difference needs from a profile: small tables with the time of each part and op per step.

A reduced profile no longer needs its trace, so two large profiles need not be in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.diff.about import about, dtypes
from opscope.core.analysis.diff.exclusive import Cut, Events, cut, labelled
from opscope.core.analysis.diff.keys import Keys, numbered
from opscope.core.analysis.diff.rankwise import RANKED
from opscope.core.analysis.diff.samples import sampled
from opscope.core.analysis.diff.whole_job import Totals
from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.ops.windows import bounds
from opscope.core.analysis.ranks.stragglers import waits_for
from opscope.core.analysis.steps.step_times import (
    NAMES,
    OTHER,
    PARTS,
    loads,
    made_up,
    processes_of,
    step_at,
    steps_at,
)
from opscope.core.analysis.steps.warm_up import warm_up
from opscope.core.attribution.attribute import Launched
from opscope.core.job.exchanges import communicating
from opscope.core.question.units import time as in_words
from opscope.core.tables.columns import at, compact, pairs, spread
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.narrow import Pieces, each
from opscope.core.tables.pool import Pool
from opscope.core.tables.trace import Trace

#: The compared units: steps that the program marks, iterations that repeat, or the whole run.
STEP, ITERATION, RUN = "step", "iteration", "run"
#: How a profile is reduced: by its steps with all their parts, by its steps with the parts common to all
#: profiles, or as a whole run.
STEPS, BY_PART, WHOLE = "steps", "by part", "whole"
#: Like STEPS, with the totals of the whole run's ops and kernels, because the other run is a merged job.
TOTALS: Final = "totals"
UNITS: Final = {"process": pl.Int32, "step": pl.Int64, "start": pl.Int64, "end": pl.Int64}
SPENT: Final = {"unit": pl.Int64, "part": pl.Int64, "key": pl.Int64, "time": pl.Int64}
WORK: Final = {"unit": pl.Int64, "key": pl.Int64, "time": pl.Int64, "calls": pl.Int64}
WAITING: Final = {"late": pl.Int32, "rank": pl.Int32, "waiting": pl.Int64}
#: ``copy``: the kind of a copy or set. ``unlaunched``: how many kernels have no launch record; ``early``: how
#: many of these ran before all work of their stream that has one, so they were launched before the window.
KERNELS: Final = {
    "key": pl.Int64,
    "name": pl.Categorical,
    "copy": pl.Boolean,
    **dict.fromkeys(("time", "calls", "unlaunched", "early"), pl.Int64),
}
_PIECES: Final = dict.fromkeys(("unit", "part", "label", "time"), pl.Int64)
#: The names of the parts by number; the last is the rest.
PART_NAMES: Final = tuple(NAMES[name] for name in (*PARTS, OTHER))
NO_TIMES: Final = "the source has totals and no times: how long a step took is not known"
NOTHING: Final = "nothing in this profile has times"


@dataclass(frozen=True, slots=True)
class Reduced:
    """A profile as small tables; times in ns.

    ``unit``: what is compared (STEP, ITERATION, RUN). ``units``: the counted ones (``UNITS`` and
    ``samples.SAMPLED``); ``left_out``: number of steps not counted: warm-up or not captured. ``reason``: why
    a unit's length is not known. ``keys``: the distinct ops (``keys.COLUMNS``). ``spent``: per unit, part and
    key its exclusive time, with key -1 for the rest; it adds up to the units. ``work``: per unit and key the
    time and number of its device work (without a GPU, of the op itself), no matter what else ran then.
    ``kernels``: per key and name of a kernel, or kind of a copy. ``known``: which parts are known. ``about``:
    the properties of the run, one per row.
    """

    unit: str
    units: pl.DataFrame
    left_out: int
    reason: str | None
    keys: pl.DataFrame
    spent: pl.DataFrame
    work: pl.DataFrame
    kernels: pl.DataFrame
    known: tuple[bool, ...]
    about: pl.DataFrame
    frameworks: tuple[str, ...]
    #: The names of the parts by number; the last is the rest.
    parts: tuple[str, ...] = PART_NAMES
    #: Whether the profile's ops are known at all.
    has_ops: bool = True
    #: Which rank others waited for in collectives inside the units: ``late``, its ``rank``, ``waiting`` (ns).
    waiting: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=WAITING))
    #: Process and rank, for processes whose rank is known.
    ranks: tuple[tuple[int, int], ...] = ()
    #: The steps of each rank, for a run with several ranks (``rankwise.ranked``).
    ranked: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=RANKED))
    #: The totals of ops and kernels in the whole run; None if not requested.
    totals: Totals | None = None
    #: Whether it is a job that was merged from partials.
    merged: bool = False
    #: Missing data, if there is so much that less device time proves nothing.
    lacks: str | None = None
    #: Whether kernels, launches or ops are missing, so that one may have run without a record.
    lost: bool = False
    #: Which part of the recording the counted steps are, in words; None for whole runs.
    window: str | None = None
    #: Number of runs of one program in it.
    runs: int = 1

    @property
    def many(self) -> int:
        """The number of steps of all processes."""
        return max(int(self.units["steps"].sum()), 1)

    @property
    def mean(self) -> float:
        """The mean step (ns) of all processes, not rounded."""
        return float((self.units["end"] - self.units["start"]).sum()) / self.many


#: Function that finishes reducing a profile, which is not needed afterwards.
Ending = Callable[[], Reduced]


def begin(
    ops: Ops,
    table: pl.DataFrame,
    exchanged: Callable[[], pl.DataFrame],
    waits: tuple[pl.DataFrame, pl.DataFrame],
    *,
    inferred: bool = False,
    whole: bool = False,
) -> tuple[str, Ending]:
    """Return the unit, and a function that finishes reducing the profile. This first half takes a third of
    the time, on one thread.

    ``table`` is ``step_times.steps_of``; ``inferred``: whether its steps were inferred from repetition; with
    ``whole`` the steps are ignored. ``exchanged`` returns ``timed.exchanged``. ``waits``: the waits for data
    loaders, and ``input_waits.input_waits``: a step begins with the fetching of its input.
    """
    trace = ops.attribution.trace
    whole = whole or not table["step"].is_not_null().any()
    unit = RUN if whole else ITERATION if inferred else STEP
    if whole:
        units, left_out = _runs(ops, table.filter(pl.col("step").is_null())), 0
    else:
        units, left_out = _count(table, waits[1])
    reason = None
    if units.is_empty():
        parts = trace.origin.get("parts") or [trace.origin]
        reason = NO_TIMES if any(part.get("times") for part in parts) else NOTHING
    keys = Keys(ops)
    with Pool(1) as pool:  # NumPy and Polars release the GIL; only this thread gives labels
        cutting = pool.submit(_cut, ops, units, keys, exchanged)
        work, kernels = _work(ops, units, keys)
        spent, known_parts = _spend(*cutting.result())
    units, spent, work, known_parts, bare = _record(units, spent, work, known_parts)
    units = sampled(units)
    left_out += bare
    begun = Reduced(
        unit,
        units,
        left_out,
        reason,
        pl.DataFrame(),
        spent,
        work,
        kernels,
        known_parts,
        about(trace, unit, units, left_out, waits[0]),
        tuple(trace["processes"]["framework"].drop_nulls().unique().sort().to_list()),
        window=None if whole else _window(trace, table, units, unit),
        waiting=waiting_in(trace, units, lambda: iter((exchanged(),))),
        ranks=tuple(trace["processes"].select("process", "rank").drop_nulls().unique().rows()),
    )
    return unit, partial(_end, begun, keys.labels())


def _end(begun: Reduced, labels: pl.DataFrame) -> Reduced:
    """Return the reduced profile of one whose tables still have a ``label`` in place of a key."""
    distinct, number = numbered(labels)
    spent = _by_key(begun.spent, number, "unit", "part")
    work = _by_key(begun.work, number, "unit")
    kernels = _by_key(begun.kernels, number, "name", "copy")
    used, time = np.zeros(len(distinct), bool), np.zeros(len(distinct), np.int64)
    for table in (spent, work, kernels):
        key = table["key"].to_numpy()
        used[key[key >= 0]] = True  # -1: the rest, which belongs to no key
    np.add.at(time, work["key"].to_numpy(), work["time"].to_numpy())
    timed = distinct.with_columns(pl.Series("time", time)).filter(pl.Series(used, dtype=pl.Boolean))
    return replace(
        begun,
        keys=timed.drop("time"),
        spent=spent.cast(dict(SPENT.items())),
        work=work.cast(dict(WORK.items())),
        kernels=kernels.cast(dict(KERNELS.items())),
        about=pl.concat([begun.about, dtypes(timed)]),
    )


def waiting_in(trace: Trace, units: pl.DataFrame, exchanged: Pieces) -> pl.DataFrame:
    """Return how long ranks waited for each rank in collectives that began inside the units (``WAITING``)."""
    if units["process"].n_unique() < 2:
        return pl.DataFrame(schema=WAITING)
    step_of = steps_at(units)

    def within(table: pl.DataFrame) -> pl.DataFrame:
        begin = table.select(pl.coalesce("start", "called")).to_series().fill_null(NONE).to_numpy()
        inside = step_of(processes_of(table["process"]), begin) >= 0
        return table.filter(pl.Series(inside, dtype=pl.Boolean))

    ranks = trace["processes"].select(pl.col("process").alias("late"), "rank").unique("late")
    return (
        waits_for(each(exchanged, within))
        .group_by("late")
        .agg(pl.col("waiting").sum())
        .join(ranks, on="late", how="left")
        .sort("waiting", "late", descending=[True, False])
        .select(pl.col(name).cast(kind) for name, kind in WAITING.items())
    )


def _count(table: pl.DataFrame, waited: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return the steps to compare, and the number left out as warm-up or incompletely captured."""
    steps = table.with_columns(warm_up(table)).filter(pl.col("step").is_not_null())
    kept = steps.filter(pl.col("seen") & ~pl.col("warm_up").fill_null(False))
    for otherwise in (pl.col("seen"), pl.lit(True)):
        kept = steps.filter(otherwise) if kept.is_empty() else kept
    asked = waited.group_by("process", "start").agg(pl.col("duration").max())
    kept = kept.join(
        asked, on=["process", "start"], how="left", maintain_order="left", nulls_equal=True
    ).with_columns(pl.min_horizontal("start", pl.col("end") - pl.col("duration")).alias("start"))
    return kept.select(*UNITS).cast(dict(UNITS.items())), len(steps) - len(kept)


def _window(trace: Trace, table: pl.DataFrame, units: pl.DataFrame, unit: str) -> str | None:
    """Return which of the existing steps are counted, and which part of the recording is outside them."""
    numbers, all_ = units["step"].drop_nulls(), table["step"].drop_nulls()
    if numbers.is_empty():
        return None
    recorded = bounds(trace).filter(
        pl.col("process").is_in(units["process"].implode(), nulls_equal=True)
    )
    span = int((recorded["end"] - recorded["start"]).sum() or 0)
    counted_time = int((units["end"] - units["start"]).sum())
    said = f"{unit}s {numbers.min()!s} to {numbers.max()!s}"
    if len(numbers) < len(all_):
        said += f" of {all_.min()!s} to {all_.max()!s}"
    if span > counted_time:
        outside = in_words(span - counted_time)
        said += f"; the {outside} outside of them, of {in_words(span)} recorded, are not compared"
    return said


def _runs(ops: Ops, table: pl.DataFrame) -> pl.DataFrame:
    """Return each process from its first event to its last, including processes with device events only."""
    trace = ops.attribution.trace
    units = table.select(*UNITS)
    rest = bounds(trace).filter(
        (pl.col("end") > pl.col("start"))
        & ~made_up(trace)
        & ~pl.col("process").is_in(units["process"].drop_nulls().implode()).fill_null(False)
    )
    rest = rest.with_columns(pl.lit(None, pl.Int64).alias("step")).select(*UNITS)
    return pl.concat([units, rest.sort("process").cast(dict(UNITS.items()))])


def _cut(
    ops: Ops, units: pl.DataFrame, keys: Keys, exchanged: Callable[[], pl.DataFrame]
) -> tuple[list[tuple[Ints, list[Cut], Ints]], tuple[bool, ...]]:
    """Return per process its rows of ``units``, the pieces of these that belong to each class of events, and
    the rest (ns); and the parts that are known of any process. No row has a label yet."""
    process = processes_of(units["process"])
    known_parts = np.zeros(len(PART_NAMES), bool)
    parts = []
    classes = _Classes(ops, keys, exchanged)
    for number in np.unique(process).tolist():
        rows = np.flatnonzero(process == number)
        start, end = (units[name].gather(rows).to_numpy() for name in ("start", "end"))
        events = classes.of(number)
        parts.append((rows, *cut(events, start, end)))
        known_parts[:-1] |= [event is not None for event in events]
        known_parts[-1] = True
    return parts, tuple(known_parts.tolist())


def _spend(
    found: list[tuple[Ints, list[Cut], Ints]], known_parts: tuple[bool, ...]
) -> tuple[pl.DataFrame, tuple[bool, ...]]:
    """Return the time that each unit spent by part and label, and which parts any process knows."""
    parts = [pl.DataFrame(schema=_PIECES)]
    for rows, cuts, rest in found:
        pieces = labelled(cuts)
        parts.append(
            pl.DataFrame(
                {
                    "unit": np.concatenate([rows[pieces.unit], rows]),
                    "part": np.concatenate([pieces.part, np.full(len(rows), len(PARTS))]),
                    "label": np.concatenate([pieces.label, np.full(len(rows), NONE)]),
                    "time": np.concatenate([pieces.time, rest]),
                },
                schema=_PIECES,
            )
        )
    return pl.concat(parts), known_parts


def _record(
    units: pl.DataFrame, spent: pl.DataFrame, work: pl.DataFrame, known_parts: tuple[bool, ...]
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame, tuple[bool, ...], int]:
    """Leave out units in which nothing was recorded, and return their number; if all units are such, no part
    is known.

    MindSpore's device traces mark ten steps but have the tasks of one.
    """
    seen = np.zeros(len(units), bool)
    seen[spent.filter((pl.col("label") != NONE) & (pl.col("time") > 0))["unit"].to_numpy()] = True
    if seen.all():
        return units, spent, work, known_parts, 0
    if not seen.any():
        return units, spent, work, (*(False for _ in PARTS), bool(len(units))), 0
    number_of_unit = np.where(seen, np.cumsum(seen) - 1, NONE)
    spent, work = (
        table.with_columns(pl.Series("unit", number_of_unit[table["unit"].to_numpy()])).filter(
            pl.col("unit") >= 0
        )
        for table in (spent, work)
    )
    return units.filter(pl.Series(seen)), spent, work, known_parts, int((~seen).sum())


class _Classes:
    """The events of a trace by part, distinguished as in ``step_times.happened``, each with its label."""

    def __init__(self, ops: Ops, keys: Keys, exchanged: Callable[[], pl.DataFrame]) -> None:
        self._ops, self._keys, self._exchanged = ops, keys, exchanged
        trace = self._trace = ops.attribution.trace
        self._talks = communicating(ops.attribution)
        self._sets = (
            (trace["memops"]["kind"].cast(pl.String) == "memset").fill_null(False).to_numpy()
        )
        self._on_host = trace["ranges"]["thread"].is_not_null().to_numpy()
        self._loads = loads(ops) & self._on_host
        self._process = {
            name: processes_of(trace[name]["process"])
            for name in ("kernels", "memops", "calls", "ranges")
        }
        speaks = ops.attribution.meaning.talks
        reading = ops.attribution.meaning.reading.astype(np.int64)
        self._speaks = at(speaks, reading, False) if len(speaks) else reading >= 0

    def of(self, process: int) -> list[Events | None]:
        """Return the events of each of ``PARTS`` in a process; None for parts that the trace does not
        show."""
        trace, keys, attribution = self._trace, self._keys, self._ops.attribution
        mine = {name: numbers == process for name, numbers in self._process.items()}
        kernels = np.flatnonzero(mine["kernels"])
        said, computed = kernels[self._talks[kernels]], kernels[~self._talks[kernels]]
        memops = np.flatnonzero(mine["memops"])
        copies, sets = memops[~self._sets[memops]], memops[self._sets[memops]]
        loading = np.flatnonzero(mine["ranges"] & self._loads)
        own = np.flatnonzero(mine["ranges"] & attribution.is_op & self._on_host)
        speaks = bool((mine["ranges"] & self._speaks).any())
        communication: Events | None = self._events(
            "kernels", said, lambda places: keys.of_kernels()[said[places]]
        )
        if not len(said) and speaks:
            communication = self._collectives(process)
        elif not trace.has("kernels") and (trace.used_gpu or not len(own)):
            communication = None
        events_of_parts: list[Events | None] = [
            communication,
            self._events("kernels", computed, lambda places: keys.of_kernels()[computed[places]])
            if trace.has("kernels")
            else None,
            *(self._copies(rows) if trace.has("memops") else None for rows in (copies, sets)),
            self._called(np.flatnonzero(mine["calls"])) if trace.has("calls") else None,
        ]
        return [
            *events_of_parts,
            *(self._ranges(rows) if len(rows) else None for rows in (loading, own)),
        ]

    def _copies(self, rows: Ints) -> Events:
        keys = self._keys
        return self._events("memops", rows, lambda places: keys.of_memops()[rows[places]])

    def _called(self, rows: Ints) -> Events:
        keys = self._keys
        return self._events("calls", rows, lambda places: keys.of_calls()[rows[places]], True)

    def _ranges(self, rows: Ints) -> Events:
        keys = self._keys
        return self._events("ranges", rows, lambda places: keys.of_ranges(rows[places]), True)

    def _collectives(self, process: int) -> Events | None:
        """Return the collectives that the process ran itself, on the CPU; None if only calls were
        recorded."""
        ran = self._exchanged().filter(
            (pl.col("process") == process)
            & pl.col("start").is_not_null()
            & pl.col("end").is_not_null()
        )
        if ran.is_empty() and len(self._exchanged().filter(pl.col("process") == process)):
            return None
        start, end = (ran[name].to_numpy() for name in ("start", "end"))
        keys, kinds = self._keys, ran["kind"]
        return Events(start, end, lambda places: keys.of_texts(kinds.gather(places)), True)

    def _events(
        self, table: str, rows: Ints, label: Callable[[Ints], Ints], nested: bool = False
    ) -> Events:
        start, end = (
            self._trace[table][name].fill_null(0).gather(rows).to_numpy()
            for name in ("start", "end")
        )
        return Events(start, end, label, nested)


def _work(ops: Ops, units: pl.DataFrame, keys: Keys) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return per unit and label the time and calls of its work, and the same per label and kernel name."""
    trace, attribution = ops.attribution.trace, ops.attribution
    columns = ("unit", "label", "time", "calls")
    tables, named = [pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))], []
    device = (
        ("kernels", attribution.kernels, keys.of_kernels),
        ("memops", attribution.memops, keys.of_memops),
    )
    counted = np.zeros(len(attribution.is_op), bool)
    for name, launched, labels in device:
        table = trace[name]
        if not len(table):
            continue
        label = labels()
        start = table["start"].fill_null(0).to_numpy()
        lasted = table["end"].fill_null(0).to_numpy() - start
        unit = _place(units, processes_of(table["process"]), _launch_times(trace, launched, start))
        first = _first_of_calls(launched)
        first[launched.op >= 0] &= ~counted[launched.op[launched.op >= 0]]
        counted[launched.op[launched.op >= 0]] = True
        tables.append(_sums(unit, label, lasted, first))
        named.append(_name(table, name == "memops", label, unit, launched))
    if not trace.used_gpu and not ops.on_device:
        rows = ops.rows
        ranges = trace["ranges"]
        start = ranges["start"].gather(rows).to_numpy()
        unit = _place(units, processes_of(ranges["process"].gather(rows)), start)
        every = np.ones(len(rows), bool)
        tables.append(_sums(unit, keys.of_ranges(rows), ops.times.self_time, every))
    empty = {"label" if name == "key" else name: kind for name, kind in KERNELS.items()}
    return pl.concat(tables), pl.concat([pl.DataFrame(schema=empty), *named])


def _name(
    table: pl.DataFrame, copy: bool, label: Ints, unit: Ints, launched: Launched
) -> pl.DataFrame:
    """Return the columns ``KERNELS`` per label and name (for copies: kind) in the units."""
    in_unit = unit >= 0
    codes, texts = compact(table["kind" if copy else "name"].cast(pl.Categorical))
    labels, other, number = pairs(label[in_unit], codes[in_unit])
    lasted = (table["end"].fill_null(0) - table["start"].fill_null(0)).to_numpy()
    unlaunched = (launched.call < 0) & (launched.replay < 0)
    counts = {
        name: np.bincount(number, weights[in_unit], len(labels)).astype(np.int64)
        for name, weights in (
            ("calls", np.ones(len(in_unit))),
            ("unlaunched", unlaunched),
            ("early", unlaunched & _before_launched(table, unlaunched)),
        )
    }
    time = np.zeros(len(labels), np.int64)
    np.add.at(time, number, lasted[in_unit])
    return pl.DataFrame(
        {
            "label": labels,
            "name": spread("name", texts, other),
            "copy": pl.repeat(copy, len(labels), dtype=pl.Boolean, eager=True),
            "time": time,
            **counts,
        }
    )


def _before_launched(table: pl.DataFrame, unlaunched: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which work ran before all work of its stream that has a launch record: a stream runs in
    order."""
    if not unlaunched.any():
        return unlaunched
    work = table.select("process", "device", "stream", "start", pl.Series("unlaunched", unlaunched))
    first = pl.col("start").filter(~pl.col("unlaunched")).min()
    first = first.over("process", "device", "stream")
    before = work.select((pl.col("start") < first).fill_null(False)).to_series()
    early: NDArray[np.bool_] = before.to_numpy()
    return early


def _launch_times(trace: Any, launched: Launched, start: Ints) -> Ints:
    """Return when each piece of work was launched (ns), else when it began; this determines its step."""
    if not trace.has("calls"):
        return start
    call = np.where(launched.replay >= 0, launched.replay, launched.call).astype(np.int64)
    time = at(trace["calls"]["start"].fill_null(NONE).to_numpy(), call)
    return np.where(time >= 0, time, start)


def _place(units: pl.DataFrame, process: Ints, time: Ints) -> Ints:
    """Return the unit of each time; all belong to unit 0 if nothing has times."""
    if units.is_empty():
        return np.zeros(len(time), np.int64)
    return step_at(units, process, time)


def _first_of_calls(launched: Launched) -> NDArray[np.bool_]:
    """Return whether each piece of work is the first of its op's call; work without an op counts as a call
    each."""
    first = launched.op < 0
    rows = np.flatnonzero(~first)
    if len(rows):
        ops_of_calls, _, number = pairs(launched.op[rows], launched.replay[rows])
        begin = np.zeros(len(ops_of_calls), np.int64)
        begin[number[::-1]] = rows[::-1]
        first[begin] = True
    return first


def _sums(unit: Ints, label: Ints, lasted: Ints, first: NDArray[np.bool_]) -> pl.DataFrame:
    """Return time and calls of each unit and label; ``first``: which rows begin a call."""
    in_unit = np.flatnonzero(unit >= 0)
    units, other, number = pairs(unit[in_unit], label[in_unit])
    time = np.zeros(len(units), np.int64)
    np.add.at(time, number, lasted[in_unit])
    calls = np.bincount(number, first[in_unit], len(units)).astype(np.int64)
    return pl.DataFrame({"unit": units, "label": other, "time": time, "calls": calls})


def _by_key(frame: pl.DataFrame, number: Ints, *by: str) -> pl.DataFrame:
    """Return the frame summed by key in place of label."""
    key = pl.Series("key", at(number, frame["label"].to_numpy()), pl.Int64)
    sums = [name for name in ("time", "calls", "unlaunched", "early") if name in frame.columns]
    return frame.with_columns(key).group_by(*by, "key").agg(pl.col(sums).sum())

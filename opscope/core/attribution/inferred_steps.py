"""Infer steps that the program does not mark, from what repeats: optimizer, iteration, sequence …

Only for processes without step ranges, and only if the work between two ends of steps repeats:

- ``global_step``: a step ends where TensorFlow's counter of that name is written.
- ``optimizer``: a step ends with the optimizer's ops that follow a backward pass. In nine tenths of the
  steps these ops must be the same as in the step before; with several optimizers (a GAN has two), the
  same as in the round before. A graph may run them at any time: then each must run equally often, in turns.
- ``function``: a step is a run of the compiled functions (XLA's) that contain the optimizer's ops or, if
  none does, of the one that contains backward ops. Each of its operations must run equally often in nine
  tenths of the steps. If a function without an optimizer runs several times for each run of another
  function, nothing shows which of the two is the step.
- ``iteration``: if no optimizer is known, a step ends before the first op that autograd numbers after a
  backward pass. All iterations but the first two and the last must run the same ops equally often, so
  gradients accumulated over several iterations, or a check every so often, yield no steps.

- ``sequence``: if nothing is trained, a step is what repeats in the sequence of ops (``op_periods``), where
  the texts name places and the confidence is ``HIGH``.

There must be at least three steps. The confidence is the share of steps that were like the others.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.loop_steps import (
    Loop,
    Loops,
    marks_of_optimizer,
    plain,
    share_alike,
    steps_of_calls,
    with_bodies,
)
from opscope.core.attribution.op_periods import weights
from opscope.core.attribution.sequence_steps import function_of, sequence_steps
from opscope.core.attribution.several_optimizers import ALIKE, LEAST, ROUND, period
from opscope.core.attribution.step_counter import GLOBAL_STEP, counted, counter
from opscope.core.dialects import Reading, serving
from opscope.core.tables.columns import pieces
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE, Ints
from opscope.core.tables.lanes import distinct_numbers
from opscope.core.tables.trace import Trace, conform, next_range_id

#: Least share of alike iterations if each is seen to update weights.
MOSTLY: Final = 0.75
#: Ops of TensorFlow and MindSpore that set a variable.
_UPDATES: Final = re.compile(r"Assign|ResourceApply|Apply[A-Z]")
#: Least confidence needed to take a repetition in the sequence of ops for steps: four iterations, all alike.
HIGH: Final = 0.85
#: Least confidence needed to take the calls of a compiled function for steps if nothing is trained: six
#: calls.
SURE: Final = 0.95
#: Highest confidence in steps that neither the program nor its own counter marks.
CERTAIN: Final = 0.99
#: Iterations of a process with more ops are not compared. For 1.2 M ops the comparison takes a fifth of
#: the time of their attribution.
MAX_OPS: Final = 2_000_000
#: How ``by`` begins for steps that a key node ends; the node's name follows.
KEY_NODE: Final = "key node "
#: Number of a function's operations that are tried as the beginning of a step.
_TRIED: Final = 16
_BACKWARD, _OPTIMIZER = 1, 2
_NEVER: Final = np.iinfo(np.int64).max

Weights: TypeAlias = NDArray[np.uint64]
_Codes: TypeAlias = NDArray[np.integer[Any]]
#: The columns of inferred steps; times in ns.
SCHEMA: Final = {
    "process": pl.Int32,
    "thread": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "step": pl.Int64,
    "confidence": pl.Float64,
    "by": pl.String,
}


@dataclass(slots=True)
class Found:
    """The steps of a process: ``bounds`` (ns, ascending; one bound more than there are steps); ``by``: what
    repeats. ``begun``: whether the begin of the first step is known; if not, the first bound is the first
    known end."""

    bounds: Ints
    confidence: float
    by: str
    begun: bool = True


def inferred_steps(
    ranges: pl.DataFrame, meaning: Meaning, is_op: NDArray[np.bool_], hooked: bool = False
) -> pl.DataFrame | None:
    """Return steps of processes without step ranges: process, thread, start, end (ns), step, confidence, by.

    None if no steps are found. ``is_op``: which rows of ``ranges`` are ops. ``hooked``: an optimizer's hook
    marked steps; the steps made from these marks are returned as well and replace the marks.
    """
    kinds = _Kinds.of(meaning)
    loops = cache(lambda: Loops(ranges, meaning, is_op))  # a server needs none
    marked = _of_marks(ranges, meaning, loops()) if hooked else []
    if _all_step(ranges, meaning, is_op, kinds):
        return pl.concat(marked) if marked else None
    directed = np.flatnonzero(kinds.direction[meaning.reading] > 0)
    process = ranges["process"].fill_null(NONE).to_numpy()
    stepping = distinct_numbers(process[meaning.role == ROLE["step"]])
    parts = marked + _counted_steps(ranges, meaning, is_op, process, stepping)
    stepping = np.union1d(stepping, [part["process"][0] for part in parts])
    trained = distinct_numbers(process[directed])
    others = np.setdiff1d(distinct_numbers(process[is_op]), np.concatenate((trained, stepping)))
    named = np.flatnonzero(meaning.role == ROLE["user"])
    for number in others.tolist():
        # the named steps of a server are of two kinds; anything that repeats in both would mix them
        if _serves(meaning, meaning.reading[named[process[named] == number]]):
            continue
        called = _of_calls(ranges, is_op, loops(), number, None, False)
        if called is None:
            repeats = sequence_steps(ranges, meaning, is_op, loops().symbols, process == number)
            if isinstance(repeats, str) or repeats[0].confidence < HIGH:
                continue
            one_period, thread = repeats
            steps = Found(one_period.bounds, one_period.confidence, "sequence")
            called = frame_of(steps, number, thread)
        if called is not None:
            parts.append(called)
    for number in np.setdiff1d(trained, stepping).tolist():
        here = process == number
        mine = directed[here[directed]]
        frame = _of_training(ranges, meaning, is_op, kinds, loops(), number, here, mine)
        if frame is not None:
            parts.append(frame)
    return pl.concat(parts) if parts else None


def _of_training(
    ranges: pl.DataFrame,
    meaning: Meaning,
    is_op: NDArray[np.bool_],
    kinds: _Kinds,
    loops: Loops,
    number: int,
    here: NDArray[np.bool_],
    mine: Ints,
) -> pl.DataFrame | None:
    """Return the steps of a process that trains. ``here``: the process's ranges; ``mine``: those with a
    direction."""
    optimizer = mine[kinds.direction[meaning.reading[mine]] == _OPTIMIZER]
    trains = optimizer if len(optimizer) else mine
    compiled = bool((kinds.function[meaning.reading[trains]] >= 0).mean() > 0.5)
    if compiled:
        functions = kinds.functions(meaning.reading[trains])
        if len(functions) == 1:
            called = _of_calls(ranges, is_op, loops, number, functions, not len(optimizer))
            if called is not None:
                return called
        wanted = here & (kinds.function[meaning.reading] >= 0)
    elif len(optimizer):  # a trace may be large: take only ops before the first backward pass
        begin = ranges["start"].gather(optimizer).min()
        wanted = here & is_op & (ranges["start"] < begin).to_numpy()
        wanted[mine] = True
    else:
        wanted = here & is_op
        wanted[mine] = True
        if np.count_nonzero(wanted) > MAX_OPS:
            return None
    rows = np.flatnonzero(wanted)
    start = ranges["start"].gather(rows).to_numpy()
    if np.any(start[1:] < start[:-1]):
        order = np.argsort(start, kind="stable")
        rows, start = rows[order], start[order]
    process_steps = _Process(
        meaning.reading[rows],
        start,
        ranges["end"].gather(rows).fill_null(0).to_numpy(),
        meaning.seq.gather(rows).fill_null(NONE).to_numpy(),
        is_op[rows],
        kinds,
    )
    if compiled:
        steps = process_steps.by_function()
    elif len(optimizer):
        steps = process_steps.by_optimizer()
        if steps is not None and not steps.begun:
            ops = np.flatnonzero(here & is_op)
            steps = _with_first(steps, ranges["start"].gather(ops), meaning.reading[ops])
    else:
        steps = process_steps.by_iteration()
    if steps is None or len(steps.bounds) <= LEAST:
        return None
    # autograd has a thread of its own for a GPU
    forward = rows[~process_steps.is_backward & is_op[rows]]
    by_optimizer = steps.by == "optimizer"
    thread = _thread(ranges, meaning, number, optimizer if by_optimizer else forward)
    frame = frame_of(steps, number, thread)
    if not by_optimizer:
        return frame
    before = None if steps.begun else int(steps.bounds[0])
    return _with_whole_bodies(frame, loops.loop(number, thread), before)


def _with_whole_bodies(frame: pl.DataFrame, loop: Loop, before: int | None = None) -> pl.DataFrame:
    """Return steps that end with an optimizer, extended to their whole loop bodies.

    ``before``: when (ns) the step before the first one ended, if that step is not included.
    """
    ends = frame["end"].to_numpy()
    bounds = with_bodies(loop, ends if before is None else np.append(before, ends))
    if bounds is None:
        return frame
    begin, end = (times[-len(frame) :] for times in bounds)
    return frame.with_columns(pl.Series("start", begin), pl.Series("end", end))


def _of_calls(
    ranges: pl.DataFrame,
    is_op: NDArray[np.bool_],
    loops: Loops,
    process: int,
    functions: frozenset[str] | None,
    alone: bool,
) -> pl.DataFrame | None:
    """Return the steps that are calls of a compiled function, a model or a session; None if there are too
    few.

    ``functions``: the functions that train; ``alone``: whether it is not known that they update the weights.

    A function may return before the work that it launched has run: its step ends with the operations of that
    run or, where these cannot be counted, with those that began before the thread continued.
    """
    calls = loops.calls(process, functions, alone)
    if calls is None:
        return None
    confidence = CERTAIN * (1 - 2.0 ** (1 - len(calls.places)))
    late = calls.name.startswith("function ")
    # a function that is not known to train may do anything: a few calls of it are not enough
    if functions is None and confidence < (SURE if late else HIGH):
        return None
    events, places = calls.loop.events, calls.places
    ends = events.end[places]
    if late:
        mine = (ranges["process"] == process).fill_null(False).to_numpy() & is_op
        rows = np.flatnonzero(mine)
        runs = loops.ends_of_runs(rows, calls)
        if runs is None:
            runs = _until_next(ranges, rows, np.append(events.start, _NEVER)[places + 1])
        ends = np.maximum.accumulate(np.maximum(ends, runs))
    begin, end = steps_of_calls(calls.loop, places, ends, late)
    shapes = f" ({calls.shapes} shapes as one)" if calls.shapes > 1 else ""
    steps = Found(np.append(begin, begin[-1] + 1), confidence, calls.name + shapes)
    frame = frame_of(steps, process, calls.thread).with_columns(pl.Series("end", end))
    return frame if (frame["end"] > frame["start"]).all() else None


def _until_next(ranges: pl.DataFrame, rows: Ints, until: Ints) -> Ints:
    """Return when (ns) the last of the operations ``rows`` ended that began before each of ``until``."""
    start, end = (ranges[name].gather(rows).fill_null(0).to_numpy() for name in ("start", "end"))
    order = np.argsort(start, kind="stable")
    latest = np.append(0, np.maximum.accumulate(end[order]))
    ends: Ints = latest[np.searchsorted(start[order], until, "left")]
    return ends


def _of_marks(ranges: pl.DataFrame, meaning: Meaning, loops: Loops) -> list[pl.DataFrame]:
    """Return the steps of each process in which an optimizer's hook marks them."""
    parts = []
    marks = np.flatnonzero(meaning.role == ROLE["step"])
    for number in ranges["process"].gather(marks).drop_nulls().unique().sort().to_list():
        marked = marks_of_optimizer(ranges, meaning, loops, number)
        if marked is None:
            continue
        thread, loop, ends, steps = marked
        of_marks = Found(np.append(ends, ends[-1] + 1), share_alike(loop, ends), "optimizer")
        frame = frame_of(of_marks, number, thread).with_columns(
            pl.Series("step", steps), pl.Series("end", ends)
        )
        frame = _with_whole_bodies(frame, loop)
        if (frame["end"] > frame["start"]).all():
            parts.append(frame)
    return parts


def _all_step(
    ranges: pl.DataFrame, meaning: Meaning, is_op: NDArray[np.bool_], kinds: _Kinds
) -> bool:
    """Return whether every process that may have steps marks them, as most programs do; checked piece by
    piece."""
    steps = meaning.each(lambda reading: reading.role == "step")
    stepping, others = np.empty(0, np.int32), np.empty(0, np.int32)
    for part in pieces(len(ranges)):
        reading = meaning.reading[part]
        process = ranges["process"][part].fill_null(NONE).to_numpy()
        stepping = np.union1d(stepping, distinct_numbers(process[steps[reading]]))
        others = np.union1d(
            others, distinct_numbers(process[is_op[part] | (kinds.direction[reading] > 0)])
        )
    return len(np.setdiff1d(others, stepping)) == 0


def _counted_steps(
    ranges: pl.DataFrame,
    meaning: Meaning,
    is_op: NDArray[np.bool_],
    process: _Codes,
    stepping: _Codes,
) -> list[pl.DataFrame]:
    """Return the steps of processes, other than ``stepping``, whose iterations an op counts."""
    writes = np.isin(meaning.reading, counter(meaning)) & is_op
    parts = []
    for number in np.setdiff1d(np.unique(process[writes]), stepping).tolist():
        mine = process == number
        rows = np.flatnonzero(writes & mine)
        bounds = counted(ranges, rows, int(ranges["start"].filter(pl.Series(mine & is_op)).min()))
        if len(bounds) > LEAST:
            parts.append(
                frame_of(
                    Found(bounds, 1.0, GLOBAL_STEP),
                    number,
                    _thread(ranges, meaning, number, rows),
                )
            )
    return parts


def frame_of(steps: Found, process: int, thread: int) -> pl.DataFrame:
    """Return the steps of a process as rows, as ``inferred_steps`` does."""
    count = len(steps.bounds) - 1
    counted_by_program = steps.by == GLOBAL_STEP or steps.by.startswith(KEY_NODE)
    most = 1.0 if counted_by_program else CERTAIN
    return pl.DataFrame(
        {
            "process": pl.Series([process] * count, dtype=pl.Int32),
            "thread": pl.Series([thread] * count, dtype=pl.Int64),
            "start": steps.bounds[:-1],
            "end": steps.bounds[1:],
            "step": np.arange(count),
            "confidence": np.full(count, min(steps.confidence, most)),
            "by": [steps.by] * count,
        },
        schema=SCHEMA,
    )


def _serves(meaning: Meaning, reading: _Codes) -> bool:
    """Return whether some of these readings, one a row, name the steps of a server."""
    rows, often = 0, np.bincount(reading)
    for code in np.flatnonzero(often).tolist():
        rows += often[code] * (serving.kind(meaning.texts[code]) is not None)
        if rows >= LEAST:  # a long run has a name for each of its steps
            return True
    return False


def trains(meaning: Meaning) -> NDArray[np.bool_]:
    """Return whether each reading is a backward op or an optimizer's, so that something is trained."""
    return _directions(meaning) > 0


def _directions(meaning: Meaning) -> NDArray[np.int8]:
    """Return the code of each reading's direction."""
    codes = {"backward": _BACKWARD, "optimizer": _OPTIMIZER}
    direction = [
        0
        if reading.direction is None or "zero_grad" in text[:64]
        else codes.get(reading.direction, 0)
        for reading, text in zip(meaning.readings, meaning.texts, strict=True)
    ]
    return np.array(direction, np.int8)


def _thread(ranges: pl.DataFrame, meaning: Meaning, process: int, rows: Ints) -> int:
    """Return the steps' thread: that of compiled functions, else the one with most forward ops."""
    graphs = np.flatnonzero(meaning.role == ROLE["graph"])
    graphs = graphs[(ranges["process"].gather(graphs) == process).fill_null(False).to_numpy()]
    threads = ranges["thread"].gather(graphs if len(graphs) else rows).drop_nulls()
    return int(threads.mode().min()) if len(threads) else NONE  # type: ignore[arg-type]


def _with_first(found: Found, start: pl.Series, reading: NDArray[np.int32]) -> Found:
    """Return ``found`` with the step before its first bound, if the process's ops until then make up a step.

    ``start`` (ns) and ``reading``: of all its ops. A recording that begins with a step contains that whole
    step.
    """
    begun = start.to_numpy()
    early = begun < found.bounds[0]
    next_one = ~early & (begun < found.bounds[1])
    if not early.any() or not np.array_equal(np.sort(reading[early]), np.sort(reading[next_one])):
        return found
    return replace(found, bounds=np.concatenate(([begun[early].min()], found.bounds)), begun=True)


@dataclass(slots=True)
class _Kinds:
    """Per reading: the code of its direction, the function it is compiled in (-1: none), a random weight,
    and whether it is an op that sets a variable. ``names``: names of the functions."""

    direction: NDArray[np.int8]
    function: NDArray[np.int32]
    weight: Weights
    updates: NDArray[np.bool_]
    names: tuple[str, ...]

    def functions(self, reading: _Codes) -> frozenset[str]:
        """Return the compiled functions that contain these readings."""
        numbers = np.unique(self.function[reading]).tolist()
        return frozenset(plain(self.names[number]) for number in numbers if number >= 0)

    @classmethod
    def of(cls, meaning: Meaning) -> _Kinds:
        direction = _directions(meaning)
        numbers: dict[str, int] = {}

        def function_number(reading: Reading) -> int:
            name = function_of(reading)
            return NONE if name is None else numbers.setdefault(name, len(numbers))

        function = meaning.each(function_number, np.int32)
        updates = meaning.each(
            lambda reading: (
                reading.call is not None and _UPDATES.match(reading.call.name) is not None
            )
        )
        return cls(
            direction,
            function,
            weights(len(direction)),
            updates,
            tuple(numbers),
        )


class _Process:
    """The ops of a process, and its ranges that have a direction, ordered by start."""

    def __init__(
        self,
        reading: _Codes,
        start: Ints,
        end: Ints,
        seq: Ints,
        is_op: NDArray[np.bool_],
        kinds: _Kinds,
    ) -> None:
        self._reading = reading
        self._start = start
        self._end = end
        self._seq = seq
        self._is_op = is_op
        self._kinds = kinds
        direction = kinds.direction[reading]
        self.is_backward = direction == _BACKWARD
        self._is_optimizer = direction == _OPTIMIZER
        self._function = kinds.function[reading]

    # ------------------------------------------------------------------------- compiled functions

    def by_function(self) -> Found | None:
        function = self._function
        for has_direction, alone in ((self._is_optimizer, False), (self.is_backward, True)):
            those = np.unique(function[has_direction & (function >= 0)])
            runs = [
                (function_number, self._runs(function == function_number))
                for function_number in those.tolist()
            ]
            with_runs = [
                (function_number, runs_of_function)
                for function_number, runs_of_function in runs
                if runs_of_function is not None
            ]
            if not with_runs:
                continue
            if len(with_runs) > ROUND:
                return None
            if alone and any(self._takes_turns(function, runs) for runs in with_runs):
                return None
            return _rounds(
                [runs_of_function for _, runs_of_function in with_runs],
                int(self._end[function >= 0].max()),
            )
        return None

    def _runs(self, mine: NDArray[np.bool_]) -> tuple[Ints, float] | None:
        """Return when (ns) each run of a function began, and the share of runs that are alike; None if it is
        not a loop."""
        rows = np.flatnonzero(mine)
        codes, index, count = np.unique(
            self._reading[rows], return_inverse=True, return_counts=True
        )
        first = np.full(len(codes), len(rows))
        np.minimum.at(first, index, np.arange(len(rows)))
        often = np.flatnonzero(count >= LEAST)
        # an operation that runs once per step runs least often; the first of these begins a step
        often = often[np.lexsort((first[often], count[often]))][:_TRIED]
        for code in often.tolist():
            at = np.flatnonzero(index == code)
            alike = _alike(_signatures(self._kinds.weight[self._reading[rows]], at))
            if len(at) * np.median(np.diff(at)) < 0.5 * len(rows):
                continue  # it occurs only in some of the runs
            if alike >= ALIKE:
                return self._start[rows[at]], alike
        return None

    def _takes_turns(self, function: _Codes, function_runs: tuple[int, tuple[Ints, float]]) -> bool:
        """Return whether another function runs once for each N runs of this one (N is fixed, at least 2)."""
        mine, (begins, _) = function_runs
        for other in np.unique(function[(function >= 0) & (function != mine)]).tolist():
            runs = self._runs(function == other)
            if runs is None:
                continue
            which = np.searchsorted(begins, runs[0], side="right")
            apart = np.diff(which)
            if len(apart) >= 2 and apart.min() >= 2 and (apart == apart[0]).all():
                return True
        return False

    # ------------------------------------------------------------------------- the optimizer

    def by_optimizer(self) -> Found | None:
        """Return the steps that end with the optimizer's ops after a backward pass."""
        rows = np.flatnonzero(self.is_backward | self._is_optimizer)
        works = self._is_optimizer[rows]
        if not works.any() or works.all():
            return None
        # a graph may count its steps at any time; an op that does so runs as often as the weights are updated
        early = works & np.isin(self._reading[rows], self._reading[rows[: np.argmin(works)]])
        steps, late = self._by_bursts(rows), rows[~early]
        if steps is not None or not early.any():
            return steps
        steps = self._by_bursts(late) or self._by_turns(late[self._is_optimizer[late]])
        if steps is None:
            return None
        count = len(steps.bounds) - steps.begun
        counts = np.unique(self._reading[rows[early]], return_counts=True)[1]
        each = np.maximum(np.rint(counts / count), 1)
        return steps if (abs(counts - each * count) <= each).all() else None

    def _by_turns(self, rows: Ints) -> Found | None:
        """Return the steps in which each of the optimizer's ops ``rows`` ran equally often, in any order."""
        reading, count = np.unique(self._reading[rows], return_inverse=True, return_counts=True)[1:]
        times = int(np.gcd.reduce(count)) if len(rows) else 0
        if times < LEAST:
            return None
        order = np.argsort(reading, kind="stable")
        turn = np.empty(len(rows), np.int64)
        turn[order] = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        turn = turn * times // count[reading]
        begin, ends = np.full(times, _NEVER), np.zeros(times, np.int64)
        np.minimum.at(begin, turn, self._start[rows])
        np.maximum.at(ends, turn, self._end[rows])
        apart = bool((begin[1:] >= ends[:-1]).all())
        return Found(ends, 1.0, "optimizer", False) if apart else None

    def _by_bursts(self, rows: Ints) -> Found | None:
        works = self._is_optimizer[rows]
        last = np.flatnonzero(works & ~np.append(works[1:], False))  # the last op of each burst
        begin = np.flatnonzero(works & ~np.append(False, works[:-1]))
        if len(begin) and begin[0] == 0:  # before any backward pass
            last, begin = last[1:], begin[1:]
        if len(last) < LEAST:
            return None
        weight = np.where(works, self._kinds.weight[self._reading[rows]], 0)
        total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(weight.astype(np.uint64))))
        rounds = period(total[last + 1] - total[begin])
        if rounds is None:
            return None
        round_size, alike = rounds
        ends = np.maximum.accumulate(self._end[rows])[last][round_size - 1 :: round_size]
        begun = self._begun(int(self._start[rows[begin[0]]]))
        bounds = ends if begun is None else np.concatenate(([begun], ends))
        return Found(bounds, alike, "optimizer", begun is not None)

    def _begun(self, before: int) -> int | None:
        """Return when (ns) the first step began: with the first op that its backward pass differentiates."""
        early = self._start < before
        backward = np.unique(self._seq[early & self.is_backward])
        forward = early & ~self.is_backward & np.isin(self._seq, backward[backward >= 0])
        return int(self._start[np.argmax(forward)]) if forward.any() else None

    # ------------------------------------------------------------------------- whole iterations

    def by_iteration(self) -> Found | None:
        """Return the iterations as steps, if all run the same ops."""
        forward = self._is_op & ~self.is_backward & (self._seq >= 0)
        rows = np.flatnonzero(self.is_backward | forward)
        backward = self.is_backward[rows]
        # the first forward op after each backward pass, and the very first
        begin = rows[~backward & np.append(True, backward[:-1])]
        if len(begin) < LEAST + 1 or not backward.any():
            return None
        weight = np.where(self._is_op, self._kinds.weight[self._reading], 0).astype(np.uint64)
        each = _signatures(weight, begin)
        usual = each == each[-1]
        later = 2 if len(each) > LEAST + 1 else 0
        if len(each) < LEAST:
            return None
        if not usual[later:].all():
            # a periodic checkpoint may be taken for the update of the weights, unless all iterations update
            numbers, count = np.unique(each[later:], return_counts=True)
            usual = each == numbers[count.argmax()]
            updates = np.add.reduceat(self._kinds.updates[self._reading].astype(np.int64), begin)
            if usual[later:].mean() < MOSTLY or not updates.all():
                return None
        # the last iteration ends after as many ops as the previous one
        length = np.diff(begin)
        end = min(int(begin[-1] + length[-1]), len(self._start)) - 1
        stop = int(self._end[begin[-1] : end + 1].max())
        bounds = np.append(self._start[begin], max(stop, int(self._start[begin[-1]]) + 1))
        return Found(bounds, float(usual.mean()), "iteration")


def _signatures(weight: Weights, begin: Ints) -> Weights:
    """Return a number per stretch between two of ``begin``; equal numbers mean the same ops, equally
    often."""
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(weight)))
    weights: Weights = np.diff(total[begin])
    return weights


def _alike(signatures: Weights) -> float:
    """Return the share of the most frequent signature."""
    if len(signatures) < LEAST - 1:
        return 0.0
    _, count = np.unique(signatures, return_counts=True)
    return float(count.max() / len(signatures))


def _rounds(functions: list[tuple[Ints, float]], end: int) -> Found | None:
    """Return the steps of functions that run in turns, each once per step."""
    begins = [begin for begin, _ in functions]
    if len({len(begin) for begin in begins}) > 1:
        return None
    order = sorted(begins, key=lambda begin: int(begin[0]))
    table = np.stack(order, axis=1)
    flat = table.reshape(-1)
    if np.any(flat[1:] <= flat[:-1]):
        return None
    confidence = min(alike for _, alike in functions)
    return Found(np.append(table[:, 0], max(end, int(flat[-1]) + 1)), confidence, "function")


def without_marks(trace: Trace, meaning: Meaning, table: pl.DataFrame) -> tuple[Trace, Meaning]:
    """Return ranges and meaning without the step ranges of the processes of ``table``: the rows stay but
    no longer mean steps."""
    marks = np.flatnonzero(meaning.role == ROLE["step"])
    ranges = trace["ranges"]
    of = ranges["process"].gather(marks)
    marks = marks[of.is_in(table["process"].unique().implode()).fill_null(False).to_numpy()]
    if not len(marks):
        return trace, meaning
    reading = meaning.reading.copy()
    reading[marks] = len(meaning.readings)
    is_mark = np.zeros(len(ranges), bool)
    is_mark[marks] = True
    category = pl.when(pl.lit(pl.Series(is_mark))).then(None).otherwise(pl.col("category"))
    return trace.replace(ranges=ranges.with_columns(category.alias("category"))), replace(
        meaning,
        readings=(*meaning.readings, Reading("note")),
        texts=(*meaning.texts, ""),
        reading=reading,
    )


def in_words(by: str) -> str:
    """Return in words how steps were found; ``by``: the value in their rows."""
    kind, _, name = by.partition(" ")
    if name and kind in _CALLED:
        return f"{_CALLED[kind]} {name}"
    return _WORDS.get(by, by)


#: How steps were found, in words; the name of what is called, or the number of its shapes, may follow.
_WORDS: Final = {
    "optimizer": "the optimizer's steps",
    GLOBAL_STEP: "the program's counter global_step",
    "iteration": "iterations that run the same ops",
    "sequence": "what repeats in the order of ops",
    "kernels": "what repeats in the order of kernels",
    "function": "the runs of compiled functions",
}
_CALLED: Final = {
    "function": "the calls of the compiled function",
    "model": "the calls of the model",
    "session": "the runs of the session",
}


def with_steps(trace: Trace, meaning: Meaning, table: pl.DataFrame) -> tuple[Trace, Meaning]:
    """Return ``trace`` with a range (category ``step``) for each step that ``inferred_steps`` found, after
    all other ranges, and ``meaning`` with the readings of these."""
    ranges = trace["ranges"]
    count, begin = len(table), next_range_id(ranges)
    by = table["by"].unique().to_list()
    written = pl.col("by").replace_strict(
        by, [json.dumps(value) for value in by], return_dtype=pl.String
    )
    fields = pl.format(
        'inferred":true,"confidence":{},"by":{}', pl.col("confidence").round(3), written
    )
    added = table.select(
        pl.int_range(begin, begin + count, dtype=pl.Int64).alias("id"),
        "process",
        "thread",
        pl.col("thread").alias("end_thread"),
        "start",
        "end",
        pl.lit("inferred").alias("domain"),
        pl.lit("step").alias("category"),
        pl.format("step {}", "step").alias("text"),
        pl.concat_str(pl.lit('{"'), fields, pl.lit("}")).alias("attrs"),
        pl.lit("pushpop").alias("kind"),
    )
    numbers = table["step"].unique().sort().to_list()
    reading = len(meaning.readings) + np.searchsorted(numbers, table["step"].to_numpy())
    longer = Meaning(
        (*meaning.readings, *(Reading("step", step=number) for number in numbers)),
        (*meaning.texts, *(f"step {number}" for number in numbers)),
        np.concatenate((meaning.reading, reading.astype(np.int32))),
        meaning.seq.extended(count),
        meaning.fwd_thread.extended(count),
    )
    ranges = pl.concat([ranges, conform("ranges", added).select(ranges.columns)])
    return trace.replace(ranges=ranges), longer

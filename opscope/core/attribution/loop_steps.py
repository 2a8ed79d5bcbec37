"""Extend steps that end with an optimizer, or that are calls of a function, to the whole body of their loop.

``marks_of_optimizer`` is for recordings in which an optimizer's hook marked the steps: such a mark only
tells where the optimizer's step ended. ``with_bodies`` and ``steps_of_calls`` return the bounds of steps
where ``step_bodies`` finds that the loop's body begins and ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.sequence_steps import Symbols, function_of
from opscope.core.attribution.several_optimizers import ends_of_rounds, optimizers
from opscope.core.attribution.step_bodies import LIKE, Cores, Events, bodies
from opscope.core.dialects import Reading
from opscope.core.schema import CHECKPOINT, COMPILE, GRAPH_REPLAY
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.interpret import ROLE, Meaning
from opscope.core.tables.intervals import NONE, Ints, nest

#: Ops that set gradients to zero, where no range of ``zero_grad`` is around them.
_FILLS: Final = frozenset(("aten::zero_", "aten::_foreach_zero_"))
#: Events of a loop's body besides ops, and the phases among them. Other events contain steps, or are not in
#: every step.
_ROLES: Final = [ROLE[name] for name in ("layer", "phase", "graph", "loader")]
_PHASES: Final = ("forward", "backward", "optimizer", "input")
#: Phases in which a model is evaluated, as Keras, MindSpore and Lightning name them.
EVALUATIONS: Final = ("evaluate", "predict", "evaluation", "validation", "test")
_AWAY: Final = (*EVALUATIONS, CHECKPOINT)
#: Domains of opscope's own ranges for the calls of models and compiled functions.
_OURS: Final = "opscope."
#: The domain of DLProf's databases, which define the iterations themselves.
_DLPROF: Final = "opscope.dlprof"
#: The op that runs a session of ONNX Runtime or an engine of TensorRT.
_SESSIONS: Final = ("session", "engine")
_VARIANT: Final = re.compile(r"__(?:inference|forward|backward)_(.+?)(?:_[0-9]+)?\Z")
#: How the text of a CUDA graph's run begins. The runs of one graph are steps or parts of steps.
_REPLAY: Final = GRAPH_REPLAY.split("{", 1)[0]
_COMPILED: Final = re.compile(r"p?jit_|pmap_")
#: Fewer calls than this do not make a loop.
LEAST: Final = 3
#: Least share of the marks that follow an optimizer's step if the optimizer's hook set them.
FOLLOWS: Final = 0.9
#: The domain of the steps that opscope records.
MARKS: Final = "opscope.step"


@dataclass(frozen=True, slots=True)
class Loop:
    """The outermost events of a thread: rows of ``ranges`` by time, and their kinds."""

    rows: Ints
    events: Events
    optimizes: NDArray[np.bool_]
    differentiates: NDArray[np.bool_]
    #: Per event, whether a backward pass differentiates it or an op inside it.
    is_differentiated: NDArray[np.bool_]


class Loops:
    """Reads the loops of a trace's threads; data common to all threads is read once."""

    def __init__(self, ranges: pl.DataFrame, meaning: Meaning, is_op: NDArray[np.bool_]) -> None:
        self._ranges, self._meaning, self._is_op = ranges, meaning, is_op
        names: dict[Any, int] = {}
        self.symbols = Symbols.of(meaning)
        symbols = self.symbols.number.tolist()
        said = list(zip(meaning.readings, meaning.texts, strict=True))
        called = [_called(reading, text) for reading, text in said]
        self._symbol = np.array(
            [
                names.setdefault(callee or _same(own, reading, text), len(names))
                for callee, own, (reading, text) in zip(called, symbols, said, strict=True)
            ],
            np.int64,
        )
        #: The names of the callees, and per reading the number of its name (-1: not a call).
        self._names = sorted({name for name in called if name is not None})
        numbers = {name: number for number, name in enumerate(self._names)}
        self._code = np.array([numbers.get(name or "", NONE) for name in called], np.int64)
        self._calls: Ints | None = None
        self._held, self._phase = (np.ones(len(said), bool) for _ in range(2))
        self._away, self._loads, self._passes = (np.zeros(len(said), bool) for _ in range(3))
        self._optimizes, self._differentiates = (np.zeros(len(said), bool) for _ in range(2))
        # a server has a reading for each of its steps
        marks = meaning.each(
            lambda reading: reading.role != "user" or reading.direction is not None
        )
        for code in np.flatnonzero(marks).tolist():
            reading, text = said[code]
            phase = text if reading.role == "phase" else None
            if phase is not None:
                self._held[code] = phase in (*_PHASES, CHECKPOINT) and phase != "forward"
                self._phase[code] = phase in (*_PHASES, *_AWAY)
                self._away[code] = phase in _AWAY
            self._loads[code] = phase == "input" or reading.role == "loader"
            self._passes[code] = phase == "forward" or reading.role in ("layer", "graph")
            said_by = (phase, reading.direction)
            if said_by != (None, None) and not _zeroes_gradients(reading, text):
                self._optimizes[code] = "optimizer" in said_by
                self._differentiates[code] = "backward" in said_by

    def loop(self, process: int, thread: int, phases: bool = True) -> Loop:
        """Return the outermost events of a thread; without ``phases``, ranges of forward phases are
        ignored."""
        ranges, meaning = self._ranges, self._meaning
        here = ((ranges["process"] == process) & (ranges["thread"] == thread)).fill_null(False)
        opened = self._phase if phases else self._held
        rows = np.flatnonzero(
            here.to_numpy()
            & (self._is_op | np.isin(meaning.role, _ROLES))
            & opened[meaning.reading]
        )
        start, end = (
            ranges[name].gather(rows).fill_null(0).to_numpy() for name in ("start", "end")
        )
        tree = nest(start, end)
        outer = tree.order[tree.parent < 0]
        outer = outer[np.argsort(start[outer], kind="stable")]
        top = rows[outer]
        reading = meaning.reading[top]
        differentiated = np.zeros(len(top), bool)
        ops = self._differentiated(process, rows)
        where = np.searchsorted(start[outer], start[ops], "right") - 1
        differentiated[where[where >= 0]] = True
        return Loop(
            top,
            Events(
                self._symbol[reading],
                start[outer],
                end[outer],
                self._passes[reading],
                self._away[reading],
            ),
            self._optimizes[reading],
            self._differentiates[reading],
            differentiated,
        )

    def steps_of_several(self, process: int, thread: int, loop: Loop, marked: Ints) -> Ints | None:
        """Return the ends (ns) of the steps of a program with several optimizers, if the marks (after the
        events ``marked`` of the loop) do not follow the order in which these step; else None."""
        works = loop.optimizes
        begin = np.flatnonzero(works & ~np.append(False, works[:-1]))
        last = np.flatnonzero(works & ~np.append(works[1:], False))
        if len(last) == len(marked):
            return None
        ranges = self._ranges
        here = ((ranges["process"] == process) & (ranges["thread"] == thread)).fill_null(False)
        rows = np.flatnonzero(here.to_numpy() & self._is_op)
        start = ranges["start"].gather(rows).fill_null(0).to_numpy()
        order = np.argsort(start, kind="stable")
        stop = loop.events.end[last]
        numbers = optimizers(
            self._meaning.readings,
            (start[order], self._meaning.reading[rows[order]].astype(np.int64)),
            loop.events.start[begin],
            stop,
        )
        loads = np.flatnonzero(self._loads[self._meaning.reading[loop.rows]])
        batches = np.searchsorted(loads, begin)
        chosen = ends_of_rounds(numbers, np.flatnonzero(np.isin(last, marked)), batches)
        return None if chosen is None else stop[chosen]

    def _differentiated(self, process: int, rows: Ints) -> Ints:
        """Return the places in ``rows`` of the ops that a backward op of the process differentiates.

        PyTorch gives an op that is not differentiated the number of the next op that is, so the last op with
        a number counts.
        """
        meaning = self._meaning
        seq = meaning.seq.gather(rows).fill_null(NONE).to_numpy()
        backward = self._differentiates[meaning.reading]
        of = (self._ranges["process"] == process).fill_null(False).to_numpy()
        numbers = meaning.seq.gather(np.flatnonzero(backward & of)).drop_nulls().unique().to_numpy()
        own = np.flatnonzero((seq >= 0) & ~backward[rows] & np.isin(seq, numbers))
        own = own[np.argsort(self._ranges["start"].gather(rows[own]).to_numpy(), kind="stable")]
        _, last = np.unique(seq[own][::-1], return_index=True)
        return np.sort(own[::-1][last])

    def calls(self, process: int, functions: frozenset[str] | None, alone: bool) -> Calls | None:
        """Return the calls that are the steps of a process: calls of ``functions``, or, if nothing is
        trained, of the model, session or function that takes most time, if each one's longest call is left
        out.

        ``alone``: it is not known that these functions update the weights. If another function may do so
        after several calls of them, it is unknown which of the two is the step.
        """
        ranges, meaning, names, code = self._ranges, self._meaning, self._names, self._code
        if self._calls is None:  # computed once for all processes
            rows = np.flatnonzero(code[meaning.reading] >= 0)
            domain = ranges["domain"].gather(rows).cast(pl.String)
            recorded = domain.str.starts_with(_OURS) & (domain != _DLPROF)
            ours = recorded.fill_null(False).to_numpy()
            self._calls = rows[ours | (meaning.role[rows] == ROLE["graph"])]
        of = ranges["process"].gather(self._calls)
        rows = self._calls[(of == process).fill_null(False).to_numpy()]
        if not len(rows):
            return None
        threads = ranges["thread"].gather(rows).drop_nulls().mode()
        if threads.is_empty():
            return None
        thread = int(threads.min())  # type: ignore[arg-type]
        loop = self.loop(process, thread, phases=False)
        name = code[meaning.reading[loop.rows]]
        length = loop.events.end - loop.events.start
        wanted = [
            number
            for number in np.unique(name[name >= 0]).tolist()
            if np.count_nonzero(name == number) >= LEAST
            and (functions is None or names[number].removeprefix(_FUNCTION) in functions)
        ]
        if not wanted:
            return None
        best = max(
            wanted, key=lambda number: self._time(process, names[number], length[name == number])
        )
        places = np.flatnonzero(name == best)
        if alone and any(
            self._may_update(process, names[other], places, np.flatnonzero(name == other))
            for other in np.unique(name[name >= 0]).tolist()
            if other != best
        ):
            return None
        return Calls(thread, loop, places, names[best], self._shapes(process, loop, places))

    def _may_update(self, process: int, name: str, places: Ints, others: Ints) -> bool:
        """Return whether a function is called once for every N calls of another (N is fixed, at least 2)
        and multiplies no matrices: it may apply the gradients of N batches."""
        apart = np.diff(np.searchsorted(places, others, side="right"))
        if len(apart) < 2 or apart.min() < 2 or (apart != apart[0]).any():
            return False
        own = name.removeprefix(_FUNCTION)
        ops = [
            reading.call.name
            for reading in self._meaning.readings
            if reading.call is not None and plain(function_of(reading) or "") == own
        ]
        return bool(ops) and not any(part in op for op in ops for part in ("dot", "conv", "matmul"))

    def _shapes(self, process: int, loop: Loop, places: Ints) -> int:
        """Return for how many shapes the function or model was compiled; 1 if unknown."""
        ranges, meaning = self._ranges, self._meaning
        texts = len(np.unique(meaning.reading[loop.rows[places]]))
        if meaning.role[loop.rows[places[0]]] != ROLE["graph"]:
            return 1
        compiles = np.array(
            [
                reading.role == "phase" and text.split(" ", 1)[0] == COMPILE
                for reading, text in zip(meaning.readings, meaning.texts, strict=True)
            ],
            bool,
        )
        rows = np.flatnonzero(
            compiles[meaning.reading] & (ranges["process"] == process).fill_null(False).to_numpy()
        )
        start = np.sort(ranges["start"].gather(rows).to_numpy())
        low = np.searchsorted(start, loop.events.start[places], "left")
        high = np.searchsorted(start, loop.events.end[places], "left")
        return max(texts, int(np.count_nonzero(high > low)), 1)

    def ends_of_runs(self, rows: Ints, calls: Calls) -> Ints | None:
        """Return when (ns) the operations of each of these calls ended, among the ops ``rows``: Such
        operations ran equally often in every call, with any shapes; operations in between count, too,
        because calls run in their order. None if these are fewer than ``LIKE`` of all: another shape is
        another program."""
        own = calls.name.removeprefix(_FUNCTION)
        function = self._meaning.each(lambda reading: plain(function_of(reading) or "") == own)
        rows = rows[function[self._meaning.reading[rows]]]
        start, end = (self._ranges[edge].gather(rows).fill_null(0) for edge in ("start", "end"))
        symbol = self._symbol[self._meaning.reading[rows]]
        ran = pl.DataFrame({"op": symbol, "start": start, "end": end}).sort("start")
        common = ran.with_columns(
            pl.int_range(pl.len()).over("op").alias("at"), pl.len().over("op").alias("often")
        ).filter(pl.col("often") % len(calls.places) == 0)
        if not len(common) or len(common) < LIKE * len(ran):
            return None
        of_call = common.group_by(pl.col("at") * len(calls.places) // pl.col("often"))
        begins = of_call.agg(pl.col("start").min()).sort("at")["start"].to_numpy()
        until = np.append(np.searchsorted(ran["start"].to_numpy(), begins[1:]), len(ran))
        ends: Ints = np.maximum.accumulate(ran["end"].to_numpy())[until - 1]
        return ends

    def _time(self, process: int, name: str, length: Ints) -> int:
        """Return the time of the calls of a name without the longest (which may include compilation); for
        a function that runs on other threads, the time of its operations."""
        ranges, meaning = self._ranges, self._meaning
        own = name.removeprefix(_FUNCTION)
        function = meaning.each(lambda reading: plain(function_of(reading) or "") == own)
        rows = np.flatnonzero(
            function[meaning.reading]
            & self._is_op
            & (ranges["process"] == process).fill_null(False).to_numpy()
        )
        if name.startswith(_FUNCTION) and len(rows):
            start, end = (ranges[edge].gather(rows).fill_null(0) for edge in ("start", "end"))
            return int((end - start).sum())
        return int(length.sum() - length.max())


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of one function, model or session on a thread: its events in the loop, its name, and its
    number of shapes."""

    thread: int
    loop: Loop
    places: Ints
    name: str
    shapes: int


_FUNCTION: Final = "function "


def plain(name: str) -> str:
    """Return the name of a compiled function in the form that its runs and its operations share."""
    match = _VARIANT.match(name)
    return re.sub(r"\W", "_", match.group(1) if match else _COMPILED.sub("", name, count=1))


def _called(reading: Reading, text: str) -> str | None:
    """Return the name of what a range calls: a compiled function, a model, a session; None for other
    ranges."""
    if reading.role == "graph" and not text.startswith(_REPLAY):
        return _FUNCTION + plain(reading.graph or text)
    if reading.role == "layer" and reading.layer:
        return f"model {reading.layer}"
    if reading.role == "op" and reading.call is not None:
        session = next(
            (
                reading.call.param(name)
                for name in _SESSIONS
                if reading.call.param(name) is not None
            ),
            None,
        )
        if session is not None:
            return f"session {reading.call.param('model') or session}"
    return None


def _zeroes_gradients(reading: Reading, text: str) -> bool:
    """Whether a range sets gradients to zero: the optimizer's own call for it, not its step."""
    return "zero_grad" in text[:64] or (reading.call is not None and reading.call.name in _FILLS)


def _same(own: int, reading: Reading, text: str) -> Any:
    """For readings that are no calls, return a key; equal keys may replace each other in different steps."""
    if own >= 0:
        return own
    return (reading.role, "" if reading.role == "loader" else text)


def steps_of_calls(loop: Loop, places: Ints, ends: Ints, late: bool) -> tuple[Ints, Ints]:
    """Return when (ns) each step began and ended, if the core of each step is a call (the events at
    ``places``)."""
    return bodies(loop.events, Cores(places, places + 1, ends, late))


def cores_of(loop: Loop, ends: Ints) -> Cores | None:
    """Return the cores of the steps that ended at ``ends`` (ns): from the first forward op that a backward
    pass differentiates; else from the forward pass before the first backward op."""
    last = np.searchsorted(loop.events.start, ends, "left")
    low = np.concatenate(([0], last[:-1]))
    if (last <= low).any():
        return None
    first = np.array(
        [_head(loop, int(begin), int(stop)) for begin, stop in zip(low, last, strict=True)],
        np.int64,
    )
    return Cores(first, last, ends)


def _head(loop: Loop, low: int, high: int) -> int:
    part = slice(low, high)
    if loop.is_differentiated[part].any():
        return low + int(np.argmax(loop.is_differentiated[part]))
    work = loop.differentiates[part] | loop.optimizes[part]
    if not work.any():
        return high - 1
    begin = low + int(np.argmax(work))
    before = np.flatnonzero(loop.events.passes[low:begin])
    return low + int(before[-1]) if len(before) else begin


def with_bodies(loop: Loop, ends: Ints) -> tuple[Ints, Ints] | None:
    """Return when (ns) each step that ended at ``ends`` began and ended; None if the events show no loop."""
    cores = cores_of(loop, ends)
    return None if cores is None else bodies(loop.events, cores)


def share_alike(loop: Loop, ends: Ints) -> float:
    """Return the share of steps whose optimizer ran the same ops as in the previous step."""
    last = np.searchsorted(loop.events.start, ends, "left")
    tails = [loop.events.symbol[end - 1] for end in last.tolist()]
    return float(np.mean([tail == tails[-1] for tail in tails]))


def marks_of_optimizer(
    ranges: pl.DataFrame, meaning: Meaning, loops: Loops, process: int
) -> tuple[int, Loop, Ints, Ints] | None:
    """Return the thread, its loop, the ends (ns) of the steps that an optimizer's hook marked, and their
    numbers; None if something else marked the steps."""
    steps = np.flatnonzero(meaning.role == ROLE["step"])
    rows = ranges.select("process", "thread", "start", "end", "domain", "attrs")[
        steps
    ].with_columns(
        pl.Series(
            "step", [meaning.readings[code].step for code in meaning.reading[steps]], pl.Int64
        )
    )
    rows = rows.filter(
        (pl.col("process") == process) & (pl.col("domain").cast(pl.String) == MARKS)
    ).sort("start")
    threads = rows["thread"].drop_nulls().unique()
    if len(threads) != 1 or rows["step"].null_count():
        return None
    thread = int(threads[0])
    loop = loops.loop(process, thread)
    if not len(loop.rows):
        return None
    ended = rows.filter(~pl.col("attrs").str.contains(UNCLOSED_MARK, literal=True).fill_null(False))
    # the first mark may be the end of a step whose begin has no mark
    ends = np.concatenate((rows["start"].to_numpy()[:1], ended["end"].to_numpy()))
    numbers = np.concatenate((rows["step"].to_numpy()[:1] - 1, ended["step"].to_numpy()))
    before = np.searchsorted(loop.events.start, ends, "left") - 1
    last = np.maximum(before, 0)
    follows = (before >= 0) & loop.optimizes[last]
    if not follows.any():  # the training step is compiled
        symbol = loop.events.symbol[last]
        usual = np.bincount(symbol).argmax()
        follows = (before >= 0) & (symbol == usual) & loop.events.passes[last]
        # the first run is known to be a step only when the second begins
        runs = np.flatnonzero((loop.events.symbol == usual) & loop.events.passes)
        if len(runs) == len(ended) and follows[1:].all():
            return thread, loop, loop.events.end[runs], ended["step"].to_numpy()
    follows[0] &= loop.events.end[last[0]] <= ends[0]
    if len(ends) < 2 or follows[1:].mean() < FOLLOWS:
        return None
    follows[1:] = True  # if gradients overflow, a step ends without the optimizer's step
    several = loops.steps_of_several(process, thread, loop, last[follows])
    if several is not None:
        return thread, loop, several, numbers[follows][0] + np.arange(len(several))
    return thread, loop, ends[follows], numbers[follows]

"""Predict how long the run would take if some work took less or more time: replay the graph with scaled
durations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.critical.edits import MOST
from opscope.core.analysis.critical.graph import Graph, full_graph
from opscope.core.analysis.critical.scaled import SCHEMA, Scaled
from opscope.core.analysis.critical.work import COMMUNICATION, COPY, names
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.question import parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, compact
from opscope.core.tables.intervals import NONE, Floats, distinct, nest


class NothingSelected(ValueError):
    """A change names an op or a kernel that the trace does not have."""


@dataclass(frozen=True, slots=True)
class Change:
    """Factors for durations: 0 removes the work, 1 leaves it as it is.

    ``ops``: by name, for the host's time inside an op and the device work launched there; if nested ops are
    named, the innermost decides. ``kernels``: by name. In both ``*`` matches any text. ``copies``,
    ``communication``: for all copies and all collectives. ``launches``: for the calls that launch work and
    the delay until it starts. ``host``: for all time of threads in which they do not wait. Raises ValueError
    for a factor that is negative, not finite, or above 1000.
    """

    ops: Mapping[str, float] = field(default_factory=dict)
    kernels: Mapping[str, float] = field(default_factory=dict)
    copies: float = 1.0
    communication: float = 1.0
    launches: float = 1.0
    host: float = 1.0

    def __post_init__(self) -> None:
        """Check the factors."""
        single = {
            name: getattr(self, name) for name in ("copies", "communication", "launches", "host")
        }
        for name, factor in (*self.ops.items(), *self.kernels.items(), *single.items()):
            if not math.isfinite(factor) or not 0 <= factor <= MOST:
                raise ValueError(f"{name}: the factor {factor} is not between 0 and {MOST:g}")


def factors(texts: Iterable[str]) -> dict[str, float]:
    """Return the factor by name of ``NAME=FACTOR`` texts; a name may contain ``=``. Raises ValueError."""
    factor_of: dict[str, float] = {}
    for text in texts:
        name, _, factor = text.rpartition("=")
        try:
            factor_of[name] = float(factor)
        except ValueError:
            name = ""
        if not name:
            raise ValueError(f"{text!r} is not NAME=FACTOR, such as aten::mm=0.5")
    return factor_of


def what_if(ops: Ops, graph: Graph, change: Change) -> pl.DataFrame:
    """Return the window's time with ``change``, then each step's: SCHEMA, one row each (ns).

    The first row is the whole window (``step`` is null); ``removed_time`` is the sum of all durations that
    the change removes, on the path or not; no saving can be larger. A step's time is that from its start to
    its end on the thread that marks it. Raises NothingSelected for a name that does not occur.
    """
    changed = Scaled.of(graph)
    changed.device(_device_factors(ops, graph, change))
    changed.launching(float(change.launches))
    _scale_host(ops, changed, change)
    return changed.times(ops)


def _device_factors(ops: Ops, graph: Graph, change: Change) -> Floats:
    """Return the factor of each place of the work."""
    work = graph.work
    factor = np.ones(len(work))
    factor[work.what == COPY] *= change.copies
    factor[work.what == COMMUNICATION] *= change.communication
    if change.kernels:
        codes, texts = compact(names(work, ops.attribution, np.arange(len(work))))
        factor *= _by_name(texts, change.kernels, "kernel")[codes] if len(work) else 1.0
        if not len(work):
            raise NothingSelected("the trace has no kernels")
    if change.ops:
        wanted, by_reading = _wanted(ops, change)
        row = ops.attribution.climb(work.op.astype(np.int64), wanted)
        reading = at(ops.attribution.meaning.reading, row)
        factor *= np.where(reading >= 0, by_reading[np.maximum(reading, 0)], 1.0)
    return factor


def _wanted(ops: Ops, change: Change) -> tuple[NDArray[np.bool_], Floats]:
    """Return whether each range row is a named op, and the factor of each reading."""
    meaning, texts = ops.attribution.meaning, ops.readings["op"].cast(pl.String).to_list()
    used = np.zeros(len(texts), bool)
    used[np.unique(meaning.reading[ops.rows])] = True
    names = [text if used[index] else None for index, text in enumerate(texts)]
    by_reading = _by_name(names, change.ops, "op", unnamed=np.nan)
    wanted = ops.attribution.is_op & np.isfinite(by_reading)[meaning.reading]
    return wanted, by_reading


def _by_name(
    texts: list[str | None], factors: Mapping[str, float], noun: str, unnamed: float = 1.0
) -> Floats:
    """Return the factor of each text; if several patterns match, the last one given counts."""
    found = np.full(len(texts), unnamed)
    for name, factor in factors.items():
        pattern = re.compile(".*".join(map(re.escape, name.split("*"))), re.DOTALL)
        fits = np.array([bool(text and pattern.fullmatch(text)) for text in texts], bool)
        if not fits.any():
            raise NothingSelected(f"the trace has no {noun} named {name!r}")
        found[fits] = factor
    return found


def _scale_host(ops: Ops, changed: Scaled, change: Change) -> None:
    """Scale the threads' own work between their nodes."""
    if not change.ops and change.host == 1.0 and change.launches == 1.0:
        return
    graph = changed.made
    threads, meaning = graph.host, ops.attribution.meaning
    wanted, by_reading = _wanted(ops, change) if change.ops else (None, np.empty(0))
    launches = np.zeros(len(ops.attribution.trace["calls"]) + 1, bool)
    launches[graph.work.call[graph.work.call >= 0]] = True
    host = graph.kind[: graph.host_nodes]
    for lane in range(graph.threads):
        nodes = np.flatnonzero(graph.lane[: len(host)] == lane)
        if not len(nodes):
            continue
        mine = threads.events(lane)
        event = threads.event[mine]
        kept = np.zeros(len(mine), bool)
        if wanted is not None:
            kept |= (event >= 0) & wanted[np.maximum(event, 0)]
        named, call = mine[kept], mine[:0]
        if change.launches != 1.0:
            call = mine[(event < NONE) & launches[np.maximum(-2 - event, 0)]]
        named_at, call_at = (
            (threads.start[rows] - graph.low, threads.stop[rows] - graph.low)
            for rows in (named, call)
        )
        zero = np.zeros(1, np.int64)
        edges = distinct(zero, *named_at, *call_at)
        factor = np.full(len(edges), float(change.host))
        inner = nest(*named_at).innermost(edges)
        is_named = inner >= 0
        reading = meaning.reading[threads.event[named[inner[is_named]]]]
        factor[is_named] *= by_reading[reading]
        calling = nest(*call_at).innermost(edges) >= 0
        factor[calling] *= change.launches
        changed.host(nodes, edges, factor)


def answer(
    profile: Answers,
    *,
    ops: Mapping[str, float] | None = None,
    kernels: Mapping[str, float] | None = None,
    copies: float = 1.0,
    communication: float = 1.0,
    launches: float = 1.0,
    host: float = 1.0,
) -> pl.DataFrame:
    """The time that the run and each step would take if the durations of some work were multiplied.

    A factor of 0 removes work, 0.5 makes it twice as fast. ``ops``: by name, for the host's time inside
    the op and the device work launched there. ``kernels``: by name. In both, ``*`` in a name stands for
    any text. ``copies``: for all copies between memories; ``communication``: for collectives, without
    the wait for other ranks; ``launches``: for the calls that launch work and the delay until it starts;
    ``host``: for all time in which threads do not wait. All dependencies are kept: what waited still
    waits. The first row is the whole window; without a change it is the measured time exactly. Times
    are in ns. Raises ValueError for a factor below 0 or above 1000, and for a name that nothing has.
    """
    change = Change(ops or {}, kernels or {}, copies, communication, launches, host)
    timeline = profile.of(full_graph)
    if timeline is None:
        return pl.DataFrame(schema=SCHEMA)
    return what_if(profile.of(op_index), timeline, change)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "what_if()",
            "the whole trace, then one row per step",
            columns(
                "process step wall_time new_wall_time saving saving_share removed_time",
                """
                step: number: the step's number; null for the whole trace
                wall_time: ns: time that it took; of a step, from its start to its end on its thread
                removed_time: ns: durations that the change takes away, on the critical path or not, added
                    up: no saving is larger; null for a step
                """,
            ),
        ),
    ),
    parameters={
        "ops": parameters.value("a factor for each name of ops"),
        "kernels": parameters.value("a factor for each name of kernels"),
        "copies": parameters.value("a factor for copies between memories"),
        "communication": parameters.value("a factor for collectives"),
        "launches": parameters.value("a factor for launches"),
        "host": parameters.value("a factor for the host"),
    },
    kept=False,
    as_text=False,
)

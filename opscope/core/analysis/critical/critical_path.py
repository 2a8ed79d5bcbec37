"""The critical path, piece by piece, and its totals: the chain of work that determined how long the run
took."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.critical.critical_table import EMPTY, with_notes
from opscope.core.analysis.critical.graph import Graph, full_graph, make_graph
from opscope.core.analysis.critical.path import KINDS, Pieces, pieces
from opscope.core.analysis.critical.work import names
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, gather, spread
from opscope.core.tables.intervals import NONE, Ints, nest

SCHEMA: Final = {
    "start": pl.Int64,
    "end": pl.Int64,
    "duration": pl.Int64,
    "kind": pl.Categorical,
    "name": pl.Categorical,
    "op": pl.Categorical,
    "direction": pl.Categorical,
    "layer": pl.Categorical,
    "source": pl.Categorical,
    "step": pl.Int64,
    "process": pl.Int32,
    "thread": pl.Int64,
    "device": pl.Int32,
    "stream": pl.Int64,
}
#: The words by which totals can be divided, with the columns of each.
BY: Final = {
    "kind": ("kind",),
    "op": ("op", "kind"),
    "layer": ("layer", "kind"),
    "kernel": ("name", "kind"),
    "step": ("process", "step", "kind"),
}
_WORKED: Final = ("kernel", "copy", "set", "communication")


def critical_path(ops: Ops, graph: Graph | None) -> pl.DataFrame:
    """Return the critical path, a row for each piece, by time: SCHEMA, times in ns.

    Each piece begins where the one before ends, so the durations add up to the window's length. Pieces are
    cut where a step begins or ends on their process.
    """
    if graph is None:
        return pl.DataFrame(schema=SCHEMA)
    path = _by_step(graph, pieces(graph))
    device = path.work >= 0
    process, thread, on_device, stream = _places(graph, path)
    op = _op_rows(ops, graph, path)
    distinct, index = np.unique(op[op >= 0], return_inverse=True)
    code = np.full(len(op), NONE, np.int64)
    code[op >= 0] = index.reshape(-1)
    about = ops.identify(distinct.astype(np.int64))
    start = path.start + graph.low
    step = ops.context.step(process, thread, start)
    layer, source = gather(about.layer, code), gather(about.source, code)
    bare = np.flatnonzero((op < 0) & ~device)
    if len(bare):  # outside any op, the layer is the one open on the thread
        where = process[bare], thread[bare], start[bare]
        layer = layer.scatter(bare, ops.context.layer(*where))
    on_thread = pl.Series(thread >= 0) & ~pl.Series(device)
    frame = pl.DataFrame(
        {
            "start": start,
            "end": path.end + graph.low,
            "duration": path.end - path.start,
            "kind": spread("kind", list(KINDS), path.kind),
            "name": _names(ops, graph, path, gather(about.call["op"], code)),
            "op": gather(about.call["op"], code),
            "direction": gather(about.direction, code),
            "layer": layer,
            "source": source,
            "step": step,
            "process": pl.Series(process),
            "thread": pl.Series(thread),
            "device": pl.Series(on_device),
            "stream": pl.Series(stream),
        }
    )
    nothing = pl.lit(None)
    return frame.with_columns(
        pl.when(on_thread).then("thread").otherwise(nothing),
        *(
            pl.when(pl.col(name) != NONE).then(name).otherwise(nothing)
            for name in ("process", "device", "stream")
        ),
    ).select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())


def critical_totals(path: pl.DataFrame, by: str) -> pl.DataFrame:
    """Return the path's time by ``kind``, ``op``, ``layer``, ``kernel`` or ``step``, the largest first.

    Columns: those of ``BY``, time (ns), share (of the whole path), pieces. The times add up to the path's
    length, except for ``kernel``, which has only device work. Raises ValueError for another ``by``.
    """
    if by not in BY:
        raise ValueError(f"by must be {', '.join(BY)}, not {by!r}")
    keys = BY[by]
    total = int(path["duration"].sum())
    rows = path.filter(pl.col("kind").cast(pl.String).is_in(_WORKED)) if by == "kernel" else path
    sums = rows.group_by(keys).agg(
        pl.col("duration").sum().alias("time"), pl.len().cast(pl.Int64).alias("pieces")
    )
    text = [
        pl.col(key).cast(pl.String) if key not in ("process", "step") else pl.col(key)
        for key in keys
    ]
    first = [] if by != "step" else text[:2]
    return (
        sums.with_columns((pl.col("time") / (total or None)).alias("share"))
        .sort(
            *first, "time", *text,
            descending=[*[False] * len(first), True, *[False] * len(text)],
            nulls_last=True,
        )
        .select(*keys, "time", "share", "pieces")
    )  # fmt: skip


def _by_step(graph: Graph, path: Pieces) -> Pieces:
    """Return the pieces cut at the edges of steps."""
    edges = np.unique(
        np.concatenate([graph.steps[name].to_numpy() for name in ("start", "end")]).astype(np.int64)
    )
    edges = edges - graph.low
    index = np.searchsorted(path.end, edges, "right")
    inside = (index < len(path)) & (at(path.start, np.minimum(index, len(path) - 1)) < edges)
    if not inside.any():
        return path
    start = np.sort(np.concatenate([path.start, edges[inside]]))
    of = np.searchsorted(path.start, start, "right") - 1
    end = np.append(start[1:], path.end[-1])
    return Pieces(start, end, path.kind[of], path.lane[of], path.work[of], path.event[of])


def _places(graph: Graph, path: Pieces) -> tuple[Ints, Ints, Ints, Ints]:
    """Return process, thread, device and stream of each piece, -1 where there is none."""
    threads = np.array([*graph.host.keys, (NONE, NONE)], np.int64)
    streams = np.array([*graph.work.keys, (NONE,) * 4], np.int64)
    on = np.where(path.work >= 0, at(graph.work.lane, path.work), NONE)
    thread, stream = threads[path.lane], streams[on]
    process = np.where(path.work >= 0, stream[:, 0], thread[:, 0])
    return process, thread[:, 1], stream[:, 1], stream[:, 3]


def _op_rows(ops: Ops, graph: Graph, path: Pieces) -> Ints:
    """Return the row of the op of each piece, -1 for none; for a call, the innermost op around it."""
    rows = np.where(path.event >= 0, path.event, at(graph.work.op, path.work)).astype(np.int64)
    calls = path.event < NONE
    for lane in np.unique(path.lane[calls]).tolist():
        here = np.flatnonzero(calls & (path.lane == lane))
        mine = graph.host.events(lane)
        mine = mine[graph.host.event[mine] >= 0]
        inner = nest(graph.host.start[mine], graph.host.stop[mine]).innermost(
            path.start[here] + graph.low
        )
        rows[here] = np.where(inner >= 0, at(graph.host.event[mine], inner), NONE)
    return rows


def _names(ops: Ops, graph: Graph, path: Pieces, op: pl.Series) -> pl.Series:
    """Return the name of each piece: that of the device work, else of the call, else of the op;
    Categorical."""
    worked = np.flatnonzero(path.work >= 0)
    called = np.flatnonzero(path.event < NONE)
    found = op.cast(pl.String)
    if len(worked):
        found = found.scatter(
            worked, names(graph.work, ops.attribution, path.work[worked]).cast(pl.String)
        )
    if len(called):
        row: NDArray[np.int64] = -2 - path.event[called]
        calls = ops.attribution.trace["calls"]["name"].gather(row)
        found = found.scatter(called, calls.cast(pl.String))
    named: pl.Series = found.alias("name").cast(pl.Categorical)
    return named


def answer(profile: Answers, *, categories: bool = False) -> pl.DataFrame:
    """The critical path: one row per piece, by time; each piece begins where the one before ends.

    The path goes back from the last event of the trace, always to what was waited for last, so it says
    for each moment what held up the run. The durations (ns) add up to the summary's ``wall_time``.
    ``notes(critical_path=True)`` says which dependencies are inferred because the trace does not record
    them.
    """
    # for a million kernels the graph takes 0.3 GB, so only what_if, which reuses it, keeps it
    timeline = profile.of(full_graph) if profile._has(full_graph) else make_graph(profile)
    return critical_path(profile.of(op_index), timeline)


def answer_totals(profile: Answers, by: str = "kind") -> pl.DataFrame:
    """The critical path's time (ns) by ``kind``, ``op``, ``layer``, ``kernel`` or ``step``.

    The times add up to the path's, except that ``kernel`` has kernels, copies and sets alone. Raises
    ValueError for another ``by``.
    """
    return critical_totals(profile.ask("critical_path", categories=True), by)


_WORDS: Final = """
kind: text: what the time went to: op (host time inside an op), call (CUDA call), host (a thread outside any
    op), launch (from a launch to the start of its work), kernel, copy, set, communication, gap (a usual gap
    between device work), sync (from the end of the work to the return of the call that waited for it),
    unexplained (the trace does not show what was waited for)
name: text: the device work's name (of a launch or gap, of the work that waited; of a sync, of the work that
    it waited for), the call's, else the op's
op: text: the op that ran, or that launched the device work; null outside any op
time: ns: time on the critical path
share: fraction: time / length of the critical path
pieces: count: pieces of the critical path
"""


def _totals(by: str, keys: str, row: str) -> Frame:
    return Frame(
        f'critical_totals("{by}")',
        f"one row per {row} of the critical path, the most time first",
        columns(f"{keys} time share pieces", _WORDS),
    )


def _report(name: str, title: str, by: str, shown: str, empty: str = EMPTY) -> Report:
    return Report(
        name=name,
        title=title,
        empty=empty,
        asked={"by": by},
        shown=shown,
        table=with_notes,
        sums="time pieces",
        written=False,
    )


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "critical_path()",
                "one row per piece of the critical path, by time; each begins where the one before ends",
                columns(
                    "start end duration kind name op direction layer source step process thread device"
                    " stream",
                    _WORDS,
                    "duration: ns: end - start",
                ),
            ),
        ),
        merged=lacking.PATHS,
        reports=(
            Report(
                name="critical_path",
                title="Critical path, piece by piece",
                empty=EMPTY,
                asked={"categories": True},
                shown="start duration kind name op layer thread stream",
                table=with_notes,
                sums="duration",
                written=False,
            ),
        ),
    ),
    Question(
        answer=answer_totals,
        frames=(
            _totals("kind", "kind", "what the time went to"),
            _totals("op", "op kind", "op and kind"),
            _totals("layer", "layer kind", "layer and kind"),
            _totals("kernel", "name kind", "name of device work"),
            _totals("step", "process step kind", "process, step and kind"),
        ),
        parameters={"by": parameters.choice("what a row is", BY)},
        merged=lacking.PATHS,
        reports=(
            _report(
                "critical_totals",
                "Critical path: what held up the run",
                "kind",
                "share time kind pieces",
            ),
            _report("critical_ops", "Critical path by op", "op", "share time op kind pieces"),
            _report(
                "critical_layers", "Critical path by layer", "layer", "share time layer kind pieces"
            ),
            _report(
                "critical_kernels",
                "Device work on the critical path",
                "kernel",
                "share time name kind pieces",
                "no kernel, copy or set is on the critical path",
            ),
            _report(
                "critical_steps",
                "Critical path by step",
                "step",
                "process step share time kind pieces",
            ),
        ),
    ),
)

"""List the collectives and messages of each process; ``numbering`` matches them between ranks.

On a GPU, a collective is a kernel. On a CPU, the call returns at once, and a range on the backend's own
thread shows when it ran (``gloo:all_reduce``).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.enclosing import source_text
from opscope.core.communication import HOST_BACKENDS, TORCH
from opscope.core.group_specs import rank_at
from opscope.core.perf import kinds
from opscope.core.perf.ops.communication import buffer_bytes, collective
from opscope.core.schema import DIRECTIONS, OpCall
from opscope.core.tables.columns import at, gather, spread
from opscope.core.tables.intervals import NONE, Ints, merge, subtract
from opscope.core.tables.ranks import groups
from opscope.core.tables.trace import UNRELATED, Trace

#: Collectives that no rank can finish before all ranks have begun.
SYNCHRONISING: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
#: Transfers from one rank to another.
POINT_TO_POINT: Final = ("send", "recv", "send_recv")
#: Columns that identify a process group: names alone repeat among siblings.
GROUP: Final = ("group", "members", "size")
#: The kind of a backend's range for a call: gloo scatters by a reduction of everything.
_KIND_OF_RANGE: Final = pl.col("kind").cast(pl.String).replace("reduce_scatter", "all_reduce")
_BACKENDS: Final = tuple(f"{backend}:" for backend in HOST_BACKENDS)
_RETURNING: Final = (*TORCH, "record_param")
_GROUP_KEYS: Final = ("group", "process_group", "group_name", "communicator")
_REDUCTIONS: Final = frozenset(
    ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
)

SCHEMA: Final = {
    "process": pl.Int32,
    "group": pl.Categorical,
    "members": pl.Categorical,
    "size": pl.Int64,
    "kind": pl.Categorical,
    "bytes": pl.Int64,
    "dtype": pl.Categorical,
    "reduction": pl.Categorical,
    "called": pl.Int64,
    "start": pl.Int64,
    "end": pl.Int64,
    "op": pl.Int64,
    "seq": pl.Int64,
    "comms": pl.String,
    "peer": pl.Int64,
}
#: Upper limits for the bytes of a collective and the ranks of a group; sums of thousands of such values fit
#: in 64 bits.
_MOST_BYTES, _MOST_RANKS = 1 << 44, 1 << 24
#: Kineto's fields: whether a collective completed; then those that identify it: its number in its group, and
#: its id among all.
_COMPLETED: Final = r'"completed": ?(true|false)\b'
_SEQ, _COMMS = r'"collective_seq": ?"?([0-9]{1,18})\b', r'"comms_id": ?"?([0-9]{1,20})\b'


def exchanges(attribution: Attribution) -> pl.DataFrame:
    """Return one row per collective and process, by process and time (SCHEMA; times in ns).

    ``called``: time of the program's call. ``start`` to ``end``: the time in which it ran in this process,
    including the wait for the other ranks; null if only the call was recorded. ``bytes``: the larger of input
    and output. ``reduction``: ``sum``, ``max`` …; null if not recorded. ``members``: the group's ranks, as
    ``group_specs.format_ranks`` writes them. ``op``: the row of ``ranges`` that called it. ``seq``: its
    number in its group; ``comms``: its id among all collectives; both null if not recorded. ``peer``: of a
    send or receive, the rank at its other end; null if not recorded, and of all other kinds.
    """
    trace = attribution.trace
    calls = _Calls(attribution)
    kernels = np.flatnonzero(_of_no_call(attribution, calls))
    on_gpu = trace["kernels"]["process"].gather(kernels)
    frames = [_of_kernels(trace["kernels"], kernels, attribution, calls)]
    frames.append(_of_calls(attribution, calls, set(on_gpu.unique().to_list())))
    return _of_groups(attribution, pl.concat(frames))


def called(attribution: Attribution, table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per outermost call of a collective or message (SCHEMA), whether it ran or not.

    ``start`` and ``end`` are the times of the work that it launched; null if that was not recorded. On a GPU,
    they are also null if the work never ended. ``completed``: whether it completed, if the source records
    that separately from the time; otherwise null. ``source``: the line that called it. ``table`` is
    ``exchanges``.
    """
    calls = _Calls(attribution)
    called_groups = _of_groups(attribution, _of_calls(attribution, calls, set()))
    ran = table.drop_nulls(["op", "start", "end"])
    times = ran.group_by("op").agg(
        pl.col("start").min().alias("from"), pl.col("end").max().alias("to")
    )
    table = called_groups.join(times, on="op", how="left", maintain_order="left")
    return table.with_columns(
        pl.coalesce("start", "from").alias("start"),
        pl.coalesce("end", "to").alias("end"),
        *_told(attribution, table["op"]),
    ).select(*SCHEMA, "completed", "source")


def _told(attribution: Attribution, op: pl.Series) -> list[pl.Series]:
    """Return ``completed`` and ``source`` of the calls in the rows ``op`` of ``ranges``."""
    rows = op.fill_null(NONE).to_numpy()
    state = gather(attribution.trace["ranges"]["attrs"], rows).str.extract(_COMPLETED)
    lines = attribution.meaning.each(
        lambda reading: (reading.call and source_text(reading.call.frames)) or None, object
    ).tolist()
    return [
        (state == "true").alias("completed"),
        spread("source", lines, at(attribution.meaning.reading, rows)).cast(pl.String),
    ]


def _of_groups(attribution: Attribution, table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows by process and time, with the members and sizes of their groups."""
    table = table.sort("process", "called", maintain_order=True)
    members = groups(attribution.trace).select(
        "process", "group", "ranks", pl.col("size").alias("of")
    )
    return (
        table.join(
            members.with_columns(pl.col("group", "ranks").cast(pl.Categorical)),
            on=["process", "group"],
            how="left",
            maintain_order="left",
        )
        .with_columns(pl.coalesce("members", "ranks"), pl.col("size").fill_null(pl.col("of")))
        .with_columns(
            pl.col(name).fill_null(pl.col(name).drop_nulls().first().over("process", "group"))
            for name in ("members", "size")  # not every record of a group has these fields
        )
        .with_columns(pl.coalesce("peer", _peer_of("members", "place")))
        .select(*SCHEMA)
        .pipe(of_own_jobs, attribution.trace)
    )


def of_own_jobs(table: pl.DataFrame, trace: Trace) -> pl.DataFrame:
    """Return collectives with the groups of unrelated files kept apart: equal group names do not mean equal
    groups there."""
    if not trace.origin.get(UNRELATED):
        return table
    first = [part.get("first_process", 0) for part in trace.origin.get("parts", ())]
    process = table["process"].fill_null(NONE).to_numpy()
    # with very many files, a merge does not store which process belongs to which file
    number = np.searchsorted(np.unique(first), process, "right") if any(first) else process + 1
    file = pl.Series("file", number).cast(pl.String)
    group = pl.concat_str(pl.col("group").cast(pl.String), pl.lit(" of file "), file)
    return table.with_columns(group.cast(table.schema["group"]).alias("group"))


def _peer_of(members: str, rank_column: str) -> pl.Expr:
    """Return the rank at ``rank_column`` of the group's ``members``."""

    def ranks(distinct: pl.Series) -> pl.Series:
        ranks_of_rows = [
            rank_at(pair[members], pair[rank_column])
            if pair[members] and pair[rank_column] is not None
            else None
            for pair in distinct.to_list()
        ]
        return pl.Series(ranks_of_rows, dtype=pl.Int64)

    def spread_(both: pl.Series) -> pl.Series:
        distinct = both.unique()
        return both.to_frame("both").join(
            pl.DataFrame({"both": distinct, "rank": ranks(distinct)}), on="both", how="left",
            maintain_order="left", nulls_equal=True,
        )["rank"]  # fmt: skip

    return pl.struct(pl.col(members).cast(pl.String), rank_column).map_batches(
        spread_, return_dtype=pl.Int64
    )


def communicating(attribution: Attribution) -> NDArray[np.bool_]:
    """Return whether each kernel is a collective's, or of a transfer between two ranks.

    The kernel's name shows it, or the kernel was launched by a collective's op or an op inside one
    (``core.communication``).
    """
    named = kinds.communicates(attribution.trace["kernels"]["name"])
    meaning = attribution.meaning
    talks = meaning.talks
    if not talks.any():
        return named
    directed = meaning.each(lambda reading: reading.direction in DIRECTIONS)[meaning.reading]
    owner = attribution.climb(attribution.kernels.op.astype(np.int64), directed)
    of_op: NDArray[np.bool_] = at(talks[meaning.reading], owner, False)
    return named | of_op


def on_host(attribution: Attribution) -> dict[int, tuple[Ints, Ints]]:
    """Return by process (-1: not recorded) the times at which a backend ran collectives on host threads."""
    meaning = attribution.meaning
    of_backend = meaning.each(lambda r: r.call is not None and r.call.name.startswith(_BACKENDS))
    rows = of_backend[meaning.reading] & attribution.is_op
    table = attribution.trace["ranges"][np.flatnonzero(rows)]
    return {
        NONE if process is None else int(process): merge(
            part["start"].to_numpy(), part["end"].to_numpy()
        )
        for (process,), part in table.group_by("process")
    }


def computing(attribution: Attribution, chosen: NDArray[np.bool_]) -> dict[int, tuple[Ints, Ints]]:
    """Return by process (-1: not recorded) the times at which an op of the ``chosen`` rows ran that is not a
    collective.

    Time in which a collective inside such an op blocks its thread is not counted as computing.
    """
    ranges, meaning = attribution.trace["ranges"], attribution.meaning
    talks = meaning.talks
    talking = attribution.is_op & talks[meaning.reading]
    threads = ["process", "thread"]

    def by_thread(rows: NDArray[np.bool_]) -> dict[tuple[Any, ...], tuple[Ints, Ints]]:
        table = ranges[np.flatnonzero(rows)].select(*threads, "start", "end")
        return {
            key: merge(part["start"].to_numpy(), part["end"].to_numpy())
            for key, part in table.group_by(threads)
        }

    waits = by_thread(talking & (attribution.parent >= 0))
    found: dict[int, list[tuple[Ints, Ints]]] = {}
    for (process, thread), spans in by_thread(chosen & ~talking).items():
        part = subtract(spans, waits[process, thread]) if (process, thread) in waits else spans
        found.setdefault(NONE if process is None else int(process), []).append(part)
    return {
        process: merge(*(np.concatenate([part[place] for part in parts]) for place in (0, 1)))
        for process, parts in found.items()
    }


def _of_no_call(attribution: Attribution, calls: _Calls) -> NDArray[np.bool_]:
    """Return which kernels are collectives by name and were not launched by an op that has no thread.

    An op without a thread represents its kernels, as in Ascend's traces, and is itself listed as a call.
    """
    named = kinds.communicates(attribution.trace["kernels"]["name"])
    stands = calls.is_call[attribution.meaning.reading]
    stands &= attribution.trace["ranges"]["thread"].is_null().to_numpy()
    of_op: NDArray[np.bool_] = at(stands, attribution.kernels.op.astype(np.int64), False)
    return named & ~of_op


#: The facts about a collective's call, in the order of ``_describe``.
_FACTS: Final = {
    "kind": pl.Categorical, "group": pl.Categorical, "dtype": pl.Categorical, "size": pl.Int64,
    "bytes": pl.Int64, "reduction": pl.Categorical, "members": pl.Categorical, "peer": pl.Int64,
    "place": pl.Int64,
}  # fmt: skip
_TALKS: Final = "communication"
_SHOWN: Final = ("group", "size", "kind", "bytes", "dtype", "reduction", "members", "peer", "place")


class _Calls:
    """The facts about a collective in each distinct reading; null if the reading is not a collective."""

    def __init__(self, attribution: Attribution) -> None:
        meaning = attribution.meaning
        distinct, self._place = meaning.distinct
        calls = [reading.call if reading.direction == _TALKS else None for reading in distinct]
        rows = [(None,) * len(_FACTS) if call is None else _describe(call) for call in calls]
        self._facts = pl.DataFrame(rows, schema=_FACTS, orient="row")
        # PyTorch's calls return before the backend has begun; other ops run the collective themselves
        self.blocks = meaning.each(
            lambda reading: (
                reading.call is not None and not reading.call.name.startswith(_RETURNING)
            )
        )
        self.is_backend = meaning.talks & meaning.each(
            lambda reading: reading.call is not None and reading.call.name.startswith(_BACKENDS)
        )
        self.is_call = self._facts["kind"].is_not_null().to_numpy()[self._place] & ~self.is_backend

    def columns(self, codes: NDArray[Any]) -> list[pl.Series]:
        """Return group, size, kind, bytes, dtype, reduction, members, peer and peer's place in the group
        for each reading (-1: null)."""
        places = at(self._place, codes.astype(np.int64))
        return [gather(self._facts[name], places) for name in _SHOWN]


def _identity(attrs: pl.Series) -> list[pl.Series]:
    """Return ``seq`` and ``comms`` from records (JSON; null without a record)."""
    return [
        attrs.str.extract(_SEQ).cast(pl.Int64, strict=False).alias("seq"),
        attrs.str.extract(_COMMS).alias("comms"),
    ]


def _describe(call: OpCall) -> tuple[Any, ...]:
    named = call.param("Collective name", call.param("collective", call.name))
    kind = None if "wait" in call.name or "Group" in call.name else collective(str(named))
    group = next((value for key in _GROUP_KEYS if (value := call.param(key)) is not None), None)
    size = next(
        (v for key in ("ranks", "Group size", "group_size") if type(v := call.param(key)) is int),
        None,
    )
    declared = call.param("dtype")
    dtypes = [leaf.dtype for leaf in call.input_leaves() if leaf is not None and leaf.dtype != "?"]
    dtype = declared if isinstance(declared, str) else dtypes[0] if dtypes else None
    name = None if group is None else str(group)
    members = call.param("members")
    who = members if isinstance(members, str) else None
    moved = _at_most(buffer_bytes(call), _MOST_BYTES)
    peer, rank = _peer(call, kind) if kind in POINT_TO_POINT else (None, None)
    size = _at_most(size, _MOST_RANKS)
    return kind, name, dtype, size, moved, _reduction(call), who, peer, rank


def _peer(call: OpCall, kind: str) -> tuple[int | None, int | None]:
    """Return the rank at the other end of a message, as a global rank (Kineto) and as a rank in its group
    (PyTorch, NCCL); each is None if not recorded in that form."""
    if "+" in call.name or kind == "send_recv":
        return None, None  # NCCL's groups of messages have several peers
    peer = _rank(call.param("peer" if kind == "send" else "source"))
    if call.param("communicator") is not None:
        return None, _rank(call.param("peer"))
    return peer, _rank(call.param("dst" if kind == "send" else "src"))


def _rank(value: object) -> int | None:
    text = str(value)
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
    return _at_most(number, _MOST_RANKS)


def _at_most(value: int | None, most: int) -> int | None:
    """Return the value, or None if it is too large for a real job: text can hold any number."""
    return value if value is not None and 0 <= value <= most else None


def _reduction(call: OpCall) -> str | None:
    """Return how the ranks' values are combined: PyTorch's ``reduce_op``, NCCL's own word; None: unknown."""
    word = str(call.param("reduce_op", call.param("reduction"))).lower()
    return word if word in _REDUCTIONS else None


def _of_kernels(
    table: pl.DataFrame, rows: Ints, attribution: Attribution, calls: _Calls
) -> pl.DataFrame:
    """Return the rows ``rows`` of kernels, described by the op that launched each, or by the kernel's name
    alone."""
    op = at(attribution.kernels.op, rows).astype(np.int64)
    reading, ranges = attribution.meaning.reading, attribution.trace["ranges"]
    described_by = attribution.climb(op, calls.is_call[reading])
    frame = table[rows].select("process", pl.col("start").alias("called"), "start", "end", "name")
    name = frame["name"].cast(pl.String)
    kind_of_name = {
        name_of_kernel: collective(name_of_kernel) for name_of_kernel in name.drop_nulls().unique()
    }
    by_name = name.replace_strict(kind_of_name, default=None, return_dtype=pl.String)
    frame = frame.with_columns(calls.columns(at(reading, described_by))).with_columns(
        pl.coalesce(pl.col("kind").cast(pl.String), by_name).cast(pl.Categorical).alias("kind"),
        pl.Series("op", described_by).replace(NONE, None),
        *map(
            _first,
            _identity(table["attrs"].gather(rows)),
            _identity(gather(ranges["attrs"], described_by)),
        ),
    )
    exchanges_of_kernels: pl.DataFrame = frame.select(*SCHEMA, "place")
    return exchanges_of_kernels


def _first(preferred: pl.Series, otherwise: pl.Series) -> pl.Series:
    column: pl.Series = preferred.zip_with(preferred.is_not_null(), otherwise)
    return column


def _of_calls(attribution: Attribution, calls: _Calls, on_gpu: set[int]) -> pl.DataFrame:
    """Return the outermost calls of processes without kernels of collectives, with the backend's times.

    For a process that recorded no call, or that has kernels of collectives, each run of the backend is a row.
    """
    ranges, reading = attribution.trace["ranges"], attribution.meaning.reading
    here = ~ranges["process"].is_in(list(on_gpu)).fill_null(False).to_numpy()
    is_call = calls.is_call[reading] & attribution.is_op & here
    rows = np.flatnonzero(is_call)
    outer = attribution.climb(attribution.parent[rows].astype(np.int64), is_call)
    rows = rows[outer == NONE]
    blocks = pl.Series(calls.blocks[reading[rows]])
    frame = _described(attribution, calls, rows).with_columns(
        pl.when(blocks).then(name).alias(name) for name in ("start", "end")
    )
    spans = np.flatnonzero(calls.is_backend[reading] & attribution.is_op)
    if not len(spans):
        return frame.select(*SCHEMA, "place")
    ran = _described(attribution, calls, spans).sort("process", "start")
    uncalled = ran.join(frame, on="process", how="anti", nulls_equal=True)
    parts = [frame.filter(blocks), uncalled]
    keys = ["process", _KIND_OF_RANGE]
    for (process, kind), part in frame.filter(~blocks).group_by(keys, maintain_order=True):
        spans_of_kind = ran.filter(pl.col("process") == process, kind == _KIND_OF_RANGE)
        parts.append(_ran(part.sort("called"), spans_of_kind))
    exchanges_of_calls: pl.DataFrame = pl.concat(parts).select(*SCHEMA, "place")
    return exchanges_of_calls


def _described(attribution: Attribution, calls: _Calls, rows: Ints) -> pl.DataFrame:
    """Return the collective that each row ``rows`` of ``ranges`` describes, with its times."""
    ranges, reading = attribution.trace["ranges"], attribution.meaning.reading[rows]
    described: pl.DataFrame = _time(attribution, ranges[rows], rows).select(
        "process",
        pl.col("start").alias("called"),
        "start",
        "end",
        *calls.columns(reading),
        pl.Series("op", rows.astype(np.int64)),
        *_identity(ranges["attrs"].gather(rows)),
    )
    return described


def _time(attribution: Attribution, frame: pl.DataFrame, rows: Ints) -> pl.DataFrame:
    """Return the range rows ``frame``; rows without a thread represent kernels and get the kernels' times."""
    if not frame["thread"].has_nulls():
        return frame
    times = pl.DataFrame({"op": attribution.kernels.op.astype(np.int64)}).with_columns(
        attribution.trace["kernels"].select("start", "end")
    )
    spans = times.group_by("op").agg(pl.col("start").min(), pl.col("end").max())
    ran = pl.DataFrame({"op": rows}).join(spans, on="op", how="left", maintain_order="left")
    hollow = frame["thread"].is_null() & ran["start"].is_not_null()
    return frame.with_columns(
        ran[name].zip_with(hollow, frame[name]).alias(name) for name in ("start", "end")
    )


def _ran(calls: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Return ``calls`` of one kind with the time in which each ran: a backend runs them in order, one by one.

    The first spans may belong to calls made before the recording began. As many spans are skipped as needed
    so that no call runs before it was made. Null if spans and calls do not match, and for messages, which
    the backend's range only begins. The range has the element type, which a list among a call's arguments
    lacks, and so the bytes, unless the list is the larger side.
    """
    called, start = calls["called"].to_numpy(), spans["start"].to_numpy()
    for skipped in range(min(len(start), 64)):
        paired = min(len(called), len(start) - skipped)
        if (start[skipped : skipped + paired] >= called[:paired]).all():
            rows = np.arange(len(called))
            rows = np.where(rows < paired, rows + skipped, NONE)
            ran = {name: gather(spans[name], rows) for name in ("start", "end", "dtype", "bytes")}
            kind = calls["kind"].cast(pl.String)
            waits, less = (
                ~kind.is_in(POINT_TO_POINT),
                kind.is_in(["all_gather", "gather", "scatter"]),
            )
            return calls.with_columns(
                *(pl.when(waits).then(ran[name]).alias(name) for name in ("start", "end")),
                pl.coalesce("dtype", ran["dtype"]).alias("dtype"),
                pl.coalesce("bytes", pl.when(~less).then(ran["bytes"])).alias("bytes"),
            )
    return calls

"""Communication: its time, the part that computation hides, and the time that ranks wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.analysis.ops.windows import captured_steps
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.attribution.attribute import Attribution
from opscope.core.job.clocks import machines
from opscope.core.job.exchanges import GROUP, communicating, computing, on_host
from opscope.core.perf.ops.communication import wire_bytes
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import known_sum
from opscope.core.tables.gathered import Gathered, one_piece
from opscope.core.tables.intervals import NONE, Ints, clip, intersect, merge
from opscope.core.tables.narrow import Pieces
from opscope.core.tables.trace import Trace

_WITHIN: Final = (*GROUP, "number")
_OF_ALL: Final = ("collectives", "message_bytes", "waiting_time")
_SCHEMA: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "window": pl.Int64,
    "communication_time": pl.Int64,
    "communication_share": pl.Float64,
    "computation_time": pl.Int64,
    "overlap_time": pl.Int64,
    "overlap": pl.Float64,
    "collectives": pl.Int64,
    "message_bytes": pl.Int64,
    "waiting_time": pl.Int64,
}
#: The columns of ``own_communication``. ``first``, ``last`` (ns): the bounds of a window of steps.
OWN: Final = {
    **{name: kind for name, kind in _SCHEMA.items() if name not in _OF_ALL},
    "on_gpu": pl.Boolean,
    "first": pl.Int64,
    "last": pl.Int64,
}
_COLLECTIVES: Final = {
    "kind": pl.Categorical,
    "group": pl.Categorical,
    "members": pl.Categorical,
    "size": pl.Int64,
    "dtype": pl.Categorical,
    "reduction": pl.Categorical,
    "calls": pl.Int64,
    "present": pl.Int64,
    "partial": pl.Int64,
    "message_bytes": pl.Int64,
    "time": pl.Int64,
    "waiting_time": pl.Int64,
    "bus_bandwidth": pl.Float64,
}


def machine_errors(trace: Trace) -> pl.DataFrame:
    """Return process, machine, and ``error_ns``, the possible error of the machine's clock against the
    first machine's; null if unknown."""
    on = machines(trace)
    table = on.join(trace["clocks"].drop("machine"), on="clock_domain", how="left")
    first = on["machine"].first()
    return table.select(
        "process",
        "machine",
        pl.when(pl.col("machine").eq_missing(pl.lit(first, pl.String)))
        .then(0)
        .otherwise("error_ns")
        .alias("error_ns"),
    ).unique("process", keep="first", maintain_order=True)


def communication(rows: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process that ran kernels or collectives: how communication and computation share
    the time, in ns. ``rows`` is ``own_communication`` (of parts of a job, joined), ``table`` the result of
    ``exchanged``; ``collectives``, ``message_bytes`` and ``waiting_time`` cover, like the times, the
    window: collectives that ran in it at least partly.
    """
    return communication_in(rows, one_piece(table))


def communication_in(rows: pl.DataFrame, pieces: Pieces) -> pl.DataFrame:
    """Return ``communication`` for a table in pieces."""
    windows = rows.select("process", "first", "last")
    sums = pl.concat(
        _within(piece, windows)
        .group_by("process")
        .agg(
            pl.len().cast(pl.Int64).alias("collectives"),
            pl.when(pl.col("bytes").is_not_null().all())
            .then(pl.col("bytes").sum())
            .alias("message_bytes"),
            known_sum("waiting").alias("waiting_time"),
        )
        for piece in pieces()
    )
    none = {"collectives": 0, "message_bytes": 0}
    return (
        rows.sort(
            ~pl.col("on_gpu"), pl.when(~pl.col("on_gpu")).then("process"), maintain_order=True
        )
        .join(sums, on="process", how="left", maintain_order="left", nulls_equal=True)
        .with_columns(
            # without collectives, the communication is 0 bytes; with some of unknown size, it is unknown
            pl.when(pl.col("collectives").is_null()).then(pl.lit(value)).otherwise(name).alias(name)
            for name, value in none.items()
        )
        .select(pl.col(name).cast(kind) for name, kind in _SCHEMA.items())
    )


def _within(found: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Return the collectives that ran, or were called, in the window of their process."""
    start, end = pl.coalesce("start", "called"), pl.coalesce("end", "called")
    outside = (end < pl.col("first")) | (start > pl.col("last"))
    return found.join(
        windows, on="process", how="left", nulls_equal=True, maintain_order="left"
    ).filter(~outside.fill_null(False))


def own_communication(attribution: Attribution, table: pl.DataFrame) -> pl.DataFrame:
    """Return the columns of ``communication`` that need no other rank, and whether a process is ``on_gpu``.

    Times are inside the window: [first step start, last step end] of the steps whose kernels were
    captured, else the span of all kernels or ops. ``communication_time`` is union(communication),
    ``communication_share`` that time over the window. ``overlap``: the share of union(communication)
    during which other work is computed, over the whole trace; null without communication. On a GPU both
    are kernels, and what a backend ran on the host (gloo) communicates too. On a CPU communication is what
    the backend ran (null if only the calls were seen), and computation is all other ops, while no collective
    holds them up. The definitions are those of Holistic Trace Analysis, without its trimming of steps.
    ``table`` is the result of ``exchanged``, or of ``exchanges``.
    """
    trace = attribution.trace
    rows = []
    kernels = trace["kernels"].select(
        "process",
        "start",
        "end",
        pl.Series("communicates", communicating(attribution)),
    )
    steps = captured_steps(trace, ended_steps(trace["ranges"]))
    ranks = dict(trace["processes"].select("process", "rank").rows())
    on_gpu = set(kernels["process"].unique().to_list())
    talking = [
        process for process in table["process"].unique().sort().to_list() if process not in on_gpu
    ]
    parts = [(key[0], part) for key, part in kernels.group_by("process", maintain_order=True)]
    outermost = attribution.is_op & (attribution.parent < 0)
    computed = computing(attribution, outermost) if talking else {}
    parts += [(process, _on_cpu(computed, table, process)) for process in talking]
    hosted = on_host(attribution)
    for process, part in parts:
        exchanged_here = table.filter(_of(process))
        seen = process in on_gpu or exchanged_here["end"].is_not_null().any()
        comm = _union(part.filter("communicates"))
        beside = hosted.get(NONE if process is None else int(process))
        if beside is not None:
            comm = merge(*(np.concatenate(both) for both in zip(comm, beside, strict=True)))
        other = _union(part.filter(~pl.col("communicates")))
        mine = steps.filter(_of(process))
        window = mine if len(mine) else part
        low, high = (0, 0) if window.is_empty() else _bounds(window)
        hidden = _length(intersect(comm, other)) / _length(comm) if len(comm[0]) else None
        comm, other = clip(comm, low, high), clip(other, low, high)
        inside = _length(comm)
        both = _length(intersect(comm, other))
        rows.append(
            {
                "process": process,
                "rank": ranks.get(process),
                "window": high - low if len(window) else None,
                "communication_time": inside if seen else None,
                "communication_share": inside / (high - low) if seen and high > low else None,
                "computation_time": _length(other),
                "overlap_time": both if seen else None,
                "overlap": hidden,
                "on_gpu": process in on_gpu,
                "first": low if len(mine) else None,
                "last": high if len(mine) else None,
            }
        )
    return pl.DataFrame(rows, schema=OWN)


def _of(process: int | None) -> pl.Expr:
    """Return which rows belong to a process; None: the process is not recorded."""
    return pl.col("process").eq_missing(pl.lit(process, pl.Int32))


def _on_cpu(
    computed: Mapping[int, tuple[Ints, Ints]], table: pl.DataFrame, process: int | None
) -> pl.DataFrame:
    """Return start, end, communicates: the collectives of a process, and when its other ops ran."""
    none = np.empty(0, np.int64)
    start, end = computed.get(NONE if process is None else process, (none, none))
    ran = table.filter(_of(process) & pl.col("end").is_not_null())
    return pl.concat(
        [
            ran.select("start", "end", pl.lit(True).alias("communicates")),
            pl.DataFrame({"start": start, "end": end, "communicates": np.zeros(len(start), bool)}),
        ]
    )


def collectives(table: pl.DataFrame) -> pl.DataFrame:
    """Return one row per group, kind of collective, dtype and reduction, over all ranks, by time, in ns.

    ``present``: the processes that appear in them. ``partial``: how many of these collectives lack members of
    their group (``lacking``); null where the group's size, or which collectives are one, is not known.
    ``time`` and ``waiting_time`` add up the times of all ranks. ``bus_bandwidth`` (bytes/s): the bytes that
    at least must cross each rank's link, as nccl-tests defines it, divided by the shortest time of a rank,
    over the collectives of which several ranks are known; null if there are none.
    """
    return collectives_in(one_piece(table))


def collectives_in(pieces: Pieces) -> pl.DataFrame:
    """Return ``collectives`` for a table in pieces."""
    key = ["kind", "group", "members", "size", "dtype", "reduction"]
    incomplete = lacking_in(pieces)
    sums = Gathered(
        key,
        pl.col("calls", "present", "moved", "least").sum(),
        pl.col("told").any(),
        *(known_sum(name) for name in ("message_bytes", "time", "waiting_time")),
    )
    partial = Gathered([*key, "number"])
    for piece in pieces():
        sums.add(_collective_sums(piece, key))
        partial.add(
            piece.join(incomplete, on=list(_WITHIN), how="semi", nulls_equal=True)
            .select(*key, "number")
            .unique()
        )
    lacks = partial.all().group_by(key).agg(pl.len().cast(pl.Int64).alias("partial"))
    table = (
        sums.all()
        .with_columns(
            pl.when(pl.col("least") > 0)
            .then(pl.col("moved") / pl.col("least") * 1e9)
            .alias("bus_bandwidth")
        )
        .join(lacks, on=key, how="left", nulls_equal=True, maintain_order="left")
        .with_columns(pl.when("told").then(pl.col("partial").fill_null(0)).alias("partial"))
        .sort("time", "calls", descending=True, nulls_last=True, maintain_order=True)
    )
    return table.select(pl.col(name).cast(kind) for name, kind in _COLLECTIVES.items())


def _collective_sums(table: pl.DataFrame, key: list[str]) -> pl.DataFrame:
    """Return the sums of ``collectives``. ``moved`` (bytes) and ``least`` (ns) are those of the bandwidth."""
    sized = table.select("kind", "bytes", "size").unique().drop_nulls()
    wire = [
        wire_bytes(kind, size, ranks) or None
        for kind, size, ranks in sized.with_columns(pl.col("kind").cast(pl.String)).rows()
    ]
    rated = table.join(
        sized.with_columns(pl.Series("wire", wire, pl.Int64)),
        on=["kind", "bytes", "size"],
        how="left",
        maintain_order="left",
    ).with_columns(pl.when(pl.col("shortest") > 0).then("wire").alias("wire"))
    return rated.group_by(key, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("process").n_unique().cast(pl.Int64).alias("present"),
        (pl.col("number").is_not_null() & pl.col("size").is_not_null()).any().alias("told"),
        known_sum("bytes").alias("message_bytes"),
        known_sum("duration").alias("time"),
        known_sum("waiting").alias("waiting_time"),
        pl.when(pl.col("wire").is_not_null()).then("shortest").sum().alias("least"),
        pl.col("wire").sum().alias("moved"),
    )


def lacking(table: pl.DataFrame) -> pl.DataFrame:
    """Return ``group``, ``members``, ``size`` and ``number`` of each partial collective: fewer processes
    are seen in it than its group has ranks. ``table`` is the result of ``exchanged``."""
    return lacking_in(one_piece(table))


def lacking_in(pieces: Pieces) -> pl.DataFrame:
    """Return ``lacking`` for a table in pieces."""
    there = Gathered(list(_WITHIN), pl.col("there").sum())
    for piece in pieces():
        numbered = piece.filter(pl.col("number").is_not_null() & pl.col("size").is_not_null())
        there.add(
            numbered.group_by(*_WITHIN).agg(
                pl.col("process").n_unique().cast(pl.Int64).alias("there")
            )
        )
    return there.all().filter(pl.col("there") < pl.col("size")).select(*_WITHIN)


def clocks(trace: Trace) -> pl.DataFrame:
    """Return one row per machine: how its times were moved to the first machine's clock, and the error.

    ``method`` is ``same clock`` if there is one machine. Times in ns.
    """
    on = machines(trace)
    alone = on["machine"].n_unique() < 2
    table = on.join(trace["clocks"].drop("machine"), on="clock_domain", maintain_order="left")
    if alone:
        none = dict.fromkeys(("offset_ns", "error_ns", "spread_ns", "drift_ppm"))
        table = table.with_columns(pl.lit("same clock").alias("method")).with_columns(
            pl.lit(value, table.schema[name]).alias(name) for name, value in none.items()
        )
    return (
        table.group_by("machine", maintain_order=True)
        .agg(
            pl.col("host").first(),
            pl.col("process").n_unique().cast(pl.Int64).alias("processes"),
            pl.col("rank").min().alias("first_rank"),
            pl.col("method").fill_null("not aligned").first(),
            *(
                pl.col(name).first()
                for name in ("offset_ns", "drift_ppm", "error_ns", "spread_ns", "collectives")
            ),
        )
        .drop("machine")
    )


def _union(frame: pl.DataFrame) -> tuple[Ints, Ints]:
    return merge(frame["start"].to_numpy(), frame["end"].to_numpy())


def _bounds(frame: pl.DataFrame) -> tuple[int, int]:
    return int(frame["start"].to_numpy().min()), int(frame["end"].to_numpy().max())


def _length(spans: tuple[Ints, Ints]) -> int:
    return int((spans[1] - spans[0]).sum())


def communication_of_processes(profile: Answers) -> pl.DataFrame:
    """The communication of each process."""
    return own_communication(profile.attribution, profile.of(exchanges))


def answer(profile: Answers) -> pl.DataFrame:
    """Communication per process: its share of the time, how much of it other work hides, and how long
    the process waited for other ranks.

    Times lie inside the window from the first captured step to the last. They are times of kernels, or
    without a GPU of ops.
    """
    return communication(profile.of(communication_of_processes), profile.of(exchanges))


def answer_collectives(profile: Answers) -> pl.DataFrame:
    """Collectives by process group, kind, dtype and reduction, all ranks added up, by time.

    The bus bandwidth follows the definition of nccl-tests.
    """
    return collectives(profile.of(exchanges))


def answer_clocks(profile: Answers) -> pl.DataFrame:
    """How each machine's clock was aligned with the first machine's, and the possible error."""
    return clocks(profile.trace)


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "communication()",
                "one row per process that ran kernels or collectives",
                columns(
                    "process rank window communication_time communication_share "
                    "computation_time overlap_time overlap collectives message_bytes "
                    "waiting_time",
                    """
                    communication_time: ns: time inside the window during which the process was in a
                        collective; null if only the collectives' calls were recorded
                    communication_share: fraction: communication_time / window
                    computation_time: ns: time inside the window during which anything else ran: kernels,
                        or ops if there are no kernels, while no collective's op inside them waits
                    collectives: count: collectives, sends and receives that ran in the window, at least in
                        part; message_bytes and waiting_time are theirs
                    overlap: fraction: part of all communication, also outside the window, during which
                        something else ran
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="communication",
                title="Communication",
                empty="no collectives and no kernels in this profile",
            ),
        ),
    ),
    Question(
        answer=answer_collectives,
        frames=(
            Frame(
                "collectives()",
                (
                    "one row per process group, kind of collective, dtype and reduction, over all "
                    "ranks, by time"
                ),
                columns(
                    "kind group members size dtype reduction calls present partial "
                    "message_bytes time waiting_time bus_bandwidth",
                    """
                    kind: text: kind of collective: all_reduce, all_gather, send …
                    dtype: text: dtype of the messages
                    reduction: text: how the ranks' values are combined: sum, avg, max …; null if not
                        recorded
                    calls: count: collectives, each counted once per rank seen in it
                    present: count: processes that are seen in these collectives
                    partial: count: collectives in which fewer processes are seen than the group has
                        ranks: their waiting is that of the ranks that are seen; null if size, or which
                        collectives are one, is not known
                    time: ns: time in these collectives, all ranks added up
                    """,
                ),
            ),
        ),
        reports=(
            Report(
                name="collectives",
                title="Collectives",
                empty="no collectives in this profile",
            ),
        ),
    ),
    Question(
        answer=answer_clocks,
        frames=(
            Frame(
                "clocks()",
                "one row per machine: how its clock was aligned with the first machine's",
                columns(
                    "host processes first_rank method offset_ns drift_ppm error_ns spread_ns "
                    "collectives",
                    """
                    host: text: the machine's name
                    first_rank: number: lowest rank on the machine
                    method: text: how its clock was aligned: same clock, ends of collectives, sends and
                        receives, Unix clocks, not aligned
                    offset_ns: ns: amount added to the machine's times to align them
                    drift_ppm: ppm: how much slower the machine's clock runs than the first machine's
                    error_ns: ns: largest possible error of the machine's aligned times, from the rule
                        that no rank leaves a collective before all have entered it
                    spread_ns: ns: typical time between the ends of one collective on two machines
                    collectives: count: collectives, or messages, used to align the clock
                    """,
                ),
            ),
        ),
        kept=False,
        reports=(
            Report(
                name="clocks",
                title="Clocks",
                empty="not known: this file format does not record the machines' clocks",
                sums="",
            ),
        ),
    ),
)

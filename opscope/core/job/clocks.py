"""Align the clocks of several hosts by the collectives and messages that their ranks took part in.

No rank can leave a collective such as an all-reduce before all ranks have entered it. So each collective
bounds the offset between two clocks. All ranks leave it at nearly the same moment, so the difference of the
ends is close to the offset. A message bounds the offset from one side, because it does not arrive before it
is sent; messages in both directions bound it from both sides. ``offsets`` estimates each pair of clocks,
``linking_hosts`` chooses the pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.attribute import attribute
from opscope.core.job.exchanges import GROUP, POINT_TO_POINT, SYNCHRONISING, exchanges
from opscope.core.job.linking_hosts import BY_COLLECTIVES, BY_MESSAGES, Met, solved
from opscope.core.job.numbering import numbers, shifts
from opscope.core.job.offsets import Offset, estimate
from opscope.core.schema import TABLES
from opscope.core.tables.intervals import Ints
from opscope.core.tables.narrow import Pieces
from opscope.core.tables.trace import Trace


def messages(table: pl.DataFrame, ranks: pl.DataFrame, same_clock: bool) -> pl.DataFrame:
    """Return one row per message whose send and receive are both known: ``sender`` and ``receiver``
    (processes), ``sent`` and ``sent_end``, ``received`` and ``received_end`` (when each began and ended, ns
    on its clock).

    ``table`` is ``exchanges``, ``ranks`` has process and rank. The i-th send from a rank to another in a
    group is the i-th receive there; if the recordings do not begin with the same message, the counts are
    shifted as the counts of collectives are. A rank with several processes is left out.
    """
    placed_ranks = ranks.drop_nulls("rank").select("process", pl.col("rank").cast(pl.Int64))
    placed_ranks = placed_ranks.unique().filter(pl.len().over("rank") == 1)
    rows = (
        table.filter(pl.col("kind").cast(pl.String).is_in(POINT_TO_POINT))
        .drop_nulls(["start", "end", "peer"])
        .join(placed_ranks, on="process", how="inner", maintain_order="left")
        .with_columns((pl.col("kind").cast(pl.String) == "send").alias("sends"))
    )
    sends = pl.col("sends")
    rows = rows.with_columns(
        pl.when(sends).then("rank").otherwise("peer").alias("source"),
        pl.when(sends).then("peer").otherwise("rank").alias("target"),
    )
    if rows.is_empty() or rows["sends"].n_unique() < 2:
        return pl.DataFrame(schema=_SCHEMA)
    rows = rows.with_columns(
        pl.struct("group", "source", "target").rank("dense").cast(pl.Int64).alias("whole"),
        pl.col("bytes").fill_null(-1).alias("token"),
        pl.col("sends").cast(pl.Int64).alias("side"),
    ).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("whole", "side").alias("number"))
    by = shifts(rows["whole"], rows["side"], rows["token"], rows["end"], same_clock)
    rows = rows.with_columns(pl.col("number") + pl.Series(by))
    return (
        rows.filter(sends)
        .join(rows.filter(~sends), on=["whole", "number"], how="inner", suffix="_there")
        .select(
            pl.col("process").alias("sender"),
            pl.col("process_there").alias("receiver"),
            pl.col("start").alias("sent"),
            pl.col("end").alias("sent_end"),
            pl.col("start_there").alias("received"),
            pl.col("end_there").alias("received_end"),
        )
    )


_SCHEMA = {
    "sender": pl.Int32,
    "receiver": pl.Int32,
    "sent": pl.Int64,
    "sent_end": pl.Int64,
    "received": pl.Int64,
    "received_end": pl.Int64,
}


__all__ = [
    "BY_COLLECTIVES",
    "BY_MESSAGES",
    "BY_UNIX",
    "REFERENCE",
    "UNKNOWN",
    "aligned",
    "estimate",
    "machines",
    "moved",
    "placed",
]

#: Values of ``clocks.method``, beside those of ``linking_hosts``.
BY_UNIX: Final = "Unix clocks"
REFERENCE: Final = "reference"
UNKNOWN: Final = "not aligned"
_TIMES: Final = ("start", "end", "time")


@dataclass(frozen=True, slots=True)
class Placed:
    """Result of the alignment. ``on``: the machine of each process; ``at``: per machine the offset of its
    clock to the first machine's, None if unknown; ``how``: the method that found the offset."""

    on: pl.DataFrame
    at: dict[str, Offset | None]
    how: dict[str, str]

    def by(self, name: str) -> Offset | None:
        """Return the offset by which times of the machine ``name`` are moved; 0 if the offset is smaller
        than its error."""
        offset = self.at[name]
        if (
            offset is None
            or self.how[name] not in (BY_COLLECTIVES, BY_MESSAGES)
            or not _is_none(offset)
        ):
            return offset
        return Offset(0, 0, 0.0, offset.error, offset.spread, offset.collectives)

    def of_processes(self) -> dict[int, Offset]:
        """Return the offset of each process whose times move."""
        offsets: dict[int, Offset] = {}
        for process, name in self.on.select("process", "machine").rows():
            offset = self.by(name)
            if offset is not None and (offset.offset or offset.drift):
                offsets[process] = offset
        return offsets


def machines(trace: Trace) -> pl.DataFrame:
    """Return process, host, rank, clock_domain, machine; the machine of the lowest rank comes first.

    Clock domains of one machine (one boot of one host) are one clock. If the boot is unknown, the host is
    the machine; if the host is unknown too, each clock domain is a machine.
    """
    used = trace["processes"].select("process", "host", "rank", "clock_domain")
    machine_of_domain = trace["clocks"].select("clock_domain", "machine")
    return (
        used.drop_nulls("clock_domain")
        .join(machine_of_domain, on="clock_domain", how="left")
        .with_columns(
            pl.coalesce("machine", "host", pl.format("clock {}", "clock_domain")).alias("machine")
        )
        .sort(pl.col("rank").min().over("machine"), "process", nulls_last=True)
        .select("process", "host", "rank", "clock_domain", "machine")
    )


def one_clock(trace: Trace) -> bool:
    """Return whether the times of all processes are on one clock."""
    on = machines(trace)
    clocks = trace["clocks"].filter(pl.col("clock_domain").is_in(on["clock_domain"].implode()))
    return on["machine"].n_unique() < 2 or bool(
        (clocks["method"].fill_null(UNKNOWN) != UNKNOWN).all()
    )


def aligned(trace: Trace) -> Trace:
    """Return ``trace`` with all times on the clock of its lowest rank's machine, as far as the trace allows.

    With one machine, no times are moved. Otherwise the table ``clocks`` gets, per domain, ``method``,
    ``offset_ns``, ``drift_ppm``, ``error_ns``, ``spread_ns`` and ``collectives`` (or messages). A machine
    that shares no collective and no message with another is aligned by its Unix clock, with an unknown error.
    An offset within its error is taken to be 0.
    """

    def found() -> Pieces:
        pieces = exchanges(attribute(trace, infer_steps=False))
        return lambda: iter((pieces,))

    where = placed(trace, found)
    return trace if where is None else moved(trace, where)


def placed(trace: Trace, pieces: Callable[[], Pieces]) -> Placed | None:
    """Return the offsets of the machines' clocks to the lowest rank's clock; None if there is only one clock
    or the clocks were aligned before. Doubts are added to the trace's notes.

    ``pieces`` returns the ``exchanges`` of all processes, in pieces.
    """
    on = machines(trace)
    names = on["machine"].unique(maintain_order=True).to_list()
    done = trace["clocks"].filter(pl.col("clock_domain").is_in(on["clock_domain"].implode()))
    if len(names) < 2 or done["method"].is_not_null().all():
        return None
    at: dict[str, Offset | None] = {names[0]: Offset(0, 0, 0.0, 0, 0, 0)}
    how = {names[0]: REFERENCE}
    for number, (offset, method) in solved(_met(pieces(), on, names), len(names)).items():
        at[names[number]], how[names[number]] = offset, method
    for name in names:
        if name not in at:
            at[name] = _by_unix(trace, on, names[0], name)
            how[name] = UNKNOWN if at[name] is None else BY_UNIX
            trace.note(
                "warning",
                f"{_clock(name)}: neither a collective nor messages link it to the machine of the lowest"
                f" rank, so its error is unknown (method: {how[name]})",
            )
    for name, one in at.items():
        if one is not None and how[name] in (BY_COLLECTIVES, BY_MESSAGES) and one.error is None:
            trace.note(
                "warning",
                f"{_clock(name)}: its collectives or messages, or those of a machine between it and the"
                " first, contradict each other or bound it from one side only, so its error is unknown",
            )
    return Placed(on, at, how)


def _clock(name: str) -> str:
    """Return the display name of a machine's clock; a machine without a name gets its clock's number
    (``clock 1``)."""
    return name if name.startswith("clock ") else f"clock of {name}"


def _met(pieces: Pieces, on: pl.DataFrame, names: list[str]) -> Met:
    """Return the collectives and messages that the machines, numbered as in ``names``, took part in
    together."""

    def ran() -> Iterator[pl.DataFrame]:
        return (piece.drop_nulls(["start", "end"]) for piece in pieces())

    nodes = pl.DataFrame({"machine": names}).with_row_index("node").cast({"node": pl.Int64})
    hosts = on.join(nodes, on="machine").select("process", "rank", "node").unique("process")
    key = [*GROUP, "number"]
    met, sent = [], []
    for piece, numbered in zip(ran(), numbers(ran, same_clock=False), strict=True):
        kind = pl.col("kind").cast(pl.String)
        sent.append(piece.filter(kind.is_in(POINT_TO_POINT)))
        met.append(
            piece.with_columns(numbered["number"])
            .filter(pl.col("number").is_not_null() & kind.is_in(SYNCHRONISING))
            .join(hosts, on="process")
            .group_by("node", *key)
            .agg(pl.col("start").max(), pl.col("end").min())
        )
    ends = (
        pl.concat(met)
        .with_columns(
            pl.struct(key).rank("dense").cast(pl.Int64).alias("one"),
            pl.struct(*GROUP).rank("dense").cast(pl.Int64).alias("group"),
        )
        .group_by("node", "group", "one")
        .agg(pl.col("start").max(), pl.col("end").min())
    )
    exchanged = messages(pl.concat(sent), hosts, same_clock=False)
    for name in ("sender", "receiver"):
        exchanged = exchanged.join(
            hosts.select(pl.col("process").alias(name), pl.col("node").alias(f"{name}_node")),
            on=name,
        )
    return Met(ends, exchanged.filter(pl.col("sender_node") != pl.col("receiver_node")))


def _moved_by(
    times: Ints, origin: Ints | int, offset: Ints | int, drift: NDArray[np.float64] | float
) -> Ints:
    since = (times - origin).astype(np.float64)
    moved: Ints = times + offset + np.rint(drift * since).astype(np.int64)
    return moved


def _by_unix(trace: Trace, on: pl.DataFrame, first: str, name: str) -> Offset | None:
    clocks = on.join(trace["clocks"], on="clock_domain", suffix="_of").drop_nulls("to_unix_ns")
    unix = [clocks.filter(pl.col("machine") == machine)["to_unix_ns"] for machine in (first, name)]
    if not len(unix[0]) or not len(unix[1]):
        return None
    return Offset(0, int(unix[1][0]) - int(unix[0][0]), 0.0, None, 0, 0)


def moved(trace: Trace, where: Placed) -> Trace:
    """Return the trace with its times on the clock of the first machine."""
    of_process = where.of_processes()
    tables: dict[str, pl.DataFrame] = {}
    for name in trace.present if of_process else ():
        times = [name_of_time for name_of_time in _TIMES if name_of_time in TABLES[name]]
        if times and "process" in TABLES[name] and len(trace[name]):
            tables[name] = _moved_table(trace[name], times, of_process)
    tables["clocks"] = _clocks(trace, where)
    return trace.replace(**tables)


def _is_none(offset: Offset) -> bool:
    return offset.error is not None and abs(offset.offset) <= offset.error


def _moved_table(
    frame: pl.DataFrame, times: list[str], of_process: dict[int, Offset]
) -> pl.DataFrame:
    numbers = np.array(sorted(of_process), np.int64)
    process = frame["process"].fill_null(-1).to_numpy().astype(np.int64)
    index = np.searchsorted(numbers, process).clip(0, len(numbers) - 1)
    moves = numbers[index] == process
    by = [of_process[number] for number in numbers.tolist()]
    origin, offset = (
        np.array([getattr(offset, name) for offset in by], np.int64)[index]
        for name in ("origin", "offset")
    )
    drift = np.array([offset.drift for offset in by], np.float64)[index]
    columns = []
    for name in times:
        column = frame[name]
        value = column.fill_null(0).to_numpy().copy()
        value[moves] = _moved_by(value[moves], origin[moves], offset[moves], drift[moves])
        columns.append(pl.Series(name, value).set(column.is_null(), None))
    return frame.with_columns(columns)


def _clocks(trace: Trace, where: Placed) -> pl.DataFrame:
    """Return the trace's table ``clocks``, with the offset and the method of each clock."""
    on, first = where.on, next(iter(where.at))
    unix = on.join(trace["clocks"], on="clock_domain", suffix="_of")
    reference = unix.filter(pl.col("machine") == first)["to_unix_ns"].drop_nulls()
    rows: list[dict[str, Any]] = []
    machine_of = dict(on.select("clock_domain", "machine").rows())
    for row in trace["clocks"].to_dicts():
        name = machine_of.get(row["clock_domain"])
        offset = None if name is None else where.by(name)
        if name is not None:
            row["method"] = where.how[name]
        if name is not None and name != first and offset is not None:
            offset_of_machine = where.at[name]
            assert offset_of_machine is not None
            row |= {
                "to_unix_ns": int(reference[0]) if len(reference) else None,
                "offset_ns": offset_of_machine.offset,
                "drift_ppm": offset_of_machine.drift * 1e6,
                "error_ns": offset_of_machine.error,
                "spread_ns": offset_of_machine.spread if offset_of_machine.collectives else None,
                "collectives": offset_of_machine.collectives,
            }
        rows.append(row)
    return pl.DataFrame(rows, schema=trace["clocks"].schema)


def gpu_key(trace: Trace) -> Callable[[int | None, int | None], tuple[object, ...]]:
    """Return a function from (process, device number) to a key that identifies the GPU.

    The key is the device's UUID if the trace has it, else the machine of the process and the number there:
    every machine has a device 0. Its last part is None if no device is recorded.
    """
    machine = dict(machines(trace).select("process", "machine").rows())
    uuids: dict[tuple[int, int], str] = {
        (process, device): uuid
        for process, device, uuid in trace["devices"].select("process", "device", "uuid").rows()
        if uuid
    }

    def key(process: int | None, device: int | None) -> tuple[object, ...]:
        uuid = None if process is None or device is None else uuids.get((process, device))
        return (uuid,) if uuid else (machine.get(process, process), device)

    return key


def gpus(trace: Trace) -> pl.DataFrame:
    """Return the number of the GPU (``gpu``, from 0) of each ``process`` and ``device``.

    The visible GPUs come first, in the order of the table of devices, then GPUs that only appear because work
    ran on them.
    """
    pairs = pl.concat(
        [trace[name].select("process", "device").unique(maintain_order=True)
         for name in ("devices", "kernels", "memops")],
        how="vertical_relaxed",
    ).unique(maintain_order=True)  # fmt: skip
    key, numbers = gpu_key(trace), dict[tuple[object, ...], int]()
    number = [numbers.setdefault(key(*pair), len(numbers)) for pair in pairs.rows()]
    return pairs.with_columns(pl.Series("gpu", number, dtype=pl.Int64))

"""Sequences of kernels that run repeatedly on a stream, which a fusion or a CUDA graph could join. || A
sequence is consecutive work on one stream, within one layer and direction if these are known: a fusion
reaches no further. Windows of every length are numbered, each from the number of the window that is one
shorter and the kernel that follows: one table look-up per kernel and length. A sequence that only occurs
inside a longer one is left out. The others are ranked by their time, each with the occurrences that no
earlier sequence covers, so that no kernel counts twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import COPY, DeviceWork, work_on_devices
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, compact, gather, pairs
from opscope.core.tables.intervals import NONE, Ints

#: Length of the longest sequence that is searched.
LONGEST: Final = 16
#: The most sequences that are returned, and the most candidates that are tried for them.
MOST: Final = 100
_TRIED: Final = 400
#: Separator between the names of a sequence's kernels.
JOINT: Final = " | "
_SCHEMA: Final = {
    "kernel_sequence": pl.String,
    "sequence_length": pl.Int64,
    "occurrences": pl.Int64,
    "total": pl.Int64,
    "share": pl.Float64,
    "between_time": pl.Int64,
    "launching_time": pl.Int64,
    "op": pl.String,
    "direction": pl.String,
    "layer": pl.String,
    "source": pl.String,
    "layers": pl.Int64,
}


@dataclass(frozen=True, slots=True)
class Stream:
    """The work of all streams, one after the other. ``row``: row of the device work; ``code``: its name's
    number in ``names``; ``left``: how many rows of the same stream, layer and direction follow, including
    the row itself; ``op``: the op's row of ``ranges``, -1 for none; ``layer``: number of the layer, -1 for
    none.
    """

    row: Ints
    code: NDArray[np.int32]
    left: Ints
    op: NDArray[np.int32]
    layer: Ints
    names: list[str]


def sequences(
    ops: Ops, work: DeviceWork, longest: int = LONGEST, least: int = 2, most: int = MOST
) -> pl.DataFrame:
    """Return the sequences of 2 to ``longest`` pieces of work that occur at least ``least`` times, by time,
    ``most`` rows at most: kernel_sequence, sequence_length, occurrences, total (ns), share,
    between_time, launching_time (ns), op, direction, layer, source, layers.

    The occurrences of all rows are disjoint, so ``total`` adds up to at most the device time; ``share`` is
    its part of that time. ``between_time``: the stream's idle time inside the sequence. ``launching_time``:
    the time of its launch calls. ``op`` has most of the time; direction, layer and source are those of the
    first occurrence, ``layers`` how many layers it occurs in.
    """
    stream = _streams(ops, work)
    if not len(stream.row) or not work.timed:  # without times, the order is unknown
        return pl.DataFrame(schema=_SCHEMA)
    length = (work.end - work.start)[stream.row]
    numbers, candidates = _repeat(stream, length, longest, least)
    repeated = _disjoint(numbers, candidates, len(stream.row), least, most)
    if not repeated:
        return pl.DataFrame(schema=_SCHEMA)
    total = int(length.sum())
    rows = [_row(ops, work, stream, length, places, count) for count, places in repeated]
    return (
        pl.DataFrame(rows, infer_schema_length=None)
        .hstack(_where(ops, stream, [places for _, places in repeated]))
        .with_columns((pl.col("total") / (total or None)).alias("share"))
        .sort("total", "occurrences", "kernel_sequence", descending=[True, True, False])
        .select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())
    )


def named_work(ops: Ops, work: DeviceWork) -> tuple[NDArray[np.int32], list[str]]:
    """Return per row of the device work the number of its name, and the names; copies are named by their
    kind."""
    trace = ops.attribution.trace
    codes, names = compact(trace["kernels"]["name"])
    kinds, texts = compact(trace["memops"]["kind"])
    copy = work.kind == COPY
    code = np.empty(len(work.row), np.int32)
    code[~copy] = codes[work.row[~copy]]
    code[copy] = kinds[work.row[copy]] + len(names)
    shown = [name or "?" for name in names]
    shown += [text if text == "memset" else f"copy {text or '?'}" for text in texts]
    return code, shown


def op_of(ops: Ops, work: DeviceWork) -> NDArray[np.int32]:
    """Return per row of the device work the op's row of ``ranges``, -1 for none."""
    copy = work.kind == COPY
    ops_of_work = np.empty(len(work.row), np.int32)
    ops_of_work[~copy] = ops.attribution.kernels.op[work.row[~copy]]
    ops_of_work[copy] = ops.attribution.memops.op[work.row[copy]]
    return ops_of_work


def _streams(ops: Ops, work: DeviceWork) -> Stream:
    code, names = named_work(ops, work)
    parts = [rows for _, rows in work.lanes(work.stream)]
    row = np.concatenate(parts) if parts else np.empty(0, np.int64)
    op = op_of(ops, work)[row]
    layer, direction = _layers(ops, op)
    same = np.ones(max(len(row) - 1, 0), bool)
    for key in (work.stream[row], work.part[row], layer, direction):
        same &= key[1:] == key[:-1]
    ends = np.flatnonzero(np.append(~same, True)) if len(row) else np.empty(0, np.int64)
    last = ends[np.searchsorted(ends, np.arange(len(row)))] if len(row) else ends
    return Stream(row, code[row], last - np.arange(len(row)) + 1, op, layer, names)


def _layers(ops: Ops, op: NDArray[np.int32]) -> tuple[Ints, NDArray[np.int8]]:
    """Return the layer and direction of each op row as numbers; each distinct op is looked up once."""
    is_used = np.zeros(len(ops.attribution.is_op) + 1, bool)  # the last is for -1
    is_used[op] = True
    rows = np.flatnonzero(is_used[:-1])
    index = np.full(len(is_used), NONE, np.int32)
    index[rows] = np.arange(len(rows), dtype=np.int32)
    of = index[op]
    return at(ops.layer_numbers(rows, ops.forward_of(rows)), of), at(ops.direction(rows), of)


def _repeat(
    stream: Stream, time: Ints, longest: int, least: int
) -> tuple[dict[int, NDArray[np.int32]], pl.DataFrame]:
    """Return for each length the number of the repeated window that begins at each place (-1: none), and the
    windows that are not part of a longer one with the same number of occurrences: length, number, total (ns).
    """
    size = len(stream.code)
    numbers: dict[int, NDArray[np.int32]] = {}
    tables: list[pl.DataFrame] = []
    until = np.concatenate((np.zeros(1, np.int64), np.cumsum(time)))
    count = np.bincount(stream.code)
    number = np.where(count[stream.code] >= least, stream.code, NONE).astype(np.int32)
    maximal = np.zeros(len(count), bool)  # a single piece of work is not a sequence
    for length in range(1, longest + 1):
        # both windows that are one shorter must be repeated
        starts = np.flatnonzero(
            (number[:-1] >= 0) & (number[1:] >= 0) & (stream.left[:-1] > length)
        )
        if length == longest:
            starts = starts[:0]
        _, _, code = pairs(number[starts], stream.code[starts + length])
        counts = np.bincount(code) if len(code) else np.empty(0, np.int64)
        again = counts[code] >= least
        starts, code = starts[again], code[again]
        # a window whose occurrences all continue in the same way, on either side, is only part of a longer
        # one
        for part in (number[starts], number[starts + 1]):
            maximal[part[counts[code] == count[part]]] = False
        numbers[length] = number
        begin = np.flatnonzero(number >= 0)
        spent = until[begin + length] - until[begin]
        total = np.bincount(number[begin], spent, minlength=len(maximal))
        chosen = np.flatnonzero(maximal)
        columns = {"number": chosen, "total": total[chosen], "count": count[chosen]}
        tables.append(pl.DataFrame(columns).select(pl.lit(length).alias("length"), pl.all()))
        if not len(starts):
            break
        number = np.full(size, NONE, np.int32)
        number[starts] = code
        count, maximal = counts, counts >= least
    return numbers, pl.concat(tables, how="vertical_relaxed")


def _disjoint(
    numbers: dict[int, NDArray[np.int32]],
    candidates: pl.DataFrame,
    size: int,
    least: int,
    most: int,
) -> list[tuple[int, Ints]]:
    """Return length and places of the sequences, by time; no place of the streams is in two sequences."""
    covered = np.zeros(size, bool)
    chosen: list[tuple[int, Ints]] = []
    ordered = candidates.sort(
        "total", "count", "length", "number", descending=[True, True, False, False]
    )
    for length, number in ordered.head(_TRIED).select("length", "number").rows():
        starts = np.flatnonzero(numbers[length] == number)
        apart_by = np.diff(starts)
        if len(apart_by) and int(apart_by.min()) < length:
            # a sequence that overlaps itself is a shorter sequence repeated: ababab is ab
            period = int(apart_by.min())
            length = max(period, 2)
            starts = np.flatnonzero(numbers[length] == numbers[length][starts[apart_by.argmin()]])
        for offset in range(length):
            starts = starts[~covered[starts + offset]]
        starts = apart(starts, length)
        if len(starts) < least:
            continue
        for offset in range(length):
            covered[starts + offset] = True
        chosen.append((length, starts))
        if len(chosen) == most:
            break
    return chosen


def apart(ints: Ints, length: int) -> Ints:
    """Return the places, chosen from the first on, that are at least ``length`` apart.

    Pointer jumping: the places reached by one jump, by two, by four … are marked, one pass for each.
    """
    if len(ints) < 2 or int(np.diff(ints).min()) >= length:
        return ints
    jump = np.append(np.searchsorted(ints, ints + length), len(ints))
    reached = np.zeros(len(ints) + 1, bool)
    reached[0] = True
    while True:
        marked = jump[np.flatnonzero(reached)]
        if reached[marked].all():
            return ints[reached[:-1]]
        reached[marked] = True
        jump = jump[jump]


def _row(
    ops: Ops, work: DeviceWork, stream: Stream, time: Ints, ints: Ints, length: int
) -> dict[str, Any]:
    every = (ints[:, None] + np.arange(length)).reshape(-1)
    rows = stream.row[every]
    shaped = rows.reshape(-1, length)
    between = np.maximum(work.start[shaped[:, 1:]] - work.end[shaped[:, :-1]], 0)
    calls, begin = np.unique(work.call[rows], return_index=True)
    begin = begin[calls >= 0]
    launching = (work.returned - work.called)[rows[begin]]
    reading = at(ops.attribution.meaning.reading, stream.op[every])
    by_op = pl.DataFrame({"op": gather(ops.readings["op"], reading), "time": time[every]})
    most = by_op.group_by("op").agg(pl.col("time").sum()).with_columns(pl.col("op").cast(pl.String))
    return {
        "kernel_sequence": JOINT.join(stream.names[code] for code in stream.code[every[:length]]),
        "sequence_length": length,
        "occurrences": len(ints),
        "total": int(time[every].sum()),
        "between_time": int(between.sum()),
        "launching_time": int(launching.sum()) if len(begin) else None,
        "op": most.sort("time", "op", descending=[True, False], nulls_last=True)["op"][0],
    }


def _where(ops: Ops, stream: Stream, starts_of_parts: list[Ints]) -> pl.DataFrame:
    """Return for each sequence, by its places: direction, layer and source of the first occurrence, and the
    number of layers. All ops are described at once: each call reads the columns of all ranges."""
    heads = []
    for places in starts_of_parts:
        _, firsts = np.unique(stream.layer[places], return_index=True)
        heads.append(stream.op[np.append(places[0], places[firsts])].astype(np.int64))
    about = ops.identify(np.concatenate(heads))
    described = pl.DataFrame(
        {
            "of": np.repeat(np.arange(len(heads)), [len(head) for head in heads]),
            "direction": about.direction.cast(pl.String),
            "layer": about.layer.cast(pl.String),
            "source": about.source.cast(pl.String),
        }
    )
    several = pl.col("layer").drop_nulls().n_unique()
    first = pl.col("direction", "layer", "source").first()
    return (
        described.group_by("of", maintain_order=True)
        .agg(first, pl.when(several > 0).then(several).alias("layers"))
        .drop("of")
    )


def answer(profile: Answers, *, longest: int = LONGEST) -> pl.DataFrame:
    """The sequences of kernels that a stream runs again and again, by time: what a fusion would join.

    Each is of 2 to ``longest`` kernels, copies or sets of one layer and direction, as far as the trace
    shows these. The 100 with most time are returned. No kernel is in two of them.
    """
    return sequences(profile.of(op_index), profile.of(work_on_devices), longest)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "sequences()",
            (
                "one row per sequence of kernels that a stream runs again and again, by time; no "
                "kernel is in two"
            ),
            columns(
                "kernel_sequence sequence_length occurrences total share between_time "
                "launching_time op direction layer source layers",
                """
                total: ns: durations of all its kernels
                share: fraction: total / durations of all kernels, copies and sets
                between_time: ns: time between its kernels in which their stream ran nothing
                direction: text: direction of the first occurrence
                layer: text: layer of the first occurrence
                source: text: source line of the first occurrence
                layers: count: layers in which it occurs; null if none is known
                """,
            ),
        ),
    ),
    parameters={"longest": parameters.count("the most kernels of a sequence", least=2)},
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="sequences",
            title="Frequent sequences of kernels",
            empty="no sequence of kernels ran twice, or no kernels were captured",
            shown=(
                "share total occurrences sequence_length between_time kernel_sequence op direction"
            ),
            sums="",
            gpu_only=True,
        ),
    ),
)

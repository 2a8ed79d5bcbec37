"""The sequences of kernels that each op runs on the device, and how often each sequence occurs."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_work import DeviceWork, work_on_devices
from opscope.core.analysis.device.sequences import JOINT, named_work, op_of
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, gather, pairs
from opscope.core.tables.intervals import NONE, Ints

_SCHEMA: Final = {
    "op": pl.String,
    "kernel_sequence": pl.String,
    "sequence_length": pl.Int64,
    "occurrences": pl.Int64,
    "total": pl.Int64,
    "cpu_time": pl.Int64,
}


def op_sequences(
    ops: Ops, work: DeviceWork, name: str | None = None, least: int = 2
) -> pl.DataFrame:
    """Return the sequences of at least ``least`` pieces of work that ops launched, by occurrences: op,
    kernel_sequence, sequence_length, occurrences, total, cpu_time (ns).

    ``name``: only the outermost ops with this text in their name; None: all outermost ops. All work that such
    an op and the ops inside it launched, on every stream, forms one sequence ordered by start. ``total`` adds
    up the durations on the device, ``cpu_time`` the ops' times on the host.
    """
    attribution = ops.attribution
    op = op_of(ops, work)
    outer = _outermost(ops, name)[op] if len(ops.rows) else op
    rows = np.flatnonzero((op >= 0) & (outer >= 0))
    if not len(rows):
        return pl.DataFrame(schema=_SCHEMA)
    ranges = attribution.trace["ranges"]
    code, names = named_work(ops, work)
    order = rows[np.argsort(outer[rows], kind="stable")]  # by op, then by start
    of = outer[order]
    begin = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    counts = np.diff(np.append(begin, len(of)))
    head = of[begin]
    spent = np.add.reduceat((work.end - work.start)[order], begin)
    long = counts >= least
    if not long.any():
        return pl.DataFrame(schema=_SCHEMA)
    length = (ranges["end"] - ranges["start"]).gather(head[long])
    codes = code[order]
    frame = pl.DataFrame(
        {
            "op": gather(ops.readings["op"], at(attribution.meaning.reading, head[long])),
            "alike": _alike(codes[np.repeat(long, counts)], counts[long]),
            "begin": begin[long],
            "sequence_length": counts[long],
            "total": spent[long],
            "cpu_time": length,
        }
    )
    sequences_of_ops = frame.group_by("op", "alike").agg(
        pl.col("begin", "sequence_length").first(),
        pl.len().alias("occurrences"),
        pl.col("total", "cpu_time").sum(),
    )
    texts = [
        JOINT.join(names[code] for code in codes[first : first + size].tolist())
        for first, size in sequences_of_ops.select("begin", "sequence_length").iter_rows()
    ]
    return (
        sequences_of_ops.with_columns(
            pl.col("op").cast(pl.String), pl.Series("kernel_sequence", texts, pl.String)
        )
        .sort(
            "occurrences", "total", "op", "kernel_sequence", descending=[True, True, False, False]
        )
        .select(pl.col(name).cast(dtype) for name, dtype in _SCHEMA.items())
    )


def _alike(codes: NDArray[np.int32], ints: Ints) -> Ints:
    """Return a number for each sequence, equal for equal sequences. The sequences follow each other in
    ``codes``; ``ints`` has their lengths.

    Neighbours are numbered as pairs, then pairs of pairs, until each sequence is one number. Each round
    halves them. 720,000 sequences with a million codes take 0.04 s; joining their texts would take 0.9 s.
    """
    numbers = np.full(len(ints), NONE, np.int64)
    open_, number_count = np.arange(len(ints)), 0
    while len(open_):
        first = np.cumsum(ints) - ints
        done = ints == 1
        if done.any():
            number = codes[first[done]]
            numbers[open_[done]] = number + number_count
            number_count += int(number.max()) + 1
            codes, open_ = codes[np.repeat(~done, ints)], open_[~done]
            ints = ints[~done]
            continue
        half = (ints + 1) // 2
        left = np.arange(int(half.sum())) - np.repeat(np.cumsum(half) - half, half)
        left = 2 * left + np.repeat(first, half)
        right = codes[np.minimum(left + 1, len(codes) - 1)]
        right[np.cumsum(half)[ints % 2 == 1] - 1] = NONE  # the last of an odd number has no partner
        _, _, codes = pairs(codes[left], right)
        ints = half
    return numbers


def _outermost(ops: Ops, name: str | None) -> NDArray[np.int64]:
    """Return per range row the outermost op with ``name`` in its name among itself and the ops around it,
    -1 for none; the last entry is for row -1."""
    attribution = ops.attribution
    wanted = attribution.is_op.copy()
    if name is not None:
        has = ops.readings["op"].cast(pl.String).str.contains(name, literal=True).fill_null(False)
        wanted &= has.to_numpy()[attribution.meaning.reading]
    found: Ints = np.full(len(wanted) + 1, -1, np.int64)
    used = np.zeros(len(found), bool)  # the last is for -1; a sort takes ten times as long
    used[attribution.kernels.op] = used[attribution.memops.op] = True
    launched = np.flatnonzero(used[:-1])
    here = attribution.climb(launched, wanted)
    rows = np.flatnonzero(here >= 0)
    best = here.copy()
    while len(rows):  # the depth of nested wanted ops is the number of rounds
        above = attribution.climb(attribution.parent[best[rows]].astype(np.int64), wanted)
        best[rows[above >= 0]] = above[above >= 0]
        rows = rows[above >= 0]
    found[launched] = best
    return found


def answer(profile: Answers, op: str | None = None, *, least: int = 2) -> pl.DataFrame:
    """What each op runs on the device, as a sequence of at least ``least`` kernels, by occurrences.

    Of the ops whose name contains ``op``, the outermost count; without ``op``, all outermost ops.
    """
    return op_sequences(profile.of(op_index), profile.of(work_on_devices), op, least)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "op_sequences()",
            (
                "one row per op and sequence of all kernels, copies and sets that it launched, by "
                "occurrences"
            ),
            columns(
                "op kernel_sequence sequence_length occurrences total cpu_time",
                """
                op: text: the outermost op
                occurrences: count: calls of the op that launched this sequence
                total: ns: durations of all its kernels
                cpu_time: ns: time of these calls of the op on the host
                """,
            ),
        ),
    ),
    parameters={
        "op": parameters.text("only ops whose name has this text"),
        "least": parameters.count("the fewest kernels of a sequence", least=1),
    },
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="op_sequences",
            title="Sequences of kernels by op",
            empty="no op launched more than one kernel, or no kernel has an op",
            shown="occurrences total cpu_time sequence_length op kernel_sequence",
            sums="",
            gpu_only=True,
        ),
    ),
)

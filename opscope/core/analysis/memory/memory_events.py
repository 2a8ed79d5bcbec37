"""Memory by block: each allocation with its release, the ops of both, and the kind; the kinds at the peak."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.memory.memory import of_memory
from opscope.core.analysis.memory.memory_blocks import blocks
from opscope.core.analysis.memory.memory_kinds import BEFORE, RULES, UNKNOWN, UNTOLD, block_rules
from opscope.core.analysis.ops.ops import Ops
from opscope.core.question import lacking, units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Column, Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, gather, spread
from opscope.core.tables.intervals import NONE, Ints

_PLACE: Final = ("process", "device")
EVENTS: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "address": pl.Int64,
    "bytes": pl.Int64,
    "allocated_at": pl.Int64,
    "released_at": pl.Int64,
    "duration": pl.Int64,
    "op": pl.Categorical,
    "direction": pl.Categorical,
    "layer": pl.Categorical,
    "step": pl.Int64,
    "op_id": pl.Int64,
    "release_op": pl.Categorical,
    "release_step": pl.Int64,
    "release_op_id": pl.Int64,
    "kind": pl.Categorical,
    "kind_reason": pl.Categorical,
    "reason": pl.Categorical,
}
KINDS: Final = {
    "process": pl.Int32,
    "device": pl.Int32,
    "kind": pl.String,
    "layer": pl.String,
    "at_peak": pl.Int64,
    "share": pl.Float64,
    "held_blocks": pl.Int64,
    "reason": pl.String,
}


def memory_events(ops: Ops, changes: pl.DataFrame) -> pl.DataFrame:
    """Return one row per block, in the order in which it was first seen; sizes in bytes, times in ns.

    ``op``, ``direction``, ``layer``, ``step`` are those of the allocation, ``release_op`` and
    ``release_step`` those of the release: the innermost op open then. ``reason`` says why one of the two is
    not in the trace; its columns are null. ``kind_reason``: the fact that proves the kind.
    """
    if changes.is_empty():
        return pl.DataFrame(schema=EVENTS)
    blocks_of_changes = blocks(changes)
    op_row = changes["op_row"].to_numpy()
    row, end_row = (
        blocks_of_changes[name].fill_null(NONE).to_numpy() for name in ("row", "end_row")
    )
    of_start, of_end = at(op_row, row), at(op_row, end_row)
    name, direction, layer, ids = _about(ops, of_start)
    end_name, _, _, end_ids = _about(ops, of_end)
    layered = layer.is_not_null().to_numpy()
    rules = block_rules(ops, blocks_of_changes, of_start, layered)
    return blocks_of_changes.select(
        *_PLACE,
        "address",
        "bytes",
        pl.col("start").alias("allocated_at"),
        pl.col("end").alias("released_at"),
        (pl.col("end") - pl.col("start")).alias("duration"),
        name.alias("op"),
        direction.alias("direction"),
        layer.alias("layer"),
        _step(ops, blocks_of_changes, "start").alias("step"),
        ids.alias("op_id"),
        end_name.alias("release_op"),
        _step(ops, blocks_of_changes, "end").alias("release_step"),
        end_ids.alias("release_op_id"),
        spread("kind", [kind for kind, _ in RULES], rules),
        spread("kind_reason", [why for _, why in RULES], rules),
        pl.col("unpaired").cast(pl.Categorical).alias("reason"),
    ).cast(EVENTS)  # type: ignore[arg-type]


def _about(ops: Ops, rows: Ints) -> tuple[pl.Series, pl.Series, pl.Series, pl.Series]:
    """Return name, direction, layer and id of op rows, null for -1; each distinct op is described once."""
    distinct, index = np.unique(rows[rows >= 0], return_inverse=True)
    code = np.full(len(rows), NONE, np.int64)
    code[rows >= 0] = index
    about = ops.identify(distinct)
    ids = ops.attribution.trace["ranges"]["id"].gather(distinct)
    return (
        gather(about.call["op"], code),
        gather(about.direction, code),
        gather(about.layer, code),
        gather(ids, code),
    )


def _step(ops: Ops, table: pl.DataFrame, name: str) -> pl.Series:
    """Return the step of the process in which each block was allocated or released; null outside steps."""
    process = table["process"].fill_null(NONE).cast(pl.Int64).to_numpy()
    has_step = table[name].is_not_null()
    time = table[name].fill_null(0).to_numpy()
    return ops.context.step(process, np.zeros_like(process), time).set(~has_step, None)


def memory_kinds(events: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """Return one row per process, device, kind and layer in use at the device's peak; sizes in bytes.

    ``events``: the blocks of ``memory_events``, made of ``changes``. Over the rows of a device ``at_peak``
    adds up to the peak exactly. ``reason``: the fact that proves the kind; for ``unknown``, why none does.
    """
    if changes.is_empty():
        return pl.DataFrame(schema=KINDS)
    peaks = (
        changes.with_row_index("row")
        .group_by(_PLACE)
        .agg(
            pl.col("total").max().alias("peak"),
            pl.col("row").get(pl.col("total").arg_max()).cast(pl.Int64).alias("peak_row"),
        )
    )
    block_rows = blocks(changes).select("row", "end_row")
    counted = changes["counted"].gather(block_rows["row"])
    held_blocks = (
        pl.concat([events, block_rows], how="horizontal")
        .join(peaks, on=_PLACE, how="left", nulls_equal=True)
        .filter(
            (pl.col("row") <= pl.col("peak_row"))
            & (pl.col("end_row").fill_null(len(changes)) > pl.col("peak_row"))
            & (pl.col("kind_reason").cast(pl.String) != RULES[UNTOLD][1])
            & counted
        )
    )
    rows = (
        held_blocks.group_by(*_PLACE, "kind", "layer", pl.col("kind_reason").alias("reason"))
        .agg(pl.col("bytes").sum().alias("at_peak"), pl.len().alias("held_blocks"))
        .with_columns(pl.col("kind", "layer", "reason").cast(pl.String))
    )
    untold = events.group_by(_PLACE).agg(
        (pl.col("kind_reason").cast(pl.String) == RULES[UNTOLD][1]).any().alias("untold")
    )
    seen = rows.group_by(_PLACE).agg(pl.col("at_peak").sum().alias("seen"))
    rest = (
        peaks.join(seen, on=_PLACE, how="left", nulls_equal=True)
        .join(untold, on=_PLACE, how="left", nulls_equal=True)
        .select(
            *_PLACE,
            pl.lit(UNKNOWN).alias("kind"),
            pl.lit(None, pl.String).alias("layer"),
            pl.when(pl.col("untold").fill_null(False))
            .then(pl.lit(RULES[UNTOLD][1]))
            .otherwise(pl.lit(RULES[BEFORE][1]))
            .alias("reason"),
            (pl.col("peak") - pl.col("seen").fill_null(0)).alias("at_peak"),
        )
        .filter(pl.col("at_peak") != 0)
    )
    return (
        pl.concat([rows, rest], how="diagonal_relaxed")
        .join(peaks, on=_PLACE, how="left", nulls_equal=True)
        .with_columns((pl.col("at_peak") / pl.col("peak")).alias("share"))
        .cast(KINDS)  # type: ignore[arg-type]
        .with_columns(pl.col("layer").fill_null("").alias("by_layer"))
        .sort(
            *_PLACE,
            "at_peak",
            "kind",
            "by_layer",
            "reason",
            descending=[False, False, True, False, False, False],
        )
        .select(*KINDS)
    )


def answer(profile: Answers) -> pl.DataFrame:
    """The blocks of memory: each allocation with its release, the ops of both, and its kind.

    A block that was allocated before the trace, or not released in it, has nulls and a ``reason``.
    """
    return of_memory(profile, EVENTS, memory_events)


def memory_events_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the blocks, the largest first, with times since the first change of memory."""
    frame = report.frame(profile)
    if frame.is_empty():
        return listed(report, frame, view)
    first = pl.min_horizontal(pl.col("allocated_at").min(), pl.col("released_at").min())
    since = frame.with_columns(pl.col("allocated_at", "released_at") - first)
    table = listed(report, since.sort("bytes", descending=True, maintain_order=True), view)
    alone = int(frame["reason"].is_not_null().sum())
    notes = ["the largest first; times are since the first change of memory"]
    if alone:
        notes.append(f"{alone:,} lack their allocation or their release: see the column reason")
    return replace(table, footnotes=[*table.footnotes, *notes])


def answer_kinds(profile: Answers) -> pl.DataFrame:
    """What was in use at the peak, by kind and layer: parameters, gradients, activations ...

    A kind is said where facts of the trace prove it, which ``reason`` names, else it is ``unknown``.
    Over all rows of a device, ``at_peak`` adds up to the peak exactly.
    """
    events = profile.ask("memory_events", categories=True)
    return of_memory(profile, KINDS, lambda _, changes: memory_kinds(events, changes))


QUESTION = (
    Question(
        answer=answer,
        frames=(
            Frame(
                "memory_events()",
                "one row per block of memory: an allocation with its release",
                columns(
                    "process device address bytes allocated_at released_at duration op "
                    "direction layer step op_id release_op release_step release_op_id kind "
                    "kind_reason reason",
                    """
                    address: number: the block's address
                    bytes: bytes: the block's size
                    allocated_at: ns: time of the allocation; null if it is not in the trace
                    released_at: ns: time of the release; null if it is not in the trace
                    duration: ns: released_at - allocated_at
                    op: text: the innermost op open at the allocation
                    step: number: the number of the step in which it was allocated
                    op_id: number: id of the range of that op; null if there is none
                    release_op: text: the innermost op open at the release
                    release_step: number: the number of the step in which it was released
                    release_op_id: number: op_id of the innermost op open at the release
                    kind: text: parameter, gradient, optimizer state, activation, temporary, input;
                        unknown if nothing proves it
                    kind_reason: text: the fact that proves the kind; for unknown, why none does
                    reason: text: why its allocation or its release is missing; null if it has both
                    """,
                ),
            ),
        ),
        merged=lacking.MOMENTS,
        reports=(
            Report(
                name="memory_events",
                title="Blocks of memory",
                empty="memory was not recorded (opscope run --memory records it)",
                shown=(
                    "device bytes kind op layer step allocated_at released_at duration release_op "
                    "reason"
                ),
                forms=[
                    Column("allocated_at", "allocated at", units.time),
                    Column("released_at", "released at", units.time),
                ],
                table=memory_events_table,
                sums="bytes",
                written=False,
            ),
        ),
    ),
    Question(
        answer=answer_kinds,
        frames=(
            Frame(
                "memory_kinds()",
                "one row per process, device, kind, layer and reason, of what was in use at the peak",
                columns(
                    "process device kind layer at_peak share held_blocks reason",
                    """
                    kind: text: parameter, gradient, optimizer state, activation, temporary, input;
                        unknown if nothing proves it
                    layer: text: module path of the op that allocated it; null outside any layer
                    at_peak: bytes: the part of the device's peak that is of this kind and layer
                    share: fraction: at_peak / the device's peak
                    held_blocks: count: blocks of memory: allocations in use at the peak
                    reason: text: the fact that proves the kind; for unknown, why none does
                    """,
                ),
            ),
        ),
        merged=lacking.MOMENTS,
        reports=(
            Report(
                name="memory_kinds",
                title="Memory in use at the peak, by kind and layer",
                empty="memory was not recorded (opscope run --memory records it)",
                shown="process device share at_peak kind layer held_blocks reason",
                sums="at_peak held_blocks",
            ),
        ),
    ),
)

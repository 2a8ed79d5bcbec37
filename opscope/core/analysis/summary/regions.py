"""The regions compiled by torch.compile: their kernels or ops, the fused ops in these, and their time."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.attribution.compiled_regions import fused_ops
from opscope.core.attribution.cuda_graph_ops import compiled_regions as regions
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.layout import Table
from opscope.core.question.record import Question, Report, Sums, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns
from opscope.core.tables.columns import at, gather, spread
from opscope.core.tables.intervals import NONE, Ints

SCHEMA: Final = {
    "region": pl.Categorical,
    "direction": pl.Categorical,
    "name": pl.Categorical,
    "fused": pl.Categorical,
    "source": pl.Categorical,
    "calls": pl.Int64,
    "time": pl.Int64,
    "share": pl.Float64,
}
_KEYS: Final = ("region", "direction", "name", "fused", "source")


def region_sums(ops: Ops) -> pl.DataFrame:
    """Return the sums from which ``compiled_regions`` is made: calls and time (ns) by region, direction,
    name, fused and source. The sums of parts of a job may be joined."""
    attribution = ops.attribution
    is_region = regions(attribution.meaning) & attribution.is_op
    if not is_region.any():
        return pl.DataFrame(schema={name: SCHEMA[name] for name in (*_KEYS, "calls", "time")})
    readings = attribution.meaning.readings
    called = [r.call.name if r.role == "op" and r.call is not None else "" for r in readings]
    if ops.on_device:
        launched = attribution.kernels.op.astype(np.int64)
        rows, outer = _within(ops, launched, is_region)
        table = attribution.trace["kernels"][rows]
        op_of_launch = launched[rows]
        name = table["name"]
        time = table["end"] - table["start"]
    else:
        rows, outer = _within(ops, ops.rows, is_region)
        op_of_launch = ops.rows[rows]
        # what a region's code calls directly, and the regions themselves; PyTorch nests several for one graph
        region_itself = is_region[op_of_launch]
        direct = region_itself | at(is_region, at(attribution.parent, op_of_launch), False)
        op_of_launch, outer, region_itself = (
            x[direct] for x in (op_of_launch, outer, region_itself)
        )
        own = np.full(len(attribution.is_op), 0, np.int64)
        own[ops.times.rows] = ops.times.self_time
        ranges = attribution.trace["ranges"]
        length = (ranges["end"] - ranges["start"]).gather(op_of_launch).to_numpy()
        time = pl.Series(np.where(region_itself, own[op_of_launch], length))
        name = spread("name", called, at(attribution.meaning.reading, op_of_launch))
    outer = _of_forward(ops, outer, is_region)
    distinct, index = np.unique(op_of_launch, return_inverse=True)
    about = ops.describe(distinct)
    fused_params = [None if r.call is None else r.call.param("fused") for r in readings]
    fused = [fused_param if isinstance(fused_param, str) else None for fused_param in fused_params]
    frame = pl.DataFrame(
        {
            "region": spread("region", called, at(attribution.meaning.reading, outer)),
            "direction": gather(about.direction, index),
            "name": name.cast(pl.String),
            "fused": spread("fused", fused, at(attribution.meaning.reading, op_of_launch)),
            "source": gather(about.source, index),
            "time": time,
        }
    ).cast({"fused": pl.String})
    by_name = {name: fused_ops(name) for name in frame["name"].unique().drop_nulls().to_list()}
    named = pl.col("name").replace_strict(by_name, default=None, return_dtype=pl.String)
    return (
        frame.with_columns(pl.coalesce("fused", named).alias("fused"))
        .group_by(_KEYS)
        .agg(pl.len().cast(pl.Int64).alias("calls"), pl.col("time").sum())
    )


def added_regions(sums: pl.DataFrame) -> pl.DataFrame:
    """Return the ``region_sums`` of parts of a job, joined, with one row per region, direction and name."""
    return sums.group_by(_KEYS).agg(pl.col("calls", "time").sum())


def compiled_regions(sums: pl.DataFrame) -> pl.DataFrame:
    """Return one row per region, direction and kernel or op; in each region the longest first.

    ``region`` is the outermost that torch.compile made around it. If the trace has kernels, ``name`` is
    the kernel's and ``time`` its device time (ns). If not, ``name`` is the op that the region's code
    called, ``time`` the op's time on the host, and a row with the region's own name has the rest: Python
    and the allocator. ``share`` is of the region's time in that direction. ``fused`` names the ops of a
    generated kernel: as recorded from the compiler, else as in the kernel's name (``add_gelu``). ``sums`` is
    ``region_sums``.
    """
    if sums.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    spent = pl.col("time").sum()
    return (
        added_regions(sums)
        .with_columns((pl.col("time") / spent.over("region", "direction")).alias("share"))
        .with_columns(
            pl.col("region", "direction").cast(pl.String).fill_null("").name.prefix("by_")
        )
        .sort("by_region", "by_direction", "time", "name", descending=[False, True, True, False])
        .select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
    )


def _within(ops: Ops, rows: Ints, is_region: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the places of the op rows inside regions, and the outermost region of each."""
    parent = ops.attribution.parent
    outer = ops.attribution.climb(rows, is_region)
    inside = np.flatnonzero(outer >= 0)
    here = outer[inside]
    while True:
        above = ops.attribution.climb(at(parent, here, NONE).astype(np.int64), is_region)
        if not (above >= 0).any():
            return inside, here
        here = np.where(above >= 0, above, here)


def _of_forward(ops: Ops, outer: Ints, is_region: NDArray[np.bool_]) -> Ints:
    """Return the regions ``outer``; regions that autograd runs are replaced by the region that they
    differentiate.

    Autograd's op has no compilation number, but the forward region has.
    """
    distinct, place = np.unique(outer, return_inverse=True)
    forward = ops.forward_of(distinct)
    known = np.flatnonzero(forward >= 0)
    inside, around = _within(ops, forward[known], is_region)
    distinct[known[inside]] = around
    regions: Ints = distinct[place.reshape(-1)]
    return regions


def answer(profile: Answers) -> pl.DataFrame:
    """The regions that torch.compile made: the kernels that ran in each, and the ops that these kernels
    fuse."""
    return compiled_regions(region_sums(profile.of(op_index)))


#: The beginning of the adapter's notes about what the compiler counted.
COUNTED: Final = "torch.compile: "


def compiled_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the compiled regions, with the compiler's counts below them."""
    table = listed(report, report.frame(profile), view)
    counted = [
        f"{units.text(row['what']).removeprefix(COUNTED)}: {units.count(row['how_many'])}"
        for row in profile.notes().to_dicts()
        if units.text(row["what"]).startswith(COUNTED)
    ]
    return replace(table, footnotes=[*counted, *table.footnotes])


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "compiled()",
            "one row per torch.compile region, direction, and kernel or op that ran in it",
            columns(
                "region direction name fused source calls time share",
                """
                region: text: the compiled region, by the number of its compilation
                name: text: the kernel's name; without a GPU, the op that the region's code called
                fused: text: the ops that a generated kernel computes
                time: ns: device time; without a GPU, the op's time on the host
                share: fraction: time / the region's time in that direction
                """,
            ),
        ),
    ),
    merged=Sums(
        table="regions",
        of=lambda profile: region_sums(profile.of(op_index)),
        added=added_regions,
        finished=lambda sums, _: compiled_regions(sums),
    ),
    reports=(
        Report(
            name="compiled",
            title="Compiled regions",
            empty="no compiled region in this profile: torch.compile was not used, or nothing it made ran",
            shown="region direction share time calls name fused source",
            table=compiled_table,
        ),
    ),
)

"""Suggest the next commands, from the summary and the kinds of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from opscope.core.advice.causes import causes
from opscope.core.advice.commands import with_file
from opscope.core.analysis.host.host_lines import has_lines
from opscope.core.analysis.ops.grouped_table import WORTH
from opscope.core.analysis.ops.lost_kernels import idle_unknown
from opscope.core.analysis.ops.ops import served_words
from opscope.core.analysis.roofline.engines import has_engines
from opscope.core.analysis.summary.summary_table import COMPILING
from opscope.core.attribution.early_kernels import LATE_SAID
from opscope.core.question import index, units
from opscope.core.question.registry import divisions, reports

from .unshown import unshown

if TYPE_CHECKING:
    from opscope.profile import Profile

#: The least idle share of the device that is worth a line.
_IDLE: Final = 0.2
_LOST: Final = " (--reports lost_kernels: how many kernels of each process are missing)"
#: With more kernels, only the report gives the reason for the idle time: it would take as long as the first
#: screen.
_MANY: Final = 1_000_000


def next_steps(profile: Profile, idle: bool = True) -> list[str]:
    """Return the lines of the last table of the first screen: the findings and commands to look at next.

    ``idle``: include a line on the device's idle time.
    """
    row = profile.summary().to_dicts()[0]
    kinds = {row["kind"]: row["share"] for row in profile.totals_by("kind").to_dicts()}
    lines: list[str] = []
    if has_engines(profile.trace):
        lines.append(
            "--reports engine_layers,engine_runs: a TensorRT engine's layers by time, and its runs"
        )
    if not kinds:
        return lines
    lines += _without_op(profile, row)
    lines += _idle(profile, row) if idle else ()
    served = served_words(profile)
    if served is not None:
        lines.append(
            f"--reports serving_phases,serving_tokens,serving_batches: the server's {served}"
        )
    lines += _memory(profile)
    lines.append("opscope advise FILE: what to change, and what it would save")
    lines.append("opscope view FILE: pages in the browser")
    more = [
        word
        for word, name in divisions().items()
        if name not in index.FIRST and not (profile.cpu_only and reports()[name].gpu_only)
    ]
    lines.append(f"--by {', '.join(more)}: the same time, divided by one of these")
    also = unshown(profile, row, kinds)
    lines += [] if also is None else [also]
    return [with_file(line, profile) for line in lines]


def _without_op(profile: Profile, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines on time without an op. Time spent compiling programs is known and has a line of its
    own."""
    device_time, without = row["device_time"], row["device_unattributed_time"]
    if not device_time or without is None:
        return
    compiling = 0
    if profile.cpu_only:
        reasons = profile.unattributed().filter(pl.col("reason").cast(pl.String) == COMPILING)
        compiling = int(reasons["time"].sum())
    if compiling / device_time >= WORTH:
        yield (
            f"{units.share(compiling / device_time)} of the time compiles programs, once for each and again"
            " for new"
            " shapes: opscope run --steps 3:6 leaves the first out"
        )
    if (without - compiling) / device_time >= WORTH:
        also = " for another reason" if compiling / device_time >= WORTH else ""
        how = "opscope doctor FILE says why, and how to capture it"
        if profile.cpu_only and profile.merged_of is None and has_lines(profile):
            how = "--reports host_lines has its source lines"
        yield f"{units.share((without - compiling) / device_time)} of the time has no op{also}: {how}"


def _memory(profile: Profile) -> Iterator[str]:
    """Yield the line on what holds most of the memory at its peak."""
    if not profile.trace.has("allocations") or len(profile.trace["allocations"]) > _MANY:
        return
    holders = profile.memory_by_op().filter(pl.col("at_peak") > 0)
    for row in holders.sort("at_peak", descending=True).head(1).to_dicts():
        line = (row["source"] or "").partition(" < ")[0].rpartition("/")[2]
        what = (row["op"] or f"({row['reason']})") + (f" at {line}" if line else "")
        part = f"{units.size(row['at_peak'])} ({units.share(row['share'])})"
        yield f"memory at its peak: most in {what}, {part}: --reports memory_by_op"


def _idle(profile: Profile, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the line on the device's idle time (inside steps, if there are any) and its causes."""
    wall = row["wall_time"] if row["window_time"] is None else row["window_time"]
    busy, devices = row["device_busy"], row["devices"]
    if profile.cpu_only or busy is None or not wall or not devices:
        return
    why = profile.of(idle_unknown)
    if why is not None:
        yield why + ("" if LATE_SAID in why else _LOST)
        return
    if profile.of(causes).barred is not None:  # the diagnosis gives the reason
        return
    if 1 - busy / (wall * devices) < _IDLE:
        return
    if len(profile.trace["kernels"]) > _MANY:
        share = units.share(1 - busy / (wall * devices))
        yield f"the device is idle {share} of the time (--reports idle,idle_ops: what it waits for)"
        return
    idle_rows, of = profile.idle_steps(), "the steps' time"
    if not int(idle_rows["time"].sum()):
        idle_rows, of = profile.idle().with_columns(pl.col("window").alias("time")), "the time"
    total, idle, waited = (
        int(idle_rows[name].sum()) for name in ("time", "idle_time", "host_wait")
    )
    if not total or idle / total < _IDLE:
        return
    said = f"the device is idle {units.share(idle / total)} of {of}"
    if idle_rows["host_wait"].null_count():
        yield f"{said}; the trace does not say what it waits for"
    elif waited / idle >= 0.5:
        yield (
            f"{said}, {units.share(waited / idle)} of that because the program launches its work too late"
            " (--reports idle,idle_ops)"
        )
    else:
        yield f"{said} (--reports idle,launches: what it waits for)"

"""The statistics in a partial: the integers from which every frame of the whole job can be made.

Sums are sums of integers, so that their order changes nothing. Collectives are kept one by one, because their
analysis needs all ranks. Rows that belong to a single process (steps, idle time) are kept as they are.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.analysis.ops.executed import copy_executions, kernel_executions
from opscope.core.analysis.ops.op_frame import op_rows, rows_with_known_costs
from opscope.core.analysis.ops.windows import bounds
from opscope.core.analysis.ranks.arrivals import ARRIVALS, arrival_table
from opscope.core.analysis.ranks.collective_faults import collective_calls
from opscope.core.analysis.ranks.distributed import own_communication
from opscope.core.analysis.ranks.rank_outliers import sample_medians, speeds_of_kernels
from opscope.core.analysis.ranks.rank_pairs import messages
from opscope.core.analysis.roofline.coverage import costs_of
from opscope.core.analysis.steps.steps import table_of_steps
from opscope.core.analysis.summary.summary import compiling_time, device_spans, summary_sums
from opscope.core.job.exchanges import exchanges
from opscope.core.tables.identity import more_of
from opscope.core.tables.ranks import groups, meshes
from opscope.profile import Profile
from opscope.profile.merged import HELD

from .answered import rows, sums

#: A device with more stretches of work than this keeps only their sum, which is used only if no other process
#: used the device.
MOST_SPANS: Final = 1024


def statistics(
    profile: Profile, advice: bool = False
) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """Return the facts about the profile (JSON), and its tables of statistics by name.

    ``advice``: include the findings of the detectors.
    """
    trace = profile.attribution.trace
    on_cpu = profile.cpu_only
    frame = profile.of(rows_with_known_costs) if on_cpu else None
    executed, memops = profile.of(kernel_executions), profile.of(copy_executions)
    exchanges_of_run = exchanges(profile.attribution)
    tables = {
        **{how.table: how.of(profile) for how in sums().values()},
        "exchanges": exchanges_of_run.drop("op"),
        "calls_made": profile.of(collective_calls).drop("op"),
        "arrivals": profile.of(arrival_table).select("process", *ARRIVALS),
        "kernel_speeds": profile.of(speeds_of_kernels),
        "medians_of_samples": profile.of(sample_medians),
        "moved": profile.of(messages),
        "communication": own_communication(profile.attribution, exchanges_of_run),
        "step_table": profile.of(table_of_steps),
        "groups": groups(trace),
        "meshes": meshes(trace),
        "bounds": bounds(trace),
        **_devices(executed, memops),
        **{name: profile.ask(of, **how.asked) for name, (of, how) in rows().items()},
    }
    about = {
        "origin": dict(trace.origin),
        "identity": more_of(trace),
        "present": sorted(trace.present),
        "cpu_only": on_cpu,
        "on_gpu": any(len(trace[table]) for table in ("kernels", "memops")),
        "ranges": len(trace["ranges"]),
        "domains": profile.domains,
        "calls": profile.call_names,
        "summary": summary_sums(trace, executed, memops, frame),
        "missing_of": costs_of(profile),
        "compiling": compiling_time(trace, lambda: profile.of(op_rows)) if on_cpu else 0,
    }
    if advice:
        tables["rank_advice"] = _advice(profile)
    # tables that hold notes come last, because making the others adds notes
    tables |= {f"trace.{name}": trace[name] for name in HELD if trace.has(name)}
    return about, tables


def _advice(profile: Profile) -> pl.DataFrame:
    """Return ``advice()`` with the basis of its savings: the file's first process, devices and wall time."""
    summary = profile.summary().row(0, named=True)
    first = profile.trace["processes"]["process"].min()
    return profile.advice().select(
        pl.lit(first, pl.Int32).alias("process"),
        *(pl.lit(summary[name], pl.Int64).alias(name) for name in ("devices", "wall_time")),
        pl.all(),
    )


def _devices(executed: pl.DataFrame, memops: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return how long each device of each process was busy, and when: stretches of work, as starts and
    lengths."""
    rows, spans = [], []
    for (process, device), (start, end) in device_spans(executed, memops).items():
        kept = len(start) <= MOST_SPANS
        rows.append((process, device, int((end - start).sum()), kept))
        if kept:
            spans.append(
                pl.DataFrame(
                    {
                        "process": pl.Series([process] * len(start), dtype=pl.Int32),
                        "device": pl.Series([device] * len(start), dtype=pl.Int32),
                        # stored as small numbers: the time since the stretch before; for the first, since 0
                        "since": np.diff(start, prepend=0),
                        "length": np.asarray(end - start, np.int64),
                    }
                )
            )
    schema = {"process": pl.Int32, "device": pl.Int32, "busy": pl.Int64, "kept": pl.Boolean}
    empty = {"process": pl.Int32, "device": pl.Int32, "since": pl.Int64, "length": pl.Int64}
    return {
        "devices": pl.DataFrame(rows, schema=schema, orient="row"),
        "device_spans": pl.concat([pl.DataFrame(schema=empty), *spans]),
    }

"""The tables that a fleet keeps of a job: the cost of its ops, layers, kernels and advice."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import PurePath
from typing import Any, Final

import polars as pl

from opscope.core.analysis.ops.lost_kernels import idle_unknown
from opscope.core.job.clocks import one_clock
from opscope.profile import Merged, Profile

_NS_PER_HOUR: Final = 3_600_000_000_000
#: The outermost module in the path of a layer: ``ResNet`` in ``ResNet.layer1.0``.
_ROOT: Final = r"^([^./]+)"
_SAME: Final = ("op", "op_type", "direction", "layer", "source", "reason")
#: The columns of ``advice()`` that a fleet keeps.
ADVICE: Final[Mapping[str, pl.DataType]] = {
    **dict.fromkeys(("detector", "outcome", "finding", "recommendation"), pl.String()),
    **dict.fromkeys(("time", "saving"), pl.Int64()),
    "saving_share": pl.Float64(),
    **dict.fromkeys(("saving_least", "saving_most"), pl.Int64()),
    **dict.fromkeys(("confidence", "reason"), pl.String()),
}
#: Reasons why a job has no GPU hours in a fleet.
ON_CPU: Final = "no GPU was used"
NO_DEVICES: Final = "how many GPUs there were is not known"
OTHER_CLOCKS: Final = "the clocks of its machines are not aligned, so its wall time is not known"


def start_time(profile: Profile | Merged) -> datetime | None:
    """Return when the profile's first event began (UTC); None if no clock shows the time of day."""
    trace = profile.trace
    times = (
        profile.spans.join(trace["processes"].select("process", "clock_domain"), on="process")
        .join(trace["clocks"].select("clock_domain", "to_unix_ns"), on="clock_domain")
        .select(pl.col("start") + pl.col("to_unix_ns"))
        .to_series()
        .drop_nulls()
    )
    if times.is_empty():
        return None
    first: int = times.min()  # type: ignore[assignment]
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=first // 1000)


def tables(
    profile: Profile | Merged,
    labels: Mapping[str, str] | None = None,
    gpu_hours: float | None = None,
) -> dict[str, pl.DataFrame]:
    """Return the tables of a job by name: jobs (one row), labels, ops, kinds, kernels, advice, ranks.

    ``gpu_hours``: the GPU hours of the whole job (GPUs times hours, as a scheduler accounts for them); by
    default the GPU hours of the recorded time. The device time in ``ops`` adds up to ``device_time`` of
    ``jobs``, as it does in ``kinds``. GPU hours of a row are its share of the job's GPU hours; the rest is
    idle time of the GPUs (less work that overlapped on one GPU). Without GPUs they are null, and ``reason``
    says why. ``model`` is the label of that name, else the outermost module with most device time.
    ``files_advised``: the number of files whose advice is in ``advice``.
    """
    summary = profile.summary().row(0, named=True)
    device_ns, why = _hold(profile, summary)
    scale = (
        None
        if device_ns is None
        else (device_ns / _NS_PER_HOUR if gpu_hours is None else gpu_hours)
    )
    #: GPU hours per nanosecond of one GPU
    each = None if not device_ns or scale is None else scale / device_ns
    ops = _ops(profile)
    job = {
        "start_time": pl.Series([start_time(profile)], dtype=pl.Datetime("us", "UTC")),
        "model": pl.Series([(labels or {}).get("model") or _model(ops)], dtype=pl.String),
        "program": pl.Series([_program(profile)], dtype=pl.String),
        "frameworks": pl.Series([_list(profile, "framework")], dtype=pl.String),
        "hosts": pl.Series([_hosts(profile)], dtype=pl.Int64),
        "ranks_read": pl.Series([_ranks(profile, "read")], dtype=pl.Int64),
        "ranks_expected": pl.Series([_ranks(profile, "expected")], dtype=pl.Int64),
        "gpu": pl.Series([_gpu(profile)], dtype=pl.String),
        **{
            name: pl.Series([summary.get(name)], dtype=kind)
            for name, kind in (
                ("devices", pl.Int64), ("steps", pl.Int64), ("wall_time", pl.Int64),
                ("device_time", pl.Int64), ("device_busy", pl.Int64),
                ("device_attributed_time", pl.Int64), ("device_unattributed_time", pl.Int64),
                ("tensor_core_time", pl.Int64), ("flops_share", pl.Float64),
            )
        },
        "gpu_hours": pl.Series([scale], dtype=pl.Float64),
        "gpu_hours_of": pl.Series(
            [None if scale is None else "the recorded time" if gpu_hours is None else "the job"],
            dtype=pl.String,
        ),
        "idle_gpu_hours": pl.Series([_idle(profile, summary, device_ns, each)], dtype=pl.Float64),
        "reason": pl.Series([why], dtype=pl.String),
    }  # fmt: skip
    advice, advised = _advice(profile, summary, each)
    job["files_advised"] = pl.Series([advised], dtype=pl.Int64)
    return {
        "jobs": pl.DataFrame(job),
        "labels": pl.DataFrame(
            {"key": list(labels or {}), "value": list((labels or {}).values())},
            schema={"key": pl.String, "value": pl.String},
        ),
        "ops": ops.with_columns(_hours("device_time", each)),
        "kinds": profile.kinds().with_columns(_hours("device_time", each)),
        "kernels": profile.kernel_totals().with_columns(_hours("total", each)),
        "advice": advice,
        "ranks": profile.communication().with_columns(
            _hours("waiting_time", each).alias("waiting_gpu_hours")
        ),
    }


def _hours(column: str, each: float | None) -> pl.Expr:
    return (pl.col(column) * pl.lit(each, pl.Float64)).alias("gpu_hours")


def _hold(profile: Profile | Merged, summary: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """Return how long the job held its GPUs, summed over the GPUs (ns); or None and why it is not known."""
    if profile.cpu_only:
        return None, ON_CPU
    if not summary["devices"]:
        return None, NO_DEVICES
    if not one_clock(profile.trace):
        return None, OTHER_CLOCKS
    wall = summary.get("window_time") or summary["wall_time"]
    return (None, NO_DEVICES) if wall is None else (int(summary["devices"]) * int(wall), None)


def _idle(
    profile: Profile | Merged, summary: Mapping[str, Any], device_ns: int | None, each: float | None
) -> float | None:
    busy = None if profile.of(idle_unknown) else summary["device_busy"]
    return None if device_ns is None or each is None or busy is None else (device_ns - busy) * each


def _ops(profile: Profile | Merged) -> pl.DataFrame:
    """Return the totals of ops over shapes and parameters, then the device time without an op by reason."""
    totals = profile.op_totals()
    rest = profile.unattributed().select(
        pl.col("reason"),
        pl.col("time").alias("device_time"),
        *(pl.lit(None, totals.schema[name]).alias(name) for name in _SAME if name != "reason"),
        *(pl.lit(None, totals.schema[name]).alias(name) for name in ("calls", "flops", "bytes")),
    )
    measured = pl.col("device_time", "flops", "bytes")
    added = totals.group_by(_SAME, maintain_order=True).agg(
        pl.col("calls").sum(), pl.when(measured.is_not_null().any()).then(measured.sum())
    )
    columns = [*_SAME, "calls", "device_time", "flops", "bytes"]
    return pl.concat([added.select(columns), rest.select(columns)], how="vertical_relaxed").sort(
        "device_time", *_SAME, descending=[True, *[False] * len(_SAME)], nulls_last=True
    )


def _model(ops: pl.DataFrame) -> str | None:
    """Return the outermost module in which most device time was spent; None if no op has a layer.

    Numbered instances count as one module: PyTorch's profiler numbers them (``ResNet_0``), opscope too
    (``ResNet#2``).
    """
    root = pl.col("layer").str.extract(_ROOT).str.replace(r"[_#]\d+$", "")
    roots = ops.select(root.alias("root"), "device_time")
    by = roots.drop_nulls("root").group_by("root").agg(pl.col("device_time").sum())
    first = by.sort("device_time", "root", descending=[True, False])["root"]
    return None if first.is_empty() else str(first[0])


def _program(profile: Profile | Merged) -> str | None:
    """Return the name of the program that ran in most processes."""
    names = profile.trace["processes"]["name"].drop_nulls().cast(pl.String)
    counts = names.value_counts(sort=True).sort("count", "name", descending=[True, False])
    return None if counts.is_empty() else PurePath(os.fspath(counts["name"][0])).name


def _list(profile: Profile | Merged, column: str) -> str | None:
    names = profile.trace["processes"][column].drop_nulls().cast(pl.String).unique().sort()
    return ", ".join(names) or None


def _hosts(profile: Profile | Merged) -> int | None:
    return profile.trace["processes"]["host"].drop_nulls().n_unique() or None


def _ranks(profile: Profile | Merged, which: str) -> int | None:
    if isinstance(profile, Merged):
        rank_count: int = profile.manifest[which]
        return rank_count
    processes = profile.trace["processes"]
    if which == "read":
        return processes["rank"].drop_nulls().n_unique() or None
    size: int | None = processes["world_size"].max()  # type: ignore[assignment]
    return size


def _gpu(profile: Profile | Merged) -> str | None:
    names = profile.trace["devices"]["name"].drop_nulls().cast(pl.String).unique().sort()
    return ", ".join(names) or None


def _advice(
    profile: Profile | Merged, summary: Mapping[str, Any], each: float | None
) -> tuple[pl.DataFrame, int]:
    """Return the findings of the detectors, each with the GPU hours that its change would save, and the
    number of files that were examined.

    For a merged job these are the findings in its partials: rows of each file's own advice; no rows if
    partials have none.
    """
    advised = 1
    if not isinstance(profile, Merged):
        advice_rows = profile.advice().with_columns(
            pl.lit(summary["devices"], pl.Int64).alias("devices")
        )
    elif "rank_advice" in profile.holds:
        advice_rows = profile.rank_advice()
        advised = advice_rows["process"].n_unique()
    else:
        advice_rows, advised = pl.DataFrame(schema={**ADVICE, "devices": pl.Int64}), 0
    # all GPUs of a file are occupied while a step waits for its slowest part
    hours = pl.col("saving") * pl.col("devices") * pl.lit(each, pl.Float64)
    return advice_rows.select(*ADVICE, hours.alias("gpu_hours")), advised

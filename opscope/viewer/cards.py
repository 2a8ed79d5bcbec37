"""The figures on the first page: step time, device busy, Tensor Cores, FLOPs known, utilisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import polars as pl

from opscope.core.analysis.ops.lost_kernels import idle_unknown, totals_only
from opscope.core.question import units
from opscope.core.question.registry import reports
from opscope.reports import vendor_words

from .rows import plain

if TYPE_CHECKING:
    from opscope.profile import Profile


def cards(profile: Profile) -> list[dict[str, Any]]:
    """Return the cards, as ``Card`` of ``web/src/overview.ts``."""
    row = profile.summary().row(0, named=True)
    cards_made = [_step_time(profile), _wall(row)]
    if profile.cpu_only:
        cards_made.append(_elapsed_time(row))
    else:
        cards_made += [_busy(profile, row), *_use(profile), _tensor_cores(row)]
    cards_made += [
        _attribute(row, profile.cpu_only),
        _flops_known(row, profile.cpu_only),
        _mfu(profile),
    ]
    of = vendor_words.vendor(profile)
    for card in cards_made:
        title = vendor_words.said(card["title"], of)
        card["title"] = title[:1].upper() + title[1:]
    return cards_made


def _card(
    name: str,
    title: str,
    value: Any,
    unit: str,
    report: str,
    column: str,
    page: str,
    *,
    detail: str = "",
    reason: str = "the trace does not tell",
    share: float | None = None,
    undetermined: float | None = None,
) -> dict[str, Any]:
    value = plain(value)
    return {
        "name": name,
        "title": title,
        "value": value,
        "unit": unit,
        "share": plain(value if unit == "fraction" and share is None else share),
        "undetermined": plain(undetermined),
        "detail": detail,
        "reason": reason if value is None else None,
        "page": page,
        "report": report,
        "column": column,
    }


def _step_time(profile: Profile) -> dict[str, Any]:
    """The median step; of several processes the longest, as all wait for the slowest."""
    steps = profile.step_summary().filter(
        (pl.col("part").cast(pl.String) == "step") & pl.col("median").is_not_null()
    )
    rows = steps.sort("median", descending=True).to_dicts()
    value, detail = None, ""
    if rows:
        row = rows[0]
        value = row["median"]
        count = row["steps"] - (row["warm_up_steps"] or 0)
        spread = f"of ten, eight take {units.time(row['p10'])} to {units.time(row['p90'])}"
        detail = f"the median of {count:,} steps; {spread}" if count > 1 else "of one step"
        if len(rows) > 1:
            detail += f"; the slowest of {len(rows)} processes"
    return _card(
        "step_time", "Step time", value, "ns", "step_summary", "median", "steps",
        detail=detail, reason=reports()["steps"].empty,
    )  # fmt: skip


def _wall(row: dict[str, Any]) -> dict[str, Any]:
    counts = {"step": row["steps"], "process": row["processes"], "device": row["devices"]}
    plural = {"process": "processes"}
    said = [
        f"{n:,} {word if n == 1 else plural.get(word, word + 's')}"
        for word, n in counts.items()
        if n
    ]
    return _card(
        "wall_time", "Recorded span", row["wall_time"], "ns", "summary", "wall_time", "timeline",
        detail=", ".join(["first event to last", *said]), reason="nothing in the trace has a time",
    )  # fmt: skip


def _busy(profile: Profile, row: dict[str, Any]) -> dict[str, Any]:
    wall = row["wall_time"] if row["window_time"] is None else row["window_time"]
    busy, devices = row["device_busy"], row["devices"]
    known = profile.of(idle_unknown) is None and not totals_only(profile.trace)
    share = busy / (wall * devices) if known and busy is not None and wall and devices else None
    of = "wall time" if row["window_time"] is None else "time captured"
    each = " of each device, on average" if devices and devices > 1 else ""
    return _card(
        "device_busy", "Device busy", busy, "ns", "summary", "device_busy", "timeline",
        share=share, detail=f"{units.share(share)} of the {of}{each}" if share is not None else "",
        reason="kernels were not captured",
    )  # fmt: skip


def _elapsed_time(row: dict[str, Any]) -> dict[str, Any]:
    used = row["processor_time"]
    return _card(
        "cpu_time", "Elapsed time", row["kernel_time"], "ns", "summary", "kernel_time", "operators",
        detail="of ops, and of steps outside any op; no GPU was recorded"
        + (f"; processor time {units.time(used)}" if used is not None else ""),
        reason="no ops and no steps were recorded",
    )  # fmt: skip


def _use(profile: Profile) -> Iterator[dict[str, Any]]:
    """GPU utilisation, SM efficiency and occupancy; for several devices, the figures of the least used
    one."""
    names = (
        ("gpu_utilization", "GPU utilisation", "utilization_reason"),
        ("sm_efficiency", "SM efficiency", "occupancy_reason"),
        ("achieved_occupancy", "Achieved occupancy", "occupancy_reason"),
    )
    frame = profile.device_use()
    for name, title, why in names:
        measured = frame.filter(pl.col(name).is_not_null()).sort(name)
        said = frame[why].cast(pl.String).drop_nulls().unique().sort().to_list()
        first = measured.row(0, named=True) if len(measured) else None
        several = f"the least of {len(frame)} devices" if len(frame) > 1 else ""
        yield _card(
            name, title, None if first is None else first[name], "fraction", "device_use", name,
            "timeline",
            detail=several if first is not None else "",
            reason="; ".join(said) or "kernels were not captured",
        )  # fmt: skip


def _tensor_cores(row: dict[str, Any]) -> dict[str, Any]:
    used, kernel_time = row["tensor_core_time"], row["kernel_time"]
    rest = row["tensor_core_undetermined_time"]
    share = used / kernel_time if used is not None and kernel_time else None
    unknown = rest / kernel_time if rest is not None and kernel_time else None
    detail = ""
    if share is not None:
        detail = f"{units.time(used)} of kernel time is in kernels that use them"
        if rest:
            detail += f"; for {units.share(unknown)} ({units.time(rest)}) it is not known"
    return _card(
        "tensor_cores", "Tensor Cores", share, "fraction", "summary", "tensor_core_time", "kernels",
        detail=detail, undetermined=unknown, reason="kernels were not captured",
    )  # fmt: skip


def _attribute(row: dict[str, Any], on_cpu: bool) -> dict[str, Any]:
    part, device_time = row["device_attributed_time"], row["device_time"]
    share = part / device_time if part is not None and device_time else None
    of = "elapsed time" if on_cpu else "device time"
    detail = (
        f"{units.time(part)} of {units.time(device_time)} {of} has an op"
        if share is not None
        else ""
    )
    return _card(
        "attributed", "Time with an op", share, "fraction", "summary", "device_attributed_time",
        "operators",
        detail=detail,
        reason=f"there is no {of}" if device_time == 0 else "kernels were not captured",
    )  # fmt: skip


def _flops_known(row: dict[str, Any], on_cpu: bool) -> dict[str, Any]:
    of = "op time" if on_cpu else "device time that has a launch record"
    return _card(
        "flops_known", "FLOPs known", row["flops_share"], "fraction", "summary", "flops_share",
        "roofline",
        detail=f"of {of}",
        reason=f"there is no {of}",
    )  # fmt: skip


def _mfu(profile: Profile) -> dict[str, Any]:
    """Model FLOPs utilisation: the median of the steps of all processes."""
    frame = profile.utilization()
    measured = frame.filter(pl.col("mfu").is_not_null())
    value, detail = None, ""
    reason = reports()["utilization"].empty
    if len(measured):
        value = measured["mfu"].median()
        dtypes = measured["dtype"].cast(pl.String).drop_nulls().unique().sort().to_list()
        detail = f"the median of {len(measured):,} steps" if len(measured) > 1 else "of one step"
        detail += f", against the dense peak of {', '.join(dtypes)}"
        least = measured["known"].min()
        if isinstance(least, float) and least < 0.98:
            detail += f"; a lower bound: the FLOPs of {units.share(least)} of kernel time are known"
    elif len(frame):
        device, why = profile.device
        reason = why if device is None and why else "no step has an op whose FLOPs are known"
    return _card(
        "mfu", "Model FLOPs utilisation", value, "fraction", "utilization", "mfu", "roofline",
        detail=detail, reason=reason,
    )  # fmt: skip

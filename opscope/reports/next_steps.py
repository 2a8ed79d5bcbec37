"""Suggest the next commands, from the summary and the kinds of work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from opscope.core.analysis.engines import has_engines

from . import units
from .grouped import WORTH
from .registry import divisions

if TYPE_CHECKING:
    from opscope.profile import Profile

#: The least idle share of the device that is worth a line.
_IDLE: Final = 0.2


def next_steps(profile: Profile) -> list[str]:
    """Return the lines of the first screen's last table: the findings and commands to look at next."""
    row = profile.summary().to_dicts()[0]
    kinds = {one["kind"]: one["share"] for one in profile.totals_by("kind").to_dicts()}
    lines: list[str] = []
    if has_engines(profile.trace):
        lines.append(
            "--reports engine_layers,engine_runs: a TensorRT engine's layers by time, and its runs"
        )
    if not kinds:
        return lines
    whole, without = row["device_time"], row["device_unattributed_time"]
    if whole and without is not None and without / whole >= WORTH:
        lines.append(
            f"{units.share(without / whole)} of the time has no op: opscope doctor FILE says why, and how to"
            " capture it"
        )
    wall = row["wall_time"] if row["window_time"] is None else row["window_time"]
    busy, devices = row["device_busy"], row["devices"]
    if not profile.cpu_only and busy is not None and wall and devices:
        idle = 1 - busy / (wall * devices)
        if idle >= _IDLE:
            lines.append(
                f"the device is idle {units.share(idle)} of the time, because the program gives it no work:"
                " faster kernels alone will not help"
            )
    if kinds.get("communication", 0) >= WORTH:
        lines.append(
            "--reports communication: how much of the communication is hidden by other work"
        )
    if {"matrix products", "attention", "convolution", "elementwise", "normalisation"} & set(kinds):
        lines.append("--reports roofline: how near each op comes to the device's limits")
    more = [
        word
        for word, report in divisions().items()
        if not report.first and not (report.gpu_only and profile.cpu_only)
    ]
    lines.append(f"--by {', '.join(more)}: the same time, divided by one of these")
    return lines

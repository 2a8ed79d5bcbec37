"""The vendor of a trace's devices, by their names, else by the calls of the runtime or the format."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import polars as pl

from opscope.core.perf.devices.of_trace import trace_device
from opscope.core.tables.trace import Trace

#: How the names of other vendors' devices begin.
_NAMES: Final = (("ascend", "huawei"), ("tpu", "google"), ("mtia", "meta"))


def vendor_of(trace: Trace, calls: Collection[str]) -> str | None:
    """Return the vendor by the devices, else by ``calls``, the names of the runtime's, else by the format;
    None where these name none, or several.

    Devices of several models count as the first, as everywhere.
    """
    if trace.has("devices") and len(trace["devices"]):
        device, _ = trace_device(trace["devices"])
        if device is not None:
            return device.vendor
        names = [str(name).lower() for name in trace["devices"]["name"].drop_nulls().unique()]
        for word, vendor in _NAMES:
            if names and all(name.startswith(word) for name in names):
                return vendor
    if any(name.startswith("hip") for name in calls):
        return None if any(name.startswith("cu") for name in calls) else "amd"
    return "amd" if trace.origin.get("format") == "rocm" else None


def call_names(trace: Trace, most: int = 1000) -> list[str]:
    """The names of the first calls of the runtime, sorted."""
    if not trace.has("calls"):
        return []
    names = trace["calls"]["name"].head(most).drop_nulls().cast(pl.String)
    return sorted(names.unique())

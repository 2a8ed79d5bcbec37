"""Names devices that a trace does not name, so that their peaks are known."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.perf.devices import identify
from opscope.core.tables.trace import Trace, conform

#: How a reader's note begins that asks for a name.
UNNAMED: Final = "devices that the trace does not name"


class UnknownDevice(ValueError):
    """A device's name that no row of ``devices.toml`` fits; the message gives the name and why."""


def name_devices(trace: Trace, gpu: str) -> int:
    """Give every device without a name that of ``gpu``; returns how many there were.

    Where no device did anything, ``gpu`` may describe the CPU. Raises UnknownDevice where it is no
    device that is known (``devices.toml``), a CPU beside kernels, or a GPU where there is none to name.
    What the trace itself says stays.
    """
    known, why = identify.find(gpu)
    if known is None:
        raise UnknownDevice(f"{gpu!r}: {why}")
    used = pl.concat([trace[name].select("process", "device") for name in ("kernels", "memops")])
    if known.vendor == "cpu":
        if len(used):
            raise UnknownDevice(f"{gpu!r} is a CPU, and the trace has the kernels of a GPU")
        zero = pl.lit(0, used.schema["device"]).alias("device")
        used = trace["ranges"].select(pl.col("process").unique(), zero)
    elif not (len(used) or len(trace["devices"])):
        advice = f"the CPU is described as in {identify.CPU_EXAMPLE!r}"
        raise UnknownDevice(f"{gpu!r} is a GPU, and nothing in the trace ran on one; {advice}")
    told = trace["devices"]
    absent = used.drop_nulls().unique().join(told, on=["process", "device"], how="anti")
    table = pl.concat([told, conform("devices", absent)]).sort("process", "device")
    unnamed = table["name"].null_count()
    trace.tables["devices"] = table.with_columns(pl.col("name").fill_null(gpu))
    trace.present |= {"devices"}
    notes = trace["notes"]
    trace.tables["notes"] = notes.filter(~pl.col("what").str.starts_with(UNNAMED).fill_null(False))
    return unnamed

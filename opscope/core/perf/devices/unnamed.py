"""Give devices without a name in the trace a name from the user, so that their peaks are known."""

from __future__ import annotations

from typing import Final

import polars as pl

from opscope.core.perf.devices import identify
from opscope.core.tables.trace import Trace, conform

#: The beginning of a reader's note that asks the user for a device's name.
UNNAMED: Final = "devices that the trace does not name"


class UnknownDevice(ValueError):
    """A device's name cannot be used; the message gives the name and the reason."""


def name_devices(trace: Trace, gpu: str) -> int:
    """Give the name ``gpu`` to every device without a name; return how many there were.

    If no device was used, ``gpu`` may describe the CPU. Names in the trace stay. Raises UnknownDevice if
    ``gpu`` is not in the device table (``devices.toml``), if it is a CPU and the trace has kernels, or if
    it is a GPU and the trace has no device to name.
    """
    device, why = identify.find(gpu)
    if device is None:
        raise UnknownDevice(f"{gpu!r}: {why}")
    used = pl.concat([trace[name].select("process", "device") for name in ("kernels", "memops")])
    if device.vendor == "cpu":
        if len(used):
            raise UnknownDevice(f"{gpu!r} is a CPU, but the trace has kernels of a GPU")
        zero = pl.lit(0, used.schema["device"]).alias("device")
        used = trace["ranges"].select(pl.col("process").unique(), zero)
    elif not (len(used) or len(trace["devices"])):
        advice = f"to describe the CPU, write for example {identify.CPU_EXAMPLE!r}"
        raise UnknownDevice(f"{gpu!r} is a GPU, but nothing in the trace ran on one; {advice}")
    devices = trace["devices"]
    absent = used.drop_nulls().unique().join(devices, on=["process", "device"], how="anti")
    table = pl.concat([devices, conform("devices", absent)]).sort("process", "device")
    unnamed = table["name"].null_count()
    trace.tables["devices"] = table.with_columns(pl.col("name").fill_null(gpu))
    trace.present |= {"devices"}
    notes = trace["notes"]
    trace.tables["notes"] = notes.filter(~pl.col("what").str.starts_with(UNNAMED).fill_null(False))
    return unnamed

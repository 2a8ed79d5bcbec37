"""The content of a file of Nsight Compute, in any form: launches, their measured values, and remarks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import polars as pl

#: The columns of ``Measured.launches``. ``launch``: its number in the file, from 0. ``pushed`` and
#: ``started``: the NVTX ranges that were open at the launch, as lists of ``nvtx.Open``, by index into
#: ``Measured.stacks``.
LAUNCHES: Final = {
    "launch": pl.Int64,
    "pid": pl.Int64,
    "program": pl.String,
    "host": pl.String,
    "id": pl.Int64,
    "name": pl.String,
    "context": pl.Int64,
    "stream": pl.Int64,
    "device": pl.Int64,
    "cc": pl.String,
    "grid": pl.String,
    "block": pl.String,
    "stack": pl.Int64,
}
#: The columns of ``Measured.values``: numbers in base units (bytes, ns, Hz).
VALUES: Final = {"launch": pl.Int64, "name": pl.String, "value": pl.Float64}


@dataclass(frozen=True, slots=True)
class Open:
    """An NVTX range that was open at a launch: of a thread, or a start/end range (``thread`` is None)."""

    thread: int | None
    domain: str
    text: str
    category: str | None = None
    payload: int | None = None


@dataclass(slots=True)
class Measured:
    """The launches of a file in the order in which they were measured, and their values.

    ``stacks``: the distinct lists of open ranges, outermost first. ``devices``: of a device number its
    model and other properties (name, sm_count, memory). ``notes``: (severity, what, how many).
    """

    launches: pl.DataFrame
    values: pl.DataFrame
    stacks: list[tuple[Open, ...]] = field(default_factory=list)
    devices: dict[int, dict[str, object]] = field(default_factory=dict)
    notes: list[tuple[str, str, int]] = field(default_factory=list)
    version: str = ""

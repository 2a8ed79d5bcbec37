"""Read rocprof v1's ``results.json``: its kernels as Chrome events, whose arguments have the times in ns.

Times of the events themselves are cut to whole µs; a kernel's ``BeginNs`` and ``EndNs`` are exact. Written by
``bin/dform.py`` of ROCm/rocprofiler. Calls, ranges and copies of HIP have no more than the cut times.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
import polars as pl

from opscope.readers.errors import BadInput
from opscope.readers.rows import decode

from .parts import Parts
from .table import whole
from .tool_json import document

#: Columns of ``dispatches`` by the name of the argument.
_ARGUMENTS: Final = {
    "pid": "pid", "tid": "tid", "gpu-id": "device", "queue-id": "queue", "grd": "gx", "wgr": "wx",
    "lds": "lds", "scr": "scratch", "arch_vgpr": "arch_vgpr", "accum_vgpr": "accum_vgpr", "sgpr": "sgpr",
    "wave_size": "wave_size", "BeginNs": "start", "EndNs": "end",
}  # fmt: skip
_CUT: Final = (
    "calls, ranges and copies, whose times are cut to whole µs here (results.db has ns), left out"
)


class _Event(msgspec.Struct):
    ph: str = ""
    name: str = ""
    args: dict[str, Any] = {}


class _Events(msgspec.Struct):
    traceEvents: list[_Event]


def read(path: Path, parts: Parts) -> None:
    """Add the kernels in the file to ``parts``. Raises BadInput."""
    parts.tool = "rocprof"
    try:
        whole_file = decode(document(path), _Events, strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError) as error:
        raise BadInput(path, f"damaged JSON of rocprof: {str(error)[:200]}") from error
    timed = [event for event in whole_file.traceEvents if event.ph == "X"]
    kernels = [event for event in timed if "BeginNs" in event.args and "KernelName" in event.args]
    columns = {
        name: whole(pl.Series(name, [_text(event.args.get(key)) for event in kernels], pl.String))
        for key, name in _ARGUMENTS.items()
    }
    frame = pl.DataFrame(columns).with_columns(
        pl.Series("name", [_text(event.args["KernelName"]) for event in kernels], pl.String)
    )
    parts.add("dispatches", frame)
    if len(timed) > len(kernels):
        parts.note("info", _CUT, len(timed) - len(kernels))


def _text(value: Any) -> str | None:
    return str(value) if isinstance(value, (str, int)) else None

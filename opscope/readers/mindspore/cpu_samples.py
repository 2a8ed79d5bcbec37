"""Read MindSpore's samples of the processors: ``minddata_cpu_utilization_N.json`` of its dataset's profiler.

``mindspore/ccsrc/minddata/dataset/engine/perf/cpu_sampler.cc`` writes them: whole percent, of all processors
for the machine, of one for the process; times in ms of a clock that no other file has. The first value of the
machine, of which there is no earlier reading, is 0.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.schema import MACHINE_CPU, PROCESS_CPU, PROCESSORS
from opscope.core.tables.trace import table_schema

NAME: Final = "minddata_cpu_utilization_{}.json"
OTHER_CLOCK: Final = (
    "samples of the processors are MindSpore's, whose times are of another clock than the ops': their means "
    "hold, and which op or step ran meanwhile is not known"
)
#: Largest size of the file in bytes, and most samples.
_MOST: Final = 256 << 20
_LONGEST: Final = 1 << 52


def find(folder: Path, rank: int | None) -> Path | None:
    """Return the file of a rank in the profiler's output; None if there is none."""
    name = NAME.format(rank or 0)
    candidates = [folder / below / name for below in ("", "profiler")]
    return next((path for path in candidates if path.is_file()), None)


def read(path: Path) -> tuple[pl.DataFrame, tuple[str, str, int] | None]:
    """Return the ``samples`` table of one process (number 0), and a note; empty if the file is damaged."""
    try:
        if path.stat().st_size > _MOST:
            raise ValueError("too large")
        about = json.loads(path.read_bytes())
        times = _numbers(about["time_stamp"])
        machine, process = about["device_info"], about["process_info"]
        busy = _both(machine, len(times))
        own = _both(process, None)
        processors = about.get("cpu_processor_num")
    except (
        OSError, ValueError, OverflowError, KeyError, TypeError, RecursionError, AttributeError,
    ) as error:  # fmt: skip
        message = (
            f"{path.name} cannot be read: no samples of the processors ({type(error).__name__})"
        )
        return pl.DataFrame(schema=table_schema("samples")), ("info", message, 1)
    rows: list[tuple[str, int, float | None]] = []
    for name, values in ((MACHINE_CPU, busy[1:]), (PROCESS_CPU, own[-(len(times) - 1) :])):
        if times and len(values) == len(times) - 1:
            rows += [
                (name, time, value) for time, value in zip(times, (None, *values), strict=True)
            ]
    if times and type(processors) is int and 0 < processors < 1 << 20:
        rows.append((PROCESSORS, times[-1], float(processors)))
    frame = pl.DataFrame(
        rows, schema={"name": pl.String, "time": pl.Int64, "value": pl.Float64}, orient="row"
    )
    frame = frame.with_columns(pl.lit(0, pl.Int32).alias("process"), pl.col("time") * 1_000_000)
    return frame.select("process", "time", pl.col("name").cast(pl.Categorical), "value"), None


def _numbers(values: Any) -> list[int]:
    numbers = [int(value) for value in values]
    if any(not 0 <= number < _LONGEST // 1_000_000 * 1000 for number in numbers):
        raise ValueError("out of range")
    return numbers


def _both(of: Any, processors: int | None) -> list[float]:
    """Return user and system utilization added up."""
    user, system = _numbers(of["user_utilization"]), _numbers(of["sys_utilization"])
    if len(user) != len(system) or (processors is not None and len(user) != processors):
        raise ValueError("of different lengths")
    return [float(user_part + other) for user_part, other in zip(user, system, strict=True)]

"""Find the processes, threads and devices of a Kineto trace in its head and metadata events."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.tables.lanes import lanes_of

from .columns import Columns, id_number
from .groups import own_rank
from .links import Processes

_VERSIONS: Final = (
    "cuda_runtime_version", "cuda_driver_version", "cupti_version", "hip_runtime_version",
    "hip_driver_version", "roctracer_version",
)  # fmt: skip
#: Larger thread ids are not the operating system's but parts of a pthread handle.
_LARGEST_TID: Final = 1 << 22


#: How torch.profiler's handler for TensorBoard names a file: host, process, time.
_FILE: Final = re.compile(r"(.+)_([0-9]{1,10})\.[0-9]{10,20}\.pt\.trace\.json(?:\.gz|\.zst)?\Z")
_HOST_KEYS: Final = ("host_name", "hostname", "host")


def host_of(meta: dict[str, Any], name: str, files: Processes) -> str | None:
    """Return the machine's name from the head of the file. If it is not there, return it from the file's
    name, provided that the name has the profiler's form and contains the id of a process in the file."""
    info = meta.get("distributedInfo")
    for section in (meta, info if isinstance(info, dict) else {}):
        for key in _HOST_KEYS:
            if _word(section.get(key)):
                return _word(section[key])
    for text in (name, _word(meta.get("traceName")) or ""):
        parts = _FILE.match(text.rpartition("/")[2])
        if parts and int(parts[2]) in files.pids:
            return parts[1]
    return None


def process_row(
    meta: dict[str, Any], columns: Columns, files: Processes, name: str
) -> pl.DataFrame:
    """Return the ``processes`` table. A file has one rank, whose process drives its devices.

    ``name`` is the file's name, which may contain the host's.
    """
    names = {
        id_number(pid): label for event, pid, _, label in columns.meta if event == "process_name"
    }
    distributed = own_rank(meta)
    versions = {key: meta[key] for key in _VERSIONS if isinstance(meta.get(key), int)}
    if isinstance(distributed.get("nccl_version"), str):
        versions["nccl_version"] = distributed["nccl_version"]
    count = len(files.pids)
    return pl.DataFrame(
        {
            "process": range(count),
            "host": [host_of(meta, name, files)] * count,
            "pid": files.pids,
            "rank": [_small(distributed.get("rank"))] * count,
            "world_size": [_small(distributed.get("world_size"))] * count,
            "clock_domain": [0] * count,
            "name": [names.get(pid) for pid in files.pids],
            "framework": ["torch"] * count,
            "versions": [json.dumps(versions) if versions else None] * count,
        },
        schema_overrides={"pid": pl.Int64, "host": pl.String, "name": pl.String, "versions": pl.String,
                          "rank": pl.Int32, "world_size": pl.Int32},
    )  # fmt: skip


def threads(columns: Columns, number: NDArray[np.int64], files: Processes) -> pl.DataFrame:
    """The ``threads`` table: every thread with a host row."""
    lanes: set[tuple[int, int]] = set()
    for kind in ("call", "op", "user", "python"):
        rows = columns[kind]
        process = files.of(number[rows.column("pid", np.int32)]).astype(np.int64)
        thread = number[rows.column("tid", np.int32)]
        lanes |= set(lanes_of(process, thread).keys)
    names = {
        (id_number(pid), id_number(tid)): label
        for event, pid, tid, label in columns.meta
        if event == "thread_name"
    }
    ordered = sorted(lanes)
    return pl.DataFrame(
        {
            "process": [process for process, _ in ordered],
            "thread": [thread for _, thread in ordered],
            "os_tid": [thread if 0 < thread < _LARGEST_TID else None for _, thread in ordered],
            "name": [names.get((files.pids[process], thread)) for process, thread in ordered],
        },
        schema={"process": pl.Int64, "thread": pl.Int64, "os_tid": pl.Int64, "name": pl.String},
    )


def devices(
    meta: dict[str, Any], files: Processes, tables: dict[str, pl.DataFrame]
) -> pl.DataFrame:
    """The ``devices`` table: the devices with rows; if there are none, all that the file's head lists."""
    listed = meta.get("deviceProperties")
    properties = {
        item["id"]: item
        for item in (listed if isinstance(listed, list) else ())
        if isinstance(item, dict) and type(item.get("id")) is int
    }
    used = {
        (process, device)
        for name in ("kernels", "memops")
        if name in tables
        for process, device in tables[name].select("process", "device").unique().rows()
        if device is not None
    }
    rows = sorted(used) or [(files.main, device) for device in sorted(properties)]
    facts = [properties.get(device, {}) for _, device in rows]
    return pl.DataFrame(
        {
            "process": [process for process, _ in rows],
            "device": [device for _, device in rows],
            "name": [_word(item.get("name")) for item in facts],
            "uuid": [_word(item.get("uuid")) for item in facts],
            "cc": [_capability(item) for item in facts],
            "sm_count": [_small(item.get("numSms")) for item in facts],
            "memory": [_small(item.get("totalGlobalMem"), 1 << 62) for item in facts],
            "max_threads_per_sm": [_small(item.get("maxThreadsPerMultiprocessor")) for item in facts],
        },
        schema={"process": pl.Int32, "device": pl.Int32, "name": pl.String, "uuid": pl.String,
                "cc": pl.String, "sm_count": pl.Int32, "memory": pl.Int64,
                "max_threads_per_sm": pl.Int32},
        strict=False,
    )  # fmt: skip


def _capability(item: dict[str, Any]) -> str | None:
    major, minor = item.get("computeMajor"), item.get("computeMinor")
    return f"{major}.{minor}" if type(major) is int and type(minor) is int else None


def _small(value: Any, limit: int = 1 << 31) -> int | None:
    return value if type(value) is int and 0 <= value < limit else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None

"""Make the ``devices`` table from CUPTI's records of devices, and say which are slices of a GPU (MIG)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from opscope.core.cupti import kinds
from opscope.core.tables.trace import table_schema
from opscope.readers.recording.cupti_files import Facts, Note
from opscope.readers.recording.cupti_records import Columns
from opscope.readers.rows import frame_of

#: Columns that the program's side may tell too, beside CUPTI's records.
_TOLD: Final = (
    "name", "uuid", "cc", "sm_count", "memory", "max_threads_per_sm", "clock_khz", "mem_bandwidth",
)  # fmt: skip


def devices(
    decoded: Mapping[int, Columns], facts: Facts, used: set[int]
) -> tuple[pl.DataFrame, list[Note]]:
    """Return the ``devices`` table, and notes: the devices that were ``used``, or else all that are known."""
    rows: dict[int, dict[str, Any]] = {}
    notes: list[Note] = []
    if kinds.DEVICE in decoded:
        records = decoded[kinds.DEVICE]
        for index in range(min(records.many, 4096)):
            row = {name: records[name][index] for name in records.by_name}
            device = int(row["id"])
            rows[device] = _row(row, facts)
            if row["isMigEnabled"] and (not used or device in used):
                notes.append(
                    (
                        "info",
                        f"device {device} is a slice of a GPU (MIG): GPU instance {row['gpuInstanceId']}, "
                        f"compute instance {row['computeInstanceId']}",
                        1,
                    )
                )
    for device, told in facts.devices.items():
        facts_of_device = rows.setdefault(device, {})
        for name in _TOLD:
            if facts_of_device.get(name) is None and isinstance(told.get(name), (int, str)):
                facts_of_device[name] = told[name]
    wanted = sorted(used) or sorted(rows)
    schema = table_schema("devices")
    wide = {name: pl.Int64 if dtype == pl.Int32 else dtype for name, dtype in schema.items()}
    kept = [{**rows.get(device, {}), "process": 0, "device": device} for device in wanted]
    return frame_of(kept, wide, notes, "devices"), notes


def _row(row: Mapping[str, Any], facts: Facts) -> dict[str, Any]:
    texts = facts.names.get(int(row["name"]) & ((1 << 64) - 1))
    major, minor = int(row["computeCapabilityMajor"]), int(row["computeCapabilityMinor"])
    mig = bool(row["isMigEnabled"])
    return {
        "name": texts[-1][1] if texts else None,
        "uuid": _uuid(row["migUuid" if mig else "uuid"], "MIG" if mig else "GPU"),
        "cc": f"{major}.{minor}" if 0 < major < 100 and minor < 100 else None,
        "sm_count": int(row["numMultiprocessors"]) or None,
        "memory": int(row["globalMemorySize"]) or None,
        "max_threads_per_sm": int(row["maxWarpsPerMultiprocessor"]) * int(row["numThreadsPerWarp"])
        or None,
        "clock_khz": int(row["coreClockRate"]) or None,
        "mem_bandwidth": int(row["globalMemoryBandwidth"]) * 1000 or None,  # CUPTI's are kB/s
    }


def _uuid(value: Any, kind: str) -> str | None:
    digits = bytes(value).ljust(16, b"\0").hex()
    if not digits.strip("0"):
        return None
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return f"{kind}-{'-'.join(parts)}"

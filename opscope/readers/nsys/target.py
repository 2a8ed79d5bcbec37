"""Read an Nsight Systems export's facts about the machine: processes, threads, GPUs, clock, origin, notes.
The export also contains the program's whole environment; none of it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

import polars as pl

from opscope.core.redaction import redact
from opscope.core.tables.trace import table_schema
from opscope.readers.sqlite import Kind

from .source import Source
from .strings import TID_BITS, TID_MASK, Codes, Strings, Threads

#: The only rows of TARGET_INFO_SYSTEM_ENV that are read.
_HOST, _DRIVER, _CUDA = "Hostname", "NvDriverVersion", "CudaDriverVersion"
_CPU: Final = "CpuDescription"
#: The columns that DLProf adds to an export's table ``SystemInfo``, and the version in each.
_ADDED: Final = {"cpuModel": "cpu", "nsysVersion": "nsys", "cudnnVersion": "cudnn"}
_SEVERITY: Final = {2: "warning", 3: "error"}
#: The script by which ``opscope run`` starts a program under nsys, the words before the script, and the file
#: numbers after it (``backends/nsys/starter.py``).
_STARTER: Final = ("nsys", "starter.py")
_STARTED, _FILES = 4, 4
_MAX_NOTE: Final = 300
_MAX_NOTES: Final = 200


def read_meta(source: Source) -> dict[str, str]:
    """Return the export's facts about itself and the capture, by name, without the environment."""
    meta: dict[str, str] = {}
    for table in ("EXPORT_META_DATA", "META_DATA_EXPORT", "META_DATA_CAPTURE"):
        for row in _dicts(source, table, {"name": "text", "value": "text"}):
            name, value = row["name"], row["value"]
            if name and value and "ENV" not in name.upper():
                meta.setdefault(name, value)
    return meta


def origin_of(source: Source, meta: Mapping[str, str]) -> dict[str, Any]:
    """Return ``Trace.origin``: format, tool, version, schema, path, and the command with secrets redacted."""
    command = [meta["PROCESS_0:COMMAND"]] if "PROCESS_0:COMMAND" in meta else []
    count = 0
    while f"PROCESS_0:ARGUMENT_{count}" in meta:
        command.append(meta[f"PROCESS_0:ARGUMENT_{count}"])
        count += 1
    command = _own(command)
    facts = {
        "format": "nsys",
        "tool": meta.get("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
        "version": meta.get("EXPORT_PRODUCT_VERSION"),
        "schema": meta.get("EXPORT_SCHEMA_VERSION"),
        "command": list(redact(command)) or None,
        "paths": [str(source.path)],
    }
    return {key: value for key, value in facts.items() if value is not None}


def _own(command: list[str]) -> list[str]:
    """Return the program's command, without the script of ``opscope run`` that starts it under nsys."""
    for number, word in enumerate(command[:_STARTED], start=1):
        if PurePath(word).parts[-2:] == _STARTER:
            return command[number + _FILES :]
    return command


def read_processes(source: Source, strings: Strings, processes: Codes) -> pl.DataFrame:
    """Return the ``processes`` table: a row for each process with records, in order of pid."""
    names = {
        row["globalPid"] >> TID_BITS: row["name"]
        for row in _dicts(source, "PROCESSES", {"globalPid": "int", "name": "text"})
        if row["globalPid"] is not None
    }
    for key, name in _thread_names(source, strings).items():
        if key & TID_MASK == key >> TID_BITS & TID_MASK:  # the main thread has the program's name
            names.setdefault(key >> TID_BITS, name)
    ranks = {
        row["globalTid"] >> TID_BITS: row["rank"]
        for row in _dicts(source, "MPI_RANKS", {"globalTid": "int", "rank": "int"})
        if row["globalTid"] is not None
    }
    env = {
        row["name"]: row["value"]
        for row in _dicts(
            source,
            "TARGET_INFO_SYSTEM_ENV",
            {"name": "text", "value": "text"},
            f"name IN ('{_HOST}', '{_DRIVER}', '{_CUDA}', '{_CPU}')",
        )
    }
    added = _add(source)
    versions = {
        "driver": env.get(_DRIVER),
        "cuda_driver": env.get(_CUDA),
        "cpu": env.get(_CPU),
        **{key: added[name] for name, key in _ADDED.items() if added.get(name)},
    }
    versions_text = json.dumps({key: value for key, value in versions.items() if value})
    keys = sorted(processes.keys)
    return pl.DataFrame(
        {
            "process": range(len(keys)),
            "host": [env.get(_HOST)] * len(keys),
            "pid": [key & TID_MASK for key in keys],
            "rank": [ranks.get(key) for key in keys],
            "world_size": [len(set(ranks.values())) or None] * len(keys),
            "clock_domain": [0] * len(keys),
            "name": [names.get(key) for key in keys],
            "framework": [added.get("framework") or None] * len(keys),
            "versions": [versions_text if versions_text != "{}" else None] * len(keys),
        },
        schema={
            "process": pl.Int32, "host": pl.String, "pid": pl.Int64, "rank": pl.Int64,
            "world_size": pl.Int32, "clock_domain": pl.Int32, "name": pl.String,
            "framework": pl.String, "versions": pl.String,
        },
    )  # fmt: skip


def _add(source: Source) -> dict[str, str | None]:
    """Return the facts about the machine that DLProf added to the export, by column of ``SystemInfo``."""
    rows = _dicts(source, "SystemInfo", dict.fromkeys((*_ADDED, "framework"), "text"))
    return next(iter(rows), {})


def read_threads(source: Source, strings: Strings, threads: Threads) -> pl.DataFrame:
    """Return the ``threads`` table: the threads known so far, and the named threads of their processes."""
    order = {key: number for number, key in enumerate(sorted(threads.processes.keys))}
    rows: dict[tuple[int, int], str | None] = {
        (order[key >> TID_BITS], key & TID_MASK): name
        for key, name in _thread_names(source, strings).items()
        if key >> TID_BITS in order
    }
    for process, thread in threads.known:
        rows.setdefault((order[process], thread), None)
    ordered = sorted(rows)
    return pl.DataFrame(
        {
            "process": [process for process, _ in ordered],
            "thread": [thread for _, thread in ordered],
            "os_tid": [thread for _, thread in ordered],
            "name": [rows[key] for key in ordered],
        },
        schema={
            "process": pl.Int32, "thread": pl.Int64, "os_tid": pl.Int64, "name": pl.String,
        },
    )  # fmt: skip


def read_clock(source: Source) -> pl.DataFrame:
    """Return the ``clocks`` table: times count ns from the start of the session."""
    starts = source.rows("TARGET_INFO_SESSION_START_TIME", {"utcEpochNs": "int"})
    epoch = starts["utcEpochNs"][0] if starts.height and starts.width else None
    return pl.DataFrame(
        {"clock_domain": [0], "kind": ["nsys session"], "to_unix_ns": [epoch]},
        schema={"clock_domain": pl.Int32, "kind": pl.String, "to_unix_ns": pl.Int64},
    )


def read_duration(source: Source) -> int | None:
    """Return when the capture ended (ns, on the clock of the events), or None if the export lacks that."""
    details: Any = source.rows("ANALYSIS_DETAILS", {"duration": "int"})
    return details["duration"].max() if details.width and details.height else None


def read_devices(
    source: Source, processes: Codes, used: pl.DataFrame, gpu: str | None
) -> tuple[pl.DataFrame, int]:
    """Return the ``devices`` table, and how many of the ``used`` (process, device) the export does not name.

    Those get the name ``gpu``. Processes may number the same GPUs differently (CUDA_VISIBLE_DEVICES).
    """
    gpus = _gpus(source)
    by_pid: dict[tuple[int, int], dict[str, Any]] = {}
    for row in _dicts(
        source, "TARGET_INFO_CUDA_DEVICE", {"gpuId": "int", "cudaId": "int", "pid": "int"}
    ):
        if row["cudaId"] is not None and row["pid"] is not None:
            by_pid[row["pid"], row["cudaId"]] = gpus.get(row["gpuId"], {})
    for row in _dicts(source, "TARGET_INFO_CUDA_GPU", _OLD_GPU):
        if row["deviceId"] is not None and row["pid"] is not None:
            by_pid.setdefault((row["pid"], row["deviceId"]), _old_gpu(row))
    pids = [key & TID_MASK for key in sorted(processes.keys)]
    by_number = {gpu["device"]: gpu for gpu in gpus.values()}
    rows, unnamed = [], 0
    for process, device in sorted(used.drop_nulls().iter_rows()):
        facts = by_pid.get((pids[process], device)) or by_number.get(device, {})
        unnamed += facts.get("name") is None
        rows.append(
            {**facts, "process": process, "device": device, "name": facts.get("name") or gpu}
        )
    return device_frame(rows), unnamed


def idle_gpus(source: Source, devices: pl.DataFrame) -> list[dict[str, Any]]:
    """Return ``device`` and ``name`` of the GPUs that the program could see and on which nothing ran.
    ``devices``: the table of those that ran something. Newer versions list each process's GPUs in
    TARGET_INFO_CUDA_DEVICE; otherwise all GPUs of the machine count."""
    gpus = _gpus(source)
    seen = _dicts(source, "TARGET_INFO_CUDA_DEVICE", {"gpuId": "int"})
    visible = {row["gpuId"] for row in seen} or set(gpus)
    unlike = {facts["uuid"] for facts in gpus.values()} - {None}
    column = "uuid" if len(unlike) == len(gpus) else "device"
    used = set(devices[column].drop_nulls())
    return [
        {"device": facts["device"], "name": facts["name"]}
        for number, facts in sorted(gpus.items())
        if number in visible and facts[column] not in used
    ]


_GPU: Final[Mapping[str, Kind]] = {
    "id": "int", "deviceId": "int", "cuDevice": "int", "name": "text", "uuid": "text",
    "totalMemory": "int", "memoryBandwidth": "int", "clockRate": "int", "smCount": "int",
    "maxWarpsPerSm": "int", "threadsPerWarp": "int", "computeMajor": "int", "computeMinor": "int",
}  # fmt: skip
_OLD_GPU: Final[Mapping[str, Kind]] = {
    "name": "text", "deviceId": "int", "pid": "int", "globalMemorySize": "int",
    "coreClockRate": "int", "numMultiprocessors": "int", "maxWarpsPerMultiprocessor": "int",
    "numThreadsPerWarp": "int", "computeCapabilityMajor": "int", "computeCapabilityMinor": "int",
}  # fmt: skip


def _gpus(source: Source) -> dict[int, dict[str, Any]]:
    """TARGET_INFO_GPU by its own id; the export gives bytes, bytes/s and Hz."""
    facts_of_gpus = {}
    for row in _dicts(source, "TARGET_INFO_GPU", _GPU):
        identity = row["id"] if row["id"] is not None else row["deviceId"]
        if identity is None:
            continue
        facts_of_gpus[identity] = {
            "device": row["cuDevice"] if row["cuDevice"] is not None else identity,
            "name": row["name"],
            "uuid": row["uuid"],
            "cc": capability(row["computeMajor"], row["computeMinor"]),
            "sm_count": row["smCount"],
            "memory": row["totalMemory"],
            "max_threads_per_sm": product(row["maxWarpsPerSm"], row["threadsPerWarp"]),
            "clock_khz": row["clockRate"] // 1000 if row["clockRate"] else None,
            "mem_bandwidth": row["memoryBandwidth"],
        }
    return facts_of_gpus


def _old_gpu(row: Mapping[str, Any]) -> dict[str, Any]:
    """TARGET_INFO_CUDA_GPU of 2020, in MiB and kHz. The bandwidth in it is cut to 32 bits, so it is left
    out."""
    return {
        "name": row["name"],
        "cc": capability(row["computeCapabilityMajor"], row["computeCapabilityMinor"]),
        "sm_count": row["numMultiprocessors"],
        "memory": product(row["globalMemorySize"], 1 << 20),
        "max_threads_per_sm": product(row["maxWarpsPerMultiprocessor"], row["numThreadsPerWarp"]),
        "clock_khz": row["coreClockRate"],
    }


def read_notes(source: Source) -> list[tuple[str, str, int]]:
    """Return the tool's own diagnostics (DIAGNOSTIC_EVENT); equal ones become one note with a count."""
    frame = source.rows("DIAGNOSTIC_EVENT", {"severity": "int", "text": "text"})
    if not {"severity", "text"} <= set(frame.columns) or not frame.height:
        return []
    counted = frame.group_by("severity", "text", maintain_order=True).len().head(_MAX_NOTES)
    return [
        (_SEVERITY.get(severity, "info"), f"Nsight Systems: {text[:_MAX_NOTE]}", count)
        for severity, text, count in counted.iter_rows()
        if text
    ]


def _thread_names(source: Source, strings: Strings) -> dict[int, str]:
    """Thread names by globalTid; of several names, the one with the highest priority."""
    wanted: dict[str, Kind] = {"globalTid": "int", "nameId": "int", "priority": "int"}
    frame = source.rows("ThreadNames", wanted)
    if not {"globalTid", "nameId"} <= set(frame.columns) or not frame.height:
        return {}
    if "priority" in frame.columns:
        frame = frame.sort("priority", maintain_order=True)
    frame = frame.with_columns(strings.categorical(frame["nameId"]).cast(pl.String).alias("name"))
    names = frame.select("globalTid", "name").drop_nulls()
    return dict(names.iter_rows())


def capability(major: int | None, minor: int | None) -> str | None:
    """Return CUDA's compute capability as text; None unless both numbers are plausible."""
    is_valid = major is not None and minor is not None and 0 < major < 100 and 0 <= minor < 100
    return f"{major}.{minor}" if is_valid else None


def product(left: int | None, right: int | None) -> int | None:
    """Return the product; None if a number is unknown or the product exceeds 64 bits."""
    if left is None or right is None or abs(left * right) >= 1 << 63:
        return None
    return left * right


def device_frame(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Return rows of ``devices`` with every number in 64 bits; ``sound`` checks which are plausible."""
    schema = table_schema("devices")
    wide = {name: pl.Int64 if dtype == pl.Int32 else dtype for name, dtype in schema.items()}
    return pl.DataFrame(rows, schema=wide)


def _dicts(
    source: Source, table: str, columns: Mapping[str, Kind], where: str | None = None
) -> list[dict[str, Any]]:
    """The rows of a small table with all the columns; those that the table lacks are null."""
    if where is not None and not source.has(table, *columns):
        return []
    frame = source.rows(table, columns, where)
    if not frame.width:
        return []
    absent = [name for name in columns if name not in frame.columns]
    return frame.with_columns(pl.lit(None).alias(name) for name in absent).to_dicts()

"""Recognise the databases of AMD's profilers by their tables: rocpd, rocmProfileData and rocprof v1."""

from __future__ import annotations

from pathlib import Path

from opscope.readers.errors import BadInput
from opscope.readers.sqlite import Database, is_database


def recognise(path: Path) -> bool:
    """Whether the SQLite file is one of these databases. Never raises."""
    try:
        return is_database(path, lambda database: format_of(database) is not None)
    except OSError:
        return False


def format_of(database: Database) -> str | None:
    """Return ``rocpd``, ``rpd`` or ``rocprof``; None for a database of another tool."""
    tables = database.tables
    if any(name.startswith("rocpd_kernel_dispatch") for name in tables):
        return "rocpd"
    if any(name.startswith(("rocpd_info_process", "rocpd_info_agent")) for name in tables):
        return "rocpd"
    if {"rocpd_string", "rocpd_op", "rocpd_api"} <= set(tables):
        return "rpd"
    if database.has("KERN", "KernelName") or any(
        database.has(name, "BeginNs", "EndNs", "Name", "Index")
        for name in ("HIP", "OPS", "HSA", "COPY")
    ):
        return "rocprof"
    return None


def unknown(path: Path) -> BadInput:
    """Return the error for a database without its tables."""
    return BadInput(
        path, "not a database of rocprofv3, rocmProfileData or rocprof (it lacks their tables)"
    )

"""Check before a run under nsys what would be missing from the report, and why, while it can still be
fixed."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from opscope.backends.machine import Machine
from opscope.core.capture.nvtx_sink import MIN_NVTX

from .tool import Tool
from .versions import Version

#: Releases of the package nvtx whose domains are silent dummies under some versions of nsys: the extension
#: for payloads, which they need, fails to start there. opscope forces its own domains
#: (``nvtx_sink.open_domain``); the user's stay silent.
_SILENT: Final = ((0, 2, 12), (0, 2, 17))
#: These versions, as measured: dummies under 2022.4, 2023.4 and 2024.2, live domains under 2020.4. For other
#: versions it is reported after the run (``nsight.record_listener``).
_SILENCING: Final = ((2022, 4), (2024, 2))
#: nsys writes into its temporary folder first; with less it fails half-way.
_LEAST_BYTES: Final = 200 * 1024 * 1024


def findings(
    tool: Tool, machine: Machine, foreign: bool, environ: Mapping[str, str] = os.environ
) -> Iterator[str]:
    """Yield the warnings for the user, a sentence each. ``foreign``: the program runs in another Python."""
    if tool.note:
        yield tool.note
    if environ.get("NVTX_DISABLE"):
        yield "NVTX_DISABLE is set: no range is recorded, only kernels; unset it"
    elif not foreign:
        yield from _of_nvtx(tool, environ)
    yield from _of_disk(environ)
    if machine.gpu is None:
        yield f"{machine.no_gpu}: Nsight Systems records ranges alone"


def silences(version: Version) -> bool:
    """Whether this version of nsys is known to silence current versions of the package nvtx."""
    return _SILENCING[0] <= version <= _SILENCING[1]


def silent(tool: str) -> str:
    """Return the line about the user's own ranges if ``tool`` silences the package nvtx."""
    return (
        f"ranges that the program makes with the package nvtx itself are not recorded, because {tool} "
        "silences that package; opscope's ranges and those of opscope.annotate are"
    )


def nvtx_version(text: str | None) -> tuple[int, int, int] | None:
    """Return a version of the package nvtx as numbers; None if it is missing or not a version."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text or "")
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def _of_nvtx(tool: Tool, environ: Mapping[str, str]) -> Iterator[str]:
    try:
        text = importlib.metadata.version("nvtx")
    except importlib.metadata.PackageNotFoundError:
        yield (
            "the package nvtx is not installed here: no range is recorded, only kernels; pip install nvtx"
        )
        return
    version = nvtx_version(text)
    if version is None:
        return
    if version < MIN_NVTX:
        least = ".".join(map(str, MIN_NVTX))
        yield (
            f"the package nvtx {text} is too old: no range is recorded, only kernels; "
            f"pip install 'nvtx>={least}'"
        )
    elif _SILENT[0] <= version <= _SILENT[1] and silences(tool.version):
        yield silent(f"Nsight Systems {tool.can.name}")


def _of_disk(environ: Mapping[str, str]) -> Iterator[str]:
    folder = Path(environ.get("TMPDIR") or tempfile.gettempdir())
    if not os.access(folder, os.W_OK | os.X_OK):
        yield f"Nsight Systems cannot write to its temporary folder {folder}; set TMPDIR to another"
        return
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return
    if free < _LEAST_BYTES:
        yield (
            f"the temporary folder {folder} has {free / 1e6:.0f} MB left, and Nsight Systems writes all of "
            "its data there first; set TMPDIR to another"
        )

"""The processor of this process, its measured roofs, and the loaded cuDNN, for the recorded versions."""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from opscope.core import owned_folder

#: The file in the user's cache folder with the roofs that ``opscope doctor --measure`` has measured, a row
#: for each kind of machine: ``{"schema": 1, "machines": [{"cpu": …, "cores": …, "roofs": …}]}``.
ROOFS_FILE: Final = "cpu_roofs.json"
_MOST_ROOFS: Final = 65_536
CPU_INFO: Final = Path("/proc/cpuinfo")
_MAPS: Final = Path("/proc/self/maps")
#: The most bytes of the first processor's lines; Linux generates the text of others only when it is read.
_HEAD: Final = 4096
#: The cores of ARM's processors, whose name Linux does not give: by implementer and part (the register MIDR,
#: as in ``lscpu``).
_ARM: Final = {
    (0x41, 0xD07): "Cortex-A57", (0x41, 0xD08): "Cortex-A72", (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1", (0x41, 0xD40): "Neoverse-V1", (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD49): "Neoverse-N2", (0x41, 0xD4F): "Neoverse-V2", (0x41, 0xD83): "Neoverse-V3AE",
    (0x41, 0xD84): "Neoverse-V3", (0x41, 0xD8E): "Neoverse-N3", (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "TaiShan-v110", (0x4E, 0x003): "Denver 2", (0x4E, 0x004): "Carmel",
    (0xC0, 0xAC3): "Ampere-1", (0xC0, 0xAC4): "Ampere-1a",
}  # fmt: skip
_FIELD: Final = re.compile(r"^([^\t:\n]+?)[ \t]*: *(.*)$", re.MULTILINE)
_CUDNN: Final = re.compile(r"(/\S.*/libcudnn(?:-[0-9a-f]+)?\.so[.\d]*)$", re.MULTILINE)


@lru_cache
def cpu_model(cpu_info: Path = CPU_INFO) -> str | None:
    """Return the model of the machine's processor; None if the system does not show it. An unlisted processor
    of ARM is described by its two numbers."""
    try:
        with cpu_info.open(encoding="utf-8", errors="replace") as file:
            # the first processor's lines suffice
            said = dict(reversed(_FIELD.findall(file.read(_HEAD))))
    except OSError:
        return None
    if said.get("model name"):
        return " ".join(said["model name"].split())
    try:
        implementer, part = (int(said[name], 16) for name in ("CPU implementer", "CPU part"))
    except (KeyError, ValueError):
        return None
    return (
        f"ARM {_ARM.get((implementer, part), f'implementer 0x{implementer:02x} part 0x{part:03x}')}"
    )


def cores() -> int:
    """Return the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def measured_machines() -> list[dict[str, object]]:
    """Return the rows of the file with measured roofs; none if there is no such file, or a broken one."""
    try:
        with (owned_folder.cache_folder() / ROOFS_FILE).open("rb") as file:
            document = json.loads(file.read(_MOST_ROOFS))
        rows = document["machines"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # RuntimeError: no home
        return []
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


@lru_cache
def cpu_roofs() -> str | None:
    """Return the roofs measured for this processor with this many cores, as ``--gpu`` takes them."""
    here = (cpu_model(), cores())
    for row in measured_machines():
        roofs = row.get("roofs")
        if (row.get("cpu"), row.get("cores")) == here and isinstance(roofs, str):
            return roofs
    return None


def cudnn_version(maps: Path = _MAPS) -> str | None:
    """Return the version of the cuDNN that this process has loaded, ``9.1.0``; None without one. It loads no
    library: it calls ``cudnnGetVersion``, which needs no context, of the mapped library."""
    loaded = getattr(os, "RTLD_NOLOAD", None)
    try:
        paths = dict.fromkeys(_CUDNN.findall(maps.read_text("utf-8", "replace")))
    except OSError:  # no /proc
        return None
    if loaded is None or not paths:
        return None
    import ctypes  # lazy: it takes 2 ms

    for path in paths:
        try:
            function = ctypes.CDLL(path, mode=os.RTLD_LAZY | loaded).cudnnGetVersion
        except (OSError, AttributeError):  # unmapped meanwhile, or not cuDNN
            continue
        function.argtypes, function.restype = (), ctypes.c_size_t
        number = int(function())
        # cuDNN's header packs the version in one way from 9 on, in another before
        major = 10_000 if number >= 90_000 else 1000
        return f"{number // major}.{number % major // 100}.{number % 100}"
    return None

"""Find ``nsys``: on PATH, else where NVIDIA's packages put it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from opscope.backends.machine import Machine

#: Where NVIDIA's packages put ``nsys`` without adding it to PATH.
_PLACES: Final = (
    "opt/nvidia/nsight-systems/*/bin/nsys",
    "opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "usr/local/cuda*/bin/nsys",
)


def find(machine: Machine) -> str | None:
    """Return the path of ``nsys``: on PATH, else the newest in NVIDIA's own folders, else None."""
    return machine.program("nsys") or next(_elsewhere(machine.root), None)


def _elsewhere(root: Path) -> Iterator[str]:
    for pattern in _PLACES:
        paths = [path for path in root.glob(pattern) if os.access(path, os.X_OK)]
        yield from map(str, sorted(paths, key=_numbers, reverse=True))


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]

"""Check whether an installation of Nsight Systems can make reports: whether its importer exists and
starts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .asked import asked

#: An installation has ``nsys`` in target-linux-x64 (or -sbsa-armv8) and the importer in host-linux-x64.
_TARGET, _HOSTS, _NAME = "target-linux", "host-linux-*", "QdstrmImporter"
#: Messages of the system's loader for a program that it cannot start.
_UNLOADED: Final = (
    "error while loading shared libraries",
    "cannot open shared object",
    "not found",
)


def trouble(path: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return why the ``nsys`` at ``path`` would leave raw events and no report, with advice; None if no
    problem is found. A script that starts nsys elsewhere shows nothing about its installation."""
    target = Path(os.path.realpath(path)).parent
    if not target.name.startswith(_TARGET):
        return None
    importers = [hosts / _NAME for hosts in sorted(target.parent.glob(_HOSTS))]
    importer = next((importer_path for importer_path in importers if importer_path.is_file()), None)
    then = "a run would leave a .qdstrm and no report"
    if importer is None:
        return (
            f"its importer, {target.parent}/{_HOSTS}/{_NAME}, is missing: {then}; install the whole package"
            " of Nsight Systems, or link that folder"
        )
    why = _start(importer, environ)
    return why and f"its importer does not start ({why}): {then}; install what it lacks"


def _start(importer: Path, environ: Mapping[str, str]) -> str | None:
    """Return why the importer does not start; None if it starts, whatever it prints."""
    try:
        done = asked(importer, environ, "--help")
    except subprocess.TimeoutExpired:
        return None  # the importer runs
    except OSError as error:
        return f"{importer}: {error.strerror or error}"
    said = [
        line for line in done.stderr.splitlines() if any(phrase in line for phrase in _UNLOADED)
    ]
    return said[0].strip()[:300] if done.returncode and said else None

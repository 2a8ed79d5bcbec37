"""Find out whether a framework's native libraries are already built, without importing the framework.

A library's name may depend on data that only the imported framework has, and importing takes seconds. So
the process that builds the libraries leaves an empty marker file in the cache. Its name is derived from
the framework's files and our sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from . import cache

_SOURCES: Final = (".c", ".cc", ".cpp", ".h")
#: The folder that contains each framework's adapter.
_ADAPTERS: Final = Path(__file__).resolve().parents[1]


def sources(framework: str) -> list[Path]:
    """Return the native source files of the framework's adapter; most adapters have none."""
    files = sorted((_ADAPTERS / framework).rglob("*"))
    return [file for file in files if file.suffix in _SOURCES]


def is_ready(framework: str, module: str, environ: Mapping[str, str]) -> bool:
    """Whether the libraries are built for the framework whose ``__init__.py`` is ``module``.

    Raises OSError if that file cannot be read.
    """
    return cache.find(_name(framework, module, environ)) is not None


def leave_marker(framework: str, module: str) -> None:
    """Leave the marker file: the libraries are built, or cannot be built."""
    with contextlib.suppress(OSError):
        name = _name(framework, module, os.environ)
        if cache.find(name) is not None:
            return
        for folder in cache.folders():
            with contextlib.suppress(OSError):
                cache.prepare(folder)
                (folder / name).touch(mode=0o600)
                return


def _name(framework: str, module: str, environ: Mapping[str, str]) -> str:
    path = Path(module).resolve()
    status = path.stat()
    texts = [path.read_text("utf-8") for path in sources(framework)]
    settings = [environ.get(name, "") for name in ("CC", "CXX", "OPSCOPE_MEMORY")]
    parts = (str(path), str(status.st_size), str(status.st_mtime_ns), *settings, *texts)
    return f"{framework}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}.ready"

"""Whether a framework's native libraries were built already, told without importing the framework.

What a library is called may depend on what only the imported framework tells, which takes seconds. So who
has built them leaves an empty file in the cache, named after the framework's files and our sources.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from . import cache


def is_ready(framework: str, module: str) -> bool:
    """Whether they were, for the framework whose ``__init__.py`` is ``module``. Raises OSError where it
    cannot be read."""
    return cache.find(_name(framework, module)) is not None


def leave_word(framework: str, module: str) -> None:
    """They were, or cannot be."""
    with contextlib.suppress(OSError):
        name = _name(framework, module)
        for folder in cache.folders():
            with contextlib.suppress(OSError):
                cache.prepare(folder)
                (folder / name).touch(mode=0o600)
                return


def _name(framework: str, module: str) -> str:
    path = Path(module).resolve()
    status = path.stat()
    sources = (Path(__file__).parent / framework).rglob("*.[ch]*")
    texts = [one.read_text("utf-8") for one in sorted(sources)]
    asked = [os.environ.get(name, "") for name in ("CC", "CXX", "OPSCOPE_MEMORY")]
    parts = (str(path), str(status.st_size), str(status.st_mtime_ns), *asked, *texts)
    return f"{framework}-{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:16]}.ready"

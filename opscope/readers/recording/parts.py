"""The parts of a recording: their folders, and what they may hold."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from opscope.core.recording_format import META
from opscope.readers.errors import BadInput


def parts(folder: str | os.PathLike[str]) -> list[Path]:
    """The parts of a recording, by name; empty when there is none."""
    return sorted(path.parent for path in Path(folder).glob(f"part-*/{META}"))


def refuse_odd(path: Path) -> None:
    """Raise BadInput on what is no plain file, OSError where there is none: a pipe would be waited for."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise BadInput(path, "a link, a pipe or a folder: a recording has files only")


def is_part(folder: Path) -> bool:
    """Whether a process has recorded into ``folder``. Raises OSError."""
    meta = folder / META
    if not meta.is_file():
        return False
    with meta.open("rb") as file:
        return b'"format": "opscope-recording"' in file.read(64)

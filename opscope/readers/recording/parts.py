"""Find the parts of a recording: one folder per process."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from opscope.core.recording_format import META
from opscope.readers.errors import BadInput


def parts(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the folders of a recording's parts, by name; empty if there are none."""
    return sorted(path.parent for path in Path(folder).glob(f"part-*/{META}"))


def refuse_odd(path: Path) -> None:
    """Raise BadInput unless ``path`` is a plain file (a pipe would block), OSError if it does not exist."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise BadInput(path, "a link, a pipe or a folder: a recording has plain files only")


def is_part(folder: Path) -> bool:
    """Whether a process has recorded into ``folder``. Raises OSError."""
    meta = folder / META
    if not meta.is_file():
        return False
    with meta.open("rb") as file:
        return b'"format": "opscope-recording"' in file.read(64)

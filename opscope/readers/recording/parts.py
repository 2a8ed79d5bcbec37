"""Find the parts of a recording, one folder per process, and read their files of records."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.core.recording_format import META
from opscope.readers.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def parts(folder: str | os.PathLike[str]) -> list[Path]:
    """Return the folders of a recording's parts, by name; empty if there are none."""
    return sorted(path.parent for path in Path(folder).glob(f"part-*/{META}"))


def refuse_odd(path: Path) -> None:
    """Raise BadInput unless ``path`` is a plain file (a pipe would block), OSError if it does not exist."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise BadInput(path, "a link, a pipe or a folder: a recording has plain files only")


def records(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a file's complete records; a killed process leaves an incomplete last one. Raises BadInput."""
    import numpy as np  # lazy: not needed by callers that only look for parts

    try:
        refuse_odd(path)
        size = path.stat().st_size // dtype.itemsize
        if not size:
            return np.empty(0, dtype)
        return np.memmap(path, dtype=dtype, mode="r", shape=(size,))
    except FileNotFoundError:
        return np.empty(0, dtype)
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None


def is_part(folder: Path) -> bool:
    """Whether a process has recorded into ``folder``. Raises OSError."""
    meta = folder / META
    if not meta.is_file():
        return False
    with meta.open("rb") as file:
        return b'"format": "opscope-recording"' in file.read(64)


def integer(value: Any) -> int:
    """Return a fact as an integer. Raises ValueError beyond 62 bits, so that sums fit in 64."""
    number = int(value)
    if not -(1 << 62) < number < 1 << 62:
        raise ValueError(f"{value!r:.40} is out of range")
    return number

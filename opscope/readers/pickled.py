"""Read a pickle file of plain values, unpacked from gzip or zstd if necessary."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from opscope.core import progress

from .errors import BadInput
from .heads import PACKED
from .pickle_values import PickleError, Record, values

#: The most bytes that a packed file may hold; a plain one is mapped, and takes no memory.
_MOST_UNPACKED: Final = 4 << 30


def read_values(path: Path, take: Callable[[Record], bool] = lambda record: False) -> Any:
    """Return the value in the file; ``take``: as for ``pickle_values.values``. Raises BadInput."""
    try:
        with path.open("rb") as file:
            if file.read(4).startswith(PACKED):
                return values(_unpacked(path), take)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                value = values(data, take, lambda at: progress.read_to(path, at))
                progress.read_whole(path)
                return value
    except PickleError as error:
        raise BadInput(path, f"a pickle that cannot be read: {error}") from error
    except (OSError, ValueError) as error:
        raise BadInput(path, f"a pickle that cannot be read: {error}") from error


def _unpacked(path: Path) -> bytes:
    from .kineto.json_events import whole_file  # lazy: it loads decoders

    message = f"it unpacks to more than {_MOST_UNPACKED >> 30} GiB: unpack it first"
    return whole_file(path, _MOST_UNPACKED, message)

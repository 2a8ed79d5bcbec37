"""The contract of a reader: one file format, told by its content, as the trace tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


class Reader(Protocol):
    """A module, or an object, that reads one format.

    A package adds one in the entry point group ``opscope.readers``::

        [project.entry-points."opscope.readers"]
        kernels-csv = "my_package.kernels_csv"
    """

    def recognise(self, head: bytes, path: Path) -> bool:
        """Whether ``path`` is of this format. It is asked of every file, so it is to be quick.

        ``head`` are the first bytes of the file, 4 KiB or more where it has them, unpacked where gzip
        or zstd packs it; empty where ``path`` is a folder.
        """

    def read(self, path: Path) -> Trace:
        """The trace in ``path``. Raises opscope.readers.BadInput, naming what is wrong with it.

        ``Trace.of({"kernels": frame, ...}, {"format": ...})`` makes one. Times are integer ns; a column
        that the format does not have is left out.
        """

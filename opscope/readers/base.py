"""The interface of a reader: it recognises one file format by its content and returns its trace tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace


class Reader(Protocol):
    """A module or object that reads one format.

    A package registers its reader in the entry point group ``opscope.readers``::

        [project.entry-points."opscope.readers"]
        kernels-csv = "my_package.kernels_csv"
    """

    def recognise(self, head: bytes, path: Path) -> bool:
        """Return whether ``path`` has this format. opscope asks this of every file, so it must be fast.

        ``head`` is the first bytes of the file, decompressed from gzip or zstd: 4 KiB or more, or the whole
        file if it is shorter. It is empty if ``path`` is a folder.
        """

    def read(self, path: Path) -> Trace:
        """Return the trace in ``path``. Raises opscope.readers.BadInput, which says what is wrong with it.

        ``Trace.of({"kernels": frame, ...}, {"format": ...})`` makes a trace. Times are integer ns. Leave
        out the columns that the format lacks.
        """

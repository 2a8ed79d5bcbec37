"""The errors that a reader raises when it cannot read a file as a trace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

#: Key of a trace's origin: how its file ends too early. Files with this key are left out when several files
#: are joined.
TRUNCATED: Final = "truncated"


class BadInput(ValueError):
    """A file that cannot be read as a trace; the message names the file and what is wrong with it.

    ``path`` is the file; ``what`` is the complaint for the user, in one line, without the path.
    """

    def __init__(self, path: str | os.PathLike[str], message: str) -> None:
        self.path = os.fspath(path)
        self.what = " ".join(message.split())  # a library's message may have several lines
        super().__init__(f"{self.path}: {self.what}")


class NoneReadable(BadInput):
    """None of several files can be read as a trace; ``failed`` has the complaint about each."""

    def __init__(self, failed: Sequence[BadInput]) -> None:
        self.failed = list(failed)
        first = self.failed[0]
        super().__init__(first.path, f"{first.what} (none of {len(self.failed)} files can be read)")


class SeveralRuns(BadInput):
    """A folder with the outputs of several runs, which are not ranks of one job; ``runs`` are their paths."""

    def __init__(self, path: str | os.PathLike[str], rank: int, runs: Sequence[Path]) -> None:
        self.runs = list(runs)
        super().__init__(
            path,
            f"{len(self.runs)} runs of MindSpore and not one job: rank {rank} is in several of them; open "
            "one (files that are given one by one are taken as those of one job)",
        )


class Truncated(BadInput):
    """The end of a file whose writer was killed: the part before it may still be read."""


def cut_off(path: str | os.PathLike[str], what: str) -> str:
    """Return the note on a file that ends too early and was read up to its end."""
    name = os.path.basename(os.fspath(path))
    return f"{name} is cut off ({what.removeprefix('truncated: ')}): what follows is missing"


class NotATrace(BadInput):
    """A file in a folder that is not a trace, such as a log: it is silently left out."""

"""What a reader raises when a file is not what it claims to be."""

from __future__ import annotations

import os
from collections.abc import Sequence


class BadInput(ValueError):
    """A file that cannot be read as a trace; the message names the file and what is wrong with it.

    ``path`` is the file, ``what`` the complaint in words for a person, in one line, without the path.
    """

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        self.path = os.fspath(path)
        self.what = " ".join(what.split())  # what a library says may have several lines
        super().__init__(f"{self.path}: {self.what}")


class NoneReadable(BadInput):
    """Several files of which none can be read as a trace; ``failed`` says what is wrong with each."""

    def __init__(self, failed: Sequence[BadInput]) -> None:
        self.failed = list(failed)
        first = self.failed[0]
        super().__init__(first.path, f"{first.what} (none of {len(self.failed)} files can be read)")

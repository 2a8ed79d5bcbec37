"""``%%opscope`` in IPython and notebooks: record a cell, and show its profile as the cell's result.

``%load_ext opscope`` makes it known.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import opscope

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Where a cell's profile is written unless the line names a path: the last run's is kept.
_PATH: Final = "cell.opscope"


def load_ipython_extension(shell: Any) -> None:
    """Make ``%%opscope [PATH]`` known; IPython calls this for ``%load_ext opscope``."""

    def record(line: str, cell: str) -> Profile | None:
        """Record this cell into PATH (cell.opscope) and return its profile."""
        words = shlex.split(line)
        if len(words) > 1:
            raise ValueError(f"%%opscope takes one path, or none; it was given {line!r}")
        path = words[0] if words else _PATH
        # a line in place of the magic's, so that the lines of the cell keep their numbers
        source = f"# %%opscope {line}\n{cell}"
        with opscope.capture(path, force=True):
            done = shell.run_cell(source, store_history=False)
        if not done.success:  # its error has been shown
            return None
        return opscope.load(path)

    shell.register_magic_function(record, "cell", "opscope")

"""``%%opscope`` in IPython and notebooks: record a cell, and show its profile as the cell's result.

``%load_ext opscope`` makes it known.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

import opscope

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Where a cell's profile is written unless the line names a path: only the last run's is kept.
_PATH: Final = "cell.opscope"


class CellFailed(RuntimeError):
    """A recorded cell raised an error, which IPython has shown with its traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return what IPython shows in place of a second traceback."""
        return [str(self)]


def load_ipython_extension(shell: Any) -> None:
    """Make ``%%opscope [PATH]`` known; IPython calls this for ``%load_ext opscope``."""

    def record(line: str, cell: str) -> Profile:
        """Record this cell into PATH (cell.opscope); return its profile. Raises CellFailed."""
        words = shlex.split(line)
        if len(words) > 1:
            raise ValueError(f"%%opscope takes one path, or none; it was given {line!r}")
        path = words[0] if words else _PATH
        # this line replaces the magic's, so that the cell's lines keep their numbers
        source = f"# %%opscope {line}\n{cell}"
        count = shell.execution_count
        # the counter is at the next cell already; sources and results belong to this cell
        shell.execution_count = max(1, count - 1)
        try:
            with opscope.capture(path, force=True):
                done = shell.run_cell(source, store_history=False)
        finally:
            shell.execution_count = count
        if not done.success:
            raise CellFailed(f"the cell failed, as shown above; its profile is {path}")
        return opscope.load(path)

    shell.register_magic_function(record, "cell", "opscope")

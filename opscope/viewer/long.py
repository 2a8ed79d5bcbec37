"""Map a long saved profile from files, for callers that go through all of its ranges and calls. The columns
of ten million kernels, with a call and two ranges each, and their links take 5 GB of memory. With files, only
short columns and those with nulls are in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope.core.once import lock_of
from opscope.core.schema import TABLES
from opscope.core.tables.mapped import POSSIBLE, Mapped

if TYPE_CHECKING:
    from opscope.profile import Profile

#: A profile with fewer ranges and calls stays in memory.
LONG: Final = 2_000_000
_TABLES: Final = ("kernels", "calls", "ranges")


def read_into_files(profile: Profile) -> None:
    """Let the attribution of a long saved profile read its tables into files later; nothing is read now. A
    profile with tables in memory already is left as it is, also where the system cannot free memory."""
    with lock_of(profile, "files"):
        if profile._reading is not None or not POSSIBLE:
            return
        if sum(profile._own_columns(name, [])[1] for name in _TABLES[1:]) < LONG:
            return
        mapped = Mapped(Path(tempfile.gettempdir()), needed=False)
        narrow = profile._narrow({name: tuple(TABLES[name]) for name in _TABLES}, mapped)
        profile._reading = None if narrow is profile else narrow

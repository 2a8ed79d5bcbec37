"""Read a long saved profile into files that are mapped, for whoever goes through all of its ranges and calls.

The columns of ten million kernels, with a call and two ranges each, take 5 GB of memory with what links them.
In files only short ones do, and those with nulls.
"""

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
    """Let the attribution of a long saved profile read it into files; nothing is read now. One of which
    anything is in memory already is left as it is, as is any where the system cannot give memory back."""
    with lock_of(profile, "files"):
        if profile._reading is not None or not POSSIBLE:
            return
        if sum(profile._own_columns(name, [])[1] for name in _TABLES[1:]) < LONG:
            return
        mapped = Mapped(Path(tempfile.gettempdir()), needed=False)
        narrow = profile._narrow({name: tuple(TABLES[name]) for name in _TABLES}, mapped)
        profile._reading = None if narrow is profile else narrow

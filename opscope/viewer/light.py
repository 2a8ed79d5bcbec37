"""The profile for what goes through all ranges and calls, and holds on to what it finds there.

Of a long saved profile, of which nothing is in memory yet, it has the columns in files that are mapped: those
of ten million kernels, with a call and two ranges each, take 5 GB. Short ones, and those with nulls, stay in
memory.
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

#: A profile with fewer ranges and calls is read as a whole: other pages need most of it.
LONG: Final = 2_000_000
#: How a kernel was launched tells nothing of its op.
_LAUNCH: Final = frozenset(
    ("grid", "block", "cluster", "registers", "shared_static", "shared_dynamic", "local_memory")
)
_READ: Final = {
    "kernels": tuple(one for one in TABLES["kernels"] if one not in _LAUNCH),
    "calls": tuple(TABLES["calls"]),
    "ranges": tuple(TABLES["ranges"]),
}
_NAME: Final = "_light"


def light_of(profile: Profile) -> Profile:
    """Return the profile that reads a long one into files; a short one, or one that is in memory, itself."""
    with lock_of(profile, _NAME):
        if _NAME not in vars(profile):
            vars(profile)[_NAME] = _made(profile)
        found: Profile = vars(profile)[_NAME]
    return found


def light_if_made(profile: Profile) -> Profile:
    """Return what ``light_of`` returned before; the profile itself if nobody asked for it."""
    found: Profile = vars(profile).get(_NAME, profile)
    return found


def _made(profile: Profile) -> Profile:
    if sum(profile._own_columns(name, [])[1] for name in ("ranges", "calls")) < LONG:
        return profile
    mapped = Mapped(Path(tempfile.gettempdir()), needed=False) if POSSIBLE else None
    return profile._narrow(_READ, mapped)

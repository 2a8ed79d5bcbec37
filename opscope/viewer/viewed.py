"""The data of a viewer: the profile, the one it is compared with, and the user's permissions."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opscope.core.lru_cache import LRUCache

if TYPE_CHECKING:
    from opscope.profile import Profile

#: Number of selections whose tables are kept: those of the previous page, this one and the next.
_SELECTIONS: Final = 4
#: Bytes of tables and sort orders that are kept.
_TABLES: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class Viewed:
    """A profile to look at.

    ``names``: the files as the user gave them. ``other``: the profile to compare with, of
    ``other_names``. ``source_root``: the folder whose ``.py`` files may be shown; None shows only
    files of an own profile whose recorded hash still matches. ``editor``: the command that opens a
    line, None if not allowed. ``of_runs``: it is one of several runs, whose list is two folders up.
    ``selections`` and ``tables`` cache what several answers need; both are bounded. ``secrets``: the number
    hidden in the source of a single file, by source file and kind.
    """

    profile: Profile
    names: tuple[str, ...]
    other: Profile | None = None
    other_names: tuple[str, ...] = ()
    source_root: Path | None = None
    editor: str | None = None
    of_runs: bool = False
    selections: LRUCache[Profile] = field(
        default_factory=lambda: LRUCache(_SELECTIONS), compare=False, repr=False
    )
    tables: LRUCache[Any] = field(
        default_factory=lambda: LRUCache(_TABLES), compare=False, repr=False
    )
    secrets: dict[str, dict[str, int]] = field(default_factory=dict, compare=False, repr=False)

"""What a viewer shows: the profile, the one it is compared with, and what its user allowed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opscope.profile import Profile


@dataclass(frozen=True, slots=True)
class Viewed:
    """A profile to look at.

    ``names``: the files as the user gave them. ``other``: the profile to compare with, of ``other_names``.
    ``source_root``: the folder whose ``.py`` files may be shown; None shows only files of an own profile
    whose recorded hash still matches. ``editor``: the command that opens a line, None if not allowed.
    """

    profile: Profile
    names: tuple[str, ...]
    other: Profile | None = None
    other_names: tuple[str, ...] = ()
    source_root: Path | None = None
    editor: str | None = None

"""What torch.compile made, as a table: regions, their kernels, what these fuse, graphs and breaks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from . import units
from .layout import Table

if TYPE_CHECKING:
    from opscope.profile import Profile

_SHOWN: Final = ("region", "direction", "share", "time", "calls", "name", "fused", "source")
#: How notes of the adapter begin that tell what the compiler counted.
_COUNTED: Final = "torch.compile: "


def regions(profile: Profile, top: int | None) -> Table:
    """The compiled regions, and below them what the compiler counted."""
    from .console import totals

    frame = profile.compiled()
    empty = "nothing that torch.compile made ran in this profile"
    table = totals("Compiled regions", frame, _SHOWN, top, empty)
    told = [
        f"{units.text(row['what']).removeprefix(_COUNTED)}: {units.count(row['how_many'])}"
        for row in profile.notes().to_dicts()
        if units.text(row["what"]).startswith(_COUNTED)
    ]
    return replace(table, footnotes=[*told, *table.footnotes])

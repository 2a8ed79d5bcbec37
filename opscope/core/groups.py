"""How process groups and device meshes are told: the names and forms of their specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

#: The graph of the specs of groups, and the names of the calls that stand for a group and a
#: dimension of a mesh.
GROUPS: Final = "process_group"
GROUP: Final = "group"
DIMENSION: Final = "dimension"


def format_ranks(ranks: Sequence[int]) -> str:
    """``0-3``, ``0-6:2`` for every second, else ``0,3,4``: the members of a group in its order."""
    if len(ranks) > 1:
        step = ranks[1] - ranks[0]
        if step > 0 and list(ranks) == list(range(ranks[0], ranks[-1] + 1, step)):
            return f"{ranks[0]}-{ranks[-1]}" + (f":{step}" if step > 1 else "")
    return ",".join(map(str, ranks))


def mesh_name(number: int) -> str:
    """The graph of the specs of a process's mesh number ``number``."""
    return f"mesh {number}"

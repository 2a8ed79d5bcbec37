"""The specs that record process groups and device meshes: their names and notation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from opscope.core.schema import OpCall

#: The graph name in the specs of groups, and the names of the calls that describe a group and a dimension
#: of a mesh.
_RANGE: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})(?::([0-9]{1,18}))?\Z")
GROUPS: Final = "process_group"
GROUP: Final = "group"
DIMENSION: Final = "dimension"


def format_ranks(ranks: Sequence[int]) -> str:
    """Return a group's members in its order: ``0-3``, ``0-6:2`` for every second rank, else ``0,3,4``."""
    if len(ranks) > 1:
        step = ranks[1] - ranks[0]
        if step > 0 and all(after - rank == step for rank, after in pairwise(ranks)):
            return f"{ranks[0]}-{ranks[-1]}" + (f":{step}" if step > 1 else "")
    return ",".join(map(str, ranks))


def rank_at(members: str, position: int) -> int | None:
    """Return the rank at ``position`` (from 0) of members as ``format_ranks`` writes them.

    Returns None if there is none, or if the text is of another notation.
    """
    match = _RANGE.match(members)
    if match is None:
        ranks = members.split(",")
        text = ranks[position] if 0 <= position < len(ranks) else ""
        is_plain = text.isascii() and text.isdigit() and "..." not in members
        return int(text) if is_plain and len(text) < 19 else None
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    rank = first + position * step
    return rank if first <= rank <= last else None


def members_of(text: object) -> str | None:
    """Return the members in a record (``"[0, 1, 2]"`` or a list) in the notation of ``format_ranks``.

    A shortened list (``[0, 1, ..., 7]``) is returned without spaces, up to 256 characters: it still
    distinguishes groups. Returns None for anything else.
    """
    if isinstance(text, list):
        ranks = text
    else:
        whole = str(text).strip().strip("[]")
        if not whole:
            return None
        if "..." in whole:
            return whole.replace(" ", "")[:256]
        try:
            ranks = [int(word) for word in whole.split(",")]
        except ValueError:
            return None
    if not ranks or not all(type(rank) is int for rank in ranks):
        return None
    return format_ranks(ranks)


def mesh_name(number: int) -> str:
    """Return the graph name in the specs of the process's mesh ``number``."""
    return f"mesh {number}"


#: Collectives with a whole tensor and one rank's share of it: the ratio of the two sizes is the group's size.
_SHAPED: Final = (
    "c10d::_allgather_base_", "c10d::_reduce_scatter_base_", "nccl:_all_gather_base",
    "nccl:_reduce_scatter_base",
)  # fmt: skip


def group_size(call: OpCall) -> int | None:
    """Return a collective's number of ranks: the trace's value, else from tensor sizes, else None."""
    for key in ("Group size", "group_size", "ranks"):
        if type(recorded := call.param(key)) is int:
            return recorded
    if call.name not in _SHAPED:
        return None
    counts = [leaf.numel for leaf in call.input_leaves() if leaf is not None and leaf.shape]
    nonzero = [count for count in counts if count]
    if len(counts) != 2 or len(nonzero) != 2 or max(nonzero) % min(nonzero):
        return None
    return max(nonzero) // min(nonzero)

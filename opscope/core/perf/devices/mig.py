"""Slices of an NVIDIA GPU (MIG) by their names: a board's row, with the share that the slice has.

Shares are those of NVIDIA's Multi-Instance GPU User Guide, "Supported MIG Profiles": ``Ng`` are N of
the board's compute slices, of which it has 7 (A30 and RTX PRO 6000: 4), and memory comes in eighths,
with it the bandwidth and the L2. ``1c.3g.20gb`` is one compute slice in a slice of three, which has
all of its memory. How many multiprocessors a slice has is not in proportion (an A100's 1g has 14 of
108, its 7g 98): where the trace tells them they are taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from .peaks import Device, rates

_MIG: Final = re.compile(r"\bMIG\b", re.IGNORECASE)
_PROFILE: Final = re.compile(
    r"^(?P<board>.*?)\s*\bMIG\s+(?P<profile>(?:(?P<c>\d)c\.)?(?P<g>\d)g\.(?P<gb>\d{1,3})gb)"
    r"(?:[+-]\w[\w.+-]*)?$",
    re.IGNORECASE,
)
_EIGHTHS: Final = (1, 2, 4, 8)
#: A profile's name rounds its memory: 18gb of 141, 23gb of 180.
_NEAR: Final = 0.08


@dataclass(frozen=True, slots=True)
class Slice:
    """What a name says: the board's name, the profile, compute slices, GB of the whole slice."""

    board: str
    profile: str
    compute: int
    gb: int

    def eighths(self, sizes: tuple[int, ...]) -> int | None:
        """Eighths of a board's memory, of one of these sizes in bytes; None if it is no such slice."""
        for size in sizes:
            part = self.gb * 1e9 / size * 8
            for each in _EIGHTHS:
                if abs(part / each - 1) <= _NEAR:
                    return each
        return None


def named(text: str) -> Slice | None:
    """The slice that a device's name is of; None for one that is of none, or not to be read."""
    found = _PROFILE.match(text)
    if found is None:
        return None
    whole = int(found["g"])
    part = int(found["c"] or whole)
    if not 0 < part <= whole:
        return None
    return Slice(found["board"], found["profile"].lower(), part, int(found["gb"]))


def is_slice(text: str) -> bool:
    """Whether a device's name says that it is a slice."""
    return _MIG.search(text) is not None


def cut(board: Device, sizes: tuple[int, ...], piece: Slice, sm_count: int | None) -> Device | None:
    """The slice as a device; None where the board has no such slice, or MIG does not cut it."""
    eighths = piece.eighths(sizes)
    if eighths is None or board.mig is None or piece.compute > board.mig:
        return None
    share = piece.compute / board.mig
    compute = f"{piece.compute}/{board.mig} of the multiprocessors"
    if sm_count is not None and board.sm_count:
        share = sm_count / board.sm_count
        compute = f"{sm_count} of {board.sm_count} multiprocessors"
    memory = eighths / 8
    return replace(
        board,
        name=f"{board.name} MIG {piece.profile}",
        sm_count=sm_count,
        memory=piece.gb * 10**9,
        bandwidth=board.bandwidth and board.bandwidth * memory,
        l2=board.l2 and int(board.l2 * memory),
        llc=board.llc and int(board.llc * memory),
        vector=rates(board.vector, share),
        tensor=rates(board.tensor, share),
        note=f"a slice of {board.name}: {compute}, {eighths}/8 of the memory's bandwidth and of the L2",
    )

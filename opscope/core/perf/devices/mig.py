"""Compute the peaks of a slice of an NVIDIA GPU (MIG) from its name and the board's row.

The shares are from NVIDIA's Multi-Instance GPU User Guide, "Supported MIG Profiles": ``Ng`` means N of
the board's compute slices. A board has 7 of them (A30 and RTX PRO 6000: 4). Memory, its bandwidth and the
L2 are divided into eighths. ``1c.3g.20gb`` is one compute slice in a slice of three and can use all of
that slice's memory. The number of multiprocessors is not proportional (an A100's 1g has 14 of 108, its 7g
98): if the trace records it, it is used.
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
    """A slice as its name describes it: board name, profile, compute slices, GB of the whole slice."""

    board: str
    profile: str
    compute: int
    gb: int

    def eighths(self, sizes: tuple[int, ...]) -> int | None:
        """Return how many eighths of a board's memory the slice has, if the board has one of these sizes
        (bytes); else None.

        (None: the slice's memory is not 1, 2, 4 or 8 eighths of any size.)
        """
        for size in sizes:
            part = self.gb * 1e9 / size * 8
            for each in _EIGHTHS:
                if abs(part / each - 1) <= _NEAR:
                    return each
        return None


def named(text: str) -> Slice | None:
    """Return the slice that a device's name describes; None if it describes none or cannot be parsed."""
    match = _PROFILE.match(text)
    if match is None:
        return None
    slices = int(match["g"])
    part = int(match["c"] or slices)
    if not 0 < part <= slices:
        return None
    return Slice(match["board"], match["profile"].lower(), part, int(match["gb"]))


def is_slice(text: str) -> bool:
    """Whether a device's name is that of a MIG slice."""
    return _MIG.search(text) is not None


def cut(board: Device, sizes: tuple[int, ...], piece: Slice, sm_count: int | None) -> Device | None:
    """Return the slice as a device; None if the board has no such slice or does not support MIG."""
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
        note=f"a slice of {board.name}: {compute}, {eighths}/8 of the memory bandwidth and of the L2",
    )

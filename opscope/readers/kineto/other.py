"""Events of categories that are not known: what ran on a device is a kernel of it, whoever made the device.

Kineto's categories of Meta's, Intel's, Habana's and others' devices come and go (``mtia_ccp_events``
became ``kernel`` in 2026), and builds of others have their own. A device's events have the device's number
for a process, and not a host's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .columns import HOST, Columns

#: What no device does: the span of the profile, and what the profiler itself took.
_NEVER: Final = ("Trace", "overhead")


def adopt(columns: Columns, number: NDArray[np.int64]) -> dict[str, int]:
    """Take what ran on a device for kernels; returns how many of each category these are.

    ``number`` is that of each place in ``columns.places``. The rest is counted in ``columns.unknown``.
    """
    rows = columns.kinds.pop("other", None)
    if rows is None:
        return {}
    names = list(columns.categories)
    on_host = _hosts(columns)
    taken: dict[str, int] = {}
    for block in rows.blocks:
        names_of = np.array([name in _NEVER for name in names], bool)
        device = ~on_host[block["pid"]] & block["told"] & ~names_of[block["category"]]
        device &= number[block["pid"]] >= 0
        for chosen, counts in ((device, taken), (~device, columns.unknown)):
            codes, many = np.unique(block["category"][chosen], return_counts=True)
            for code, count in zip(codes.tolist(), many.tolist(), strict=True):
                counts[names[code]] = counts.get(names[code], 0) + count
        if device.any():
            kept = {name: column[device] for name, column in block.items()}
            del kept["category"], kept["told"]
            columns["kernel"].blocks.append(kept)
    return taken


def left_out(columns: Columns, number: NDArray[np.int64]) -> Mapping[str, int]:
    """The categories, and how many events each has, that a device may have run and nothing tells so.

    They are on a process of a small number that no host row has, as devices are.
    """
    rows = columns.kinds.get("other")
    found: dict[str, int] = {}
    if rows is None:
        return found
    names, on_host = list(columns.categories), _hosts(columns)
    for block in rows.blocks:
        place = number[block["pid"]]
        maybe = ~on_host[block["pid"]] & ~block["told"] & (place >= 0) & (place < _MOST_DEVICES)
        codes, many = np.unique(block["category"][maybe], return_counts=True)
        for code, count in zip(codes.tolist(), many.tolist(), strict=True):
            if names[code] not in _NEVER:
                found[names[code]] = found.get(names[code], 0) + count
    return found


#: A machine has fewer devices; a program's process id is rarely below.
_MOST_DEVICES: Final = 64


def _hosts(columns: Columns) -> NDArray[np.bool_]:
    """Per place as the trace writes it: whether host rows are there."""
    found = np.zeros(len(columns.places), bool)
    for kind in (*HOST, "call"):
        found[np.unique(columns[kind].column("pid", np.int32))] = True
    return found

"""Treat events of unknown categories as kernels if they ran on a device.

Kineto's categories for devices of Meta, Intel, Habana and others change (``mtia_ccp_events`` became
``kernel`` in 2026), and other vendors' builds have their own. The process id of a device's event is the
number of the device, not of a host process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .columns import HOST, Columns

#: Categories that never run on a device: the span of the profile, and the profiler's own work.
_NEVER: Final = ("Trace", "overhead")


def adopt(columns: Columns, number: NDArray[np.int64]) -> dict[str, int]:
    """Add the events that ran on a device to the kernels; returns their number by category.

    ``number`` has the number of each entry of ``columns.ids``. The other events are counted in
    ``columns.unknown``.
    """
    rows = columns.kinds.pop("other", None)
    if rows is None:
        return {}
    names = list(columns.categories)
    on_host = _hosts(columns)
    taken: dict[str, int] = {}
    for block in rows.blocks:
        names_of = np.array([name in _NEVER for name in names], bool)
        device = ~on_host[block["pid"]] & block["on_device"] & ~names_of[block["category"]]
        device &= number[block["pid"]] >= 0
        for chosen, counts in ((device, taken), (~device, columns.unknown)):
            codes, many = np.unique(block["category"][chosen], return_counts=True)
            for code, count in zip(codes.tolist(), many.tolist(), strict=True):
                counts[names[code]] = counts.get(names[code], 0) + count
        if device.any():
            executed = {name: column[device] for name, column in block.items()}
            del executed["category"], executed["on_device"]
            columns["kernel"].blocks.append(executed)
    return taken


def left_out(columns: Columns, number: NDArray[np.int64]) -> Mapping[str, int]:
    """Return the number of events, by category, that a device may have run although nothing proves it.

    Their process has a small number, as devices have, and no host row.
    """
    rows = columns.kinds.get("other")
    counts_by_name: dict[str, int] = {}
    if rows is None:
        return counts_by_name
    names, on_host = list(columns.categories), _hosts(columns)
    for block in rows.blocks:
        pid = number[block["pid"]]
        maybe = ~on_host[block["pid"]] & ~block["on_device"] & (pid >= 0) & (pid < _MOST_DEVICES)
        codes, counts = np.unique(block["category"][maybe], return_counts=True)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            if names[code] not in _NEVER:
                counts_by_name[names[code]] = counts_by_name.get(names[code], 0) + count
    return counts_by_name


#: A machine has fewer devices than this; a program's process id is rarely smaller.
_MOST_DEVICES: Final = 64


def _hosts(columns: Columns) -> NDArray[np.bool_]:
    """Return for each process, as written in the trace, whether it has host rows."""
    is_host = np.zeros(len(columns.ids), bool)
    for kind in (*HOST, "call"):
        is_host[np.unique(columns[kind].column("pid", np.int32))] = True
    return is_host

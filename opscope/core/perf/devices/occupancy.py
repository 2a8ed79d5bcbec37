"""Compute how many blocks of a kernel one multiprocessor can hold, and which of its resources sets the limit.

The rules are those of NVIDIA's CUDA Occupancy Calculator, and for AMD's CDNA 2 to 4 those of LLVM, on which
ROCm's compiler is based; the limits by compute capability, with their sources, are in ``devices.toml``
(``limits``, ``allocation``). All functions take arrays with one launch configuration per position.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import Ints

from .peaks import tables

#: Threads of a warp, and the most threads of a block: CUDA C++ Programming Guide, "Technical Specifications
#: per Compute Capability". A thread may have 255 registers; the calculator accepts 256.
WARP: Final = 32
MOST_THREADS: Final = 1024
MOST_REGISTERS: Final = 256
#: A launch is checked as if every multiprocessor had 4 partitions, although GP100's (6.0) has 2.
_CHECKED_PARTITIONS: Final = 4
#: The resources that limit how many blocks fit, in the order of the columns of ``Residency.by``.
LIMITS: Final = ("block size", "registers", "shared memory", "blocks per SM")
#: The limit of a resource that a kernel does not use.
UNLIMITED: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """The capacity of one multiprocessor. Shared memory is in bytes; ``partitions`` share the registers
    equally.

    Registers are allocated to a warp in units of ``register_unit``, and shared memory to a block in units of
    ``shared_unit`` bytes; the system reserves ``reserved`` bytes. ``block_shared`` is the most shared memory
    that a block may ask for.
    """

    cc: str
    warps: int
    blocks: int
    registers: int
    shared: int
    block_shared: int
    partitions: int
    register_unit: int
    shared_unit: int
    reserved: int
    warp: int = WARP
    most_registers: int = MOST_REGISTERS


@dataclass(frozen=True, slots=True)
class Residency:
    """How many blocks of each configuration one multiprocessor holds.

    ``by``: blocks that each resource of ``LIMITS`` allows, a row per configuration; ``blocks``: the least of
    them, 0 if the rules allow not even one. ``warps``: warps of a block. ``registers``: registers given to a
    block; ``shared``: bytes of shared memory given to it, including reserved bytes.
    """

    by: Ints
    blocks: Ints
    warps: Ints
    registers: Ints
    shared: Ints

    def limiting(self) -> NDArray[np.bool_]:
        """Return which resources of ``LIMITS`` allow no more blocks than ``blocks``."""
        limiting: NDArray[np.bool_] = self.by == self.blocks[:, np.newaxis]
        return limiting


@cache
def multiprocessor(cc: str | None) -> Multiprocessor | None:
    """Return the multiprocessor of a compute capability (``"9.0"``); None if its rules are not known."""
    limits = tables()["limits"].get(cc)
    units = tables()["allocation"]
    if cc is None or limits is None or "block_shared" not in limits:
        return None
    given = units.get(cc, units.get(cc.partition(".")[0]))
    if given is None:
        return None
    return Multiprocessor(
        cc=cc,
        warps=limits["warps"],
        blocks=limits["blocks"],
        registers=limits["registers"],
        shared=limits["shared"] * 1024,
        block_shared=limits["block_shared"] * 1024,
        partitions=given["partitions"],
        register_unit=given["registers"],
        shared_unit=given["shared"],
        reserved=given["reserved"],
        warp=given.get("warp", WARP),
        most_registers=given.get("most_registers", MOST_REGISTERS),
    )


def resident(sm: Multiprocessor, threads: Ints, registers: Ints, shared: Ints) -> Residency:
    """Return how many blocks of ``threads`` threads, ``registers`` registers a thread and ``shared`` bytes of
    shared memory one multiprocessor holds, if it has the largest possible shared memory.

    A warp's registers come from one partition, so the unused rest of each partition is lost. A block can be
    launched only if its warps, rounded up to the partitions, have registers.
    """
    warps = _rounded_up(threads, sm.warp) // sm.warp
    a_warp = _rounded_up(registers * sm.warp, sm.register_unit)
    in_part = (sm.registers // sm.partitions) // np.maximum(a_warp, 1)
    by_registers = (in_part * sm.partitions) // np.maximum(warps, 1)
    fits = a_warp * _rounded_up(warps, _CHECKED_PARTITIONS) <= sm.registers
    by_registers = np.where(fits & (registers <= sm.most_registers), by_registers, 0)
    by_registers = np.where(a_warp > 0, by_registers, UNLIMITED)
    given = _rounded_up(shared + sm.reserved, sm.shared_unit)
    by_shared = np.where(given > 0, sm.shared // np.maximum(given, 1), UNLIMITED)
    by_shared = np.where(shared <= sm.block_shared, by_shared, 0)
    by_size = np.where(threads <= MOST_THREADS, sm.warps // np.maximum(warps, 1), 0)
    # on AMD a group of one wavefront needs no barrier, and barriers are what limits the number of groups
    alone = (warps == 1) & (sm.warp != WARP)
    slots = np.where(alone, sm.warps, sm.blocks)
    by = np.stack((by_size, by_registers, by_shared, slots), axis=1).astype(np.int64)
    return Residency(by, by.min(axis=1), warps, a_warp * warps, given)


def _rounded_up(values: Ints, unit: int) -> Ints:
    rounded: Ints = -(-values // unit) * unit
    return rounded

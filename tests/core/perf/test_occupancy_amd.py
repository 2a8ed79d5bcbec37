"""Occupancy on AMD's CDNA: LLVM's own figures, and a count of what fits by the rules that it states."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.perf.devices.occupancy import LIMITS, multiprocessor, resident

CDNA = ("gfx90a", "gfx942", "gfx950")
LDS = {"gfx90a": (65536, 512), "gfx942": (65536, 512), "gfx950": (163840, 1280)}


def waves(cc: str, threads: int, registers: int, shared: int) -> int:
    """Wavefronts of a SIMD, as opscope counts them."""
    unit = multiprocessor(cc)
    assert unit is not None
    found = resident(unit, *(np.array([one]) for one in (threads, registers, shared)))
    return int(found.blocks[0] * found.warps[0]) // 4


@pytest.mark.parametrize("cc", CDNA)
@pytest.mark.parametrize(
    # AMDGPUBaseInfo.cpp, getNumWavesPerEUWithNumVGPRs: 512 registers in units of 8, 8 wavefronts at most
    ("registers", "expected"),
    [
        (8, 8),
        (64, 8),
        (65, 7),
        (72, 7),
        (73, 6),
        (80, 6),
        (96, 5),
        (128, 4),
        (129, 3),
        (168, 3),
        (256, 2),
        (257, 1),
        (512, 1),
    ],
)
def test_wavefronts_of_a_simd_follow_from_registers_as_in_llvm(
    cc: str, registers: int, expected: int
) -> None:
    assert waves(cc, 256, registers, 0) == expected


def test_the_example_of_llvms_calculator_fills_the_compute_unit() -> None:
    # llvm-calc-occupancy -mcpu=gfx90a --wg-size=512 --vgprs=50 --sgprs=30: 8 waves/EU
    assert waves("gfx90a", 512, 50, 0) == 8


def test_more_registers_than_a_thread_may_have_do_not_fit() -> None:
    assert waves("gfx942", 64, 513, 0) == 0


@pytest.mark.parametrize("cc", ["gfx908", "gfx1100", "gfx1201"])
def test_units_whose_rules_are_not_known_have_none(cc: str) -> None:
    assert multiprocessor(cc) is None


@given(st.sampled_from(CDNA), st.integers(1, 1024), st.integers(1, 512), st.integers(0, 65536))
def test_as_many_groups_fit_as_a_count_one_by_one_finds(
    cc: str, threads: int, registers: int, shared: int
) -> None:
    """Groups are placed one after another, wavefront by wavefront on the SIMD with the most left."""
    size, unit = LDS[cc]
    group, given_registers = -(-threads // 64), -(-registers // 8) * 8
    left, slots, memory = [512] * 4, [8] * 4, size
    placed, barriers = 0, 16
    while True:
        free, room = list(left), list(slots)
        for _ in range(group):
            best = max(
                range(4),
                key=lambda simd: (free[simd] >= given_registers and room[simd] > 0, room[simd]),
            )
            if free[best] < given_registers or not room[best]:
                break
            free[best] -= given_registers
            room[best] -= 1
        else:
            memory -= -(-shared // unit) * unit
            barriers -= group > 1
            if memory >= 0 and barriers >= 0:
                placed, left, slots = placed + 1, free, room
                continue
        break
    sm = multiprocessor(cc)
    assert sm is not None
    found = resident(sm, np.array([threads]), np.array([registers]), np.array([shared]))
    assert int(found.blocks[0]) == placed
    limiting = [name for name, yes in zip(LIMITS, found.limiting()[0], strict=True) if yes]
    assert limiting

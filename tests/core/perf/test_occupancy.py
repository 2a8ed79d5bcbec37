"""Blocks that fit on a multiprocessor: as NVIDIA's calculator counts them, and never more than there is room."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.perf.devices.occupancy import LIMITS, UNLIMITED, multiprocessor, resident
from opscope.core.perf.devices.peaks import rows, tables

ANSWERS = Path(__file__).with_name("occupancy.csv")
CCS = [cc for cc in tables()["limits"] if multiprocessor(cc) is not None]
NVIDIA = [cc for cc in CCS if not cc.startswith("gfx")]


def held(cc: str, threads: int, registers: int, shared: int):
    sm = multiprocessor(cc)
    assert sm is not None
    return resident(sm, *(np.array([each]) for each in (threads, registers, shared)))


@pytest.mark.parametrize("cc", NVIDIA)
def test_as_many_blocks_fit_as_nvidias_calculator_says(cc):
    """``scripts/record_occupancy.py`` made the file with the calculator itself."""
    with ANSWERS.open() as lines:
        asked = [
            {key: int(value) for key, value in row.items() if key != "cc"}
            for row in csv.DictReader(lines)
            if row["cc"] == cc
        ]
    assert len(asked) == 40
    sm = multiprocessor(cc)
    found = resident(
        sm, *(np.array([row[key] for row in asked]) for key in ("threads", "registers", "shared"))
    )
    assert found.blocks.tolist() == [row["blocks"] for row in asked]
    ours = found.by[:, :3].tolist()
    theirs = [[row["by_size"], row["by_registers"], row["by_shared"]] for row in asked]
    fit = [place for place, row in enumerate(asked) if row["blocks"]]
    assert [ours[place] for place in fit] == [theirs[place] for place in fit]


def test_figures_of_the_programming_guide_and_of_real_kernels():
    """The first is the example of the CUDA C++ Programming Guide, "Multiprocessor Level"."""
    # 64 registers a thread, 512 threads: two blocks use all 65,536 registers
    assert held("6.0", 512, 64, 0).blocks.tolist() == [2]
    # one register more, and only one block of 512 fits
    assert held("6.0", 512, 65, 0).blocks.tolist() == [1]
    # cuBLAS on an H100: the shared memory of one block is nearly all there is
    gemm = held("9.0", 384, 168, 231_424)
    assert (gemm.blocks.tolist(), gemm.warps.tolist()) == ([1], [12])
    assert np.flatnonzero(gemm.limiting()[0]).tolist() == [1, 2]


def test_each_block_pays_for_the_systems_kilobyte_since_ampere():
    # 16 KiB fit ten times into 160, but each block takes 17
    assert held("8.0", 32, 16, 16_384).by[0, LIMITS.index("shared memory")] == 164 // 17
    assert held("7.0", 32, 16, 16_384).by[0, LIMITS.index("shared memory")] == 96 // 16


@given(
    st.sampled_from(CCS),
    st.integers(1, 1024),
    st.integers(1, 255),
    st.integers(0, 240 * 1024),
    st.integers(0, 64),
    st.integers(0, 65_536),
)
def test_more_registers_or_shared_memory_never_let_more_blocks_fit(
    cc, threads, registers, shared, more_registers, more_shared
):
    sm = multiprocessor(cc)
    less = held(cc, threads, registers, shared)
    more = held(cc, threads, registers + more_registers, shared + more_shared)
    assert (
        0
        <= more.blocks[0]
        <= less.blocks[0]
        <= less.by[0, LIMITS.index("blocks per SM")]
        <= sm.warps
    )
    assert less.blocks[0] == less.by[0].min()
    assert less.blocks[0] * less.warps[0] <= sm.warps
    assert less.blocks[0] * less.registers[0] <= sm.registers
    assert less.blocks[0] * less.shared[0] <= sm.shared
    assert less.by.max() <= UNLIMITED


def test_rules_that_nobody_published_are_not_known():
    assert multiprocessor(None) is None
    assert multiprocessor("99.9") is None
    assert multiprocessor("gfx908") is None


def test_every_nvidia_device_of_the_table_has_rules():
    for _, device in rows():
        if device.vendor == "nvidia":
            assert multiprocessor(device.cc) is not None, device.name


def test_the_limits_agree_with_each_other():
    for cc in CCS:
        sm, limits = multiprocessor(cc), tables()["limits"][cc]
        assert sm.warps * sm.warp == limits["threads"]
        assert sm.block_shared + sm.reserved <= sm.shared
        assert sm.registers % sm.partitions == 0

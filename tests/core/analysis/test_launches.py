"""Launch configurations: occupancy, waves, what limits them, and why they are not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.device.launches import (
    AMD,
    NO_CONFIGURATION,
    NO_COUNT,
    NO_DEVICE,
    NO_FIT,
    NO_RESOURCES,
    NO_RULES,
    NOTHING,
    launches,
)  # fmt: skip

A100 = {"process": 0, "device": 0, "name": "NVIDIA A100-SXM4-80GB", "cc": "8.0", "sm_count": 108}


def kernel(**more: object) -> dict:
    return {"process": 0, "device": 0, "stream": 7, "start": 0, "end": 10, "name": "k",
            "grid": "216,1,1", "block": "256,1,1", "registers": 32, "shared_static": 0,
            "shared_dynamic": 0, **more}  # fmt: skip


def rated(trace_of, device: dict | None = A100, **more: object) -> dict:
    trace = trace_of(kernels=[kernel(**more)], devices=[device] if device else [])
    found = launches(trace, trace["kernels"])
    assert found.code.tolist() == [0]
    return found.table.row(0, named=True)


def test_a_full_launch_occupies_what_fits_and_counts_its_waves(trace_of):
    row = rated(trace_of, grid="1296,1,1")
    assert (row["blocks"], row["blocks_per_sm"], row["warps_per_block"]) == (1296, 12.0, 8)
    assert (row["resident_blocks"], row["theoretical_occupancy"]) == (8, 1.0)
    assert (row["limited_by"], row["achieved_occupancy"]) == (NOTHING, 1.0)
    # 12 blocks a multiprocessor, 8 at a time: the second wave is half full
    assert (row["waves"], row["tail_share"]) == (1.5, 0.25)
    assert (row["occupancy_reason"], row["device_name"]) == (None, "A100 80GB SXM")


def test_a_small_grid_achieves_less_than_what_fits(trace_of):
    row = rated(trace_of, grid="54,1,1")
    assert (row["blocks_per_sm"], row["theoretical_occupancy"]) == (0.5, 1.0)
    assert row["achieved_occupancy"] == pytest.approx(0.5 * 8 / 64)
    assert row["waves"] == pytest.approx(0.5 / 8)
    assert row["tail_share"] == pytest.approx(1 - 0.5 / 8)


@pytest.mark.parametrize(
    ("sizes", "limit", "blocks"),
    [
        ({"registers": 128}, "registers", 2),
        ({"shared_dynamic": 50_000}, "shared memory", 3),
        ({"block": "32,1,1", "registers": 16}, "blocks per SM", 32),
        ({"block": "768,1,1"}, "block size, registers", 2),
        ({"block": "33,1,1", "registers": 16}, "block size, blocks per SM", 32),
    ],
)
def test_what_limits_the_occupancy_is_named(trace_of, sizes, limit, blocks):
    row = rated(trace_of, **sizes)
    if limit == "block size, blocks per SM":  # 32 blocks of 2 warps fill it
        assert (row["limited_by"], row["theoretical_occupancy"]) == (NOTHING, 1.0)
    else:
        assert row["limited_by"] == limit
    assert row["resident_blocks"] == blocks


def test_shared_memory_of_a_source_that_has_only_the_sum_counts(trace_of):
    only = rated(trace_of, shared_static=None, shared_dynamic=50_000)
    both = rated(trace_of, shared_static=20_000, shared_dynamic=30_000)
    assert only["shared_memory"] == both["shared_memory"] == 50_000
    assert only["limited_by"] == both["limited_by"] == "shared memory"


@pytest.mark.parametrize(
    ("device", "sizes", "why"),
    [
        (A100, {"grid": None}, NO_CONFIGURATION),
        (A100, {"block": None}, NO_CONFIGURATION),
        (A100, {"grid": "0,1,1"}, NO_CONFIGURATION),
        (A100, {"grid": "what"}, NO_CONFIGURATION),
        (A100, {"registers": None}, NO_RESOURCES),
        (A100, {"registers": 0}, NO_RESOURCES),
        (A100, {"shared_static": None, "shared_dynamic": None}, NO_RESOURCES),
        (A100, {"block": "1024,2,1"}, NO_FIT),
        (A100, {"shared_dynamic": 1 << 20}, NO_FIT),
        (None, {}, NO_DEVICE),
        # a slice of a GPU, of which a name tells the share of compute but not the multiprocessors
        ({**A100, "name": "NVIDIA A100-SXM4-80GB MIG 3g.40gb", "sm_count": None}, {}, NO_COUNT),
        ({"process": 0, "device": 0}, {}, NO_DEVICE),
        ({**A100, "name": "unheard of", "cc": None}, {}, NO_DEVICE),
        ({**A100, "name": "unheard of", "cc": "99.0"}, {}, NO_RULES),
        ({**A100, "name": "AMD Instinct MI300X", "cc": "9.4", "sm_count": 304}, {}, AMD),
        # HIP calls gfx90a "9.0", as CUDA does Hopper
        ({**A100, "name": None, "cc": "9.0", "sm_count": 132}, {}, NO_DEVICE),
    ],
)
def test_what_is_not_known_is_null_with_a_reason(trace_of, device, sizes, why):
    row = rated(trace_of, device, **sizes)
    assert row["occupancy_reason"] == why
    assert row["achieved_occupancy"] is None
    assert row["waves"] is None
    assert row["tail_share"] is None


def test_a_device_without_a_name_is_known_by_its_compute_capability(trace_of):
    row = rated(trace_of, {**A100, "name": None})
    assert (row["occupancy_reason"], row["resident_blocks"]) == (None, 8)


def test_a_cluster_makes_the_occupancy_a_bound(trace_of):
    h100 = {**A100, "name": "NVIDIA H100 80GB HBM3", "cc": "9.0", "sm_count": 132}
    trace = trace_of(
        kernels=[kernel(cluster="2,1,1"), kernel(), kernel(cluster="1,1,1")], devices=[h100]
    )
    found = launches(trace, trace["kernels"])
    assert found.of_kernels("clustered").to_list() == [True, False, False]
    # where no kernel has one, a source may not record them; before Hopper there are none
    assert rated(trace_of, h100)["clustered"] is None
    assert rated(trace_of)["clustered"] is False


def test_kernels_of_one_configuration_share_a_row_and_devices_do_not(trace_of):
    other = {**A100, "device": 1, "name": "Tesla V100-SXM2-32GB", "cc": "7.0", "sm_count": 80}
    trace = trace_of(
        kernels=[kernel(), kernel(start=20, end=30), kernel(device=1), kernel(registers=33)],
        devices=[A100, other],
    )
    found = launches(trace, trace["kernels"])
    assert len(found.table) == 3
    assert found.code[0] == found.code[1]
    assert found.of_kernels("sm_count").to_list() == [108, 108, 80, 108]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["1,1,1", "108,2,3", "9999,1,1", None]),
            st.sampled_from(["1,1,1", "32,4,1", "1024,1,1", "17,3,1", None]),
            st.integers(0, 300),
            st.integers(0, 200_000),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_achieved_is_at_most_theoretical_and_both_are_shares(rows):
    import polars as pl

    from opscope.core.tables.trace import Trace, table_schema

    kernels = [
        kernel(grid=grid, block=block, registers=registers, shared_dynamic=shared)
        for grid, block, registers, shared in rows
    ]
    schema = table_schema("kernels")
    trace = Trace.of(
        {
            "kernels": pl.DataFrame(kernels, schema={key: schema[key] for key in kernels[0]}),
            "devices": pl.DataFrame(
                [A100], schema={key: table_schema("devices")[key] for key in A100}
            ),
        }
    )
    found = launches(trace, trace["kernels"])
    for place, row in enumerate(found.table[found.code].rows(named=True)):
        assert (row["grid"], row["block"]) == rows[place][:2]
        assert (row["achieved_occupancy"] is None) == (row["occupancy_reason"] is not None)
        if row["achieved_occupancy"] is not None:
            assert 0 < row["achieved_occupancy"] <= row["theoretical_occupancy"] <= 1
            assert 0 <= row["tail_share"] < 1
            assert 0 <= row["register_use"] <= 1
            assert 0 <= row["shared_use"] <= 1
            # by waves of full multiprocessors, the blocks come out again
            assert row["waves"] * row["resident_blocks"] * 108 == pytest.approx(row["blocks"])

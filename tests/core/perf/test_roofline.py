"""Roofline arithmetic: what binds, how near the roof, and what excuses a figure above it."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.roofline.roofline import roofline, tick
from opscope.core.perf.devices.identify import find

H100, _ = find("NVIDIA H100 80GB HBM3")


def table(**columns):
    row = {
        "duration": 1_000_000, "matrix_flops": 0, "vector_flops": 0, "bytes": 0, "dtype": "bf16",
        "tensor_core": True, "fast_algorithm": False, "masked_flops": 0,
    }  # fmt: skip
    row.update(columns)
    return pl.DataFrame([row], schema_overrides={"bytes": pl.Int64, "matrix_flops": pl.Int64})


def only(frame):
    return frame.row(0, named=True)


def test_bound_by_tensor_cores():
    found = only(roofline(table(matrix_flops=500 * 10**9, bytes=10**6), H100))
    assert found["bound"] == "tensor"
    assert found["efficiency"] == pytest.approx(500e9 / 989.4e12 / 1e-3)
    assert found["attained_flops"] == pytest.approx(500e12)
    assert found["attainable_flops"] == pytest.approx(989.4e12)
    assert found["intensity"] == pytest.approx(500e3)
    assert found["over_reason"] is None


def test_bound_by_memory():
    found = only(roofline(table(vector_flops=10**6, bytes=2 * 10**9), H100))
    assert found["bound"] == "memory"
    assert found["efficiency"] == pytest.approx(2e9 / 3350e9 / 1e-3)
    assert found["attained_bandwidth"] == pytest.approx(2e12)
    # attained over attainable is the same ratio
    assert found["attained_flops"] / found["attainable_flops"] == pytest.approx(found["efficiency"])


def test_bound_by_vector_units():
    found = only(roofline(table(vector_flops=10**10, bytes=10**6, dtype="f64"), H100))
    assert found["bound"] == "vector"


def test_bound_by_latency():
    found = only(roofline(table(matrix_flops=10**6, bytes=10**4, duration=5_000), H100))
    assert found["bound"] == "latency"


def test_tf32_only_where_tensor_cores_are_used():
    used = only(roofline(table(matrix_flops=10**11, dtype="f32", tensor_core=True), H100))
    plain = only(roofline(table(matrix_flops=10**11, dtype="f32", tensor_core=False), H100))
    unknown = only(roofline(table(matrix_flops=10**11, dtype="f32", tensor_core=None), H100))
    assert used["attainable_flops"] == pytest.approx(494.7e12)
    assert plain["attainable_flops"] == pytest.approx(66.9e12)
    assert unknown["attainable_flops"] == pytest.approx(494.7e12)
    # half precision off the tensor units is measured against what it could have had
    slow = only(roofline(table(matrix_flops=10**11, tensor_core=False), H100))
    assert slow["attainable_flops"] == pytest.approx(989.4e12)


def test_tensor_units_without_a_known_rate_have_no_roof():
    """f32 that a Volta kernel casts to f16 on its Tensor Cores: neither f32's roof nor f16's is its."""
    v100, _ = find("Tesla V100-SXM2-16GB")
    cast = only(roofline(table(matrix_flops=10**11, dtype="f32", tensor_core=True), v100))
    assert cast["efficiency"] is None
    plain = only(roofline(table(matrix_flops=10**10, dtype="f32", tensor_core=False), v100))
    assert plain["attainable_flops"] == pytest.approx(15.7e12)


def test_a_cache_behind_the_l2_counts():
    """MI300X: 400 MB may come from its 256 MB Infinity Cache in part; 600 MB may not."""
    mi300, _ = find("AMD Instinct MI300X")
    for size, reason in ((4 * 10**8, "cache-resident"), (6 * 10**8, "modelling error")):
        each = {"bytes": size, "bytes_read": size, "bytes_written": 0}
        row = table(**each, duration=round(0.9 * size / 5300), vector_flops=1)
        assert only(roofline(row, mi300))["over_reason"] == reason


def test_masked_flops_are_not_held_against_the_kernel():
    half = only(roofline(table(matrix_flops=16 * 10**11, masked_flops=8 * 10**11), H100))
    assert half["efficiency"] == pytest.approx(8e11 / 989.4e12 / 1e-3)


@pytest.mark.parametrize(
    ("columns", "tick_ns", "reason"),
    [
        ({"bytes": 50 * 2**20, "duration": 15_000, "vector_flops": 1}, 1, "cache-resident"),
        ({"bytes": 33 * 10**6, "bytes_read": 10**9, "bytes_written": 0, "duration": 9_000}, 1_000,
         "timer resolution"),
        # 9 µs may have been 10, or with ten kernels 19, but not 298
        ({"bytes": 60 * 10**6, "bytes_read": 10**9, "bytes_written": 0, "duration": 9_000, "kernels": 10},
         1_000, "timer resolution"),
        ({"bytes": 10**9, "duration": 9_000}, 1_000, "modelling error"),
        ({"matrix_flops": 2 * 10**12, "fast_algorithm": True}, 1, "fast algorithm"),
        ({"matrix_flops": 2 * 10**12}, 1, "modelling error"),
        ({"bytes": 10**10}, 1, "modelling error"),
    ],
)  # fmt: skip
def test_more_than_the_roof_has_a_reason(columns, tick_ns, reason):
    found = only(roofline(table(**columns), H100, tick_ns))
    assert found["efficiency"] > 1
    assert found["over_reason"] == reason


def test_unknown_is_null():
    for columns in ({"matrix_flops": None}, {"bytes": None}, {"matrix_flops": 10, "dtype": "?"}):
        found = only(roofline(table(**columns), H100))
        assert found["efficiency"] is None
        assert found["bound"] is None
    nothing = only(roofline(table(matrix_flops=10**9, bytes=10**6), None))
    assert nothing["efficiency"] is None
    assert nothing["attained_flops"] == pytest.approx(10**12)
    assert nothing["intensity"] == pytest.approx(1000)
    assert only(roofline(table(duration=0, matrix_flops=1), H100))["efficiency"] is None


@given(
    matrix=st.integers(0, 10**13), vector=st.integers(0, 10**11), moved=st.integers(1, 10**10),
    duration=st.integers(1, 10**9),
)  # fmt: skip
def test_the_roof_is_the_lowest_of_three(matrix, vector, moved, duration):
    found = only(
        roofline(
            table(matrix_flops=matrix, vector_flops=vector, bytes=moved, duration=duration), H100
        )
    )
    ideal = max(matrix / 989.4e12, vector / 133.8e12, moved / 3350e9)
    assert found["efficiency"] == pytest.approx(ideal / (duration / 1e9))
    assert (found["over_reason"] is not None) == (found["efficiency"] > 1)


def test_ticks():
    assert tick(pl.Series([1_000, 25_000])) == 1_000
    assert tick(pl.Series([1_000, 25_001])) == 1
    assert tick(pl.Series([], dtype=pl.Int64)) == 1


def test_a_cache_of_unknown_size_may_hold_anything():
    """A CPU whose cache nobody told: what beats the memory's rate was in it."""
    described, _ = find("CPU avx2 8 cores 3 GHz 50 GB/s")
    row = only(roofline(table(bytes=10**9, duration=1_000_000, vector_flops=1), described))
    assert row["efficiency"] > 1
    assert row["over_reason"] == "cache-resident"

"""MFU and HFU of a step: what is counted, over what, and what is computed again."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.roofline.utilization import step_utilization
from opscope.core.perf.devices.identify import find
from opscope.profile import Profile

H100, _ = find("NVIDIA H100 80GB HBM3")
PEAK = 989.4e12


def steps(*spans, process=0):
    rows = [
        {"process": process, "text": f"step {n}", "category": "step", "attrs": None, "start": a, "end": b}
        for n, (a, b) in enumerate(spans)
    ]  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"attrs": pl.String, "process": pl.Int32})


def ops(*rows):
    base = {
        "op_id": None, "process": 0, "step": 0, "canonical": True, "op": "aten::mm", "op_type": "gemm",
        "direction": "forward", "dtypes": "bf16", "matrix_flops": 0,
    }  # fmt: skip
    each = [{**base, "op_id": number, **row} for number, row in enumerate(rows)]
    return pl.DataFrame(each, schema_overrides={"process": pl.Int32})


@given(st.integers(1, 10**15), st.integers(1, 10**12))
def test_flops_over_peak_and_time(flops, time):
    row = step_utilization(steps((0, time)), ops({"matrix_flops": flops}), H100).row(0, named=True)
    assert row["mfu"] == row["hfu"] == pytest.approx(flops / (PEAK * time / 1e9))
    assert row["peak"] == pytest.approx(PEAK)


def test_a_dtype_has_its_own_peak():
    """Most FLOPs decide; f32 is TF32 on Tensor Cores, and plain f32 on a device without it."""
    mixed = ops({"matrix_flops": 9}, {"matrix_flops": 10, "dtypes": "f32"})
    assert step_utilization(steps((0, 9)), mixed, H100)["peak"].to_list() == [
        pytest.approx(494.7e12)
    ]
    v100, _ = find("Tesla V100-SXM2-16GB")
    assert step_utilization(steps((0, 9)), mixed, v100)["peak"].to_list() == [
        pytest.approx(15.7e12)
    ]
    fp8 = ops({"matrix_flops": 1, "dtypes": "f8e4m3fn,bf16"})
    found = step_utilization(steps((0, 9)), fp8, H100)
    assert found["peak"].to_list() == [pytest.approx(1978.9e12)]


def test_unknown_is_null():
    nothing = step_utilization(steps((0, 9)), ops({"matrix_flops": None}), H100).row(0, named=True)
    assert nothing["mfu"] is None
    assert nothing["done_flops"] is None
    nowhere = step_utilization(steps((0, 9)), ops({"matrix_flops": 5}), None).row(0, named=True)
    assert (nowhere["peak"], nowhere["hfu"], nowhere["done_flops"]) == (None, None, 5)


def test_recomputed_ops_are_hardware_flops_alone():
    table = ops(
        {"matrix_flops": 100},
        {"matrix_flops": 100, "direction": "backward"},
        {"matrix_flops": 200, "direction": "backward"},
    )
    recomputed = pl.Series([False, True, False])
    row = step_utilization(steps((0, 9)), table, H100, recomputed=recomputed).row(0, named=True)
    assert (row["done_flops"], row["model_flops"]) == (400, 300)


def test_devices_and_known_time_are_of_the_kernels():
    kernels = pl.DataFrame(
        {
            "process": [0, 0, 0], "device": [0, 1, 1], "call_start": [1, 2, 50], "duration": [30, 10, 9],
            "flops": [5, None, None], "op_type": ["gemm", None, "gemm"],
        },
        schema_overrides={"process": pl.Int32, "device": pl.Int32},
    )  # fmt: skip
    found = step_utilization(steps((0, 20)), ops({"matrix_flops": 5}), H100, kernels=kernels)
    row = found.row(0, named=True)
    assert row["peak"] == pytest.approx(2 * PEAK)
    assert row["known"] == pytest.approx(30 / 40), "the third was launched after the step"


def test_an_op_of_a_graph_counts_in_the_steps_of_its_replays():
    replays = pl.DataFrame({"op_id": [0, 0, 0], "time": [5, 15, 16]})
    table = ops({"matrix_flops": 7, "step": 0}, {"matrix_flops": 1, "step": 0})
    found = step_utilization(steps((0, 10), (10, 20), (20, 30)), table, H100, replays=replays)
    assert found["done_flops"].to_list() == [8, 14, None]


def marker(text, start, end, **more):
    row = {
        "process": 0,
        "thread": 1,
        "text": text,
        "domain": "",
        "kind": "pushpop",
        "start": start,
        "end": end,
    }
    return {**row, **more}  # fmt: skip


MM = "aten::mm(f32[4,4], f32[4,4])"


def test_a_checkpointed_product_is_told_from_the_gradients(trace_of):
    """In our own text: a numbered forward op while the process is in backward, whatever its thread."""
    at = {"domain": "opscope.torch"}
    trace = trace_of(
        ranges=[
            marker("step 0", 0, 100, category="step", domain="opscope.user"),
            marker("backward", 40, 90, category="phase", **at),
            marker(MM, 1, 5, category="forward", seq=3, **at),
            marker(MM, 50, 54, category="forward", seq=9, thread=2, **at),
            marker(MM, 55, 59, category="backward", seq=3, fwd_thread=1, **at),
            marker(MM, 60, 64, category="backward", **at),
        ]
    )
    row = Profile(trace).utilization().row(0, named=True)
    assert row["done_flops"] == 4 * 128
    assert row["model_flops"] == 3 * 128


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("step 7", 7),
        ("step -3", -3),
        ("ProfilerStep#12", 12),
        ("train-5", 5),
        (f"step {2**70}", None),
    ],
)
def test_a_step_has_the_number_in_its_text(trace_of, text, step):
    place = {"process": 0, "thread": 1, "kind": "pushpop"}
    trace = trace_of(
        ranges=[
            {**place, "domain": "opscope.step", "category": "step", "text": text, "start": 0, "end": 9},
            {**place, "domain": "opscope.torch", "category": "forward", "start": 1, "end": 5,
             "text": "aten::mm(f32[2,2], f32[2,2]) -> f32[2,2]"},
        ]
    )  # fmt: skip
    assert Profile(trace).utilization()["step"].to_list() == ([] if step is None else [step])

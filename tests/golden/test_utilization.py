"""Model and hardware FLOPs utilisation per step."""

from __future__ import annotations

import polars as pl
import pytest

from opscope import profile
from opscope.core.analysis.roofline.utilization import step_utilization
from opscope.core.perf.devices.identify import find


def test_resnet50_steps(shared):
    """Batch 32 in fp32 on a V100: three convolutions' worth but for the images' own gradient, over the
    vector peak; nothing is computed twice."""
    loaded = profile.load(shared / "kineto" / "resnet50_nw0_step_span1.pt.trace.json.gz")
    device, _ = find("Tesla V100-DGXS-32GB")
    found = step_utilization(loaded.trace["ranges"], loaded.ops(), device)
    assert found["step"].to_list() == [5, 6, 7, 8, 9, 10]
    first = 2 * 32 * 112 * 112 * 64 * 3 * 7 * 7
    for row in found.iter_rows(named=True):
        assert row["done_flops"] == row["model_flops"]
        # 4.09 G multiply-adds an image and pass
        assert row["done_flops"] + first == pytest.approx(3 * 2 * 32 * 4.09e9, rel=0.005)
        assert row["hfu"] == pytest.approx(row["done_flops"] / (15.7e12 * row["time"] / 1e9))
        assert 0.2 < row["mfu"] < 0.6


def rows(**columns):
    base = {
        "process": 0,
        "canonical": True,
        "op_type": "gemm",
        "direction": "forward",
        "dtypes": "bf16,f32",
    }
    return pl.DataFrame([{**base, **c} for c in columns["each"]])


def test_what_is_computed_again_is_hardware_not_model():
    ranges = pl.DataFrame(
        {"process": [0], "text": ["step 3"], "category": ["step"], "attrs": [None], "start": [0], "end": [10**6]},
        schema_overrides={"attrs": pl.String},
    )  # fmt: skip
    ops = rows(
        each=[
            {"step": 3, "op": "aten::addmm", "matrix_flops": 10**9},
            {"step": 3, "op": "aten::addmm", "matrix_flops": 10**9, "direction": "backward"},
            {"step": 3, "op": "aten::mm", "matrix_flops": 2 * 10**9, "direction": "backward"},
            {"step": 3, "op": "aten::_flash_attention_backward", "matrix_flops": 5 * 10**9,
             "direction": "backward", "op_type": "attention"},
            {"step": 4, "op": "aten::mm", "matrix_flops": 7},
            {"step": 3, "op": "aten::linear", "matrix_flops": 10**9, "canonical": False},
        ]
    )  # fmt: skip
    device, _ = find("NVIDIA H100 80GB HBM3")
    row = step_utilization(ranges, ops, device).row(0, named=True)
    assert row["done_flops"] == 9 * 10**9
    assert row["model_flops"] == (9 - 1 - 1) * 10**9
    assert row["hfu"] == pytest.approx(9e9 / (989.4e12 * 1e-3))
    assert row["mfu"] < row["hfu"]
    nothing = step_utilization(ranges, ops, None).row(0, named=True)
    assert nothing["mfu"] is None
    assert nothing["done_flops"] == row["done_flops"]
    two = step_utilization(ranges, ops, device, devices=2).row(0, named=True)
    assert two["hfu"] == pytest.approx(row["hfu"] / 2)

"""Time on Tensor Cores: what a name, an op or a device proves, and what nothing tells."""

from __future__ import annotations

import pytest

from opscope.core.analysis.summary.summary_table import summary_table
from opscope.core.perf import entries
from opscope.core.perf.tensorcore import MATRIX_FAMILIES, WITHOUT_PRODUCTS
from opscope.profile import Profile

MM, ADD = "aten::mm(f16[64,64], f16[64,64])", "aten::add(f16[64], f16[64])"
SECRET, GEMM = "_fwd_kernel", "ampere_h16816gemm_128x128_nn"


@pytest.fixture
def ran(trace_of):
    """A profile of (op text or None, kernel, ns), one after the other."""

    def build(*rows, **device):
        at, ranges, calls, kernels = 0, [], [], []
        for number, (text, name, time) in enumerate(rows):
            where = {"process": 0, "thread": 1}
            if text:
                ranges.append({**where, "start": at, "end": at + 10, "text": text, "kind": "pushpop",
                               "domain": "opscope.torch", "category": "forward"})  # fmt: skip
            calls.append(
                {
                    **where,
                    "start": at + 1,
                    "end": at + 2,
                    "correlation": number,
                    "name": "cudaLaunchKernel",
                }
            )
            kernels.append({"process": 0, "device": 0, "stream": 7, "start": at + 3, "end": at + 3 + time,
                            "name": name, "correlation": number})  # fmt: skip
            at += 10 + time
        tables = {"ranges": ranges, "calls": calls, "kernels": kernels}
        if device:
            tables["devices"] = [{"process": 0, "device": 0, **device}]
        return Profile(trace_of(**tables))

    return build


def test_what_nothing_tells_is_null_and_its_time_is_told(ran):
    profile = ran(
        (MM, GEMM, 50),
        (MM, SECRET, 30),
        (None, SECRET, 15),
        (None, "at::native::reduce_kernel<1>", 5),
    )
    assert profile.kernels()["tensor_core"].to_list() == [True, None, None, False]
    row = profile.summary().row(0, named=True)
    assert (row["tensor_core_time"], row["tensor_core_undetermined_time"]) == (50, 45)
    by_name = dict(profile.kernel_totals().select("name", "tensor_core").cast({"name": str}).rows())
    assert by_name[SECRET] is None
    lines = {line["what"]: line for line in summary_table(profile).rows}
    assert lines["Tensor Cores"]["value"] == "50.0 %"
    assert lines["Tensor Cores"]["remark"].endswith("; for 45.0 % (45 ns) it is not known")


def test_an_op_without_a_product_proves_that_none_is_used(ran):
    profile = ran((ADD, SECRET, 30), (ADD, GEMM, 10))
    assert profile.kernels()["tensor_core"].to_list() == [False, True], "the name comes first"
    assert profile.summary()["tensor_core_undetermined_time"].item() == 0


def test_a_name_that_is_used_by_two_kinds_of_op_is_not_known_in_total(ran):
    profile = ran((ADD, SECRET, 30), (MM, SECRET, 30))
    assert profile.kernels()["tensor_core"].to_list() == [False, None]
    assert profile.kernel_totals()["tensor_core"].to_list() == [None]


def test_a_device_without_them_proves_that_none_is_used(ran):
    device = {"name": "Tesla P100-SXM2-16GB", "cc": "6.0"}
    profile = ran((MM, SECRET, 30), **device)
    assert profile.kernels()["tensor_core"].to_list() == [False]
    newer = ran((MM, SECRET, 30), name="NVIDIA H100 80GB HBM3", cc="9.0")
    assert newer.kernels()["tensor_core"].to_list() == [None]


def test_no_reason_is_given_why_none_was_used_where_that_is_not_known(ran):
    text = "aten::mm(f32[64,64], f32[64,64])"
    told, hidden = (
        ran((text, name, 30), name="NVIDIA H100 80GB HBM3", cc="9.0").kernels().row(0, named=True)
        for name in ("ampere_sgemm_32x32_nn", SECRET)
    )
    assert (told["tensor_core"], hidden["tensor_core"]) == (False, None)
    assert told["tc_reason"] == "TF32 is off, or the library chose a kernel without Tensor Cores"
    assert hidden["tc_reason"] != told["tc_reason"]


def test_no_family_of_products_counts_as_without_them():
    families = {entry.family for entry in entries().values()}
    assert families >= WITHOUT_PRODUCTS
    assert not WITHOUT_PRODUCTS & (
        MATRIX_FAMILIES | {"moe", "linalg", "quantize", "fusion", "host", "autograd"}
    )

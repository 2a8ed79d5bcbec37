"""Tensor Cores: use from kernel names, eligibility as DLProf has it, readiness and its reasons."""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path

import pytest

from opscope.core.perf import entries, tensorcore
from opscope.core.schema import OpCall, TensorSpec

HERE = Path(__file__).parent


def labelled():
    """Kernel names labelled by hand, each with where it is from."""
    with (HERE / "kernel_names.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_is_wide():
    rows = labelled()
    assert len(rows) >= 150
    assert len({row["kernel"] for row in rows}) == len(rows)
    assert all(row["where_from"] for row in rows)
    words = " ".join(row["kernel"] for row in rows).lower()
    for family in ("volta", "turing", "ampere", "sm90", "sm100", "sm120", "nvjet", "cudnn", "cutlass",
                   "xmma", "wgmma", "flash", "fmha", "triton", "winograd", "fft"):  # fmt: skip
        assert family in words, family


@pytest.mark.parametrize("row", labelled(), ids=lambda row: row["kernel"][:60])
def test_use_by_name(row):
    assert tensorcore.used(row["kernel"]) is (row["tensor_core"] == "yes")


def test_a_name_that_hides_it_is_not_known():
    assert tensorcore.used("void cutlass::Kernel2<T1>(T1::Params)") is None
    assert tensorcore.used("ncclDevKernel_AllReduce_Sum_bf16_RING_LL") is False
    assert tensorcore.used("") is False


def test_fast_algorithms_are_seen():
    assert tensorcore.fast_algorithm("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1")
    assert tensorcore.fast_algorithm("void fft2d_r2c_32x32<float, false, 0u, false>(float2*)")
    assert not tensorcore.fast_algorithm("volta_sgemm_128x64_nn")


def test_eligible_as_dlprof_reports(shared):
    """The op types of DLProf's detail report, as torch names them, and its two verdicts."""
    with (shared / "dlprof" / "dlprof_detailed.csv").open(newline="") as file:
        next(file)
        rows = [row for row in csv.DictReader(file) if row["TC Eligible"]]
    assert len(rows) > 30
    for row in rows:
        kind = row["Op Type"]
        assert tensorcore.eligible(f"torch.{kind}") is (row["TC Eligible"] == "yes"), kind


def test_used_as_dlprof_reports(shared):
    """All matrix ops of that run use none: an fp32 network on Turing."""
    database = sqlite3.connect(f"file:{shared}/dlprof/nsys_profile.sqlite?mode=ro", uri=True)
    names = [name for (name,) in database.execute(
        "select distinct s.value from CUPTI_ACTIVITY_KIND_KERNEL k "
        "join StringIds s on k.demangledName = s.id")]  # fmt: skip
    database.close()
    with (shared / "dlprof" / "dlprof_tensor_core.csv").open(newline="") as file:
        next(file)
        rows = list(csv.DictReader(file))
    assert {row["Uses TC"] for row in rows} == {"no"}
    assert names
    assert {name for name in names if tensorcore.used(name)} == set()


def gemm(dtype, m, k, n):
    return OpCall("aten::mm", (TensorSpec(dtype, (m, k)), TensorSpec(dtype, (k, n))))


@pytest.mark.parametrize(
    ("dtype", "cc", "expected", "reason"),
    [
        ("f16", (7, 0), True, None),
        ("bf16", (7, 5), False, "8.0"),
        ("bf16", (8, 0), True, None),
        ("f32", (7, 5), False, "8.0"),
        ("f32", (8, 0), None, "TF32"),
        ("f64", (8, 6), False, "8.6"),
        ("f64", (9, 0), True, None),
        ("i8", (7, 5), True, None),
        ("f8e4m3fn", (8, 0), False, "8.9"),
        ("f8e4m3fn", (9, 0), True, None),
        ("f4e2m1", (9, 0), False, "10.0"),
        ("f4e2m1", (10, 0), True, None),
        ("i64", (9, 0), False, "no Tensor Core instruction"),
        ("?", (9, 0), None, "without element types"),
    ],
)
def test_readiness_by_dtype_and_generation(dtype, cc, expected, reason):
    found, why = tensorcore.ready(gemm(dtype, 64, 64, 64), cc)
    assert found is expected
    assert (why is None) == (reason is None)
    assert reason is None or reason in why


def test_readiness_by_alignment_and_settings():
    odd = gemm("f16", 64, 30, 64)
    assert tensorcore.ready(odd, (7, 0)) == (False, "K = 30 is no multiple of 8")
    assert tensorcore.ready(odd, (8, 0), cublas=(10, 2)) == (False, "K = 30 is no multiple of 8")
    assert tensorcore.ready(odd, (8, 0), cublas=(12, 1)) == (True, None)
    single = gemm("f32", 64, 64, 64)
    assert tensorcore.ready(single, (8, 0), tf32=False) == (False, "TF32 is off")
    assert tensorcore.ready(single, (8, 0), tf32=True) == (True, None)
    conv = OpCall(
        "aten::cudnn_convolution",
        (TensorSpec("f32", (8, 64, 9, 9)), TensorSpec("f32", (64, 64, 3, 3))),
        None,
        (("allow_tf32", False),),
    )
    assert tensorcore.ready(conv, (8, 0)) == (False, "TF32 is off")
    assert tensorcore.ready(OpCall("aten::mm"), (8, 0))[0] is None


def test_why_an_eligible_op_used_none():
    assert "8.0" in tensorcore.unused_reason(gemm("f32", 64, 64, 64), (7, 5))
    assert tensorcore.unused_reason(gemm("f32", 64, 64, 64), (8, 0)).startswith("TF32 is off")
    assert "vector" in tensorcore.unused_reason(gemm("bf16", 1, 64, 64), (9, 0))
    assert tensorcore.unused_reason(OpCall("aten::mm"), (8, 0)) is None
    assert "multiple" in tensorcore.unused_reason(gemm("f16", 64, 30, 64), (8, 0))
    assert "tiny" in tensorcore.unused_reason(gemm("f16", 8, 8, 8), (8, 0))
    assert tensorcore.unused_reason(gemm("f16", 512, 512, 512), (8, 0)) is None
    conv = OpCall(
        "aten::convolution",
        (TensorSpec("f16", (8, 64, 33, 33)), TensorSpec("f16", (64, 64, 3, 3))),
        (TensorSpec("f16", (8, 64, 31, 31)),),
    )
    assert "layout" in tensorcore.unused_reason(conv, (7, 5))


def test_matrix_families_alone_are_eligible():
    for name, entry in entries().items():
        assert tensorcore.eligible(name) is (entry.family in tensorcore.MATRIX_FAMILIES)
    assert not tensorcore.eligible("nothing::like_it")

"""Tensor Cores: use from kernel names, eligibility as DLProf has it, readiness and its reasons."""

from __future__ import annotations

import csv
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.ops.ops import op_index
from opscope.core.perf import entries, tensorcore
from opscope.core.perf.devices.kernel_names import (
    fast_algorithm,
    uses_tensor_cores,
    verdict,
    which_use_tensor_cores,
)
from opscope.core.perf.devices.of_trace import trace_target
from opscope.core.perf.registry import lookup
from opscope.core.perf.tensorcore import NO_UNITS, Target
from opscope.core.schema import OpCall, TensorSpec
from tests import traces

HERE = Path(__file__).parent


def labelled():
    """Kernel names labelled by hand, each with where it is from."""
    with (HERE / "kernel_names.csv").open(newline="") as file:
        return list(csv.DictReader(file))


VERDICTS = {"yes": True, "no": False, "unknown": None}


def test_the_table_is_wide():
    rows = labelled()
    assert len(rows) >= 500
    assert len({row["kernel"] for row in rows}) == len(rows)
    assert all(row["where_from"] and row["why"] and row["library"] for row in rows)
    assert {row["tensor_core"] for row in rows} == set(VERDICTS)
    libraries = " ".join(row["library"] for row in rows)
    for library in ("cuBLAS", "cuDNN", "CUTLASS", "TensorRT-LLM", "FlashInfer", "vLLM", "SGLang", "DeepGEMM", "Triton",
                    "AOTriton", "Composable Kernel", "hipBLASLt", "MIOpen", "aiter", "XLA", "Inductor"):  # fmt: skip
        assert library in libraries, library
    words = " ".join(row["kernel"] for row in rows).lower()
    for family in ("volta", "turing", "ampere", "sm89", "sm90", "sm100", "sm103", "sm120", "nvjet", "cudnn",
                   "cutlass", "cutlass3x", "xmma", "wgmma", "flash", "fmha", "triton", "winograd", "fft",
                   "e4m3", "e2m1", "ue8m0", "cijk", "igemm", "_zn", "mfma", "xdl"):  # fmt: skip
        assert family in words, family
    for said in ("yes", "no"):
        assert sum(row["tensor_core"] == said for row in rows) > 250


@pytest.mark.parametrize("row", labelled(), ids=lambda row: row["kernel"][:60])
def test_use_by_name(row):
    found, why = verdict(row["kernel"])
    assert found is VERDICTS[row["tensor_core"]], why


@pytest.mark.parametrize(
    "name",
    ["void cutlass::Kernel2<T1>(T1::Params)", "", "matmul_kernel", "_fwd_kernel", "what_nobody_has_seen", "summary_kernel",
     "commas", "x" * 5000, "<<<>>>", "((((", "_Z" + "I" * 200],
)  # fmt: skip
def test_a_name_that_hides_it_is_not_known(name):
    assert uses_tensor_cores(name) is None


def test_a_mangled_name_is_judged_as_the_name_it_stands_for():
    symbol = "_ZN7ck_tile6kentryILi1ENS_23FmhaBwdOGradDotOKernelIiEEEEvv"
    assert uses_tensor_cores(symbol) is False
    assert which_use_tensor_cores([symbol, None, "_ZN5aiter18fmha_fwd_hd128_fp8E.kd"]) == [
        False,
        None,
        True,
    ]
    assert uses_tensor_cores("_ZN7ck_tile6kentryILi1ENS_12FmhaFwdKernelIiEEEEvv") is True


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_any_name_is_judged(name):
    found, why = verdict(name)
    assert found in (True, False, None)
    assert why


@given(st.sampled_from(labelled()), st.sampled_from(["", "void "]), st.sampled_from(["", "  "]))
def test_what_surrounds_a_name_changes_nothing(row, before, after):
    name = row["kernel"]
    if name.startswith(("_Z", "ZN", "void ", "bmm_", "Cijk")):  # names that no compiler gave a type
        before = ""
    assert uses_tensor_cores(before + name + after) is VERDICTS[row["tensor_core"]]


def test_ncclkernels_use_none():
    assert uses_tensor_cores("ncclDevKernel_AllReduce_Sum_bf16_RING_LL") is False


def test_fast_algorithms_are_seen():
    assert fast_algorithm("volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1")
    assert fast_algorithm("void fft2d_r2c_32x32<float, false, 0u, false>(float2*)")
    assert not fast_algorithm("volta_sgemm_128x64_nn")


def test_eligible_as_dlprof_reports(shared):
    """The op types of DLProf's detail report, as torch names them, and its two verdicts."""
    with (shared / "dlprof" / "dlprof_detailed.csv").open(newline="") as file:
        next(file)
        rows = [row for row in csv.DictReader(file) if row["TC Eligible"]]
    assert len(rows) > 30
    for row in rows:
        kind = row["Op Type"]
        assert tensorcore.eligible(lookup(f"torch.{kind}")) is (row["TC Eligible"] == "yes"), kind


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
    assert {name for name in names if uses_tensor_cores(name)} == set()


def test_every_matrix_op_as_dlprof_has_it(shared):
    """DLProf's own run through our reader: the same ops eligible, of the same kernels, none on Tensor
    Cores, and why: fp32 on Turing."""
    with (shared / "dlprof" / "dlprof_tensor_core.csv").open(newline="") as file:
        next(file)
        theirs = list(csv.DictReader(file))
    profile = traces.load(shared / "dlprof" / "nsys_profile.sqlite")
    costs, launched = profile.of(op_index).costs, profile.attribution.kernels
    # DLProf's op is the marker, ours the op inside it that launched: they meet in the op that counts
    counting = pl.Series("counting", costs.cost_owners(launched.op.astype("int64")))
    ours = profile.kernels().with_columns(counting).filter(pl.col("tc_eligible"))
    found = {}
    for row in (
        ours.group_by("counting")
        .agg("name", "tensor_core", "tc_ready", pl.col("tc_reason").cast(pl.String))
        .sort("counting")
        .iter_rows(named=True)
    ):
        name = profile.trace["ranges"]["text"][row["counting"]]
        kind = next(kind for kind in ("conv2d", "linear") if f"'{kind}'" in name)
        found.setdefault(kind, []).append((row["name"], row["tensor_core"]))
        assert set(row["tc_ready"]) == {False}
        assert all("8.0" in reason for reason in row["tc_reason"])
    assert {kind: len(ops) for kind, ops in found.items()} == {"conv2d": 2, "linear": 3}
    for row in theirs:
        kind, number = row["Op Type"], int(row["Op ID"].rpartition("_")[2]) - 1
        names, tensor = found[kind][number]
        assert sum(map(bool, tensor)) == int(row["TC Kernel Count"]) == 0
        told = [name.strip() for name in row["Non-TC Kernel Names"].split(",")]
        assert len(told) == int(row["Total Kernel Count"]), "it counts names"
        assert all(any(short in str(name) for short in told) for name in names)
        assert all(any(short in str(name) for name in names) for short in told)


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
    found, why = tensorcore.ready(gemm(dtype, 64, 64, 64), Target(cc))
    assert found is expected
    assert (why is None) == (reason is None)
    assert reason is None or reason in why


def test_readiness_by_alignment_and_settings():
    odd = gemm("f16", 64, 30, 64)
    assert tensorcore.ready(odd, Target((7, 0))) == (False, "K = 30 is not a multiple of 8")
    assert tensorcore.ready(odd, Target((8, 0), cublas=(10, 2))) == (
        False,
        "K = 30 is not a multiple of 8",
    )
    assert tensorcore.ready(odd, Target((8, 0), cublas=(12, 1))) == (True, None)
    single = gemm("f32", 64, 64, 64)
    assert tensorcore.ready(single, Target((8, 0), tf32=False)) == (False, "TF32 is off")
    assert tensorcore.ready(single, Target((8, 0), tf32=True)) == (True, None)
    conv = OpCall(
        "aten::cudnn_convolution",
        (TensorSpec("f32", (8, 64, 9, 9)), TensorSpec("f32", (64, 64, 3, 3))),
        None,
        (("allow_tf32", False),),
    )
    assert tensorcore.ready(conv, Target((8, 0))) == (False, "TF32 is off")
    assert tensorcore.ready(OpCall("aten::mm"), Target((8, 0)))[0] is None


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


def conv(name, weight, channels=64, **params):
    """A convolution of NHWC data of so many channels with these weights."""
    shapes = (8, 33, 33, channels), weight
    return OpCall(name, tuple(TensorSpec("f16", one) for one in shapes), (), tuple(params.items()))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        # 3 × 3 kernels from 64 to 30 channels: TensorFlow's weights are [h, w, in, out]
        (conv("Conv2D", (3, 3, 64, 30)), "output channels = 30"),
        (conv("Conv2D", (3, 3, 30, 64), 30), "input channels = 30"),
        (conv("Conv2D", (3, 3, 64, 64)), None),
        (conv("hlo::convolution", (3, 3, 64, 30), dim_labels="b01f_01io->b01f"), "output channels = 30"),
        (conv("hlo::convolution", (30, 3, 3, 64), dim_labels="b01f_o01i->b01f"), "output channels = 30"),
        (conv("aten::convolution", (30, 64, 3, 3)), "output channels = 30"),
    ],
)  # fmt: skip
def test_the_channels_of_a_convolution_are_read_in_its_framework_s_order(call, said):
    reason = tensorcore.alignment_reason(call, list(call.inputs), "f16")
    assert reason == (None if said is None else f"{said} is not a multiple of 8")


def test_what_low_precision_needs_of_its_sizes():
    """fp8 and fp4 kernels need 16 bytes from every version, int8 ones 4 elements; M is free."""
    b200, h100 = Target((10, 0), (12, 8)), Target((9, 0), (12, 8))
    assert tensorcore.ready(gemm("f8e4m3fn", 17, 64, 64), h100) == (True, None)
    assert tensorcore.ready(gemm("f8e4m3fn", 64, 24, 64), h100) == (
        False,
        "K = 24 is not a multiple of 16",
    )
    assert tensorcore.ready(gemm("f4e2m1", 64, 48, 64), b200) == (
        False,
        "K = 48 is not a multiple of 32",
    )
    assert tensorcore.ready(gemm("i8", 64, 64, 30), h100) == (
        False,
        "N = 30 is not a multiple of 4",
    )
    assert tensorcore.ready(gemm("i8", 64, 68, 64), h100) == (True, None)
    assert (
        tensorcore.ready(gemm("i8", 64, 68, 64), Target((7, 5), (10, 2)))[1]
        == "K = 68 is not a multiple of 16"
    )


def test_a_device_without_tensor_cores():
    none = Target(NO_UNITS)
    assert tensorcore.ready(gemm("f16", 64, 64, 64), none) == (
        False,
        "the device has no Tensor Cores",
    )
    assert "no Tensor Cores" in tensorcore.unused_reason(gemm("f16", 64, 64, 64), NO_UNITS)


@pytest.mark.parametrize(
    ("units", "dtype", "expected"),
    [("gfx908", "f64", False), ("gfx90a", "f64", True), ("gfx90a", "f8e4m3fn", False),
     ("gfx942", "f8e4m3fnuz", True), ("gfx942", "f8e4m3fn", False), ("gfx950", "f8e4m3fn", True),
     ("gfx950", "f4e2m1", True), ("gfx942", "f32", True), ("gfx942", "bf16", True)],
)  # fmt: skip
def test_amd_matrix_cores(units, dtype, expected):
    """f32 has its own instruction there, whatever TF32 is set to; fp8 is another format on CDNA 3."""
    found, why = tensorcore.ready(gemm(dtype, 64, 64, 64), Target(units))
    assert found is expected
    assert (why is None) == expected
    assert expected or units in why


def test_a_depthwise_convolution_is_no_product():
    call = OpCall(
        "aten::convolution",
        (TensorSpec("f16", (8, 64, 33, 33)), TensorSpec("f16", (64, 1, 3, 3))),
        (TensorSpec("f16", (8, 64, 31, 31)),),
        (("groups", 64),),
    )
    assert "depthwise" in tensorcore.ready(call, Target((8, 0)))[1]
    assert "depthwise" in tensorcore.unused_reason(call, (8, 0))


@pytest.mark.parametrize(("name", "cc", "units"), [
    ("AMD Instinct MI300X", "9.4", "gfx942"), ("NVIDIA GeForce GTX 1660", "7.5", NO_UNITS),
    ("Tesla P100-SXM2-16GB", "6.0", NO_UNITS), ("NVIDIA H100 80GB HBM3", "9.0", (9, 0)),
    (None, "9.4", "gfx942"), ("Some GPU", "9.0", (9, 0)), (None, None, None),
])  # fmt: skip
def test_whose_units_a_trace_s_ops_could_use(trace_of, name, cc, units):
    row = {"process": 0, "device": 0, "name": name, "cc": cc}
    if name is None and cc:
        row |= {"sm_count": 304, "memory": 206_141_652_992}
    if name and "GTX" in name:
        row |= {"sm_count": 22, "clock_khz": 1_785_000}
    process = {"process": 0, "versions": '{"cuda_runtime_version": 12040}'}
    target = trace_target(trace_of(devices=[row], processes=[process]))
    assert target.units == units
    assert target.cublas == (12,)


def test_matrix_families_alone_are_eligible():
    families = {entry.family for entry in entries().values() if tensorcore.eligible(entry)}
    assert families == {"gemm", "conv", "attention", "recurrent"}
    assert not tensorcore.eligible(lookup("nothing::like_it"))

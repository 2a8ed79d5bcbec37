"""The roofline of every real trace: what has a roof, and that nothing is above it without a reason."""

from __future__ import annotations

from functools import cache

import numpy as np
import polars as pl
import pytest

from opscope import profile

SXM = "A100 80GB SXM"
#: Names for the traces that have none: sampled_* has 108 multiprocessors (its blocks an SM) and moves
#: 1.77 TB/s; the other is called after its device.
NAMES = {
    "kineto/sampled_rank0.json.gz": SXM,
    "kineto/sampled_rank1.json.gz": SXM,
    "nsys/fsdp_h100x2_2026.sqlite": "H100 SXM",
}
#: File: device; executions of ops that count and have a cost, of them with a roof, and with kernels
#: missing. Without a roof are collectives, copies from the host, and products whose kernels do not tell their dtype.
FOUND = {
    "dlprof/dlprof_dldb.sqlite": ("RTX 2070 SUPER", 20, 9, 0),
    "dlprof/nsys_profile.sqlite": ("RTX 2070 SUPER", 20, 9, 0),
    "kineto/ddp_rank3of8_a100_stacks.json.gz": ("A100 40GB", 7584, 7302, 0),
    "kineto/nccl_meta.json.gz": ("A100 40GB", 21, 0, 0),
    "kineto/qwen1.5_0.5b_h100.json.gz": ("H100 SXM", 1030, 1029, 0),
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz": ("V100 SXM2", 6960, 6948, 0),
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz": ("V100 SXM2", 6957, 6945, 0),
    "kineto/sampled_rank0.json.gz": (SXM, 979, 911, 23),
    "kineto/sampled_rank1.json.gz": (SXM, 958, 891, 24),
    "kineto/timesformer_h100.json.gz": ("H100 SXM", 445, 443, 0),
    "kineto/vision_transformer_rank0.json.gz": (SXM, 5555, 5415, 0),
    "kineto/vllm_decode_cudagraph.json.gz": ("MI300X", 12, 12, 0),
    "kineto/vllm_decode_cudagraph_capture.json.gz": ("MI300X", 9, 8, 0),
    "nvprof/language_model.sqlite": ("V100 SXM2", 202, 202, 0),
    "xplane/jax_conv_mi300.xplane.pb": ("MI300X", 160, 160, 0),
    # no shapes, so no costs
    "kineto/alexnet_cuda_sync_a100.json.gz": ("A100 40GB", 0, 0, 0),
    "kineto/alexnet_cupti_counters_a100.json.gz": ("A100 40GB", 0, 0, 0),
    "kineto/ddp_memory_v100.json.gz": ("V100 SXM2", 0, 0, 0),
    "kineto/triton_example.json.gz": ("A100 40GB", 0, 0, 0),
    "nsys/cudf_2020.sqlite": ("Quadro RTX 8000", 0, 0, 0),
    "nsys/fsdp_h100x2_2026.sqlite": ("H100 SXM", 0, 0, 0),
    "nsys/multiprocessing_nogpu_2020.sqlite": (None, 0, 0, 0),
    "nsys_more/fuser_h200_pytest_nvtx.sqlite": ("H200 SXM", 0, 0, 0),
    "nsys_more/fuser_h200_test_matmul.sqlite": ("H200 SXM", 0, 0, 0),
    "nsys_more/jacc_a100_nocuda_2026.1.sqlite": (None, 0, 0, 0),
    "nsys_more/lighttransport_gemm_runtime_only.sqlite": (None, 0, 0, 0),
}
#: The least share of device time that has a roof, where almost all but copies from the host has.
SHARES = {
    "kineto/qwen1.5_0.5b_h100.json.gz": 0.99,
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz": 0.99,
    "kineto/timesformer_h100.json.gz": 0.99,
    "nvprof/language_model.sqlite": 0.99,
    "xplane/jax_conv_mi300.xplane.pb": 0.99,
}
REASONS = {"cache-resident", "timer resolution", "fast algorithm"}
BOUNDS = {"tensor", "vector", "memory", "latency"}
RESNET = "kineto/resnet50_nw0_step_span1.pt.trace.json.gz"


@cache
def load(folder, name):
    return profile.load(folder / name, gpu=NAMES.get(name))


def test_every_file_is_here(shared):
    traces = [*shared.glob("kineto/*.json.gz"), *shared.glob("*/*.sqlite"), *shared.glob("*/*.pb")]
    assert {str(path.relative_to(shared)) for path in traces} == set(FOUND)


def check(found):
    rated = found.filter(pl.col("efficiency").is_not_null())
    above = rated.filter(pl.col("efficiency") > 1)
    wrong = above.filter(~pl.col("over_reason").is_in(REASONS).fill_null(False))
    assert wrong.is_empty(), wrong.select("op", "inputs", "duration", "efficiency", "over_reason")
    assert rated.filter(pl.col("efficiency") <= 1)["over_reason"].null_count() == len(rated) - len(
        above
    )
    assert np.isfinite(rated["efficiency"].to_numpy()).all()
    assert (rated["efficiency"] > 0).all()
    assert set(rated["bound"].drop_nulls().unique()) <= BOUNDS
    # what is in cache is above the memory's rate by no more than caches are
    assert (rated["efficiency"] < 3).all()
    return rated


@pytest.mark.parametrize("name", FOUND)
def test_nothing_beats_its_roof_without_a_reason(shared, name):
    loaded = load(shared, name)
    device, costed, roofed, incomplete = FOUND[name]
    known, why = loaded.device
    assert (known.name if known is not None else None) == device, why
    assert known is None or not known.computed
    found = loaded.efficiency()
    rated = check(found)
    assert (len(found), len(rated), found["incomplete"].sum()) == (costed, roofed, incomplete)
    if name in SHARES:
        here = found.filter(~pl.col("over_link"))
        assert rated["duration"].sum() >= SHARES[name] * here["duration"].sum()


def test_replays_of_a_cuda_graph_have_roofs(shared):
    """The trace of the replay and that of the capture together: each of the replayed ops."""
    pair = ["vllm_decode_cudagraph.json.gz", "vllm_decode_cudagraph_capture.json.gz"]
    found = profile.load([shared / "kineto" / name for name in pair]).efficiency()
    rated = check(found)
    # the nine ops that the capture ran itself, one without a roof, are not among them
    assert (len(found), len(rated)) == (300, 288)
    # of 24 layers half have a sliding window, which no argument tells: they beat the time to read all keys
    lacking = found.filter("incomplete")
    assert set(lacking["op"]) == {"vllm::unified_attention_with_output"}
    assert set(found["replay"]) > {-1}
    # decoding reads the weights for a few rows: no unit binds its products
    products = rated.filter(pl.col("op").cast(pl.String).is_in(["aten::addmm", "aten::mm"]))
    assert len(products) == 73
    assert set(products["bound"]) == {"memory", "latency"}


@pytest.mark.parametrize("name", [name for name, (_, costed, *_) in FOUND.items() if costed])
def test_the_kernels_of_an_op_have_its_time(shared, name):
    """By kernel the sums are those by op, but for the time of copies and sets, which are no kernels."""
    loaded = load(shared, name)
    by_kernel, found = loaded.efficiency("kernel"), loaded.efficiency()
    assert by_kernel["name"].is_unique().all()
    assert by_kernel["duration"].sum() <= found["duration"].sum()
    whole = found.filter(pl.col("kernels") == pl.col("main") + pl.col("serving"))
    assert by_kernel["duration"].sum() >= whole["duration"].sum()
    for column in ("matrix_flops", "vector_flops"):
        assert by_kernel[column].sum() == pytest.approx(
            found.filter(pl.col("main") + pl.col("serving") > 0)[column].sum(), rel=1e-9
        )


@pytest.mark.parametrize("by", ["op", "layer", "direction", "step", "kernel"])
def test_groups_are_no_better_than_their_best(shared, by):
    loaded = load(shared, RESNET)
    groups, found = loaded.efficiency(by), loaded.efficiency()
    assert (groups["efficiency"].drop_nulls() <= found["efficiency"].max() * (1 + 1e-9)).all()
    assert groups["rated"].is_between(0, 1 + 1e-9).all()
    assert groups["over"].drop_nulls().is_between(0, 1 + 1e-9).all()
    if by != "kernel":
        assert groups["duration"].sum() == found["duration"].sum()
        assert groups["ideal_time"].sum() == pytest.approx(found["ideal_time"].sum())


def test_resnet50_in_fp32_on_volta(shared):
    """No TF32 there: the vector units bind the convolutions, memory some of 1 × 1. The copies of the images from the host
    have no roof, and the gradients, whose own events tell no sizes, have those of their forward ops."""
    found = load(shared, RESNET).efficiency()
    name = pl.col("op").cast(pl.String)
    forward = found.filter(name == "aten::cudnn_convolution")
    assert set(forward["bound"]) == {"vector", "memory"}
    assert (forward["bound"] == "vector").sum() > 0.7 * len(forward)
    assert not forward["tensor_core"].any()
    linked = found.filter(pl.col("over_link"))
    assert set(linked["op"].cast(pl.String)) == {"aten::copy_"}
    assert linked["efficiency"].null_count() == len(linked) == 12
    groups = load(shared, RESNET).efficiency("op").filter(name == "aten::copy_")
    assert groups["attained_bandwidth"].item() is None
    for gradient in ("aten::cudnn_convolution_backward_input", "aten::mean"):
        its = found.filter(name == gradient)
        assert len(its)
        assert its["efficiency"].null_count() == 0


def test_a_sampled_trace_says_that_kernels_are_missing(shared):
    """A product with nothing but the sum of its parts, or a layer norm's gradient with the lesser of
    its two kernels, is not held against a roof."""
    found = load(shared, "kineto/sampled_rank0.json.gz").efficiency()
    lost = found.filter(pl.col("incomplete"))
    assert {"aten::mm", "aten::native_layer_norm_backward"} <= set(lost["op"].cast(pl.String))
    assert lost["efficiency"].null_count() == lost["bound"].null_count() == len(lost)
    groups = load(shared, "kineto/sampled_rank0.json.gz").efficiency("op")
    norm = groups.filter(pl.col("op") == "aten::native_layer_norm_backward").row(0, named=True)
    assert 0 < norm["rated"] < 1
    assert norm["attained_bandwidth"] < 2.04e12

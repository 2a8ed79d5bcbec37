"""Time by kind of work: all of the device's time, each nanosecond once; and totals by op, layer, source."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.core.perf import kinds
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from tests import traces

TRACES = (
    "dlprof/nsys_profile.sqlite",
    "kineto/alexnet_cuda_sync_a100.json.gz",
    "kineto/ddp_memory_v100.json.gz",
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/nccl_meta.json.gz",
    "kineto/qwen1.5_0.5b_h100.json.gz",
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "kineto/sampled_rank0.json.gz",
    "kineto/timesformer_h100.json.gz",
    "kineto/vision_transformer_rank0.json.gz",
    "kineto/vllm_decode_cudagraph.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nvprof/language_model.sqlite",
    "xplane/jax_conv_mi300.xplane.pb",
)


@pytest.mark.parametrize("name", TRACES)
def test_kinds_add_up_to_the_device_s_time_and_few_are_other(shared, name):
    profile = traces.load(shared / name)
    whole = profile.summary()["device_time"].item()
    frame = profile.totals_by("kind")
    assert frame["device_time"].sum() == whole
    assert frame["running"][-1] == 1.0
    rest = frame.filter(pl.col("kind").is_in([kinds.OTHER, kinds.UNKNOWN]))
    assert rest["device_time"].sum() <= 0.03 * whole
    for by in ("op", "layer", "source", "dtype"):
        frame = profile.totals_by(by)
        assert frame["device_time"].sum() == whole, by
        assert frame["share"].sum() == pytest.approx(1)
        assert frame["running"].drop_nulls().is_sorted()


@pytest.mark.parametrize(
    ("name", "kind", "share"),
    [
        ("kineto/resnet50_nw4_step_span1.pt.trace.json.gz", kinds.CONVOLUTION, 0.657),
        ("kineto/ddp_rank3of8_a100_stacks.json.gz", kinds.COMMUNICATION, 0.326),
        ("kineto/timesformer_h100.json.gz", kinds.NORMALISATION, 0.448),
        ("nsys/fsdp_h100x2_2026.sqlite", kinds.ATTENTION, 0.503),
        ("kineto/vllm_decode_cudagraph.json.gz", kinds.MATRIX, 0.784),
    ],
)
def test_the_kind_with_most_of_the_time(shared, name, kind, share):
    first = traces.load(shared / name).totals_by("kind").row(0, named=True)
    assert (first["kind"], first["share"]) == (kind, pytest.approx(share, abs=0.001))


def run(*launches: tuple[str | None, str], copies: int = 0) -> Profile:
    """A trace in which each op (None: none) launches a kernel of 100 ns, and ``copies`` follow."""
    ranges, calls, kernels, memops = [], [], [], []
    for n, (text, kernel) in enumerate((*launches, *[("mine::op()", "")] * copies)):
        at = n * 1_000
        if text is not None:
            category = text.partition("|")[2] or "forward"
            text = text.partition("|")[0]
            ranges.append((at, at + 500, "opscope.torch", category, text))
        calls.append((at + 10, at + 20, n))
        if kernel:
            kernels.append((at + 30, at + 130, kernel, n))
        else:
            memops.append((at + 30, at + 130, n))
    common = {"process": pl.lit(0), "thread": pl.lit(1)}
    where = {"process": pl.lit(0), "device": pl.lit(0), "stream": pl.lit(7)}
    about = ["start", "end", "domain", "category", "text"]
    return Profile(
        Trace.of(
            {
                "ranges": pl.DataFrame(ranges, schema=about, orient="row")
                .with_row_index("id")
                .with_columns(pl.lit("pushpop").alias("kind"), **common),
                "calls": pl.DataFrame(
                    calls, schema=["start", "end", "correlation"], orient="row"
                ).with_columns(pl.lit("cudaLaunchKernel").alias("name"), **common),
                "kernels": pl.DataFrame(
                    kernels, schema=["start", "end", "name", "correlation"], orient="row"
                ).with_columns(**where),
                "memops": pl.DataFrame(
                    memops, schema=["start", "end", "correlation"], orient="row"
                ).with_columns(pl.lit("HtoD").alias("kind"), **where),
            }
        )
    )


def shares(profile: Profile) -> dict[str, int]:
    return dict(profile.totals_by("kind").select("kind", "device_time").rows())


def test_an_op_that_nobody_registered_has_the_kinds_of_its_kernels():
    profile = run(
        ("mine::op()", "ampere_sgemm_128x64_tn"),
        ("mine::op()", "my_layer_norm_kernel"),
        ("mine::op()", "whatever"),
        copies=1,
    )
    assert shares(profile) == {
        kinds.MATRIX: 100,
        kinds.NORMALISATION: 100,
        kinds.UNKNOWN: 100,
        kinds.COPIES: 100,
    }


def test_an_unregistered_op_of_the_optimizer_is_the_optimizer_whatever_its_kernels():
    profile = run(
        ("mine::op()|optimizer", "ampere_sgemm_128x64_tn"), ("mine::op()", "ampere_sgemm_64x64_nn")
    )
    assert shares(profile) == {kinds.OPTIMIZER: 100, kinds.MATRIX: 100}


def test_a_kernel_without_an_op_has_the_kind_that_its_name_proves_and_its_reason():
    profile = run(
        (None, "flash_fwd_kernel"), (None, "strange"), ("aten::mm(f32[2,2], f32[2,2])", "k")
    )
    assert shares(profile) == {kinds.ATTENTION: 100, kinds.UNKNOWN: 100, kinds.MATRIX: 100}
    alone = profile.kinds().filter(pl.col("op").is_null())
    assert set(alone["name"]) == {"flash_fwd_kernel", "strange"}
    assert set(alone["reason"]) == {"launched outside any op range"}


def test_totals_by_op_have_the_usual_shape_and_how_many_there_are():
    big, small = "aten::mm(f32[64,64], f32[64,64])", "aten::mm(f32[2,2], f32[2,2])"
    profile = run((big, "a"), (big, "a"), (small, "a"), (None, "b"))
    first, second = profile.totals_by("op").to_dicts()
    assert first["op"] == "aten::mm"
    assert (first["inputs"], first["shapes"], first["calls"]) == ("f32[64,64], f32[64,64]", 2, 3)
    assert (first["share"], first["running"], first["kind"]) == (0.75, 0.75, kinds.MATRIX)
    assert (second["op"], second["reason"]) == (None, "launched outside any op range")
    assert (second["share"], second["running"]) == (0.25, 1.0)


def test_without_a_gpu_what_no_op_covers_has_a_kind_of_its_own(trace_of):
    rows = [
        ("step", "step 0", 0, 1_000),
        ("forward", "aten::mm(f32[8,8], f32[8,8])", 100, 400),
        ("forward", "cpp_fused_add_gelu_3()", 500, 600),
        ("forward", "mine::op()", 700, 800),
    ]
    profile = Profile(
        trace_of(
            ranges=[
                {"process": 0, "thread": 1, "domain": "opscope.torch", "category": category,
                 "text": text, "start": start * 1_000, "end": end * 1_000}
                for category, text, start, end in rows
            ]
        )
    )  # fmt: skip
    assert shares(profile) == {
        kinds.NO_OP: 500_000,
        kinds.MATRIX: 300_000,
        kinds.ELEMENTWISE: 100_000,
        kinds.UNKNOWN: 100_000,
    }


def test_where_kernels_were_not_captured_no_kind_has_a_time():
    profile = run(("aten::mm(f32[2,2], f32[2,2])", "k"))
    only = Trace.of({"ranges": profile.trace["ranges"]}, {"gpu": True})
    assert Profile(only).kinds().is_empty()
    assert Profile(only).totals_by("kind").is_empty()
    assert Profile(only).totals_by("op")["share"].to_list() == [None]


def test_another_division_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="kind, op, layer, source, dtype"):
        run(("aten::mm(f32[2,2], f32[2,2])", "k")).totals_by("colour")


def test_time_outside_any_op_has_no_number_of_calls(trace_of):
    step = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope", "category": "step"}
    op = {
        "process": 0,
        "thread": 1,
        "kind": "pushpop",
        "domain": "opscope.torch",
        "category": "forward",
    }
    ranges = [
        {**step, "start": 0, "end": 100, "text": "step 0"},
        {**op, "start": 10, "end": 40, "text": "aten::mm(f32[2,3], f32[3,4])"},
    ]
    kinds = Profile(trace_of(ranges=ranges)).totals_by("kind")
    calls = dict(kinds.select("kind", "calls").rows())
    assert calls == {"outside any op": None, "matrix products": 1}

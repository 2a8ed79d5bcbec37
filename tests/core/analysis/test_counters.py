"""Kernels with counters: their ops, totals, and the measured roofline beside the model's, on made traces."""

from __future__ import annotations

import polars as pl
import pytest

from opscope.profile import Profile, load

MM = "aten::mm(f16[1024,512], f16[512,2048]) -> f16[1024,2048]"
MM_FLOPS = 2 * 1024 * 512 * 2048
MM_BYTES = 2 * (1024 * 512 + 512 * 2048 + 1024 * 2048)
ADD = "aten::add(f32[1048576], f32[1048576]) -> f32[1048576]"
NINE = {f"smsp__sass_thread_inst_executed_op_{p}{k}_pred_on.sum": 0.0
        for p in "dfh" for k in ("add", "mul", "fma")}  # fmt: skip
FADD, HFMA = (f"smsp__sass_thread_inst_executed_op_{one}_pred_on.sum" for one in ("fadd", "hfma"))
TENSOR = "sm__ops_path_tensor_src_fp16_dst_fp32.sum"
READ, WRITE = "dram__bytes_read.sum", "dram__bytes_write.sum"


def ranges() -> list[dict]:
    place = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch"}
    texts = [("aten::linear(f16[1024,512], f16[2048,512])", 10, 95), (MM, 20, 90), (ADD, 100, 190)]
    step = {**place, "category": "step", "text": "step 4", "start": 1, "end": 500}
    return [
        step,
        *({**place, "text": text, "start": start, "end": end} for text, start, end in texts),
    ]


def counters(correlation: int, **extra) -> list[dict]:
    row = {"process": 0, "device": 0, "correlation": correlation, **extra}
    return [{**row, "name": name, "value": value} for name, value in NINE.items()]


def changed(rows: list[dict], **values: float) -> list[dict]:
    more = [name for name in values if name not in {row["name"] for row in rows}]
    kept = [{**row, "value": values.get(row["name"], row["value"])} for row in rows]
    return kept + [{**rows[0], "name": name, "value": values[name]} for name in more]


@pytest.fixture
def made(trace_of):
    """A trace of one product on Tensor Cores (two kernels) and one sum, with counters of all three kernels."""

    def make(**tables) -> Profile:
        call = {"process": 0, "thread": 1, "name": "cudaLaunchKernel"}
        calls = [
            {**call, "start": at, "end": at + 2, "correlation": n}
            for n, at in enumerate((30, 40, 120))
        ]
        ran = {"process": 0, "device": 0, "stream": 7}
        names = (
            "sm80_xmma_gemm_f16f16_f16f32",
            "splitKreduce_kernel",
            "vectorized_elementwise_kernel",
        )
        kernels = [
            {
                **ran,
                "start": 1000 + 20_000 * n,
                "end": 1000 + 20_000 * n + 10_000,
                "name": name,
                "correlation": n,
            }
            for n, name in enumerate(names)
        ]
        device = {"process": 0, "device": 0, "name": "NVIDIA A100-SXM4-40GB"}
        rows = changed(counters(0), **{TENSOR: MM_FLOPS * 1.0, READ: 6e6, WRITE: 2e6})
        rows += changed(counters(1), **{FADD: 5e5, TENSOR: 0.0, "sm__inst_executed_pipe_tensor.sum": 0.0,
                                        READ: 1e6, WRITE: 1e6})  # fmt: skip
        rows += changed(counters(2), **{FADD: 1048576.0, HFMA: 3000.0, READ: 8.1e6, WRITE: 4e6})
        made = {
            "ranges": ranges(),
            "calls": calls,
            "kernels": kernels,
            "devices": [device],
            "counters": rows,
        }
        return Profile(trace_of(**{**made, **tables}))

    return make


def test_kernels_have_the_ops_around_their_launch(made):
    frame = made().counters()
    assert frame["op_stack"].to_list() == ["aten::linear | aten::mm"] * 2 + ["aten::add"]
    assert frame["top_op"].to_list() == ["aten::linear", "aten::linear", "aten::add"]
    assert frame["bottom_op"].to_list() == ["aten::mm", "aten::mm", "aten::add"]
    assert frame["step"].to_list() == [4] * 3
    assert frame["stream"].to_list() == [7] * 3
    assert frame["duration"].to_list() == [10_000] * 3
    assert frame[TENSOR].to_list() == [MM_FLOPS, 0, None]


def test_the_names_of_holistic_trace_analysis(made):
    frame = made().counters(names="hta")
    assert frame["op_stack"].to_list() == [["aten::linear", "aten::mm"]] * 2 + [["aten::add"]]
    assert frame["bottom_level_op"].to_list() == ["aten::mm", "aten::mm", "aten::add"]
    assert frame["dur"].to_list() == [10.0] * 3
    with pytest.raises(ValueError, match="names: no value named 'nvidia'"):
        made().counters(names="nvidia")


def test_totals_by_kernel_are_the_sums_of_its_values(made):
    profile = made()
    for row in profile.counter_totals().to_dicts():
        mine = profile.counters().filter(pl.col("name") == row["name"])[row["counter"]].drop_nulls()
        assert (row["counted"], row["counted_kernels"]) == (mine.sum(), len(mine))


def test_the_measured_roofline_stands_beside_the_models(made):
    rows = {row["op"]: row for row in made().counter_roofline().to_dicts()}
    product, add = rows["aten::mm"], rows["aten::add"]
    assert (product["calls"], product["kernels"], product["duration"]) == (1, 2, 20_000)
    assert product["model_flops"] == MM_FLOPS
    assert product["counted_flops"] == MM_FLOPS + 500_000
    assert product["flops_difference"] == pytest.approx(500_000 / MM_FLOPS)
    assert (product["model_bytes"], product["counted_bytes"]) == (MM_BYTES, 10_000_000)
    assert product["bytes_difference"] == pytest.approx(1e7 / MM_BYTES - 1)
    assert product["counted_intensity"] == pytest.approx((MM_FLOPS + 5e5) / 1e7)
    assert (product["model_bound"], product["counted_bound"]) == ("tensor", "tensor")
    assert 0 < product["counted_efficiency"] < 1
    assert product["counted_reason"] is None
    # an op without half-precision tensors has no half-precision FLOPs: HFMA2 moved constants
    assert (add["model_flops"], add["counted_flops"], add["flops_difference"]) == (
        1048576,
        1048576,
        0,
    )
    assert add["counted_bound"] == "memory"


def test_an_op_whose_kernels_were_not_all_measured_has_no_measured_side(made):
    profile = made()
    rows = profile.trace["counters"].filter(pl.col("correlation") != 1)
    part = Profile(profile.trace.replace(counters=rows))
    (row,) = part.counter_roofline().filter(pl.col("op") == "aten::mm").to_dicts()
    assert (row["counted_flops"], row["counted_bytes"], row["counted_reason"]) == (
        None, None, "not all kernels of the op were measured")  # fmt: skip
    assert row["model_flops"] == MM_FLOPS


def test_what_was_not_measured_is_null_with_a_reason(made):
    profile = made(counters=counters(0) + counters(1) + counters(2))
    rows = {row["op"]: row for row in profile.counter_roofline().to_dicts()}
    assert rows["aten::mm"]["counted_flops"] is None
    assert "Tensor Cores" in rows["aten::mm"]["counted_reason"]
    assert "device's memory" in rows["aten::mm"]["counted_reason"]
    # a sum uses no Tensor Cores, whatever was measured
    assert rows["aten::add"]["counted_flops"] == 0


def test_a_kernel_without_an_op_is_a_row_of_its_name(made):
    row = made(ranges=[]).counter_roofline().filter(pl.col("name") == "splitKreduce_kernel")
    (found,) = row.to_dicts()
    assert (found["op"], found["model_reason"]) == (None, "the kernel's op is not known")


def test_without_kernels_the_launch_gives_the_op(made):
    profile = made()
    tables = {
        name: profile.trace[name]
        for name in profile.trace.present
        if name not in ("kernels", "notes")
    }
    bare = Profile(type(profile.trace).of(tables, {"gpu": True}))
    assert bare.counters()["op_stack"].to_list() == profile.counters()["op_stack"].to_list()
    assert bare.counters()["duration"].null_count() == 3
    row = bare.counter_roofline().filter(pl.col("op") == "aten::mm").row(0, named=True)
    assert (row["duration"], row["counted_bound"], row["counted_efficiency"]) == (
        None,
        "tensor",
        None,
    )


def test_counters_of_a_graph_are_told_apart_by_their_marks(made):
    profile = made()
    graph = profile.trace["kernels"].with_columns(pl.lit(9, pl.Int64).alias("correlation"))
    marks = graph.select(
        pl.int_range(100, 100 + pl.len(), dtype=pl.Int64).alias("id"), "process", "start",
        pl.col("start").alias("end"), pl.lit("ncu").cast(pl.Categorical).alias("domain"),
        pl.col("name").alias("text"), pl.lit("mark").cast(pl.Categorical).alias("kind"))  # fmt: skip
    rows = profile.trace["counters"].with_columns(
        (pl.col("correlation") + 100).alias("range_id"), pl.lit(9, pl.Int64).alias("correlation")
    )
    whole = pl.concat([profile.trace["ranges"], marks], how="diagonal_relaxed")
    frame = Profile(profile.trace.replace(kernels=graph, ranges=whole, counters=rows)).counters()
    assert frame["name"].to_list() == graph["name"].cast(pl.String).to_list()
    assert frame["start"].to_list() == graph["start"].to_list()


def test_a_selection_keeps_the_counters_of_its_kernels(made):
    profile = made()
    assert len(profile.counters(steps=4)) == 3
    step = {**ranges()[0], "text": "step 5", "start": 600, "end": 900}
    op = {**ranges()[3], "start": 610, "end": 620}
    two = made(ranges=[*ranges(), step, op])
    assert two.counters(steps=5).is_empty()
    assert len(two.counters(steps=4)) == 3
    bare = {name: two.trace[name] for name in two.trace.present if name not in ("kernels", "notes")}
    without = Profile(type(two.trace).of(bare, {"gpu": True}))
    assert (len(without.counters(steps=4)), len(without.counters(steps=5))) == (3, 0)


def test_a_saved_profile_has_its_counters(made, tmp_path):
    profile = made()
    profile.save(tmp_path / "run.opscope")
    again = load(tmp_path / "run.opscope")
    assert again.counters().equals(profile.counters())
    assert again.counter_roofline().equals(profile.counter_roofline())


def test_a_deep_stack_is_bounded(made):
    place = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch"}
    deep = [
        {**place, "text": f"my::op{n}()", "start": 10 + n, "end": 5000 - n} for n in range(2000)
    ]
    call = {
        "process": 0,
        "thread": 1,
        "name": "cudaLaunchKernel",
        "start": 2500,
        "end": 2501,
        "correlation": 0,
    }
    profile = made(ranges=deep, calls=[call])
    (row,) = profile.counters().filter(pl.col("correlation") == 0).to_dicts()
    assert row["op_stack"].count(" | ") == 63
    assert (row["top_op"], row["bottom_op"]) == ("my::op0", "my::op1999")

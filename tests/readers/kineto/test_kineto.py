"""Real Kineto traces: every row against a plain reading of the JSON, and figures found elsewhere."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

import polars as pl
import pytest

from opscope.core.rangetext import parse
from opscope.core.tables.trace import Trace
from opscope.readers.kineto import reader as kineto

KERNELS = {
    "ddp_rank3of8_a100_stacks": 8568,
    "ddp_memory_v100": 19370,
    "vision_transformer_rank0": 6080,
    "resnet50_nw0_step_span1.pt.trace": 8772,
    "timesformer_h100": 446,
}


@lru_cache(maxsize=4)
def read(shared: Path, name: str) -> Trace:
    return kineto.read(shared / "kineto" / f"{name}.json.gz")


def plainly(shared: Path, name: str) -> list[dict]:
    with gzip.open(shared / "kineto" / f"{name}.json.gz") as file:
        return json.load(file, parse_float=Decimal)


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_is_there(shared: Path, name: str) -> None:
    assert len(read(shared, name)["kernels"]) == KERNELS[name]


@pytest.mark.parametrize(
    "name",
    [
        "nccl_meta",
        "qwen1.5_0.5b_h100",
        "triton_example",
        "vllm_decode_cudagraph",
        "alexnet_cuda_sync_a100",
        "sampled_rank1",
    ],
)
def test_times_and_ids_equal_a_plain_reading_to_the_nanosecond(shared: Path, name: str) -> None:
    whole = plainly(shared, name)
    base = whole.get("baseTimeNanoseconds", 0)
    groups = defaultdict(list)
    kinds = {
        "kernel": "kernels",
        "gpu_memcpy": "memops",
        "gpu_memset": "memops",
        "cuda_runtime": "calls",
        "cuda_driver": "calls",
        "hip_runtime": "calls",
        "cuda_sync": "syncs",
        "cpu_op": "ranges",
        "user_annotation": "ranges",
        "python_function": "ranges",
    }
    for event in whole["traceEvents"]:
        table = kinds.get(event.get("cat"))
        if event["ph"] == "X" and table:
            start = int(event["ts"] * 1000) + base
            row = (start, start + int(event["dur"] * 1000))
            args = event.get("args", {})
            if table == "ranges":
                row += (args.get("Sequence number"),)
            else:
                row += (args.get("correlation"),)
            groups[table].append(row)
    trace = read(shared, name)
    for table, rows in groups.items():
        key = "seq" if table == "ranges" else "correlation"
        found = trace[table].select("start", "end", key).rows()
        assert sorted(found, key=repr) == sorted(rows, key=repr), table
    for table in ("kernels", "memops", "calls", "ranges", "syncs"):
        assert len(trace[table]) == len(groups[table])


def union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length(spans: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in spans)


def overlap(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> int:
    return length(left) + length(right) - length(union(left + right))


@pytest.mark.parametrize(
    ("name", "share", "hidden"),
    [
        ("ddp_rank3of8_a100_stacks", 35.2, 46.24),
        ("ddp_memory_v100", 20.6, 0.0),
        ("vision_transformer_rank0", 15.3, 1.36),
        ("nccl_meta", 7.0, 15.61),
    ],
)
def test_communication_and_its_overlap_are_the_known_ones(
    shared: Path, name: str, share: float, hidden: float
) -> None:
    trace = read(shared, name)
    kernels = trace["kernels"].with_columns(
        pl.col("name").cast(pl.String).str.to_lowercase().str.contains("nccl").alias("nccl")
    )
    nccl = union(kernels.filter("nccl").select("start", "end").rows())
    others = union(kernels.filter(~pl.col("nccl")).select("start", "end").rows())
    steps = trace["ranges"].filter(pl.col("category").cast(pl.String) == "step")
    first, last = steps["start"].min(), steps["end"].max()
    inside = [(max(a, first), min(b, last)) for a, b in nccl if b > first and a < last]
    assert round(100 * length(inside) / (last - first), 1) == share
    assert round(100 * overlap(nccl, others) / length(nccl), 2) == hidden


def test_shapes_types_layouts_and_scalars_of_an_op(shared: Path) -> None:
    texts = read(shared, "qwen1.5_0.5b_h100")["ranges"]["text"].cast(pl.String)
    call = parse(texts.filter(texts.str.starts_with("aten::addmm("))[0])
    assert call.name == "aten::addmm"
    assert [(t.dtype, t.shape) for t in call.input_leaves()] == [
        ("bf16", (1024,)),
        ("bf16", (8944, 1024)),
        ("bf16", (1024, 1024)),
    ]
    assert call.tensor(2).minor_to_major == (0, 1)
    assert call.params == (("beta", 1), ("alpha", 1))
    assert call.outputs is None


def test_an_op_without_recorded_shapes_has_no_inputs(shared: Path) -> None:
    texts = read(shared, "nccl_meta")["ranges"]["text"].cast(pl.String)
    assert "aten::div()" in texts.to_list()


def test_old_call_stacks_name_the_users_line_behind_the_models(shared: Path) -> None:
    texts = read(shared, "resnet50_nw0_step_span1.pt.trace")["ranges"]["text"].cast(pl.String)
    lines = {parse(text).frames for text in texts.unique() if "resnet50_profiler_api.py" in text}
    assert (("torchvision/models/resnet.py", 124), ("resnet50_profiler_api.py", 46)) in {
        (*frames[:-1], (frames[-1][0].rsplit("/", 1)[-1], frames[-1][1])) for frames in lines
    }


@pytest.mark.parametrize("name", ["nccl_meta"])
def test_forward_and_backward_join_as_the_traces_own_arrows_do(shared: Path, name: str) -> None:
    whole = plainly(shared, name)
    base = whole["baseTimeNanoseconds"]
    at = lambda event: (event["tid"], int(event["ts"] * 1000) + base)  # noqa: E731
    begins = {
        e["id"]: at(e) for e in whole["traceEvents"] if e.get("cat") == "fwdbwd" and e["ph"] == "s"
    }
    ends = {
        e["id"]: at(e) for e in whole["traceEvents"] if e.get("cat") == "fwdbwd" and e["ph"] == "f"
    }
    ranges = read(shared, name)["ranges"].filter(pl.col("seq").is_not_null())
    rows = defaultdict(list)
    for row in ranges.select("thread", "start", "fwd_thread", "seq", "category").iter_rows():
        rows[row[0], row[1]].append(row)
    latest = {}
    for thread, start, fwd, seq in (
        ranges.filter(pl.col("category").is_null())
        .sort("start")
        .select("thread", "start", "fwd_thread", "seq")
        .iter_rows()
    ):
        latest[fwd, seq] = (thread, start)
    checked = 0
    for number, end in ends.items():
        for _, _, fwd, seq, category in rows[end]:
            if category == "backward":
                assert latest[fwd, seq] == begins[number]
                checked += 1
    assert checked >= len(ends) == 543


def test_directions_steps_layers_and_frames(shared: Path) -> None:
    ranges = read(shared, "qwen1.5_0.5b_h100")["ranges"].with_columns(
        pl.col("domain", "category", "text").cast(pl.String)
    )
    assert ranges.filter(category="step")["text"].to_list() == ["step 6"]
    layers = ranges.filter(category="layer")
    assert len(layers) == 316
    assert layers["text"].str.starts_with("nn.Module: ").all()
    assert not ranges.filter(domain="python")["text"].str.contains(" at 0x").any()
    backward = read(shared, "ddp_memory_v100")["ranges"].with_columns(
        pl.col("category", "text").cast(pl.String)
    )
    optimizer = {parse(text).name for text in backward.filter(category="optimizer")["text"]}
    assert optimizer == {"Optimizer.step#SGD.step", "Optimizer.zero_grad#SGD.zero_grad"}
    nodes = backward.filter(pl.col("text").str.contains(r"Backward\d+\(\)"))
    assert set(nodes["category"]) == {"backward"}


def test_memory_events_and_devices(shared: Path) -> None:
    trace = read(shared, "ddp_memory_v100")
    allocations = trace["allocations"]
    assert len(allocations) == 28_010
    assert set(allocations["device"]) <= {-1, 1}
    assert trace["processes"].select("rank", "world_size").row(0) == (1, 2)
    device = trace["devices"].row(0, named=True)
    assert (device["device"], device["cc"], device["sm_count"]) == (1, "7.0", 80)
    assert device["max_threads_per_sm"] == 2048


def test_collective_metadata(shared: Path) -> None:
    kernels = read(shared, "nccl_meta")["kernels"].filter(
        pl.col("name").cast(pl.String).str.contains("nccl")
    )
    facts = [json.loads(text) for text in kernels["attrs"]]
    assert {fact["collective"] for fact in facts} >= {"allreduce"}
    assert all(fact["group_size"] == 2 and fact["in_nelems"] > 0 for fact in facts)


def test_triton_kernel_is_launched_by_the_driver(shared: Path) -> None:
    trace = read(shared, "triton_example")
    kernel = trace["kernels"].row(0, named=True)
    call = trace["calls"].filter(pl.col("correlation") == kernel["correlation"]).row(0, named=True)
    assert call["name"] == "cuLaunchKernel"
    assert kernel["grid"] == "1,1,1"
    assert kernel["block"] == "128,1,1"
    op = trace["ranges"].filter(pl.col("attrs").is_not_null()).row(0, named=True)
    assert json.loads(op["attrs"])["kernel_backend"] == "triton"


def test_counters_are_tied_to_launches_in_order(shared: Path) -> None:
    trace = read(shared, "alexnet_cupti_counters_a100")
    counters = trace["counters"]
    assert len(counters) == 77 * 9
    assert counters["correlation"].n_unique() == 77
    assert counters["correlation"].null_count() == 0
    by_range = counters.select("range_id", "correlation").unique().sort("range_id")
    launches = trace["calls"].filter(pl.col("correlation").is_in(by_range["correlation"].to_list()))
    assert launches.sort("start")["correlation"].to_list() == by_range["correlation"].to_list()
    names = trace["ranges"].filter(pl.col("id").is_in(by_range["range_id"].to_list()))
    assert set(names["kind"]) == {"mark"}
    # AlexNet's linear layers at batch 128 do exactly M·N·K fused multiply-adds (the last one's
    # 1,000 outputs are padded), pooling does none
    ffma = counters.filter(pl.col("name").cast(pl.String).str.contains("ffma")).join(
        names.select(pl.col("id").alias("range_id"), pl.col("text").cast(pl.String)), on="range_id"
    )
    gemm = ffma.filter(pl.col("text").str.starts_with("ampere_sgemm"))
    pool = ffma.filter(pl.col("text").str.contains("max_pool"))
    assert (len(gemm), len(pool)) == (6, 6)
    products = sorted(gemm["value"].to_list())
    assert products[2:] == [128 * 4096 * 4096] * 2 + [128 * 9216 * 4096] * 2
    assert pool["value"].max() == 0


def test_synchronizations(shared: Path) -> None:
    syncs = read(shared, "alexnet_cuda_sync_a100")["syncs"]
    assert dict(syncs["kind"].cast(pl.String).value_counts().rows()) == {
        "Context Sync": 5,
        "Stream Wait Event": 20,
        "Stream Sync": 16,
    }


def test_copies_tell_their_ends(shared: Path) -> None:
    memops = read(shared, "nccl_meta")["memops"].with_columns(
        pl.col("kind", "src_kind", "dst_kind").cast(pl.String)
    )
    copies = memops.filter(pl.col("kind") != "memset")
    assert set(copies.select("kind", "src_kind", "dst_kind").unique().rows()) <= {
        ("DtoD", "device", "device"),
        ("HtoD", "pageable", "device"),
        ("HtoD", "pinned", "device"),
        ("DtoH", "device", "pageable"),
        ("DtoH", "device", "pinned"),
    }
    assert copies["bytes"].null_count() == 0


def test_what_is_left_out_is_told(shared: Path) -> None:
    notes = read(shared, "nccl_meta")["notes"].rows()
    assert [row[2] for row in notes if "gpu_user_annotation" in row[1]] == [30]

"""Every shared trace opens, and what has no op has the reason that a person checked."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from tests import traces

LOST = "no launch record"
OUTSIDE = "launched outside any op range"
REPLAYED = "replayed from a CUDA graph whose capture is not in the trace"
#: File: kernels, their time (ns), and of those without an op reason → (kernels, ns).
EXPECTED = {
    # DLProf's own database ties each of its 59 kernels to an op; Nsight's export of the same run has a
    # marker around every launch (the brute force over SQL: 59 of 59)
    "dlprof/dlprof_dldb.sqlite": (59, 589_147, {}),
    "dlprof/nsys_profile.sqlite": (59, 589_147, {}),
    # all 79 launches lie in an aten op
    "kineto/alexnet_cuda_sync_a100.json.gz": (79, 10_692_000, {}),
    # the range profiler serialises kernels and records none: 1,862 launches, 77 ranges of counters
    "kineto/alexnet_cupti_counters_a100.json.gz": (None, None, {}),
    # 2,020 all-reduces lie in an nccl:all_reduce annotation, the rest in aten ops
    "kineto/ddp_memory_v100.json.gz": (19_370, 977_859_000, {}),
    # likewise 60 of NCCL, and 48 of the fused Adam in its Optimizer.step annotation
    "kineto/ddp_rank3of8_a100_stacks.json.gz": (8_568, 446_813_000, {}),
    # likewise 21: 15 all-reduces, 6 broadcasts
    "kineto/nccl_meta.json.gz": (2_700, 162_532_340, {}),
    # launched before the trace began: ids 675,771 to 682,741, where its first call has 682,747
    "kineto/qwen1.5_0.5b_h100.json.gz": (1_465, 45_432_698, {LOST: (436, 13_672_640)}),
    # 2021's traces, every launch in an Operator
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz": (8_772, 591_532_000, {}),
    "kineto/resnet50_nw4_step_span1.pt.trace.json.gz": (8_868, 594_868_000, {}),
    # 10 of each by NCCL, 16 in the optimizer's annotation; some ops have their inner op's times
    "kineto/sampled_rank0.json.gz": (1_154, 606_519_000, {}),
    "kineto/sampled_rank1.json.gz": (1_104, 651_026_000, {}),
    "kineto/timesformer_h100.json.gz": (446, 154_855_595, {}),
    # one user-written kernel, launched by cuLaunchKernel inside its op
    "kineto/triton_example.json.gz": (1, 1_760, {}),
    # launched before the trace began: ids 815,091 to 824,946, where its first call has 824,968
    "kineto/vision_transformer_rank0.json.gz": (6_080, 401_445_000, {LOST: (705, 56_350_000)}),
    # 421 kernels of one hipGraphLaunch; the call lies in vLLM's annotation of the step, which is no op
    "kineto/vllm_decode_cudagraph.json.gz": (425, 10_674_517, {REPLAYED: (421, 10_388_482)}),
    # capturing executes nothing: 7 kernels around it
    "kineto/vllm_decode_cudagraph_capture.json.gz": (7, 19_633, {}),
    # a library's own ranges stand for ops: 268 of 268 by SQL
    "nsys/cudf_2020.sqlite": (268, 85_847_520, {}),
    # 24 kernels at the window's edge have no row of CUPTI_ACTIVITY_KIND_RUNTIME (SQL: 24)
    "nsys/fsdp_h100x2_2026.sqlite": (4_010, 535_200_650, {LOST: (24, 18_511_301)}),
    # no CUDA table at all: the time is that of ranges on the CPU, and there are no kernels to count
    "nsys/multiprocessing_nogpu_2020.sqlite": (None, 950_450_477, {}),
    # a test of a compiler of kernels: its own ranges are ops; 8 and 2 kernels are in one, by SQL
    "nsys_more/fuser_h200_pytest_nvtx.sqlite": (18, 10_167_602, {OUTSIDE: (10, 7_033_205)}),
    "nsys_more/fuser_h200_test_matmul.sqlite": (19, 393_539, {OUTSIDE: (17, 254_178)}),
    # no CUPTI table, and no range: nobody recorded what ran
    "nsys_more/jacc_a100_nocuda_2026.1.sqlite": (None, None, {}),
    # calls of CUDA's runtime without kernels: a GPU was used, and what it did was not captured
    "nsys_more/lighttransport_gemm_runtime_only.sqlite": (None, None, {}),
    # PyProf's run: a marker around each of 284 launches
    "nvprof/language_model.sqlite": (284, 8_270_633, {}),
}


def test_the_table_names_every_file(shared: Path):
    found = {
        str(path.relative_to(shared)) for path in shared.rglob("*") if path.name.endswith(_TRACES)
    }
    assert {name for name in found if name.partition("/")[0] in FORMATS} == set(EXPECTED) | {XPLANE}


#: Folders of the formats that are read.
FORMATS = {"dlprof", "kineto", "nsys", "nsys_more", "nvprof", "xplane"}
_TRACES = (".sqlite", ".json.gz", ".pb")
XPLANE = "xplane/jax_conv_mi300.xplane.pb"


@pytest.mark.parametrize("name", EXPECTED)
def test_kernels_and_reasons(shared: Path, name: str):
    profile = traces.load(shared / name)
    count, time, reasons = EXPECTED[name]
    summary = profile.summary().row(0, named=True)
    assert (summary["kernels"], summary["kernel_time"]) == (count, time)
    rows = profile.unattributed().select("reason", "kernels", "kernel_time").rows()
    assert {reason: (kernels, ns) for reason, kernels, ns in rows if kernels} == reasons
    if time is None:  # not captured
        assert summary["attributed_time"] is summary["attributed_share"] is None
        return
    without = sum(ns for _, ns in reasons.values())
    assert (summary["attributed_time"], summary["unattributed_time"]) == (time - without, without)
    copies = profile.memops()
    assert (summary["copies"] or 0) == len(copies)
    assert summary["device_time"] == time + copies["duration"].sum()
    lost = without + copies.filter(pl.col("reason").is_not_null())["duration"].sum()
    assert summary["device_unattributed_time"] == lost == profile.unattributed()["time"].sum()
    assert summary["device_attributed_time"] == summary["device_time"] - lost
    share = (time - without) / time if time else None
    assert summary["attributed_share"] == (None if share is None else pytest.approx(share))


def test_the_xplane_file_opens(shared: Path):
    if importlib.util.find_spec("opscope.readers.xplane.reader") is None:
        pytest.skip("no reader of XPlane in this version")
    assert traces.load(shared / XPLANE).summary()["kernels"].item() > 0


LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime"})
OPS = frozenset({"cpu_op", "operator", "user_annotation"})


def brute_force(path: Path) -> list[tuple[int, int, str, str | None]]:
    """(start, duration, kernel, op) from plain JSON: the innermost range open at the launch."""
    trace = json.loads(gzip.decompress(path.read_bytes()).decode("utf-8"), parse_float=Decimal)
    base = int(trace.get("baseTimeNanoseconds", 0))
    ranges, calls, kernels = defaultdict(list), {}, []
    for event in trace["traceEvents"]:
        kind = str(event.get("cat", "")).lower()
        if event.get("ph") != "X" or kind not in {"kernel", *LAUNCHES, *OPS}:
            continue
        start, length = int(event["ts"] * 1000) + base, int(event["dur"] * 1000)
        args, thread = event.get("args", {}), str(event["tid"])
        if kind == "kernel":
            kernels.append((start, length, event["name"], args.get("correlation")))
        elif kind in LAUNCHES:
            calls[args.get("correlation")] = (start, thread, event["name"])
        elif not event["name"].startswith("ProfilerStep"):
            ranges[thread].append((start, start + length, event["name"]))
    op_at: dict[tuple[str, int], str | None] = {}
    for thread in {thread for _, thread, _ in calls.values()}:
        ordered = sorted(ranges[thread], key=lambda one: (one[0], -one[1]))
        active, place = [], 0
        for time in sorted({start for start, on, _ in calls.values() if on == thread}):
            while place < len(ordered) and ordered[place][0] <= time:
                active.append(ordered[place])
                place += 1
            active = [one for one in active if one[1] > time]
            op_at[thread, time] = active[-1][2] if active else None
    found = []
    for start, length, name, correlation in kernels:
        call = calls.get(correlation)
        op = None if call is None else op_at[call[1], call[0]]
        # a graph's replay is not its ops', but a compiled region replays the graph of its own code
        if op and call[2].endswith("GraphLaunch") and not op.startswith("CompiledFunction"):
            op = None
        found.append((start, length, name, op))
    return found


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("kineto/")])
def test_each_kernel_s_op_is_that_of_a_brute_force(shared: Path, name: str):
    kernels = traces.load(shared / name).kernels()
    ours = kernels.select(
        "start", "duration", *(pl.col(column).cast(pl.String) for column in ("name", "op"))
    ).rows()
    key = lambda row: (*row[:3], row[3] or "")  # noqa: E731
    assert sorted(ours, key=key) == sorted(brute_force(shared / name), key=key)

"""Reports of other vendors' devices say it in their words; NVIDIA's, and all names, stay as they are."""

from __future__ import annotations

import json
import re

import polars as pl
import pytest

import opscope
from opscope.cli import gaps
from opscope.core.attribution.reasons import REASONS
from opscope.core.perf.devices import peaks
from opscope.core.question.layout import Column, Table, lines
from opscope.core.question.registry import reports
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.reports import console, vendor_words
from opscope.viewer import embedded
from opscope.viewer.question import Asked
from opscope.viewer.questions import flame as ask_flame
from opscope.viewer.questions import table as ask_table
from opscope.viewer.viewed import Viewed
from tests import traces

FOREIGN = re.compile(r"CUDA (graph|call|code)|Tensor Core|\bSM efficiency\b|blocks/SM|\bTC\b")
REPLAYED = REASONS[5]


def profile(name: str | None, call: str = "hipLaunchKernel", **origin: str) -> Profile:
    """A kernel of a device of that name, which a call replayed from a graph without its capture."""
    row = {"process": [0], "device": [0]}
    ints = {"process": pl.Int32, "device": pl.Int32}
    tables = {
        "processes": pl.DataFrame({"process": [0]}).cast({"process": pl.Int32}),
        "ranges": pl.DataFrame(
            {
                "process": [0, 0],
                "thread": [1, 1],
                "start": [0, 200],
                "end": [50, 300],
                "domain": ["opscope.torch", "opscope.user"],
                "category": ["forward", None],
                "text": ["aten::relu(f16[4]) -> f16[4]", "my CUDA graph on a Tensor Core"],
                "kind": ["pushpop", "pushpop"],
            }
        ).cast({"process": pl.Int32}),
        "calls": pl.DataFrame(
            {"process": [0], "thread": [1], "start": [210], "end": [220], "name": [call], "correlation": [1]}
        ).cast({"process": pl.Int32}),
        "kernels": pl.DataFrame(
            {
                **row,
                "stream": [7],
                "start": [230],
                "end": [290],
                "name": ["my CUDA graph kernel"],
                "correlation": [1],
                "graph": [3],
                "graph_node": [9],
            }
        ).cast(ints),
    }  # fmt: skip
    if name is not None:
        tables["devices"] = pl.DataFrame({**row, "name": [name]}).cast(ints)
    return Profile(Trace.of(tables, {"format": "made", **origin}))


@pytest.mark.parametrize(
    ("name", "call", "origin", "of"),
    [
        ("NVIDIA H100 PCIe", "cudaGraphLaunch", {}, "nvidia"),
        ("AMD Instinct MI300X", "hipGraphLaunch", {}, "amd"),
        (None, "hipGraphLaunch", {}, "amd"),
        (None, "cudaGraphLaunch", {}, "nvidia"),
        (None, "launch", {}, None),
        (None, "launch", {"vendor": "meta"}, "meta"),
        (None, "aclrtLaunchKernel", {}, "huawei"),
        (None, "zeCommandListAppendLaunchKernel", {}, "intel"),
        ("Intel(R) Data Center GPU Max 1550", "launch", {}, "intel"),
        (None, "launch", {"format": "rocm"}, "amd"),
        ("Ascend910B", "launch", {}, "huawei"),
        ("TPU v5 lite", "launch", {}, "google"),
    ],
)
def test_the_vendor_is_known_by_the_device_else_by_the_runtime(name, call, origin, of):
    assert vendor_words.vendor(profile(name, call, **origin)) == of


@pytest.mark.parametrize(
    ("category", "label", "vendor", "tool"),
    [
        ("mtia_runtime", "MTIA 17", "meta", None),
        ("enqueue", "Ascend Hardware", "huawei", "msprof"),
        ("hip_runtime", "python", "amd", "rocprofv3"),
        ("xpu_runtime", "python", "intel", None),
        ("privateuse1_runtime", "python", None, None),
    ],
)
def test_what_is_recommended_is_a_tool_of_the_vendor(tmp_path, category, label, vendor, tool):
    """Fifty kernels without launches on an idle device: capture the launches, and measure counters."""
    host = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 9,
        "tid": 9,
        "ts": 1,
        "dur": 99_000,
    }
    call = {**host, "cat": category, "name": "call", "dur": 5}
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 2_000 * n, "dur": 9,
         "args": {"device": 0, "stream": 7}} for n in range(1, 50)
    ]  # fmt: skip
    named = {"ph": "M", "name": "process_name", "pid": 9, "ts": 0, "args": {"name": label}}
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [named, host, call, *kernels]}))
    made = opscope.load(path)
    assert vendor_words.vendor(made) == vendor
    (advice,) = [
        one
        for one in made.diagnosis()["to_try"].drop_nulls()
        if one.startswith("capture the launches")
    ]
    assert not re.search(r"nsys|ncu|Nsight|nvidia", advice)
    assert (tool or "opscope run") in advice
    text = shown(made, "counters", "diagnosis") + "".join(str(row) for row in gaps.advice(made))
    if vendor is not None:
        assert not re.search(r"\bnsys\b|\bncu\b|Nsight|nvidia|NVTX|CUDA API", text)


def shown(made: Profile, *names: str) -> str:
    tables = console.tables(made, names, None)
    return "\n".join(text for table in tables for _, text in lines(table, 0))


def test_a_graph_of_hip_is_no_cuda_graph_and_what_the_program_wrote_stays():
    text = shown(
        profile("AMD Instinct MI300X", "hipGraphLaunch"), "summary", "kernel", "unattributed"
    )
    assert REPLAYED.replace("CUDA", "HIP") in text
    assert "matrix cores" in text
    assert "my CUDA graph kernel" in text
    assert not FOREIGN.search(text.replace("my CUDA graph kernel", ""))


@pytest.mark.parametrize(
    ("device", "api"), [("AMD Instinct MI300X", "HIP"), ("NVIDIA H100 PCIe", "CUDA")]
)
def test_the_viewers_pages_name_the_graphs_of_the_vendor(device, api):
    viewed = Viewed(profile(device, f"{api.lower()}GraphLaunch"), ("made",))
    for by in ("layer", "source"):
        names = ask_flame.answer(Asked(viewed, {"by": by}))["names"]
        assert names == ["(all)", f"({REPLAYED.replace('CUDA', api)})"]
    words = ask_table.answer(Asked(viewed, {"name": "modules"}))["words"]
    reason = f"({REPLAYED})"
    assert words == ({"module": {reason: reason.replace("CUDA", api)}} if api == "HIP" else {})
    # the page in one file asks for the whole table
    (page,) = [table.page for table in embedded._tables(viewed) if table.name == "modules"]
    assert page["words"] == words


def test_reports_of_nvidia_s_devices_keep_their_words():
    text = shown(profile("NVIDIA H100 PCIe", "cudaGraphLaunch"), "summary", "unattributed")
    assert REPLAYED in text
    assert "Tensor Cores" in text


def test_frames_keep_one_text_for_one_reason_whatever_the_device():
    (reason,) = profile("AMD Instinct MI300X", "hipGraphLaunch").unattributed()["reason"].to_list()
    assert reason == REPLAYED


def test_advice_for_amd_names_no_tool_of_nvidia():
    (row,) = gaps.advice(profile("AMD Instinct MI300X", "hipGraphLaunch"))
    assert "HIP graph" in str(row["advice"])
    for text in (
        *gaps.AMD.values(),
        *(vendor_words.said(text, "amd") for text in gaps.AMD.values()),
    ):
        assert not re.search(r"nsys|CUDA|NVTX", text), text
    left = {reason: text for reason, text in gaps.ADVICE.items() if reason not in gaps.AMD}
    assert not [text for text in left.values() if "nsys" in text]


def test_only_our_own_words_in_rows_are_said_in_others():
    columns = [Column("reason", "TC"), Column("name", "name"), Column("range", "range")]
    same = "runs a CUDA graph on a Tensor Core"
    table = Table("Tensor Cores", columns, [{"reason": same, "name": same, "range": same}], [same])
    made = vendor_words.told(table, "amd")
    assert (made.title, made.columns[0].title) == ("matrix cores", "MC")
    (row,) = made.rows
    assert row == {"reason": "runs a HIP graph on a matrix core", "name": same, "range": same}
    assert made.footnotes == ["runs a HIP graph on a matrix core"]
    for of in ("nvidia", "cpu", None):
        assert vendor_words.told(table, of) is table


def test_a_device_of_amd_that_is_computed_from_its_properties_is_amd_s():
    found, _ = peaks.computed("an Instinct of tomorrow", "gfx90a", 104, None, 1_700_000, None)
    assert found is not None
    assert found.vendor == "amd"


@pytest.mark.parametrize(
    "file",
    [
        "rocm/rpd",
        "rocm/rocprofv3_gfx1151",
        "rocm/rocprofv1_mi250_laplacian",
        "rocm/rocprofiler-compute_vcopy_MI200",
        "xplane/jax_conv_mi300.xplane.pb",
    ],
)
def test_every_report_of_a_real_trace_of_amd_s(shared, file):
    made = traces.load(shared / file)
    assert vendor_words.vendor(made) == "amd"
    names = set(made.trace["kernels"]["name"].unique().to_list())
    for table in console.tables(made, reports(), 5):
        text = "\n".join(one for _, one in lines(table, 0))
        assert not FOREIGN.search(text), (table.title, text)
    assert not any(FOREIGN.search(str(name)) for name in names)


@pytest.mark.parametrize(
    ("of", "text", "others"),
    [
        ("amd", "cuDNN's benchmark mode, NCCL, Nsight Systems", "MIOpen's benchmark mode, RCCL, rocprofv3"),
        ("amd", "torch.backends.cudnn.benchmark = True: cuDNN measures", "torch.backends.cudnn.benchmark = True: MIOpen measures"),
        ("huawei", "Give the GPU more work (MIG, MPS): torch.cuda.graph(g)", "Give the NPU more work: torch.npu.graph(g)"),
        ("huawei", 'with torch.autocast("cuda", x): NCCL', 'with torch.autocast("npu", x): HCCL'),
        ("google", "opscope run, or nsys profile -t cuda,nvtx", "opscope run, or jax.profiler.trace (xprof)"),
        ("meta", "a GPU was used", "an MTIA device was used"),
        ("nvidia", "cuDNN, NCCL", "cuDNN, NCCL"),
    ],
)  # fmt: skip
def test_libraries_and_tools_are_those_of_the_vendor(of, text, others):
    assert vendor_words.said(text, of) == others


def test_advice_has_the_vendor_s_words_in_frames_too(shared):
    made = traces.load(shared / "rocm" / "rpd")
    (row,) = made.advice(["no_ranges"]).rows(named=True)
    assert "rocprofv3" in row["recommendation"]
    assert not re.search(r"Nsight|nvtx", row["recommendation"].replace("nvtx.annotate", ""))

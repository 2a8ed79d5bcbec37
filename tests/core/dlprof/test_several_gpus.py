"""DLProf's rules for several GPUs, on a made run whose every nanosecond is counted beside."""

from __future__ import annotations

import random

import polars as pl
import pytest

from opscope.core.dlprof import summary
from opscope.profile import Profile
from opscope.reports import dlprof

TENSOR, PLAIN = "volta_fp16_s884gemm_fp16_128x64_nn", "void plain<float>(float*)"
WALL = 1_000
#: Of a GPU: kernels by (start, end, name, whether an op launched it), and copies.
KERNELS = {
    0: [(100, 200, TENSOR, True), (150, 260, PLAIN, True), (300, 340, TENSOR, False), (600, 700, TENSOR, True)],
    1: [(120, 180, PLAIN, True), (170, 300, TENSOR, True), (610, 650, PLAIN, False)],
}  # fmt: skip
COPIES = {0: [(190, 280)], 1: [(20, 60), (290, 330)]}
#: Ops on the CPU; the first is a matrix product, the second is none.
MM, RELU = (10, 400), (500, 660)


@pytest.fixture
def made(trace_of):
    """One process that uses two of three visible GPUs."""
    where = {"process": 0, "thread": 1}
    calls, kernels, memops = [], [], []

    def launch(start, name):
        number = len(calls) + 1
        calls.append(
            {**where, "start": start, "end": start + 1, "name": name, "correlation": number}
        )
        return number

    for device, rows in KERNELS.items():
        for start, end, name, inside in rows:
            op = MM if name == TENSOR else RELU
            at = op[0] + 5 + len(calls) if inside else 900 + len(calls)
            number = launch(at, "cudaLaunchKernel")
            kernels.append({"process": 0, "device": device, "start": start, "end": end, "name": name,
                            "correlation": number})  # fmt: skip
    for device, rows in COPIES.items():
        for start, end in rows:
            number = launch(MM[0] + 50 + len(calls), "cudaMemcpyAsync")
            memops.append({"process": 0, "device": device, "start": start, "end": end, "kind": "HtoD",
                           "correlation": number, "bytes": 4})  # fmt: skip
    ops = [
        ("aten::mm(f16[8,8], f16[8,8])", *MM),
        ("aten::relu(f16[8])", *RELU),
        ("aten::relu(f16[8])", 990, WALL),
    ]
    return Profile(
        trace_of(
            {"format": "nsys"},
            processes=[{"process": 0}],
            devices=[{"process": 0, "device": device, "uuid": f"u{device}"} for device in range(3)],
            ranges=[{**where, "kind": "pushpop", "domain": "opscope.torch", "text": text, "start": start,
                     "end": end} for text, start, end in ops],
            calls=calls, kernels=kernels, memops=memops,
        )
    )  # fmt: skip


def spans(rows):
    return {time for start, end, *_ in rows for time in range(start, end)}


def test_durations_are_the_mean_over_all_visible_gpus(made):
    cpu = spans([MM, RELU, (990, WALL)])
    # a launch outside all ops is an op of its own
    cpu |= {
        900 + n
        for n, row in enumerate(row for rows in KERNELS.values() for row in rows)
        if not row[3]
    }
    expected = dict.fromkeys(
        ("Tensor Core Kernel", "Non-Tensor Core Kernel", "Memory", "CPU", "Other"), 0.0
    )
    busy = 0.0
    for device in range(3):
        rows = KERNELS.get(device, [])
        left = set(range(WALL))
        busy += len(spans(rows)) / WALL * 100 / 3
        for name, times in (
            ("Tensor Core Kernel", spans(row for row in rows if row[2] == TENSOR)),
            ("Non-Tensor Core Kernel", spans(row for row in rows if row[2] != TENSOR)),
            ("Memory", spans(COPIES.get(device, []))),
            ("CPU", cpu),
            ("Other", set(range(WALL))),
        ):
            expected[name] += len(left & times) / WALL * 100 / 3
            left -= times
    figures = summary.figures(made.dlprof.model())
    assert figures["Wall Clock Time (ns)"] == WALL
    told = {name: figures[f"{name} Duration %"] for name in expected}
    assert told == pytest.approx(expected)
    assert sum(told.values()) == pytest.approx(100)
    assert figures["GPU Utilization %"] == pytest.approx(busy)
    both = told["Tensor Core Kernel"] + told["Non-Tensor Core Kernel"]
    assert both == pytest.approx(figures["GPU Utilization %"])


def test_tensor_core_utilisation_is_of_the_kernels_of_eligible_ops(made):
    """The mm launched all Tensor Core kernels that an op launched; what no op launched is in neither time."""
    (utilisation,) = [
        value
        for name, value in summary.figures(made.dlprof.model()).items()
        if "Kernel Utilization" in name
    ]
    of_mm = [row for rows in KERNELS.values() for row in rows if row[3] and row[2] == TENSOR]
    assert utilisation == pytest.approx(100.0)
    assert sum(end - start for start, end, *_ in of_mm) == 330


def test_a_plain_kernel_of_an_eligible_op_lowers_the_utilisation(trace_of):
    pushed = {"process": 0, "thread": 1, "kind": "pushpop", "domain": "opscope.torch"}
    where = {"process": 0, "thread": 1, "name": "cudaLaunchKernel"}
    rows = [
        (TENSOR, 30, 5),
        (PLAIN, 10, 6),
        (PLAIN, 500, 25),
        (TENSOR, 70, 60),
    ]  # mm, mm, relu, no op
    profile = Profile(
        trace_of(
            processes=[{"process": 0}],
            ranges=[{**pushed, "text": "aten::mm(f16[8,8], f16[8,8])", "start": 0, "end": 20},
                    {**pushed, "text": "aten::relu(f16[8])", "start": 21, "end": 40}],
            calls=[{**where, "start": at, "end": at + 1, "correlation": n} for n, (_, _, at) in enumerate(rows)],
            kernels=[{"process": 0, "device": 0, "start": 1000 * n, "end": 1000 * n + length, "name": name,
                      "correlation": n} for n, (name, length, _) in enumerate(rows)],
        )
    )  # fmt: skip
    figures = summary.figures(profile.dlprof.model())
    assert figures["Tensor Core Kernel Utilization %"] == pytest.approx(100 * 30 / (30 + 10))


def test_totals_are_sums_over_the_gpus(made):
    everything = sum(end - start for rows in KERNELS.values() for start, end, *_ in rows)
    model = made.dlprof.model()
    kernels = summary.all_kernels(model)
    copies = sum(end - start for rows in COPIES.values() for start, end in rows)
    assert kernels["GPU Time (ns)"][0] == everything + copies
    assert summary.devices(model)["Kernel Time (ns)"].sum() == everything
    assert summary.devices(model)["Device ID"].to_list() == [0, 1, 2]


def keyed(trace_of, ends, thread_of=lambda gpu: 1):
    """Instances of ``x::key`` that end at ``ends`` [(time, GPU)], each with a kernel on its GPU."""
    ranges, calls, kernels = [], [], []
    for number, (end, gpu) in enumerate(ends):
        where = {"process": 0, "thread": thread_of(gpu)}
        ranges.append({**where, "kind": "pushpop", "domain": "opscope.x", "text": "x::key()", "start": end - 4,
                       "end": end})  # fmt: skip
        calls.append(
            {
                **where,
                "start": end - 3,
                "end": end - 2,
                "name": "cudaLaunchKernel",
                "correlation": number,
            }
        )
        kernels.append({"process": 0, "device": gpu, "start": end - 2, "end": end + 1, "name": "k",
                        "correlation": number})  # fmt: skip
    return Profile(
        trace_of(
            {"format": "nsys"},
            processes=[{"process": 0}],
            ranges=ranges,
            calls=calls,
            kernels=kernels,
        )
    )


@pytest.mark.parametrize("threads", [lambda gpu: 1, lambda gpu: 7 + gpu])
def test_with_equally_many_instances_the_last_of_the_nth_ends_an_iteration(trace_of, threads):
    profile = keyed(trace_of, [(10, 0), (15, 1), (22, 1), (30, 0), (44, 0), (48, 1)], threads)
    table = profile.dlprof.iterations("x::key").table
    assert table.select("begin", "end").rows() == [(0, 14), (15, 29), (30, 47), (48, 49)]


def test_else_every_instance_on_any_gpu_begins_one(trace_of):
    profile = keyed(trace_of, [(10, 0), (15, 1), (20, 0), (30, 0), (35, 1), (40, 0)])
    table = profile.dlprof.iterations("x::key").table
    assert table["begin"].to_list() == [0, 10, 15, 20, 30, 35, 40]
    ends = profile.iterations(key="x::key")["end"].to_list()
    assert ends == [
        10,
        15,
        20,
        30,
        35,
        40,
    ]  # opscope's own iterations by a key op follow the same rule


def test_on_one_gpu_threads_make_no_lanes(trace_of):
    """Two threads of one GPU have as many instances each, and still each of them begins an iteration."""
    ends = [(10, 0), (15, 0), (20, 0), (25, 0)]
    thread = iter([1, 2, 1, 2])
    profile = keyed(trace_of, ends, lambda _: next(thread))
    assert profile.dlprof.iterations("x::key").table["begin"].to_list() == [0, 10, 15, 20, 25]


def test_an_iteration_lasts_until_the_next_so_that_all_add_up_to_the_profile(trace_of):
    random.seed(4)
    ends = sorted(random.sample(range(10, 2000, 5), 40))
    profile = keyed(trace_of, [(end, 0) for end in ends])
    model = profile.dlprof.model("x::key")
    figures = summary.figures(model)
    whole = summary.figures(profile.dlprof.model())["Wall Clock Time (ns)"]
    assert figures["Wall Clock Time (ns)"] == whole == ends[-1] + 1
    lengths = [high - low for low, high in zip([0, *ends], [*ends, ends[-1] + 1], strict=True)]
    told = summary.iteration_figures(model)
    assert told["Average Iteration Time (ns)"] == pytest.approx(sum(lengths) / len(lengths))


def test_what_runs_in_an_iteration_counts_there_whichever_launched_it(trace_of):
    """The GPU is an iteration behind: what the first launched runs in the second, for 30 of its 50 ns."""
    profile = keyed(trace_of, [(50, 0), (100, 0), (150, 0)])
    trace = profile.trace
    times = {"start": pl.Series([60, 110, 160]), "end": pl.Series([90, 150, 170])}
    late = trace["kernels"].with_columns(**times, name=pl.lit(TENSOR, pl.Categorical))
    model = Profile(trace.replace(kernels=late)).dlprof.model("x::key", 1, 1)
    figures = summary.figures(model)
    assert figures["Wall Clock Time (ns)"] == 50
    assert figures["GPU Utilization %"] == pytest.approx(60)
    assert figures["Tensor Core Kernel Duration %"] == pytest.approx(60)
    own = summary.all_kernels(model)["GPU Time (ns)"][
        1
    ]  # of the kernel that it launched, which ran later
    assert own == 40


def test_what_nothing_tells_to_use_tensor_cores_is_not_0(trace_of):
    where = {"process": 0, "thread": 1}
    profile = Profile(
        trace_of(
            processes=[{"process": 0}],
            ranges=[{**where, "kind": "pushpop", "domain": "opscope.torch", "text": "aten::mm(f16[8,8], f16[8,8])",
                     "start": 0, "end": 20}],
            calls=[{**where, "start": 5, "end": 6, "name": "cudaLaunchKernel", "correlation": 1}],
            kernels=[{"process": 0, "device": 0, "start": 30, "end": 50, "name": None, "correlation": 1}],
            memops=[],
        )
    )  # fmt: skip
    model = profile.dlprof.model()
    kernels, ops = summary.all_kernels(model), summary.all_ops(model)
    assert kernels["GPU Time (ns)"].to_list() == [20, None, 0, None]
    assert kernels["# Kernels"].to_list() == [1, None, 0, None]
    assert ops["# Ops"].to_list() == [1, None, None, None]
    assert summary.figures(model)["Tensor Core Kernel Duration %"] is None


def test_the_sections_show_the_same(made):
    sections = {section.title: section.frame for section in dlprof.tables(made, "summary")}
    assert sections["Devices"]["GPU Utilization %"].mean() == pytest.approx(
        sections["Summary Report"]["GPU Utilization %"].item()
    )

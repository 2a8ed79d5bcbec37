"""Logs of TORCH_TRACE: compilations, phases, graph breaks, reasons and caches, alone and beside a trace.

The records are made as PyTorch 2.13 writes them; ``tests/on_torch/test_torch_log.py`` reads what it wrote itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import opscope
from opscope.readers import format_of

FORMAT = "TORCH_TRACE logs"
PID = 4000
US = 1_764_450_000_000_000


def record(kind: str, about: Any, payload: str = "", pid: int = PID, **more: Any) -> str:
    """A record: one line, and the payload's lines, each after a tab."""
    line = f"V1130 00:20:10.{pid % 1000:03d}000 {pid} torch/_dynamo/utils.py:2010] "
    text = line + json.dumps(
        {kind: about, "frame_id": 0, "frame_compile_id": 0, "attempt": 0, **more}
    )
    return text + "".join(f"\n\t{part}" for part in payload.split("\n") if payload) + "\n"


def phase(name: str, stage: str, at: float, number: str = "0/0", **more: Any) -> str:
    event = {
        "name": name,
        "ts": US + at,
        "args": {"compile_id": number},
        "ph": stage,
        "cat": "dynamo_timed",
    }
    return record("chromium_event", {}, json.dumps(event, indent=0), **more)


def compiled(
    number: str, name: str, start: int, end: int, kind: str = "compilation_metrics", **more: Any
) -> str:
    frame, again = map(int, number.split("/"))
    return record(
        kind,
        {"compile_id": number, "co_name": name, "co_filename": "/home/me/net.py", "co_firstlineno": 5,
         "start_time_us": US + start, "end_time_us": US + end, "duration_us": end - start, **more},
        frame_id=frame, frame_compile_id=again,
    )  # fmt: skip


def log(pid: int = PID) -> str:
    """A function with a break, whose first part is compiled again for a new size, and its backward pass."""
    reason = "0/0: tensor 'x' size mismatch at index 0. expected 8, actual 16"
    broken = (
        "Graph break in user code at /home/me/net.py:7\n"
        "Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):\n"
        "Call to `torch._dynamo.graph_break()`\n  Explanation: User-inserted graph break. Message: None\n"
    )
    code = "import torch\n" * 50 + "V1130 00:00:00.000000 1 looks/like.py:1] no record"
    parts = [
        record("str", ["/home/me/net.py", 0]),
        phase("dynamo", "B", 0.5),
        phase("backend_compile", "B", 100),
        record("dynamo_output_graph", {"sizes": {}}, "class GraphModule(torch.nn.Module):\n    pass"),
        record("inductor_output_code", {"filename": "/tmp/a.py"}, code),
        record("artifact", {"name": "fx_graph_cache_miss", "encoding": "json"}, "{}"),
        phase("backend_compile", "E", 700.25),
        record("artifact", {"name": "dynamo_graph_break_reason", "encoding": "string"}, broken),
        phase("dynamo", "E", 900),
        compiled("0/0", "f", 0, 900, inductor_cumulative_compile_time_us=500),
        record("dynamo_output_graph", {"sizes": {}}, "class GraphModule(torch.nn.Module):\n    pass"),
        record("artifact", {"name": "fx_graph_cache_hit", "encoding": "json"}, "{}"),
        compiled("1/0", "torch_dynamo_resume_in_f_at_7", 1000, 1400),
        compiled("0/0", "f", 1500, 1800, "bwd_compilation_metrics"),
        record("dynamo_output_graph", {"sizes": {}}, "class GraphModule(torch.nn.Module):\n    pass"),
        compiled("0/1", "f", 5000, 5600, recompile_reason=reason),
        compiled("0/2", "f", 6000, 6500, recompile_reason=reason),
    ]  # fmt: skip
    timed = (part.replace(".000000 ", f".{n:06d} ", 1) for n, part in enumerate(parts))
    return "".join(timed).replace(f" {PID} torch", f" {pid} torch")


def seeds(folder: Path) -> list[Path]:
    """Write a log."""
    path = folder / "dedicated_log_torch_trace_rank_0_abc.log"
    path.write_text(log())
    return [path]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return seeds(tmp_path)[0]


def notes_of(profile: Any) -> dict[str, int]:
    return {
        what.removeprefix("torch.compile: "): count
        for what, count in profile.trace["notes"].select("what", "how_many").rows()
        if what.startswith("torch.compile: ")
    }


def test_each_compilation_is_a_range_and_so_is_each_phase(path):
    assert format_of(path) == "torch_trace"
    trace = opscope.load(path).trace
    ranges = trace["ranges"].with_columns(
        trace["ranges"]["start"] - US * 1000, trace["ranges"]["end"] - US * 1000
    )
    assert ranges.select("text", "category", "start", "end").rows() == [
        ("compile 0/0 f @/home/me/net.py:5", "phase", 0, 900_000),
        ("dynamo", None, 500, 900_000),
        ("backend_compile", None, 100_000, 700_250),
        (
            "compile 1/0 torch_dynamo_resume_in_f_at_7 @/home/me/net.py:5",
            "phase",
            1_000_000,
            1_400_000,
        ),
        ("compile 0/0 backward", "phase", 1_500_000, 1_800_000),
        ("compile 0/1 f @/home/me/net.py:5", "phase", 5_000_000, 5_600_000),
        ("compile 0/2 f @/home/me/net.py:5", "phase", 6_000_000, 6_500_000),
    ]
    assert json.loads(ranges["attrs"][0]) == {"inductor_cumulative_compile_time_us": 500}
    assert trace["processes"].select("pid", "framework").rows() == [(PID, "torch")]


def test_breaks_recompilations_and_caches_are_counted_with_their_reasons(path):
    assert notes_of(opscope.load(path)) == {
        "graphs made since the log began": 3,
        "recompilations: 0/0: tensor 'x' size mismatch at index 0. expected 8, actual 16": 2,
        "graph breaks: Call to `torch._dynamo.graph_break()` (at /home/me/net.py:7)": 1,
        "cache of FX graphs, hit": 1,
        "cache of FX graphs, miss": 1,
        "graphs without the lines of their kernels, which INDUCTOR_PROVENANCE=1 would write": 2,
        "us in phase: dynamo": 899,
        "us in phase: backend_compile": 600,
    }


def test_the_lines_of_generated_kernels_are_said_where_the_log_has_them(tmp_path):
    stack = '  File "/home/me/train.py", line 40, in <module>\n    net(x)\n  File "/home/me/net.py", line {}, in f\n    y'
    of = {
        "triton_poi_fused_add_relu_0:1": [stack.format(6), stack.format(7)],
        "extern_kernels.mm:2": [],
    }
    name = {"name": "inductor_provenance_tracking_kernel_stack_traces", "encoding": "json"}
    path = tmp_path / "a.log"
    path.write_text(log() + record("artifact", name, json.dumps(of)))
    told = [what for what in notes_of(opscope.load(path)) if what.startswith("lines of kernels: ")]
    assert told == [
        "lines of kernels: triton_poi_fused_add_relu_0 of /home/me/net.py:6, /home/me/net.py:7"
    ]


KEYS = ("fw2jqdbgahvrkp", "fpokvqdlps2cme")


def with_lines(*graphs: dict[str, list[int]]) -> str:
    """The records of graphs with the lines of their kernels, then the graph's key, as PyTorch writes them."""
    stack = '  File "/home/me/train.py", line 40, in <module>\n    net(x)\n  File "/home/me/net.py", line {}, in f\n    y'
    name = {"name": "inductor_provenance_tracking_kernel_stack_traces", "encoding": "json"}
    cached = {"name": "fx_graph_cache_miss", "encoding": "json"}
    return "".join(
        record("artifact", name, json.dumps({kernel: [stack.format(n) for n in lines] for kernel, lines in graph.items()}))
        + record("artifact", cached, json.dumps({"key": key, "components": []}))
        for key, graph in zip(KEYS, graphs, strict=False)
    )  # fmt: skip


def graph_runs(*graphs: tuple[str, list[str]]) -> str:
    """A trace in which graphs call ops, one after the other. Without gradients the call of a graph is an op."""
    events, time = [], US + 10_000
    where = {"ph": "X", "pid": PID, "tid": PID}
    for key, ops in graphs:
        name = f"## Call CompiledFxGraph {key} ##"
        events.append(
            {
                **where,
                "cat": "cpu_op" if key == KEYS[1] else "user_annotation",
                "name": name,
                "ts": time,
                "dur": 10 * len(ops) + 10,
            }
        )
        for number, op in enumerate(ops):
            events.append(
                {**where, "cat": "cpu_op", "name": op, "ts": time + 10 * number + 5, "dur": 5}
            )
        time += 1000
    known = {"schemaVersion": 1, "deviceProperties": [], "baseTimeNanoseconds": 0}
    return json.dumps({**known, "traceEvents": events})


@pytest.mark.parametrize(
    ("runs", "lines"),
    [
        # a kernel's name is that of another kernel in another graph, and its graph says which it is
        ((KEYS[0], ["graph_0_cpp_fused_add_0"]), [6]),
        ((KEYS[1], ["cpp_fused_add_0", "aten::mm"]), [8, 9]),
        # calls of one name have the lines of the calls in the code, in order
        ((KEYS[0], ["aten::addmm", "aten::relu", "aten::addmm"]), [3, None, 4]),
        # a graph that ran another number of them: nothing says which
        ((KEYS[0], ["aten::addmm"]), [None]),
        (("another", ["cpp_fused_add_0"]), [None]),
    ],
)
def test_ops_of_a_compiled_graph_have_the_lines_that_the_log_states(tmp_path, runs, lines):
    first = {
        "extern_kernels.addmm:1": [3],
        "cpp_fused_add_0:2": [7, 6],
        "extern_kernels.addmm:3": [4],
    }
    second = {"cpp_fused_add_0:1": [8], "extern_kernels.mm:2": [9]}
    (tmp_path / "a.log").write_text(log() + with_lines(first, second))
    (tmp_path / "t.json").write_text(graph_runs(runs))
    ops = opscope.load([tmp_path / "t.json", tmp_path / "a.log"]).ops().sort("start")
    sources = [None if line is None else f"/home/me/net.py:{line}" for line in lines]
    ops = ops.filter(~ops["op"].str.starts_with("## Call"))
    assert ops["source"].to_list() == sources
    both = ops.filter(ops["params"].str.contains("lines"))["params"].to_list()
    assert both == ['lines="/home/me/net.py:6, /home/me/net.py:7"'] * (6 in lines)


def test_advice_names_the_break_and_what_was_compiled_again(path):
    advice = {row["detector"]: row for row in opscope.load(path).advice().to_dicts()}
    assert "/home/me/net.py:7 in f" in advice["graph_breaks"]["evidence"]
    assert "Call to `torch._dynamo.graph_break()`" in advice["graph_breaks"]["evidence"]
    assert advice["recompilations"]["time"] == 1_100_000
    assert "size mismatch at index 0" in advice["recompilations"]["evidence"]


def kineto(pid: int = PID) -> str:
    """A trace of torch.profiler of the same process, 10 ms later."""
    start = US + 10_000
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "aten::mm",
            "pid": pid,
            "tid": pid,
            "ts": start + 100 * n,
            "dur": 50,
        }
        for n in range(9)
    ]
    return json.dumps(
        {
            "schemaVersion": 1,
            "deviceProperties": [],
            "baseTimeNanoseconds": 0,
            "traceEvents": events,
        }
    )


@pytest.mark.parametrize("is_first", [True, False])
def test_a_log_beside_a_trace_of_its_process_tells_of_that_process(path, tmp_path, is_first):
    trace = tmp_path / "trace.json"
    trace.write_text(kineto())
    given = [path, trace] if is_first else [trace, path]
    profile = opscope.load(given)
    assert profile.trace["processes"]["pid"].to_list() == [PID]
    assert profile.trace["windows"].is_empty()
    assert profile.op_totals()["calls"].to_list() == [
        9
    ]  # phases of the compiler are no ops beside ops
    assert len(profile.trace["ranges"]) == 9 + 7
    assert notes_of(profile)["cache of FX graphs, hit"] == 1


def test_a_log_of_another_process_stays_a_process_of_its_own(path, tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text(kineto(PID + 1))
    assert opscope.load([trace, path]).trace["processes"]["pid"].to_list() == [PID + 1, PID]


def test_what_is_damaged_costs_its_record(path):
    text = path.read_text()
    path.write_text(
        text.replace('"ph": "B"', '"ph": "B", {', 1) + phase("later", "B", 9000) + "\tcut off"
    )
    profile = opscope.load(path)
    (lost,) = profile.trace["notes"].filter(profile.trace["notes"]["severity"] == "warning")[
        "how_many"
    ]
    assert lost == 3  # the beginning of one phase, its end, and a phase that does not end
    assert len(profile.trace["ranges"]) == 6


def warned(profile: Any) -> list[tuple[str, int]]:
    rows = profile.trace["notes"].select("severity", "what", "how_many").rows()
    return [(what, count) for severity, what, count in rows if severity == "warning"]


@pytest.mark.parametrize("twice", [lambda text: 2 * text, lambda text: once_again(text, 2)])
def test_records_that_the_log_holds_again_are_counted_once(twice, path):
    once = notes_of(opscope.load(path))
    ranges = opscope.load(path).trace["ranges"]
    path.write_text(twice(path.read_text()))
    profile = opscope.load(path)
    assert (notes_of(profile), len(profile.trace["ranges"])) == (once, len(ranges))
    [(what, count)] = warned(profile)
    assert what.startswith("records of the log")
    assert what.endswith(": counted once")
    assert count == 15  # those that are read


def once_again(text: str, times: int) -> str:
    records = text.split("\nV")
    return "\nV".join([records[0], *(part for part in records[1:] for _ in range(times))])


def test_a_log_cut_in_its_middle_says_that_its_counts_are_at_least(path):
    records = path.read_text().split("\nV")
    ends = [n for n, text in enumerate(records) if '{"compilation_metrics"' in text]
    assert not warned(opscope.load(path))
    for kept, lost in (
        (records[: ends[0]], 1),  # the process was killed
        (records[: ends[0]] + records[ends[-1] :], 2),
        (records[: ends[2]] + records[ends[-1] :], 1),
    ):
        path.write_text("\nV".join(kept))
        told = dict(warned(opscope.load(path)))
        [(what, count)] = [(what, told[what]) for what in told if "lacks the end" in what]
        assert what.endswith("all counts of torch.compile are at least")
        assert count == lost


def test_the_layout_before_2_6_has_seconds_and_its_numbers_beside(tmp_path):
    old = {"co_name": "f", "co_filename": "/a.py", "co_firstlineno": 3, "start_time": US / 1e6,
           "entire_frame_compile_time_s": 0.25}  # fmt: skip
    path = tmp_path / "a.log"
    path.write_text(record("compilation_metrics", old, pid=139_000_000_000_000))
    trace = opscope.load(path).trace
    assert trace["ranges"].select("text", "start", "end").rows() == [
        ("compile 0/0 f @/a.py:3", US * 1000, US * 1000 + 250_000_000)
    ]
    assert trace["processes"]["pid"].to_list() == [None]

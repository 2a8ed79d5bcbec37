"""The lines of the host's time outside any op, from made samples."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.analysis.host.host_kinds import KINDS, kind_by_name
from opscope.core.analysis.host.host_lines import OURS, known_stacks, outside_lines
from opscope.core.analysis.host.traced_frames import frames_as_samples
from opscope.core.tables.trace import Trace
from opscope.profile.profile import Profile

MS = 1_000_000
MAIN = "/home/me/main.py"


def stack(*frames: tuple[str, int, str]) -> str:
    return "\n".join(f"{file}\t{line}\t{function}" for file, line, function in frames)


def profile(samples, ops=((10, 20), (30, 40)), calls=()) -> Profile:
    """A thread's ops and samples, times in ms: (start, end, line, call, cpu, kind)."""
    text = "aten::mm(f32[64,64], f32[64,64]) -> f32[64,64]"
    ranges = pl.DataFrame(
        [(0, 7, s * MS, e * MS, "opscope.torch", "forward", text, "pushpop") for s, e in ops],
        schema=["process", "thread", "start", "end", "domain", "category", "text", "kind"],
        orient="row",
    ).with_row_index("id")
    rows = [
        (
            *(0, 7, int(s * MS), int(e * MS), kind),
            None if line is None else stack((MAIN, line, "train"), (MAIN, 3, "<module>")),
            *(call, 1, None if cpu is None else int(cpu * MS)),
        )
        for s, e, line, call, cpu, kind in samples
    ]
    names = ["process", "thread", "start", "end", "kind", "stack", "call", "samples", "cpu"]
    texts = dict.fromkeys(("kind", "stack", "call"), pl.String)
    taken = pl.DataFrame(
        rows, schema={name: texts.get(name, pl.Int64) for name in names}, orient="row"
    )
    tables = {
        "processes": pl.DataFrame({"process": [0], "framework": ["torch"]}),
        "ranges": ranges,
        "host_samples": taken,
    }
    if calls:
        tables["calls"] = pl.DataFrame(
            [(0, 7, s * MS, e * MS, name) for s, e, name in calls],
            schema=["process", "thread", "start", "end", "name"],
            orient="row",
        )
    return Profile(Trace.of(tables, {"format": "made"}))


def by_line(made: Profile) -> dict[tuple[int | None, str], float]:
    """ms by line and kind."""
    rows = made.host_lines().select("line", "kind", "time").rows()
    return {
        (None if line is None else int(line.rpartition(":")[2]), kind): time / MS
        for line, kind, time in rows
    }


def test_a_sample_stands_for_the_time_outside_ops_until_the_next():
    made = profile(
        [(0, 15, 20, None, 15, None), (15, 25, 21, None, 10, None), (25, 45, 22, None, 20, None)]
    )
    assert by_line(made) == {(20, "python"): 10, (21, "python"): 5, (22, "python"): 10}
    lines = made.of(outside_lines)
    assert (lines["end"] - lines["start"]).sum() == 25 * MS
    assert (lines["start"][1:] >= lines["end"][:-1]).all()


@pytest.mark.parametrize(
    ("frames", "line"),
    [
        ([("/x/opscope/core/capture/recorder_sink.py", 313, "written_folder")], OURS),
        ([("/x/opscope/core/capture/emit.py", 3, "push"), (MAIN, 9, "train")], f"{MAIN}:9"),
        ([("/x/lib/python3.11/site-packages/torch/library.py", 665, "f")], None),
    ],
)
def test_a_stack_of_opscope_alone_has_no_source_line(frames, line):
    samples = pl.DataFrame(
        {"stack": [stack(*frames)], "call": [None]}, schema_overrides={"call": pl.String}
    )
    shown = known_stacks(samples)["line"].item()
    assert shown == (line or f"{frames[0][0]}:{frames[0][1]}")


def test_time_without_a_sample_has_no_line_and_a_reason():
    made = profile([(0, 5, 20, None, 5, None), (25, 28, 21, None, 3, None)])
    assert by_line(made)[None, "not sampled"] == 5 + 5 + 2
    missed = made.host_lines().filter(pl.col("kind") == "not sampled")
    assert missed["reason"].null_count() == 0
    assert made.host_lines()["samples"].to_list() == [0, 1, 1]


def test_waits_are_told_apart_by_call_and_by_processor_time():
    made = profile(
        [
            (0, 10, 20, "time.sleep", 0, None),
            (20, 24, 21, "self.lock.acquire", 0, None),
            (24, 27, 22, "counter.acquire", 3, None),
            (27, 30, 23, None, 0, None),
            (40, 50, 24, "file.read", 9, None),
        ]
    )
    assert by_line(made) == {
        (20, "sleep"): 10,
        (24, "file"): 10,
        (21, "lock"): 4,
        (22, "python"): 3,
        (23, "waiting"): 3,
    }


def test_what_another_thread_does_beside_the_steps_is_not_their_line():
    made = profile([(0, 10, 20, "batches.get", 0, None), (20, 28, 21, None, 8, None)])
    mine, samples = made.trace["ranges"], made.trace["host_samples"]
    steps = mine.with_columns(
        pl.col("id") + 2,
        start=pl.Series([0, 20 * MS]),
        end=pl.Series([20 * MS, 40 * MS]),
        domain=pl.lit("opscope.step").cast(mine["domain"].dtype),
        category=pl.lit("step").cast(mine["category"].dtype),
        text=pl.Series(["step 0", "step 1"]).cast(mine["text"].dtype),
    )
    asleep = samples[:1].with_columns(
        thread=pl.lit(8, pl.Int64),
        end=pl.lit(40 * MS, pl.Int64),
        stack=pl.lit(stack((MAIN, 50, "load"))).cast(samples["stack"].dtype),
        call=pl.lit("time.sleep").cast(samples["call"].dtype),
    )
    made = Profile(
        made.trace.replace(
            ranges=pl.concat([mine, steps]), host_samples=pl.concat([samples, asleep])
        )
    )
    assert by_line(made)[50, "sleep"] == 40
    timed = made.wall_time().filter(pl.col("section") == "steps", pl.col("line").is_not_null())
    assert [line.rpartition(":")[2] for line in timed["line"]] == ["20"]
    # where nothing was sampled on the thread of the steps, its line is not known
    alone = Profile(made.trace.replace(host_samples=asleep))
    assert alone.wall_time().filter(section="steps")["line"].drop_nulls().is_empty()


def test_collections_and_waits_for_a_device_are_exact():
    made = profile(
        [
            (0, 10, 20, None, 10, None),
            (2, 5, None, None, None, "garbage collection"),
            (20, 30, 21, None, 10, None),
        ],
        calls=[(22, 27, "cudaDeviceSynchronize")],
    )
    assert by_line(made) == {
        (20, "python"): 7,
        (20, "garbage collection"): 3,
        (21, "python"): 5,
        (21, "device"): 5,
    }


def test_a_trace_without_samples_has_no_rows():
    made = profile([])
    assert made.host_lines().is_empty()
    assert made.of(outside_lines).is_empty()


@pytest.mark.parametrize(
    ("file", "function", "call", "kind"),
    [
        ("/usr/lib/python3.11/threading.py", "Condition.wait", "waiter.acquire", "lock"),
        ("/usr/lib/python3.11/queue.py", "Queue.get", None, "lock"),
        ("/usr/lib/python3.11/subprocess.py", "Popen._try_wait", "os.waitpid", "process"),
        (
            "/usr/lib/python3.11/selectors.py",
            "EpollSelector.select",
            "self._selector.poll",
            "network",
        ),
        ("/usr/lib/python3.11/multiprocessing/connection.py", "Connection._recv", "read", "file"),
        (
            "/x/site-packages/torch/cuda/__init__.py",
            "synchronize",
            "torch._C._cuda_synchronize",
            "device",
        ),
        ("/home/me/a.py", "f", "loss.item", "device"),
        ("/home/me/a.py", "f", "x.block_until_ready", "device"),
        ("/home/me/a.py", "f", "requests.get", "network"),
        ("/home/me/a.py", "f", "', '.join", None),
        ("/home/me/a.py", "f", "table.get", None),
        ("/home/me/a.py", "f", "np.load", "file"),
        ("/x/jax/_src/compiler.py", "backend_compile", "backend.compile_and_load", "compile"),
        ("/x/torch/_inductor/compile_fx.py", "compile_fx", None, "compile"),
    ],
)
def test_kinds_by_name(file, function, call, kind):
    found, _ = kind_by_name([(file, 1, function), (MAIN, 3, "<module>")], call, 0)
    assert found == kind
    assert kind is None or kind in KINDS


def test_what_an_import_does_is_an_import_to_the_line_that_imports():
    frames = [
        ("/usr/lib/x.py", 1, "f"),
        ("<frozen importlib._bootstrap>", 2, "_load"),
        (MAIN, 3, "<module>"),
    ]
    assert kind_by_name(frames, "os.stat", 2)[0] == "import"
    assert kind_by_name(frames, "time.sleep", 0)[0] == "sleep"


def test_lines_stand_below_the_time_outside_ops_in_the_call_tree():
    made = profile([(0, 10, 20, "time.sleep", 0, None), (10, 50, 21, None, 40, None)])
    steps = pl.DataFrame(
        {
            "id": [10],
            "process": [0],
            "thread": [7],
            "start": [0],
            "end": [45 * MS],
            "domain": ["opscope.step"],
            "category": ["step"],
            "text": ["step 1"],
            "kind": ["pushpop"],
        }
    )
    trace = made.trace
    ranges = pl.concat([trace["ranges"], Trace.of({"ranges": steps})["ranges"]])
    tree = Profile(trace.replace(ranges=ranges)).call_tree()
    below = tree.filter(pl.col("frame_kind") == "outside").select("frame", "device_total").rows()
    assert below == [
        ("(inside steps, outside any op)", 25 * MS),
        (f"{MAIN}:21 train (python)", 15 * MS),
        (f"{MAIN}:20 train (sleep)", 10 * MS),
    ]


# ------------------------------------------------------------------- frames that a profiler traced


def traced(frames, ops=((10, 20),)) -> Profile:
    """A thread's ops, and the frames that a profiler traced on threads: (thread, start, end, name), in ms."""
    made = profile([], ops)
    rows = [
        (0, thread, int(s * MS), int(e * MS), "python", None, name, "pushpop")
        for thread, s, e, name in frames
    ]
    names = ["process", "thread", "start", "end", "domain", "category", "text", "kind"]
    schema = {**dict.fromkeys(names, pl.String), **dict.fromkeys(names[:4], pl.Int64)}
    theirs = pl.DataFrame(rows, schema=schema, orient="row")
    own = made.trace["ranges"].select(pl.col(name).cast(schema[name]) for name in names)
    ranges = pl.concat([own, theirs]).with_row_index("id")
    tables = {name: made.trace[name] for name in made.trace.present if name != "host_samples"}
    return Profile(Trace.of({**tables, "ranges": ranges}, {"format": "made"}))


def test_frames_that_a_profiler_traced_give_time_outside_ops_to_lines():
    made = traced(
        [
            (7, 0, 100, "train.py(3): <module>"),
            (7, 5, 60, "train.py(42): step"),
            (7, 25, 35, "torch/utils/data.py(7): fetch"),
            (7, 25, 35, "<built-in method acquire of _thread.lock object at 0x7f00>"),
            (7, 40, 45, "nn.Module: Net_0"),
            (7, 70, 90, "threading.py(359): wait"),
            (9, 0, 100, "watcher.py(1): watch"),  # a thread that runs no op
        ]
    )
    assert by_line(made) == {
        (3, "python"): 25,
        (3, "lock"): 20,
        (42, "python"): 35,
        (42, "lock"): 10,
    }
    rows = (
        made.host_lines().filter(kind="lock").select("line", "function", "call", "samples").rows()
    )
    assert ("train.py:42", "step", "_thread.lock.acquire", 0) in rows
    assert made.of(outside_lines)["sample"].null_count() == len(made.of(outside_lines))
    wall = made.wall_time().filter(pl.col("line").is_not_null())
    assert set(wall["line"]) <= {"train.py:3", "train.py:42"}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12)), min_size=1, max_size=12))
def test_a_sample_of_traced_frames_is_of_the_innermost_frame(spans):
    frames = pl.DataFrame(
        {
            "start": [start for start, _ in spans],
            "end": [start + length for start, length in spans],
            "text": pl.Series([f"f{i}.py({i}): f" for i in range(len(spans))]).cast(pl.Categorical),
        }
    )
    outside = (np.array([3, 15]), np.array([9, 40]))
    samples = frames_as_samples(frames, (1, 2), outside)
    shown = dict.fromkeys(range(50))
    for start, end, text in samples.select("start", "end", pl.col("stack").cast(pl.String)).rows():
        for moment in range(start, end):
            assert shown[moment] is None
            shown[moment] = int(text.partition("\t")[0][1:-3])
    for moment in (*range(3, 9), *range(15, 40)):
        around = [i for i, (start, length) in enumerate(spans) if start <= moment < start + length]
        if not around:
            assert shown[moment] is None
            continue
        number = shown[moment]
        assert number in around
        assert spans[number][0] == max(spans[i][0] for i in around)

"""Kineto JSON made here, in every dialect that real files have, and damaged ones."""

from __future__ import annotations

import gzip
import json
import random
import sys
from decimal import Decimal
from importlib import import_module
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.readers import BadInput
from opscope.readers.kineto import json_events
from opscope.readers.kineto import reader as kineto

BASE = 1_700_000_000_000_000_000
zstd = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")


def event(
    cat: str, name: str, ts: object, dur: object, pid: object, tid: object, **args: object
) -> dict:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur,
        "args": {key.replace("__", " "): value for key, value in args.items()},
    }  # fmt: skip


def dump(value: object) -> str:
    """JSON in which a Decimal is a number with all of its digits."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dump, value)) + "]"
    return json.dumps(value)


def write(path: Path, events: list[object], **head: object) -> Path:
    path.write_text(dump({"schemaVersion": 1, **head, "traceEvents": events}))
    return path


def micros(nanoseconds: int) -> Decimal:
    return Decimal(nanoseconds) / 1000


def launch(t: int = 1000) -> list[dict]:
    return [
        event("cpu_op", "aten::add", t, 50, 7, 8, Input__Dims=[[2], [2], []]),
        event("cuda_runtime", "cudaLaunchKernel", t + 10, 5, 7, 8, correlation=t),
        event("kernel", "k", t + 20, 9, 0, 7, device=0, stream=7, correlation=t, grid=[1, 2, 3]),
    ]


# ------------------------------------------------------------------------------------- times


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62), st.integers(0, 2**50)
        ), min_size=1, max_size=20,
    ),
    st.integers(0, 2**60),
)  # fmt: skip
def test_no_nanosecond_is_lost(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], base: int
) -> None:
    spans = [(start % (10**18), length) for start, length in spans]
    events = [
        event("kernel", "k", micros(start), micros(length), 0, 7, correlation=number)
        for number, (start, length) in enumerate(spans)
    ]
    path = write(tmp_path_factory.mktemp("t") / "t.json", events, baseTimeNanoseconds=base)
    kernels = kineto.read(path)["kernels"].sort("correlation")
    assert kernels.select("start", "end").rows() == [
        (base + start, base + start + length) for start, length in spans
    ]


def at(path: Path, start: str) -> Path:
    """A trace of one kernel that begins at ``start``, as it stands there."""
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 1, '
        f'"args": {{"device": 0, "stream": 7, "correlation": 1}}, "ts": {start}}}]}}'
    )
    return path


@pytest.mark.parametrize(
    "start", ["19007046938879.999", "1700000000123456.999", "1700000000123456"]
)
def test_a_large_time_is_not_rounded_to_a_double(tmp_path: Path, start: str) -> None:
    kernels = kineto.read(at(tmp_path / "t.json", start))["kernels"]
    assert kernels["start"].to_list() == [int(Decimal(start) * 1000)]


def test_a_time_of_four_hundred_digits_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing that torch"):
        kineto.read(at(tmp_path / "t.json", "1" + "0" * 400))


def test_unix_microseconds_with_a_fraction_keep_their_nanoseconds(tmp_path: Path) -> None:
    start = 1_700_000_000_123_456_789
    path = write(tmp_path / "t.json", [event("kernel", "k", micros(start), Decimal("1.001"), 0, 7)])
    assert kineto.read(path)["kernels"].select("start", "end").row(0) == (start, start + 1001)


def test_a_negative_duration_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [event("kernel", "k", 5, -1, 0, 7), *launch()])
    trace = kineto.read(path)
    assert (trace["kernels"]["end"] >= trace["kernels"]["start"]).all()
    assert any("negative" in what for _, what, _ in trace["notes"].rows())


# ------------------------------------------------------------------------------------- drift


@given(
    old=st.booleans(),
    compact=st.booleans(),
    strings=st.booleans(),
    compressed=st.sampled_from(["", "gzip", "zstd"]),
    head_last=st.booleans(),
    bare=st.booleans(),
    count=st.integers(1, 30),
    indent=st.sampled_from([None, 2]),
)
def test_every_dialect_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory,
    old: bool,
    compact: bool,
    strings: bool,
    compressed: str,
    head_last: bool,
    bare: bool,
    count: int,
    indent: int | None,
) -> None:
    names = (
        ("Operator", "Runtime", "Kernel", "Memcpy", "Memset")
        if old
        else ("cpu_op", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset")
    )
    thread: object = "8" if strings else 8
    stream: object = "stream 7" if strings else 7
    dims = "Input dims" if old else "Input Dims"
    events: list[object] = []
    for number in range(count):
        t = 1000 * number
        op = event(names[0], "aten::mm", t, 500, 7, thread)
        op["args"] = {dims: [[2, 3], [3, 4]], "Input type": ["float", "float"]}
        events += [
            op,
            event(names[1], "cudaLaunchKernel", t + 10, 5, 7, thread, correlation=3 * number),
            event(names[2], "k", t + 20, 9, 0, stream, device=0, correlation=3 * number),
            event(names[3], "Memcpy HtoD (Pinned -> Device)", t + 40, 9, 0, stream, device=0,
                  bytes=64, correlation=3 * number + 1),
            event(names[4], "Memset (Device)", t + 60, 9, 0, stream, device=0, bytes=4),
        ]  # fmt: skip
    head = {"distributedInfo": {"rank": 3, "world_size": 8}}
    whole: object = (
        {"traceEvents": events, **head} if head_last else {**head, "traceEvents": events}
    )
    separators = (",", ":") if compact else None
    data = json.dumps(events if bare else whole, indent=indent, separators=separators).encode()
    if compressed == "gzip":
        half = len(data) // 2  # two members, as concatenated files have
        data = gzip.compress(data[:half]) + gzip.compress(data[half:])
    elif compressed == "zstd":
        half = len(data) // 2  # two frames, as concatenated files have
        data = zstd.compress(data[:half]) + zstd.compress(data[half:])
    path = tmp_path_factory.mktemp("t") / "trace"
    path.write_bytes(data)
    trace = kineto.read(path)
    assert [len(trace[t]) for t in ("ranges", "calls", "kernels", "memops")] == [
        count, count, count, 2 * count,
    ]  # fmt: skip
    assert set(trace["ranges"]["text"]) == {"aten::mm(f32[2,3], f32[3,4])"}
    assert set(trace["ranges"]["thread"]) == {8}
    assert set(trace["kernels"]["stream"]) == {7}
    assert set(trace["kernels"]["process"]) == {0}
    assert set(trace["memops"]["kind"]) == {"HtoD", "memset"}
    if not bare:
        assert trace["processes"]["rank"].to_list() == [3]


def test_blocks_are_cut_between_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [e for t in range(0, 300_000, 1000) for e in launch(t)]
    for number, one in enumerate(events):  # what looks like the gap between two events, inside one
        one["args"]["list"] = [{"a": 1}, {"b": '}, {"'}, {"c": number}]
    path = write(tmp_path / "t.json", events)
    expected = kineto.read(path)
    for size in (1 << 10, 1 << 14):
        monkeypatch.setattr(json_events, "BLOCK", size)
        found = kineto.read(path)
        for table in ("ranges", "calls", "kernels"):
            assert (
                found[table]
                .drop("id", strict=False)
                .sort("start")
                .equals(expected[table].drop("id", strict=False).sort("start"))
            )


def test_one_block_is_alive_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t.json", [e for t in range(0, 2_000_000, 1000) for e in launch(t)])
    monkeypatch.setattr(json_events, "BLOCK", 1 << 14)
    sizes = [len(block) for block in json_events.KinetoFile(path).blocks()]
    assert sum(sizes) == 6000
    assert max(sizes) < 300


# -------------------------------------------------------------------------- damage, repaired


@pytest.mark.parametrize(
    ("name", "read_as"),
    [
        (rb"C:\Users\me", r"C:\Users\me"),
        (b"caf\xe9", "caf�"),
        (b"two\nlines", "two lines"),
        (rb"quote \" kept", 'quote " kept'),
    ],
)
def test_damaged_names_are_repaired_and_told(tmp_path: Path, name: bytes, read_as: str) -> None:
    path = write(tmp_path / "t.json", [event("kernel", "NAME", 1, 1, 0, 7), *launch()])
    path.write_bytes(path.read_bytes().replace(b"NAME", name))
    trace = kineto.read(path)
    assert read_as in trace["kernels"]["name"].to_list()
    assert len(trace["kernels"]) == 2


def test_one_damaged_event_is_left_out_and_counted(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json", [*launch(), event("kernel", "k", "NOTIME", 1, 0, 7), *launch(5000)]
    )
    path.write_text(path.read_text().replace('"NOTIME"', "nan"))
    trace = kineto.read(path)
    assert len(trace["kernels"]) == 2
    assert ("warning", "events with damaged JSON were left out", 1) in trace["notes"].rows()


def test_fields_of_unexpected_types_cost_no_event(tmp_path: Path) -> None:
    odd = event("kernel", "k", "1.5", 2, 0, 7, device="0", stream="7", correlation="1000", grid="x")
    trace = kineto.read(write(tmp_path / "t.json", [*launch(), odd, 5, None, {"ph": 3}]))
    kernels = trace["kernels"].sort("start")
    assert kernels.select("start", "end", "device", "stream", "correlation").row(0) == (
        1500, 3500, 0, 7, 1000,
    )  # fmt: skip
    assert kernels["grid"].to_list() == [None, "1,2,3"]


# --------------------------------------------------------------------------- links and nests


def test_flow_arrows_stand_in_for_missing_correlation(tmp_path: Path) -> None:
    events = launch()
    del events[2]["args"]["correlation"]
    place = {"cat": "ac2g", "name": "ac2g", "id": 4}
    events += [
        {"ph": "s", "pid": 7, "tid": 8, "ts": 1010, **place},
        {"ph": "f", "pid": 0, "tid": 7, "ts": 1020, "bp": "e", **place},
    ]
    trace = kineto.read(write(tmp_path / "t.json", events))
    assert trace["kernels"]["correlation"].to_list() == [1000]
    assert any("flow" in what for _, what, _ in trace["notes"].rows())


def test_begin_and_end_events_become_ranges(tmp_path: Path) -> None:
    mark = {"cat": "cpu_op", "pid": 7, "tid": 8}
    events = [
        {"ph": "E", "ts": 1, **mark},
        {"ph": "B", "name": "outer", "ts": 10, **mark},
        {"ph": "B", "name": "inner", "ts": 20, **mark},
        {"ph": "E", "ts": 30, **mark},
        {"ph": "B", "name": "touching", "ts": 30, **mark},
        {"ph": "E", "ts": 40, "pid": 7, "tid": 8},
        {"ph": "E", "ts": 50, **mark},
        {"ph": "B", "name": "never closed", "ts": 60, **mark},
        *launch(),
    ]
    trace = kineto.read(write(tmp_path / "t.json", events))
    found = trace["ranges"].filter(pl.col("start") < 1_000_000).select("text", "start", "end")
    assert sorted(found.rows()) == [
        ("inner()", 20_000, 30_000),
        ("outer()", 10_000, 50_000),
        ("touching()", 30_000, 40_000),
    ]
    assert any(
        what.startswith("begin events without an end") and n == 2
        for _, what, n in trace["notes"].rows()
    )


def test_kernels_belong_to_the_process_that_launched_them(tmp_path: Path) -> None:
    events = launch(1000) + launch(2000)
    for one in events[3:5]:
        one["pid"] = 9
    trace = kineto.read(write(tmp_path / "t.json", events))
    assert trace["processes"]["pid"].to_list() == [7, 9]
    assert trace["kernels"].sort("start")["process"].to_list() == [0, 1]


def test_forward_threads_are_told_apart(tmp_path: Path) -> None:
    """Two threads run forward, one runs backward; sequence numbers repeat from thread to thread."""
    events = []
    for number, (thread, first) in enumerate(((11, 0), (12, 2)), start=1):
        for seq in range(first, first + 4):
            op = event("cpu_op", "aten::mm", 100 * seq + number, 1, 7, thread)
            op["args"] = {"Sequence number": seq, "Fwd thread id": 0}
            node = event("cpu_op", "MmBackward0", 9000 - 100 * seq + number, 1, 7, 13)
            node["args"] = {"Sequence number": seq, "Fwd thread id": number}
            events += [op, node]
            arrow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 100 * number + seq, "pid": 7}
            events += [
                {"ph": "s", "tid": thread, "ts": op["ts"], **arrow},
                {"ph": "f", "tid": 13, "ts": node["ts"], "bp": "e", **arrow},
            ]
    ranges = kineto.read(write(tmp_path / "t.json", events))["ranges"]
    own = ranges.filter(pl.col("category").is_null()).select("thread", "fwd_thread").unique()
    assert sorted(own.rows()) == [(11, 1), (12, 2)]
    assert set(ranges.filter(pl.col("category") == "backward")["fwd_thread"]) == {1, 2}


def frame(name: str, ts: int, dur: int, called_from: object = None) -> dict:
    args = {} if called_from is None else {"CallFrom": called_from}
    return event("python_function", name, ts, dur, 7, 8, **args)


def test_an_op_is_at_the_line_that_calls_it_where_frames_say_where_they_were_called(tmp_path):
    """PyTorch 2.15 writes ``CallFrom``; a frame's own number is where its function begins."""
    builtin = "<built-in method {} of type object at 0x7f21>"
    events = [
        frame("train.py(30): <module>", 0, 900),
        frame("train.py(4): block", 10, 800, "train.py:33"),
        frame(builtin.format("tanh"), 20, 40, "train.py:5"),
        event("cpu_op", "aten::tanh", 25, 20, 7, 8),
        event("cpu_op", "aten::add", 70, 20, 7, 8),  # an operator of Python's calls no function
        frame("torch/nn/functional.py(1700): relu", 100, 100, "train.py:7"),
        frame(builtin.format("relu"), 110, 80, "torch/nn/functional.py:1711"),
        event("cpu_op", "aten::relu", 120, 20, 7, 8),
        frame("train.py(20): helper", 300, 100, "train.py:8"),
        frame(builtin.format("exp"), 310, 80, "train.py:21"),
        event("cpu_op", "aten::exp", 320, 20, 7, 8),
        frame("broken", 600, 10, 5),
    ]
    ops = Profile(kineto.read(write(tmp_path / "t.json", events))).ops()
    assert dict(ops.select("op", "source").cast(pl.String).rows()) == {
        "aten::tanh": "train.py:5 < train.py:33",
        "aten::add": "train.py:4 < train.py:33",
        "aten::relu": "train.py:7 < train.py:33",
        "aten::exp": "train.py:21 < train.py:8 < train.py:33",
    }


def test_frames_without_the_lines_of_calls_are_at_the_begin_of_their_functions(tmp_path):
    events = [
        frame("train.py(30): <module>", 0, 900),
        frame("train.py(4): block", 10, 800),
        event("cpu_op", "aten::tanh", 25, 20, 7, 8),
    ]
    ops = Profile(kineto.read(write(tmp_path / "t.json", events))).ops()
    assert ops["source"].to_list() == ["train.py:4 < train.py:30"]


def test_the_compilers_annotations_are_no_ranges_of_the_user(tmp_path):
    graph = "## Call CompiledFxGraph fte7ybyj ##"
    events = [
        event("user_annotation", "outside", 0, 900, 7, 8),
        event("cpu_op", "Torch-Compiled Region: 0/0", 10, 300, 7, 8),
        event("cpu_op", "CompiledFunction", 20, 200, 7, 8, Sequence__number=4, Fwd__thread__id=0),
        event("user_annotation", graph, 30, 100, 7, 8, scope="user_scope"),
        event("cpu_op", "aten::mm", 40, 50, 7, 8),
        event("cpu_op", "CompiledFunctionBackward", 500, 100, 7, 8, Sequence__number=4,
              Fwd__thread__id=1),
    ]  # fmt: skip
    profile = Profile(kineto.read(write(tmp_path / "t.json", events)))
    assert profile.range_totals()["range"].to_list() == ["outside"]
    regions = profile.compiled().select("region", "direction").unique().sort("direction")
    assert regions.rows() == [
        ("Torch-Compiled Region: 0/0", "backward"),
        ("Torch-Compiled Region: 0/0", "forward"),
    ]


def test_what_dynamo_times_is_compiling_and_no_op(tmp_path):
    """A run that compiled for most of its time did not wait for its input first of all."""
    compiled = 90_000_000
    events = [
        event("cpu_op", "dynamo", 0, compiled, 7, 8),
        event("user_annotation", "dynamo_data: fn_name=f, compile_id=0/0", 5, 11, 7, 8),
        event("cpu_op", "backend_compile", 20, compiled - 50, 7, 8),
        event("cpu_op", "OutputGraph.call_user_compiler (dynamo_timed)", 21, 5_000, 7, 8),
        event("user_annotation", "backend_compile_data: compile_id=0/0", 5_030, 11, 7, 8),
        event("cpu_op", "aten::empty_strided", 2_000, 100, 7, 8),
    ]
    for number in range(10):
        begin = compiled + 10_000 * number
        events += [
            event("user_annotation", f"ProfilerStep#{number}", begin, 10_000, 7, 8),
            event("user_annotation", "enumerate(DataLoader)#_Iter.__next__", begin, 700, 7, 8),
            event("cpu_op", "aten::mm", begin + 1_000, 8_500, 7, 8),
        ]
    profile = Profile(kineto.read(write(tmp_path / "t.json", events)))
    assert profile.diagnosis()["finding"].to_list()[:2] == ["compilation", "input-bound"]
    phases = profile.trace["ranges"].filter(pl.col("category") == "phase")
    assert phases["text"].to_list() == ["compile"], "one compilation, whatever is inside"
    ops = set(profile.ops()["op"])
    assert ops == {"aten::empty_strided", "aten::mm", "enumerate(DataLoader)#_Iter.__next__"}


# -------------------------------------------------------------------------------------- fuzz

SEED_EVENTS = [
    *launch(),
    event("cpu_op", "aten::mm", 3000, 5, 7, 8, Input__Dims=[[2], [3]], Sequence__number=4),
    event("user_annotation", "ProfilerStep#3", 0, 9999, 7, 8),
    event("python_function", "a.py(3): f", 5, 9, 7, 8),
    event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 3100, 5, 0, 7, bytes=4),
    event("cuda_profiler_range", "k", 1, 2, 0, 0, metric=3.5),
    {"ph": "s", "cat": "ac2g", "id": 1, "pid": 7, "tid": 8, "ts": 1010},
    {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "python"}},
    {"ph": "i", "name": "[memory]", "pid": 7, "tid": 8, "ts": 5,
     "args": {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Addr": 99}},
]  # fmt: skip
TOKENS = [b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\xff", b"\0", b"1e999", b"-", b"null",
          b"99999999999999999999", b'"traceEvents":[', b"NaN", b"\n", b"[[[[[[[["]  # fmt: skip


def mutate(data: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        how = rng.random()
        if how < 0.4:
            data = data[:at] + rng.choice(TOKENS) + data[at:]
        elif how < 0.7:
            data = data[:at] + data[at + rng.randint(1, 20) :]
        elif how < 0.9 and at < len(data):
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        else:
            data = data[: max(at, 1)]
    return data


@pytest.mark.parametrize("seed", range(600))
def test_any_bytes_give_a_trace_or_one_clear_complaint(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    head = {"deviceProperties": [{"id": 0, "name": "G", "numSms": 4}], "baseTimeNanoseconds": BASE}
    data = mutate(dump({**head, "traceEvents": SEED_EVENTS}).encode(), rng)
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(data) if seed % 3 == 0 else data)
    try:
        trace = kineto.read(path)
    except BadInput as error:
        assert str(path) in str(error)  # noqa: PT017 - either outcome is right
        assert "\n" not in str(error)  # noqa: PT017
    else:
        assert isinstance(trace, Trace)


# -------------------------------------------------------------------------- made to mislead

OP = '{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":5}'
DEEP = 100_000


@pytest.mark.parametrize(
    "second",
    [
        "[" * DEEP + "]" * DEEP,
        OP.replace('"dur"', '"args":{"Input Dims":' + "[" * DEEP + "]" * DEEP + '},"dur"'),
        OP.replace('"dur"', '"args":' + '{"a":' * DEEP + "1" + "}" * DEEP + ',"dur"'),
        OP.replace(":5}", ":" + "9" * 10_000 + "}"),
        OP.replace(":5}", ":NaN}"),
    ],
    ids=["an event", "dims", "args", "a number", "nan"],
)
def test_one_event_beyond_reason_is_left_out_and_told(tmp_path: Path, second: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents":[{OP},{second}]}}')
    trace = kineto.read(path)
    assert len(trace["ranges"]) == 1
    assert "events with damaged JSON were left out" in trace["notes"]["what"]


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_head_nested_beyond_reason_is_refused(tmp_path: Path, where: str) -> None:
    odd = f'"a":{"[" * DEEP + "]" * DEEP}'
    parts = [f'"traceEvents":[{OP}]']
    parts.insert(where == "after", odd)
    path = tmp_path / "t.json"
    path.write_text("{" + ",".join(parts) + "}")
    with pytest.raises(BadInput, match="not valid JSON around traceEvents") as caught:
        kineto.read(path)
    assert str(path) in str(caught.value)


def test_a_text_of_quotes_that_never_ends_is_gone_through_once() -> None:
    """Looked for again from every quote in it, this text would take an hour."""
    text = b'{"name": "' + rb"\"" * 300_000
    assert json_events._scan(Path("t.json"), text) == (0, False)
    assert list(json_events._objects(text)) == []


# ------------------------------------------------------------------------------------ graphs


@pytest.mark.parametrize("kind", ["kernel", "gpu_memcpy", "gpu_memset"])
def test_what_has_graph_id_zero_was_launched_by_no_graph(tmp_path: Path, kind: str) -> None:
    """Kineto writes the 0 on all of a GPU's work since 2026: taken for a node it costs each its op."""
    events = [
        event("cpu_op", "aten::add", 1000, 50, 7, 8),
        event("cuda_runtime", "cudaLaunchKernel", 1010, 5, 7, 8, correlation=1),
        event(kind, "Memcpy HtoD (Pageable -> Device)", 1020, 9, 0, 7, device=0, stream=7,
              correlation=1, graph__id=0, graph__node__id=0),
    ]  # fmt: skip
    profile = Profile(kineto.read(write(tmp_path / "t.json", events)))
    frame = profile.kernels() if kind == "kernel" else profile.memops()
    assert frame.select(pl.col("op").cast(pl.String), "graph_node").rows() == [("aten::add", None)]
    assert profile.unattributed().is_empty()


def test_a_graphs_own_kernel_keeps_its_numbers(tmp_path: Path) -> None:
    node = (5 << 32) | 3
    events = [
        event("cuda_runtime", "cudaGraphLaunch", 1010, 5, 7, 8, correlation=1),
        event("kernel", "k", 1020, 9, 0, 7, device=0, stream=7, correlation=1, graph__id=5,
              graph__node__id=node),
    ]  # fmt: skip
    kernels = kineto.read(write(tmp_path / "t.json", events))["kernels"]
    assert kernels.select("graph", "graph_node").rows() == [(5, node)]


@pytest.mark.parametrize("written", [4_294_967_295, -1])
def test_a_wait_for_the_device_has_no_stream(tmp_path: Path, written: int) -> None:
    """CUPTI's number of it; Kineto wrote it without a sign, and writes -1 (``streamIdForTrace``)."""
    events = [
        *launch(),
        event("cuda_sync", "Context Sync", 1100, 9, 0, 1, cuda_sync_kind="Context Sync",
              stream=written, correlation=9, device=0, context=1),
    ]  # fmt: skip
    assert kineto.read(write(tmp_path / "t.json", events))["syncs"]["stream"].to_list() == [None]


def test_a_trace_without_an_event_is_read_and_says_so(tmp_path: Path) -> None:
    device = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132}]
    path = write(tmp_path / "t.json", [], deviceProperties=device, baseTimeNanoseconds=BASE)
    trace = kineto.read(path)
    assert trace.has("kernels")
    assert trace["kernels"].height == 0
    assert trace["notes"]["what"].to_list() == [
        "the profiler recorded nothing: the trace has no events"
    ]
    assert Profile(trace).kernels().height == 0


def test_an_array_of_no_events_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(BadInput, match="nothing that torch"):
        kineto.read(path)


def test_what_few_events_tell_is_theirs_alone(tmp_path: Path) -> None:
    rows = [
        event("cpu_op", f"aten::op{n}", 1000 + n, 1, 7, 8, Sequence__number=n) for n in range(9)
    ]
    rows[3]["args"]["Group size"] = 4
    rows[5]["args"]["opscope mark"] = {"a": [1]}  # a name that only the reader uses
    rows[6]["args"] |= {"opscope mark": -1, "kernel_file": "a.py"}
    kernels = [
        event("kernel", "k", 2000 + n, 1, 0, 7, **{"est. achieved occupancy %": n // 2})
        for n in range(4)
    ]
    kernels[1]["args"]["Comms Id"] = 17
    del kernels[2]["args"]["est. achieved occupancy %"]
    trace = kineto.read(write(tmp_path / "a.json", rows + kernels))
    told = [None] * 9
    told[3], told[6] = '{"group_size":4}', '{"kernel_file":"a.py"}'
    assert trace["ranges"].sort("start")["attrs"].to_list() == told
    assert trace["kernels"].sort("start")["attrs"].to_list() == [
        '{"occupancy":0}', '{"comms_id":17,"occupancy":0}', None, '{"occupancy":1}',
    ]  # fmt: skip


def test_ops_with_and_without_shapes_have_their_own_texts(tmp_path: Path) -> None:
    shapes = {"Input__Dims": [[2], [2], []], "Input__type": ["float", "float", "Int"]}
    rows = [
        event("cpu_op", "aten::add", 1000, 1, 7, 8),
        event("cpu_op", "aten::add", 1002, 1, 7, 8, **shapes),
        event("cpu_op", "aten::mul", 1004, 1, 7, 8),
        event("cpu_op", "aten::add", 1006, 1, 7, 8),
        event("cpu_op", "aten::add", 1008, 1, 7, 8, **shapes),
    ]
    texts = kineto.read(write(tmp_path / "a.json", rows))["ranges"].sort("start")["text"].to_list()
    assert texts[0] == texts[3] == "aten::add()"
    assert texts[2] == "aten::mul()"
    assert texts[1] == texts[4]
    assert "f32[2]" in texts[1]


def test_a_number_that_few_kernels_tell_is_theirs_alone(tmp_path: Path) -> None:
    rows = [
        event("kernel", "k", 1000, 1, 3, "stream 5", correlation=1),
        event("kernel", "k", 1002, 1, 3, 9, device=2, stream=7, correlation=1 << 70),
        event("kernel", "k", 1004, 1, "GPU", "none", context=4, correlation=3),
        event("kernel", "k", 1006, 1, 3, 9, stream=1 << 64, device=-(1 << 63)),
    ]
    kernels = kineto.read(write(tmp_path / "a.json", rows))["kernels"].sort("start")
    assert kernels["device"].to_list() == [3, 2, None, None]
    assert kernels["stream"].to_list() == [5, 7, None, None]
    assert kernels["context"].to_list() == [None, None, 4, None]
    assert kernels["correlation"].to_list() == [1, None, 3, None]


def test_a_trace_with_the_mark_of_a_step_and_no_work_says_so_first(tmp_path: Path) -> None:
    step = event("user_annotation", "ProfilerStep#6", 1000, 33, 1, 1)
    empty = kineto.read(write(tmp_path / "t.json", [step], baseTimeNanoseconds=BASE))
    assert "the mark of step 6 and no work" in empty["notes"]["what"].to_list()[0]
    op = event("cpu_op", "aten::add", 1001, 3, 1, 1)
    other = kineto.read(write(tmp_path / "u.json", [step, op], baseTimeNanoseconds=BASE))
    assert not other["notes"]["what"].str.contains("no work").any()


def test_threads_that_launched_kernels_and_have_no_op_are_told(tmp_path: Path) -> None:
    def kernel(thread: int, correlation: int) -> list[dict[str, object]]:
        return [
            event("cuda_runtime", "cudaLaunchKernel", 1001, 1, 1, thread, correlation=correlation),
            event("kernel", "gemm", 1010, 5, 0, 7, correlation=correlation, device=0, stream=7),
        ]

    op = event("cpu_op", "aten::mm", 1000, 5, 1, 1)
    told = kineto.read(
        write(tmp_path / "t.json", [op, *kernel(1, 1), *kernel(2, 2), *kernel(3, 3)])
    )
    notes = told["notes"].filter(pl.col("what").str.contains("profile_all_threads"))
    assert notes["how_many"].to_list() == [2]
    for events in (
        [op, *kernel(1, 1)],
        [*kernel(1, 1), *kernel(2, 2)],
    ):  # without ops none was recorded
        trace = kineto.read(write(tmp_path / "u.json", events))
        assert not trace["notes"]["what"].str.contains("profile_all_threads").any()

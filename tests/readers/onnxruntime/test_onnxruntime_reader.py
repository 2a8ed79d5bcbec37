"""ONNX Runtime's profiles: real ones of two versions, and what versions and GPUs make of them."""

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.readers import BadInput, format_of
from opscope.readers import open as open_trace
from opscope.readers.onnxruntime import events
from tests.command import opscope as command

PROFILES = Path(__file__).parent / "profiles"
REAL = sorted(PROFILES.glob("*.json"))
US = 1000


def names(files):
    return [file.stem for file in files]


def event(cat, name, ts, dur, tid=7, **args):
    return {
        "cat": cat,
        "pid": 40,
        "tid": tid,
        "dur": dur,
        "ts": ts,
        "ph": "X",
        "name": name,
        "args": args,
    }


def node(
    name, ts, dur, op="MatMul", index=0, inputs=((2, 3), (3, 4)), output=(2, 4), tid=7, **more
):
    shapes = [{"float": list(one)} for one in inputs]
    args = {
        "op_name": op, "provider": "CPUExecutionProvider", "node_index": str(index),
        "input_type_shape": shapes, "output_type_shape": [{"float": list(output)}],
    } | more  # fmt: skip
    return event("Node", f"{name}_kernel_time", ts, dur, tid, **args)


def run(ts, dur, tid=7):
    return event("Session", "model_run", ts, dur, tid)


def written(tmp_path, made, name="profile.json"):
    """A file as the profiler writes it: a line for each event."""
    path = tmp_path / name
    path.write_text(
        "[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in made) + "\n]\n"
    )
    return path


# ------------------------------------------------------------------------------------- real files


@pytest.mark.parametrize("file", REAL, ids=names(REAL))
def test_a_real_profile_is_recognised_and_its_times_are_those_of_the_file(file):
    assert format_of(file) == "onnxruntime"
    told = json.loads(file.read_text())
    profile = opscope.load(file)
    theirs = [e for e in told if e["cat"] == "Node" and e["name"].endswith("_kernel_time")]
    ops = profile.ops()
    assert Counter(ops["op"]) == Counter(e["args"]["op_name"] for e in theirs)
    moved = profile.notes().filter(pl.col("what").str.contains("moved by 1 µs"))["how_many"].sum()
    total = sum(e["dur"] for e in theirs) * US
    assert total <= ops["cpu_time"].sum() <= total + moved * US
    runs = [e["dur"] for e in told if e["name"] == "model_run"]
    summary = profile.summary().row(0, named=True)
    assert summary["steps"] == len(runs) == 2
    assert sum(runs) * US <= summary["device_time"] <= (sum(runs) + moved) * US
    assert ops["self_time"].sum() == summary["attributed_time"]
    assert profile.trace["processes"]["framework"].to_list() == ["onnxruntime"]


@pytest.mark.parametrize("file", REAL, ids=names(REAL))
def test_every_step_runs_the_same_ops_and_setting_up_is_outside(file):
    profile = opscope.load(file)
    ops = profile.ops()
    counts = [Counter(ops.filter(ops["step"] == step)["op"]) for step in (0, 1)]
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) * 2 == len(ops)
    phases = profile.trace["ranges"].filter(pl.col("category") == "phase")
    first = profile.trace["ranges"].filter(pl.col("category") == "step")["start"].min()
    assert phases["text"].cast(pl.String).str.contains("session_initialization").any()
    assert (phases["end"] <= first).all()


@pytest.mark.parametrize(
    "file", sorted(PROFILES.glob("loop*")), ids=names(sorted(PROFILES.glob("loop*")))
)
def test_the_time_of_a_loop_contains_its_body(file):
    ops = opscope.load(file).ops()
    op_of = dict(zip(ops["op_id"], ops["op"], strict=True))
    inside = ops.filter((pl.col("op") == "Less") | (pl.col("op") == "If"))
    assert {op_of[parent] for parent in inside["parent_id"]} == {"Loop"}
    whole, body = ops.filter(pl.col("op") == "Loop"), ops.filter(pl.col("parent_id").is_not_null())
    held = body.filter(pl.col("parent_id").is_in(whole["op_id"].to_list()))["cpu_time"].sum()
    assert whole["cpu_time"].sum() - held == whole["self_time"].sum() > 0


@pytest.mark.parametrize(
    "file", sorted(PROFILES.glob("cnn*")), ids=names(sorted(PROFILES.glob("cnn*")))
)
def test_a_profile_alone_has_shapes_and_layers_and_says_that_weights_are_missing(file):
    profile = opscope.load(file)
    ops = profile.ops()
    conv = ops.filter(pl.col("op") == "Conv").row(0, named=True)
    # the blocked layout pads 8 channels to 8 or 16, as wide as the processor's vectors
    assert conv["inputs"].startswith("f32[2,3,16,16], f32[")
    assert conv["matrix_flops"] in [2 * 2 * many * 16 * 16 * 27 for many in (8, 16)]
    dense = ops.filter(pl.col("op") == "Gemm").row(0, named=True)
    assert (dense["layer"], dense["device"]) == ("net/fc", "cpu")
    assert dense["inputs"] == "f32[2,16], _, f32[10]"
    assert dense["flops"] is None
    assert profile.notes()["what"].str.contains("--model").any()


# ------------------------------------------------------------------------------------- versions


def test_fences_of_old_versions_are_no_ops(tmp_path):
    made = [
        event("Node", "a_fence_before", 10, 5, op_name="MatMul"),
        node("a", 15, 100),
        event("Node", "a_fence_after", 115, 3, op_name="MatMul"),
        run(0, 200),
    ]
    summary = opscope.load(written(tmp_path, made)).summary().row(0, named=True)
    assert summary["attributed_time"] == 100 * US
    assert summary["unattributed_time"] == 100 * US


def test_the_oldest_versions_write_no_name_for_a_nameless_node(tmp_path):
    made = [event("Node", "_kernel_time", 5, 50, op_name="Conv"), run(0, 100)]
    ops = opscope.load(written(tmp_path, made)).ops()
    assert ops.select("op", "params", "device", "layer").rows() == [("Conv", None, None, None)]
    assert ops["cpu_time"].to_list() == [50 * US]


def test_the_index_of_a_node_has_two_names(tmp_path):
    made = [node("MatMul_3", 0, 5, index=3), node("b", 6, 5, node_index=None, graph_index="9")]
    frame = events.read(written(tmp_path, made)).frame
    assert frame["node_index"].to_list() == [3, 9]


def test_dtypes_have_opscopes_names(tmp_path):
    words = {
        "float16": "f16",
        "double": "f64",
        "uint8": "u8",
        "bool": "bool",
        "bfloat16": "bf16",
        "int4x2": "i4",
    }
    made = [
        node(word, 10 * n, 5, input_type_shape=[{word: [2, 3]}]) for n, word in enumerate(words)
    ]
    ops = opscope.load(written(tmp_path, made)).ops()
    assert ops["inputs"].to_list() == [f"{name}[2,3]" for name in words.values()]


def test_other_layouts_of_the_same_json_are_read(tmp_path):
    made = [run(0, 20), node("a", 2, 9)]
    plain = opscope.load(written(tmp_path, made)).ops()
    for number, text in enumerate(
        (json.dumps(made), json.dumps(made, indent=2), json.dumps({"traceEvents": made}))
    ):
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        assert format_of(path) == "onnxruntime"
        assert opscope.load(path).ops().equals(plain)
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(json.dumps(made).encode()))
    assert opscope.load(packed).ops().equals(plain)


# ------------------------------------------------------------------------------------- time


def test_what_ends_a_microsecond_after_the_loop_around_it_is_still_in_it(tmp_path):
    # true times 10.9 … 30.4 and 20.9 … 30.3: both are rounded down, start and duration apart
    made = [run(0, 40), node("/Loop", 10, 19, op="Loop"), node("body", 20, 10)]
    profile = opscope.load(written(tmp_path, made))
    ops = profile.ops().sort("start")
    assert ops["parent_id"].to_list() == [None, ops["op_id"][0]]
    assert ops["cpu_time"].to_list() == [20 * US, 10 * US]
    assert ops["self_time"].sum() == 20 * US
    assert profile.notes()["what"].str.contains("moved by 1 µs").any()


def test_runs_that_overlap_on_two_threads_are_no_steps(tmp_path):
    made = [
        run(0, 100, tid=1),
        node("a", 5, 50, tid=1),
        run(20, 100, tid=2),
        node("a", 30, 60, tid=2),
    ]
    profile = opscope.load(written(tmp_path, made))
    assert profile.summary()["steps"].item() == 0
    assert profile.ops()["cpu_time"].sum() == 110 * US
    assert profile.notes()["what"].str.contains("overlap in time").any()


# ------------------------------------------------------------------------------------- GPUs


def on_gpu(**names):
    """A session on an NVIDIA GPU: two nodes, three kernels, a copy of the inputs."""
    cuda = {"provider": "CUDAExecutionProvider"}
    place = {
        "stream": "7",
        "grid_x": "8",
        "grid_y": "1",
        "grid_z": "1",
        "block_x": "128",
        "block_y": "1",
        "block_z": "1",
    }
    copy = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), "-1") | {
        "stream": "7"
    }

    def kernel(name, ts, dur, parent, op, **args):
        made = place | args | {"op_name": op}
        if names.get("parents", True):
            made["parent_name"] = parent
        return event("Kernel", name, ts, dur, -1, **made) | {"pid": -1}

    return [
        run(0, 500),
        kernel("MemcpyHostToDevice", 12, 4, "model_run", "", **copy, size="64"),
        node("/fc/MatMul", 20, 30, **cuda),
        kernel("volta_sgemm_128x64_nn", 40, 100, "/fc/MatMul_kernel_time", "MatMul"),
        kernel("splitKreduce_kernel", 140, 20, "/fc/MatMul_kernel_time", "MatMul"),
        node("/act/Relu", 60, 10, op="Relu", inputs=((2, 4),), **cuda),
        kernel("relu_kernel", 160, 5, "/act/Relu_kernel_time", "Relu"),
    ]


@pytest.mark.parametrize("parents", [True, False])
def test_kernels_belong_to_the_node_that_launched_them(tmp_path, parents):
    profile = opscope.load(written(tmp_path, on_gpu(parents=parents)))
    kernels = profile.kernels()
    assert kernels.select("name", "op", "duration", "stream", "grid", "block", "layer").rows() == [
        ("volta_sgemm_128x64_nn", "MatMul", 100 * US, 7, "8,1,1", "128,1,1", "fc"),
        ("splitKreduce_kernel", "MatMul", 20 * US, 7, "8,1,1", "128,1,1", "fc"),
        ("relu_kernel", "Relu", 5 * US, 7, "8,1,1", "128,1,1", "act"),
    ]
    assert kernels["matrix_flops"].sum() == 2 * 2 * 3 * 4
    assert profile.memops().select("kind", "bytes").rows() == [("HtoD", 64)]
    assert profile.memops()["op"].to_list() == [None]
    ops = profile.ops()
    assert ops["device_time"].to_list() == [120 * US, 5 * US]
    assert set(ops["device"]) == {"cuda"}


@pytest.mark.parametrize("fence", ["before", "after"])
def test_kernels_behind_a_nodes_fence_belong_to_the_node(tmp_path, fence):
    place = {
        "stream": "13",
        "grid_x": "1",
        "grid_y": "1",
        "grid_z": "1",
        "block_x": "256",
        "block_y": "1",
        "block_z": "1",
    }
    kernel = event("Kernel", "BinaryElementWiseKernel", 90, 4, -1, op_name="Add", **place) | {
        "pid": -1
    }

    def turn(at):
        whole = [
            event("Node", "Add_0_fence_before", at, 2, op_name="Add"),
            node("Add_0", at + 3, 10, op="Add", provider="CUDAExecutionProvider"),
            event("Node", "Add_0_fence_after", at + 14, 2, op_name="Add"),
        ]
        return [*whole[:1], kernel, *whole[1:]] if fence == "before" else [*whole, kernel]

    profile = opscope.load(written(tmp_path, [run(0, 100), *turn(10), *turn(40)]))
    kernels, ops = profile.kernels(), profile.ops()
    assert kernels["op_id"].to_list() == ops["op_id"].to_list()
    assert kernels["op"].to_list() == ["Add", "Add"]


def test_a_kernel_behind_the_wrong_event_has_no_op(tmp_path):
    made = on_gpu()
    made[-1]["args"]["parent_name"] = "/other_kernel_time"
    kernels = opscope.load(written(tmp_path, made)).kernels()
    assert kernels["op"].to_list() == ["MatMul", "MatMul", None]
    assert kernels["reason"][2] == "no launch record"


def test_streams_that_are_addresses_are_numbered(tmp_path):
    made = on_gpu()
    for number, one in enumerate(e for e in made if e["cat"] == "Kernel"):
        one["args"]["stream"] = ("7f8a10", "7f8a10", "55aa", "7f8a10")[number]
    assert opscope.load(written(tmp_path, made)).kernels()["stream"].to_list() == [0, 1, 0]


def test_a_gpu_without_kernels_has_no_device_time(tmp_path):
    made = [one for one in on_gpu() if one["cat"] != "Kernel"]
    profile = opscope.load(written(tmp_path, made))
    assert profile.ops()["device_time"].null_count() == 2
    assert not profile.cpu_only
    assert profile.notes()["what"].str.contains("launched but not captured").any()


# ------------------------------------------------------------------------------------- bad input


def test_a_profile_without_the_end_of_its_array_is_read_with_a_note(tmp_path):
    made = [run(0, 100), node("a", 5, 50), node("b", 60, 30)]
    whole = written(tmp_path, made).read_text()
    for cut, many in ((whole.rindex("]"), 2), (len(whole) - 3, 2), (whole.rindex(",\n") + 2, 1)):
        path = tmp_path / "cut.json"
        path.write_text(whole[:cut])
        profile = opscope.load(path)
        assert profile.ops()["op"].to_list() == ["MatMul"] * many
        assert profile.notes()["what"].str.contains("array has no end").any()


@pytest.mark.parametrize(("count", "many"), [("50402", 50_402), (7, 7), ("many", 1), (None, 1)])
def test_events_that_the_profiler_says_it_dropped_are_said_first(tmp_path, count, many):
    last = event(
        "Session", "profile_truncated", 200, 0, max_num_events="3", dropped_event_count=count
    )
    path = written(tmp_path, [run(0, 100), node("a", 5, 50), node("b", 60, 30), last])
    profile = opscope.load(path)
    assert "profile_truncated" not in profile.trace["ranges"]["text"].cast(pl.String).to_list()
    rows = profile.notes().filter(pl.col("what").str.contains("dropped"))
    assert rows.select("severity", "how_many").rows() == [("warning", many)]
    told = next(line for line in command("report", path).stdout.splitlines() if "missing: " in line)
    assert "ONNX Runtime dropped events" in told


def test_of_a_run_whose_later_events_are_missing_no_share_of_its_time_is_concluded(tmp_path):
    made = [event("Session", "session_initialization", 0, 24_000)]
    for start in range(24_100, 25_300, 200):
        made += [run(start, 100), node("a", start + 5, 90)]
    first = opscope.load(written(tmp_path, made)).diagnosis()
    assert first["finding"].to_list()[0] == "compilation"
    last = event("Session", "profile_truncated", 25_300, 0, dropped_event_count="50402")
    whole = written(tmp_path, [*made, last])
    cut = tmp_path / "cut.json"
    cut.write_text(whole.read_text()[:-100])
    for path in (whole, cut):
        rows = opscope.load(path).diagnosis()
        assert rows["finding"].to_list()[0] == "cannot tell"
        assert not {"compilation", "slow start", "healthy"} & set(rows["finding"])


def test_of_a_profile_that_ends_inside_an_event_the_nodes_before_are_read(tmp_path):
    whole = written(tmp_path, [run(0, 100), node("a", 5, 50), node("b", 60, 30)]).read_text()
    path = tmp_path / "cut.json"
    path.write_text(whole[: whole.index('"b_kernel_time"')])
    profile = opscope.load(path)
    assert profile.ops()["op"].to_list() == ["MatMul"]
    assert profile.notes().row(0)[:2] == (
        "warning",
        "the JSON ends inside an event, as where the program was killed while it wrote: later events are lost",
    )


def test_names_with_quotes_and_backslashes_are_read(tmp_path):
    names = ['say "hi"', "C:\\model\\x", 'a"b', "käse"]
    made = [node("NAME", 10 * n, 5) for n in range(len(names))]
    text = "[\n" + ",\n".join(json.dumps(one) for one in [*made, run(0, 100)]) + "\n]\n"
    for name in names:
        text = text.replace("NAME", name, 1)
    path = tmp_path / "names.json"
    path.write_text(text)
    frame = events.read(path).frame.filter(pl.col("cat") == "Node")
    assert frame["name"].to_list() == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[{"cat" : "Session","pid" :1', "truncated"),
        ('{"cat": "Session", "events": []}', "not a profile of ONNX Runtime"),
        ('[{"cat": "Node"}, 5]', "no event of a session or a node"),
        ('[{"cat": "Sess', "truncated: the JSON ends inside an event"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(tmp_path, text, why):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=why) as caught:
        open_trace(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_kineto_trace_is_not_taken_for_one(tmp_path):
    path = tmp_path / "kineto.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}))  # fmt: skip
    assert format_of(path) == "kineto"


def test_impossible_times_and_values_are_left_out(tmp_path):
    made = [
        node("a", 5, 50), node("b", None, 5), node("c", 1e300, 5), node("d", 10, -3),
        node("e", 70, 5, node_index="x", input_type_shape=[{"float": ["a"]}], thread_scheduling_stats=5),
        node("f", 80, 5, input_type_shape="?", output_type_shape=None),
        run(0, 100),
    ]  # fmt: skip
    profile = opscope.load(written(tmp_path, made))
    assert profile.ops()["cpu_time"].sum() in (60 * US, 55 * US)
    assert profile.notes()["what"].str.contains("left out").any()


def test_a_full_profile_says_that_it_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(events, "MOST_RECORDED", 3)
    made = [run(0, 100), node("a", 5, 50), node("b", 60, 30)]
    notes = opscope.load(written(tmp_path, made)).notes()
    assert notes["what"].str.contains("stops at a million events").any()


# ------------------------------------------------------------------------------------- the model


def test_without_onnx_a_model_is_refused_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    model = tmp_path / "m.onnx"
    model.write_bytes(b"\x08\x08")
    path = written(tmp_path, [run(0, 100), node("a", 5, 50)])
    with pytest.raises(BadInput, match=r"m\.onnx.*pip install 'opscope\[onnx\]'"):
        opscope.load(path, model=model)
    # nobody asked for it here
    assert len(opscope.load(path).ops()) == 1


def test_a_model_beside_another_format_is_refused(tmp_path):
    path = tmp_path / "kineto.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}))
    model = tmp_path / "m.onnx"
    model.write_bytes(b"\x08\x08\x12\x04made")
    with pytest.raises(BadInput, match="beside a profile of ONNX Runtime only"):
        opscope.load(path, model=model)


def test_the_command_takes_a_model_and_fails_in_one_line(tmp_path):
    path = written(tmp_path, [run(0, 100), node("a", 5, 50)])
    for name in ("report", "ops", "kernels", "doctor"):
        done = command(name, path, "--model", tmp_path / "none.onnx")
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert "none.onnx" in done.stderr

"""Files of trtexec, TREx and the engine inspector: told from others, read by version, refused in one line."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import opscope
from opscope import readers
from opscope.cli.app import app
from opscope.cli.start import run
from opscope.readers import BadInput, format_of
from opscope.readers.tensorrt import recognise
from opscope.reports import console

CONV: dict[str, Any] = {
    "Name": "conv + relu", "LayerType": "CaskConvolution",
    "Inputs": [{"Name": "x", "Location": "Device", "Dimensions": [2, 3, 8, 8],
                "Format/Datatype": "Row major linear FP32"}],
    "Outputs": [{"Name": "y", "Location": "Device", "Dimensions": [2, 4, 8, 8],
                 "Format/Datatype": "Channel major FP16 format where channel % 8 == 0"}],
    "ParameterType": "Convolution", "Kernel": [3, 3], "PaddingMode": "kEXPLICIT_ROUND_DOWN",
    "PrePadding": [1, 1], "PostPadding": [1, 1], "Stride": [1, 1], "Dilation": [1, 1],
    "OutMaps": 4, "Groups": 1, "Weights": {"Type": "Half", "Count": 108},
    "Bias": {"Type": "Half", "Count": 4}, "Activation": "RELU",
    "TacticName": "sm80_xmma_fprop", "TacticValue": "0x1",
}  # fmt: skip
COPY: dict[str, Any] = {
    "Name": "Reformatting CopyNode for Output Tensor 0 to conv + relu", "LayerType": "Reformat",
    "Inputs": [{"Name": "y", "Dimensions": [2, 4, 8, 8],
                "Format/Datatype": "Channel major FP16 format where channel % 8 == 0"}],
    "Outputs": [{"Name": "z", "Dimensions": [2, 4, 8, 8], "Format/Datatype": "Row major linear FP32"}],
    "ParameterType": "Reformat", "Origin": "REFORMAT", "TacticValue": "0x0",
}  # fmt: skip
TIMES = [
    {"count": 4},
    {"name": "conv + relu", "timeMs": 3.0, "averageMs": 0.75, "medianMs": 0.7, "percentage": 75.0},
    {"name": COPY["Name"], "timeMs": 1.0, "averageMs": 0.25, "medianMs": 0.25, "percentage": 25.0},
]


def command(monkeypatch, capsys, *words: str) -> tuple[int, str]:
    """The exit code of ``opscope`` and what it wrote to stderr."""
    monkeypatch.setattr(sys, "argv", ["opscope", *words])
    status = run()
    return status, capsys.readouterr().err


def write(path: Path, what: object) -> Path:
    path.write_text(what if isinstance(what, str) else json.dumps(what))
    return path


def graph(*layers: object) -> dict[str, object]:
    return {"Layers": list(layers or (CONV, COPY)), "Bindings": ["x", "z"]}


def runs(many: int = 40, each: float = 10.0, **extra: float) -> list[dict[str, float]]:
    """Runs one after the other, of which those that begin within 200 ms warm up."""
    return [
        {"startEnqMs": n * each, "endEnqMs": n * each + 0.5, "startH2dMs": n * each,
         "endH2dMs": n * each + 1, "startComputeMs": n * each + 1, "endComputeMs": n * each + 8,
         "startD2hMs": n * each + 8, "endD2hMs": n * each + 9, "h2dMs": 1.0, "computeMs": 7.0,
         "d2hMs": 1.0, "latencyMs": 9.0, **extra}
        for n in range(many)
    ]  # fmt: skip


# ------------------------------------------------------------------------------ told from others


@pytest.mark.parametrize(
    ("what", "ours"),
    [
        (graph(), True),
        ({"Bindings": ["x"], "Layers": [CONV]}, True),
        (graph("conv", "copy"), True),
        (CONV, True),
        (TIMES, True),
        (TIMES[1:], True),
        (runs(3), True),
        ([{"startInMs": 0.1, "computeMs": 1, "latencyMs": 2}], True),
        ({"performance_summary": {}}, True),
        ({"model_options": {}}, True),
        ([{"Name": "A100", "ComputeCapability": [8, 0]}], True),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v101601] # trtexec\n", True),
        ("[07/07/2026-02:10:45] [I] === Model Options ===\n", True),
        ({"traceEvents": []}, False),
        ([{"ph": "X", "name": "conv", "ts": 1}], False),
        ([{"name": "conv", "dur": 1}], False),
        ({"layers": []}, False),
        ("a log of TensorRT\n", False),
        ("[1, 2, 3]", False),
    ],
)
def test_files_are_told_by_how_they_begin(tmp_path, what, ours):
    path = write(tmp_path / "file", what)
    assert recognise(path.read_bytes()[:4096], path) is ours


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ((75, 25), ""),
        ((75.4, 24.9), ""),
        ((45, 25), "add up to 70 %: the file lacks"),
        ((75, 75), "over 100 %"),
    ],
)
def test_shares_that_do_not_add_up_are_told(tmp_path, shares, told):
    rows = [{**row, "percentage": share} for row, share in zip(TIMES[1:], shares, strict=True)]
    trace = readers.open(write(tmp_path / "profile.json", [TIMES[0], *rows]))
    assert trace["notes"]["what"].str.contains("shares add up").any() is bool(told)
    assert told in " ".join(trace["notes"]["what"])


@pytest.mark.parametrize("shares", [(75, 25), None])
def test_layers_that_the_file_holds_again_are_counted_once(tmp_path, shares):
    rows = [
        {**row, "percentage": share} for row, share in zip(TIMES[1:], shares or (0, 0), strict=True)
    ]
    trace = readers.open(write(tmp_path / "profile.json", [TIMES[0], *rows, *rows]))
    assert len(trace["kernels"]) == 2
    notes = dict(trace["notes"].select("what", "how_many").rows())
    assert notes["layers that the file holds again, equal in all columns: counted once"] == 2


@pytest.mark.parametrize("shares", [(50, 50), None])
def test_layers_that_are_alike_and_add_up_are_counted_each(tmp_path, shares):
    rows = [TIMES[1], TIMES[1]] if shares else [TIMES[1], TIMES[1], TIMES[2]]
    rows = [
        {**row, "percentage": share} for row, share in zip(rows, shares or (0, 0, 0), strict=True)
    ]
    trace = readers.open(write(tmp_path / "profile.json", [TIMES[0], *rows]))
    assert len(trace["kernels"]) == len(rows)
    assert not trace["notes"]["what"].str.contains("holds again").any()


def test_a_compressed_file_is_read_like_a_plain_one(tmp_path):
    plain = write(tmp_path / "engine.json", graph())
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert format_of(packed) == "tensorrt"
    found = [opscope.load(one).engine_layers().drop("engine") for one in (plain, packed)]
    assert found[0].equals(found[1])


# ------------------------------------------------------------------------------ what is read


def test_layers_have_shapes_formats_precision_weights_and_origins(tmp_path):
    layers = opscope.load(write(tmp_path / "e.graph.json", graph())).engine_layers().to_dicts()
    first, second = layers
    assert first["inputs"] == "f32[2,3,8,8], f16[4,3,3,3], f16[4]"
    assert first["outputs"] == "f16[2,4,8,8]{1,3,2,0}"
    assert (first["formats"], first["precision"], first["role"]) == (
        "linear -> NHWC8",
        "f32",
        "compute",
    )
    assert (first["origins"], first["tactic"]) == ("conv + relu", "sm80_xmma_fprop")
    assert first["matrix_flops"] == 2 * (2 * 4 * 64) * 27
    assert (second["role"], second["origins"], second["flops"]) == ("reformat", None, 0)
    assert {row["mean"] for row in layers} == {None}


def test_origins_are_the_metadatas_where_there_is_any(tmp_path):
    listed = {
        **CONV,
        "Metadata": "[ONNX Layer: /a/Conv]\x1e[ONNX Layer: /b/Relu[0]]\x1f[ONNX Layer: /a/Conv]",
    }
    layers = opscope.load(write(tmp_path / "e.json", graph(listed))).engine_layers()
    assert layers["origins"].item() == "/a/Conv + /b/Relu[0]"


def test_kernels_follow_each_other_in_the_engines_order(tmp_path):
    write(tmp_path / "e.profile.json", [TIMES[0], TIMES[2], TIMES[1]])
    profile = opscope.load(write(tmp_path / "e.graph.json", graph()))
    kernels = profile.kernels()
    assert kernels["start"].to_list() == [0, 750_000]
    assert kernels["duration"].to_list() == [750_000, 250_000]
    assert kernels["name"].to_list() == ["sm80_xmma_fprop", "Reformat"]
    assert kernels["layer"].to_list() == ["conv + relu", COPY["Name"]]
    shown = console.tables(profile, ["summary"])[0]
    assert any("means over 4 runs, laid end to end" in str(row) for row in shown.rows)
    assert profile.summary()["launched_share"].item() == 0
    assert profile.summary()["flops_share"].item() == 1


def test_times_alone_are_kernels_without_shapes(tmp_path):
    profile = opscope.load(write(tmp_path / "times.json", TIMES))
    assert profile.kernels()["duration"].to_list() == [750_000, 250_000]
    assert profile.engine_layers()["share"].to_list() == [0.75, 0.25]
    layers = profile.engine_layers()
    assert "only its time" in layers["reason"][0]
    # what a reformat does, its name says
    assert (layers["op"][1], layers["role"][1], layers["flops"][1]) == (
        "trt::Reformat",
        "reformat",
        0,
    )
    ops = profile.op_totals()
    assert set(ops["op"]) == {TIMES[1]["name"], "trt::Reformat"}
    kinds = dict(profile.totals_by("kind").select("kind", "device_time").rows())
    assert kinds["copies"] == 250_000
    why = profile.missing_costs().filter(pl.col("op") == TIMES[1]["name"])["why"].item()
    assert why == "the engine's file gives no shapes of this layer"


def test_profiles_of_old_versions_have_no_median(tmp_path):
    old = [{k: v for k, v in one.items() if k != "medianMs"} for one in TIMES]
    write(tmp_path / "e.profile.json", old)
    layers = opscope.load(write(tmp_path / "e.graph.json", graph())).engine_layers()
    assert layers["median"].to_list() == [None, None]
    assert layers["mean"].to_list() == [750_000.0, 250_000.0]


def test_names_that_repeat_are_told_apart_in_layers_and_times(tmp_path):
    write(
        tmp_path / "e.profile.json",
        [TIMES[0], TIMES[1], {**TIMES[1], "timeMs": 1.0, "averageMs": 0.25}],
    )
    layers = opscope.load(write(tmp_path / "e.graph.json", graph(CONV, CONV))).engine_layers()
    assert layers["layer"].to_list() == ["conv + relu", "conv + relu_2"]
    assert layers["total"].to_list() == [3e6, 1e6]


def test_an_engine_of_several_profiles_ran_with_one(tmp_path):
    other = {**CONV, "Name": "conv + relu [profile 1]"}
    write(tmp_path / "e.profile.json", TIMES)
    found = opscope.load(write(tmp_path / "e.graph.json", graph(CONV, COPY, other)))
    assert found.engine_layers()["total"].to_list() == [3e6, 1e6, None]
    assert any("another profile" in what for what in found.notes()["what"])


def test_a_share_of_nothing_is_null(tmp_path):
    text = '[ { "count" : 0 }, { "name" : "conv + relu", "timeMs" : 0, "averageMs" : -nan, "percentage" : nan } ]'
    layers = opscope.load(write(tmp_path / "t.json", text)).engine_layers()
    assert layers.select("total", "mean", "share").row(0) == (0, None, None)


def test_runs_that_warm_up_are_left_out_and_counted(tmp_path):
    found = opscope.load(write(tmp_path / "t.json", runs()))
    row = found.engine_runs().filter(measure="Latency").row(0, named=True)
    assert row["runs"] == 20
    assert row["wall_time"] == (399 - 200) * 1e6
    assert row["throughput"] == pytest.approx(20 / 0.199)
    assert found.notes().filter(pl.col("what").str.contains("200 ms"))["how_many"].item() == 20


def test_the_stated_warm_up_is_the_one_that_counts(tmp_path):
    summary = {"performance_summary": {}, "inference_options": {"Duration": "3s (+ 100ms warm up)"}}
    write(tmp_path / "e.profile.metadata.json", summary)
    found = opscope.load(write(tmp_path / "e.timing.json", runs()))
    assert found.engine_runs()["runs"].unique().to_list() == [30]


def test_the_names_that_timing_files_had_before_tensorrt_8_are_read(tmp_path):
    old = [
        {"startInMs": n * 100.0, "endInMs": n * 100.0 + 1, "startComputeMs": n * 100.0 + 1,
         "endComputeMs": n * 100.0 + 3, "startOutMs": n * 100.0 + 3, "endOutMs": n * 100.0 + 4,
         "inMs": 1.0, "computeMs": 2.0, "outMs": 1.0, "latencyMs": 4.0, "endToEndMs": 5.0}
        for n in range(4)
    ]  # fmt: skip
    found = opscope.load(write(tmp_path / "t.json", old)).engine_runs()
    assert dict(found.select("measure", "mean").rows()) == {
        "Latency": 4e6, "H2D Latency": 1e6, "GPU Compute Time": 2e6, "D2H Latency": 1e6,
    }  # fmt: skip
    assert found["wall_time"].unique().to_list() == [104e6]


def test_a_log_of_tensorrt_7_has_its_figures_below_their_headings(tmp_path):
    text = """&&&& RUNNING TensorRT.trtexec # trtexec
[I] Host Latency
[I] min: 1.5 ms (end to end 1.6 ms)
[I] max: 2.5 ms (end to end 2.6 ms)
[I] mean: 2 ms (end to end 2.1 ms)
[I] median: 1.9 ms (end to end 2.0 ms)
[I] percentile: 2.4 ms at 99% (end to end 2.5 ms at 99%)
[I] GPU Compute
[I] min: 1 ms
[I] percentile: 1.4 ms at 99%
[I]
[I] === Profile (10 iterations ) ===
[I]                    Layer   Time (ms)   Avg. Time (ms)   Time %
[I]                  conv 12        3.00             0.30     75.0
[I]        {a,b}                    1.00             0.10     25.0
[I]                    Total        4.00             0.40    100.0
"""
    found = opscope.load(write(tmp_path / "old.log", text))
    stated = {row["measure"]: row for row in found.engine_runs().to_dicts()}
    assert [stated["Latency"][k] for k in ("min", "max", "mean", "median", "p99")] == [
        1.5e6, 2.5e6, 2e6, 1.9e6, 2.4e6,
    ]  # fmt: skip
    assert stated["GPU Compute Time"]["p99"] == 1.4e6
    assert found.engine_layers().select("layer", "mean").rows() == [
        ("conv 12", 3e5),
        ("{a,b}", 1e5),
    ]


def test_a_saved_profile_has_the_same_layers_and_runs(tmp_path):
    write(tmp_path / "e.profile.json", TIMES)
    write(tmp_path / "e.timing.json", runs())
    first = opscope.load(write(tmp_path / "e.graph.json", graph()))
    first.save(tmp_path / "e.opscope")
    again = opscope.load(tmp_path / "e.opscope")
    assert again.engine_layers().equals(first.engine_layers())
    assert again.engine_runs().equals(first.engine_runs())


# ------------------------------------------------------------------------------ beside a trace

LAYER_TEXTS = ("ExecutionContext::enqueue", "conv + relu", COPY["Name"])


def traced(nsys_file, event, ids, layers=LAYER_TEXTS) -> Path:
    """A trace in which TensorRT's own ranges surround the kernels of two runs of an engine."""
    rows = [event(0, None, eventType=75, domainId=1, text="TensorRT")]
    calls, kernels = [], []
    strings = ("cudaLaunchKernel", "sm80_xmma_fprop", "copy")
    for turn in range(2):
        at = turn * 1000
        rows.append(event(at, at + 900, domainId=1, text=layers[0]))
        for number, text in enumerate(layers[1:]):
            start = at + 100 + 300 * number
            rows.append(event(start, start + 200, domainId=1, text=text))
            key = 10 * turn + number + 1
            calls.append({"start": start + 10, "end": start + 20, "globalTid": ids.gtid(),
                          "correlationId": key, "nameId": 0})  # fmt: skip
            kernels.append({"start": start + 50, "end": start + 150 + 100 * turn, "deviceId": 0, "contextId": 1,
                            "streamId": 7, "correlationId": key, "globalPid": ids.gpid(),
                            "demangledName": number + 1, "shortName": number + 1,
                            **{f"{what}{axis}": 1 for what in ("grid", "block") for axis in "XYZ"}})  # fmt: skip
    return nsys_file(
        strings,
        NVTX_EVENTS=rows,
        CUPTI_ACTIVITY_KIND_RUNTIME=calls,
        CUPTI_ACTIVITY_KIND_KERNEL=kernels,
    )


def test_layers_beside_a_trace_are_joined_by_name(nsys_file, event, ids, tmp_path):
    trace = traced(nsys_file, event, ids)
    info = write(tmp_path / "e.graph.json", graph())
    bare = opscope.load(trace)
    assert bare.kernels()["flops"].null_count() == 4
    profile = opscope.load(trace, model=info)
    kernels = profile.kernels()
    assert kernels["op"].unique().sort().to_list() == ["trt::Convolution", "trt::Reformat"]
    assert set(kernels["layer"]) == {"conv + relu", COPY["Name"]}
    layers = {row["layer"]: row for row in profile.engine_layers().to_dicts()}
    assert layers["conv + relu"]["runs"] == 2
    assert layers["conv + relu"]["total"] == 100 + 200
    assert layers["conv + relu"]["median"] == 150
    each = 2 * (2 * 4 * 64) * 27
    assert kernels.filter(layer="conv + relu")["flops"].to_list() == [each, each]
    assert profile.kernels()["duration"].sum() == bare.kernels()["duration"].sum()


def test_the_command_takes_the_layers_beside_a_trace(nsys_file, event, ids, tmp_path):
    trace = traced(nsys_file, event, ids)
    info = write(tmp_path / "e.graph.json", graph())
    done = CliRunner().invoke(
        app, ["report", str(trace), "--model", str(info), "--json", "--reports", "engine_layers"]
    )
    assert done.exit_code == 0, done.output
    assert [one["runs"] for one in json.loads(done.stdout)["engine_layers"]] == [2, 2]


@pytest.mark.parametrize(
    ("layers", "what", "why"),
    [
        (LAYER_TEXTS, graph({**CONV, "Name": "another"}), "none of its 1 layers"),
        (LAYER_TEXTS, TIMES, "does not describe the layers"),
        (LAYER_TEXTS, {"traceEvents": []}, "not what ran in this trace"),
        (LAYER_TEXTS, '{"Layers": [', "ends early or is damaged"),
    ],
)
def test_a_model_of_something_else_is_refused(
    nsys_file, event, ids, tmp_path, monkeypatch, capsys, layers, what, why
):
    trace = traced(nsys_file, event, ids, layers)
    info = write(tmp_path / "e.graph.json", what)
    with pytest.raises(BadInput, match=why):
        opscope.load(trace, model=info)
    status, err = command(monkeypatch, capsys, "report", str(trace), "--model", str(info))
    assert (status, err.count("\n")) == (2, 1)


def test_a_trace_without_tensorrt_takes_no_layers(nsys_file, event, tmp_path):
    trace = nsys_file(NVTX_EVENTS=[event(0, 10, text="mine")])
    info = write(tmp_path / "e.graph.json", graph())
    with pytest.raises(BadInput, match="no ranges of TensorRT"):
        opscope.load(trace, model=info)


# ------------------------------------------------------------------------------ bad input

WHOLE = json.dumps(graph())


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (WHOLE[: len(WHOLE) // 2], "ends early or is damaged"),
        (json.dumps(TIMES)[:-9], "ends early or is damaged"),
        (json.dumps(runs(3))[:-9], "ends early or is damaged"),
        ({"Layers": []}, "empty"),
        ({"Layers": [3]}, "not the layers of an engine"),
        ({"Layers": [{"LayerType": "x"}]}, "not the layers of an engine"),
        ({"Layers": {}, "Bindings": []}, "no list"),
        ({"Bindings": ["x"]}, "JSON that is not of a TensorRT engine"),
        ([{"count": 3}], "times of no layer"),
        ([{"count": 3}, {"name": "a"}], "has no time"),
        ([{"count": 3}, {"name": "a", "timeMs": -1}], "has no time"),
        ([{"startEnqMs": 1.0}], "JSON that is not of a TensorRT engine"),
        ([{"startEnqMs": 1.0, "computeMs": 1}, {"startEnqMs": 1.0}], "without computeMs"),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v8601]\n[I] nothing\n", "without a performance summary"),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(tmp_path, monkeypatch, capsys, what, why):
    path = write(tmp_path / "bad", what)
    with pytest.raises(BadInput, match=why) as caught:
        opscope.load(path)
    assert "\n" not in str(caught.value)
    status, err = command(monkeypatch, capsys, "report", str(path))
    assert (status, err.count("\n")) == (2, 1)


def test_one_damaged_file_of_several_leaves_the_others(tmp_path):
    good = write(tmp_path / "a.graph.json", graph())
    bad = write(tmp_path / "b.graph.json", WHOLE[:99])
    found = opscope.load([good, bad])
    assert len(found.engine_layers()) == 2
    assert [Path(one["path"]).name for one in found.trace.origin["failed"]] == ["b.graph.json"]
    with pytest.raises(BadInput, match="ends early"):
        opscope.load([good, bad], strict=True)


def test_two_files_of_the_same_kind_and_name_are_refused(tmp_path):
    first = write(tmp_path / "e.graph.json", graph())
    second = write(tmp_path / "e.layers.json", graph(CONV))
    with pytest.raises(BadInput, match="twice"):
        opscope.load([first, second])


@pytest.mark.parametrize("value", [None, "x", -3, 1 << 70, [], {}, True, 1.5, ["a"], [[1]]])
@pytest.mark.parametrize("key", sorted(set(CONV) - {"Name"}))
def test_a_wrong_value_costs_no_more_than_itself(tmp_path, key, value):
    layers = opscope.load(
        write(tmp_path / "e.json", graph({**CONV, key: value}, COPY))
    ).engine_layers()
    assert len(layers) == 2
    assert layers["flops"][1] == 0


LAYER = {
    "Name": "conv1 + relu", "LayerType": "CaskConvolution", "ParameterType": "Convolution", "Kernel": [3, 3],
    "Inputs": [{"Name": "x", "Dimensions": [1, 3, 8, 8], "Format/Datatype": "Float"}],
    "Outputs": [{"Name": "y", "Dimensions": [1, 4, 8, 8], "Format/Datatype": "Float"}],
}  # fmt: skip
PRINTED = json.dumps({"Layers": [LAYER], "Bindings": ["x", "y"]}, indent=1)
ONE_LINE = (
    "Layers:\nName: conv1, LayerType: CaskConvolution, Inputs: [ { Name: x, Location: Device, Dimensions: "
    "[1,3,8,8], Format/Datatype: Float }], Outputs: [ { Name: y, Location: Device, Dimensions: [1,4,8,8], "
    "Format/Datatype: Float }], TacticValue: 0x1\nBindings:\nx\ny\n"
)


@pytest.mark.parametrize(
    "text",
    [
        f"[11/28/2026-10:00:00] [TRT] [I] Loaded engine size: 3 MiB\n{PRINTED}\n[11/28/2026-10:00:01] [TRT] [I] x\n",
        f"[TRT] [I] Loaded engine size: 3 MiB\n{PRINTED}\n",
        f"{PRINTED}\n[11/28/2026-10:00:01] [TRT] [I] done\n",
        ONE_LINE,
    ],
)
def test_a_log_of_a_program_that_printed_what_the_inspector_says_has_its_layers(tmp_path, text):
    path = tmp_path / "inspect.log"
    path.write_text(text)
    trace = readers.open(path)
    assert trace.origin["format"] == "tensorrt"
    assert len(trace["specs"]) > 0


@pytest.mark.parametrize(
    "line", ["[TRT] [I] Loaded engine size", "[11/28/2026-10:00:00] [TRT] [W] slow"]
)
def test_a_log_of_tensorrt_without_layers_is_refused_as_one(tmp_path, line):
    path = tmp_path / "run.log"
    path.write_text(f"{line}\n" * 3)
    with pytest.raises(BadInput, match="a log of TensorRT without"):
        readers.open(path)
    path.write_text("[2026-11-28 10:00:00] INFO starting\n")
    with pytest.raises(BadInput, match="begins with a bracket and is no JSON"):
        readers.open(path)


@pytest.mark.parametrize(
    ("key", "value", "told", "time"),
    [
        ("averageMs", -2.5, "layers whose time is out of range, left out", 250_000),
        ("averageMs", 0, "layers whose mean time is not their time over 4 runs", 250_000),
        ("averageMs", float("nan"), None, 1_000_000),
        ("timeMs", 0, "layers whose mean time is not their time over 4 runs", 1_000_000),
        ("timeMs", 3e10, "layers whose mean time is not their time over 4 runs", 1_000_000),
        ("name", 7, "layers without a name, left out", 250_000),
    ],
)
def test_a_layer_whose_figures_cannot_be_is_told(tmp_path, key, value, told, time):
    path = write(tmp_path / "times.json", [TIMES[0], TIMES[1] | {key: value}, TIMES[2]])
    profile = opscope.load(path)
    notes = profile.trace["notes"].filter(severity="warning")["what"].to_list()
    assert any(told in note for note in notes) if told else not notes
    row = profile.summary().row(0, named=True)
    assert (row["device_time"], row["wall_time"]) == (time, time)

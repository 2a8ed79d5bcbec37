"""Real files of trtexec and TREx: every figure that they state follows from what we read of the others."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.core.tensorrt_layers import layers_of
from opscope.readers.tensorrt.decoding import decode
from opscope.readers.tensorrt.log import printed_layer
from tests import traces

ENGINES = (
    "mobilenet_qat_titanrtx",
    "resnet_pt_a100_fp16",
    "resnet_pt_a100_fp32",
    "resnet_tf_rtx3090_fp32",
)
TIMED = ENGINES[1:]
#: trtexec prints six digits.
DIGITS = 6


def shown(value: float) -> str:
    return f"{value:.{DIGITS}g}"


@pytest.fixture
def trex(shared: Path) -> Path:
    return shared / "tensorrt" / "trex"


@pytest.fixture
def cookbook(shared: Path) -> Path:
    return shared / "tensorrt" / "cookbook_trt10.16"


def loaded(trex: Path, engine: str) -> opscope.Profile:
    return traces.load(trex / f"{engine}.graph.json")


@pytest.mark.parametrize("engine", ENGINES)
def test_layers_of_graph_and_profile_are_joined_one_to_one(trex, engine):
    graph = json.loads((trex / f"{engine}.graph.json").read_text())["Layers"]
    times = [r for r in json.loads((trex / f"{engine}.profile.json").read_text()) if "name" in r]
    layers = loaded(trex, engine).engine_layers()
    assert layers["layer"].to_list() == [one["Name"] for one in graph]
    assert sorted(layers["layer"]) == sorted(one["name"] for one in times)
    stated = {one["name"]: one for one in times}
    for row in layers.to_dicts():
        one = stated[row["layer"]]
        assert shown(row["total"] / 1e6) == shown(one["timeMs"])
        assert shown(row["mean"] / 1e6) == shown(one["averageMs"])
        assert shown(row["median"] / 1e6) == shown(one["medianMs"])
        assert 100 * row["share"] == pytest.approx(one["percentage"], rel=2e-5)
        assert row["runs"] == json.loads((trex / f"{engine}.profile.json").read_text())[0]["count"]
    assert layers["share"].sum() == pytest.approx(1)
    assert sum(one["percentage"] for one in times) == pytest.approx(100, abs=1e-3)


@pytest.mark.parametrize("engine", ENGINES)
def test_kernels_are_the_layers_that_take_time_each_as_long_as_its_mean(trex, engine):
    profile = loaded(trex, engine)
    layers = profile.engine_layers().filter(pl.col("total") > 0)
    kernels = profile.kernels()
    assert kernels["layer"].to_list() == layers["layer"].to_list()
    assert (kernels["duration"] - layers["mean"]).abs().max() <= 0.5 + 0.01
    assert kernels["op_id"].null_count() == 0
    summary = profile.summary().to_dicts()[0]
    assert summary["device_time"] == kernels["duration"].sum()
    assert summary["flops_share"] == 1
    assert "not events on a timeline" in " ".join(profile.notes()["what"])


@pytest.mark.parametrize("engine", TIMED)
def test_every_figure_of_the_performance_summary_follows_from_the_timing_file(trex, engine):
    stated = json.loads((trex / f"{engine}.profile.metadata.json").read_text())[
        "performance_summary"
    ]
    profile = loaded(trex, engine)
    runs = profile.engine_runs()
    measured = {
        row["measure"]: row for row in runs.filter(pl.col("measured") == "recorded").to_dicts()
    }
    many = round(stated["Throughput"] * stated["Total Host Walltime"])
    for name in ("Latency", "H2D Latency", "GPU Compute Time", "D2H Latency"):
        row, numbers = measured[name], stated[name]
        assert row["runs"] == many
        found = [row[key] / 1e6 for key in ("min", "max", "mean", "median", "p99")]
        assert [shown(one) for one in found] == [shown(one) for one in numbers]
    row = measured["GPU Compute Time"]
    # the times of day in the file have six digits too: 10 µs at three seconds
    assert row["throughput"] == pytest.approx(stated["Throughput"], rel=4e-6)
    assert row["wall_time"] / 1e9 == pytest.approx(stated["Total Host Walltime"], abs=1.01e-5)
    # a sum of as many values that were rounded to six digits
    assert row["total"] / 1e9 == pytest.approx(stated["Total GPU Compute Time"], rel=1e-5)
    for line in runs.filter(pl.col("measured") == "stated").to_dicts():
        keys = (
            "min",
            "max",
            "mean",
            "median",
            *(("p90", "p95", "p99") if len(stated[line["measure"]]) > 5 else ("p99",)),
        )
        assert [line[key] / 1e6 for key in keys] == pytest.approx(
            stated[line["measure"]], rel=1e-12
        )


@pytest.mark.parametrize("engine", TIMED)
def test_the_warm_up_is_found_without_a_summary_too(trex, engine, tmp_path):
    alone = tmp_path / "runs.json"
    shutil.copy(trex / f"{engine}.timing.json", alone)
    whole = loaded(trex, engine).engine_runs().filter(measured="recorded")
    found = traces.load(alone)
    assert found.engine_runs().drop("engine").equals(whole.drop("engine"))
    assert any("warm-up" in what for what in found.notes()["what"])


@pytest.mark.parametrize(
    ("engine", "gigaflops"),
    [
        # twice the multiply-adds that the papers state: MobileNetV2 0.3, ResNet-18 1.8, ResNet-50 3.9 each
        ("mobilenet_qat_titanrtx", 0.6015),
        ("resnet_pt_a100_fp16", 32 * 3.6281),
        ("resnet_pt_a100_fp32", 32 * 3.6281),
        ("resnet_tf_rtx3090_fp32", 32 * 7.7159),
    ],
)
def test_products_are_those_of_the_network(trex, engine, gigaflops):
    layers = loaded(trex, engine).engine_layers()
    assert layers["matrix_flops"].sum() / 1e9 == pytest.approx(gigaflops, rel=1e-4)
    raw = json.loads((trex / f"{engine}.graph.json").read_text())["Layers"]
    for row, one in zip(layers.to_dicts(), raw, strict=True):
        if one.get("ParameterType") == "Convolution":
            out = math.prod(one["Outputs"][0]["Dimensions"])
            assert row["matrix_flops"] == 2 * out * one["Weights"]["Count"] // one["OutMaps"]
        assert row["reason"] is None


def test_precision_and_roles_of_a_quantised_network(trex):
    layers = loaded(trex, ENGINES[0]).engine_layers()
    roles = dict(layers.group_by("role").len().rows())
    assert roles == {"compute": 54, "quantize": 17, "reformat": 1, "no-op": 1}
    assert layers.filter(role="quantize")["op"].unique().to_list() == ["trt::Quantize"]
    convolutions = layers.filter(pl.col("op") == "trt::Convolution")
    assert set(convolutions["precision"]) == {"i8"}
    first = layers.row(1, named=True)
    assert first["formats"] == "NC/4HW4 -> NC/32HW32"
    assert first["origins"] == "features.0.0.weight + QuantizeLinear_8 + Conv_12 + Clip_16"


def test_tensor_cores_and_the_device_are_those_of_the_a100(trex):
    half, full = (loaded(trex, engine) for engine in ENGINES[1:3])
    device, _ = half.device
    assert device is not None
    assert "A100" in device.name
    precise = full.engine_layers().group_by("precision").len().rows()
    assert {"f32", "tf32"} <= dict(precise).keys()
    rated = half.engine_layers().filter(pl.col("efficiency").is_not_null())
    assert len(rated) == half.engine_layers().filter(pl.col("total") > 0).height
    assert rated["efficiency"].max() <= 1


def test_a_folder_of_engines_is_one_process_an_engine(trex):
    profile = traces.load(trex)
    assert sorted(profile.engine_layers()["engine"].unique()) == sorted(ENGINES)
    assert profile.summary()["processes"].item() == len(ENGINES)
    whole = sum(loaded(trex, engine).summary()["device_time"].item() for engine in ENGINES)
    assert profile.summary()["device_time"].item() == whole


def test_files_of_other_names_are_joined_by_the_names_of_their_layers(trex, tmp_path):
    for engine, name in zip(ENGINES[:2], ("a", "b"), strict=True):
        shutil.copy(trex / f"{engine}.graph.json", tmp_path / f"{name}_layers.json")
        shutil.copy(trex / f"{engine}.profile.json", tmp_path / f"{name}_times.json")
    given = sorted(tmp_path.iterdir())
    layers = traces.load(given, strict=True).engine_layers()
    assert layers["total"].null_count() == 0
    assert len(layers) == 73 + 36


def test_times_of_another_engine_are_refused(trex, tmp_path):
    graph, times = tmp_path / "a.graph.json", tmp_path / "b.profile.json"
    shutil.copy(trex / f"{ENGINES[0]}.graph.json", graph)
    shutil.copy(trex / f"{ENGINES[1]}.profile.json", times)
    with pytest.raises(opscope.errors.BadInput, match="times of another engine"):
        traces.load([graph, times])
    # of one name, but found beside: the times are left out, and a note says why
    times.rename(tmp_path / "a.profile.json")
    found = traces.load(graph)
    assert found.engine_layers()["total"].null_count() == 73
    assert "times of another engine" in " ".join(found.notes()["what"])


def test_an_engine_that_has_its_own_layers_beside_it_is_one_of_two(trex):
    found = traces.load([trex / f"{ENGINES[0]}.graph.json", trex / f"{ENGINES[1]}.profile.json"])
    assert sorted(found.engine_layers()["engine"].unique()) == sorted(ENGINES[:2])


# ------------------------------------------------------------------------------ logs


def test_the_printed_layers_are_the_inspectors(cookbook):
    text = (cookbook / "result-04.log").read_text(errors="replace")
    printed = [printed_layer(line) for line in text.split("\n") if line.startswith("Name: ")]
    exported = json.loads((cookbook / "model-trained-exportLayerInfo.log").read_text())["Layers"]
    assert len(printed) == len(exported) == 9
    # the two are of two builds, which chose other tactics for two layers
    for one in (*printed, *exported):
        one.pop("TacticName", None)
        one.pop("TacticValue", None)
    assert printed == exported


def test_the_log_and_the_inspectors_json_give_the_same_layers(cookbook):
    of_log = traces.load(cookbook / "result-04.log").engine_layers()
    of_json = traces.load(cookbook / "model-trained-exportLayerInfo.log").engine_layers()
    apart = ("engine", "tactic")
    assert of_log.drop(apart).equals(of_json.drop(apart))
    assert of_json["origins"].to_list()[:2] == ["node_conv2d + node_relu", "node_max_pool2d"]
    by_name = {row["layer"]: row for row in of_json.to_dicts()}
    assert by_name["node_linear_myl4_0"]["matrix_flops"] == 2 * 3136 * 1024
    assert by_name["__myl_CastReshCast_myl4_4"]["flops"] == 0
    assert "Mul, Sum" in by_name["__myl_MulSum_myl4_1"]["reason"]
    assert by_name["__myl_MulSum_myl4_1"]["flops"] is None


@pytest.mark.parametrize(
    ("log", "throughput", "wall", "compute", "runs"),
    [
        ("result-01.log", 15374.3, 3.00013, 1.6586, 46125),
        ("result-03.log", 24896.9, 3.00005, 2.89541, None),
    ],
)
def test_the_performance_summary_of_a_log_is_read_whole(
    cookbook, log, throughput, wall, compute, runs
):
    text = (cookbook / log).read_text()
    found = {row["measure"]: row for row in traces.load(cookbook / log).engine_runs().to_dicts()}
    assert set(found) == {
        "Latency",
        "Enqueue Time",
        "H2D Latency",
        "GPU Compute Time",
        "D2H Latency",
    }
    for measure, row in found.items():
        line = re.search(rf"\] {measure}: (min = .*)", text)
        assert line is not None
        stated = [float(one) for one in re.findall(r"= ([\d.]+) ms", line[1])]
        keys = ("min", "max", "mean", "median", "p90", "p95", "p99")
        assert [row[key] / 1e6 for key in keys] == pytest.approx(stated, rel=1e-12)
        assert (row["throughput"], row["wall_time"]) == (throughput, pytest.approx(wall * 1e9))
        assert row["runs"] == (runs or round(throughput * wall))
    assert found["GPU Compute Time"]["total"] == pytest.approx(compute * 1e9)


def test_the_printed_profile_adds_up_to_its_total(cookbook):
    profile = traces.load(cookbook / "result-05.log")
    part = decode(cookbook / "result-05.log")
    assert part.times is not None
    assert part.times.total is not None
    total = part.times.total
    assert (part.times.runs, len(part.times.layers)) == (18362, 15)
    assert (total.total_ms, total.mean_ms, total.median_ms, total.percentage) == (
        1529.13,
        0.0833,
        0.0804,
        100.0,
    )
    assert sum(one.total_ms for one in part.times.layers) == pytest.approx(1529.13, abs=0.08)
    assert profile.summary()["device_time"].item() / 1e6 == pytest.approx(0.0833, abs=5e-5)
    assert profile.trace["devices"]["name"].to_list() == ["NVIDIA H100 PCIe"]
    assert json.loads(profile.trace["processes"]["versions"][0]) == {"tensorrt": "10.16.1"}


def test_every_layer_of_every_real_file_has_a_role_and_a_precision(shared):
    for path in sorted((shared / "tensorrt").rglob("*.graph.json")):
        for layer in layers_of(json.loads(path.read_text())):
            assert layer.call is not None
            assert layer.role is not None
            assert layer.call.param("precision") in ("i8", "f16", "f32", "tf32")

"""Rebuilt bug reports and files of frameworks, each with its right answer (``cases`` beside the real traces).

Cases that other tests have are not repeated: ``test_planted_truths.py`` runs programs, ``tests/on_*`` live ones.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import polars as pl
import pytest

import opscope
from opscope.core.analysis.ops.lost_kernels import idle_unknown, losses
from opscope.profile import Profile
from opscope.readers import BadInput

MS = 1_000_000


@pytest.fixture(scope="module")
def cases(shared: Path) -> Path:
    folder = shared.parent / "cases"
    if not folder.is_dir():
        pytest.skip(f"no cases at {folder}")
    return folder


def ran(profile: Profile) -> tuple[int, int]:
    kernels = profile.trace["kernels"]
    return len(kernels), int((kernels["end"] - kernels["start"]).sum())


def times_of_ops(profile: Profile) -> dict[str, int]:
    sums = profile.op_totals().group_by("op").agg(pl.col("device_time").sum())
    return dict(sums.rows())


def said(profile: Profile) -> str:
    return " | ".join(map(str, profile.notes()["what"].to_list()))


CONTAINERS = {
    "whole": "bom.json concatenated_arrays.json crlf_jsonl.json double.json.gz garbage_after.json.gz "
    "plain_named.json.gz trace.json trace.tar.gz trace.zip two_members.json.gz unclosed_array.json utf16.json",
    "in part": "truncated.json truncated.json.gz nan.json",
    "empty": "empty.pt.trace.json empty.xplane.pb",
}


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for kind, names in CONTAINERS.items() for name in names.split()]
)
def test_containers(cases, name, kind):
    path = cases / "containers" / name
    if kind == "empty":
        with pytest.raises(BadInput, match="the file is empty"):
            opscope.load(path)
        return
    profile = opscope.load(path)
    if kind == "whole":
        assert ran(profile) == (12, 10_800_000)
        assert profile.of(idle_unknown) is None
    else:
        assert ran(profile)[0] < 12
        assert profile.diagnosis()["finding"].to_list()[0] == "cannot tell"
        assert losses(profile)


REFUSED = {
    "other_files/chakra_et.json": "Chakra",
    "other_files/horovod_timeline.json": "Horovod",
    "other_files/ray_timeline.json": "Ray",
    "other_files/tf1_timeline.json": "TensorFlow 1",
    "other_files/trace.pftrace": "Perfetto",
    "paddle_trace/cpu.paddle_trace.json": "PaddlePaddle",
    "frameworks/paddle_small.json": "PaddlePaddle",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_foreign_file_is_refused_by_its_producers_name(cases, name):
    with pytest.raises(BadInput, match=REFUSED[name]) as error:
        opscope.load(cases / name)
    assert ";" in error.value.what or "reads" in error.value.what  # what to do


def test_a_report_of_nsight_systems_without_nsys_says_how_to_export_it(cases, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BadInput, match="nsys export --type sqlite"):
        opscope.load(cases / "other_files/prof.nsys-rep")


def test_a_memory_snapshot_is_read_as_memory_alone(cases):
    profile = opscope.load(cases / "other_files/snapshot.pickle")
    assert profile.diagnosis()["finding"].to_list() == ["cannot tell"]
    assert len(profile.trace["memory_segments"])


def test_communication_kernels(cases):
    profile = opscope.load(cases / "communication_kernels/trace.json")
    assert ran(profile) == (17, 15_300_000)
    assert profile.communication()["communication_time"].to_list() == [15_300_000]
    overlap = profile.overlap().filter(running_work="communication")
    assert overlap["time"].to_list() == [15_300_000]


def test_corrupt_duration_same_stream(cases):
    profile = opscope.load(cases / "corrupt_duration_same_stream/trace.json")
    assert ran(profile) == (40, 5_808_000)
    assert times_of_ops(profile)["aten::mm"] == 5 * MS
    assert "stream 7" in said(profile)


def test_cpu_only_on_gpu_machine(cases):
    profile = opscope.load(cases / "cpu_only_on_gpu_machine/trace.json")
    assert times_of_ops(profile) == {
        "aten::addmm": 6_960_000,
        "aten::relu": 1_200_000,
        "aten::linear": 240_000,
    }
    assert "no kernels were recorded" in said(profile)


def test_flops_attention_moe_fp8(cases):
    flops = dict(
        opscope.load(cases / "flops_attention_moe_fp8/trace.json")
        .op_totals()
        .select("op", "flops")
        .rows()
    )
    assert flops["aten::_weight_int4pack_mm"] == 2 * 16 * 4096 * 4096
    assert flops["aiter::fmha_v3_varlen_fwd"] is None


def test_gloo_on_other_threads(cases):
    row = opscope.load(cases / "gloo_on_other_threads/trace.json").diagnosis().row(0, named=True)
    assert (row["finding"], row["share"]) == ("communication-bound", pytest.approx(0.864, abs=1e-3))


def test_gpu_clock_before_cpu(cases):
    profile = opscope.load(cases / "gpu_clock_before_cpu/trace.json")
    assert ran(profile) == (18, 5_400_000)
    assert "begin before their launches, by up to 1.50 ms" in said(profile)
    assert "host-bound" not in profile.diagnosis()["finding"].to_list()


def test_merged_ranks_colliding_correlation(cases):
    profile = opscope.load(cases / "merged_ranks_colliding_correlation/trace.json")
    assert times_of_ops(profile) == {"aten::conv2d": 0, "aten::mm": 0}
    assert "share a correlation id" in said(profile)


def test_mtia_event_wait(cases):
    profile = opscope.load(cases / "mtia_event_wait/trace.json")
    assert ran(profile) == (12, 1_200_000)
    assert profile.summary()["device_busy"].to_list() == [1_200_000]


@pytest.mark.parametrize(
    "renamed", [("NVTX_EVENTS",), ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_KERNEL")]
)
def test_nsys_versioned_tables(cases, shared, tmp_path, renamed):
    whole = shared / "nsys_more/fuser_h200_test_matmul.sqlite"
    path = tmp_path / "a.sqlite"
    path.write_bytes(whole.read_bytes())
    with sqlite3.connect(path) as db:
        for name in renamed:
            db.execute(f"ALTER TABLE {name} RENAME TO {name}_V2")
    db.close()
    profile, before = opscope.load(path), opscope.load(whole)
    assert ran(profile) == ran(before)
    assert len(profile.trace["ranges"]) == len(before.trace["ranges"])


@pytest.mark.parametrize("name", ["good", "killed", "trailing_comma"])
def test_onnxruntime_invalid(cases, name):
    profile = opscope.load(cases / f"onnxruntime_invalid/{name}.json")
    assert len(profile.trace["ranges"])
    assert (name == "good") == (not losses(profile) and "left out" not in said(profile))


def test_rocm_no_correlation(cases):
    times = times_of_ops(opscope.load(cases / "rocm_no_correlation/trace.json"))
    assert times == {"aten::mm": MS, "aten::copy_": 32_000}


def test_steps_without_kernels(cases):
    profile = opscope.load(cases / "steps_without_kernels/trace.json")
    assert losses(profile) == ["about 30 of 32 kernels (93.8 %) are missing in the file"]
    assert profile.diagnosis()["finding"].to_list() == ["cannot tell"]


@pytest.mark.parametrize("name", ["python_first", "trace_view"])
def test_torch_npu_trace_view(cases, name):
    profile = opscope.load(cases / f"torch_npu_trace_view/{name}.json")
    assert profile.communication()["communication_time"].to_list() == [64 * MS]
    assert profile.communication()["computation_time"].to_list() == [5_403_000]


def test_tpu_trace_json_gz(cases):
    profile = opscope.load(cases / "tpu_trace_json_gz/host.trace.json.gz")
    assert times_of_ops(profile) == {"hlo::fusion:dot": 2_500_000, "hlo::all-reduce": MS}
    assert profile.op_totals()["flops"].sum() == 20_971_520


def test_unfinished_events(cases):
    profile = opscope.load(cases / "unfinished_events/trace.json")
    assert ran(profile) == (5, 1_250_000)
    assert profile.summary()["wall_time"].to_list() == [5 * MS]


def test_proton_hatchet(cases):
    assert ran(opscope.load(cases / "proton_hatchet/matmul.hatchet"))[0] == 10
    assert ran(opscope.load(cases / "proton_hatchet/proton.chrome_trace"))[0] == 5


@pytest.mark.parametrize("name", ["server_steps", "server_steps_varied"])
def test_server_steps(cases, name):
    phases = opscope.load(cases / f"{name}/trace.json").serving_phases()
    assert dict(phases.select("kind", "steps").rows()) == {"prefill": 4, "decode": 16}


TF_EAGER = {"_EagerConst": 10, "MatMul": 10} | dict.fromkeys(
    ("Relu", "Mean", "Reshape", "Tile", "RealDiv", "ReluGrad", "Mul", "AssignSubVariableOp", "ReadVariableOp"), 5
)  # fmt: skip


def test_files_of_frameworks(cases):
    folder = cases / "frameworks"
    eager = opscope.load(folder / "tf_eager.xplane.pb").op_totals()
    assert dict(eager.group_by("op").agg(pl.col("calls").sum()).rows()) == TF_EAGER
    inner = opscope.load(folder / "jax_range.xplane.pb").range_totals()
    assert dict(inner.select("range", "calls").rows()) == {"inner": 8}
    sort = opscope.load(folder / "jax_sort3.xplane.pb").op_totals().filter(op="hlo::sort")
    assert sort.select("calls", "flops").rows() == [(1, 49_152)]
    portable = opscope.load(folder / "etdump_portable.etdp").op_totals()
    assert set(portable.select("op", "calls", "self_time").rows()) == ETDUMP
    truncated = opscope.load(folder / "ort_truncated_marker.json")
    assert "ONNX Runtime dropped events" in losses(truncated)[0]


#: What executorch.devtools.Inspector 1.5.1 says of the file (ns, of three runs).
ETDUMP = {
    ("native_call_convolution.out", 3, 3_525_664),
    ("native_call_relu.out", 3, 329_064),
    ("native_call_permute_copy.out", 3, 415_321),
    ("native_call_addmm.out", 3, 176_598),
}
COSTS = {
    "aten::sum": (1_047_552, 4_198_400),
    "aten::mul_": (1_048_576, 8_388_608),
    "aten::add_": (40_000, 320_000),
}


def test_ops_of_pytorch_keep_their_cost(cases):
    """``_foreach_add_`` of 40 tensors counts at the 40 additions in it: one level for time and cost."""
    table = opscope.load(cases / "pytorch/P3b.json.gz").op_totals().filter(pl.col("flops") > 0)
    costs = {op: (flops, moved) for op, flops, moved in table.select("op", "flops", "bytes").rows()}
    assert {op: costs[op] for op in COSTS} == COSTS
    assert costs["aten::add"] == (1_048_576, 8_388_608)


def test_a_trace_in_which_nothing_ran_is_no_report(cases):
    with pytest.raises(BadInput, match="recorded nothing"):
        opscope.load(cases / "pytorch/f2.json")


def test_same_rank_twice(cases):
    folder = cases / "same_rank_twice"
    with pytest.raises(BadInput, match="has the same events as"):
        opscope.load([folder / "a.json", folder / "a_copy.json.gz"])


def test_two_cycles_of_one_rank(cases):
    folder = cases / "two_cycles_of_one_rank"
    row = opscope.load([folder / "cycle1.json", folder / "cycle2.json"]).summary()
    assert row.select("processes", "devices", "device_busy", "window_time").rows() == [
        (1, 1, 21_600_000, 29_800_000)
    ]


def test_work_of_divided_tensors_is_the_ranks_own(cases):
    """P4 and tp2: fake-tensor runs count as no work, and shapes of the mesh as none of the rank's."""
    folder = cases / "pytorch"
    assert opscope.load(folder / "P4.json").op_totals()["matrix_flops"].sum() == 393_216
    both = opscope.load([folder / f"tp_trace{rank}.json.gz" for rank in (0, 1)])
    work = both.ops().group_by("process").agg(pl.col("matrix_flops").sum()).sort("process")
    assert work.rows() == [(0, 3_932_160), (1, 3_932_160)]
    sent = both.collectives().select("kind", "group", "dtype", "calls", "message_bytes")
    assert sent.rows() == [("all_reduce", "0", "f32", 6, 6 * 8_192)]
    of_reduce = both.ops().filter(pl.col("op").cast(pl.String).str.contains("all_reduce"))
    assert set(of_reduce["direction"]) == {"communication"}


def test_small_traces_of_pytorch(cases, shared):
    """F3, P1, P2 and to_noop."""
    folder = cases / "pytorch"
    lines = opscope.load(folder / "F3.json").ops().with_columns(pl.col("op").cast(pl.String))
    for op, line in (("tanh", 5), ("exp", 7), ("sigmoid", 8)):
        assert f"F3.py:{line}" in lines.filter(op=f"aten::{op}")["source"][0].split("<")[0]
    memory = opscope.load(folder / "P1.json.gz").memory()
    assert memory["peak_unused"].null_count() == len(memory)
    compiled = opscope.load(folder / "P2.json.gz")
    assert compiled.range_totals()["range"].to_list() == ["outside_region"]
    assert ("Torch-Compiled Region: 0/0", "backward") in compiled.compiled().select(
        "region", "direction"
    ).rows()
    qwen = opscope.load(shared / "kineto/qwen1.5_0.5b_h100.json.gz").ops()
    nothing = qwen.filter(pl.col("op") == "aten::to", "leaf")
    assert (len(nothing), nothing.filter("canonical")["bytes"].sum()) == (52, 0)


def test_more_files_of_frameworks(cases):
    folder = cases / "frameworks"
    costs = opscope.load(folder / "jax_conv_fft.xplane.pb").op_totals()
    assert costs.filter(op="hlo::fft")["flops"].to_list() == [46_080, 46_080]
    sent = opscope.load(folder / "jax_shard4.xplane.pb").collectives()
    assert sent.select("calls", "size").rows() == [(12, 4)] * 5
    sessions = opscope.load(sorted(folder.glob("two_*.json")))
    assert sessions.summary()["processes"].to_list() == [1]
    assert len(opscope.load(folder / "mindspore_graph_5steps").steps()) == 5
    of_input = opscope.load(folder / "tf_keras_fit.xplane.pb").op_totals().filter(direction="input")
    assert {"GatherV2", "RandomShuffle", "Slice"} <= set(of_input["op"])

"""The facade: documented columns, and a saved profile that answers as the trace did."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import opscope
from opscope.core.analysis.ops.kernels import KERNEL_COLUMNS, MEMOP_COLUMNS
from opscope.profile import Profile, load
from opscope.profile_html import readable

FRAMES = (
    "kernels",
    "memops",
    "ops",
    "summary",
    "op_totals",
    "kernel_totals",
    "unattributed",
    "missing_costs",
    "communication",
    "notes",
)


@pytest.fixture
def profile(trace_of) -> Profile:
    place = {"process": 0, "thread": 1}
    texts = ["aten::mm(f32[2,3], f32[3,4]) -> f32[2,4]", "mystery::op(f32[2])"]
    ranges = [
        {**place, "text": text, "domain": "opscope.torch", "category": "forward",
         "kind": "pushpop", "start": 100 * n, "end": 100 * n + 90}
        for n, text in enumerate(texts)
    ]  # fmt: skip
    calls = [
        {
            **place,
            "start": 100 * n + 5,
            "end": 100 * n + 9,
            "name": "cudaLaunchKernel",
            "correlation": n,
        }
        for n in range(3)
    ]
    on_gpu = {"process": 0, "device": 0, "stream": 7}
    kernels = [
        {**on_gpu, "start": 1000 + 50 * n, "end": 1040 + 50 * n, "name": f"k{n}", "correlation": n}
        for n in range(4)
    ]
    memops = [{**on_gpu, "start": 2000, "end": 2010, "kind": "HtoD", "bytes": 64, "correlation": 1}]
    return Profile(trace_of(ranges=ranges, calls=calls, kernels=kernels, memops=memops))


def test_columns_are_the_documented_ones(profile):
    assert tuple(profile.kernels().columns) == KERNEL_COLUMNS
    assert tuple(profile.memops().columns) == MEMOP_COLUMNS


def test_a_saved_profile_answers_as_the_trace_did(profile, tmp_path: Path):
    path = tmp_path / "p.opscope"
    profile.save(path)
    again = opscope.load(path)
    for name in FRAMES:
        frame: pl.DataFrame = getattr(again, name)()
        assert_frame_equal(
            frame, getattr(profile, name)(), categorical_as_str=True, check_row_order=True
        )
    with pytest.raises(FileExistsError):
        profile.save(path)
    profile.save(path, force=True)


def test_what_an_older_analysis_stored_is_worked_out_anew(profile, tmp_path: Path, monkeypatch):
    path = tmp_path / "p.opscope"
    profile.summary()
    profile.save(path)
    monkeypatch.setattr(opscope.profile, "ANALYSIS", 999)
    again = opscope.load(path)
    assert not again._stored
    assert_frame_equal(again.summary(), profile.summary())


def test_a_profile_saved_while_graph_zero_was_taken_for_a_graph_is_read_right(
    profile, tmp_path: Path, monkeypatch
):
    from opscope.core.tables import trace

    path = tmp_path / "p.opscope"
    zero = profile.trace["kernels"].with_columns(graph=0, graph_node=0)
    with monkeypatch.context() as older:
        older.setattr(trace, "_ZERO_IS_NONE", {})
        older.setattr(opscope.profile.profile, "ANALYSIS", opscope.profile.profile.ANALYSIS - 1)
        Profile(profile.trace.replace(kernels=zero)).save(path)
    again = opscope.load(path)
    assert again.kernels()["op"].to_list() == profile.kernels()["op"].to_list()
    assert_frame_equal(again.summary(), profile.summary())
    assert_frame_equal(again.ops(), profile.ops(), categorical_as_str=True)


def test_unknown_is_null_with_a_reason(profile):
    missing = profile.missing_costs()
    assert dict(missing.select("op", "why").iter_rows()) == {
        "mystery::op": "no cost model for mystery::op",
        "k2": "launched outside any op range",
        "k3": "no launch record",
    }
    assert set(missing["lacks"]) == {"FLOPs, bytes"}
    row = profile.summary().row(0, named=True)
    launched = missing.filter(pl.col("why") != "no launch record")
    assert launched["share"].sum() == pytest.approx(1 - row["flops_share"])
    assert row["bytes_share"] == row["flops_share"]
    assert missing.filter(pl.col("op") == "k3")["share"].to_list() == [
        None
    ]  # of the launched time, no part
    kernels = profile.kernels()
    assert kernels["flops"].to_list() == [48, None, None, None]
    assert kernels["reason"].cast(pl.String).to_list() == [
        None, None, "launched outside any op range", "no launch record",
    ]  # fmt: skip


@pytest.mark.parametrize("origin", [{}, {"gpu": True}])
def test_what_has_no_cost_is_listed_without_kernels_too(trace_of, origin):
    place = {"process": 0, "thread": 1, "domain": "opscope.torch", "category": "forward"}
    texts = ["mystery::op(f32[2]) -> f32[2]", "aten::relu(f32[?]) -> f32[?]", "aten::neg(f32[2])"]
    profile = Profile(
        trace_of(
            origin,
            ranges=[
                {**place, "kind": "pushpop", "text": text, "start": 10 * n, "end": 10 * n + 5 + n}
                for n, text in enumerate(texts)
            ],
        )
    )
    missing = profile.missing_costs()
    assert missing.select("op", "lacks", "calls", "time").rows() == [
        ("aten::relu", "FLOPs, bytes", 1, 6),
        ("mystery::op", "FLOPs, bytes", 1, 5),
    ]
    if not origin:
        known = profile.summary()["flops_share"].item()
        assert missing["share"].sum() == pytest.approx(1 - known)


def test_the_roofline_of_a_known_device(trace_of):
    """2·M·N·K at half of the V100's dense fp16 peak is rated at half; an unknown device at nothing."""
    flops = 2 * 4096**3
    duration = round(2 * flops / 125e12 * 1e9)
    place = {"process": 0, "thread": 1}
    tables = {
        "ranges": [
            {**place, "text": "aten::mm(f16[4096,4096], f16[4096,4096]) -> f16[4096,4096]",
             "domain": "opscope.torch", "kind": "pushpop", "start": 0, "end": 90}
        ],
        "calls": [{**place, "start": 5, "end": 9, "name": "cudaLaunchKernel", "correlation": 1}],
        "kernels": [
            {"process": 0, "device": 0, "start": 100, "end": 100 + duration, "correlation": 1,
             "name": "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"}
        ],
    }  # fmt: skip
    device = {"process": 0, "device": 0, "name": "Tesla V100-SXM2-32GB", "cc": "7.0"}
    row = Profile(trace_of(**tables, devices=[device])).efficiency("op").row(0, named=True)
    assert row["matrix_flops"] == flops
    assert row["bound"] == "tensor"
    assert row["efficiency"] == pytest.approx(0.5, rel=0.01)
    nameless = Profile(trace_of(**tables))
    assert nameless.device == (None, "the trace names no device (--gpu gives it a name)")
    assert nameless.efficiency("op")["efficiency"].to_list() == [None]


@pytest.mark.parametrize("name", ["kernels", "summary", "op_totals", "missing_costs"])
@pytest.mark.parametrize("damage", ["column", "type", "rows"])
def test_what_was_stored_and_does_not_fit_is_worked_out_anew(profile, tmp_path, name, damage):
    path = tmp_path / "p.opscope"
    getattr(profile, name)()
    profile.save(path)
    file = path / f"extra.{name}.parquet"
    frame = pl.read_parquet(file)
    if damage == "column":
        frame = frame.drop(frame.columns[0])
    elif damage == "type":
        frame = frame.with_columns(pl.lit(1.5).alias(frame.columns[0]))
    elif name == "kernels":
        frame = frame.head(1)
        meta = path / "meta.json"
        head = json.loads(meta.read_text())
        head["extra"][name]["rows"] = 1
        meta.write_text(json.dumps(head))
    frame.write_parquet(file)
    again = getattr(opscope.load(path), name)()
    assert_frame_equal(again, getattr(profile, name)(), categorical_as_str=True)


def test_a_profile_says_what_it_is_without_working_anything_out(trace_of):
    profile = Profile(trace_of(kernels=[{"name": "<b>k</b>", "start": 0, "end": 5}]))
    profile.trace.origin.update(format="kineto", paths=["a<b>.json", "b.json"])
    assert repr(profile).startswith("<Profile of 1 kernel")
    assert repr(profile).endswith("; kineto from a<b>.json and 1 more>")
    assert "attribution" not in vars(profile)


def test_a_notebook_shows_the_summary_and_no_markup_of_a_strangers(trace_of):
    profile = Profile(trace_of(kernels=[{"name": "k", "start": 0, "end": 5}]))
    profile.trace.origin.update(format="<script>")
    shown = profile._repr_html_()
    assert ">time of the GPU</td><td>5 ns</td>" in shown
    assert "<script>" not in shown


def test_a_notebook_shows_the_first_ops_with_their_times_as_people_write_them(trace_of):
    op = {"process": 0, "thread": 1, "category": "forward", "domain": "opscope.torch",
          "kind": "pushpop"}  # fmt: skip
    profile = Profile(
        trace_of(
            ranges=[
                {
                    **op,
                    "id": 0,
                    "start": 0,
                    "end": 1_234_567,
                    "text": 'aten::mm(f32[2,2]) @"a<b>.py":3',
                },
                {**op, "id": 1, "start": 2_000_000, "end": 2_000_999, "text": "aten::add(f32[2])"},
            ]
        )
    )
    shown = profile._repr_html_()
    assert '<td>1.23 ms</td><td>1</td><td style="text-align:left">aten::mm</td>' in shown
    assert "<td>999 ns</td>" in shown
    assert "<b>" not in shown


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("wall_time", 0, "0 ns"), ("wall_time", 999_999, "1,000 µs"), ("wall_time", 5_000_000_000_000, "5,000 s"),
     ("share", 0.1234, "12.3%"), ("calls", 1234567, "1,234,567"), ("share", None, "")],
)  # fmt: skip
def test_numbers_in_a_notebook_are_as_people_write_them(name, value, text):
    assert readable(name, value) == text


def test_a_frame_is_pandas_by_one_call(trace_of):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    profile = Profile(trace_of(kernels=[{"name": "k", "start": 0, "end": 5, "process": 0}]))
    frame = profile.kernel_totals().to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert len(frame) == 1


def test_a_profile_is_from_where_it_was_loaded(tmp_path, trace_of):
    trace = trace_of(kernels=[{"name": "k", "start": 0, "end": 5, "process": 0}])
    trace.origin.update(paths=["/gone/.hidden/part"])
    Profile(trace).save(tmp_path / "p.opscope")
    assert repr(load(tmp_path / "p.opscope")).endswith(f"from {tmp_path / 'p.opscope'}>")


def test_calls_of_a_runtime_without_kernels_are_not_no_gpu(trace_of):
    call = {"name": "cudaLaunchKernel", "start": 1, "end": 2, "process": 0, "thread": 1}
    op = {"id": 0, "start": 0, "end": 9, "process": 0, "thread": 1, "category": "forward"}
    op |= {"domain": "opscope.torch", "text": "aten::mm", "kind": "pushpop"}
    profile = Profile(trace_of(ranges=[op], calls=[call]))
    assert not profile.cpu_only
    row = profile.summary().row(0, named=True)
    assert row["kernel_time"] is row["device_time"] is row["unattributed_time"] is None
    assert profile.ops()["device_time"].to_list() == [None]


def test_where_neither_ops_nor_steps_were_recorded_no_time_is_known(trace_of):
    profile = Profile(trace_of())
    assert profile.summary()["kernel_time"].item() is None
    assert profile.unattributed().is_empty()
    assert profile.gaps().is_empty()

"""Files of a profile whose columns lie in mapped files are those that are written from memory."""

from __future__ import annotations

import gc
import shutil
import tracemalloc

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import opscope
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.ops.windows import bounds
from opscope.core.analysis.summary.summary import ended_steps
from opscope.core.tables import columns, intervals, mapped
from opscope.core.tables.lanes import lanes
from opscope.core.tables.trace import Trace
from opscope.exports import formats
from opscope.exports.timeline import Timeline
from opscope.profile import Profile
from opscope.readers.profile import profile_folder
from tests.draws import dear
from tests.script import module_at

TRACES = (
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nvprof/language_model.sqlite",
)
OF_SLICES = [name for name, one in formats.FORMATS.items() if one.scratch]


def files(folder, made):
    found = {}
    for name in OF_SLICES:
        formats.export(opscope.load(folder), name, made / name)
        found[name] = (made / name).read_bytes()
    return found


def same_in_files(folder, made, monkeypatch, piece):
    """The files of a saved profile from memory and from mapped files are equal, both ``piece`` rows at a time."""
    maps = []
    let_go = mapped.let_go
    with monkeypatch.context() as changed:
        changed.setenv("OPSCOPE_KEEP", "0")
        changed.setattr(columns, "PIECE", piece)
        changed.setattr(intervals, "_APART", piece)
        whole = files(folder, made)
        changed.setattr(mapped, "LEAST", 1)
        changed.setattr(profile_folder, "_ROWS_IN_MEMORY", 0)
        changed.setattr(
            "opscope.exports.timeline.let_go", lambda: (maps.append(len(mapped._maps)), let_go())
        )
        parts = files(folder, made)
    assert max(maps) > 0
    assert [name for name in whole if whole[name] != parts[name]] == []


@pytest.mark.parametrize("name", TRACES)
def test_files_of_real_traces(shared, tmp_path, monkeypatch, name):
    opscope.load(shared / name).save(tmp_path / "run.opscope")
    same_in_files(tmp_path / "run.opscope", tmp_path, monkeypatch, 20_000)


@st.composite
def trainings(draw):
    """Ops on two threads, forward and backward, each with a call and a kernel, in layers and steps."""
    ops = draw(
        st.lists(
            st.tuples(st.booleans(), st.integers(1, 6), st.integers(1, 3)), min_size=1, max_size=25
        )
    )
    steps = draw(st.booleans())
    ranges, calls, kernels = [], [], []
    time = 0
    for number, (backward, took, layer) in enumerate(ops):
        begin, end, thread = time, time + 10 * took, 2 if backward else 1
        kind = "backward" if backward else "forward"
        if steps and number % 5 == 0:
            ranges.append((begin, end + 40, 1, f"step {number // 5}", "step", None))
        if not backward:
            ranges.append((begin, end, 1, f"net.{layer}", "layer", None))
        text = "MmBackward0()" if backward else f"aten::linear(f16[{took},8], f16[8,8])"
        ranges.append((begin + 1, end - 1, thread, text, kind, layer))
        ranges.append(
            (begin + 2, end - 2, thread, f"aten::mm(f16[{took},8], f16[8,8])", kind, None)
        )
        calls.append((begin + 3, begin + 5, thread, number, "cudaLaunchKernel"))
        kernels.append((begin + draw(st.integers(3, 30)), took, number, f"k{number % 3}"))
        time = end + draw(st.integers(0, 5))
    same = {"process": pl.lit(0, pl.Int32)}
    names = ["start", "end", "thread", "text", "category", "seq"]
    made = pl.DataFrame(ranges, names, orient="row", schema_overrides={"seq": pl.Int64})
    launched = pl.DataFrame(kernels, ["start", "took", "correlation", "name"], orient="row")
    return {
        "ranges": made.with_columns(
            **same, domain=pl.lit("opscope.torch"), fwd_thread=pl.lit(1, pl.Int64)
        ).sort("start", maintain_order=True),
        "calls": pl.DataFrame(
            calls, ["start", "end", "thread", "correlation", "name"], orient="row"
        ).with_columns(**same),
        "kernels": launched.with_columns(
            **same, end=pl.col("start") + pl.col("took"), device=pl.lit(0), stream=pl.lit(7)
        ).drop("took"),
        "devices": pl.DataFrame({"process": [0], "device": [0], "name": ["NVIDIA H100 80GB HBM3"]}),
    }


@dear
@given(tables=trainings(), piece=st.integers(1, 9))
def test_files_of_any_training(tmp_path_factory, monkeypatch, tables, piece):
    made = tmp_path_factory.mktemp("made")
    Profile(Trace.of(tables)).save(made / "run.opscope")
    same_in_files(made / "run.opscope", made, monkeypatch, piece)


@dear
@given(tables=trainings(), piece=st.integers(1, 9))
def test_what_is_found_in_small_parts_is_what_is_found_at_once(monkeypatch, tables, piece):
    def found():
        profile = Profile(Trace.of(tables))
        launched = profile.attribution.kernels
        lane = lanes(profile.trace["ranges"])
        return [
            launched.call, launched.op, profile.attribution.parent, lane.of, lane.keys,
            profile.of(op_index).direction(profile.of(op_index).rows), profile.of(op_index).forward_of(profile.of(op_index).rows),
            bounds(profile.trace).rows(), ended_steps(profile.attribution.trace["ranges"]).rows(),
        ]  # fmt: skip

    at_once = found()
    with monkeypatch.context() as changed:
        changed.setattr(columns, "PIECE", piece)
        for one, other in zip(at_once, found(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_nothing_is_left_beside_the_file(shared, tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "LEAST", 1)
    monkeypatch.setattr(profile_folder, "_ROWS_IN_MEMORY", 0)
    opscope.load(shared / TRACES[2]).save(tmp_path / "run.opscope")
    formats.export(opscope.load(tmp_path / "run.opscope"), "perfetto", tmp_path / "x.pftrace")
    assert {one.name for one in tmp_path.iterdir()} == {"run.opscope", "x.pftrace"}


def test_what_linking_holds_in_memory_hardly_grows_with_the_events(tmp_path, monkeypatch):
    """NumPy's arrays in memory until the first slices are told, which is when whole columns would be held:
    linking takes 19 bytes a kernel, and what is forward is told of a thread's ops together, which takes 62 for
    that time. Polars' memory is not counted."""
    make = module_at("benchmarks/make_training.py").make
    monkeypatch.setenv("OPSCOPE_KEEP", "0")
    monkeypatch.setattr(columns, "PIECE", 2_000)
    monkeypatch.setattr(intervals, "_APART", 2_000)
    monkeypatch.setattr(mapped, "LEAST", 1 << 12)
    monkeypatch.setattr(profile_folder, "_ROWS_IN_MEMORY", 2_000)
    peaks = []
    for kernels in (20_000, 20_000, 60_000):  # the first time modules are loaded
        make(tmp_path / f"{kernels}.opscope", kernels)
        gc.collect()
        tracemalloc.start()
        timeline = Timeline(opscope.load(tmp_path / f"{kernels}.opscope"), tmp_path)
        for _, slices in timeline.slices():
            slices.details(slices.stack.rows[:100])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        shutil.rmtree(tmp_path / f"{kernels}.opscope")
    assert (peaks[2] - peaks[1]) / 40_000 < 70

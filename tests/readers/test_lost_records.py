"""Kernels that are missing in files of AMD's and Ascend's profilers: counted, or said not to be known."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import opscope
from opscope.core.analysis.ops import lost_kernels
from opscope.core.analysis.ops.lost_kernels import idle_unknown, losses
from opscope.profile import Profile
from tests.readers.rocm import made

COUNT = 300
WAYS = {
    "nothing": set(),
    "at random": set(random.Random(5).sample(range(COUNT - 1), 45)),
    "half": set(random.Random(6).sample(range(COUNT - 1), 150)),
    "at the start": set(range(45)),
    "in a row": set(range(100, 145)),
}
FORMATS = {
    "csv": lambda folder: made.v3_folder(folder / "v3"),
    "rocpd 3": lambda folder: made.rocpd(folder / "a.db"),
    "rocpd 4.1": lambda folder: made.rocpd(folder / "a.db", "4.1"),
    "json": lambda folder: made.tool_json(folder / "a_results.json"),
}


def rocprofv3(monkeypatch, folder: Path, kind: str, gone: set[int], calls: bool) -> Profile:
    """A run of many kernels without some of them, with the calls that launched them or without."""
    each = range(COUNT)
    kernels = [
        (10 + n, 1 + n, 2000 + 1000 * n, 2500 + 1000 * n, (64, 1, 1), (64, 1, 1)) for n in each
    ]
    monkeypatch.setattr(
        made, "DISPATCHES", tuple(k for n, k in enumerate(kernels) if n not in gone)
    )
    launch = "hipLaunchKernel" if calls else "hipGetDevice"
    called = [
        (launch, 1500 + 1000 * n, 1600 + 1000 * n, (10 if calls else 10_000) + n) for n in each
    ]
    monkeypatch.setattr(made, "CALLS", tuple(called))
    monkeypatch.setattr(made, "COUNTS", (("SQ_WAVES", COUNT, 1.0),))
    monkeypatch.setattr(made, "COPY", (99_999, 4700, 4900, 4096))
    return opscope.load(FORMATS[kind](folder))


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", FORMATS)
def test_kernels_that_files_of_rocprofv3_lack_are_counted(monkeypatch, tmp_path, kind, way, calls):
    profile = rocprofv3(monkeypatch, tmp_path, kind, WAYS[way], calls)
    assert profile.lost_kernels()["lost_kernels"].to_list() == [len(WAYS[way])]
    assert (profile.of(idle_unknown) is None) == (way == "nothing")


def test_numbers_that_are_missing_in_a_long_row_may_be_a_pause(monkeypatch, tmp_path):
    profile = rocprofv3(monkeypatch, tmp_path, "csv", set(range(100, 200)), calls=False)
    row = profile.lost_kernels().row(0, named=True)
    assert (row["lost_kernels"], row["reason"]) == (None, lost_kernels.NO_LAUNCHES)


@pytest.mark.parametrize("share", [0, 0.05, 0.3])
def test_rocprof_numbers_what_a_filter_leaves_out_so_it_cannot_tell(shared, tmp_path, share):
    head, *rows = (shared / "rocm/rocprofv1_gfx1201_llamacpp/results.csv").read_text().splitlines()
    gone = set(random.Random(3).sample(range(len(rows) - 1), round(share * len(rows))))
    kept = [row for number, row in enumerate(rows) if number not in gone]
    (tmp_path / "results.csv").write_text("\n".join([head, *kept]) + "\n")
    profile = opscope.load(tmp_path / "results.csv")
    row = profile.lost_kernels().row(0, named=True)
    assert row["lost_kernels"] is None
    assert losses(profile) == ([row["reason"]] if share else [])
    assert (profile.of(idle_unknown) is None) == (not share)
    assert (f"({len(gone):,} numbers)" in row["reason"]) == bool(share)


@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.3])
def test_kernels_that_steps_of_a_static_graph_lack_are_counted(shared, share):
    profile = opscope.load(shared / "mindspore/mindinsight_cluster")
    kernels = profile.trace["kernels"]
    gone = np.random.default_rng(2).random(len(kernels)) < share
    left = Profile(profile.trace.replace(kernels=kernels.filter(pl.Series(~gone))))
    process = kernels["process"].to_numpy()
    for row in left.lost_kernels().iter_rows(named=True):
        number = int(gone[process == row["process"]].sum())
        assert abs(row["lost_kernels"] - number) <= max(2, 0.1 * number)
        assert row["reason"] == lost_kernels.ANY_STREAM
    assert (left.of(idle_unknown) is None) == (share == 0)


def is_task_of(stream: int, event: dict) -> bool:
    return (event["ph"], event["pid"], event["tid"]) == ("X", 3, stream)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("stream", "shows"),
    [(2, "it computed"), (3, "tasks of coll"), (12, "tasks of coll"), (4, None)],
)
def test_a_stream_that_an_ascend_lost_whole_is_told(shared, tmp_path, stream, shows, named):
    """By CANN's own analysis, by the planes of collectives, or by its name: stream 4 waits, and ran two tasks
    of the AI CPU; without its name nothing tells of it."""
    events = json.loads((shared / "mindspore/msprof_device0/msprof_0_2_1.json").read_text())
    path = tmp_path / "msprof_0_2_1.json"
    path.write_text(json.dumps(events))
    whole = opscope.load(path)
    assert (losses(whole), whole.of(idle_unknown)) == ([], None)
    left = [event for event in events if not is_task_of(stream, event)]
    if not named:
        left = [event for event in left if (event["pid"], event["tid"]) != (3, stream)]
    path.write_text(json.dumps(left))
    profile = opscope.load(path)
    said = " ".join(losses(profile))
    assert ("streams that the file names" in said) == named
    assert shows is None or shows in said
    told = named or shows is not None
    assert (profile.of(idle_unknown) is not None) == told
    assert profile.lost_kernels()["reason"].to_list() == [lost_kernels.NO_LAUNCHES]
    if told:
        assert profile.diagnosis()["finding"].to_list() == ["cannot tell"]


def test_arrows_that_end_where_no_kernel_ran_are_told(shared, tmp_path):
    path = shared.parent / "cases/torch_npu_trace_view/trace_view.json"
    assert losses(opscope.load(path)) == []
    events = json.loads(path.read_text())
    kernels = [event for event in events if event["name"].startswith("aclnn")]
    for gone in (kernels[:1], kernels):
        (tmp_path / path.name).write_text(json.dumps([e for e in events if e not in gone]))
        (said,) = losses(opscope.load(tmp_path / path.name))
        assert "arrows from launches that end where no task ran" in said
        assert ("(6)" in said) == (gone == kernels)

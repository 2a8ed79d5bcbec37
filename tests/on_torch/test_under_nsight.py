"""PyTorch under the real Nsight Systems, where that is installed: what it tells is what the recorder tells.

``OPSCOPE_NSYS=/a/nsys:/b/nsys pytest -m slow tests/on_torch/test_under_nsight.py`` tries several versions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import opscope
from tests import nsight_programs as programs
from tests import nsight_tool as tool

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("nsys", tool.skip_without())]


@pytest.mark.parametrize("name", ["EAGER", "COMPILED", "THREADS"])
def test_every_op_is_told_as_the_recorder_tells_it(nsys: str, tmp_path: Path, name: str) -> None:
    ran, recorded = tool.run(nsys, getattr(programs, name), tmp_path)
    # a thread's last step, which nothing ended, lasts to the recording's end, and is cut in Nsight's report:
    # what other threads do meanwhile is in it or not
    without = ("step",) if name == "THREADS" else ()
    found = tool.compare(ran.sqlite, recorded, without)
    assert found.ops[1] > 200
    assert not found.differences, found.table()
    assert without or found.steps[0] == found.steps[1] > 3
    assert found.links[0] == found.links[1] >= 20


def test_forked_processes_keep_their_meaning(nsys: str, tmp_path: Path) -> None:
    ran, recorded = tool.run(nsys, programs.FORKED, tmp_path)
    found = tool.compare(ran.sqlite, recorded)
    assert found.processes == (4, 4)
    assert not found.differences, found.table()
    # Nsight has not what a worker did last, as that leaves by os._exit
    assert sum(found.lost.values()) < found.ops[1] / 4, found.table()
    parents = opscope.load(ran.sqlite).trace["processes"]["parent"]
    assert parents.null_count() == 1


def test_ranks_of_torchrun_are_told(nsys: str, tmp_path: Path) -> None:
    ran, recorded = tool.run(nsys, programs.RANKS, tmp_path, ranks=True)
    found = tool.compare(ran.sqlite, recorded)
    assert not found.differences, found.table()
    processes = opscope.load(ran.sqlite).trace["processes"].drop_nulls("rank").sort("rank")
    assert processes.select("rank", "world_size").rows() == [(0, 2), (1, 2)]


def test_a_text_that_was_cut_has_no_cost_and_keeps_its_place(nsys: str, tmp_path: Path) -> None:
    ran, recorded = tool.run(nsys, programs.FOREACH, tmp_path)
    profile, whole = opscope.load(ran.sqlite), opscope.load(recorded)
    name = "aten::_foreach_addcdiv_.ScalarList"
    ours = [row for row in profile.ops().iter_rows(named=True) if row["op"] == name]
    theirs = [row for row in whole.ops().iter_rows(named=True) if row["op"] == name]
    assert len(ours) == len(theirs) >= 2
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine["flops"], mine["bytes"]) == (None, None)
        assert other["bytes"] > 1_000_000
        assert (mine["device"], mine["source"]) == (other["device"], other["source"])
    missing = profile.missing_costs().filter(op=name)
    assert "the text of the call was cut" in missing["why"][0]
    assert "over 4 KiB" in " ".join(profile.notes()["what"].cast(str).to_list())


@pytest.mark.parametrize("traces", ["osrt", "cuda"])
def test_without_nvtx_the_recorder_records_and_says_so(
    nsys: str, tmp_path: Path, traces: str
) -> None:
    program = (
        f"import opscope\nwith opscope.capture('own.opscope'):\n    exec({programs.EAGER!r})\n"
    )
    (tmp_path / "program.py").write_text(program)
    ran = tool.profile(nsys, [sys.executable, "program.py"], tmp_path, traces=traces)
    assert "without -t nvtx" in ran.stderr + ran.stdout
    profile = opscope.load(tmp_path / "own.opscope")
    assert profile.summary()["steps"].item() == 5
    assert "without -t nvtx" in " ".join(profile.notes()["what"].cast(str).to_list())


def test_the_last_line_of_a_run_says_where_the_data_is(nsys: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(programs.EAGER)
    run = [sys.executable, "-m", "opscope", "run", "--no-report", "--"]
    around = tool.profile(nsys, [*run, sys.executable, "program.py"], tmp_path)
    line = f"opscope report {around.report}"
    assert line in around.stderr + around.stdout
    assert "nothing was recorded" not in around.stderr + around.stdout
    assert "no NVTX tool was attached" not in around.stderr + around.stdout
    assert opscope.load(around.sqlite).summary()["steps"].item() == 5

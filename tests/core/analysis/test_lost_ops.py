"""Lost ops: how many are missing where steps repeat, and that nothing is concluded from what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import opscope
from opscope.core.analysis.ops.lost_calls import unrecorded
from opscope.core.analysis.ops.lost_kernels import losses, ops_unknown
from opscope.core.analysis.ops.lost_ops import presence, share_missing
from opscope.core.analysis.ops.spans import EVERY, inside
from opscope.core.tables.trace import Trace
from opscope.profile import Profile

NODES = 40


@pytest.mark.parametrize("steps", [3, 5, 20])
@pytest.mark.parametrize("missing", [0.01, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("equal", [True, False])
def test_the_share_of_evenly_lost_records_is_within_10_percent(steps, missing, equal):
    there = np.random.default_rng(5).random((3_000, steps)) >= missing
    present = there.sum(axis=1)
    share = share_missing([(present[present > 0], steps)], all_steps_equal=equal)
    assert share == pytest.approx(float((~there).mean()), rel=0.1)


def test_slots_that_few_steps_have_by_nature_are_no_loss():
    present = np.array([6] * 100 + [1] * 50)
    assert share_missing([(present, 6)]) == pytest.approx(0, abs=1e-9)


def test_a_slot_that_a_step_has_twice_is_none():
    assert presence(np.array([1, 1, 1, 2, 2]), np.array([0, 0, 1, 0, 1])).tolist() == [2]


@pytest.mark.parametrize("name", ["nccl_meta", "ddp_rank3of8_a100_stacks"])
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_evenly_lost_ops_of_real_traces_are_within_10_percent(shared, name, share):
    """scripts/lost_kernels.py --ops has six traces and six shares."""
    profile = opscope.load(shared / f"kineto/{name}.json.gz")
    ranges = profile.trace["ranges"]
    is_op = profile.attribution.is_op[: len(ranges)]
    gone = is_op & (np.random.default_rng(2).random(len(ranges)) < share)
    left = Profile(profile.trace.replace(ranges=ranges.filter(pl.Series(~gone))))
    assert left.lost_kernels()["lost_ops"].sum() == pytest.approx(int(gone.sum()), rel=0.1)


def test_launches_that_are_missing_while_ops_were_recorded_are_counted(shared):
    """As where the calls' own buffer wrapped; kernels from before the recording are none of them."""
    profile = opscope.load(shared / "kineto/sampled_rank0.json.gz")
    calls, kernels = profile.trace["calls"], profile.trace["kernels"]
    cut = int(calls["start"].quantile(0.4))
    left = Profile(profile.trace.replace(calls=calls.filter(pl.col("start") >= cut)))
    launched = kernels.join(
        calls.filter(pl.col("start") < cut).drop_nulls("correlation"), on="correlation", how="semi"
    )
    number = left.lost_kernels()["lost_launches"].sum()
    assert number == pytest.approx(len(launched), rel=0.1)
    assert f"{number:,} launches of kernels are missing in the file" in losses(left)


def session(path: Path, runs: int, gone: set[int] = frozenset(), loop: bool = False) -> Profile:
    """A profile of ONNX Runtime without some of its nodes; a loop's body runs another number of times each run."""
    events = [{"cat": "Session", "name": "session_initialization", "ts": 1, "dur": 10}]
    at, nodes = 100, 0
    for run in range(runs):
        begun = at
        for number in range(NODES):
            turns = 1 + run if loop and number == 7 else 0
            if nodes not in gone:
                events.append(
                    node(f"/net/fc{number}", "Loop" if turns else "Gemm", at + 1, 8 + 10 * turns)
                )
            nodes += 1
            events += [node(f"inner{turn}", "Add", at + 3 + 10 * turn, 5) for turn in range(turns)]
            at += 10 + 10 * turns
        events.append({"cat": "Session", "name": "model_run", "ts": begun, "dur": at - begun})
        at += 50
    for event in events:
        event |= {"pid": 1, "tid": 1, "ph": "X"}
    path.write_text(json.dumps(events))
    return opscope.load(path)


def node(name: str, op: str, ts: int, dur: int) -> dict[str, object]:
    return {"cat": "Node", "name": f"{name}_kernel_time", "ts": ts, "dur": dur,
            "args": {"op_name": op, "provider": "CPUExecutionProvider"}}  # fmt: skip


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3])
def test_nodes_that_runs_of_a_session_lack_are_lost_and_nothing_is_concluded(tmp_path, share):
    every = 8 * NODES
    gone = set(np.random.default_rng(4).choice(every, round(share * every), False).tolist())
    profile = session(tmp_path / "onnxruntime_profile_1.json", 8, gone)
    number = profile.lost_kernels()["lost_ops"][0]
    assert abs(number - len(gone)) <= max(2, 0.1 * len(gone))
    assert losses(profile)[0].startswith(f"about {number} ops")
    finding, text = profile.diagnosis().select("finding", "text").row(0)
    assert finding == "cannot tell"
    assert losses(profile)[0] in text


@pytest.mark.parametrize("loop", [False, True])
def test_a_session_that_lacks_nothing_gives_no_alarm(tmp_path, loop):
    profile = session(tmp_path / "onnxruntime_profile_1.json", 5, loop=loop)
    assert profile.lost_kernels()["lost_ops"].to_list() == [0]
    assert (losses(profile), profile.of(ops_unknown)) == ([], None)


def test_of_two_runs_it_cannot_tell(tmp_path):
    profile = session(tmp_path / "onnxruntime_profile_1.json", 2, {3, 9})
    assert profile.lost_kernels()["lost_ops"].to_list() == [None]


def test_no_time_is_inside_spans_of_nothing():
    none = np.array([], np.int64)
    one = np.zeros(1, np.int64)
    assert inside({(0, EVERY): (none, none)}, one, one, one).tolist() == [False]


def cut(profile: Profile, low: float, high: float) -> Profile:
    """The profile without what began in a stretch of its time, as where a ring wrapped or a file lost its middle."""
    calls = profile.trace["calls"]
    first, last = int(calls["start"].min()), int(calls["start"].max())
    since, until = (first + round(share * (last - first)) for share in (low, high))
    left = pl.col("start").is_between(since, until, closed="left").not_()
    tables = {
        name: profile.trace[name].filter(left)
        for name in ("calls", "kernels", "ranges", "memops", "syncs")
    }
    return Profile(profile.trace.replace(**tables))


@pytest.mark.parametrize("name", ["kineto/nccl_meta.json.gz", "nsys/fsdp_h100x2_2026.sqlite"])
@pytest.mark.parametrize(("low", "high"), [(0.4, 0.5), (0.3, 0.7)])
def test_a_stretch_without_records_in_which_calls_were_numbered_is_told(shared, name, low, high):
    profile = opscope.load(shared / name)
    assert profile.lost_kernels()["lost_calls"].sum() == 0
    left = cut(profile, low, high)
    gone = len(profile.trace["calls"]) - len(left.trace["calls"])
    assert left.lost_kernels()["lost_calls"].sum() == pytest.approx(gone, rel=0.15)
    said = next(text for text in losses(left) if text.startswith("nothing was recorded for"))
    assert left.diagnosis()["finding"][0] == "cannot tell"
    assert said in left.diagnosis()["text"][0]
    assert left.idle()["host_wait"].null_count() == len(left.idle())


@pytest.mark.parametrize("calls", [0, 400])
def test_a_pause_of_the_program_is_no_stretch_that_was_lost(calls):
    """300 calls, a pause of as long, 300 calls: whether calls were numbered meanwhile decides."""
    number = np.concatenate([np.arange(300), np.arange(300) + 300 + calls])
    start = np.arange(600) * 1000 + np.where(np.arange(600) >= 300, 400_000, 0)
    table = pl.DataFrame({"process": 0, "thread": 1, "start": start, "end": start + 500, "name": "cudaLaunchKernel",
                          "correlation": number}, schema_overrides={"process": pl.Int32})  # fmt: skip
    assert unrecorded(Trace.of({"calls": table}, {}), 0) == (calls, 401_000 if calls else 0)


def test_kernels_without_any_launch_have_no_cause_though_other_calls_were_recorded(shared):
    profile = opscope.load(shared / "kineto/timesformer_h100.json.gz")
    calls = profile.trace["calls"]
    waits = calls.filter(pl.col("name").cast(pl.String).str.contains("Synchronize"))
    left = Profile(profile.trace.replace(calls=waits))
    number = len(profile.trace["kernels"])
    assert left.lost_kernels()["lost_launches"].to_list() == [number]
    assert "host-bound" not in left.diagnosis()["finding"].to_list()


def test_ranges_alone_carry_no_cause(tmp_path):
    """As of a profiler without ProfilerActivity.CPU, or of a ring that kept them alone."""
    marks = [{"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "ts": 100 * n, "dur": 90,
              "name": f"ProfilerStep#{n}"} for n in range(9)]  # fmt: skip
    marks += [mark | {"name": "nccl:all_reduce", "dur": 10} for mark in marks]
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100"}],
        "traceEvents": marks,
    }
    (tmp_path / "t.json").write_text(json.dumps(document))
    profile = opscope.load(tmp_path / "t.json")
    finding, text = profile.diagnosis().select("finding", "text").row(0)
    assert (finding, "ranges alone" in text) == ("cannot tell", True)
    assert profile.diagnosis()["finding"].to_list() == ["cannot tell"]


@pytest.mark.parametrize("runs", [3, 4, 10])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_the_number_of_lost_nodes_says_how_far_it_may_be_off(tmp_path, runs, share):
    every = runs * NODES
    for seed in range(5):
        gone = set(np.random.default_rng(seed).choice(every, round(share * every), False).tolist())
        profile = session(tmp_path / "onnxruntime_profile_1.json", runs, gone)
        number, error = profile.lost_kernels().select("lost_ops", "lost_error").row(0)
        (said,) = losses(profile)
        if number is None:
            assert runs == 3 or share == 0.5
            least, most = map(int, said.partition(" ops are missing")[0].split(" to "))
            assert (most - least, profile.of(ops_unknown)) == (4 * error, said)
            number = (least + most) / 2
        else:
            assert said.startswith(f"about {number} ops")
        assert abs(number - len(gone)) <= max(runs, 3 * error)  # a node that no run has

"""Memory in a real Kineto trace: PyTorch's own totals hold, and the peak is made of blocks."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict

import polars as pl
import pytest

from tests import traces


@pytest.fixture(scope="module")
def profile(shared):
    return traces.load(shared / "kineto" / "ddp_memory_v100.json.gz")


def test_each_change_is_what_the_total_grew_by(profile):
    changes = profile.trace["allocations"].sort("device", "time", maintain_order=True)
    grown = changes.select(
        (pl.col("total").diff().over("device") == pl.col("bytes")).alias("same")
    )["same"].drop_nulls()
    assert len(grown) == 28_010 - 2
    assert grown.all()


def test_allocated_less_released_is_what_the_total_grew_by(profile):
    rows = profile.memory().to_dicts()
    assert [(r["device"], r["allocations"], r["allocated"] - r["released"]) for r in rows] == [
        (-1, 620, 0),
        (1, 13_385, 0),
    ]
    gpu = rows[1]
    assert (gpu["peak_memory"], gpu["reserved"]) == (6_629_508_096, 12_782_141_440)


def test_the_peak_is_made_of_what_ops_held_and_what_was_there(profile):
    by_op = profile.memory_by_op().filter(pl.col("device") == 1)
    assert by_op["at_peak"].sum() == 6_629_508_096
    before = by_op.filter(pl.col("reason").is_not_null())
    assert before["reason"].to_list() == ["in use before the first event"]
    # the trace begins and ends between two steps, with the same in use
    assert before["at_peak"].item() == profile.memory()["in_use"][1]
    assert (by_op["at_peak"] >= 0).all()
    mm = by_op.filter((pl.col("op").cast(pl.String) == "aten::mm") & (pl.col("at_peak") > 0))
    assert set(mm["direction"].cast(pl.String)) == {"backward"}  # gradients


#: Kineto files with memory events that have addresses and totals.
FULL = ("ddp_memory_v100", "qwen1.5_0.5b_h100", "timesformer_h100", "vllm_decode_cudagraph_capture")
#: One from before PyTorch recorded addresses and totals.
EARLY = "resnet50_nw0_step_span1.pt.trace"


def read(shared, name):
    """The profile of a file, and its events as PyTorch wrote them."""
    path = shared / "kineto" / f"{name}.json.gz"
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return traces.load(path), events


def memory_of(events):
    found = [e for e in events if e.get("name") == "[memory]"]
    return sorted(found, key=lambda e: e["ts"])


def device_of(event):
    return -1 if event["args"]["Device Type"] == 0 else event["args"]["Device Id"]


@pytest.mark.parametrize("name", FULL)
def test_the_peak_is_the_largest_total_that_pytorch_wrote(shared, name):
    profile, events = read(shared, name)
    totals, reserved = defaultdict(int), defaultdict(int)
    for event in memory_of(events):
        device = device_of(event)
        totals[device] = max(totals[device], event["args"]["Total Allocated"])
        reserved[device] = max(reserved[device], event["args"]["Total Reserved"])
    rows = profile.memory().to_dicts()
    assert {row["device"]: row["peak_memory"] for row in rows} == totals
    assert {row["device"]: row["reserved"] or 0 for row in rows} == reserved
    for points in (6, 50, 10_000):
        curve = profile.memory_curve(points=points)
        peaks = curve.group_by("device").agg(pl.col("in_use").max(), pl.len())
        assert dict(peaks.select("device", "in_use").rows()) == totals
        assert peaks["len"].max() <= points
    kinds = profile.memory_kinds().group_by("device").agg(pl.col("at_peak").sum())
    assert dict(kinds.rows()) == totals


@pytest.mark.parametrize("name", FULL)
def test_blocks_are_those_of_a_walk_through_the_file(shared, name):
    profile, events = read(shared, name)
    walked, alive = Counter(), {}
    for event in memory_of(events):
        args = event["args"]
        key = device_of(event), args["Addr"]
        if args["Bytes"] > 0:
            alive[key] = args["Bytes"], event["ts"]
        elif args["Bytes"] < 0:
            size, since = alive.pop(key)
            walked[key[0], size, round((event["ts"] - since) * 1000)] += 1
    blocks = profile.memory_events()
    assert blocks["reason"].null_count() == len(blocks) == walked.total()
    # times in the file are µs as doubles, so a difference of two may be a few hundred ns off
    found = blocks.select("device", "bytes", "duration").sort("device", "bytes", "duration")
    want = sorted(walked.elements())
    assert [row[:2] for row in found.rows()] == [row[:2] for row in want]
    assert all(abs(a[2] - b[2]) < 1000 for a, b in zip(found.rows(), want, strict=True))


@pytest.mark.parametrize("name", [*FULL, EARLY])
def test_ops_have_what_a_walk_through_the_file_gives_them(shared, name):
    """For each event all ops that are open on its thread; an op inside one of its name counts once."""
    profile, events = read(shared, name)
    ops = defaultdict(list)
    for event in events:
        is_op = event.get("ph") == "X" and event.get("cat") in ("cpu_op", "Operator")
        if is_op and not event["name"].startswith("ProfilerStep#"):
            ops[str(event["tid"])].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    for one in ops.values():
        one.sort(key=lambda op: (op[0], -op[1]))
    want = defaultdict(lambda: [0, 0, 0, 0])
    by_thread = defaultdict(list)
    for event in memory_of(events):
        by_thread[str(event["tid"])].append(event)
    for thread, changes in by_thread.items():
        stack, waiting = [], iter(ops[thread])
        following = next(waiting, None)
        for event in changes:
            while following and following[0] <= event["ts"]:
                while stack and stack[-1][1] <= following[0]:
                    stack.pop()
                stack.append(following)
                following = next(waiting, None)
            open_ops = [op[2] for op in stack if op[0] <= event["ts"] < op[1]]
            size, device = event["args"]["Bytes"], device_of(event)
            if open_ops:
                want[device, open_ops[-1]][0] += size
                want[device, open_ops[-1]][1] += max(size, 0)
            for op in set(open_ops):
                want[device, op][2] += size
                want[device, op][3] += max(size, 0)
    columns = ("self_increase", "self_allocated", "increase", "allocated")
    found = {
        (row["device"], row["op"]): [row[column] for column in columns]
        for row in profile.memory_ops().filter(pl.col("op").is_not_null()).to_dicts()
    }
    assert found == dict(want)


def test_ops_have_the_figures_of_the_tensorboard_plug_in(profile):
    """The memory view of torch-tb-profiler 0.4.3 of the same file."""
    rows = profile.memory_ops().filter(pl.col("device") == 1)
    columns = (
        "increase",
        "self_increase",
        "allocations",
        "self_allocations",
        "allocated",
        "self_allocated",
    )
    found = {row["op"]: tuple(row[name] for name in columns) for row in rows.to_dicts()}
    assert found["aten::sum"] == (14440960, 14440960, 1945, 1945, 848192000, 848192000)
    assert found["aten::mul"] == (12402728960, 12402728960, 2295, 2295, 12402728960, 12402728960)
    assert found["aten::mm"] == (8921169920, 8921169920, 1470, 1470, 8921169920, 8921169920)


def test_the_training_neither_grows_nor_keeps_anything(profile):
    steps = profile.memory_steps().filter(pl.col("device") == 1)
    assert steps["step"].to_list() == [2, 3, 4, 5, 6]
    assert steps["growth"].to_list() == [None, 0, 0, 0, 0]
    assert set(steps["peak_memory"]) == {6_629_508_096}
    assert steps["kept"].sum() == 0


def test_activations_of_the_training_are_released_in_its_backward_passes(profile):
    """Its gradients and parameters are from before the trace: of these it proves no kind."""
    kinds = profile.memory_kinds().filter(pl.col("device") == 1)
    by_kind = dict(kinds.group_by("kind").agg(pl.col("at_peak").sum()).rows())
    assert by_kind == {
        "unknown": 4_096_614_400,
        "activation": 1_329_586_176 + 4_195_328,
        "temporary": 1_199_112_192,
    }
    unknown = kinds.filter(pl.col("kind") == "unknown")
    assert unknown["reason"].to_list() == ["allocated before the trace"]


@pytest.mark.parametrize("name", [*FULL, EARLY, "resnet50_nw4_step_span1.pt.trace"])
def test_the_parts_add_up(shared, name):
    profile = traces.load(shared / "kineto" / f"{name}.json.gz")
    blocks, ops, kinds = profile.memory_events(), profile.memory_ops(), profile.memory_kinds()
    paired = blocks["reason"].null_count()
    sized = (profile.trace["allocations"]["bytes"] != 0).sum()
    assert 2 * paired + len(blocks) - paired == sized
    for peak in profile.memory().to_dicts():
        here = pl.col("device") == peak["device"]
        assert kinds.filter(here)["at_peak"].sum() == peak["peak_memory"]
        assert ops.filter(here)["self_allocated"].sum() == peak["allocated"]
        assert ops.filter(here)["self_increase"].sum() == peak["allocated"] - peak["released"]


def test_each_gpu_of_a_jax_program_has_a_total_of_its_own(shared):
    """All events name their GPU's allocator; each change is what that GPU's total grew by."""
    profile = traces.load(shared / "xplane" / "jax_conv_mi300.xplane.pb")
    changes = profile.trace["allocations"].sort("device", "time", maintain_order=True)
    grown = changes.select(pl.col("total").diff().over("device") - pl.col("bytes")).to_series()
    assert grown.drop_nulls().to_list() == [0] * (230 - 8)
    assert profile.memory()["device"].to_list() == list(range(8))
    assert set(profile.memory()["unpaired"]) == {2}

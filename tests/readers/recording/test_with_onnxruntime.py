"""Profiles of ONNX Runtime's sessions in a recording: joined with the runs, on one clock, GPU events too."""

from __future__ import annotations

import json
import threading

import polars as pl
import pytest

import opscope
from opscope.core.capture import session as capture_session
from opscope.core.capture.recorder_sink import Recorder, read_clock
from opscope.core.recording_format import FACTS, ONNX_FOLDER, ONNX_MODEL, ONNX_PROFILE

MS = 1_000_000
TEXT = 'InferenceSession.run(f32[2,8]) -> f32[2,4] {{model="net", session={}}} on cpu @serve.py:7'
PID = 4242


class Part:
    """A recording in which runs and profiles lie where a test puts them; times are ns after its begin."""

    def __init__(self, folder):
        self.folder = folder
        self.recorder = Recorder(folder)
        self.recorder.start()
        self.perf, self.unix, _ = read_clock()
        capture_session.listen(self.recorder)
        self.emitter = capture_session.emitter("onnxruntime")
        self.thread = threading.get_native_id()

    def run(self, start, end, session=1):
        prepared = self.emitter.prepare(TEXT.format(session), "forward")
        self.emitter.past(prepared, self.perf + start, self.perf + end)

    def profile(
        self, events, began=0, session=1, set_by=0, full=False, name=ONNX_PROFILE, text=None, **more
    ):
        """Write a session's events (times in µs after ``began``); the clock was set by ``set_by`` ns."""
        folder = self.recorder.folder / ONNX_FOLDER.format(session)
        folder.mkdir()
        (folder / name).write_text(json.dumps(events) if text is None else text)
        unix = self.unix + began + set_by
        self.recorder.fact(onnxruntime=session, model="net", began=unix, full=full, **more)

    def close(self):
        capture_session.listen(None)
        self.recorder.stop()
        return opscope.load(self.folder)

    def event(self, cat, name, ts, dur, **args):
        return {
            "cat": cat, "pid": PID, "tid": self.thread, "dur": dur, "ts": ts, "ph": "X", "name": name,
            "args": args,
        }  # fmt: skip

    def model_run(self, ts, dur):
        return self.event("Session", "model_run", ts, dur)

    def node(self, name, ts, dur, op="MatMul", provider="CPUExecutionProvider"):
        return self.event(
            "Node", f"{name}_kernel_time", ts, dur, op_name=op, provider=provider, node_index="0",
            input_type_shape=[{"float": [2, 8]}, {"float": [8, 4]}],
            output_type_shape=[{"float": [2, 4]}],
        )  # fmt: skip


@pytest.fixture
def part(tmp_path):
    made = Part(tmp_path / "recording")
    yield made
    if capture_session.recorder() is made.recorder:
        made.close()


def test_a_profile_that_began_some_time_is_placed_by_the_order_of_its_runs(part):
    """A session that C++ made: runs of 200 µs every 300 µs, whose profile began up to 20 ms after ``began``."""
    for number in range(6):
        part.run(10 * MS + number * 300_000, 10 * MS + number * 300_000 + 200_000)
    events = [
        event
        for number in range(6)
        for event in (
            part.model_run(number * 300 + 20, 150),
            part.node("n", number * 300 + 30, 100),
        )
    ]
    part.profile(events, within=20 * MS)
    profile = part.close()
    starts = nodes(profile)["start"].to_list()
    runs = profile.ops().filter(pl.col("op") == "InferenceSession.run").sort("start")
    assert len(starts) == 6
    for (start, end), node in zip(runs.select("start", "end").rows(), starts, strict=True):
        assert start <= node <= end


def test_a_profile_that_its_session_never_wrote_is_told(part):
    part.run(1 * MS, 2 * MS)
    part.profile([], within=20 * MS, name="profile_2026-11-30.json", text="")
    notes = part.close().notes()["what"].to_list()
    assert any("ended before it wrote them" in note for note in notes)


def nodes(profile):
    return profile.ops().filter(pl.col("op") == "MatMul").sort("start")


def test_nodes_lie_where_the_clock_puts_them(part):
    part.run(1 * MS, 2 * MS)
    part.profile([part.model_run(100, 700), part.node("/net/fc/MatMul", 200, 400)], began=1 * MS)
    profile = part.close()
    [node] = nodes(profile).iter_rows(named=True)
    assert abs(node["start"] - (part.perf + 1_200_000)) < 100_000  # two readings of the clock
    assert node["cpu_time"] == 400_000
    assert node["depth"] == 1
    assert (node["layer"], node["source"]) == ("net/fc", "serve.py:7")
    assert node["matrix_flops"] == 2 * 2 * 8 * 4
    assert profile.ops().filter(pl.col("depth") == 0)["self_time"].sum() == 600_000
    assert any("to within" in note for note in profile.notes()["what"])
    assert not any(note == "times are whole microseconds" for note in profile.notes()["what"])
    assert not any("steps are the runs" in note for note in profile.notes()["what"])


def test_a_long_wait_in_a_run_moves_no_node_into_it(part):
    """A run that ended just before the recording began is outside, however long the first range is."""
    part.run(1 * MS, 60 * MS)
    events = [
        part.model_run(0, 300), part.node("/net/fc/MatMul", 50, 100),
        part.model_run(1_500, 300), part.node("/net/fc/MatMul", 1_600, 100),
    ]  # fmt: skip
    part.profile(events)
    profile = part.close()
    assert len(nodes(profile)) == 1
    assert any("outside the recorded runs" in note for note in profile.notes()["what"])


def test_a_clock_that_was_set_is_said_to_place_nothing(part):
    part.run(1 * MS, 2 * MS)
    part.profile([part.model_run(1_100, 700), part.node("n", 1_200, 400)], set_by=3600 * 10**9)
    profile = part.close()
    assert nodes(profile).is_empty()
    assert any("no run shows where they belong" in note for note in profile.notes()["what"])


def test_a_run_computes_nothing_beside_its_nodes_where_those_are_known(part):
    part.run(1 * MS, 2 * MS)
    part.run(3 * MS, 4 * MS)
    part.profile([part.model_run(100, 700), part.node("n", 200, 400)], began=1 * MS)
    profile = part.close()
    runs = profile.ops().filter(pl.col("depth") == 0).sort("start")
    assert runs["flops"].to_list() == [0, None]
    assert any("not timed" in str(row) for row in profile.missing_costs().rows())
    assert profile.kinds().filter(pl.col("kind") == "unknown")["calls"].item() == 2


def test_each_session_has_its_own_nodes(part):
    for session in (1, 2):
        part.run(session * 10 * MS, (session * 10 + 5) * MS, session)
        part.profile(
            [part.model_run(100, 700), part.node(f"/net{session}/MatMul", 200, 400)],
            began=session * 10 * MS, session=session,
        )  # fmt: skip
    profile = part.close()
    assert nodes(profile)["layer"].to_list() == ["net1", "net2"]
    runs = profile.ops().filter(pl.col("depth") == 0).sort("start")
    assert nodes(profile)["parent_id"].to_list() == runs["op_id"].to_list()


def test_a_gpus_kernels_are_their_nodes(part):
    cuda = {"provider": "CUDAExecutionProvider"}
    place = {
        "grid_x": "4",
        "grid_y": "1",
        "grid_z": "1",
        "block_x": "128",
        "block_y": "1",
        "block_z": "1",
    }

    def kernel(name, ts, dur, node):
        parent = {"op_name": "MatMul", "parent_name": f"{node}_kernel_time"}
        return part.event("Kernel", name, ts, dur, stream="7", **place, **parent) | {
            "tid": -1,
            "pid": -1,
        }

    for session in (1, 2):
        part.run(session * 10 * MS, (session * 10 + 5) * MS, session)
        part.profile(
            [
                part.model_run(100, 700),
                part.node("/net/fc/MatMul", 200, 30, **cuda),
                kernel("volta_sgemm_128x64_nn", 240, 500, "/net/fc/MatMul"),
                kernel("splitKreduce_kernel", 740, 50, "/net/fc/MatMul"),
            ],
            began=session * 10 * MS, session=session,
        )  # fmt: skip
    profile = part.close()
    ops = nodes(profile)
    assert ops["device_time"].to_list() == [550_000, 550_000]
    kernels = profile.kernels().sort("start")
    assert kernels["op"].to_list() == ["MatMul"] * 4
    assert kernels["op_id"].to_list() == [one for one in ops["op_id"] for _ in range(2)]
    assert kernels["layer"].to_list() == ["net/fc"] * 4
    launches = profile.trace["calls"]["correlation"]
    assert launches.n_unique() == 4  # those of the second session follow the first's


def test_what_was_never_written_is_lost(part):
    part.run(1 * MS, 2 * MS)
    part.recorder.fact(onnxruntime=1, model="net")
    profile = part.close()
    assert profile.ops()["op"].to_list() == ["InferenceSession.run"]
    assert any("the process ended before" in note for note in profile.notes()["what"])


def test_a_model_that_cannot_be_read_leaves_the_profiles_shapes(part):
    part.run(1 * MS, 2 * MS)
    part.profile([part.model_run(1_100, 700), part.node("/net/fc/MatMul", 1_200, 400)])
    (part.recorder.folder / ONNX_FOLDER.format(1) / ONNX_MODEL).write_bytes(b"no model")
    profile = part.close()
    [node] = nodes(profile).iter_rows(named=True)
    assert node["inputs"] == "f32[2,8], f32[8,4]"
    assert any("have the profile's shapes alone" in note for note in profile.notes()["what"])


def test_a_full_profile_is_said_to_end_early(part):
    part.run(1 * MS, 2 * MS)
    part.profile([part.model_run(1_100, 700), part.node("n", 1_200, 400)], full=True)
    profile = part.close()
    assert len(nodes(profile)) == 1
    assert any("its profile was full" in note for note in profile.notes()["what"])


@pytest.mark.parametrize("text", ["", "[", "{}", "no JSON", '[{"cat": "Session"}]'])
def test_a_damaged_profile_leaves_the_runs(part, text, tmp_path):
    part.run(1 * MS, 2 * MS)
    part.profile([])
    [path] = (tmp_path / "recording").glob(f"part-*/onnxruntime-1/{ONNX_PROFILE}")
    path.write_text(text)
    capture_session.listen(None)
    part.recorder.stop()
    from opscope.readers.recording.reader import collect

    trace = collect(tmp_path / "recording")
    assert any("are missing" in note for note in trace["notes"]["what"])
    assert len(trace["ranges"]) == 1
    assert trace.origin["failed"]


def test_facts_of_a_stranger_are_refused_in_one_line(part, tmp_path):
    part.run(1 * MS, 2 * MS)
    capture_session.listen(None)
    part.recorder.stop()
    [path] = (tmp_path / "recording").glob(f"part-*/{FACTS}")
    with path.open("a") as file:
        file.write('{"onnxruntime": "seven", "model": 3}\n')
    with pytest.raises(opscope.errors.BadInput, match="cannot be read"):
        opscope.load(tmp_path / "recording")

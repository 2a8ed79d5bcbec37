"""Exports hold what the profile holds: every slice, arrow, counter and nanosecond."""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict

import polars as pl
import pytest

from opscope.core.tables.trace import Trace
from opscope.exports import chrome, flamegraph, formats, otlp, perfetto, prometheus, speedscope
from opscope.profile import Profile
from tests import traces
from tests.command import opscope as command

TRACES = [
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/vllm_decode_cudagraph.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "xplane/jax_conv_mi300.xplane.pb",
]
HOSTILE = 'a";\n</script>\u202e\x00\\ {}, 🙂;b'


def written(module, profile, **options):
    out = io.BytesIO()
    counts = module.write(profile, out, **options)
    return out.getvalue(), counts


def decoded(content):
    proto = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = proto.Trace()
    trace.ParseFromString(content)
    return trace


class Read:
    """A file of Perfetto, read back: slices as (track, start, end, name), flows and counters."""

    def __init__(self, content):
        self.tracks, self.slices, self.instants = {}, [], []
        self.flows, self.values, self.details = defaultdict(list), defaultdict(list), Counter()
        texts = defaultdict(dict)
        open_slices, last = defaultdict(list), defaultdict(int)
        for packet in decoded(content).packet:
            assert packet.trusted_packet_sequence_id == 1
            for field, held in packet.interned_data.ListFields():
                for one in held:
                    said = getattr(one, "name", None) or getattr(one, "str", b"").decode()
                    texts[field.name][one.iid] = said
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            if not packet.HasField("track_event"):
                continue
            event, time = packet.track_event, packet.timestamp
            track = event.track_uuid
            if event.type == 4:
                self.values[track].append((time, event.double_counter_value))
                continue
            if event.type == 2:
                begin, name = open_slices[track].pop()
                assert begin < time
                self.slices.append((track, begin, time, name))
            else:
                name = texts["event_names"][event.name_iid]
                for detail in event.debug_annotations:
                    self.details[texts["debug_annotation_names"][detail.name_iid]] += 1
                    if detail.string_value_iid:
                        assert detail.string_value_iid in texts["debug_annotation_string_values"]
                for flow in event.flow_ids:
                    self.flows[flow].append((time, track, name))
                if event.type == 3:
                    self.instants.append((track, time, name))
                    continue
                open_slices[track].append((time, name))
            assert last[track] <= time
            last[track] = time
        assert not any(open_slices.values())


@pytest.mark.parametrize("name", TRACES)
def test_perfetto_has_every_slice_arrow_and_counter(shared, name):
    profile = traces.load(shared / name)
    content, counts = written(perfetto, profile)
    read = Read(content)
    assert counts["slices"] == len(read.slices)
    assert counts["instants"] == len(read.instants)
    shift = max(0, -min(int(profile.trace[t]["start"].min() or 0) for t in ("ranges", "kernels")))

    def expected(frame, text):
        times = frame.filter(pl.col("end") > pl.col("start"))
        return Counter(
            (s + shift, e + shift, n)
            for s, e, n in times.select("start", "end", pl.col(text).fill_null("(copy)")).rows()
        )

    found = Counter((begin, end, text) for _, begin, end, text in read.slices)
    for frame, text in (
        (profile.kernels(), "name"), (profile.memops(), "kind"), (profile.trace["calls"].cast({"name": pl.String}), "name"),
    ):  # fmt: skip
        wanted = expected(frame, text)
        assert all(found[one] >= many for one, many in wanted.items())
    ops = profile.ops()
    assert all(found[one] >= many for one, many in expected(ops, "op").items())
    kernels = profile.kernels()
    launched = kernels.filter(pl.col("call_start").is_not_null())
    calls = {(time, text) for one in read.flows.values() for time, _, text in one}
    assert all(
        (start + shift, text) in calls for start, text in launched.select("start", "name").rows()
    )
    assert counts["flows"] == sum(
        1
        for one in read.flows.values()
        for _, track, _ in one
        if "stream" in read.tracks[track].name
    )
    assert sum(map(len, read.values.values())) == counts["counter values"]
    assert read.details["layer"] >= kernels["layer"].is_not_null().sum()


@pytest.mark.parametrize("name", TRACES)
def test_chrome_and_perfetto_hold_the_same(shared, name):
    profile = traces.load(shared / name)
    content, counts = written(chrome, profile)
    events = json.loads(content)["traceEvents"]
    found = Counter(one["ph"] for one in events)
    read = Read(written(perfetto, profile)[0])
    assert found["X"] == counts["slices"] == len(read.slices)
    assert found["i"] == len(read.instants)
    assert found["C"] == sum(map(len, read.values.values()))
    whole = sum(end - begin for _, begin, end, _ in read.slices)
    assert sum(round(one["dur"] * 1000) for one in events if one["ph"] == "X") == whole
    assert {one["id"] for one in events if one["ph"] == "f"} <= {
        one["id"] for one in events if one["ph"] == "s"
    }


@pytest.mark.parametrize("name", TRACES)
def test_speedscope_has_a_stack_of_frames_for_each_track(shared, name):
    content, counts = written(speedscope, traces.load(shared / name))
    made = json.loads(content)
    frames = len(made["shared"]["frames"])
    assert len(made["profiles"]) == counts["profiles"]
    slices = 0
    for one in made["profiles"]:
        stack, last = [], one["startValue"]
        for event in one["events"]:
            assert last <= event["at"] <= one["endValue"]
            last = event["at"]
            assert event["frame"] < frames
            if event["type"] == "O":
                stack.append(event["frame"])
                slices += 1
            else:
                assert stack.pop() == event["frame"]
        assert not stack
    assert slices == counts["slices"]


@pytest.mark.parametrize("by", flamegraph.BY)
@pytest.mark.parametrize("name", TRACES)
def test_folded_stacks_add_up_to_the_device_time(shared, name, by):
    profile = traces.load(shared / name)
    content, counts = written(flamegraph, profile, by=by)
    lines = content.decode().splitlines()
    assert len(lines) == counts["paths"]
    whole = sum(int(line.rpartition(" ")[2]) for line in lines)
    assert whole == counts["time"] == profile.summary()["device_time"].item()


def test_prometheus_has_the_figures_of_the_summary(shared):
    profile = traces.load(shared / TRACES[0])
    lines = written(prometheus, profile)[0].decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    row = profile.summary().row(0, named=True)
    assert float(values["opscope_device_seconds"]) == row["device_time"] / 1e9
    assert int(values["opscope_kernels"]) == row["kernels"]
    kinds = sum(
        float(value) for name, value in values.items() if name.startswith("opscope_kind_seconds{")
    )
    assert kinds == pytest.approx(row["device_time"] / 1e9)


@pytest.mark.parametrize("name", TRACES)
def test_spans_are_children_of_the_ops_around_them(shared, name):
    profile = traces.load(shared / name)
    content, counts = written(otlp, profile)
    spans = [
        span
        for line in content.decode().splitlines()
        for span in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    ]
    by_id = {one["spanId"]: one for one in spans}
    assert len(by_id) == len(spans) == counts["spans"]
    tables = Counter(one["spanId"][:2] for one in spans)
    assert tables["02"] == profile.kernels().filter(pl.col("end") > pl.col("start")).height
    names = {(one["spanId"], one["name"]) for one in spans if one["spanId"].startswith("02")}
    row = (
        profile.kernels()
        .with_row_index()
        .filter(pl.col("op").is_not_null(), pl.col("end") > pl.col("start"))
    )
    for index, kernel, op, begin, end in row.select("index", "name", "op", "start", "end").rows()[
        :500
    ]:
        span = by_id[f"{(2 << 56) + index:016x}"]
        assert (span["spanId"], kernel) in names
        assert int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) == end - begin
        if span.get("parentSpanId") in by_id:
            assert by_id[span["parentSpanId"]]["name"] == op
    for one in spans:
        above = by_id.get(one.get("parentSpanId"))
        if above is not None and one["spanId"].startswith("01"):
            assert int(above["startTimeUnixNano"]) <= int(one["startTimeUnixNano"])
            assert int(one["endTimeUnixNano"]) <= int(above["endTimeUnixNano"])


def test_tensorboard_reads_the_steps(shared, tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    profile = traces.load(shared / TRACES[0])
    formats.export(profile, "tensorboard", tmp_path / "board")
    (folder,) = (tmp_path / "board").iterdir()
    read = accumulator.EventAccumulator(str(folder))
    read.Reload()
    steps = profile.steps()
    found = [(one.step, one.value) for one in read.Scalars("opscope/time [s]")]
    wanted = [
        (step, pytest.approx(time / 1e9)) for step, time in steps.select("step", "time").rows()
    ]
    assert found == wanted
    formats.export(profile, "tensorboard", tmp_path / "board")  # its own folder is replaced
    (tmp_path / "board" / "thesis.tex").write_text("years of work")
    with pytest.raises(OSError, match=r"thesis\.tex"):
        formats.export(profile, "tensorboard", tmp_path / "board")
    assert (tmp_path / "board" / "thesis.tex").exists()


def small(name=HOSTILE, begin=-500):
    """A profile of an op with a kernel, whose times are below zero and whose names are hostile."""
    place = {"process": 0, "thread": 7}
    tables = {
        "ranges": pl.DataFrame([
            {"id": 1, **place, "end_thread": 7, "start": begin, "end": begin + 900, "domain": "torch", "category": "forward", "text": "aten::mm(f32[2,2], f32[2,2])", "kind": "pushpop"},
            {"id": 2, **place, "end_thread": 7, "start": begin + 10, "end": begin + 10, "domain": "user", "category": "x", "text": name, "kind": "mark"},
            {"id": 3, **place, "end_thread": 7, "start": begin + 20, "end": begin + 30, "domain": "user", "category": "x", "text": name, "kind": "pushpop"},
        ]),
        "calls": pl.DataFrame([{**place, "start": begin + 100, "end": begin + 150, "name": "cudaLaunchKernel", "correlation": 9}]),
        "kernels": pl.DataFrame([{"process": 0, "device": 0, "context": 1, "stream": 7, "start": begin + 300, "end": begin + 400, "name": name, "correlation": 9}]),
        "samples": pl.DataFrame([{"process": 0, "device": 0, "time": begin + 5, "name": "GPU power [W]", "value": 300.5}, {"process": 0, "device": 0, "time": begin + 6, "name": "GPU power [W]", "value": float("nan")}]),
    }  # fmt: skip
    return Profile(Trace.of(tables, {}))


def test_times_below_zero_and_hostile_names_are_written_as_they_are():
    read = Read(written(perfetto, small())[0])
    assert HOSTILE in {text for _, _, _, text in read.slices}
    assert min(begin for _, begin, _, _ in read.slices) == 0
    events = json.loads(written(chrome, small())[0])["traceEvents"]
    assert HOSTILE in {one.get("name") for one in events}
    assert [one["args"] for one in events if one["ph"] == "C" and "power" in one["name"]] == [
        {"W": 300.5}
    ]
    frames = json.loads(written(speedscope, small())[0])["shared"]["frames"]
    assert {"name": HOSTILE} in frames
    for line in written(flamegraph, small())[0].decode().splitlines():
        assert line.rpartition(" ")[2].isdigit()


@pytest.mark.parametrize("begin", [1_752_839_461_731_516_983, 1 << 44])
def test_slices_at_large_times_stay_in_their_parents_in_chromes_file(begin):
    """Read as ordinary programs do, whose numbers are doubles: Unix times in microseconds lose up to 125 ns."""
    made = json.loads(written(chrome, small(begin=begin))[0])
    slices = [one for one in made["traceEvents"] if one["ph"] == "X"]
    assert sorted(round(one["ts"] * 1000) for one in slices) == [0, 20, 100, 300]
    assert all(
        one["ts"] * 1000 == pytest.approx(round(one["ts"] * 1000), abs=1e-6) for one in slices
    )
    assert made["baseTimeNanoseconds"] == begin
    counter = next(
        one for one in made["traceEvents"] if one["ph"] == "C" and "power" in one["name"]
    )
    assert counter["ts"] == 0.005


def test_small_times_are_written_as_they_are_in_chromes_file():
    made = json.loads(written(chrome, small(begin=5_000))[0])
    assert min(one["ts"] for one in made["traceEvents"] if one["ph"] == "X") == 5
    assert "baseTimeNanoseconds" not in made


def test_profiles_of_speedscope_that_would_have_one_name_are_told_apart():
    place = {"category": None, "domain": "user", "kind": "pushpop", "text": "r"}
    rows = [
        {"id": n, "process": process, "thread": thread, "end_thread": thread, "start": 10, "end": 20, **place}
        for n, (process, thread) in enumerate([(0, 1), (1, 1), (1, 2), (2, 1)])
    ]  # fmt: skip
    tables = {
        "ranges": pl.DataFrame(rows).with_columns(pl.col("category").cast(pl.String)),
        "processes": pl.DataFrame(
            {"process": [0, 1, 2], "pid": [11, 12, 13], "name": ["serve", "serve", "other"]}
        ),
        "threads": pl.DataFrame(
            {"process": [0, 1, 1, 2], "thread": [1, 1, 2, 1], "name": ["main"] * 4}
        ),
    }
    made = json.loads(written(speedscope, Profile(Trace.of(tables, {})))[0])
    assert [one["name"] for one in made["profiles"]] == [
        "serve: main (pid 11)",
        "serve: main (pid 12) (thread 1)",
        "serve: main (pid 12) (thread 2)",
        "other: main",
    ]


def test_an_arrow_joins_the_call_with_its_kernel():
    read = Read(written(perfetto, small("k"))[0])
    (flow,) = read.flows.values()
    assert [text for _, _, text in sorted(flow)] == ["cudaLaunchKernel", "k"]


def test_an_empty_profile_is_written_too(tmp_path):
    for name, one in formats.FORMATS.items():
        if one.folder:
            pytest.importorskip("tensorboard")
        formats.export(Profile(Trace.of({}, {})), name, tmp_path / name)
        assert (tmp_path / name).exists()


def test_a_file_that_cannot_be_finished_is_not_left(tmp_path, monkeypatch):
    def fails(profile, out):
        out.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prometheus, "write", fails)
    with pytest.raises(OSError, match="No space"):
        formats.export(small(), "prometheus", tmp_path / "x.prom")
    assert not list(tmp_path.iterdir())


def test_the_command(shared, tmp_path):
    trace = str(shared / TRACES[0])
    target = tmp_path / "x.pftrace"
    done = command("export", trace, "--to", "perfetto", "-o", str(target))
    assert done.returncode == 0
    assert "slices" in done.stderr
    assert decoded(target.read_bytes()).packet
    again = command("export", trace, "--to", "perfetto", "-o", str(target))
    assert (again.returncode, "--force" in again.stderr) == (2, True)
    wrong = command("export", trace, "--to", "perfeto")
    assert (wrong.returncode, "perfetto" in wrong.stderr) == (2, True)
    option = command("export", trace, "--to", "chrome", "--by", "op")
    assert option.returncode == 2

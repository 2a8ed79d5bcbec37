"""Files of timelines are the profile, no slice, arrow or value more or less; Perfetto's is decoded by its own classes."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal

import polars as pl
import pytest

from opscope.core.tables import intervals
from opscope.exports import chrome, perfetto, speedscope
from opscope.exports.timeline import Timeline
from tests import traces
from tests.exports.test_exports import decoded, written

TRACES = [
    "kineto/resnet50_nw0_step_span1.pt.trace.json.gz",
    "kineto/ddp_rank3of8_a100_stacks.json.gz",
    "kineto/vllm_decode_cudagraph.json.gz",
    "kineto/alexnet_cupti_counters_a100.json.gz",
    "nsys/fsdp_h100x2_2026.sqlite",
    "nvprof/language_model.sqlite",
    "onnxruntime/resnet_inference_gemmini.json",
    "xplane/jax_conv_mi300.xplane.pb",
    "dlprof/nsys_profile.sqlite",
]
BEGIN, END, INSTANT, VALUE = 1, 2, 3, 4


class Decoded:
    """What a file holds: ``slices`` (kind → (start, end, name), counted), ``arrows``, ``values`` (track → points)."""

    def __init__(self, content: bytes) -> None:
        texts, tracks = defaultdict(dict), {}
        opened, self.slices, self.values = (
            defaultdict(list),
            defaultdict(Counter),
            defaultdict(list),
        )
        self.details, flows = defaultdict(Counter), defaultdict(list)
        for packet in decoded(content).packet:
            for field, held in packet.interned_data.ListFields():
                for one in held:
                    texts[field.name][one.iid] = getattr(one, "name", None) or one.str.decode()
            if packet.HasField("track_descriptor"):
                told = packet.track_descriptor
                tracks[told.uuid] = told.thread.thread_name or told.name
            if not packet.HasField("track_event"):
                continue
            event, time = packet.track_event, packet.timestamp
            if event.type == VALUE:
                self.values[tracks[event.track_uuid]].append((time, event.double_counter_value))
            elif event.type == END:
                begin, kind, name, ids, told = opened[event.track_uuid].pop()
                self._add(flows, (begin, time, name), kind, ids, told)
            else:
                kind = texts["event_categories"][event.category_iids[0]]
                name = texts["event_names"][event.name_iid]
                told = {
                    texts["debug_annotation_names"][one.name_iid]: (
                        texts["debug_annotation_string_values"][one.string_value_iid]
                        if one.string_value_iid else one.int_value
                    )
                    for one in event.debug_annotations
                }  # fmt: skip
                if event.type == BEGIN:
                    opened[event.track_uuid].append((time, kind, name, list(event.flow_ids), told))
                else:
                    self._add(flows, (time, time, name), kind, list(event.flow_ids), told)
        assert not any(opened.values())
        self.arrows = Counter(
            (call, work)
            for ends in flows.values()
            for kind, call in ends if kind == "call"
            for other, work in ends if other in ("kernel", "copy")
        )  # fmt: skip
        self.lonely = [
            ends for ends in flows.values() if len({kind == "call" for kind, _ in ends}) < 2
        ]

    def _add(self, flows, one, kind, ids, told):
        self.slices[kind][one] += 1
        for name, value in told.items():
            self.details[kind, name][(*one, value)] += 1
        for flow in ids:
            flows[flow].append((kind, one))


def rows(frame: pl.DataFrame, name: str, *more: str, unnamed: str = "") -> Counter:
    """(start, end, name) of each row, counted; what ends before it begins has no length."""
    text = pl.col(name).cast(pl.String).fill_null(unnamed)
    end = pl.max_horizontal("start", "end").alias("end")
    return Counter(frame.select("start", end, text, *more).rows())


@pytest.fixture(scope="module", params=TRACES)
def both(request, shared):
    profile = traces.load(shared / request.param)
    content, counts = written(perfetto, profile)
    shift = profile.trace["ranges"]["start"].min() if profile.trace.has("ranges") else 0
    assert (
        min(shift or 0, 0) == 0
    )  # no real trace has times below zero: those are tested by themselves
    return profile, Decoded(content), counts


def test_every_kernel_copy_and_call_is_a_slice_and_nothing_else_is(both):
    profile, found, _ = both
    trace = profile.trace
    assert found.slices["kernel"] == rows(profile.kernels(), "name", unnamed="(kernel)")
    assert found.slices["copy"] == rows(profile.memops(), "kind", unnamed="(copy)")
    calls = trace["calls"].drop_nulls(["start", "end"])
    assert found.slices["call"] == rows(calls, "name", unnamed="(call)")


def test_every_op_and_range_is_a_slice_and_nothing_else_is(both):
    profile, found, counts = both
    # an op without a length is a mark, and in no table of ops
    lasting = Counter({one: many for one, many in found.slices["op"].items() if one[1] > one[0]})
    assert lasting == rows(profile.ops().filter(pl.col("end") > pl.col("start")), "op")
    hosted = Counter()
    for kind in set(found.slices) - {"kernel", "copy", "call"}:
        for (start, end, _), many in found.slices[kind].items():
            hosted[start, end] += many
    ended = pl.max_horizontal("start", "end").alias("end")
    # kernels that name their op have a range of it
    ranges = profile.attribution.trace["ranges"].with_columns(ended)
    known = Counter(ranges.select("start", "end").rows())
    assert hosted == known
    whole = sum(sum(counted.values()) for counted in found.slices.values())
    assert whole == counts["slices"] + counts["instants"]


def test_every_launch_is_an_arrow_and_nothing_else_is(both):
    profile, found, counts = both
    wanted = Counter()
    calls = (
        profile.trace["calls"].select("start", "end", call=pl.col("name").cast(pl.String)).unique()
    )
    for frame, name, unnamed in (
        (profile.kernels(), "name", "(kernel)"), (profile.memops(), "kind", "(copy)"),
    ):  # fmt: skip
        launched = frame.filter(pl.col("call_start").is_not_null())
        for call_start, call_end, start, end, text in launched.select(
            "call_start",
            "call_end",
            "start",
            "end",
            pl.col(name).cast(pl.String).fill_null(unnamed),
        ).rows():
            wanted[call_start, call_end, start, max(start, end), text] += 1
    got = Counter()
    for (call, work), many in found.arrows.items():
        got[(*call[:2], *work)] += many
    assert got == wanted
    assert {call for call, _ in found.arrows} <= {tuple(one) for one in calls.rows()}
    assert sum(wanted.values()) == counts["flows"]
    assert not found.lonely


def test_every_value_of_every_counter_is_there_and_nothing_else_is(both):
    profile, found, counts = both
    samples = profile.trace["samples"].drop_nulls("value")
    wanted = Counter(samples.filter(pl.col("value").is_finite()).select("time", "value").rows())
    curve = profile.memory_curve()
    for column in ("in_use", "reserved"):
        wanted += Counter(
            (time, float(value)) for time, value in curve.select("time", column).drop_nulls().rows()
        )
    from opscope.exports.timeline import _POINTS

    use = profile.device_curve(_POINTS)
    for column in ("gpu_utilization", "sm_efficiency"):
        wanted += Counter(use.select("start", column).drop_nulls().rows())
    got = Counter(one for points in found.values.values() for one in points)
    assert got == wanted
    assert sum(got.values()) == counts["counter values"]


def test_a_kernel_says_its_op_layer_shapes_flops_or_why_not(both):
    profile, found, _ = both
    frame = profile.kernels()
    for name in ("op", "layer", "source", "inputs", "reason", "flops", "bytes", "step"):
        told = frame.drop_nulls(name)
        assert found.details["kernel", name] == rows(told, "name", name, unnamed="(kernel)"), name
    ops = profile.ops()
    for name in ("layer", "source", "flops", "bytes"):
        assert found.details["op", name] == rows(ops.drop_nulls(name), "op", name), name
    texts = [text for (*_, text) in found.details["op", "text"]]
    if ops["inputs"].null_count() < len(ops):
        assert any("[" in text for text in texts)


def test_chromes_file_has_the_same_slices_marks_arrows_and_values(both):
    profile, found, counts = both
    content, told = written(chrome, profile)
    made = json.loads(content, parse_float=Decimal)
    events, base = made["traceEvents"], made.get("baseTimeNanoseconds", 0)

    def ns(microseconds, base=base) -> int:
        return int(Decimal(microseconds) * 1000) + base

    slices = Counter(
        (one.get("cat"), ns(one["ts"]), ns(one["ts"]) + ns(one.get("dur", 0), 0), one["name"])
        for one in events if one["ph"] in "Xi"
    )  # fmt: skip
    wanted = Counter(
        {
            (kind, *one): many
            for kind, counted in found.slices.items()
            for one, many in counted.items()
        }
    )
    assert slices == wanted
    ends = defaultdict(list)
    for one in events:
        if one["ph"] in "sf":
            ends[one["id"]].append((one["ph"], ns(one["ts"])))
    arrows = Counter(
        (start, end)
        for held in ends.values()
        for ph, start in held
        if ph == "s"
        for other, end in held
        if other == "f"
    )
    if counts["flows"]:
        assert {end for _, end in arrows} == {work[0] for _, work in found.arrows}
    values = Counter(
        (ns(one["ts"]), float(value))
        for one in events
        if one["ph"] == "C"
        for value in one["args"].values()
    )
    assert values == Counter(one for points in found.values.values() for one in points)
    assert told["slices"] == counts["slices"]


def test_speedscopes_file_has_the_same_slices(both):
    profile, found, _ = both
    made = json.loads(written(speedscope, profile)[0])
    names = [one["name"] for one in made["shared"]["frames"]]
    lasting = [
        one for counted in found.slices.values() for one in counted.elements() if one[1] > one[0]
    ]
    first = min((start for start, _, _ in lasting), default=0)
    slices = Counter()
    for one in made["profiles"]:
        opened = []
        for event in one["events"]:
            if event["type"] == "O":
                opened.append(event)
            else:
                begun = opened.pop()
                slices[begun["at"] + first, event["at"] + first, names[event["frame"]]] += 1
    assert slices == Counter(lasting)


@pytest.mark.parametrize("name", [TRACES[0], TRACES[4]])
def test_written_in_pieces_a_file_holds_the_same(name, shared, monkeypatch):
    """Long tracks are written part by part, between which nothing is open or only what is held: here parts of
    some 50 slices."""
    profile = traces.load(shared / name)
    whole = {one: written(one, profile) for one in (perfetto, chrome, speedscope)}
    monkeypatch.setattr(intervals, "_APART", 50)
    monkeypatch.setattr(intervals, "_LONG", 1)
    windows, held = intervals.windows, []
    monkeypatch.setattr(
        "opscope.exports.timeline.windows",
        lambda *given: (held.append(len(one.held)) or one for one in windows(*given)),
    )
    parts = sum(1 for _ in Timeline(profile).slices())
    pieced = {one: written(one, profile) for one in whole}
    assert {one: counts for one, (_, counts) in pieced.items()} == {
        one: counts for one, (_, counts) in whole.items()
    }
    # tracks and frames are numbered as they come
    one, other = Decoded(whole[perfetto][0]), Decoded(pieced[perfetto][0])
    assert (one.slices, one.details, one.arrows) == (other.slices, other.details, other.arrows)
    told = [json.loads(made[speedscope][0]) for made in (whole, pieced)]
    frames = [
        Counter(
            (profile["name"], event["type"], event["at"], one["shared"]["frames"][event["frame"]]["name"])
            for profile in one["profiles"] for event in profile["events"]
        )
        for one in told
    ]  # fmt: skip
    assert frames[0] == frames[1]
    lines = [
        Counter(
            json.dumps({key: value for key, value in event.items() if key != "tid"}, sort_keys=True)
            for event in json.loads(made[chrome][0])["traceEvents"] if event["ph"] != "M"
        )
        for made in (whole, pieced)
    ]  # fmt: skip
    assert lines[0] == lines[1]
    assert max(held) > 0
    monkeypatch.undo()
    assert parts > 5 * sum(1 for _ in Timeline(profile).slices())

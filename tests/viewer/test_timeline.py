"""The timeline of the viewer: pictures, sums and searches against plain loops over all slices."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import example, given

import opscope
from opscope.core.tables.trace import Trace
from opscope.profile import Profile
from opscope.viewer.question import Asked, BadParameter
from opscope.viewer.questions import (
    timeline,
    timeline_all,
    timeline_curves,
    timeline_find,
    timeline_lanes,
    timeline_names,
    timeline_slice,
    timeline_sum,
)
from opscope.viewer.timeline import device_lanes, first_pictures, op_kinds, whole
from opscope.viewer.timeline import index as index_module
from opscope.viewer.timeline import strip as strip_module
from opscope.viewer.timeline.curves import curves
from opscope.viewer.timeline.find import Place, find, sums
from opscope.viewer.timeline.index import Timeline, timeline_of
from opscope.viewer.timeline.lane import UNTOLD, About, Lane, Slices
from opscope.viewer.timeline.strip import LEVELS, edges_of, strips_of
from opscope.viewer.timeline.window import MOST, picture
from opscope.viewer.viewed import Viewed
from tests import traces

from . import timeline_reading as reading

REAL = {
    "vision": "kineto/vision_transformer_rank0.json.gz",
    "resnet": "kineto/resnet50_nw4_step_span1.pt.trace.json.gz",
    "fsdp": "nsys/fsdp_h100x2_2026.sqlite",
    "vllm": "kineto/vllm_decode_cudagraph.json.gz",
    "rocm": "rocm/rocprofv1_gfx1201_llamacpp/results.json",
}
QUESTIONS = (
    *(timeline, timeline_lanes, timeline_names, timeline_slice, timeline_find, timeline_sum),
    timeline_curves,
)


def about(kind: str = "stream") -> About:
    return About(kind, 0, "device", "stream", "kernels", device=0, copies=1 << 30)


def slices(start: Any, lasted: Any, kind: Any = None) -> Slices:
    start, lasted = np.asarray(start, np.int64), np.asarray(lasted, np.int64)
    rows = np.arange(len(start), dtype=np.int32)
    kinds = np.zeros(len(start), np.uint8) if kind is None else np.asarray(kind, np.uint8)
    return Slices(start, start + lasted, rows, rows, kinds)


class Plain:
    """All slices of a strip, for loops that need no index."""

    def __init__(self, strip: Any, end: Any) -> None:
        self.start, self.end, self.kind, self.name = strip.start, end, strip.kind, strip.name

    def inside(self, low: int, high: int) -> Any:
        runs = (self.start < high) & (self.end > low)
        return np.flatnonzero(runs | ((self.start >= low) & (self.start < high)))

    def busy(self, low: int, high: int, kind: int | None = None) -> int:
        part = np.maximum(np.minimum(self.end, high) - np.maximum(self.start, low), 0)
        return int(part.sum() if kind is None else part[self.kind == kind].sum())

    def longest(self, low: int, high: int) -> int:
        rows = self.inside(low, high)
        if not len(rows):
            return -1
        lasted = (self.end - self.start)[rows]
        return int(rows[np.flatnonzero(lasted == lasted.max())[-1]])


def check_window(lane: Lane, plain: list[Plain], low: int, high: int, columns: int) -> None:
    """The picture of a window is what plain loops find, to the nanosecond."""
    head, lanes = reading.picture(picture([("d0", lane)], low, high, columns))
    edges = edges_of(low, high, head["columns"])
    assert (edges[0], edges[-1]) == (low, high)
    assert (np.diff(edges) > 0).all()
    for strip, seen, all_of in zip(lane.strips, lanes["d0"], plain, strict=True):
        rows = all_of.inside(low, high)
        assert seen["busy"] == all_of.busy(low, high)
        assert np.array_equal(seen["start"], all_of.start[seen["index"]] - low)
        assert np.array_equal(seen["lasted"], (all_of.end - all_of.start)[seen["index"]])
        assert np.array_equal(seen["name"], all_of.name[seen["index"]])
        if seen["mode"] == "rows":
            assert np.array_equal(seen["index"], rows)
            assert len(rows) <= head["columns"]
            continue
        assert seen["slices"] == len(rows) > head["columns"]
        exact = np.diff(strip.busy_by_kind(edges), axis=1)
        assert int(exact.sum()) == seen["busy"]
        for column, (left, right) in enumerate(itertools.pairwise(edges)):
            assert seen["longest"][column] == all_of.longest(left, right)
            for place, kind in enumerate(strip.kinds):
                assert exact[place, column] == all_of.busy(left, right, kind)
        for place, kind in enumerate(seen["kinds"]):
            parts = exact[strip.kinds.tolist().index(kind)]
            width = np.diff(edges).astype(object)
            assert np.array_equal(seen["shares"][place], -(-255 * parts.astype(object) // width))
        assert set(strip.kinds[exact.any(axis=1)].tolist()) == set(seen["kinds"])


def plain_of(lane: Lane, whole: Slices) -> list[Plain]:
    """The strips with ends as they were given, not as the index has them."""
    end = np.zeros(int(whole.row.max()) + 1, np.int64)
    end[whole.row] = np.maximum(whole.start, whole.end)
    return [Plain(strip, end[strip.row]) for strip in lane.strips]


numbers = st.integers(-50, 400)
made_slices = st.lists(
    st.tuples(numbers, st.integers(0, 60), st.integers(0, 4)), min_size=1, max_size=200
)


@given(made_slices, st.integers(-60, 450), st.integers(1, 500), st.integers(1, 40), st.booleans())
@example([(0, 0, 0), (1, 32, 0)], 0, 33, 1, True)  # a column of more than a year
def test_a_window_is_drawn_as_plain_loops_find_it(rows, low, span, columns, long) -> None:
    """``long``: durations of weeks do not fit beside a group's number."""
    start, lasted, kind = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    scale = 1 << 50 if long else 1
    low, span = low * scale, span * scale
    whole = slices(start * scale, lasted * scale, kind)
    lane = Lane.of(about(), whole)
    for strip in lane.strips:
        assert (strip.start[1:] >= (strip.start + np.diff(strip.before))[:-1]).all()
    assert sorted(np.concatenate([one.row for one in lane.strips] + [lane.left.row])) == list(
        range(len(rows))
    )
    check_window(lane, plain_of(lane, whole), low, low + span, columns)


@given(
    st.integers(0, 1 << 32),
    st.integers(1, 3_000),
    st.sampled_from([3, 40, 1 << 44]),
    st.sampled_from([32, 96, strip_module._PIECE]),
    st.booleans(),
)
def test_many_slices_are_drawn_as_plain_loops_find_them(seed, many, most, piece, near) -> None:
    """Whole groups and blocks of slices lie in a column; of few durations many are equal; strips are made of
    pieces, and durations can stand beside a place or are too long for it (not ``near``)."""
    random = np.random.default_rng(seed)
    lasted = random.integers(0, most, many)
    end = np.cumsum(lasted + random.integers(0, most, many))
    whole = slices(end - lasted, lasted, random.integers(0, 4, many))
    longest = strip_module._WITH_PLACE if near else 1
    with mock.patch.multiple(strip_module, _PIECE=piece, _WITH_PLACE=longest):
        lane = Lane.of(about(), whole)
    plain = plain_of(lane, whole)
    low, high = lane.span
    for _ in range(3):
        left, right = np.sort(random.integers(low - 5, high + 5, 2)).tolist()
        check_window(lane, plain, left, right + 1, int(random.integers(1, 60)))


def test_slices_that_nest_lie_by_depth_and_a_chain_of_crossing_ones_takes_two_strips() -> None:
    nested, _ = strips_of(*_five(slices([0, 0, 2, 20, 21], [10, 5, 2, 5, 1])))
    assert [one.row.tolist() for one in nested] == [[0, 3], [1, 4], [2]]
    chain, left = strips_of(*_five(slices(np.arange(10_000) * 10, np.full(10_000, 15))))
    assert [len(one) for one in chain] == [5_000, 5_000]
    assert not len(left)


def _five(one: Slices) -> tuple[Any, ...]:
    return one.start, one.end, one.row, one.name, one.kind


def test_what_lies_too_deep_is_counted_and_added_up() -> None:
    many = LEVELS + 7
    lane = Lane.of(about(), slices(np.arange(many), 2 * (many - np.arange(many))))
    assert len(lane.strips) == LEVELS
    assert len(lane.left.start) == 7
    assert lane.slices == many
    held = Timeline(Profile(Trace.of({})))
    held.names.add([str(one) for one in range(many)], "")
    found = sums(held, [("d0", lane)], 0, 1_000)
    assert found["slices"] == many
    assert found["time"] == many * (many + 1)
    assert found["lanes"][0]["busy"] == 2 * many


def test_durations_of_days_are_exact() -> None:
    long = 1 << 52
    whole = slices([0, long + 5, 3 * long], [long + 1, long, 7], [0, 1, 0])
    lane = Lane.of(about(), whole)
    check_window(lane, plain_of(lane, whole), -5, 4 * long, 2)
    check_window(lane, plain_of(lane, whole), long, long + 9, 9)


@pytest.fixture(scope="module", params=REAL)
def real(request: pytest.FixtureRequest, shared: Path) -> Timeline:
    return timeline_of(traces.load(shared / REAL[request.param]))


def test_two_hundred_windows_of_a_real_trace_are_exact(real: Timeline) -> None:
    """Five traces: a thousand windows. Ends are taken from the trace's tables, not from the index."""
    random = np.random.default_rng(5)
    trace = real.profile.attribution.trace
    lanes = real.all_lanes()
    assert lanes
    device = pl.concat([trace[name].select("start", "end") for name in ("kernels", "memops")])
    ends = {
        "kernels": device["end"].to_numpy(),
        "ranges": trace["ranges"]["end"].to_numpy(),
        "calls": trace["calls"]["end"].to_numpy(),
    }
    for _ in range(200):
        lane = lanes[random.integers(len(lanes))][1]
        low, high = lane.span
        span = max(1, int((high - low) * 10 ** random.uniform(-4, 0.1)))
        begin = int(random.integers(low - span // 2, high))
        table = ends[lane.about.table]
        plain = [Plain(one, np.maximum(one.start, table[one.row])) for one in lane.strips]
        check_window(lane, plain, begin, begin + span, int(random.integers(1, 300)))


def test_every_kernel_copy_and_call_is_on_a_lane(real: Timeline) -> None:
    trace = real.profile.attribution.trace
    by_table: dict[str, int] = {}
    for _, lane in real.all_lanes():
        by_table[lane.about.table] = by_table.get(lane.about.table, 0) + lane.slices
    assert by_table.get("kernels", 0) == len(trace["kernels"]) + len(trace["memops"])
    assert by_table.get("calls", 0) == len(trace["calls"].drop_nulls(["start", "end"]))


def test_sums_of_a_span_are_those_of_the_tables(real: Timeline) -> None:
    trace = real.profile.attribution.trace
    lanes = real.part("device")
    if not lanes:
        return
    low, high = lanes[0][1].span
    low, high = low + (high - low) // 3, low + (high - low) * 2 // 3 + 1
    expected = {}
    time = 0
    for name, column in (("kernels", "name"), ("memops", "kind")):
        for start, end, text in (
            trace[name].select("start", "end", pl.col(column).cast(pl.String)).rows()
        ):
            if (start < high and end > low) or low <= start < high:
                one = expected.setdefault(text, [0, 0])
                one[0] += 1
                one[1] += max(0, min(end, high) - max(start, low))
                time += max(0, min(end, high) - max(start, low))
    found = sums(real, lanes, low, high)
    assert found["time"] == time == sum(one["time"] for one in found["lanes"])
    assert found["slices"] == sum(one[0] for one in expected.values())
    by_name = {one["name"]: [one["slices"], one["time"]] for one in found["names"]}
    assert all(expected[name] == one for name, one in by_name.items())
    assert found["more"]["slices"] + sum(one["slices"] for one in found["names"]) == found["slices"]
    assert found["more"]["time"] + sum(one["time"] for one in found["names"]) == time
    assert sum(one["time"] for one in found["kinds"]) == time


def test_a_search_finds_every_hit_once_in_order_both_ways(real: Timeline) -> None:
    lanes = real.all_lanes()
    expected = []
    for place, (lane_id, lane) in enumerate(lanes):
        for level, strip in enumerate(lane.strips):
            for index, number in enumerate(strip.name.tolist()):
                if "EVENT" in real.names[number].upper() or "copy" in real.names[number].lower():
                    key = (int(strip.start[index]), place, level, index)
                    expected.append((key, Place(lane_id, level, index), real.names[number]))
    for text in ("event", "COPY"):
        hits = sorted(one for one in expected if text.lower() in one[2].lower())
        found = find(real, lanes, text, -(1 << 61), None, False)
        assert found["total"] == len(hits)
        if not hits:
            assert found["found"] is None
            continue
        for back in (False, True):
            at = hits[-1] if back else hits[0]
            for number, hit in list(enumerate(hits))[:: -1 if back else 1][:60]:
                assert at == hit
                after = find(real, lanes, text, at[0][0], at[1], back)
                following = hits[(number + (-1 if back else 1)) % len(hits)]
                one = after["found"]
                assert (one["lane"], one["level"], one["index"]) == following[1]
                assert after["number"] == hits.index(following) + 1
                at = following


def test_a_picture_takes_150_kb_at_most(real: Timeline) -> None:
    lanes = real.all_lanes()
    low = min(lane.span[0] for _, lane in lanes)
    high = max(lane.span[1] for _, lane in lanes)
    random = np.random.default_rng(1)
    for _ in range(40):
        span = max(1, int((high - low) * 10 ** random.uniform(-4, 0)))
        begin = int(random.integers(low, high))
        assert len(picture(lanes, begin, begin + span, 1_200)) <= MOST
    assert len(picture(lanes * 40, low, high, 4_096)) <= MOST


def test_the_devices_busy_curve_is_the_union_of_all_streams(real: Timeline) -> None:
    trace = real.profile.attribution.trace
    lanes = real.part("device")
    if not lanes:
        return
    low = min(lane.span[0] for _, lane in lanes)
    high = max(lane.span[1] for _, lane in lanes)
    columns = 37
    reader = reading.Reader(curves(real, "busy", low, high, columns))
    both = pl.concat(
        [trace[name].select("process", "device", "start", "end") for name in ("kernels", "memops")]
    )
    edges = edges_of(low, high, reader.head["columns"])
    for one in reader.head["curves"]:
        share = reader("<f4", reader.head["columns"])
        rows = (
            both.filter(process=one["process"], device=one["device"])
            .sort("start")
            .select("start", "end")
            .rows()
        )
        reached, busy = low, np.zeros(len(edges) - 1)
        for start, end in rows:
            start, reached = max(start, reached), max(reached, end)
            busy += np.maximum(np.minimum(end, edges[1:]) - np.maximum(start, edges[:-1]), 0)
        assert np.allclose(share, busy / np.diff(edges), rtol=1e-6, atol=1e-9)


def test_a_slice_tells_its_op_and_leads_to_its_call_and_op(real: Timeline) -> None:
    profile = real.profile
    kernels = profile.kernels()
    checked = 0
    for lane_id, lane in real.part("device"):
        strip = lane.strips[0]
        for index in range(0, len(strip), max(1, len(strip) // 7)):
            row = int(strip.row[index])
            if row >= lane.about.copies:
                continue
            asked = ask(profile, timeline_slice, lane=lane_id, level="0", index=str(index))
            expected = kernels[row].to_dicts()[0]
            assert asked["name"] == expected["name"]
            assert asked["start"] == str(expected["start"])
            for name in ("op", "layer", "step", "flops", "inputs"):
                assert asked["told"].get(name) == expected[name]
            ties = {one["what"]: one for one in asked["flows"]}
            assert ("op" in ties) <= (expected["op_id"] is not None)
            if "call" in ties:
                call = ties["call"]
                assert call["start"] == str(expected["call_start"])
                back = ask(
                    profile,
                    timeline_slice,
                    lane=call["lane"],
                    level=str(call["level"]),
                    index=str(call["index"]),
                )
                if not back["more"]:
                    assert (lane_id, 0, index) in {
                        (one["lane"], one["level"], one["index"]) for one in back["flows"]
                    }
                checked += 1
    assert (
        checked
        or profile.trace["calls"].is_empty()
        or kernels["call_start"].null_count() == len(kernels)
    )


def test_a_saved_profile_has_the_same_lanes_though_only_their_columns_are_read(
    real: Timeline, tmp_path: Path
) -> None:
    real.profile.kernels(), real.profile.memops()
    real.profile.save(tmp_path / "saved.opscope")
    saved = opscope.load(tmp_path / "saved.opscope")
    held = timeline_of(saved)
    for (one_id, one), (other_id, other) in zip(
        held.part("device"), real.part("device"), strict=True
    ):
        assert (one_id, one.about, len(one.strips)) == (other_id, other.about, len(other.strips))
        for left, right in zip(one.strips, other.strips, strict=True):
            for name in ("start", "before", "row", "kind"):
                assert np.array_equal(getattr(left, name), getattr(right, name))
            texts = [
                [held_by.names[n] for n in strip.name.tolist()]
                for held_by, strip in ((held, left), (real, right))
            ]
            assert texts[0] == texts[1]
    assert "kernels" in saved.trace.tables._files  # type: ignore[attr-defined]  # still unread
    # of one row only its piece is read, and it is the row that the whole table has
    for table, whole_frame in (
        ("kernels", real.profile.kernels()),
        ("memops", real.profile.memops()),
    ):
        columns = [one for one in ("start", "op", "layer", "name") if one in whole_frame.columns]
        for row in range(0, len(whole_frame), max(1, len(whole_frame) // 5)):
            found = saved._columns_of(table, columns, row)
            assert table not in saved._frames
            expected = whole_frame.select(columns)[row]
            assert found.select(columns).cast(pl.String).equals(expected.cast(pl.String))


def test_a_kernels_colour_is_that_of_its_op_whether_or_not_the_table_of_kernels_was_made(
    real: Timeline,
) -> None:
    profile, many = real.profile, len(real.profile.trace["kernels"])

    def every(told: op_kinds.Kinds | None) -> Any:
        return np.full(many, UNTOLD) if told is None else told(0, many)

    assert np.array_equal(
        every(op_kinds._by_attribution(profile)), every(op_kinds._by_columns(profile))
    )
    fresh = Profile(profile.trace)
    with mock.patch.object(op_kinds, "AT_ONCE", 1 << 30):
        told = op_kinds.soon_known(fresh)
    assert told.known
    assert "kernels" not in fresh._frames  # of ten million, it takes 5 s to make
    assert np.array_equal(every(told.kinds), every(op_kinds._by_columns(profile)))


def test_the_kernels_that_a_compiler_wrote_have_the_kind_of_their_own_names() -> None:
    calls = {"start": [10, 30, 50], "end": [20, 40, 60], "correlation": [1, 2, 3]}
    ranges = {"start": [0], "end": [70], "text": ["Torch-Compiled Region: 0/0"], "id": [1]}
    frames = {
        "kernels": pl.DataFrame(
            {
                "start": [100, 200, 300], "end": [150, 250, 350], "correlation": [1, 2, 3],
                "name": ["triton_per_fused_native_layer_norm_0", "triton_poi_fused_add_1", "gemm"],
                "device": [0, 0, 0], "stream": [7, 7, 7],
            }
        ),
        "calls": pl.DataFrame(calls).with_columns(
            pl.lit("cudaLaunchKernel").alias("name"), pl.lit(1, pl.Int64).alias("thread")
        ),
        "ranges": pl.DataFrame(ranges).with_columns(
            pl.lit("opscope.torch").alias("domain"), pl.lit(1, pl.Int64).alias("thread")
        ),
    }  # fmt: skip
    trace = Trace.of({name: one.with_columns(process=0) for name, one in frames.items()})
    profile = Profile(trace)
    told = op_kinds._by_attribution(profile)
    table = op_kinds._by_columns(profile)
    assert told is not None
    assert table is not None
    assert profile.kernels()["op_type"].to_list()[:2] == ["fused", "fused"]
    assert told(0, 3).tolist() == table(0, 3).tolist()
    assert op_kinds.CATEGORY["normalisation"] == told(0, 3)[0] != told(0, 3)[1]


def test_kernels_without_calls_have_no_op_and_nothing_is_read_to_find_that_out(
    tmp_path: Path,
) -> None:
    saved = saved_kernels(tmp_path / "run.opscope")
    with mock.patch.object(op_kinds, "AT_ONCE", 0):
        assert op_kinds.soon_known(saved) == (True, None)
    assert "attribution" not in vars(saved)
    assert "kernels" in saved.trace.tables._files
    assert op_kinds._by_attribution(saved) is None


def saved_kernels(path: Path, many: int = 500) -> Profile:
    """A saved profile of kernels on two streams, with a range and no calls."""
    start = np.arange(many) * 1_000 + 5
    frame = pl.DataFrame({"start": start, "end": start + 100 + start % 1_700}).with_columns(
        pl.Series("name", [f"kernel_{n % 7}" for n in range(many)]),
        pl.Series("stream", np.arange(many) % 2 + 7),
        pl.lit(0).alias("process"), pl.lit(0).alias("device"),
    )  # fmt: skip
    ranges = pl.DataFrame(
        {"process": [0], "thread": [1], "start": [0], "end": [900], "text": ["a"]}
    )
    Profile(Trace.of({"kernels": frame, "ranges": ranges})).save(path, force=True)
    return opscope.load(path)


def drawn(profile: Profile, columns: str = "300") -> tuple[Any, Any, bytes]:
    """The first that a page asks of the timeline: lanes of devices, names, the picture of all."""
    lanes = ask(profile, timeline_lanes, part="device")
    asked = ",".join(f"{one['id']}:{one['levels']}" for one in lanes["lanes"])
    low, high = lanes["span"]
    made = ask(profile, timeline, lanes=asked, start=low, end=high, columns=columns)
    ids = ",".join(map(str, range(7)))
    return lanes, ask(profile, timeline_names, ids=ids), made


def test_the_first_picture_of_a_saved_profile_is_kept_and_no_lane_is_made_for_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.opscope"
    before = drawn(saved_kernels(path))
    again = opscope.load(path)
    wait = threading.Event()

    def late(*given: Any) -> Any:
        assert wait.wait(60)
        return device_lanes.device_lanes(*given)

    with mock.patch.object(index_module, "device_lanes", late):
        lanes, *others = drawn(again)
        assert lanes.pop("kept") is True
        assert [lanes, *others] == list(before)
        held = timeline_of(again)
        assert not {"device", "host"} & vars(held).keys()
        wait.set()
        assert ask(again, timeline_lanes, part="device", made="1") == before[0]
        assert "device" in vars(held)
    # another size, and another window: as exact as if nothing was kept, and the names keep their numbers
    plain = Profile(again.trace)
    for size in ("120", "77"):
        assert drawn(again, size)[2] == drawn(plain, size)[2]
    low, high = map(int, before[0]["span"])
    for window in ((low + 5, high - 7), (low, low + 9_000)):
        asked = {"start": str(window[0]), "end": str(window[1]), "columns": "90"}
        assert ask(again, timeline, **asked) == ask(plain, timeline, **asked)
    assert drawn(again)[1] == drawn(plain)[1] == before[1]
    # the sizes of three pages are kept now; of five, the last four
    for size in ("50", "60"):
        drawn(again, size)
    last = first_pictures.kept(opscope.load(path))
    assert last is not None
    assert [asked.columns for asked, _ in last.pictures] == [120, 77, 50, 60]


def test_only_a_picture_of_all_that_ran_on_devices_is_kept_and_none_of_a_selection(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.opscope"
    profile = saved_kernels(path)
    ask(profile, timeline, lanes="d0", start="5", end="700", columns="20")
    ask(profile, timeline, start="0", end="700000", columns="20")
    drawn(profile.select(device=0))
    assert first_pictures.kept(opscope.load(path)) is None
    before = drawn(profile)
    part = opscope.load(path).select(device=0)
    assert first_pictures.kept(part) is None
    assert drawn(part)[2] == before[2]


@pytest.mark.parametrize("harm", ["cut", "other bytes", "another form", "no bytes"])
def test_kept_pictures_that_are_damaged_or_of_another_version_are_made_again(
    tmp_path: Path, harm: str
) -> None:
    path = tmp_path / "run.opscope"
    before = drawn(saved_kernels(path))
    file = path / "kept.first_pictures.parquet"
    label, frame = pl.read_parquet_metadata(file)["opscope"], pl.read_parquet(file)
    if harm == "cut":
        file.write_bytes(file.read_bytes()[:-40])
    else:
        other = {
            "other bytes": frame[::-1],
            "another form": frame.with_columns(
                byte=pl.when(pl.int_range(pl.len()) == 2)
                .then(pl.lit(7, pl.UInt8))
                .otherwise("byte")
            ),
            "no bytes": pl.DataFrame({"byte": ["x"]}),
        }[harm]
        other.write_parquet(file, metadata={"opscope": label})
    again = opscope.load(path)
    assert timeline_of(again).first is None
    assert drawn(again) == before


def test_a_hint_is_what_the_lane_knows(real: Timeline) -> None:
    for lane_id, lane in real.all_lanes():
        place = {"lane": lane_id, "level": "0", "index": str(len(lane.strips[0]) - 1)}
        long, brief = (ask(real.profile, timeline_slice, **place, brief=one) for one in ("0", "1"))
        known = {name: value for name, value in long.items() if name not in ("inside", "waited")}
        assert brief == {**known, "told": {}, "flows": [], "more": 0}


def test_what_is_inside_a_slice_is_what_plain_loops_find(real: Timeline) -> None:
    checked = 0
    for lane_id, lane in real.all_lanes():
        for level, strip in enumerate(lane.strips[:-1]):
            for index in range(0, len(strip), max(1, len(strip) // 5)):
                place = {"lane": lane_id, "level": str(level), "index": str(index)}
                asked = ask(real.profile, timeline_slice, **place)
                low, high = int(asked["start"]), int(asked["end"])
                deeper = lane.strips[level + 1]
                ends = deeper.start + deeper.lasted(np.arange(len(deeper)))
                within = np.flatnonzero(
                    (deeper.start >= low) & (ends <= high) & (deeper.start < high)
                )
                if asked["inside"] is None:
                    assert not len(within)
                    continue
                assert asked["inside"]["slices"] == len(within)
                assert asked["inside"]["time"] == int(deeper.lasted(within).sum())
                assert asked["inside"]["time"] + asked["inside"]["self_time"] == asked["time"]
                checked += 1
    assert checked or all(len(lane.strips) == 1 for _, lane in real.all_lanes())


def test_what_a_kernel_waited_for_adds_up_to_the_time_from_its_launch(real: Timeline) -> None:
    for lane_id, lane in real.part("device"):
        strip = lane.strips[0]
        for index in range(0, len(strip), max(1, len(strip) // 9)):
            asked = ask(real.profile, timeline_slice, lane=lane_id, level="0", index=str(index))
            before, waited = asked["told"].get("launched_before"), asked["waited"]
            if before is None or len(lane.strips) > 1:
                assert waited is None
                continue
            assert waited["behind_time"] + waited["launch_time"] == max(before, 0)
            assert (waited["behind"] is None) == (waited["behind_time"] == 0)
            assert (waited["idle_before"] is None) == (index == 0)


def test_a_search_for_a_whole_name_leaves_out_longer_ones(real: Timeline) -> None:
    lane_id, lane = real.all_lanes()[0]
    name = real.names[int(lane.strips[0].name[0])]
    exact = ask(real.profile, timeline_find, text=name, **{"from": "0"}, lanes=lane_id, exact="1")
    expected = sum(
        real.names[int(number)] == name for strip in lane.strips for number in strip.name
    )
    assert exact["total"] == expected > 0
    assert exact["found"]["name"] == name


def ask(profile: Profile, module: Any, **given: str) -> Any:
    return module.QUESTION.answer(Asked(Viewed(profile, ("run",)), given))


def test_the_whole_timeline_keeps_the_longest_slices_and_counts_the_rest(real: Timeline) -> None:
    reader = reading.Reader(whole.whole(real, 500))
    lanes = real.all_lanes()
    every = np.concatenate([np.diff(strip.before) for _, lane in lanes for strip in lane.strips])
    kept, names = [], reader.head["names"]
    for lane_head, (_, lane) in zip(reader.head["lanes"], lanes, strict=True):
        for head, strip in zip(lane_head["strips"], lane.strips, strict=True):
            part = reader.slices(head)
            kept.append(part["lasted"])
            absolute = part["start"] + int(reader.head["start"])
            places = np.searchsorted(strip.start, absolute)
            assert np.array_equal(strip.start[places], absolute)
            assert all(number < len(names) for number in part["name"])
    lasted = np.concatenate(kept)
    left = reader.head["left"]
    assert len(lasted) == min(500, len(every))
    assert left["slices"] == len(every) - len(lasted)
    assert left["time"] == every.sum() - lasted.sum()
    if left["slices"]:
        assert lasted.min() == np.sort(every)[-500]
    assert isinstance(ask(real.profile, timeline_all), bytes)


hostile = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "d0",
            "h0:1",
            "d0,d0,d9",
            "-1",
            "0",
            "1" * 19,
            "9" * 21,
            "٣",
            "1e3",
            "d0:0:0",
            "\x00",
            "½",
            "d²",
        ]
    ),
    st.integers(-(1 << 63), 1 << 63).map(str),
)
NAMES = (
    "lanes",
    "start",
    "end",
    "columns",
    "part",
    "ids",
    "lane",
    "level",
    "index",
    "text",
    "from",
    "after",
    "back",
    "of",
)


@given(st.sampled_from(QUESTIONS), st.dictionaries(st.sampled_from(NAMES), hostile, max_size=6))
def test_hostile_parameters_are_refused_in_words(module, given_parameters) -> None:
    try:
        answer = ask(SMALL, module, **given_parameters)
    except BadParameter:
        return
    assert isinstance(answer, (bytes, dict))


@given(st.integers(-(1 << 63), 1 << 63), st.integers(-(1 << 63), 1 << 63), st.integers(1, 4_096))
def test_any_window_of_any_length_is_answered(start, end, columns) -> None:
    for module, more in ((timeline, {}), (timeline_sum, {}), (timeline_curves, {"of": "busy"})):
        try:
            ask(SMALL, module, start=str(start), end=str(end), columns=str(columns), **more)
        except BadParameter:
            assert end <= start or max(abs(start), abs(end)) > 1 << 62


def _small() -> Profile:
    kernels = {
        "process": [0, 0, 0],
        "device": [0, 0, 0],
        "stream": [1, 1, 2],
        "start": [5, 8, 9],
        "end": [9, 12, 9],
    }
    frame = pl.DataFrame({**kernels, "name": ["a", "b<script>", None]})
    return Profile(Trace.of({"kernels": frame}))


SMALL = _small()


def test_nothing_is_no_lane() -> None:
    empty = Profile(Trace.of({}))
    assert ask(empty, timeline_lanes, part="device") == {**ask(empty, timeline_lanes, part="host")}
    assert ask(empty, timeline_lanes)["lanes"] == []
    assert ask(empty, timeline_lanes)["span"] is None
    head, lanes = reading.picture(ask(empty, timeline, start="0", end="10"))
    assert lanes == {}
    assert head["columns"] == 10
    assert ask(empty, timeline_find, text="x", **{"from": "0"}) == {"total": 0, "found": None}
    assert reading.Reader(ask(empty, timeline_all)).head["left"] == {"slices": 0, "time": 0}

"""The lanes of the host: steps of each process; ranges, layers and ops of each thread; its CUDA calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.host.host_lines import known_stacks
from opscope.core.analysis.ops.call_tree import AFTER, named_frame
from opscope.core.analysis.ops.ops import op_index
from opscope.core.attribution.attribute import RUNTIME
from opscope.core.perf import kinds
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import distinct_values, known, numbers_of, pieces
from opscope.core.tables.intervals import Ints
from opscope.core.tables.lanes import lanes

from .lane import CALLS, CATEGORY, LINES, PYTHON, STEPS, THREAD, About, Lane, Names, Slices

if TYPE_CHECKING:
    from opscope.core.dialects import Reading
    from opscope.profile import Profile

_Kind = TypeVar("_Kind", bound=np.generic)


def host_lanes(profile: Profile, names: Names, titles: Callable[[int], str]) -> list[Lane]:
    """Return the lanes of the host, process by process: steps, then threads by their time, each
    with its Python functions and its calls below it. Times are ns as in the trace. Lanes are stored
    like the columns of the profile's attribution: in files if the profile is long."""
    keep = profile.attribution.kept
    lanes_made = []
    makers = (_of_ranges, _of_calls, _of_samples)
    for lane in chain.from_iterable(of(profile, names, titles) for of in makers):
        lane.strips = [strip.kept(keep) for strip in lane.strips]
        lanes_made.append(lane)
    time: dict[tuple[int, int | None], int] = {}
    for lane in lanes_made:
        about = lane.about
        if about.kind not in (PYTHON, LINES):
            key = about.process, about.thread
            time[key] = max(
                time.get(key, 0), sum(int(strip.before[-1]) for strip in lane.strips[:1])
            )
    kinds_in_order = (STEPS, PYTHON, LINES, THREAD, CALLS)

    def place(lane: Lane) -> tuple[int, bool, int, int, int]:
        lane_facts = lane.about
        busy = time.get((lane_facts.process, lane_facts.thread), 0)
        return (
            lane_facts.process,
            lane_facts.kind != STEPS,
            -busy,
            lane_facts.thread or 0,
            kinds_in_order.index(lane_facts.kind),
        )

    return sorted(lanes_made, key=place)


def _of_ranges(profile: Profile, names: Names, titles: Callable[[int], str]) -> Iterator[Lane]:
    attribution = profile.attribution
    ranges = attribution.trace["ranges"]
    if ranges.is_empty():
        return
    drawn = _Told.of(profile, names)
    threads = _thread_names(profile)
    steps: dict[int, list[Ints]] = {}
    for (process, thread), here in lanes(ranges).rows(_draw(profile, drawn)):
        called = threads.get((process, thread), f"thread {thread}")
        kind = drawn.lane.take(_take(attribution.meaning.reading, here))
        stepping = here[kind == _STEP]
        if len(stepping):
            steps.setdefault(process, []).append(stepping)
        parts = [(THREAD, called, _ON_THREAD), (PYTHON, f"{called}: Python", _IN_PYTHON)]
        rows = [here[kind == kind_number].astype(np.int32) for *_, kind_number in parts]
        del here, kind, stepping  # each array of ten million ranges takes 40 to 80 MB
        for (lane, title, _), part in zip(parts, rows, strict=True):
            if len(part):
                about = About(lane, process, titles(process), title, "ranges", thread)
                yield Lane.of(about, drawn.slices(part))
        del rows, part
    for process, step in steps.items():
        about = About(STEPS, process, titles(process), "steps", "ranges")
        rows_of_steps = np.concatenate(step).astype(np.int32)
        yield Lane.of(about, drawn.slices(rows_of_steps))


#: The kinds of lanes of a range: its thread, the thread's Python functions, its process's steps.
_ON_THREAD, _IN_PYTHON, _STEP = range(3)


@dataclass(frozen=True, slots=True)
class _Told:
    """The data for drawing ranges. By reading (distinct text): ``named``: whether it has a name, ``name``:
    the name's number, ``kind``: its category, ``lane``: the kind of lane, ``user``: whether it is a range of
    the user's. ``unended``: the rows of steps that did not end, which are named ``without_end``."""

    start: Ints
    end: Ints
    reading: NDArray[np.int32]
    named: NDArray[np.bool_]
    name: NDArray[np.unsignedinteger[Any]]
    kind: NDArray[np.uint8]
    lane: NDArray[np.uint8]
    user: NDArray[np.bool_]
    unended: Ints
    without_end: int

    @classmethod
    def of(cls, profile: Profile, names: Names) -> _Told:
        attribution = profile.attribution
        ranges, meaning = attribution.trace["ranges"], attribution.meaning
        frames = [_frame(*pair) for pair in zip(meaning.readings, meaning.texts, strict=True)]
        family = dict(enumerate(profile.of(op_index).readings["op_type"].cast(pl.String).to_list()))
        kind = [
            0 if frame is None else _category(frame[1], reading, family.get(number))
            for number, (frame, reading) in enumerate(zip(frames, meaning.readings, strict=True))
        ]
        said = np.array(["" if frame is None else frame[1] for frame in frames])
        first = names.add([None if frame is None else frame[0] for frame in frames], "(range)")
        lane = np.full(len(frames), _ON_THREAD, np.uint8)
        lane[said == "python"] = _IN_PYTHON
        lane[said == "step"] = _STEP
        unended = _unended(profile, lane == _STEP)
        without_end = names.add([AFTER], AFTER) if len(unended) else 0
        return cls(
            known(ranges["start"], 0).to_numpy(),
            known(ranges["end"], 0).to_numpy(),
            meaning.reading,
            said != "",
            np.arange(first, first + len(frames)).astype(np.min_scalar_type(len(names))),
            np.array(kind, np.uint8),
            lane,
            said == "range",
            unended,
            without_end,
        )

    def slices(self, rows: NDArray[np.int32]) -> Slices:
        """Return the slices of some rows, in order."""
        reading = _take(self.reading, rows)
        name = self.name.take(reading)
        if len(self.unended):
            name[np.isin(rows, self.unended)] = self.without_end
        kind = self.kind.take(reading)
        del reading
        return Slices(_take(self.start, rows), _take(self.end, rows), rows, name, kind)


def _unended(profile: Profile, is_step: NDArray[np.bool_]) -> Ints:
    """Return the rows of steps that did not end. ``is_step``: for each reading."""
    attribution = profile.attribution
    reading = attribution.meaning.reading
    if not is_step.any():
        return np.empty(0, np.int64)
    parts = [part.start + np.flatnonzero(is_step[reading[part]]) for part in pieces(len(reading))]
    rows = np.concatenate(parts)
    marked = attribution.trace["ranges"]["attrs"].gather(rows)
    marked = marked.str.contains(UNCLOSED_MARK, literal=True).fill_null(False)
    unended: Ints = rows[marked.to_numpy()]
    return unended


def _draw(profile: Profile, drawn: _Told) -> NDArray[np.bool_]:
    """Return which ranges are drawn as slices."""
    attribution = profile.attribution
    domain = attribution.trace["ranges"]["domain"]
    is_drawn = np.empty(len(drawn.reading), bool)
    for part in pieces(len(is_drawn)):
        reading, is_op = drawn.reading[part], attribution.is_op[part]
        is_drawn[part] = drawn.named[reading] & ((drawn.end[part] > drawn.start[part]) | is_op)
        user = drawn.user[reading]
        if user.any():  # ranges of a framework's runtime internals are not the user's
            internal = (domain[part] == RUNTIME).fill_null(False).to_numpy()
            is_drawn[part] &= ~(user & internal & ~is_op)
    return is_drawn


def _of_calls(profile: Profile, names: Names, titles: Callable[[int], str]) -> Iterator[Lane]:
    calls = profile.attribution.trace["calls"]
    if calls.is_empty():
        return
    timed = (calls["start"].is_not_null() & calls["end"].is_not_null()).to_numpy()
    column = calls["name"].cast(pl.Categorical)
    distinct = distinct_values(column)
    first = names.add(distinct.cast(pl.String).to_list(), "(call)")
    name = np.arange(first, first + len(distinct)).astype(np.min_scalar_type(len(names)))
    numbers = numbers_of(distinct)
    start, end = (known(calls[column_name], 0).to_numpy() for column_name in ("start", "end"))
    threads = _thread_names(profile)
    for (process, thread), here in lanes(calls).rows(timed):
        title = f"{threads.get((process, thread), f'thread {thread}')}: calls"
        about = About(CALLS, process, titles(process), title, "calls", thread)
        rows = here.astype(np.int32)
        del here
        named = np.empty(len(rows), name.dtype)
        for part in pieces(len(rows)):
            named[part] = name.take(numbers(column.gather(rows[part])))
        kind = np.full(len(rows), CATEGORY["call"], np.uint8)
        yield Lane.of(about, Slices(_take(start, rows), _take(end, rows), rows, named, kind))


def _of_samples(profile: Profile, names: Names, titles: Callable[[int], str]) -> Iterator[Lane]:
    """Yield a lane for each thread whose stacks were sampled, with the sampled lines and garbage
    collections."""
    samples = profile.attribution.trace["host_samples"]
    if samples.is_empty():
        return
    known_lines = known_stacks(samples)
    lines = samples.join(known_lines, on=["stack", "call"], how="left", nulls_equal=True)
    text = lines.select(
        pl.coalesce(pl.col("kind").cast(pl.String), "line").fill_null("(no Python)").alias("text")
    )["text"]
    distinct = text.unique(maintain_order=True)
    first = names.add(distinct.to_list(), "(no Python)")
    number = text.replace_strict(distinct, np.arange(first, first + len(distinct))).to_numpy()
    start, end = (samples[name].to_numpy() for name in ("start", "end"))
    threads = _thread_names(profile)
    for (process, thread), here in lanes(samples).rows(np.ones(len(samples), bool)):
        title = f"{threads.get((process, thread), f'thread {thread}')}: sampled lines"
        about = About(LINES, process, titles(process), title, "host_samples", thread)
        kind = np.full(len(here), CATEGORY["python"], np.uint8)
        rows = here.astype(np.int32)
        yield Lane.of(about, Slices(start[here], end[here], rows, number[here], kind))


def _take(column: NDArray[_Kind], rows: Ints | NDArray[np.int32]) -> NDArray[_Kind]:
    """Return the values of some rows, taken in pieces, so that little of a mapped column is in memory."""
    values = np.empty(len(rows), column.dtype)
    for part in pieces(len(rows)):
        column.take(rows[part], out=values[part], mode="clip")
    return values


def _thread_names(profile: Profile) -> dict[tuple[int, int], str]:
    threads = profile.trace["threads"].select("process", "thread", pl.col("name").cast(pl.String))
    return {(process, thread): name for process, thread, name in threads.rows() if name}


def _frame(reading: Reading, text: str) -> tuple[str, str] | None:
    """Return the name and kind of a range's slice; None if the range has no slice."""
    if reading.role == "loader":
        return text, "range"
    frame_there = named_frame(reading, text)
    if frame_there is not None and frame_there[1] == "step":
        return (text if reading.step is None else f"step {reading.step}"), "step"
    return frame_there


def _category(kind: str, reading: Reading, family: str | None) -> int:
    if kind != "op":
        return CATEGORY[kind]
    call = reading.call
    name = None if call is None else call.name
    params = None
    if call is not None and family == "fusion":
        params = ", ".join(f'{key}="{value}"' for key, value in call.params)
    found = kinds.of_op(name, family, reading.direction, params)
    return CATEGORY[found or kinds.of_op_by_name(name, family)]

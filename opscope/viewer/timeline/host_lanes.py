"""The lanes of the host: steps of each process; ranges, layers and ops of each thread; its CUDA calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from opscope.core.analysis.call_tree import AFTER, named_frame
from opscope.core.attribution.attribute import RUNTIME
from opscope.core.perf import kinds
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import compact
from opscope.core.tables.intervals import Ints
from opscope.core.tables.lanes import lanes

from .lane import CALLS, CATEGORY, PYTHON, STEPS, THREAD, About, Lane, Names, Slices

if TYPE_CHECKING:
    from opscope.core.dialects import Reading
    from opscope.profile import Profile


def host_lanes(profile: Profile, names: Names, titles: Callable[[int], str]) -> list[Lane]:
    """Return the lanes of the host, process by process: steps, then threads by their time, each with its
    Python functions and its calls below it. Times are ns as in the trace."""
    found = [*_of_ranges(profile, names, titles), *_of_calls(profile, names, titles)]
    time: dict[tuple[int, int | None], int] = {}
    for lane in found:
        about = lane.about
        if about.kind != PYTHON:
            key = about.process, about.thread
            time[key] = max(time.get(key, 0), sum(int(one.before[-1]) for one in lane.strips[:1]))
    kinds_in_order = (STEPS, PYTHON, THREAD, CALLS)

    def place(lane: Lane) -> tuple[int, bool, int, int, int]:
        one = lane.about
        busy = time.get((one.process, one.thread), 0)
        return (
            one.process,
            one.kind != STEPS,
            -busy,
            one.thread or 0,
            kinds_in_order.index(one.kind),
        )

    return sorted(found, key=place)


def _of_ranges(profile: Profile, names: Names, titles: Callable[[int], str]) -> Iterator[Lane]:
    attribution = profile.attribution
    ranges, meaning = attribution.trace["ranges"], attribution.meaning
    if ranges.is_empty():
        return
    frames = [_frame(*pair) for pair in zip(meaning.readings, meaning.texts, strict=True)]
    family = dict(enumerate(profile._ops.readings["op_type"].cast(pl.String).to_list()))
    kind_of = np.array(
        [
            0 if frame is None else _category(frame[1], reading, family.get(number))
            for number, (frame, reading) in enumerate(zip(frames, meaning.readings, strict=True))
        ],
        np.uint8,
    )
    number = np.array([-1 if frame is None else place for place, frame in enumerate(frames)])
    first = names.add([None if frame is None else frame[0] for frame in frames], "(range)")
    name = np.where(number >= 0, number + first, -1).astype(np.int32)[meaning.reading]
    start, end = (ranges[column].fill_null(0).to_numpy() for column in ("start", "end"))
    said = np.array(["" if frame is None else frame[1] for frame in frames])
    chosen = (name >= 0) & ((end > start) | attribution.is_op)
    is_step = (said == "step")[meaning.reading]
    rows = np.flatnonzero(is_step)
    if len(rows):
        unended = ranges["attrs"].gather(rows).str.contains(UNCLOSED_MARK, literal=True)
        name[rows[unended.fill_null(False).to_numpy()]] = names.add([AFTER], AFTER)
    user = (said == "range")[meaning.reading]
    if user.any():  # a framework's runtime internals are not the user's
        internal = (ranges["domain"] == RUNTIME).fill_null(False).to_numpy()
        chosen &= ~(user & internal & ~attribution.is_op)
    whole = Slices(
        start, end, np.arange(len(ranges), dtype=np.int32), name, kind_of[meaning.reading]
    )
    threads = _thread_names(profile)
    steps: dict[int, list[Ints]] = {}
    python = (said == "python")[meaning.reading]
    for (process, thread), here in lanes(ranges).rows(chosen):
        called = threads.get((process, thread), f"thread {thread}")
        stepping = is_step[here]
        if stepping.any():
            steps.setdefault(process, []).append(here[stepping])
        for kind, title, part in (
            (THREAD, called, here[~stepping & ~python[here]]),
            (PYTHON, f"{called}: Python", here[python[here]]),
        ):
            if len(part):
                about = About(kind, process, titles(process), title, "ranges", thread)
                yield Lane.of(about, whole.at(part))
    for process, parts in steps.items():
        about = About(STEPS, process, titles(process), "steps", "ranges")
        yield Lane.of(about, whole.at(np.concatenate(parts)))


def _of_calls(profile: Profile, names: Names, titles: Callable[[int], str]) -> Iterator[Lane]:
    calls = profile.attribution.trace["calls"]
    if calls.is_empty():
        return
    known = (calls["start"].is_not_null() & calls["end"].is_not_null()).to_numpy()
    codes, texts = compact(calls["name"].cast(pl.Categorical))
    whole = Slices(
        calls["start"].fill_null(0).to_numpy(),
        calls["end"].fill_null(0).to_numpy(),
        np.arange(len(calls), dtype=np.int32),
        (codes + names.add(texts, "(call)")).astype(np.int32),
        np.full(len(calls), CATEGORY["call"], np.uint8),
    )
    threads = _thread_names(profile)
    for (process, thread), rows in lanes(calls).rows(known):
        title = f"{threads.get((process, thread), f'thread {thread}')}: calls"
        yield Lane.of(
            About(CALLS, process, titles(process), title, "calls", thread), whole.at(rows)
        )


def _thread_names(profile: Profile) -> dict[tuple[int, int], str]:
    told = profile.trace["threads"].select("process", "thread", pl.col("name").cast(pl.String))
    return {(process, thread): name for process, thread, name in told.rows() if name}


def _frame(reading: Reading, text: str) -> tuple[str, str] | None:
    """Return the name and kind of a range's slice; None if it has none."""
    if reading.role == "loader":
        return text, "range"
    found = named_frame(reading, text)
    if found is not None and found[1] == "step":
        return (text if reading.step is None else f"step {reading.step}"), "step"
    return found


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

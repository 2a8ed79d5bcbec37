"""Decide which files belong to one job and to one process, from what they record about themselves.

A file says who recorded it (host, process id, start, rank, world size), when (Unix time or a clock of its
own), and which events it has. The facts of two files may prove that they belong to one job, contradict it, or
leave it open. Processes are joined only on proof; files are refused only on a contradiction.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from opscope.core.dialects.launches import GRAPH_LAUNCH
from opscope.core.tables.columns import any_matches
from opscope.core.tables.trace import UNRELATED, Trace, concat, unite

#: Key of a trace's origin: when a session began (ns), which orders the sessions of one process.
SESSION: Final = "session_start"
#: The profilers that can record a process only once at a time.
_ALONE: Final = ("kineto",)
#: Formats that are a compiler's logs of a process which a profiler of another format recorded: they are no
#: further window of the recording.
_LOGS: Final = {"torch_trace": "kineto"}
#: Recordings of one job begin within this time (ns) of each other on Unix clocks.
_NEAR: Final = 3600 * 10**9
#: Fewer events than this may be equal by chance on a clock that begins at 0.
_FEW: Final = 3
#: Up to this many files with equal facts, all pairs are compared.
_FEW_FILES: Final = 32
_TIMED: Final = ("ranges", "calls", "kernels", "memops")
#: Whether a file captures or replays CUDA graphs, by the calls that show it.
_GRAPHS: Final = (("replays", GRAPH_LAUNCH), ("captures", r"StreamBeginCapture|GraphInstantiate"))
_NUMBER: Final = re.compile(r"[0-9]+")
_WAY: Final = "leave one out, or say --unrelated to see them side by side"
_SIDE_BY_SIDE: Final = (
    "the files were given as unrelated: nothing here claims that they are of one job"
)


class Conflict(NamedTuple):
    """Why files do not belong to one job: the file, and the contradiction, which names the other file."""

    path: str
    what: str


class Member(NamedTuple):
    """A process of a file, with its number in the trace."""

    process: int
    host: str | None
    pid: int | None
    start: int | None
    rank: int | None
    world: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that a file records about itself. ``span``: first start and last end (ns) of its events, None
    without any.

    ``events``: number of rows and a digest of the times of its events that does not depend on their order.
    ``steps``: its first and last step. ``graphs``: whether it replays CUDA graphs, or only captures them.
    ``unnamed``: the numbers of the devices that ran something and have no UUID.
    """

    path: str
    format: str
    members: tuple[Member, ...]
    unix: bool
    span: tuple[int, int] | None
    events: tuple[int, int] | None = None
    steps: tuple[int, int] | None = None
    graphs: str | None = None
    uuids: frozenset[str] = frozenset()
    unnamed: frozenset[int] = frozenset()

    def values(self, name: str) -> set[Any]:
        """Return the values of ``name`` of the file's processes, leaving out unknown ones."""
        return {value for each in self.members if (value := getattr(each, name)) is not None}


@dataclass(frozen=True, slots=True)
class Decision:
    """The relation between files: ``same`` has pairs of files of one process (the earlier one first)."""

    conflict: Conflict | None = None
    same: list[tuple[int, int]] = field(default_factory=list)
    warning: str | None = None
    devices: str | None = None

    def notes(self, unrelated: bool) -> list[tuple[str, str]]:
        """Return the warning for the user: severity and text."""
        notes = [("warning", what) for what in (self.warning, self.devices) if what is not None]
        return [("info", _SIDE_BY_SIDE), *notes] if unrelated else notes


def facts_of(path: str, trace: Trace) -> Facts:
    """Return the facts of a trace; ``path`` is the name that the user gave."""
    return _facts(path, trace.origin, trace.tables, _span(trace), more_of(trace))


def more_of(trace: Trace) -> dict[str, Any]:
    """Return, for a trace's partial, the facts (JSON) that its tables of processes and bounds do not have."""
    rows, digest = 0, 0
    for name in _TIMED:
        times = trace[name].select("start", "end").drop_nulls()
        rows += len(times)
        start, end = (times[side].to_numpy().astype(np.uint64) for side in ("start", "end"))
        # a sum, so that the order of events changes nothing
        mixed = (start * np.uint64(0x9E3779B97F4A7C15)) ^ (end * np.uint64(0xC2B2AE3D27D4EB4F))
        digest = (
            digest + int((mixed * np.uint64(0xFF51AFD7ED558CCD)).sum(dtype=np.uint64))
        ) % 2**64
    ranges, names = trace["ranges"], trace["calls"]["name"]
    texts = ranges.filter(pl.col("category") == "step")["text"].cast(pl.String)
    steps = texts.str.extract(r"([0-9]{1,15})\D*\z").cast(pl.Int64).drop_nulls()
    return {
        "events": [rows, str(digest)],
        "steps": [steps.min(), steps.max()] if len(steps) else None,
        "graphs": next((what for what, calls in _GRAPHS if any_matches(names, calls)), None),
        "unnamed": _without_uuid(trace),
    }


def _without_uuid(trace: Trace) -> list[int]:
    """Return the numbers of the devices that ran something and have no UUID."""
    key = ["process", "device"]
    used = pl.concat(trace[name].select(key).unique() for name in ("kernels", "memops"))
    named = trace["devices"].filter(pl.col("uuid").is_not_null())
    left = used.join(named, on=key, how="anti", nulls_equal=True)
    return sorted(left["device"].drop_nulls().unique().to_list())


def facts_of_partial(
    path: str, about: Mapping[str, Any], tables: Mapping[str, pl.DataFrame]
) -> Facts:
    """Return the facts of the file that a partial was made from; older partials have fewer facts."""
    bounds = tables.get("bounds", pl.DataFrame())
    span: Any = (bounds["start"].min(), bounds["end"].max()) if len(bounds) else None
    named = {name.removeprefix("trace."): frame for name, frame in tables.items()}
    # the partial's table of devices has another form
    named["devices"] = tables.get("trace.devices", pl.DataFrame())
    more = about.get("identity") or {}
    return _facts(path, about["origin"], named, span, more)


def _facts(
    path: str,
    origin: Mapping[str, Any],
    tables: Mapping[str, pl.DataFrame],
    span: tuple[int, int] | None,
    more: Mapping[str, Any],
) -> Facts:
    processes, clocks, devices = (
        tables.get(name, pl.DataFrame()) for name in ("processes", "clocks", "devices")
    )
    columns = ("process", "host", "pid", "start_time", "rank", "world_size")
    members = processes.select(columns).rows() if processes.width else []
    to_unix = clocks["to_unix_ns"].unique().to_list() if clocks.width else []
    unix = len(to_unix) == 1 and to_unix[0] is not None
    if unix and span is not None:
        span = span[0] + to_unix[0], span[1] + to_unix[0]
    events, steps = more.get("events"), more.get("steps")
    return Facts(
        path,
        str(origin.get("format")),
        tuple(Member(*row) for row in members),
        unix,
        span,
        (int(events[0]), int(events[1])) if events else None,
        (int(steps[0]), int(steps[1])) if steps else None,
        more.get("graphs"),
        frozenset(devices["uuid"].drop_nulls().to_list() if devices.width else ()),
        frozenset(int(number) for number in more.get("unnamed") or ()),
    )


def decide(files: Sequence[Facts], unrelated: bool = False) -> Decision:
    """Return the relation between the files. ``unrelated``: only equal files are a conflict."""
    conflict = _copies(files)
    if conflict is not None or unrelated or len(files) < 2:
        return Decision(conflict)
    conflict = _worlds(files) or _claims(files)
    if conflict is not None:
        return Decision(conflict)
    same = _same(files)
    conflict = _apart(files, same)
    if conflict is not None:
        return Decision(conflict)
    return Decision(None, same, _unproven(files, same), _alike(files, same))


def join(parts: Sequence[Trace], paths: Sequence[str], unrelated: bool) -> Trace | Conflict:
    """Return the traces in ``paths`` joined, with files of one process as its windows; or why they cannot be
    joined.

    ``unrelated``: the files belong to several jobs.
    """
    if len(parts) < 2:
        return concat(parts)
    order = sorted(range(len(parts)), key=lambda number: _is_log(parts[number].origin))
    parts, paths = [parts[number] for number in order], [paths[number] for number in order]
    files = [facts_of(path, part) for path, part in zip(paths, parts, strict=True)]
    decision = decide(files, unrelated)
    if decision.conflict is not None:
        return decision.conflict
    parts = _sessions(parts, files, decision.same)
    trace = concat(parts)
    first = [part["first_process"] for part in trace.origin["parts"]]
    moves: dict[int, int] = {}
    for one, other in decision.same:
        ours = {each.pid: each.process + first[one] for each in files[one].members}
        for each in files[other].members:
            number = ours.get(each.pid) if each.pid is not None else None
            if number is not None and number != each.process + first[other]:
                moves[each.process + first[other]] = moves.get(number, number)
    if moves:
        trace = unite(trace, moves)
        windows = [other for _, other in decision.same if not _is_log(parts[other].origin)]
        rows = [
            (moves.get(number, number), low, high)
            for part, low, high in _windows(parts, first)
            for number in part
        ]
        # sessions run at the same time
        if windows and SESSION not in parts[decision.same[0][0]].origin:
            trace = _window(trace, rows)
        names = ", ".join(
            sorted({os.path.basename(files[other].path) for _, other in decision.same})
        )
        what = "windows" if windows else "parts"
        trace.note(
            "info",
            f"files with the same process id and rank are read as {what} of one process: {names}",
            len(decision.same),
        )
    if unrelated:
        trace.origin[UNRELATED] = True
    for severity, what in decision.notes(unrelated):
        trace.note(severity, what)
    return trace


def _windows(parts: Sequence[Trace], first: Sequence[int]) -> Iterable[tuple[list[int], int, int]]:
    """Yield the processes of each part that was recorded as one window, and the span of its events."""
    for part, base in zip(parts, first, strict=True):
        span = None if _is_log(part.origin) else _span(part)
        if span is not None and not len(part["windows"]):
            yield [base + number for number in part["processes"]["process"].to_list()], *span


def _is_log(origin: Mapping[str, Any]) -> bool:
    return origin.get("format") in _LOGS


def _span(trace: Trace) -> tuple[int, int] | None:
    """Return the first start and the last end (ns) of the trace's events; None without any."""
    ends = [(frame["start"].min(), frame["end"].max()) for frame in map(trace.__getitem__, _TIMED)]
    known: list[Any] = [pair for pair in ends if None not in pair]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def _window(trace: Trace, rows: list[tuple[int, int, int]]) -> Trace:
    schema = {"process": pl.Int32, "start": pl.Int64, "end": pl.Int64}
    windows = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        source=pl.lit("file"), ended=pl.lit("each file is a window of its process")
    )
    return trace.replace(
        windows=pl.concat([trace["windows"], windows], how="diagonal_relaxed").sort("start")
    )


def _sessions(
    parts: Sequence[Trace], files: Sequence[Facts], same: Iterable[tuple[int, int]]
) -> list[Trace]:
    """Return the parts with the sessions of one process on one clock, each on threads of its own.

    A session's times begin at 0. Its begin is known to a millisecond, so work that two sessions ran in turn
    on one thread may seem to overlap by a millisecond.
    """
    moved = list(parts)
    for one, other in same:
        began = [parts[each].origin.get(SESSION, 0) for each in (one, other)]
        if began == [0, 0]:
            continue
        tables = {}
        for name in parts[other].present:
            frame = moved[other][name]
            times = [side for side in ("start", "end", "time") if side in frame.columns]
            changes = [pl.col(side) + (began[1] - began[0]) for side in times]
            if "thread" in frame.columns:
                changes.append(pl.col("thread") + (other << 40))
            if changes:
                tables[name] = frame.with_columns(changes)
        moved[other] = moved[other].replace(**tables)
    return moved


def _copies(files: Sequence[Facts]) -> Conflict | None:
    seen: dict[Any, str] = {}
    for each in files:
        if each.events is None or each.events[0] < _FEW:
            continue
        # no two ranks have equal times, unless the times are made up: files of one process with equal times
        # are one file, no matter which rank they state
        who = frozenset(one.rank if one.pid is None else (one.pid,) for one in each.members)
        other = seen.setdefault((each.events, who), each.path)
        if other is not each.path:
            reason = f"has the same events as {other}: it would count twice; leave one out"
            return Conflict(each.path, reason)
    return None


def _worlds(files: Sequence[Facts]) -> Conflict | None:
    first: tuple[int, str] | None = None
    for each in files:
        sizes = each.values("world")
        if len(sizes) != 1:
            continue
        size = sizes.pop()
        if first is None:
            first = size, each.path
        elif first[0] != size:
            return Conflict(
                each.path,
                f"is of a job of {size:,} ranks, and {first[1]} of one of {first[0]:,}: they are not of one"
                f" job; {_WAY}",
            )
    return None


def _pairs(said: Iterable[set[Any]]) -> Iterable[tuple[Any, int, int]]:
    """Yield (value, file, file) for files with an equal value: all pairs of a few files, neighbours of
    many."""
    by: dict[Any, list[int]] = defaultdict(list)
    for number, values in enumerate(said):
        for value in values:
            by[value].append(number)
    for value, numbers in by.items():
        some = combinations(numbers, 2) if len(numbers) <= _FEW_FILES else pairwise(numbers)
        for one, other in some:
            yield value, one, other


def _for_captures(one: Facts, other: Facts) -> bool:
    """Return whether one file is given only for the CUDA graphs that it captured and the other replays."""
    return {one.graphs, other.graphs} == {"replays", "captures"}


def _differ(one: Facts, other: Facts, name: str) -> bool:
    ours, theirs = one.values(name), other.values(name)
    return bool(ours) and bool(theirs) and not ours & theirs


def _claims(files: Sequence[Facts]) -> Conflict | None:
    """Return the conflict if two processes have one rank, or one process was recorded twice at the same
    time."""
    for rank, one, other in _pairs(each.values("rank") for each in files):
        a, b = files[one], files[other]
        if a.format != b.format or _for_captures(a, b):
            continue
        for name, words in (("host", "on {}"), ("pid", "process {}"), ("start", "begun at {}")):
            if _differ(a, b, name):
                said = (words.format(_some(each.values(name))) for each in (a, b))
                ours, theirs = said
                return Conflict(
                    b.path,
                    f"has rank {rank} ({theirs}), and so has {a.path} ({ours}): a rank is one process, so"
                    f" they are not of one job; {_WAY}",
                )
        if a.unix and b.unix and a.format in _ALONE and a.values("pid") and _overlap(a, b):
            return Conflict(
                b.path,
                f"and {a.path} have other events of rank {rank}, the same process, at the same time: they are"
                f" not of one job, or one was changed; {_WAY}",
            )
    return None


def _some(values: set[Any]) -> str:
    return ", ".join(map(str, sorted(values)[:3]))


def _overlap(one: Facts, other: Facts, within: int = 0) -> bool:
    if one.span is None or other.span is None:
        return False
    return one.span[0] < other.span[1] + within and other.span[0] < one.span[1] + within


def _same(files: Sequence[Facts]) -> list[tuple[int, int]]:
    """Return the pairs of files of one process, as windows in turn or as sessions at the same time."""
    found = []
    said = [
        {
            (_LOGS.get(each.format, each.format), member.pid, member.rank)
            for member in each.members
            if member.pid is not None
        }
        for each in files
    ]
    pairs = list(_pairs(said))
    # a process id in two files at the same time means two processes, as in containers
    shared = {
        who
        for who, one, other in pairs
        if files[one].format == files[other].format and _overlap(files[one], files[other])
    }
    for who, one, other in pairs:
        a, b = files[one], files[other]
        if a.unix != b.unix or _for_captures(a, b) or a.span is None or b.span is None:
            continue
        if any(_differ(a, b, name) for name in ("host", "start")):
            continue
        hosted = bool(a.values("host") & b.values("host"))
        if a.format == "onnxruntime":
            if _sessions_of_one(a, b):
                found.append((one, other))
            continue
        if who in shared:
            continue
        first, last = (a, b) if a.span <= b.span else (b, a)
        later = first.steps and last.steps and last.steps[0] > first.steps[1]
        if hosted or later or _overlap(a, b, _NEAR):
            found.append((one, other))
    return found


#: The end of a profile name of ONNX Runtime: the local time at which the session began.
_BEGAN: Final = re.compile(
    r"_([0-9]{4})-([0-9]{2})-([0-9]{2})_([0-9]{2})-([0-9]{2})-([0-9]{2})(?:_([0-9]{1,3}))?\.json"
)


def session_start(name: str) -> int | None:
    """Return when a session of ONNX Runtime began (ns, local time), from its profile's name."""
    found = _BEGAN.search(name)
    if found is None:
        return None
    try:
        second = np.datetime64("{}-{}-{}T{}:{}:{}".format(*found.groups()[:6]), "s")
    except ValueError:  # not a valid date
        return None
    return (int(second.astype(np.int64)) * 1000 + int(found[7] or 0)) * 10**6


def _sessions_of_one(one: Facts, other: Facts) -> bool:
    starts = [session_start(os.path.basename(each.path)) for each in (one, other)]
    return None not in starts and abs(starts[0] - starts[1]) < _NEAR  # type: ignore[operator]


def _components(count: int, links: Iterable[tuple[int, int]]) -> list[int]:
    """Return for each of ``count`` files the lowest number of the files that links lead to."""
    of = list(range(count))

    def root(number: int) -> int:
        while of[number] != number:
            of[number] = of[of[number]]
            number = of[number]
        return number

    for one, other in links:
        low, high = sorted((root(one), root(other)))
        of[high] = low
    return [root(number) for number in range(count)]


def _near(files: Sequence[Facts], numbers: Sequence[int], within: int) -> Iterable[tuple[int, int]]:
    """Yield links between files on Unix clocks whose spans are within ``within`` (ns) of each other."""
    spans = sorted((files[number].span or (0, 0), number) for number in numbers)
    last: tuple[int, int] | None = None
    for (begin, end), number in spans:
        if last is not None and begin < last[0] + within:
            yield last[1], number
        if last is None or end > last[0]:
            last = end, number


def _apart(files: Sequence[Facts], same: Sequence[tuple[int, int]]) -> Conflict | None:
    """Return the conflict of files whose Unix times are far apart and that share no process."""
    timed = [n for n, each in enumerate(files) if each.unix and each.span is not None]
    ranked = _pairs(each.values("rank") for each in files)
    captures = [(one, other) for _, one, other in ranked if _for_captures(files[one], files[other])]
    if not any(each.values("rank") for each in files) and {"replays", "captures"} <= {
        each.graphs for each in files
    }:
        return None  # a capture and its replays, with unknown ranks
    of = _components(len(files), [*same, *captures, *_near(files, timed, _NEAR)])
    for number in timed:
        if of[number] != of[timed[0]]:
            a, b = sorted((files[timed[0]], files[number]), key=lambda each: each.span or (0, 0))
            hours = ((b.span or (0, 0))[0] - (a.span or (0, 0))[1]) / _NEAR
            gap = f"{hours:,.1f} hours" if hours < 48 else f"{hours / 24:,.1f} days"
            return Conflict(
                b.path,
                f"begins {gap} after the end of {a.path}, by their Unix clocks, and no process is in both:"
                f" they are of different jobs, or a clock is wrong; {_WAY}",
            )
    return None


def _alike(files: Sequence[Facts], same: Sequence[tuple[int, int]]) -> str | None:
    """Return the warning that processes of several files used devices of the same number, and that it is
    unknown whether these are one device (no UUID, and one host or none). None if it is known."""
    of = _components(len(files), same)
    users: dict[tuple[Any, int], int] = {}
    for number, each in enumerate(files):
        hosts = each.values("host")
        if not each.values("rank") and not each.values("pid"):
            continue
        for key in ((next(iter(hosts), None), device) for device in sorted(each.unnamed)):
            first = users.setdefault(key, number)
            if of[first] != of[number] and len(hosts) < 2:
                host, device = key
                where = (
                    f"of {host}: counted as one" if host else "of no known host: counted as several"
                )
                ranks = [*files[first].values("rank"), *each.values("rank")]
                names = "ranks {} and {}".format(*ranks) if len(ranks) == 2 else "several processes"
                return (
                    f"{names} ran on device {device} {where}; without a UUID it is not known whether it is"
                    " one device"
                )
    return None


def _unproven(files: Sequence[Facts], same: Sequence[tuple[int, int]]) -> str | None:
    """Return the warning that nothing proves that the files belong to one job; None if something does."""
    links = list(same)
    timed = [n for n, each in enumerate(files) if each.unix and each.span is not None]
    links += _near(files, timed, 0)
    keys: dict[Any, int] = {}
    for number, each in enumerate(files):
        said: list[Any] = []
        if not each.unix:  # two runs on one machine or device at different times are two jobs
            said += [("host", host) for host in each.values("host")]
            said += [("uuid", uuid) for uuid in each.uuids]
        said += [("ranks",)] if each.values("rank") else []
        name = os.path.basename(each.path)
        said += [("name", _NUMBER.sub("#", name))] if "rank" in name.lower() else []
        links += [(keys.setdefault(key, number), number) for key in said]
    of = _components(len(files), links)
    other = next((files[number] for number in range(len(files)) if of[number] != of[0]), None)
    if other is None:
        return None
    return (
        f"nothing shows that the files are of one job: no rank, host, process or time is in both"
        f" {os.path.basename(files[0].path)} and {os.path.basename(other.path)}"
    )

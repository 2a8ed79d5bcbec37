"""Read one process's part of a recording (its facts, texts and records) as trace tables."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core import recording_format
from opscope.core.tables.amended import amended
from opscope.core.tables.clockfit import MAX_DRIFT
from opscope.core.tables.columns import utf8
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace, table_schema
from opscope.readers.errors import BadInput
from opscope.readers.recording.parts import integer, refuse_odd
from opscope.readers.sound import sound_trace

from . import ring
from .light import light_tables
from .memory import allocations
from .ranges import Texts, ranges
from .samples import Sampled, samples
from .source_files import MOST as MOST_FILES
from .source_files import source_file
from .stacks import described_sampling, host_samples
from .told_backends import backend_fact

#: Largest size in bytes of meta.json, and of one line of the other files.
MAX_META: Final = 1 << 22
MAX_LINE: Final = 8 << 20
#: Largest number of threads that are read: each takes about a millisecond.
MAX_THREADS: Final = 1 << 16
#: Largest number of names of samples that are read.
MAX_SAMPLED: Final = 1024
#: Numbers in meta.json, each with its exclusive upper bound.
_NUMBERS: Final = {
    "pid": 1 << 31,
    "parent": 1 << 31,
    "start_time": 1 << 62,
    "rank": 1 << 31,
    "world_size": 1 << 31,
}


def read_part(folder: str | os.PathLike[str]) -> Trace:
    """Return one process's part as a trace. An incomplete record at its end is left out and noted.

    Raises BadInput if the folder is not a part, has another format version, or is damaged.
    """
    part = Path(folder)
    meta = _meta(part)
    facts = _Facts.of(part)
    notes: list[tuple[str, str, int]] = list(facts.notes)
    texts = _texts(part, facts.domains)
    segments = ring.segments(part)
    logs = _logs([part, *segments], notes)
    begin = ring.begin(facts.ring, facts.clocks)
    if begin is not None:
        logs = {thread: ring.since(begin, log) for thread, log in logs.items()}
        facts.start = begin if facts.start is None else max(facts.start, begin)
        assert facts.ring is not None
        if facts.ring["last"]:
            message = f"this is the last {facts.ring['last']} of the recording: {facts.ring['why']}"
            notes.append(("info", message, 1))
    elif segments and facts.clocks:  # files that a killed process left
        facts.start = facts.clocks[0][0]
    stop = (
        facts.stop if facts.stop is not None or facts.ring is None else ring.end(logs, facts.clocks)
    )
    if stop is None:
        notes.append(
            (
                "warning",
                "the process ended without closing its recording; its last half second may be missing",
                1,
            )
        )
        timed = (log[log[:, 0] != recording_format.PAYLOAD, 1] for log in logs.values())
        stop = max((int(times.max(initial=0)) for times in timed), default=0)
    table = amended(ranges(logs, texts, facts.os_tids, stop, notes))
    tables = {
        "processes": _processes(meta, facts),
        "threads": _threads(facts),
        "clocks": _clocks(meta, facts, notes),
        "ranges": table.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("id")),
        "own_costs": _own_costs(facts, stop),
        "process_times": _process_times(facts, stop),
    }
    light, light_samples = light_tables(part, facts.light_names, notes)
    tables |= light
    sampled = pl.concat([samples(facts.samples, table), light_samples]).sort(
        "time", maintain_order=True
    )
    if begin is not None:
        sampled = sampled.filter(pl.col("time") >= begin)
    if len(sampled):  # else nothing was sampled
        tables["samples"] = sampled
    if facts.memory:  # otherwise memory was not observed
        tables["allocations"] = allocations(
            part, facts.memory, facts.clocks, notes, segments, begin
        )
    if facts.sampling is not None:  # otherwise no stacks were sampled
        notes.append(("info", facts.sampling, 1))
        lines = map(_sound, _lines(part / recording_format.STACKS))
        stacks = host_samples([part, *segments], begin, lines, notes)
        tables["host_samples"] = stacks
    tables["notes"] = pl.DataFrame(
        notes,
        schema={"severity": pl.String, "what": pl.String, "how_many": pl.Int64},
        orient="row",
    )
    origin = {
        "format": recording_format.FORMAT,
        "version": meta["version"],
        "paths": [str(part)],
        "command": meta.get("command"),
        "private": meta["private"],
        "probes": facts.probes,
        "gpu": facts.gpu,
        "parent_pid": meta.get("parent"),
        "recorded": (facts.start, stop),
        "profiling": facts.profiling,
        "window": facts.window,
        "onnxruntime": facts.sessions,
        "backend": facts.backend,
        "began": facts.start,
        "source_files": facts.source_files,
    }
    if facts.ring is not None:
        origin["ring"] = facts.ring
    return sound_trace(tables, origin)


# ------------------------------------------------------------------------------- the files


def _meta(part: Path) -> dict[str, Any]:
    path = part / recording_format.META
    try:
        refuse_odd(path)
        with path.open("rb") as file:
            meta = _sound(json.loads(file.read(MAX_META)))
    except BadInput:
        raise
    except OSError as error:
        raise BadInput(part, f"not part of an opscope recording: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise BadInput(path, "not JSON") from None
    if not isinstance(meta, dict) or meta.get("format") != recording_format.FORMAT:
        raise BadInput(path, "not part of an opscope recording")
    if meta.get("version") != recording_format.VERSION:
        raise BadInput(
            path,
            f"written in format version {meta.get('version')!r:.40}; this opscope reads"
            f" {recording_format.VERSION}",
        )
    return _type(meta)


def _type(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts in ``meta`` about the process; null for values of the wrong type."""
    typed: dict[str, Any] = {"version": meta["version"]}
    for name in ("host", "boot", "name", "clock"):
        typed[name] = utf8(meta[name]) if isinstance(meta.get(name), str) else None
    for name, most in _NUMBERS.items():
        value = meta.get(name)
        typed[name] = value if type(value) is int and 0 <= value < most else None
    command, versions = meta.get("command"), meta.get("versions")
    words = command if isinstance(command, list) else []
    typed["command"] = [utf8(word) for word in words if isinstance(word, str)] or None
    typed["versions"] = _texts_of(versions)
    typed["private"] = meta.get("private") is True
    return typed


def _texts_of(versions: Any) -> dict[str, str]:
    """Return a dictionary of texts; other values are dropped."""
    items = versions.items() if isinstance(versions, dict) else ()
    return {utf8(name): utf8(value) for name, value in items if isinstance(value, str)}


def _lines(path: Path) -> Iterator[Any]:
    """Yield the complete lines of a JSON-lines file; a killed process leaves an incomplete last one."""
    try:
        refuse_odd(path)
        file = path.open("rb")
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None
    with file:
        while line := file.readline(MAX_LINE):
            if not line.endswith(b"\n"):
                if len(line) == MAX_LINE:
                    raise BadInput(path, f"a line is longer than {MAX_LINE} bytes")
                return
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                raise BadInput(path, f"not JSON: {line[:60]!r}") from None


@dataclass(slots=True)
class _Facts:
    stop: int | None
    domains: dict[str, int]
    threads: list[dict[str, Any]]
    clocks: list[tuple[int, int, int]]
    notes: list[tuple[str, str, int]]
    versions: Mapping[str, str] | None
    #: [before, after, thread] of runtime calls that a backend bracketed, on the recorder's clock
    probes: list[list[int]]
    start: int | None
    #: part of opscope → [ns, calls, N if one call in N is timed], as last written
    costs: dict[str, list[int | None]]
    #: devices whose memory was recorded
    memory: list[dict[str, Any]]
    #: time inside completed steps, and opscope's share of it (ns)
    steps_ns: int | None = None
    in_steps: int | None = None
    #: the end of the time that these counts and ``costs`` cover; 0 in older recordings, which lack it
    until: int = 0
    #: ns that opscope's setup took
    set_up: int = 0
    gpu: bool = False
    #: when a profiler began, and its name
    profiling: tuple[int, str] | None = None
    #: the window that the profiler captured: start, end, steps, why it ended, whether it was chosen
    window: dict[str, Any] | None = None
    #: the backend that recorded the process, why, and why no better one did
    backend: dict[str, Any] | None = None
    #: ONNX Runtime's sessions that were profiled, by number: the model's name, when the profile began (Unix
    #: ns; None if it was not written), and whether it was full
    sessions: dict[int, dict[str, Any]] = field(default_factory=dict)
    #: the process's processor time (ns) at readings of the clock, since the process began
    processor: list[int] = field(default_factory=list)
    #: values over time: (name, device) → (times, values)
    samples: Sampled = field(default_factory=dict)
    #: the names of light mode's samples, by their numbers
    light_names: dict[int, str] = field(default_factory=dict)
    #: when the process began; None if its system does not say
    process_began: int | None = None
    #: the outermost imports: name, start and end
    imports: list[tuple[str, int, int]] = field(default_factory=list)
    #: the sessions that ran models, and when each was made
    made: list[tuple[str, int, int]] = field(default_factory=list)
    #: the user's files that were hashed as the recording ended
    source_files: list[dict[str, str]] = field(default_factory=list)
    #: facts about a ring that was written: where it begins (Unix ns), why it was written
    ring: dict[str, Any] | None = None
    #: the costs of a ring's parts, and its steps, before its first segment
    before: dict[str, list[int | None]] = field(default_factory=dict)
    #: how Python stacks were sampled, in words; None: they were not
    sampling: str | None = None
    #: when the first segment of a ring began; costs count from there
    counted_from: int | None = None

    @classmethod
    def of(cls, part: Path) -> _Facts:
        """Read the facts of a part, including those of a ring's segments."""
        facts = cls(None, {}, [], [], [], None, [], None, {}, [])
        facts._read(part / recording_format.FACTS)
        segments = ring.segments(part)
        for segment in segments:
            facts._read(segment / recording_format.FACTS)
        if segments:
            facts._since_the_first_segment()
        return facts

    def _since_the_first_segment(self) -> None:
        """Subtract the costs from before the ring's first segment."""
        self.counted_from = self.clocks[0][0] if self.clocks else None
        for part, (time, calls, one_in) in self.costs.items():
            then, called, _ = self.before.get(part, [0, 0, None])
            since_then = None if time is None else max(0, time - (then or 0))
            self.costs[part] = [since_then, max(0, (calls or 0) - (called or 0)), one_in]
        inside, steps = self.before.get("", [0, 0])[:2]
        if self.steps_ns is not None and self.in_steps is not None:
            self.in_steps -= min(inside or 0, self.in_steps)
            self.steps_ns -= min(steps or 0, self.steps_ns)

    def _read(self, path: Path) -> None:
        facts = self
        try:
            for line in map(_sound, _lines(path)):
                if "thread" in line:
                    name = line.get("name")
                    numbers = {
                        name_of_field: integer(line[name_of_field])
                        for name_of_field in ("thread", "os_tid", "pthread_id")
                    }
                    facts.threads.append({**numbers, "name": None if name is None else _text(name)})
                elif "clock" in line:
                    perf, unix, error = map(integer, line["clock"])
                    facts.clocks.append((perf, unix, error))
                    if "processor" in line:
                        facts.processor.append(integer(line["processor"]))
                elif "probe" in line:
                    before, after, thread = map(integer, line["probe"])
                    facts.probes.append([before, after, thread])
                elif "memory" in line:
                    facts.memory.append(_memory_fact(line))
                elif "gpu" in line:
                    facts.gpu = bool(line["gpu"])
                elif "profiling" in line:
                    facts.profiling = (integer(line["profiling"]), _text(line["profiler"]))
                elif "window" in line:
                    facts.window = _window_fact(line)
                elif "backend" in line:
                    facts.backend = backend_fact(line)
                elif "note" in line:
                    facts.notes.append(
                        (_text(line["severity"]), _text(line["note"]), integer(line["how_many"]))
                    )
                elif "domain" in line:
                    facts.domains[_text(line["domain"])] = integer(line["number"])
                elif "cost" in line:
                    time, one_in = line["time"], line["one_in"]
                    name, cost = (
                        _text(line["cost"]),
                        [
                            None if time is None else integer(time),
                            integer(line["calls"]),
                            None if one_in is None else integer(one_in),
                        ],
                    )
                    facts.costs[name] = cost
                    facts.before.setdefault(name, cost)
                elif "in_steps" in line:
                    facts.in_steps, facts.steps_ns = (
                        integer(line["in_steps"]),
                        integer(line["steps_ns"]),
                    )
                    facts.before.setdefault("", [facts.in_steps, facts.steps_ns, None])
                    facts.until = integer(line.get("until", 0))
                elif "ring" in line:
                    facts.ring = ring.said(line["ring"])
                elif "samples" in line:
                    torn = _sample(line, facts.samples)
                    if torn:
                        facts.notes.append(("warning", "samples whose times are not known", torn))
                elif "stacks" in line:
                    facts.sampling = described_sampling(line)
                elif "light_name" in line:
                    facts.light_names[integer(line["light_name"])] = _text(line["name"])[:256]
                elif "began" in line and "onnxruntime" not in line:
                    began = line["began"]
                    facts.process_began = None if began is None else integer(began)
                elif "session" in line:
                    start, end = map(integer, line["took"])
                    facts.made.append((_text(line["session"])[:256], start, end))
                elif "imports" in line:
                    for name, start, end in line["imports"]:
                        facts.imports.append((_text(name)[:256], integer(start), integer(end)))
                elif "start" in line:
                    facts.start = integer(line["start"])
                elif "stop" in line:
                    facts.stop = integer(line["stop"])
                elif "setup" in line:
                    begin, end = map(integer, line["setup"])
                    facts.set_up += max(0, end - begin)
                elif "onnxruntime" in line:
                    began = line.get("began")
                    facts.sessions[integer(line["onnxruntime"])] = {
                        "model": _text(line["model"])[:256],
                        "began": None if began is None else integer(began),
                        "full": line.get("full") is True,
                        "within": integer(line.get("within", 0)),
                    }
                elif "source_file" in line:
                    if len(facts.source_files) < MOST_FILES:
                        facts.source_files.append(source_file(line))
                elif "versions" in line:
                    facts.versions = _texts_of(line["versions"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, BadInput):
                raise
            raise BadInput(path, f"a fact of the recording cannot be read: {error!r}") from None

    @property
    def os_tids(self) -> dict[int, int]:
        return {integer(thread["thread"]): integer(thread["os_tid"]) for thread in self.threads}


def _text(value: Any) -> str:
    return utf8(str(value))


def _device(value: Any) -> int:
    number = int(value)
    if not -(1 << 15) <= number < 1 << 15:
        raise ValueError(f"{value!r:.40} is not a device number")
    return number


def _window_fact(line: Mapping[str, Any]) -> dict[str, Any]:
    start, end = map(integer, line["window"])
    first, last = (
        None if step_number is None else integer(step_number) for step_number in line["steps"]
    )
    ended = line["ended"]
    return {
        "start": start,
        "end": end,
        "first_step": first,
        "last_step": last,
        "ended": None if ended is None else _text(ended),
        "chosen": bool(line["chosen"]),
    }


def _sample(line: Mapping[str, Any], into: Sampled) -> int:
    """Add the samples of a fact: values of some names at the same times, of the process or of a device.
    Returns how many were left out because the numbers of values and times differ."""
    torn = 0
    device = None if line.get("device") is None else _device(line["device"])
    times = [integer(time) for time in line["samples"]]
    columns = line["values"]
    if not isinstance(columns, dict):
        raise TypeError("values are no object")
    for name, column in columns.items():
        values = [None if value is None else float(value) for value in column]
        if len(values) != len(times):
            torn += len(values)
            continue
        key = (_text(name)[:256], device)
        if len(into) >= MAX_SAMPLED and key not in into:
            continue
        old = into.setdefault(key, ([], []))
        old[0].extend(times)
        old[1].extend(values)
    return torn


def _memory_fact(line: Mapping[str, Any]) -> dict[str, Any]:
    sizes = {name: line.get(name) for name in ("total", "reserved", "changes")}
    return {
        "memory": _device(line["memory"]),
        **{name: None if size is None else integer(size) for name, size in sizes.items()},
    }


def _texts(part: Path, domains: Mapping[str, int]) -> Texts:
    path = part / recording_format.STRINGS
    rows: dict[int, tuple[str, str | None, str]] = {}
    for line in _lines(path):
        match line:
            case [int(number), str(domain), None | str() as category, str(text)] if (
                0 <= number < recording_format.MARK_BASE
            ):
                # JSON may contain lone surrogates (as file names do); UTF-8 and Polars cannot
                rows[number] = (utf8(domain), category and utf8(category), utf8(text))
            case _:
                raise BadInput(path, f"not a text entry: {_text(line)[:60]}")
    order = sorted(rows)
    table = pl.DataFrame(
        [rows[number] for number in order],
        schema={"domain": pl.Categorical, "category": pl.Categorical, "text": pl.Categorical},
        orient="row",
    )
    numbers = [domains.get(rows[number][0], -1) for number in order]
    return Texts(np.array(order, np.int64), np.array(numbers, np.int64), table)


def _sound(value: Any) -> Any:
    """Return a decoded JSON value with every text valid in UTF-8."""
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, list):
        return [_sound(item) for item in value]
    if isinstance(value, dict):
        return {utf8(key): _sound(item) for key, item in value.items()}
    return value


def _logs(folders: Sequence[Path], notes: list[tuple[str, str, int]]) -> dict[int, Ints]:
    """Return each thread's records, an array of (code, value), with its chunks in these folders joined.

    The loop runs over chunks (one per thread every half second), not over records.
    """
    chunks: dict[int, list[Ints]] = {}
    beyond: set[int] = set()
    lost = sum(_chunks(folder / recording_format.EVENTS, chunks, beyond) for folder in folders)
    if beyond:
        message = f"threads after the first {MAX_THREADS}, whose records are left out"
        notes.append(("warning", message, len(beyond)))
    if lost:
        notes.append(("warning", "the last record is incomplete and was left out", 1))
    path = folders[0] / recording_format.EVENTS
    logs = {thread: np.concatenate(pieces) for thread, pieces in chunks.items()}
    for log in logs.values():
        times = log[log[:, 0] != recording_format.PAYLOAD, 1]
        if len(times) and not 0 <= times.min() <= times.max() < 1 << 62:
            raise BadInput(path, "a time is out of range")
    return logs


def _chunks(path: Path, chunks: dict[int, list[Ints]], beyond: set[int]) -> bool:
    """Add the records in the file to ``chunks``, by thread; return whether the last one is incomplete."""
    try:
        refuse_odd(path)
        size = path.stat().st_size
        if size < recording_format.RECORD_BYTES:
            return False
        data = np.memmap(
            path, dtype="<i8", mode="r", shape=(size // recording_format.RECORD_BYTES, 2)
        )
    except FileNotFoundError:
        return False
    except OSError as error:
        raise BadInput(path, f"cannot be read: {error.strerror}") from None
    at = 0
    lost = size % recording_format.RECORD_BYTES != 0
    while at < len(data):
        code, count = int(data[at, 0]), int(data[at, 1])
        thread = recording_format.CHUNK - code
        if not 0 <= thread < 1 << 31 or count < 0:
            raise BadInput(
                path, f"damaged: no chunk of records at byte {at * recording_format.RECORD_BYTES}"
            )
        at += 1
        lost |= at + count > len(data)
        if thread not in chunks and len(chunks) >= MAX_THREADS:
            beyond.add(thread)
        elif count and at < len(data):
            chunks.setdefault(thread, []).append(np.asarray(data[at : at + count], dtype=np.int64))
        at += count
    return lost


# ------------------------------------------------------------------------------ the tables


def _processes(meta: Mapping[str, Any], facts: _Facts) -> pl.DataFrame:
    versions = dict(facts.versions or meta.get("versions") or {})
    frameworks = [
        name
        for name in ("torch", "tensorflow", "jax", "mindspore", "onnxruntime")
        if name in versions
    ]
    return pl.DataFrame(
        {
            "process": [0],
            "host": [meta.get("host")],
            "pid": [meta.get("pid")],
            "start_time": [meta.get("start_time")],
            "rank": [meta.get("rank")],
            "world_size": [meta.get("world_size")],
            "clock_domain": [0],
            "name": [meta.get("name")],
            "framework": [",".join(frameworks) or None],
            "versions": [json.dumps(versions)],
            "processor_time": [
                facts.processor[-1] - facts.processor[0] if len(facts.processor) > 1 else None
            ],
        },
        strict=False,
    )


def _threads(facts: _Facts) -> pl.DataFrame:
    rows = {int(thread["os_tid"]): thread for thread in facts.threads}
    return pl.DataFrame(
        {
            "process": [0] * len(rows),
            "thread": list(rows),
            "os_tid": list(rows),
            "pthread_id": [thread["pthread_id"] for thread in rows.values()],
            "name": [thread.get("name") for thread in rows.values()],
        },
        schema_overrides={"name": pl.String},
        strict=False,
    )


def _process_times(facts: _Facts, stop: int) -> pl.DataFrame:
    rows: list[tuple[int, int, int, str, str | None]] = [
        (0, start, end, kind, name)
        for kind, times in (("import", facts.imports), ("session", facts.made))
        for name, start, end in times
    ]
    if facts.process_began is not None:
        rows.append((0, facts.process_began, facts.process_began, "began", None))
    if facts.start is not None and facts.start <= stop:
        rows.append((0, facts.start, stop, "recorded", None))
    return pl.DataFrame(rows, schema=table_schema("process_times"), orient="row")


#: Parts of opscope's own cost that are counted in total, not by step.
_NO_HOOKS: Final = frozenset(("other ranges", "writing", "CPU samples", "Python stacks"))


def _own_costs(facts: _Facts, stop: int) -> pl.DataFrame:
    # The last write comes after the end of the recorded time, and counts as a cost.
    end = max(stop, facts.until)
    begin = facts.start if facts.counted_from is None else facts.counted_from
    span = None if begin is None else max(0, end - begin - facts.set_up)
    # if no call of a hook was timed, the part inside steps is not known
    timed = any(
        part not in _NO_HOOKS and time is not None and calls
        for part, (time, calls, _) in facts.costs.items()
    )
    steps = (facts.steps_ns or None, facts.in_steps if facts.steps_ns and timed else None)
    return pl.DataFrame(
        [(0, part, *cost, span, *steps) for part, cost in facts.costs.items()],
        schema=table_schema("own_costs"),
        orient="row",
    )


def _clocks(
    meta: Mapping[str, Any], facts: _Facts, notes: list[tuple[str, str, int]]
) -> pl.DataFrame:
    """Return the clock: Unix ns = time + to_unix_ns at the first reading, and the drift from first to last
    (null if within 1 s). The drift of a clock that was set meanwhile means nothing: that is noted."""
    if not facts.clocks:
        return pl.DataFrame(schema={"clock_domain": pl.Int32})
    first, last = facts.clocks[0], facts.clocks[-1]
    jumps = []
    for before, after in pairwise(facts.clocks):
        moved = (after[1] - after[0]) - (before[1] - before[0])
        if abs(moved) > before[2] + after[2] + MAX_DRIFT * abs(after[0] - before[0]):
            jumps.append(moved / 1e9)
    if jumps:
        by = ", ".join(f"{seconds:+.3g} s" for seconds in jumps[:3])
        message = (
            f"the time of day was set while the process ran (by {by}{' …' if len(jumps) > 3 else ''}):"
            " times of day are those of the clock before; durations are right"
        )
        notes.append(("warning", message, len(jumps)))
    span = last[0] - first[0]
    steady = span > 1_000_000_000 and not jumps
    drift = ((last[1] - first[1]) - span) / span * 1e6 if steady else None
    return pl.DataFrame(
        {
            "clock_domain": [0],
            "kind": [str(meta.get("clock"))],
            "to_unix_ns": [first[1] - first[0]],
            "drift_ppm": [drift],
            "error_ns": [max(first[2], last[2])],
            "machine": [meta.get("boot") or meta.get("host")],
        }
    )

"""Join the runs of ONNX Runtime's sessions with the profile of each session, on the recorder's clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core.rangetext import RangeTextError, format_call, parse
from opscope.core.recording_format import ONNX_FOLDER, ONNX_MODEL, ONNX_ORIGINAL, ONNX_PROFILE
from opscope.core.tables.clockfit import NEAR_DRIFT, ClockFit, fit
from opscope.core.tables.intervals import Ints, nest
from opscope.core.tables.trace import Trace, conform
from opscope.readers.errors import BadInput
from opscope.readers.onnxruntime import reader as onnxruntime
from opscope.readers.recording.onclock import moved, to_unix

#: Both clocks come from one system clock, but the profile has whole µs: the clocks may differ by this much.
NEAR_NS: Final = 20_000
#: The parameter ``nodes`` of a run whose nodes are ops inside it.
TIMED: Final = "timed"
_DOMAIN: Final = onnxruntime.DOMAIN
_TAKEN: Final = ("kernels", "memops", "calls")

LOST: Final = (
    "node times of ONNX Runtime's session {model} are lost: the process ended before it wrote them"
)
UNREAD: Final = "node times of ONNX Runtime's session {model} are missing: {why}"
NO_MODEL: Final = "nodes of ONNX Runtime's session {model} have the profile's shapes alone: {why}"
NOT_SAVED: Final = (
    "the model that it runs was not saved, for it is too large or its provider compiles nodes"
)
FULL: Final = (
    "node times of ONNX Runtime's session {model} end before its runs do: its profile was full"
)
OUTSIDE: Final = "nodes of ONNX Runtime that ran outside the recorded runs were left out"
CLOCK: Final = (
    "node times of ONNX Runtime are whole microseconds, and placed on the recorder's clock to within "
    "{error} ns by {readings} runs"
)
UNPLACED: Final = (
    "node times of ONNX Runtime are placed by the Unix clock: no run shows where they belong"
)


@dataclass(slots=True)
class _Session:
    """A session's profile on the recorder's clock."""

    trace: Trace
    clock: ClockFit
    ops: pl.DataFrame
    others: pl.DataFrame
    outside: int
    #: Ids of the recorded runs to which the nodes belong.
    timed: pl.Series


def merge(
    ranges: Trace, part: Path, sessions: Mapping[int, Mapping[str, Any]], failed: list[BadInput]
) -> Trace:
    """Return the recorder's part ``ranges`` with the nodes of the sessions in it, inside their runs.
    ``sessions``: the part's facts about each (``process_part``). A profile that cannot be read is added to
    ``failed``, and noted; the rest is joined."""
    runs = _runs(ranges)
    placed_sessions = []
    notes: list[tuple[str, str, int]] = []
    for number, session in sorted(sessions.items()):
        mine = runs.filter(pl.col("session") == number)
        path = _profile_in(part / ONNX_FOLDER.format(number))
        if session["began"] is None or path is None:
            notes.append(("warning", LOST.format(model=session["model"]), 1))
            continue
        try:
            profile = _read(path, session["model"], notes)
        except BadInput as error:
            failed.append(error)
            notes.append(("error", UNREAD.format(model=session["model"], why=error.what), 1))
            continue
        guess = session["began"] - to_unix(ranges)
        placed_sessions.append(_place(profile, mine, guess, session["within"], ranges))
        if session["full"]:
            notes.append(("warning", FULL.format(model=session["model"]), 1))
    merged = _join(ranges, placed_sessions) if placed_sessions else ranges
    for note in notes:
        merged.note(*note)
    if placed_sessions:
        _note_clock(merged, placed_sessions)
    return merged


def _profile_in(folder: Path) -> Path | None:
    """Return a session's profile; None if it was not written. For a session made in C++, ONNX Runtime
    itself writes the profile when the session ends, under a name with the time."""
    path = folder / ONNX_PROFILE
    if path.is_file():
        return path
    named = sorted(folder.glob(f"{path.stem}_*{path.suffix}"))
    return named[0] if named and named[0].is_file() and named[0].stat().st_size else None


def _read(path: Path, model: str, notes: list[tuple[str, str, int]]) -> Trace:
    """Return a session's profile, with its model if that can be read. Raises BadInput."""
    folder = path.parent
    # the model that was given explains the nodes that were not fused, and names those that were
    saved = folder / ONNX_MODEL
    given = saved if saved.is_file() else folder / ONNX_ORIGINAL
    why = NOT_SAVED
    if given.is_file():
        try:
            trace = onnxruntime.read(path, given)
        except BadInput as error:
            if error.path == str(path):
                raise
            why = error.what
        else:
            if given != saved:
                notes.append(("info", NO_MODEL.format(model=model, why=NOT_SAVED), 1))
            return trace
    notes.append(("info", NO_MODEL.format(model=model, why=why), 1))
    return onnxruntime.read(path)


def _runs(ranges: Trace) -> pl.DataFrame:
    """Return the runs of sessions: thread, start, end, and the session's number."""
    own = ranges["ranges"].filter(pl.col("domain").cast(pl.String) == _DOMAIN)
    texts = own["text"].cast(pl.String).unique().to_list()
    numbers = {text: number for text in texts if (number := _session_of(text)) is not None}
    return own.select(
        "id", "thread", "start", "end", "text",
        pl.col("text").cast(pl.String)
        .replace_strict(numbers, default=None, return_dtype=pl.Int64).alias("session"),
    ).drop_nulls().sort("start")  # fmt: skip


def _session_of(text: str | None) -> int | None:
    """Return the number of the session whose run a range is; None for other ranges."""
    try:
        call = parse(text or "")
    except RangeTextError:
        return None
    number = call.param("session")
    asks = call.name.endswith(".run_async")  # the run itself is on another thread
    return number if isinstance(number, int) and not asks else None


# ------------------------------------------------------------------------------------ clocks


def _place(profile: Trace, runs: pl.DataFrame, guess: int, within: int, ranges: Trace) -> _Session:
    """Put a session's profile on the recorder's clock; the amount to add to its times is ``guess``, or up
    to ``within`` ns more."""
    theirs = profile["ranges"]
    is_run = (pl.col("category") == "step").fill_null(False) | (
        pl.col("text").cast(pl.String) == onnxruntime.RUN
    )
    # the profile's times are rounded down to whole microseconds
    error = 1_000 + int(ranges["clocks"]["error_ns"].fill_null(0).max() or 0)  # type: ignore[arg-type]
    of_runs = theirs.filter(is_run)
    placed = _in_order(of_runs, runs, (guess, guess + within), error) if within else None
    clock = placed or _fit(of_runs, runs, guess, error)
    of_nodes = (pl.col("category") == "forward").fill_null(False)
    ops = moved(theirs.filter(of_nodes), clock)
    run = _run_of(ops, runs)
    timed = runs["id"].gather(np.unique(run[run >= 0]))
    kept = _with_lines(ops.filter(pl.Series(run >= 0)), runs["text"].gather(run[run >= 0]))
    phases = moved(theirs.filter((pl.col("category") == "phase").fill_null(False)), clock)
    recorded, _ = ranges.origin.get("recorded") or (None, None)
    phases = phases.filter(pl.col("start") >= (recorded or 0))
    return _Session(profile, clock, kept, phases, int((run < 0).sum()), timed)


def _fit(theirs: pl.DataFrame, runs: pl.DataFrame, guess: int, error: int) -> ClockFit:
    """Return the clock correction with which each run of the profile lies in the run that was recorded
    around it. ``guess`` comes from a system clock that both have read, with the error ``error``, so it is
    right unless that clock was set meanwhile. A bracket may be long, because the thread may have waited in
    it."""
    rows, row = _around(theirs, runs, guess)
    if not len(rows):
        return ClockFit(0, guess, 0.0, NEAR_NS, 0, 0)
    before, after = (runs[name].gather(row).to_numpy() for name in ("start", "end"))
    start, end = (theirs[name].gather(rows).to_numpy() for name in ("start", "end"))
    slack = min(int((start + guess - before).min()), int((after - end - guess).min()))
    if slack >= -error:
        return ClockFit(0, guess, 0.0, error, slack, len(rows))
    return fit(before, after, start, end, NEAR_DRIFT)


def _in_order(
    theirs: pl.DataFrame, runs: pl.DataFrame, guesses: tuple[int, int], error: int
) -> ClockFit | None:
    """Return the clock correction with which each run lies in the recorded run of the same number; None if
    there is none.

    For a session made in C++, it is only known that its profile began while the session was made.
    ``guesses``: the smallest and the largest offset that may be added to its times.
    """
    if len(theirs) != len(runs) or not len(runs):
        return None
    own = theirs.sort("start")
    least = int((runs["start"] - own["start"]).max() or 0)
    most = int((runs["end"] - own["end"]).min() or 0)
    low, high = max(least, guesses[0]), min(most, guesses[1])
    if low - error > high + error:
        return None
    shift = (low + high) // 2
    slack = min(shift - least, most - shift)
    return ClockFit(0, shift, 0.0, max(error, (high - low) // 2), slack, len(runs))


def _around(theirs: pl.DataFrame, runs: pl.DataFrame, guess: int) -> tuple[Ints, Ints]:
    """Return the rows of the profile's runs, and for each the recorded run that is open at its middle on
    its thread."""
    middle = ((theirs["start"] + theirs["end"]) // 2 + guess).to_numpy()
    thread = theirs["thread"].to_numpy()
    run_of_row = np.full(len(theirs), -1, np.int64)
    for number in np.unique(thread).tolist():
        at = np.flatnonzero(thread == number)
        mine = np.flatnonzero((runs["thread"] == number).to_numpy())
        if len(mine):
            start, end = (runs[name].gather(mine).to_numpy() for name in ("start", "end"))
            inner = nest(start, end).innermost(middle[at])
            run_of_row[at] = np.where(inner >= 0, mine[np.maximum(inner, 0)], -1)
    # a recorded run contains one run; another run inside it belongs to a session that a callback used
    rows = np.flatnonzero(run_of_row >= 0)
    _, first, counts = np.unique(run_of_row[rows], return_index=True, return_counts=True)
    rows = rows[first[counts == 1]]
    return rows, run_of_row[rows]


def _run_of(ops: pl.DataFrame, runs: pl.DataFrame) -> Ints:
    """Return the run of its session in which each op begins, -1 for none. The run may be on any thread,
    because a session may use several; if several runs contain the op, take the run on the op's thread."""
    run_of_op = np.full(len(ops), -1, np.int64)
    if runs.is_empty():
        return run_of_op
    time = ops["start"].to_numpy()
    run_of_op[:] = nest(runs["start"].to_numpy(), runs["end"].to_numpy()).innermost(time)
    thread = ops["thread"].to_numpy()
    for number in np.unique(thread).tolist():
        mine = np.flatnonzero((runs["thread"] == number).to_numpy())
        if len(mine):
            at = np.flatnonzero(thread == number)
            start, end = (runs[name].gather(mine).to_numpy() for name in ("start", "end"))
            inner = nest(start, end).innermost(time[at])
            run_of_op[at[inner >= 0]] = mine[inner[inner >= 0]]
    return run_of_op


def _with_lines(ops: pl.DataFrame, runs: pl.Series) -> pl.DataFrame:
    """Return the ops with the lines of their runs, whose texts are ``runs``; a node's own lines stay.

    The loop is over the distinct nodes of each line, not over events.
    """
    both = pl.DataFrame({"text": ops["text"].cast(pl.String), "run": runs.cast(pl.String)})
    distinct = both.unique(maintain_order=True)
    texts = [_at_line(text, run) for text, run in distinct.iter_rows()]
    lined_texts = distinct.with_columns(pl.Series("lined", texts, dtype=pl.String))
    lined = both.join(lined_texts, on=["text", "run"], how="left", maintain_order="left")["lined"]
    return ops.with_columns(lined.cast(pl.Categorical).alias("text"))


def _at_line(text: str, run: str) -> str:
    frames = parse(run).frames
    try:
        call = parse(text)
    except RangeTextError:
        return text
    return text if call.frames or not frames else format_call(replace(call, frames=frames), None)


# ------------------------------------------------------------------------------------ tables


def _join(ranges: Trace, sessions: Sequence[_Session]) -> Trace:
    tables = {name: ranges[name] for name in ranges.present}
    timed = pl.concat([session.timed for session in sessions])
    own = [_mark(ranges["ranges"], timed)]
    last = own[0]["id"].max()
    first = 0 if last is None else int(last) + 1  # type: ignore[arg-type]
    threads = [ranges["threads"]]
    device: dict[str, list[pl.DataFrame]] = {name: [] for name in _TAKEN}
    correlation = _most(ranges, "calls", "correlation")
    gpu = False
    for session in sessions:
        for frame in (session.others, session.ops):
            ids = pl.int_range(first, first + len(frame), dtype=pl.Int64, eager=True).alias("id")
            own.append(frame.with_columns(ids, pl.lit(0, pl.Int32).alias("process")))
            first += len(frame)
        threads_used = pl.concat(threads)["thread"].implode()
        used = session.ops["thread"].unique().implode()
        threads.append(
            session.trace["threads"].filter(
                pl.col("thread").is_in(used) & ~pl.col("thread").is_in(threads_used)
            )
        )  # fmt: skip
        gpu |= bool(session.trace.origin.get("gpu"))
        if ranges.has("kernels"):
            continue  # another profiler captured the kernels
        for name in _TAKEN:
            if session.trace.has(name):
                frame = moved(session.trace[name], session.clock)
                device[name].append(frame.with_columns(pl.col("correlation") + correlation))
        correlation += _most(session.trace, "calls", "correlation")
    tables["ranges"] = pl.concat(own)
    tables["threads"] = pl.concat(threads)
    for name, frames in device.items():
        if frames:
            before = [tables[name]] if name in tables else []
            tables[name] = pl.concat([*before, *(conform(name, frame) for frame in frames)])
    tables["clocks"] = pl.concat([ranges["clocks"], _clock_row(ranges, sessions)])
    tables["notes"] = pl.concat([ranges["notes"], *(_notes(session.trace) for session in sessions)])
    origin = dict(ranges.origin)
    if gpu:
        origin["gpu"] = True
    return Trace.of(tables, origin)


def _mark(ranges: pl.DataFrame, timed: pl.Series) -> pl.DataFrame:
    """Return the ranges with ``nodes="timed"`` in the calls of the runs whose nodes are known."""
    is_timed = ranges["id"].is_in(timed.implode())
    text = ranges["text"].cast(pl.String)
    marked_texts = {
        text_there: _with_param(text_there)
        for text_there in text.filter(is_timed).unique().to_list()
    }
    marked = text.replace(marked_texts) if marked_texts else text
    return ranges.with_columns(marked.zip_with(is_timed, text).cast(pl.Categorical).alias("text"))


def _with_param(text: str) -> str:
    call = parse(text)
    return format_call(replace(call, params=(*call.params, ("nodes", TIMED))), None)


def _most(trace: Trace, table: str, column: str) -> int:
    most = trace[table][column].max() if trace.has(table) else None
    return 0 if most is None else int(most)  # type: ignore[arg-type]


def _notes(trace: Trace) -> pl.DataFrame:
    """Return the notes of a session's profile, without those that only apply if it is read alone."""
    alone = [onnxruntime.STEPS, onnxruntime.NO_STEPS, onnxruntime.WHOLE]
    return trace["notes"].filter(~pl.col("what").is_in(alone))


def _clock_row(ranges: Trace, sessions: Iterable[_Session]) -> pl.DataFrame:
    worst = max(sessions, key=lambda session: session.clock.error_ns).clock
    domains = ranges["clocks"]["clock_domain"].max()
    number = 1 if domains is None else int(domains) + 1  # type: ignore[arg-type]
    row = {
        "clock_domain": [number],
        "kind": ["onnxruntime"],
        "to_unix_ns": [to_unix(ranges)],
        "drift_ppm": [worst.drift * 1e6],
        "error_ns": [worst.error_ns],
    }
    return conform("clocks", pl.DataFrame(row))


def _note_clock(trace: Trace, sessions: Iterable[_Session]) -> None:
    placed = [session.clock for session in sessions if session.clock.readings]
    unplaced = sum(not session.clock.readings for session in sessions)
    if placed:
        error = max(clock.error_ns for clock in placed)
        readings = sum(clock.readings for clock in placed)
        trace.note("info", CLOCK.format(error=f"{error:,}", readings=f"{readings:,}"))
    if unplaced:
        trace.note("warning", UNPLACED, unplaced)
    outside = sum(session.outside for session in sessions)
    if outside:
        trace.note("info", OUTSIDE, outside)

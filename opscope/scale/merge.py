"""Merge the partials of a job's ranks into one profile, whose frames equal those of ``load`` of all files."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import polars as pl

from opscope.core.analysis.ops.windows import between
from opscope.core.analysis.ranks.distributed import collectives_in, communication_in, lacking_in
from opscope.core.analysis.roofline.coverage import shares_of
from opscope.core.analysis.summary.summary import summary_of
from opscope.core.job.clocks import machines, one_clock
from opscope.core.job.exchanges import of_own_jobs
from opscope.core.job.timed import timed_in
from opscope.core.question.record import Job
from opscope.core.tables.identity import Facts, decide, facts_of_partial
from opscope.core.tables.intervals import union_length
from opscope.core.tables.narrow import Frames, Narrow, Pieces, each
from opscope.core.tables.trace import UNRELATED, Trace
from opscope.profile import Merged
from opscope.readers.errors import BadInput, NoneReadable
from opscope.remote.urls import shown

from . import packed, places
from .answered import rows, sums
from .clocks import Moves, placed
from .identity import FAILED, SUFFIX
from .joined import ORIGINS, SPANS, Joined
from .manifest import Manifest, manifest

#: Tables that ``load`` treats as empty, not as unrecorded, for a file that lacks them while other files have
#: them.
_COMPARED: Final = frozenset(("kernels", "calls", "memops", "ranges", "windows"))
#: Partials that are opened at once: opening a single one takes longer than all other work on it.
_AT_ONCE: Final = 64
#: The reason of kernels whose op may be in the trace of another process.
_CAPTURED: Final = "replayed from a CUDA graph whose capture is not in the trace"


def merge(
    parts: places.Place | Sequence[places.Place],
    *,
    expected: int | Sequence[str] | None = None,
    failed: Sequence[Mapping[str, str]] = (),
    strict: bool = False,
    unrelated: bool = False,
) -> Merged:
    """Return the profile of the job whose partials are in the folder ``parts`` (path or URL), or in a list of
    files (paths or URLs).

    ``expected``: how many ranks there should be, or the names of the partials that should be there
    (``partial_name``); without it as many as the ranks themselves say. ``profile.manifest`` lists the ranks
    that were read, failed or are missing; ``failed``: files that could not be read (``path``, ``what``) and
    for which the folder has no note. Raises opscope.errors.BadInput if a partial was made by another analysis
    or if two are of one file or one process, which would count twice, and if none can be read; with
    ``strict`` also if any cannot. Partials of files that are not of one job raise BadInput too, unless they
    are ``unrelated``. ``profile.save('job.opscope')`` writes it.
    """
    files, noted = _find(parts)
    lost = [*map(dict, failed), *noted]
    twice = [
        path for path, count in Counter(os.fspath(file) for file in files).items() if count > 1
    ]
    if twice:
        raise BadInput(shown(twice[0]), "given twice: it would count twice")
    broken: list[BadInput] = []
    names = {os.path.basename(os.fspath(path)) for path in files}
    absent = [] if expected is None or isinstance(expected, int) else sorted({*expected} - names)
    joined = _join(_read(files, broken if not strict else None), unrelated)
    if not joined.abouts:
        if broken:
            raise broken[0] if len(broken) == 1 else NoneReadable(broken)
        where = shown(os.fspath(parts)) if isinstance(parts, (str, os.PathLike)) else "()"
        raise BadInput(where, "no partials here: opscope partial FILE -o FOLDER makes them")
    if strict and lost:
        raise BadInput(lost[0]["path"], lost[0]["what"])
    lost += [{"path": failure.path, "what": failure.what} for failure in broken]
    return _merge(joined, lost, expected if isinstance(expected, int) else None, absent)


def merged_of(partials: Iterable[packed.Partial]) -> Merged:
    """Return the profile of the job made from the partials, of which there must be at least one; each is
    released after it was added. Raises BadInput as ``merge`` does."""
    return _merge(_join(partials, False), [], None, [])


def _join(partials: Iterable[packed.Partial], unrelated: bool) -> Joined:
    joined, seen = Joined(), _Seen()
    facts: list[Facts] = []
    for partial in partials:
        seen.add(partial)
        facts.append(
            facts_of_partial(partial.about["source"]["place"], partial.about, partial.tables)
        )
        joined.add(partial)
    joined.unrelated, joined.notes = unrelated, _agree(facts, unrelated)
    return joined


def refuse_strangers(files: Sequence[places.Place], unrelated: bool) -> None:
    """Raise BadInput if the partials do not belong to one job, or are windows of one process."""
    facts = [
        facts_of_partial(each.about["source"]["place"], each.about, each.tables)
        for each in _read(files, None)
    ]
    _agree(facts, unrelated)


def _agree(facts: Sequence[Facts], unrelated: bool) -> list[tuple[str, str]]:
    """Return the notes on how the files are related. Raises BadInput if they cannot be merged."""
    decision = decide(facts, unrelated)
    if decision.conflict is not None:
        raise BadInput(*decision.conflict)
    for one, other in decision.same[:1]:
        raise BadInput(
            facts[other].path,
            f"has another window of a process of {facts[one].path}: a merge would count it as two; open both"
            " files by load, or say --unrelated",
        )
    older = sum(each.events is None for each in facts)
    what = (
        "partials of an older version do not say which events they are of: a copy may count twice"
    )
    return [*decision.notes(unrelated), *([("warning", f"{what} ({older:,})")] if older else [])]


def _read(files: Sequence[places.Place], broken: list[BadInput] | None) -> Iterator[packed.Partial]:
    """Yield the partials; those that cannot be read are added to ``broken``, or raised if that is None."""
    for begin in range(0, len(files), _AT_ONCE):
        some = files[begin : begin + _AT_ONCE]
        with ExitStack() as stack:
            local: dict[str, Path] = {}
            for path in some:
                name = shown(os.fspath(path))
                try:
                    local[name] = stack.enter_context(places.at_hand(path))
                except BadInput as error:
                    _broken(error, broken)
            yield from packed.read_all(local, lambda error: _broken(error, broken))


def _broken(error: BadInput, broken: list[BadInput] | None) -> None:
    if broken is None or isinstance(error, packed.OtherAnalysis):
        raise error
    broken.append(error)


def _find(
    parts: places.Place | Sequence[places.Place],
) -> tuple[list[places.Place], list[dict[str, str]]]:
    """Return the partials in order, and the files that could not be read."""
    if not isinstance(parts, (str, os.PathLike)):
        return list(parts), []
    if os.fspath(parts).endswith(SUFFIX):
        return [parts], []
    from opscope.remote.listed import natural  # lazy: like the other imports from that package

    names = sorted(places.names(parts), key=natural)
    failed = []
    for name in names:
        if not name.endswith(FAILED) or name.removesuffix(FAILED) + SUFFIX in names:
            continue
        with places.at_hand(places.join(parts, name)) as local:
            try:
                failure = json.loads(local.read_text("utf-8"))
                failed.append({"path": str(failure["place"]), "what": str(failure["what"])})
            except (ValueError, KeyError, TypeError) as error:
                raise BadInput(places.join(parts, name), f"damaged: {error}") from error
    return [places.join(parts, name) for name in names if name.endswith(SUFFIX)], failed


class _Seen:
    """The files and processes of the partials so far, to refuse one that would count twice."""

    def __init__(self) -> None:
        self._by: dict[tuple[Any, ...], str] = {}

    def add(self, partial: packed.Partial) -> None:
        """Raise BadInput if an earlier partial has the same file or process."""
        location = partial.about["source"]["place"]
        self._once(partial.name, f"is of the same file ({location}) as", "file", location)
        self._once(partial.name, "has the same content as", "content", partial.about["content"])
        processes = partial.tables.get("trace.processes")
        if processes is None:
            return
        columns = (processes[name].to_list() for name in ("host", "pid", "start_time"))
        for host, pid, start in {*zip(*columns, strict=True)}:
            if host is None or pid is None or start is None:
                continue
            problem = f"has a process (pid {pid} on {host}) that is also in"
            self._once(partial.name, problem, "process", host, pid, start)

    def _once(self, name: str, problem: str, *key: Any) -> None:
        if key in self._by:
            raise BadInput(
                name,
                f"{problem} {self._by[key]}: it would count twice; remove one, or open both files by load",
            )
        self._by[key] = name


def _merge(
    joined: Joined, failed: list[dict[str, str]], expected: int | None, absent: list[str]
) -> Merged:
    abouts = joined.abouts
    on_cpu = bool(abouts[0]["cpu_only"])
    if any(bool(about["cpu_only"]) != on_cpu for about in abouts):
        other = next(about for about in abouts if bool(about["cpu_only"]) != on_cpu)
        raise BadInput(
            str(other["place"]),
            "shows a GPU in use and other files show none, or the reverse; sums of the two cannot be"
            " merged: open the files by opscope.load, or merge each kind by itself",
        )
    tables = {
        name.removeprefix("trace."): joined.rows(name)
        for name in joined.held()
        if name.startswith("trace.")
    }
    trace = Trace.of(tables, _origin(abouts, failed))
    for severity, what in joined.notes:
        trace.note(severity, what)
    if joined.unrelated:
        trace.origin[UNRELATED] = True
    exchanges_of_all = _of_own_jobs(joined, "exchanges", trace)
    trace, moves = placed(trace, exchanges_of_all)
    which = manifest(trace["processes"], len(abouts), failed, expected, absent)
    present = frozenset().union(*(about["present"] for about in abouts))
    trace_with_tables = Trace(trace.tables, present, trace.origin)
    exchanged = timed_in(_move(exchanges_of_all, moves), one_clock(trace_with_tables))
    frames = _frames(joined, trace_with_tables, exchanged, moves, on_cpu)
    pieces = _pieces(joined, trace, moves, exchanged)
    if len(abouts) > 1 and (frames["unattributed"]["reason"] == _CAPTURED).any():
        trace.note(
            "info",
            "kernels were replayed from CUDA graphs that their own file does not capture: if another file"
            " does, opscope.load of both finds their ops; a merge does not",
        )
    _note(trace, abouts, moves, which, exchanged)
    about = {
        "present": sorted(present),
        "cpu_only": on_cpu,
        "on_gpu": any(about["on_gpu"] for about in abouts),
        "ranges": sum(about["ranges"] for about in abouts),
        "domains": sorted(set().union(*(about["domains"] for about in abouts))),
        "calls": sorted(set().union(*(about["calls"] for about in abouts))),
        "manifest": which.as_json(),
    }
    return Merged(
        Trace(trace.tables, present | {"notes"}, trace.origin), Frames(frames, pieces), about
    )


def _origin(abouts: Sequence[Mapping[str, Any]], failed: list[dict[str, str]]) -> dict[str, Any]:
    """Return the origin that ``load`` of the files would give."""
    origins = [about["origin"] for about in abouts]
    files = len(failed) + sum(int(origin.get("files", 1)) for origin in origins)
    lost = [*failed, *(item for origin in origins for item in origin.get("failed", ()))]
    if len(origins) == 1:
        origin = dict(origins[0])
    else:
        parts = [
            {**origin, "first_process": about["first_process"]}
            for origin, about in zip(origins, abouts, strict=True)
        ]
        if len(parts) > ORIGINS:  # single files are not listed, only their different formats
            kinds = ("format", "tool", "version", "times")
            alike = {
                json.dumps({key: part.get(key) for key in kinds if key in part}) for part in parts
            }
            parts = [json.loads(part) for part in sorted(alike)]
        origin = {"format": "several", "parts": parts}
    origin["files"] = files
    if lost:
        origin["failed"] = lost
    return origin


def _together(rows: Narrow) -> Pieces:
    """Return the rows in pieces with each process in one piece; a single piece if the process of some rows
    is unknown."""
    if all(not piece["process"].has_nulls() for piece in rows.pieces()):
        return rows.pieces
    return lambda: iter((rows.frame(),))


def _of_own_jobs(joined: Joined, name: str, trace: Trace) -> Pieces:
    return each(_together(joined.narrow(name)), lambda piece: of_own_jobs(piece, trace))


def _move(pieces: Pieces, moves: Moves) -> Pieces:
    """Return collectives on the common clock, without the rows of the ops that called them, which a merge
    lacks."""
    nothing = pl.lit(None, pl.Int64).alias("op")
    return each(
        pieces, lambda piece: moves.moved(piece.with_columns(nothing), ("called", "start", "end"))
    )


def _pieces(joined: Joined, trace: Trace, moves: Moves, exchanged: Pieces) -> dict[str, Pieces]:
    """Return the largest frames as pieces: the frames with rows for each collective, step or device of
    each rank."""
    steps, phases = joined.narrow("step_table").pieces, joined.narrow("step_phases").pieces
    if any(piece["step"].is_not_null().any() for piece in steps()):
        # a process without steps has a row only if no process has steps
        steps, phases = (
            each(table, lambda piece: piece.filter(pl.col("step").is_not_null()))
            for table in (steps, phases)
        )
    memory = joined.narrow("memory").pieces
    own = {*rows()} - {"step_phases", "memory"}
    if trace["devices"].select("name", "cc", "sm_count").n_unique() > 1:
        own.remove("utilization")  # ``load`` compares all steps with the peak of one device
    own |= {"arrivals", "kernel_speeds", "medians_of_samples", "moved"}
    return {
        "exchanged": exchanged,
        "calls_made": _move(_of_own_jobs(joined, "calls_made", trace), moves),
        "step_table": each(steps, lambda piece: moves.moved(piece, ("start", "end"))),
        "step_phases": phases,
        "memory": each(memory, lambda piece: moves.moved(piece, ("peak_time",))),
        **{name.replace(" ", "_"): joined.narrow(name).pieces for name in sorted(own)},
    }


def _frames(
    joined: Joined, trace: Trace, exchanged: Pieces, moves: Moves, on_cpu: bool
) -> dict[str, pl.DataFrame]:
    devices, busy = _devices(joined, trace, moves)
    bounds = moves.moved(joined.rows("bounds"), ("start", "end"))
    summary = summary_of(trace, joined.summary, between(bounds), devices, busy)
    answers = {"summary": summary}

    def answer(name: str) -> pl.DataFrame:
        if name not in answers:
            how = sums()[name]
            answers[name] = how.finished(joined.sums(how.table), job)
        return answers[name]

    base = shares_of(trace)
    job = Job(
        cpu_only=on_cpu,
        compiling=sum(about["compiling"] for about in joined.abouts),
        costs_of=(base, sum(int(about["missing_of"][base]) for about in joined.abouts)),
        answer=answer,
    )
    for name in sums():
        answer(name)
    return {
        **answers,
        "communication": communication_in(
            moves.moved(joined.rows("communication"), ("first", "last")), exchanged
        ),
        "collectives": collectives_in(exchanged),
        "bounds": bounds,
        **{name: joined.rows(name) for name in ("groups", "meshes")},
        # only partials that were made with advice hold it
        **({"rank_advice": joined.rows("rank_advice")} if "rank_advice" in joined.held() else {}),
    }


def _devices(joined: Joined, trace: Trace, moves: Moves) -> tuple[int, int | None]:
    """Return how many devices there are, and how long (ns) they were busy; None if unknown.

    A device is identified by its UUID, else by its number on its machine, as in ``summary.on_devices``.
    Overlapping work of several processes on a device is counted once, which needs all its stretches of work.
    """
    devices, spans = joined.rows("devices"), joined.rows("device_spans")
    machine = dict(machines(trace).select("process", "machine").rows())
    uuids = {
        (process, device): uuid
        for process, device, uuid in trace["devices"].select("process", "device", "uuid").rows()
        if uuid
    }
    of: dict[tuple[Any, ...], list[tuple[Any, Any, int, bool]]] = {}
    all_kept = len(joined.abouts) <= SPANS
    for process, device, time, kept in devices.rows():
        uuid = None if process is None or device is None else uuids.get((process, device))
        key = (uuid,) if uuid else (machine.get(process, process), device)
        of.setdefault(key, []).append((process, device, time, kept and all_kept))
    several = [rows for rows in of.values() if len(rows) > 1]
    device_count = sum(key[-1] is not None for key in of)
    busy = sum(rows[0][2] for rows in of.values() if len(rows) == 1)
    if not all(kept for rows in several for *_, kept in rows):
        return device_count, None
    if several and not spans.is_empty():
        # stretches are stored as the time since the previous one
        start = pl.col("since").cum_sum().over("process", "device").alias("start")
        by = moves.moved(spans.with_columns(start), ("start",)).partition_by(
            "process", "device", as_dict=True
        )
        for rows in several:
            mine = [by[process, device] for process, device, *_ in rows]
            busy += _union(pl.concat(mine))
    return device_count, busy


def _union(spans: pl.DataFrame) -> int:
    start = spans["start"].to_numpy()
    return union_length(start, start + spans["length"].to_numpy())


def _note(
    trace: Trace,
    abouts: Sequence[Mapping[str, Any]],
    moves: Moves,
    which: Manifest,
    exchanged: Pieces,
) -> None:
    """Add notes on data that the merge lacks and ``load`` of all files would have."""
    for failure in which.failed:
        trace.note("error", f"left out: {failure['path']}: {failure['what']}")
    for noun, gone in (("ranks", which.missing), ("files", which.missing_files)):
        if gone:
            some = ", ".join(map(str, gone[:10])) + (" …" if len(gone) > 10 else "")
            trace.note("error", f"missing {noun}: {some}", len(gone))
    if which.duplicates:
        some = ", ".join(map(str, which.duplicates[:10]))
        trace.note("warning", f"several files are of one rank: {some}", len(which.duplicates))
    if which.read < which.expected:
        for text, count in _incomplete(exchanged):
            trace.note("warning", text, count)
    if moves.drifting:
        trace.note(
            "info",
            "clocks of some machines run at another rate: times of steps and collectives are on the common"
            " clock, durations of kernels on the clock of each machine",
        )
    differing = _differing(abouts)
    if differing:
        trace.note(
            "info",
            f"the files record different things ({differing}): each file is judged by its own records,"
            " and opscope.load of all files judges each by the records of all",
        )


def _differing(abouts: Sequence[Mapping[str, Any]]) -> str:
    """Return in words the tables that only some of the files record; "" if all record the same."""
    recorded = [
        {
            *_COMPARED.intersection(about["present"]),
            *(("any range",) if about["ranges"] else ()),
            *(("times of events",) if not about["origin"].get("times") else ()),
        }
        for about in abouts
    ]
    return ", ".join(sorted(set.union(*recorded) - set.intersection(*recorded)))


def _incomplete(exchanged: Pieces) -> Iterator[tuple[str, int]]:
    """Yield a note on the collectives with missing members, if there are any."""
    count = len(lacking_in(exchanged))
    if count:
        yield (
            "collectives are partial, as not all of their members were read: their waiting is that of the"
            " members that were",
            count,
        )


__all__ = ["merge"]

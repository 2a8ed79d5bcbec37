"""How many kernels the recording lost, by process: launches without a kernel, and steps with too few.

A launch without a kernel is a lost kernel, unless it was captured into a CUDA graph, is one with a launch
around it or in it, or the recording ended before its kernel did. Gaps in correlation ids prove nothing: calls
that are not recorded take ids too.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.attribution.attribute import Attribution
from opscope.core.attribution.cuda_graph_captures import captures
from opscope.core.attribution.early_kernels import LATE, LATE_SAID
from opscope.core.dialects.launches import GRAPH_LAUNCH, LAUNCH
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Rows
from opscope.core.question.words import columns
from opscope.core.tables.amended import UNCLOSED_MARK
from opscope.core.tables.columns import at, matching
from opscope.core.tables.intervals import NONE, Ints, merge
from opscope.core.tables.lanes import distinct_numbers
from opscope.core.tables.trace import SELECTED, Trace

#: Calls of other vendors' runtimes that launch a kernel.
_OTHER_LAUNCH: Final = (
    r"^(musa|mu|mc|maca|acl|aclrt|ze|ur|sycl|pi)\w*(Launch\w*Kernel|KernelLaunch|NDRange)"
)
#: From this share of lost kernels on, what rests on idle time is not known.
LEAST: Final = 0.01
#: The recording may end before the kernels of its last launches do; of a larger share of launches, this is
#: no explanation (nsys's file of two H100 ends with 18 of 2,023).
_AT_END: Final = 0.02
#: Of steps that are alike, those with fewer kernels than this share of the usual number lost some.
_FEWER: Final = 0.9
#: Steps are alike if the numbers of their ops differ by less than this share.
_ALIKE: Final = 0.01
#: What a recorder says of records that it could not keep.
_DROPPED: Final = r"(?i)\b(drop|dropped|overwrote|overwritten|lost|truncated|incomplete)\b"
#: Of these, records from amid the run of what host and device did.
_AMID: Final = (
    r"(?i)\b(records|events)\b.*\b(dropped|overw)|\b(dropped|overw\w*)\b.*\b(records|events)\b"
)
#: What the reader says of a file of which any kernel may be missing: it is not in the order of time.
CUT_OFF: Final = "what follows is missing"
#: Calls after which the kernels of all launches before have ended.
_WAITS: Final = r"^(cuda|hip)DeviceSynchronize|^(cu|hip)CtxSynchronize"
#: Why the number is not known: a closed list.
NO_KERNELS: Final = "no kernel was recorded, so the process ran none or none was captured"
NO_LAUNCHES: Final = "the trace records no launches"
NOT_LINKED: Final = "most kernels have no launch record"
GRAPHS: Final = (
    "most kernels were launched by CUDA graphs, whose number of kernels the trace does not give"
)
WITHOUT_GRAPHS: Final = (
    "kernels that CUDA graphs launched are left out: the trace does not give their number"
)
A_PART: Final = "the profile is a part of what was recorded"
XLA: Final = "the trace is XLA's, whose launches need not be one for each kernel"
SCHEMA: Final = {
    "process": pl.Int32,
    "kernels": pl.Int64,
    "kernel_launches": pl.Int64,
    "lost_kernels": pl.Int64,
    "lost_share": pl.Float64,
    "lost_launches": pl.Int64,
    "lost_steps": pl.Int64,
    "reason": pl.String,
}


def lost_kernels(attribution: Attribution) -> pl.DataFrame:
    """Return one row per process with kernels or launches: ``SCHEMA``.

    ``lost_kernels`` is an estimate; null, with ``reason``, where the trace does not tell. ``lost_launches``:
    kernels without a launch record, although later calls were recorded. ``lost_steps``: numbers that are
    missing between those of steps, where the time of such steps is missing too.
    """
    trace, links = attribution.trace, attribution.kernels
    calls = trace["calls"]
    of_kernel, of_call = (
        table["process"].fill_null(NONE).to_numpy() for table in (trace["kernels"], calls)
    )
    if not len(of_kernel) and not len(of_call):
        return pl.DataFrame(schema=SCHEMA)
    launches = _launches(trace)
    lost = _launches_without_kernel(attribution, launches)
    graphed, linked = links.replay >= 0, links.call >= 0
    by_graph = matching(calls["name"], GRAPH_LAUNCH)
    if by_graph.any():
        graphed = graphed | at(by_graph, links.call, False)
    rows = []
    for process in sorted({*distinct_numbers(of_kernel), *distinct_numbers(of_call[launches])}):
        mine = of_kernel == process
        replays = bool((by_graph & (of_call == process)).any())
        kernels, called = int(mine.sum()), int((launches & (of_call == process)).sum())
        reason = _unknown(
            trace,
            kernels,
            called,
            int((mine & graphed).sum()),
            int((mine & (linked | graphed)).sum()),
        )
        fewer = _lost_in_steps(attribution, process, lost)
        if fewer and reason == NO_LAUNCHES:
            reason = None
        number = int((of_call[lost] == process).sum()) + fewer
        bare = np.flatnonzero(mine & ~linked & ~graphed) if reason is None else None
        rows.append(
            {
                "process": None if process == NONE else int(process),
                "kernels": kernels,
                "kernel_launches": called,
                "lost_kernels": None if reason else number,
                "lost_share": None if reason else number / max(number + kernels, 1),
                "lost_launches": None if bare is None else _without_launch(trace, bare, process),
                "lost_steps": _missing_steps(attribution, process),
                "reason": reason or (WITHOUT_GRAPHS if replays else None),
            }
        )
    return pl.DataFrame(rows, schema=SCHEMA)


def _unknown(trace: Trace, kernels: int, called: int, graphed: int, linked: int) -> str | None:
    """Return why launches do not tell how many kernels a process lost; None where they do.

    ``graphed``: kernels of CUDA graphs; ``linked``: these, and kernels whose launch is in the trace.
    """
    origins = [trace.origin, *trace.origin.get("parts", ())]
    if any(origin.get("format") == "xplane" for origin in origins):
        return XLA
    for holds, reason in (
        (SELECTED in trace.origin, A_PART),
        (not kernels, NO_KERNELS),
        (not called, NO_LAUNCHES),
        (2 * graphed > kernels, GRAPHS),
        (2 * linked < kernels, NOT_LINKED),
    ):
        if holds:
            return reason
    return None


def _launches(trace: Trace) -> NDArray[np.bool_]:
    """Return which calls launch one kernel each. A call that failed has no correlation id."""
    calls = trace["calls"]
    named = matching(calls["name"], f"{LAUNCH}|{_OTHER_LAUNCH}")
    found: NDArray[np.bool_] = named & calls["correlation"].is_not_null().to_numpy()
    return found


def _launches_without_kernel(attribution: Attribution, launches: NDArray[np.bool_]) -> Ints:
    """Return the rows of the calls whose kernels are not in the trace although they ran in its time."""
    trace = attribution.trace
    calls, links = trace["calls"], attribution.kernels
    executed = np.zeros(len(calls), bool)
    for launched in (links, attribution.memops):
        executed[launched.call[launched.call >= 0]] = True
        executed[launched.replay[launched.replay >= 0]] = True
    rows = np.flatnonzero(launches & ~executed)
    if not len(rows):
        return rows
    about = ("process", "thread", "start", "end", "correlation")
    table = calls[rows].select(*about).with_columns(pl.Series("row", rows))
    # the launch inside a runtime's call has its id
    ids = trace["kernels"].select("process", "correlation")
    table = table.join(ids, on=["process", "correlation"], how="anti", nulls_equal=True)
    table = table.unique(["process", "correlation"], keep="last", maintain_order=True)
    rows = table["row"].to_numpy().astype(np.int64)
    taken = [capture.rows for capture in _captures(trace, executed)]
    if taken:
        rows = rows[~np.isin(rows, np.concatenate(taken))]
    rows = _outermost(calls, rows, np.flatnonzero(launches & executed))
    return _before_end(trace, rows, launches, executed)


def _captures(trace: Trace, executed: NDArray[np.bool_]) -> list[Any]:
    found = captures(trace, executed)
    return [*found.named.values(), *found.others]


def _outermost(calls: pl.DataFrame, rows: Ints, executed: Ints) -> Ints:
    """Return the launches of ``rows`` that no other launch holds and that hold none that executed."""
    kept = np.ones(len(rows), bool)
    every = np.concatenate([rows, executed])
    process, thread, start, end = (
        calls[name].gather(every).fill_null(NONE).cast(pl.Int64).to_numpy()
        for name in ("process", "thread", "start", "end")
    )
    order = np.lexsort((-end, start, thread, process))
    same = (process[order[1:]] == process[order[:-1]]) & (thread[order[1:]] == thread[order[:-1]])
    inside = np.zeros(len(every), bool)
    nested = same & (end[order[1:]] <= end[order[:-1]]) & (start[order[1:]] < end[order[:-1]])
    inside[order[1:][nested]] = True
    holds = np.zeros(len(every), bool)
    holds[order[:-1][nested & (order[1:] >= len(rows))]] = True
    kept = ~inside[: len(rows)] & ~holds[: len(rows)]
    return rows[kept]


def _before_end(
    trace: Trace, rows: Ints, launches: NDArray[np.bool_], executed: NDArray[np.bool_]
) -> Ints:
    """Return the launches of ``rows`` but those at the end of a process, or of one of its windows, whose
    kernels may have ended after the recording did: few, after all that executed, with no call after them
    that waited for the device."""
    calls = trace["calls"]
    process, start = calls["process"].fill_null(NONE).to_numpy(), calls["start"].to_numpy()
    waits = matching(calls["name"], _WAITS)
    kept = np.ones(len(rows), bool)
    for number in np.unique(process[rows]).tolist():
        mine, here = process == number, np.flatnonzero(process[rows] == number)
        windows = trace["windows"].filter(pl.col("process").fill_null(NONE) == number)
        low, high = merge(*(windows[name].to_numpy() for name in ("start", "end")))
        if len(low):
            kept[here] = start[rows[here]] < at(
                high, np.searchsorted(low, start[rows[here]], "right") - 1, 0
            )
        edges = (
            [*low[1:].tolist(), np.iinfo(np.int64).max] if len(low) else [np.iinfo(np.int64).max]
        )
        since = np.iinfo(np.int64).min
        for until in edges:
            inside = mine & (start >= since) & (start < until)
            some = here[(start[rows[here]] >= since) & (start[rows[here]] < until)]
            since = until
            last, waited = start[inside & launches & executed], start[inside & waits]
            after = some[start[rows[some]] > last.max()] if len(last) else some[:0]
            few = len(after) <= max(1, _AT_END * int((inside & launches).sum()))
            if len(after) and few:
                kept[after] &= bool(len(waited) and waited.max() > start[rows[after]].min())
    return rows[kept]


def _without_launch(trace: Trace, rows: Ints, process: int) -> int:
    """Return how many of the kernels ``rows`` were launched while calls were recorded: their ids are not
    below those of all calls, as they are of kernels that were launched before the recording began."""
    calls, kernels = trace["calls"], trace["kernels"]
    if not len(rows):
        return 0
    of = (calls["process"].fill_null(NONE) == process).to_numpy()
    first = calls["correlation"].filter(pl.Series(of)).min()
    begun = calls["start"].filter(pl.Series(of)).min()
    table = kernels[rows].select("correlation", "start").drop_nulls()
    later = (table["correlation"] > first) & (table["start"] > begun)
    return int(later.sum())


def _steps(attribution: Attribution, process: int) -> pl.DataFrame:
    """Return start, end (ns) and number of the steps of a process that have ended, by start."""
    ranges, meaning = attribution.trace["ranges"], attribution.meaning
    ended = ~pl.col("attrs").str.contains(UNCLOSED_MARK, literal=True).fill_null(False)
    of = pl.col("process").fill_null(NONE) == process
    steps = ranges.with_row_index("_row").filter((pl.col("category") == "step") & ended & of)
    numbers = [meaning.readings[code].step for code in meaning.reading[steps["_row"].to_numpy()]]
    frame = steps.select("start", "end", pl.Series("step", numbers, dtype=pl.Int64))
    return frame.unique(maintain_order=True).sort("start")


def _lost_in_steps(attribution: Attribution, process: int, lost: Ints) -> int:
    """Return how many kernels steps lack beside those that launches show: steps with as many ops as others.

    Nothing where fewer than half of these steps agree on the number of kernels.
    """
    trace, links = attribution.trace, attribution.kernels
    steps = _steps(attribution, process)
    if len(steps) < 3:
        return 0
    low, high = steps["start"].to_numpy(), steps["end"].to_numpy()

    def per_step(times: Ints) -> Ints:
        place = np.searchsorted(low, times, side="right") - 1
        inside = (place >= 0) & (times < at(high, place, 0))
        found: Ints = np.bincount(place[inside], minlength=len(low)).astype(np.int64)
        return found

    calls, ranges = trace["calls"], trace["ranges"]
    mine = (trace["kernels"]["process"].fill_null(NONE) == process).to_numpy()
    called, begun = (table["start"].to_numpy() for table in (calls, ranges))
    by_call, by_op = mine & (links.call >= 0), mine & (links.call < 0) & (links.op >= 0)
    kernels = per_step(called[links.call[by_call]]) + per_step(begun[links.op[by_op]])
    of_lost = calls["process"].fill_null(NONE).gather(lost).to_numpy() == process
    kernels = kernels + per_step(called[lost[of_lost]])
    if kernels.min() >= _FEWER * np.median(kernels):
        return 0
    ops = attribution.is_op & (ranges["process"].fill_null(NONE) == process).to_numpy()
    many = per_step(begun[ops])
    alike = np.abs(many - np.median(many)) <= _ALIKE * np.median(many)
    usual = float(np.median(kernels[alike])) if alike.sum() >= 3 else 0.0
    agree = np.abs(kernels[alike] - usual) <= _ALIKE * usual
    if not usual or 2 * int(agree.sum()) <= int(alike.sum()):
        return 0
    short = alike & (kernels < _FEWER * usual)
    return round(float((usual - kernels[short]).sum()))


def _missing_steps(attribution: Attribution, process: int) -> int:
    """Return how many numbers are missing between those of steps, where their time is missing too."""
    trace = attribution.trace
    if len(trace["windows"]) or SELECTED in trace.origin:
        return 0
    steps = _steps(attribution, process).drop_nulls("step")
    if len(steps) < 3:
        return 0
    number, low, high = (steps[name].to_numpy() for name in ("step", "start", "end"))
    gap, missing = low[1:] - high[:-1], np.diff(number) - 1
    length = float(np.median(high - low))
    return int(missing[(missing > 0) & (gap >= 0.5 * length * missing)].sum())


def idle_unknown(profile: Answers) -> str | None:
    """Why it is not known when a device was idle: lost kernels may have run then.

    None where it is known, as where less than 1 % of the kernels of each process is lost.
    """
    cut = [text for text in losses(profile) if CUT_OFF in text]
    if cut:
        return _not_known(cut[0])
    # linking the launches, which finding lost kernels does, made this note
    if profile.trace["notes"]["what"].cast(pl.String).str.contains(LATE_SAID, literal=True).any():
        return _not_known(LATE.partition(", so")[0])
    said = _drop(profile.trace).filter(pl.col("what").cast(pl.String).str.contains(_AMID))
    if len(said):
        number = int(said["how_many"].sum())
        return _not_known(f"the recorder dropped records ({units.count(number)})")
    lost = profile.ask("lost_kernels")
    if lost.filter(pl.col("lost_share") >= LEAST).is_empty():
        return None
    return _not_known(in_words(lost) or "")


def not_comparable(profile: Answers) -> str | None:
    """What a profile lacks in kernels and their launches; None if less than 1 % of them, or nothing."""
    lost = profile.ask("lost_kernels")
    few = pl.max_horizontal(
        pl.col("lost_kernels").fill_null(0), pl.col("lost_launches").fill_null(0)
    )
    amid = lost.filter(
        few >= LEAST * (pl.col("kernels") + pl.col("lost_kernels").fill_null(0)).clip(1)
    )
    if amid.is_empty() and profile.of(idle_unknown) is None:
        return None
    return "; ".join(profile.of(losses)) or None


def _not_known(what: str) -> str:
    return f"{what}: idle time, and what rests on it, is not known"


def _drop(trace: Trace) -> pl.DataFrame:
    """Return the notes in which the recorder says that it dropped records."""
    notes = trace["notes"]
    # an error names a file that is left out
    serious = notes["severity"].cast(pl.String) == "warning"
    what = notes["what"].cast(pl.String)
    dropped = what.str.contains(_DROPPED) | what.str.contains(CUT_OFF, literal=True)
    return notes.filter(serious & dropped)


def in_words(lost: pl.DataFrame) -> str | None:
    """Return the estimate in words: ``about 30 of 32 kernels (93.8 %) are missing``; None where none is."""
    known = lost.filter(pl.col("lost_kernels").is_not_null())
    missing, kernels = int(known["lost_kernels"].sum()), int(known["kernels"].sum())
    if not missing:
        return None
    whole = missing + kernels
    verb = "is" if missing == 1 else "are"
    return (
        f"about {units.count(missing)} of {units.count(whole)} kernels ({units.share(missing / whole)})"
        f" {verb} missing in the file"
    )


def losses(profile: Answers) -> list[str]:
    """What the data lacks, a sentence each: kernels, launches, steps, and what the recorder dropped."""
    lost = profile.ask("lost_kernels")
    found = [in_words(lost)]
    nouns = {
        "lost_launches": ("launch of a kernel", "launches of kernels"),
        "lost_steps": ("step", "steps"),
    }
    for name, (noun, plural) in nouns.items():
        number = int(lost[name].sum() or 0)
        verb = "is" if number == 1 else "are"
        said = f"{units.counted(number, noun, plural)} {verb} missing in the file"
        found.append(said if number else None)
    for what, number in _drop(profile.trace).select("what", "how_many").rows():
        found.append(units.text(what) + (f" ({units.count(number)})" if number > 1 else ""))
    return [text for text in found if text]


def answer(profile: Answers) -> pl.DataFrame:
    """How many kernels the recording lost, by process: an estimate from launches and repeated steps.

    Null, with the reason, where the trace does not tell. Of a selection: of all that was recorded.
    """
    # of a part, calls stay whose kernels are not selected
    of = profile if profile._part_of is None else profile._part_of[0]
    return lost_kernels(of.attribution)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "lost_kernels()",
            "one row per process that launched or ran kernels",
            columns(
                "process kernels kernel_launches lost_kernels lost_share lost_launches lost_steps reason",
                """
                kernels: count: kernels in the file
                kernel_launches: count: calls that launch a kernel each, CUDA graphs left out
                lost_kernels: count: kernels that ran and are not in the file, estimated; null if the
                    trace does not tell
                lost_share: fraction: lost_kernels / (kernels + lost_kernels)
                lost_launches: count: kernels whose launch is not in the file although it was made while
                    launches were recorded
                lost_steps: count: steps whose numbers and times are missing between others
                reason: text: why the number of lost kernels is not known, or what it leaves out
                """,
            ),
        ),
    ),
    merged=(Rows(),),
    reports=(
        Report(
            name="lost_kernels",
            title="Lost kernels",
            empty="no kernels and no launches in this profile",
            gpu_only=True,
        ),
    ),
)

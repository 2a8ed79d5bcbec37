"""All of each process's wall time in one table: imports, building, compiling, steps by their parts, the rest.

Each nanosecond from the process's start to its exit counts once, in the first of these layers that covers it:
imports, compiling, time that opscope did not observe, then the section of the run (``run_sections``), where a
step is divided into its parts. So a process's rows add up to its total time. Time before or after everything
in the trace is a row with a null time, and the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from opscope.core import light_format
from opscope.core.analysis.answers import Answers
from opscope.core.analysis.host.host_lines import busiest_line, lines_of_steps
from opscope.core.analysis.host.wall_time_table import NO_MORE, wall_time_table
from opscope.core.analysis.ops.exchanges import exchanges
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.ops.windows import event_bounds
from opscope.core.analysis.steps.sections import (
    AFTER,
    BEFORE,
    BETWEEN,
    BUILDING,
    CHECKPOINTING,
    EVALUATION,
    STEP,
    run_sections,
)
from opscope.core.analysis.steps.step_phases import PHASES, phases_of_steps
from opscope.core.analysis.steps.step_times import Spans, happened, made_up
from opscope.core.analysis.summary.summary import compiles
from opscope.core.question import units
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report, Rows
from opscope.core.question.words import columns
from opscope.core.tables.columns import matching
from opscope.core.tables.intervals import clip, intersect, merge, subtract

IMPORTS, COMPILING, STEPS, RUN = "imports", "compiling", "steps", "run"
NOT_YET, PAUSED = "before opscope", "while opscope paused"
#: The sections in their order, and the parts of the steps (and of a run without steps).
ORDER: Final = (
    *(
        NOT_YET,
        IMPORTS,
        BEFORE,
        BUILDING,
        COMPILING,
        STEPS,
        RUN,
        EVALUATION,
        CHECKPOINTING,
        BETWEEN,
    ),
    *(AFTER, PAUSED, NO_MORE),
)
COMMUNICATION, OTHER = "communication", "other"
PARTS: Final = ("input", "forward", "backward", "optimizer", COMMUNICATION, OTHER)
SCHEMA: Final = {
    "process": pl.Int32,
    "rank": pl.Int32,
    "section": pl.String,
    "part": pl.String,
    "count": pl.Int64,
    "time": pl.Int64,
    "share": pl.Float64,
    "outside_ops": pl.Int64,
    "line": pl.String,
    "line_time": pl.Int64,
    "detail": pl.String,
    "reason": pl.String,
}
#: Intervals (ns) of a process's time outside any op, each with its source line.
LINES: Final = {
    "process": pl.Int32,
    "start": pl.Int64,
    "end": pl.Int64,
    "line": pl.String,
    "kind": pl.String,
}
#: Reasons why the time before or after is unknown, for a trace and for a recording; and the texts for an exit
#: status.
EXIT_STATUS: Final = "exit status "
NO_BEGIN: Final = "the trace does not say when the process began and ended"
NO_END: Final = NO_BEGIN
NO_START: Final = "the system does not say when the process began"
NO_EXIT: Final = "opscope did not start this process, and did not see its exit"
SELECTION: Final = "only a part of the profile is selected"
_NOTHING: Final[Spans] = (np.empty(0, np.int64), np.empty(0, np.int64))
Layer = tuple[str, str | None, Spans]


@dataclass(frozen=True, slots=True)
class Life:
    """When a process ran, and when opscope observed it (ns). ``began``, ``ended``: None if unknown."""

    began: int | None
    ended: int | None
    recorded: Spans
    why_began: str = NO_BEGIN
    why_ended: str = NO_END

    @property
    def edges(self) -> list[int]:
        """Return when opscope began and stopped observing the process."""
        return [*self.recorded[0][:1].tolist(), *self.recorded[1][-1:].tolist()]


def layered(extent: tuple[int, int], layers: Sequence[Spans]) -> list[Spans]:
    """Return the part of ``extent`` in each layer but in no layer before it, and last the part in none.

    Together they make up the extent: every nanosecond is in exactly one.
    """
    rest: Spans = clip((np.array([extent[0]]), np.array([extent[1]])), *extent)
    own = []
    for layer in layers:
        own.append(intersect(rest, layer))
        rest = subtract(rest, layer)
    return [*own, rest]


def process_rows(
    life: Life, layers: Sequence[Layer], in_ops: Spans | None, lines: pl.DataFrame
) -> list[dict[str, Any]]:
    """Return the rows of one process, without process, rank, count and detail.

    ``layers``: (section, part, intervals), the earlier ones first; time in none of them is other time of the
    run. ``in_ops``: when an op was open; None: no ops were recorded. ``lines`` has the columns ``LINES``,
    which ``outside_lines`` has among others.
    """
    edges = life.edges
    seen = [time for time in (life.began, life.ended, *edges) if time is not None]
    low, high = min(seen), max(seen)
    first, last = (edges[0], edges[-1]) if edges else (low, high)
    every = [*layers, (NOT_YET, None, _span(low, first)), (NO_MORE, None, _span(last, high))]
    own = layered((low, high), [spans for _, _, spans in every])
    spans_of: dict[tuple[str, str | None], list[Spans]] = {}
    for (section, part, _), spans in zip([*every, (RUN, OTHER, _NOTHING)], own, strict=True):
        spans_of.setdefault((section, part), []).append(spans)
    rows: list[dict[str, Any]] = []
    for (section, part), several in spans_of.items():
        spans = merge(*(np.concatenate(both) for both in zip(*several, strict=True)))
        time = _length(spans)
        if not time:
            continue
        row: dict[str, Any] = {"section": section, "part": part, "time": time}
        row["share"] = time / (high - low)
        if section not in _EXPLAINED and in_ops is not None:
            outside = subtract(spans, in_ops)
            row |= {"outside_ops": _length(outside), **_line(outside, lines)}
        rows.append(row)
    edge_of = ((NOT_YET, life.began, life.why_began), (NO_MORE, life.ended, life.why_ended))
    for section, edge, why in edge_of:
        if edge is None:
            rows.append({"section": section, "time": None, "reason": why})
    return sorted(rows, key=lambda row: (ORDER.index(row["section"]), _PLACES[row.get("part")]))


_PLACES: Final[dict[str | None, int]] = {
    None: -1,
    **{name: place for place, name in enumerate(PARTS)},
}
#: Sections in which time outside any op shows nothing: their activity is known, or was not observed.
_EXPLAINED: Final = (IMPORTS, COMPILING, NOT_YET, NO_MORE, PAUSED)


def _span(low: int, high: int) -> Spans:
    return clip((np.array([low]), np.array([high])), low, high)


def _length(spans: Spans) -> int:
    return int((spans[1] - spans[0]).sum())


def _line(outside: Spans, lines: pl.DataFrame) -> dict[str, object]:
    line, time, _ = busiest_line(outside, lines)
    return {"line": line, "line_time": time} if time else {}


def process_times(profile: Answers) -> pl.DataFrame:
    """The times of the processes' runs; overlapping recordings of one process count once."""
    return (
        profile.trace["process_times"]
        .with_columns(pl.col("kind").cast(pl.String))
        .unique(maintain_order=True)
    )


def lives(profile: Answers) -> dict[int, Life]:
    """Return when each process ran, as far as known, by its number."""
    bounds = profile.of(event_bounds).drop_nulls().filter(~made_up(profile.trace))
    events = {
        process: (start, end)
        for process, start, end in bounds.select("process", "start", "end").rows()
        if start < end  # a process whose events all have length 0 has no known time
    }
    times = profile.of(process_times).drop_nulls("process")
    if profile.selected is not None:
        why = SELECTION
        return {
            process: Life(None, None, _span(*span), why, why) for process, span in events.items()
        }
    stamps = {}
    kind = pl.col("kind")
    for (number,), part in times.filter(kind.is_in(_OF_A_PROCESS)).group_by("process"):
        begins, ends, ran = (part.filter(kind == name) for name in _OF_A_PROCESS)
        process = int(number)
        spans = merge(ran["start"].to_numpy(), ran["end"].to_numpy())
        if not len(spans[0]):
            if process not in events:
                continue
            spans = _span(*events[process])
        if process in events:  # a killed process did not record when its recording ended
            low, high = events[process]
            beyond = [_span(low, int(spans[0][0])), spans, _span(int(spans[1][-1]), high)]
            spans = merge(*(np.concatenate(edges) for edges in zip(*beyond, strict=True)))
        # the system's clock of starts ticks every 10 ms
        began = None if begins.is_empty() else min(int(begins["start"].max()), int(spans[0][0]))  # type: ignore[arg-type]
        ended = None if ends.is_empty() else max(int(ends["start"].max()), int(spans[1][-1]))  # type: ignore[arg-type]
        stamps[process] = Life(began, ended, spans, NO_START, NO_EXIT)
    return {
        **{process: Life(None, None, _span(*span)) for process, span in events.items()},
        **stamps,
    }


def longest_life(profile: Answers) -> int:
    """Return the wall time (ns) of the process that ran longest, as far as its start and exit are known."""
    return max(
        (
            max(times) - min(times)
            for life in profile.of(lives).values()
            if (
                times := [
                    time for time in (life.began, life.ended, *life.edges) if time is not None
                ]
            )
        ),
        default=0,
    )


_OF_A_PROCESS: Final = ("began", "ended", "recorded")


#: The parts of a step by the phases of light mode; its phase ``collective`` holds the program's own
#: collectives.
_LIGHT_PARTS: Final = {
    **{name: name for name in light_format.PHASES},
    "collective": COMMUNICATION,
}


def _light_layers(profile: Answers, process: int, life: Life) -> list[Layer]:
    """Return the layers of a process in light mode: its steps form one interval, from the first to the
    last."""
    of = pl.col("process") == process
    steps = profile.trace["light_steps"].filter(of)
    if steps.is_empty():
        return []
    # the first steps and the last ones are among those that are kept
    low, high = int(steps["start"].min()), int(steps["end"].max())  # type: ignore[arg-type]
    begin, end = int(life.recorded[0][0]), int(life.recorded[1][-1])
    imported = profile.of(process_times).filter(of & (pl.col("kind") == "import"))
    return [
        (STEPS, OTHER, _span(low, high)),
        (IMPORTS, None, _spans(imported)),
        (BUILDING, None, _span(begin, max(begin, low))),
        (AFTER, None, _span(min(high, end), end)),
    ]


def _with_light_phases(profile: Answers, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows with the steps of light mode by phase, for which only sums are known.

    The rest of the time from the first step to the last is between steps.
    """
    sums = profile.trace["light_blocks"].group_by("process").agg(pl.col(*light_format.PHASES).sum())
    by_process = {row["process"]: row for row in sums.to_dicts()}
    rows = []
    for row in frame.to_dicts():
        times = by_process.get(row["process"])
        if row["section"] != STEPS or times is None:
            rows.append(row)
            continue
        total = row["time"] / row["share"]
        parts = [
            {**row, "part": part, "time": times[name], "share": times[name] / total}
            for name, part in _LIGHT_PARTS.items()
            if times[name]
        ]
        rest = row["time"] - sum(part["time"] for part in parts)
        rows += sorted(parts, key=lambda part: _PLACES[part["part"]])
        if rest > 0:
            rows.append(
                {**row, "section": BETWEEN, "part": None, "time": rest, "share": rest / total}
            )
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def layers_of(profile: Answers) -> dict[int, list[Layer]]:
    """Return the layers of each process, by precedence."""
    sections = profile.of(run_sections)
    phases = profile.of(phases_of_steps).stretches
    compiled = profile.of(compilations)
    times = profile.of(process_times)
    talked = _communication(profile)
    layers: dict[int, list[Layer]] = {}
    for process, life in profile.of(lives).items():
        of = pl.col("process") == process
        light = _light_layers(profile, process, life)
        if light:
            layers[process] = light
            continue
        mine = times.filter(of)
        own: list[Layer] = [
            (IMPORTS, None, _spans(mine.filter(pl.col("kind") == "import"))),
            (COMPILING, None, _spans(compiled.filter(of))),
            (
                PAUSED,
                None,
                subtract(_span(int(life.recorded[0][0]), int(life.recorded[1][-1])), life.recorded),
            ),
        ]
        parts = {
            section or RUN: _spans(part)
            for (section,), part in sections.filter(of).group_by("section", maintain_order=True)
        }
        for name, spans in parts.items():
            if name not in (STEP, RUN):
                own.append((str(name), None, spans))
                continue
            section = STEPS if name == STEP else RUN
            stretches = phases.get(process)
            own.append((section, COMMUNICATION, intersect(spans, talked.get(process, _NOTHING))))
            if stretches is not None:
                first, last, code = stretches
                for number, phase in enumerate(PHASES):
                    here = code == number
                    own.append((section, phase, intersect(spans, merge(first[here], last[here]))))
            own.append((section, OTHER, spans))
        low, high = _extent(sections.filter(of))
        observed = life.recorded
        if low is not None and high is not None:
            own.append((BEFORE, None, clip(observed, int(observed[0][0]), low)))
            own.append((AFTER, None, clip(observed, high, int(observed[1][-1]))))
        else:
            own.append((RUN, OTHER, observed))
        layers[process] = own
    return layers


#: Phases in which ONNX Runtime loads a model and makes a session, in its own traces.
_SESSION: Final = r"\A(?:model_loading|session_initialization)"


def compilations(profile: Answers) -> pl.DataFrame:
    """When each process compiled a program, or made an object that runs a model: process, start, end (ns)."""
    trace = profile.trace
    phases = trace["ranges"].filter(pl.col("category") == "phase")
    sessions = phases.filter(pl.Series(matching(phases["text"], _SESSION)))
    parts = [
        compiles(trace),
        sessions,
        profile.of(process_times).filter(pl.col("kind") == "session"),
    ]
    return pl.concat([part.select("process", "start", "end") for part in parts])


def _extent(sections: pl.DataFrame) -> tuple[int | None, int | None]:
    return sections["start"].min(), sections["end"].max()  # type: ignore[return-value]


def _spans(table: pl.DataFrame) -> Spans:
    return merge(table["start"].to_numpy(), table["end"].to_numpy())


def _communication(profile: Answers) -> dict[int, Spans]:
    """Return per process when collectives ran alone: no other kernel ran or, without a GPU, no other op."""
    ops = profile.of(op_index)
    talked = {}
    for process, did in happened(ops, lambda: profile.of(exchanges)).items():
        said = did.parts[0]
        if said is None or not len(said[0]):
            continue
        others = did.kernels
        if profile.cpu_only:
            others = ops_open(profile, speaking=False).get(process, _NOTHING)
        talked[process] = subtract(said, others)
    return talked


def ops_open(profile: Answers, speaking: bool = True) -> dict[int, Spans]:
    """Return per process when an op was open on the host; ``speaking``: including ops that communicate."""
    ops = profile.of(op_index)
    meaning, ranges = ops.attribution.meaning, ops.attribution.trace["ranges"]
    rows = ops.rows[ops.times.parent < 0]
    rows = rows[ranges["thread"].gather(rows).is_not_null().to_numpy()]
    if not speaking:
        rows = rows[~meaning.talks[meaning.reading[rows]]]
    table = ranges.select("process", "start", "end")[rows].drop_nulls()
    return {int(number): _spans(part) for (number,), part in table.group_by("process")}


def wall_time(
    lived: Mapping[int, Life],
    layers: Mapping[int, Sequence[Layer]],
    in_ops: Mapping[int, Spans],
    lines: pl.DataFrame,
) -> pl.DataFrame:
    """Return the rows of all processes (``SCHEMA``; ns), without count, rank and detail."""
    rows = [
        {"process": process, **row}
        for process, life in sorted(lived.items())
        for row in process_rows(
            life,
            layers.get(process, ()),
            in_ops.get(process),
            lines.filter(pl.col("process") == process),
        )
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def answer(profile: Answers) -> pl.DataFrame:
    """All of each process's wall time, from its start to its exit: the rows of a process add up to it.

    Time in an import or a compilation counts there, also within a step. Steps are divided by phase;
    communication is the time in which nothing else ran; in light mode, the time of collectives that the
    program calls itself. Not known: null, with the reason.
    """
    light = profile.trace["light_steps"]["process"].unique().to_list()
    # the few steps that light mode recorded in full do not represent the run
    in_ops = {
        process: spans for process, spans in ops_open(profile).items() if process not in light
    }
    frame = wall_time(profile.of(lives), profile.of(layers_of), in_ops, profile.of(lines_of_steps))
    if light:
        frame = _with_light_phases(profile, frame)
    ranks = profile.trace["processes"].select("process", "rank").unique("process", keep="first")
    of = ["process", "section"]
    return (
        frame.drop("rank", "count", "detail")
        .join(ranks, on="process", how="left", maintain_order="left")
        .join(_counts(profile), on=of, how="left", maintain_order="left")
        .join(
            pl.concat([_imported(profile), _exits(profile)]),
            on=of,
            how="left",
            maintain_order="left",
        )
        .select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())
    )


def _counts(profile: Answers) -> pl.DataFrame:
    """Return how many steps, evaluations and checkpoints, imports and compilations each process has."""
    compiled = [
        {"process": process, "section": COMPILING, "count": len(_spans(part)[0])}
        for (process,), part in profile.of(compilations).group_by("process")
    ]
    several = (STEP, EVALUATION, CHECKPOINTING)
    sections = profile.of(run_sections).filter(pl.col("section").is_in(several))
    light = profile.trace["light_blocks"].group_by("process").agg(pl.col("steps").sum())
    sections = sections.join(light, on="process", how="anti")
    named = sections.select("process", pl.col("section").replace(STEP, STEPS))
    imported = profile.of(process_times).filter(pl.col("kind") == "import")
    every = pl.concat([named, imported.select("process", pl.lit(IMPORTS).alias("section"))])
    counted = every.group_by("process", "section").agg(pl.len().cast(pl.Int64).alias("count"))
    of_light = light.select(
        "process", pl.lit(STEPS).alias("section"), pl.col("steps").alias("count")
    )
    compiled_counts = pl.DataFrame(compiled, schema=counted.schema)
    return pl.concat([counted, compiled_counts, of_light])


#: The most packages that are named.
_NAMED: Final = 3
#: A package that took less than this share of the slowest one's time is counted but not named.
_WORTH_NAMING: Final = 100


def _imported(profile: Answers) -> pl.DataFrame:
    """Return the packages that took longest to import, for each process."""
    lasted = pl.col("end") - pl.col("start")
    by_package = (
        profile.of(process_times)
        .filter(pl.col("kind") == "import")
        .select("process", pl.col("name").str.split(".").list.first(), lasted.alias("time"))
        .group_by("process", "name", maintain_order=True)
        .agg(pl.col("time").sum())
        .sort("time", descending=True, maintain_order=True)
    )
    return pl.DataFrame(
        [
            (process, IMPORTS, _in_words(part))
            for (process,), part in by_package.group_by("process", maintain_order=True)
        ],
        schema={"process": pl.Int32, "section": pl.String, "detail": pl.String},
        orient="row",
    )


def _exits(profile: Answers) -> pl.DataFrame:
    """Return the known exit statuses by process."""
    told = profile.of(process_times).filter(pl.col("kind") == "exit").unique("process", keep="last")
    status = pl.format("{}{}", pl.lit(EXIT_STATUS), pl.col("name")).alias("detail")
    return told.select("process", pl.lit(NO_MORE).alias("section"), status)


def _in_words(packages: pl.DataFrame) -> str:
    rows = packages.select("name", "time").rows()
    long = [row for row in rows[:_NAMED] if _WORTH_NAMING * row[1] >= rows[0][1]]
    words = ", ".join(f"{name} {units.time(time)}" for name, time in long)
    return words + (f" and {len(rows) - len(long)} more" if len(rows) > len(long) else "")


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "wall_time()",
            "one row per process and section of its run, and per part of its steps",
            columns(
                "process rank section part count time share outside_ops line line_time detail reason",
                f"""
                section: text: {", ".join(ORDER)}; run: all of a run without steps
                part: text: of steps and of a run: {", ".join(PARTS)}; null of other sections
                count: count: steps, evaluations, checkpoints, imports or compilations; null of others
                time: ns: wall time in it and in nothing that counts before it; null if not known
                share: fraction: time / all the time of the process that is known
                outside_ops: ns: part of time in which no op was open on any thread; null where what was
                    done is known, and where nothing was seen
                line: text: the source line that most of outside_ops is at; null if it was not sampled
                line_time: ns: part of outside_ops at that line
                detail: text: the packages whose imports took longest; after opscope the exit status, as a
                    shell says it (128 and the number of a signal), where whoever started the process saw it
                reason: text: why the time is not known
                """,
            ),
        ),
    ),
    merged=Rows(),
    reports=(
        Report(
            name="wall_time",
            title="Wall time",
            empty="not known: no times of a process were recorded",
            shown="process section part count time share outside_ops line detail reason",
            table=wall_time_table,
            sums="time outside_ops",
        ),
    ),
)

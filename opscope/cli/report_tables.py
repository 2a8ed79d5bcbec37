"""``opscope report``: opscope's own reports as tables, as JSON, or in files."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from opscope.core.question.index import FIRST
from opscope.core.question.parameters import WrongParameter, parts
from opscope.core.question.record import Report
from opscope.core.question.registry import UnknownReport, chosen, divided, first
from opscope.core.question.registry import reports as all_reports
from opscope.core.question.units import visible
from opscope.reports import console, files, registry
from opscope.reports.next_steps import next_steps

from . import common, outputs
from .options import Where

if TYPE_CHECKING:
    from opscope.profile import Profile

    from .report import Options


#: Bytes of a file of which a report takes about 10 s.
LARGE: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """The reports to give and the formats of files. ``default``: the user named no report. ``beside``:
    reports shown with the first screen because other options ask for them."""

    reports: Mapping[str, Report]
    kinds: list[str]
    default: bool
    beside: Mapping[str, Report]


def tables(asked: Options) -> None:
    """Give the reports: in files of each format, as one JSON object, or as tables."""
    choice = _choice(asked)
    is_whole = asked.where == Where() and not asked.engine.given()
    first_answer = None
    if is_whole and choice.default and not (asked.json or choice.kinds) and _is_large(asked.file):
        from . import provisional  # lazy: few files are large

        first_answer = provisional.say_provisional(asked.file[0])
    profile = asked.load(_is_lean(asked, choice))
    try:
        _give(asked, choice, profile)
        if first_answer is not None:
            provisional.say_correction(first_answer, profile)
    except WrongParameter as error:
        # a value that only the answer can check, such as a detector's name
        common.fail(str(error))


def _is_large(files: list[str]) -> bool:
    """Whether the report is on one file, so large that a part of it is looked at first."""
    try:
        return len(files) == 1 and os.stat(files[0]).st_size >= LARGE
    except (OSError, ValueError):  # a URL, or no file
        return False


def _give(asked: Options, choice: Choice, profile: Profile) -> None:
    if choice.kinds:
        _write(asked, choice, profile)
    if asked.json and choice.default and not asked.full and not choice.kinds:
        frames = registry.frames(profile, {**choice.reports, **choice.beside})
        frames = {name: frame for name, frame in frames.items() if name in FIRST or len(frame)}
        steps = [visible(line) for line in next_steps(profile)]
        common.emit(files.small_json("report", frames, asked.top, next=steps))
    elif asked.json:
        frames = registry.frames(profile, choice.reports, asked.top or None)
        _say_lacking(choice.reports, frames)
        common.emit(files.as_json("report", frames))
    elif not choice.kinds:
        rows = common.rows(asked.top)
        if choice.default:
            width = common.width(asked.width)
            shown = console.first_screen(profile, rows, asked.top is None, width)
            shown[-1:-1] = console.tables(profile, choice.beside, rows)
        else:
            shown = console.tables(profile, choice.reports, rows)
        common.show(shown, asked.width)


#: The reports of the small JSON object: those of the first screen, and advice.
_SMALL: Final = (*FIRST, *console.LIGHT, "advice", "advice_combined")


def _choice(asked: Options) -> Choice:
    """Return the choice that the options make; ends the command if there is no such report or format."""
    if asked.full and not asked.json:
        common.fail("--full is an option of --json")
    if asked.by is not None and asked.reports is not None:
        common.fail("--by and --reports cannot be combined: each chooses the reports")
    try:
        if asked.by is not None:
            reports = chosen(["summary", *divided(asked.by)])
        elif asked.reports is not None:
            reports = chosen(common.split(asked.reports))
        elif not (asked.full or asked.formats or asked.output_path is not None):
            reports = first() if not asked.json else {name: all_reports()[name] for name in _SMALL}
        else:
            every = all_reports()
            reports = {name: every[name] for name in every if every[name].written}
        kinds = files.resolve(common.split(asked.formats or ""))
    except (UnknownReport, WrongParameter, files.UnknownFormat) as error:
        common.fail(str(error))
    if not reports:
        common.fail("--reports names no report")
    if asked.output_path is not None and not kinds:
        kinds = ["csv"]
    default = asked.reports is None and asked.by is None
    reports, beside = _of_server(asked, reports, default)
    return Choice(reports, kinds, default, beside)


def _of_server(
    asked: Options, reports: Mapping[str, Report], default: bool
) -> tuple[dict[str, Report], dict[str, Report]]:
    """Return the reports with the parameters that --slo and --price give them, and the reports of a
    server that the first screen adds for these options, --requests and --power."""
    given: dict[str, str] = {}
    try:
        if asked.slo is not None:
            given |= parts("--slo:" + asked.slo.replace(",", ":"))[1]
            if not given.keys() <= {"ttft", "tpot"}:
                raise WrongParameter("--slo takes ttft=TIME,tpot=TIME")
        if asked.price is not None:
            given["price"] = asked.price
        every = all_reports()
        answering = {
            "serving_goodput": asked.slo,
            "serving_slo_steps": asked.slo,
            "serving_costs": asked.price or asked.power,
            "serving_requests": asked.requests,
        }
        added = {
            name: every[name] for name, why in answering.items() if why and name not in reports
        }
        if not default and given:
            reports = {**reports, **({} if _takes(reports, given) else added)}

        def asking(report: Report) -> Report:
            own = {name: value for name, value in given.items() if name in report.of.parameters}
            return report.asking(own) if own else report

        asked_so = {name: asking(report) for name, report in reports.items()}
        return asked_so, {name: asking(report) for name, report in added.items()} if default else {}
    except WrongParameter as error:
        common.fail(str(error))


def _takes(reports: Mapping[str, Report], given: Collection[str]) -> bool:
    """Whether a report takes one of the parameters."""
    return any(not report.of.parameters.keys().isdisjoint(given) for report in reports.values())


def _is_lean(asked: Options, choice: Choice) -> bool:
    """Whether the reports need only columns that totals are made of."""
    return asked.counters is None and all(report.lean for report in choice.reports.values())


def _write(asked: Options, choice: Choice, profile: Profile) -> None:
    """Write a file for each report and format; empty reports only if they were named."""
    base = asked.base_name or os.path.splitext(common.base_name(asked.file[0]))[0]
    frames = registry.frames(profile, choice.reports, asked.top or None)
    _say_lacking(choice.reports, frames)
    if choice.default:
        empty = [name for name, frame in frames.items() if frame.is_empty()]
        frames = {name: frame for name, frame in frames.items() if name not in empty}
        if empty:
            common.say(f"empty, so not written: {', '.join(empty)} (--reports NAME writes them)")
    if "csv" in choice.kinds:
        common.warn_of_formulas(*frames.values())
    try:
        with outputs.folder(asked.output_path) as output_place:
            paths = files.write(frames, choice.kinds, output_place.path, os.path.basename(base))
    except OSError as error:
        common.fail(f"{asked.output_path or '.'}: {error.strerror or error}")
    for path in paths:
        common.say(f"wrote {output_place.named(path)}")


def _say_lacking(reports: Mapping[str, Report], frames: Collection[str]) -> None:
    """Name the reports that a profile made from partials lacks, and why; end the command if it lacks all."""
    lacking = {name: report for name, report in reports.items() if name not in frames}
    if lacking:
        (common.say if frames else common.fail)(registry.lacking(lacking))

"""``opscope advise``: what to change in the program, and what that would save."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from . import common, declared, options

if TYPE_CHECKING:
    import polars as pl

    from opscope.core.question.record import View
    from opscope.profile import Profile

    from .gates import Gate


def _detectors(incomplete: str) -> list[str]:
    """Complete the last of the comma-separated names of detectors."""
    from opscope.core.advice.ask import detectors

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in detectors() if name.startswith(last)]


def _gates(incomplete: str) -> list[str]:
    from opscope.core.advice.ask import detectors

    return [name for name in ("saving>5%", *detectors()) if name.startswith(incomplete)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command."""

    file: options.Files
    detectors: Annotated[
        str | None,
        declared.Option(
            "--detectors",
            help="Ask these detectors alone, comma-separated; docs/reference/advice.md lists them.",
            metavar="NAMES",
            show_default=False,
            autocompletion=_detectors,
        ),
    ] = None
    fail_on: Annotated[
        list[str] | None,
        declared.Option(
            "--fail-on",
            help="End with status 1 if this detector has a finding, or if all findings together, or any one,"
            " save more than this: 'saving>5%' of the window's wall time, 'saving>20ms'; 'DETECTOR>5%' for"
            " the findings of one detector. May be given again.",
            metavar="GATE",
            show_default=False,
            autocompletion=_gates,
        ),
    ] = None
    csv: options.Csv = False
    json: Annotated[
        bool,
        declared.Option(
            "--json",
            help="Print one JSON object: diagnosis, advice, advice_combined, advice_evidence.",
        ),
    ] = False
    full: options.Full = False
    verbose: Annotated[
        bool,
        declared.Option("--verbose", "-v", help="Print each finding in full, with its reasoning."),
    ] = False
    each: Annotated[
        bool,
        declared.Option(
            "--all", help="Print a line for every finding, and why each detector cannot tell."
        ),
    ] = False
    markdown: Annotated[
        bool, declared.Option("--markdown", help="Print Markdown, for a pull request.")
    ] = False
    top: options.Top = None
    where: options.Where
    counters: options.CountersFile = None
    gpu: options.Gpu = None
    model: options.Model = None
    model_config: options.ModelConfig = None
    strict: Annotated[
        bool,
        declared.Option(
            "--strict",
            help="Fail if one of several files cannot be read, and if a --fail-on cannot be judged.",
        ),
    ] = False
    unrelated: options.Unrelated = False
    width: options.Width = None


@options.spread
def advise(asked: Options) -> None:
    """Say what bounds the program, what to change in it, and what that would save, the most first.

    A line for each finding, two for the first three; -v gives each in full. Savings overlap: the line beneath
    the findings gives what all save together, by a replay of the trace.
    """
    if asked.csv + asked.json + asked.markdown > 1:
        common.fail("--csv, --json and --markdown cannot be combined: choose one")
    if asked.full and not asked.json:
        common.fail("--full is an option of --json")
    names, gates = _ask(asked.detectors, asked.fail_on)
    reading = options.Reading(
        asked.gpu, asked.model, asked.strict, asked.unrelated, asked.model_config
    )
    profile = asked.where.select(reading.load(asked.file, counters=asked.counters))
    advice, combined = profile.advice(names), profile.advice_combined(names)
    _show(asked, profile, names, advice, combined)
    _judge(gates, advice, combined, asked.strict)


def _show(
    asked: Options,
    profile: Profile,
    names: list[str] | None,
    advice: pl.DataFrame,
    combined: pl.DataFrame,
) -> None:
    """Print the advice of the detectors ``names``, in the form that the options choose."""
    from opscope.core.analysis.ops.lost_kernels import losses
    from opscope.core.analysis.summary.doubts import doubts
    from opscope.core.question.registry import reports
    from opscope.reports import files

    top, lacks, impossible = asked.top, profile.of(losses), profile.of(doubts)
    if asked.csv:
        common.raw(advice, True, top)
    elif asked.json:
        rows = profile.advice_evidence(names)
        if top:
            rows = rows.filter(rows["number"] <= top)
        tables = {"advice": advice.head(top) if top else advice, "advice_combined": combined}
        if names is None:
            tables = {"diagnosis": profile.diagnosis(), **tables}
        missing = {"lost_kernels": profile.lost_kernels()} if lacks else {}
        said = {"notes": profile.notes()} if impossible else {}
        answers = {**missing, **said, **tables, "advice_evidence": rows}
        if asked.full or top is not None:
            common.emit(files.as_json("advise", answers))
        else:
            common.emit(files.small_json("advise", answers))
    elif asked.markdown:
        from opscope.core.advice.advised import markdown

        common.emit("\n\n".join([*lacks, markdown(advice, combined, top or None)]))
    else:
        from opscope.core.advice.advice import table_of
        from opscope.core.advice.commands import with_file
        from opscope.core.question.layout import Column, Table
        from opscope.core.question.record import View
        from opscope.reports.vendor_words import told, vendor

        view = View(common.rows(top))
        full = table_of(reports()["advice"], advice, combined, view)
        table = (
            replace(full, footnotes=[with_file(line, profile) for line in full.footnotes])
            if asked.verbose
            else Table(
                "Advice", [Column("what", "")], (), sentences=_brief(asked, profile, names, view)
            )
        )
        first = [
            Table(title, [Column("what", "")], (), sentences=sentences)
            for title, sentences in (("Missing", lacks), ("Impossible records", impossible))
            if sentences
        ]
        common.show([*first, told(table, vendor(profile))], asked.width)


def _brief(asked: Options, profile: Profile, names: list[str] | None, view: View) -> list[str]:
    """Return the lines of the ranked list, with commands to copy."""
    from opscope.core.advice import advised, commands
    from opscope.core.question import units

    advice = profile.advice(names)
    lines = advised.brief(
        advice,
        profile.advice_combined(names),
        profile.advice_evidence(names),
        None if names is not None else profile.diagnosis(),
        view.top if asked.top is not None or asked.each else advised.LISTED,
    )
    shown = [commands.with_file(line, profile) for line in lines]
    if asked.each or names is not None:
        shown += [units.text(line) for line in advised.rest(advice)]
    return shown


def _judge(gates: list[Gate], advice: pl.DataFrame, combined: pl.DataFrame, strict: bool) -> None:
    """Print the verdict of each gate; end the command with status 1 if one fails."""
    if not gates:
        return
    from .gates import lines

    failed = False
    for fails, line in lines(gates, advice.to_dicts(), combined.row(0, named=True), strict):
        common.say(line)
        failed |= fails
    if failed:
        raise declared.Exit(1)


def _clean(text: str) -> str:
    """Return a detector's name as it is written, with the thresholds that were given."""
    name, colon, thresholds = text.partition(":")
    return f"{name.lower().replace('-', '_')}{colon}{thresholds}"


def _ask(detectors: str | None, fail_on: list[str] | None) -> tuple[list[str] | None, list[Gate]]:
    """Return the detectors to ask (None: all) and the gates; ends the command at an unknown one."""
    from opscope.core.advice import ask
    from opscope.core.question.parameters import WrongParameter
    from opscope.core.question.suggest import unknown

    from .gates import BadGate, Gate

    all_detectors, names, texts = ask.detectors(), None, None
    if detectors is not None:
        texts = [_clean(text) for text in common.split(detectors)]
        if not texts:
            common.fail("--detectors names no detector")
        for name in (text.partition(":")[0] for text in texts):
            if name not in all_detectors:
                common.fail(unknown("detector", name, all_detectors))
        try:
            wanted = ask.chosen(texts)
        except WrongParameter as error:
            common.fail(str(error))
        by_name = {text.partition(":")[0]: text for text in texts}
        texts = [by_name[name] for name in all_detectors if name in wanted]
        names = [name for name in all_detectors if name in wanted]
    try:
        return texts, [Gate.of(text, all_detectors, names) for text in fail_on or ()]
    except BadGate as error:
        common.fail(f"--fail-on: {error}")

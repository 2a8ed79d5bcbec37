"""``opscope advise``: what to change in the program, and what that would save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import common

if TYPE_CHECKING:
    from .gates import Gate


def _detectors(incomplete: str) -> list[str]:
    """Complete the last of the comma-separated names of detectors."""
    from opscope.core.advice.ask import detectors

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in detectors() if name.startswith(last)]


def _gates(incomplete: str) -> list[str]:
    from opscope.core.advice.ask import detectors

    return [name for name in ("saving>5%", *detectors()) if name.startswith(incomplete)]


def advise(
    file: common.Files,
    detectors: Annotated[
        str | None,
        typer.Option(
            "--detectors",
            help="Ask these detectors alone, comma-separated; docs/advice.md lists them.",
            metavar="NAMES",
            show_default=False,
            autocompletion=_detectors,
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            help="End with status 1 if this detector has a finding, or if all findings together, or any one,"
            " save more than this: 'saving>5%' of the window's wall time, 'saving>20ms'; 'DETECTOR>5%' for"
            " the findings of one detector. May be given again.",
            metavar="GATE",
            show_default=False,
            autocompletion=_gates,
        ),
    ] = None,
    csv: common.Csv = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object: advice, advice_combined, advice_evidence."
        ),
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print Markdown, for a pull request.")
    ] = False,
    top: common.Top = None,
    iter_start: common.IterStart = None,
    iter_stop: common.IterStop = None,
    key: common.KeyNode = None,
    device: common.DeviceNumber = None,
    rank: common.Rank = None,
    layer: common.Layer = None,
    range_: common.Range = None,
    counters: common.CountersFile = None,
    gpu: common.Gpu = None,
    model: common.Model = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Fail if one of several files cannot be read, and if a --fail-on cannot be judged.",
        ),
    ] = False,
    width: common.Width = None,
) -> None:
    """Say what to change in the program, and what that would save, the most first.

    Savings overlap: beneath the findings stands what all of them together save, by a replay of the trace.
    """
    from opscope.reports import files, registry

    if csv + json + markdown > 1:
        common.fail("--csv, --json and --markdown cannot be combined: choose one")
    names, gates = _asked(detectors, fail_on)
    profile = common.load(file, gpu, strict, model=model, counters=counters)
    profile = common.select(profile, iter_start, iter_stop, device, rank, layer, range_, key)
    frame, combined = profile.advice(names), profile.advice_combined(names)
    if csv:
        common.raw(frame, True, top)
    elif json:
        rows = profile.advice_evidence(names)
        if top:
            rows = rows.filter(rows["number"] <= top)
        made = {"advice": frame.head(top) if top else frame, "advice_combined": combined}
        common.emit(files.as_json({**made, "advice_evidence": rows}))
    elif markdown:
        from opscope.reports.advised import markdown as as_markdown

        common.emit(as_markdown(frame, combined, top or None))
    else:
        from opscope.reports.catalogue.advice import table_of
        from opscope.reports.report import View
        from opscope.reports.vendor_words import told, vendor

        many = (common.TOP if top is None else top) or None
        table = table_of(registry.reports()["advice"], frame, combined, View(many))
        common.show([told(table, vendor(profile))], width)
    if gates:
        from .gates import lines

        failed = False
        for fails, line in lines(gates, frame.to_dicts(), combined.row(0, named=True), strict):
            common.say(line)
            failed |= fails
        if failed:
            raise typer.Exit(1)


def _asked(detectors: str | None, fail_on: list[str] | None) -> tuple[list[str] | None, list[Gate]]:
    """Return the detectors to ask, None for all, and the gates; ends the command at one that is not known."""
    from opscope.core.advice import ask
    from opscope.core.question.suggest import unknown

    from .gates import BadGate, Gate

    known, names = ask.detectors(), None
    if detectors is not None:
        wanted = [name.lower().replace("-", "_") for name in common.split(detectors)]
        if not wanted:
            common.fail("--detectors names no detector")
        for name in wanted:
            if name not in known:
                common.fail(unknown("detector", name, known))
        names = [name for name in known if name in wanted]
    try:
        return names, [Gate.of(text, known, names) for text in fail_on or ()]
    except BadGate as error:
        common.fail(f"--fail-on: {error}")

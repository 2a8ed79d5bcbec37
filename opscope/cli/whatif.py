"""``opscope whatif``: how long the run would take if some work took another time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

from . import common, declared, options

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile

Op = Annotated[
    list[str] | None,
    declared.Option(
        "--op",
        metavar="NAME=FACTOR",
        help="Multiply the time of an op, on the host and of what it launches: 0 removes it, 0.5 makes it"
        " twice as fast; * in NAME stands for any text. May be given several times.",
    ),
]
Kernel = Annotated[
    list[str] | None,
    declared.Option(
        "--kernel", metavar="NAME=FACTOR", help="Likewise for kernels, copies and sets by name."
    ),
]
Launches = Annotated[
    float,
    declared.Option(
        help="Factor for the calls that launch work, and for the delay until it starts."
    ),
]


@options.spread
def whatif(
    file: options.Files,
    op: Op = None,
    kernel: Kernel = None,
    copies: Annotated[float, declared.Option(help="Factor for all copies.")] = 1.0,
    communication: Annotated[float, declared.Option(help="Factor for all collectives.")] = 1.0,
    launches: Launches = 1.0,
    host: Annotated[
        float, declared.Option(help="Factor for all host time that does not wait.")
    ] = 1.0,
    csv: options.Csv = False,
    json: options.Json = False,
    *,
    reading: options.Reading,
    width: options.Width = None,
) -> None:
    """Say how long a run and its steps would take with faster, slower or no work of some kind.

    The trace is replayed with all its dependencies, so what waited for something else still waits.
    """
    from opscope.core.analysis.critical.what_if import Change, NothingSelected

    common.one_form(csv, json)
    ops, kernels = _factors("--op", op), _factors("--kernel", kernel)
    try:  # before the trace is read
        change = Change(ops, kernels, copies, communication, launches, host)
    except ValueError as error:
        common.fail(str(error))
    if change == Change():
        common.fail(
            "nothing to change: give --op, --kernel, --copies, --communication, --launches or --host"
        )
    profile = reading.load(file)
    try:
        frame = profile.what_if(
            ops=ops,
            kernels=kernels,
            copies=copies,
            communication=communication,
            launches=launches,
            host=host,
        )
    except NothingSelected as error:
        common.fail(f"{', '.join(file)}: {error}")
    if csv or json:
        common.raw(frame, csv, None)
    else:
        _show(profile, frame, width)


def _show(profile: Profile, frame: pl.DataFrame, width: int | None) -> None:
    """Print the table of the frame, and its assumptions."""
    from opscope.core.analysis.critical.critical_table import EMPTY, notes
    from opscope.core.question.registry import question
    from opscope.core.question.tables import totals

    table = totals(
        "What if", frame, frame.columns, None, EMPTY, question("what_if").frames[0].columns
    )
    note = "the first row is the whole trace; no saving can be larger than removed_time"
    common.show([replace(table, footnotes=[*table.footnotes, note, *notes(profile)])], width)


def _factors(option: str, given: list[str] | None) -> dict[str, float]:
    """Return the factors by name from ``NAME=FACTOR`` texts; ends the command at any other text."""
    from opscope.core.analysis.critical.what_if import factors

    try:
        return factors(given or ())
    except ValueError as error:
        common.fail(f"{option} {error}")

"""What the commands share: loading a profile, refusing politely, writing to stdout or to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TextIO

import typer

from opscope.core.cells import in_notebook

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile
    from opscope.reports.layout import Table

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="A profile or a trace, known by its content; several are one job's.",
        show_default=False,
    ),
]
Top = Annotated[
    int | None,
    typer.Option(
        "--top",
        min=0,
        help="Rows to give; 0 for all.  [tables: 20, CSV and JSON: all]",
        show_default=False,
    ),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Several files: an error where one cannot be read.")
]
Width = Annotated[
    int | None,
    typer.Option(
        "-w", "--width", min=0, help="Columns of the table; 0 for no limit.", show_default=False
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        "--gpu",
        help="What the GPU (or CPU) is where the trace does not say: 'H100 SXM'.",
        show_default=False,
    ),
]
Csv = Annotated[bool, typer.Option("--csv", help="All rows as CSV: raw ns, bytes, FLOP.")]
Json = Annotated[bool, typer.Option("--json", help="All rows as JSON: raw ns, bytes, FLOP.")]
Chosen = Annotated[
    str | None,
    typer.Option("-c", "--columns", help="Columns to give, in this order, comma-separated."),
]
Sort = Annotated[str, typer.Option("--sort", help="Column to sort by; the largest first.")]
Each = Annotated[bool, typer.Option("--each", help="A row for each single one, not for each kind.")]


def fail(what: str, status: int = 2) -> NoReturn:
    """One line on stderr, and the end."""
    say(what)
    raise typer.Exit(status)


def say(what: str) -> None:
    """One line on stderr, where there is one that takes it."""
    from opscope.reports.units import visible  # a file's name may hold a terminal's codes

    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"opscope: {visible(what)}\n")
        sys.stderr.flush()
    except OSError:  # nobody can be told
        discard(sys.stderr)


def _print(write: Callable[[TextIO], object]) -> None:
    """Let ``write`` write to stdout; where that fails (a full disk), one line and the end."""
    if sys.stdout is None:
        fail("stdout is closed")
    try:
        write(sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone (``opscope ops x | head``): as other tools do
        discard(sys.stdout)
        raise typer.Exit from None
    except OSError as error:
        discard(sys.stdout)
        fail(f"stdout: {error.strerror or error}")


def discard(stream: TextIO) -> None:
    """What ``stream`` did not take goes nowhere: Python would try again at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def load(
    paths: list[str], gpu: str | None = None, strict: bool = False, lean: bool = False
) -> Profile:
    """The profile in ``paths``. Raises BadInput; shows on a terminal that it is at work.

    What cannot be read of several files is said on stderr, and the others go on, unless ``strict``.

    ``lean``: without columns of which no total is made. ``gpu`` names devices that the trace does not
    name; one that is not known ends the command.
    """
    from opscope.core.perf.devices.unnamed import UnknownDevice
    from opscope.profile import load as load_profile

    path = paths[0] if len(paths) == 1 else paths
    try:
        # a cell of a notebook keeps what would be overwritten
        if sys.stderr is None or not sys.stderr.isatty() or in_notebook():
            profile = load_profile(path, gpu=gpu, strict=strict, lean=lean)
        else:
            from rich.console import Console
            from rich.text import Text

            from opscope.reports.units import visible

            names = visible(", ".join(map(os.path.basename, paths)))
            with Console(stderr=True).status(Text(f"reading {names}")):
                profile = load_profile(path, gpu=gpu, strict=strict, lean=lean)
    except UnknownDevice as error:
        fail(f"--gpu {error}")
    failed = profile.trace.origin.get("failed", ())
    for one in failed:
        say(f"left out: {one['path']}: {one['what']}")
    if failed:
        whole = profile.trace.origin["files"]
        say(f"{whole - len(failed)} of {whole} files were read; --strict makes that an error")
    return profile


def show(tables: list[Table], width: int | None) -> None:
    """The tables on stdout."""
    from opscope.reports.layout import write

    _print(lambda stdout: write(tables, stdout, width))


#: Rows of a table where nobody says how many.
TOP = 20


def arrange(frame: pl.DataFrame, sort: str, chosen: str | None) -> tuple[pl.DataFrame, list[str]]:
    """``frame`` sorted, and the columns asked for; ends the command on a column that is not there."""
    keys = split(chosen) if chosen else frame.columns
    for key in (sort, *keys):
        if key not in frame.columns:
            from opscope.reports.suggest import unknown

            fail(unknown("column", key, frame.columns))
    largest_first = frame.schema[sort].is_numeric() or frame.schema[sort].is_temporal()
    key = sort if largest_first else frame[sort].cast(str)  # text by the alphabet, not by its code
    return frame.sort(key, descending=largest_first, nulls_last=True, maintain_order=True), keys


@dataclass(frozen=True)
class Listing:
    """A table of a command: its title, the columns shown unless others are asked for, and what stands
    there where it has no rows."""

    title: str
    shown: str
    empty: str

    def write(
        self,
        frame: pl.DataFrame,
        sort: str,
        top: int | None,
        chosen: str | None,
        csv: bool,
        json: bool,
        width: int | None,
    ) -> None:
        """``frame`` on stdout, the largest by ``sort`` first: as CSV or JSON with all of its columns."""
        ordered, keys = arrange(frame, sort, chosen)
        if csv or json:
            raw(ordered.select(keys), csv, top)
            return
        from opscope.reports.tables import totals

        rows = (TOP if top is None else top) or None
        keys = keys if chosen else self.shown.split(",")
        show([totals(self.title, ordered, keys, rows, self.empty)], width)


def split(text: str) -> list[str]:
    """``"a, b"`` as ``["a", "b"]``."""
    return [part.strip() for part in text.split(",") if part.strip()]


def emit(text: str) -> None:
    """``text`` on stdout, a newline at its end."""
    _print(lambda stdout: stdout.write(text if text.endswith("\n") else text + "\n"))


def one_form(csv: bool, json: bool) -> None:
    """End the command where stdout is asked for in two forms at once."""
    if csv and json:
        fail("--csv and --json: stdout can be one of them")


def raw(frame: pl.DataFrame, as_csv: bool, top: int | None) -> None:
    """The first ``top`` rows of the frame (all, unless given) on stdout as CSV or as JSON."""
    from opscope.reports import files

    frame = frame.head(top) if top else frame
    if not as_csv:
        emit(files.rows_as_json(frame))
        return
    warn_of_formulas(frame)
    text = files.as_csv(frame)
    if sys.stdout is not None and sys.stdout.isatty():  # a file gets the text as it is
        from opscope.reports.units import visible

        text = visible(text, kept="\n")
    emit(text)


def warn_of_formulas(*frames: pl.DataFrame) -> None:
    """Say so where a spreadsheet would take texts of a CSV file for formulas and run them."""
    from opscope.reports import files

    cells = sum(map(files.formulas, frames))
    if cells:
        say(
            f"{cells} cells of the CSV begin with =, +, - or @: a spreadsheet takes them for formulas;"
            " import them as text"
        )


def scratch_beside(output: Path) -> Path:
    """A folder for what becomes ``output``, on its own disk. Ends the command where there can be none."""
    from opscope.backends import kept

    try:
        return kept.beside(output)
    except OSError as error:  # some folders say that they can be written to, and cannot
        fail(f"{output.parent}: cannot be written to ({error.strerror or error})")

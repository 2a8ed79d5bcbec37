"""What the commands share: loading a profile, reporting errors, writing to stdout."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from . import declared, progress_bar

if TYPE_CHECKING:
    import polars as pl

    from opscope.core.question.layout import Table
    from opscope.profile import Profile

#: The lines that ``say`` keeps instead of printing them; None while it prints.
_held: list[str] | None = None


@contextlib.contextmanager
def held(keep: bool = True) -> Iterator[list[str]]:
    """Collect the lines of ``say`` in the yielded list instead of printing them; ``fail`` still prints.
    Without ``keep`` they are printed, and the list stays empty."""
    global _held
    before, lines = _held, list[str]()
    _held = lines if keep else before
    try:
        yield lines
    finally:
        _held = before


def is_held() -> bool:
    """Whether the lines of ``say`` are collected: then only errors are printed."""
    return _held is not None


def fail(message: str, status: int = 2) -> NoReturn:
    """Print one line on stderr and exit with ``status``."""
    _print_line(message)
    raise declared.Exit(status)


def say(message: str) -> None:
    """Print one line on stderr, if stderr is open."""
    if _held is not None:
        _held.append(message)
    else:
        _print_line(message)


def _print_line(message: str) -> None:
    from opscope.core.question.units import (
        visible,
    )  # a file's name may contain a terminal's control codes

    if sys.stderr is None:
        return
    with progress_bar.aside():
        try:
            sys.stderr.write(f"opscope: {visible(message)}\n")
            sys.stderr.flush()
        except OSError:  # nobody can read it
            discard(sys.stderr)


def base_name(path: str) -> str:
    """Return the last part of a path or URL, without its folder and signature."""
    from opscope.remote.urls import is_url, name_of

    return name_of(path) if is_url(path) else os.path.basename(os.path.normpath(path))


def stem(path: str) -> str:
    """Return a name without a suffix for a file made from the file, folder or pattern at ``path``."""
    name = base_name(path).partition(".")[0]
    return "".join(letter for letter in name if letter not in "*?[]") or "profile"


def refuse_url(path: Path | str | None, option: str) -> None:
    """End the command if a path that must be local was given as a URL, which ``Path`` would take for a
    folder."""
    from opscope.remote.urls import SCHEMES

    scheme, colon, rest = str(path or "").partition(":")
    if colon and rest.startswith("/") and scheme.lower() in SCHEMES:
        fail(
            f"{option} {scheme}://{rest.lstrip('/')}: a profile is recorded on a local disk only;"
            " profile.save(URL) writes it to a URL afterwards"
        )


def refuse_name(path: Path, option: str = "--output") -> None:
    """End the command if no profile can have the name: it is empty, ``..``, or that of a device or a pipe."""
    if path.name in ("", ".."):
        fail(f"{option} {str(path)!r} is not a file name")
    refuse_device(path)


def refuse_device(path: Path) -> None:
    """End the command rather than replace a device or a pipe by a file."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        fail(f"{path} is a device or a pipe, and no file")


def stream(write: Callable[[TextIO], object]) -> None:
    """Call ``write`` with stdout; if that fails (a full disk), print one line and exit."""
    if sys.stdout is None:
        fail("stdout is closed")
    try:
        # if stdout is a terminal, it is probably the one with the progress bar
        with progress_bar.aside() if sys.stdout.isatty() else contextlib.nullcontext():
            write(sys.stdout)
            sys.stdout.flush()
    except BrokenPipeError:
        # the reader has ended (``opscope ops x | head``): exit as other tools do
        discard(sys.stdout)
        raise declared.Exit from None
    except OSError as error:
        discard(sys.stdout)
        fail(f"cannot write to stdout: {error.strerror or error}")


def discard(stream: TextIO) -> None:
    """Discard the text that ``stream`` could not write: Python would write it again at exit, and print
    an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def load(
    paths: list[str],
    gpu: str | None = None,
    strict: bool = False,
    lean: bool = False,
    model: str | None = None,
    counters: str | None = None,
    unrelated: bool = False,
    model_config: str | None = None,
    requests: str | None = None,
    power: str | None = None,
) -> Profile:
    """Return the profile in ``paths``. Raises BadInput.

    If one of several files cannot be read, a line on stderr says so and the others are loaded; with
    ``strict`` it is an error.

    ``lean``: leave out the columns that no total needs. ``gpu`` names the devices that the trace
    does not name; an unknown name ends the command. ``model``: the ONNX model that ran.
    ``counters``: a file of hardware counters that were measured in another run. ``unrelated``: the files
    belong to several jobs. ``model_config``: the configuration of the model that a server ran.
    ``requests``, ``power``: its log of requests, and samples of its GPUs' power.
    """
    from opscope.core.perf.devices.unnamed import UnknownDevice
    from opscope.profile import load as load_profile

    path = paths[0] if len(paths) == 1 else paths
    try:
        profile = load_profile(
            path,
            gpu=gpu,
            strict=strict,
            lean=lean,
            model=model,
            counters=counters,
            unrelated=unrelated,
            model_config=model_config,
            requests=requests,
            power=power,
        )
    except UnknownDevice as error:
        fail(f"--gpu {error}")
    if profile._anew is not None:
        say(f"{path}: {profile._anew}")
    say_left_out(profile)
    return profile


def say_left_out(profile: Profile) -> None:
    """Name on stderr the files that could not be read, and how many were."""
    failed = profile.trace.origin.get("failed", ())
    for fault in failed:
        say(f"left out: {fault['path']}: {fault['what']}")
    if failed:
        file_count = profile.trace.origin["files"]
        say(
            f"only {file_count - len(failed)} of {file_count} files were read; --strict makes this an error"
        )


def show_runs(runs: Sequence[Path]) -> None:
    """Print on stdout the runs of a folder, the last one first, each with the command that opens it."""
    from opscope.core.question.layout import Column, Table
    from opscope.core.question.units import text
    from opscope.viewer.runs import by_age

    command = sys.argv[1] if len(sys.argv) > 1 else "report"
    rows = [
        {
            "run": run.name,
            "written": written.isoformat(" ", "minutes"),
            "open": f"opscope {command} {shlex.quote(os.fspath(run))}",
        }
        for run, written in by_age(runs)
    ]
    columns = [Column(name, title, text) for name, title in
               (("run", "run"), ("written", "last written"), ("open", "how to open it"))]  # fmt: skip
    show([Table("Runs", columns, rows)], 0)


def show(tables: list[Table], width: int | None) -> None:
    """Print the tables on stdout."""
    from opscope.core.question.layout import write

    stream(lambda stdout: write(tables, stdout, width))


def width(asked: int | None) -> int:
    """Return the width of tables on stdout in characters: ``asked``, or stdout's width; 0: no limit."""
    from opscope.core.question.layout import PIPED_WIDTH, width_of

    if asked is not None:
        return asked
    return PIPED_WIDTH if sys.stdout is None else width_of(sys.stdout)


#: Rows of a table without ``--top``.
TOP = 20


def rows(top: int | None) -> int | None:
    """Return how many rows of a table ``--top`` means; None: all."""
    return (TOP if top is None else top) or None


def arrange(frame: pl.DataFrame, sort: str, chosen: str | None) -> tuple[pl.DataFrame, list[str]]:
    """Return ``frame`` sorted, with only the chosen columns; ends the command if a column does not exist."""
    keys = split(chosen) if chosen else frame.columns
    for key in (sort, *keys):
        if key not in frame.columns:
            from opscope.core.question.suggest import unknown

            fail(unknown("column", key, frame.columns))
    largest_first = frame.schema[sort].is_numeric() or frame.schema[sort].is_temporal()
    key = sort if largest_first else frame[sort].cast(str)  # alphabetically, not by category number
    return frame.sort(key, descending=largest_first, nulls_last=True, maintain_order=True), keys


@dataclass(frozen=True)
class Listing:
    """A command's table: its title, the columns shown by default, and the text shown if it has no rows."""

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
        """Print ``frame`` on stdout, the largest by ``sort`` first: as a table of the columns ``shown``,
        or as CSV or JSON of all columns; with ``chosen``, always of the chosen columns."""
        ordered, keys = arrange(frame, sort, chosen)
        if csv or json:
            raw(ordered.select(keys), csv, top)
            return
        from opscope.core.question.tables import totals

        keys = keys if chosen else self.shown.split(",")
        show([totals(self.title, ordered, keys, rows(top), self.empty)], width)


def split(text: str) -> list[str]:
    """Split ``"a, b"`` into ``["a", "b"]``."""
    return [part.strip() for part in text.split(",") if part.strip()]


def emit(text: str) -> None:
    """Print ``text`` on stdout, ended by a newline."""
    stream(lambda stdout: stdout.write(text if text.endswith("\n") else text + "\n"))


def one_form(csv: bool, json: bool) -> None:
    """End the command if both ``--csv`` and ``--json`` are given."""
    if csv and json:
        fail("--csv and --json cannot be combined: choose one")


def raw(frame: pl.DataFrame, as_csv: bool, top: int | None) -> None:
    """Print the first ``top`` rows of the frame (None or 0: all) on stdout as CSV or as JSON."""
    from opscope.reports import files

    frame = frame.head(top) if top else frame
    if not as_csv:
        emit(files.rows_as_json(frame))
        return
    warn_of_formulas(frame)
    text = files.as_csv(frame)
    if sys.stdout is not None and sys.stdout.isatty():  # a file gets the text unchanged
        from opscope.core.question.units import visible

        text = visible(text, allowed="\n")
    emit(text)


def warn_of_formulas(*frames: pl.DataFrame) -> None:
    """Warn if a spreadsheet would run texts of a CSV file as formulas."""
    from opscope.reports import files

    warn_of(sum(map(files.formulas, frames)))


def warn_of(cells: int) -> None:
    """Warn of ``cells`` cells that a spreadsheet would run as formulas, if there are any."""
    from opscope.core.question.units import counted

    if cells:
        begins, them = ("begins", "it") if cells == 1 else ("begin", "them")
        say(
            f"{counted(cells, 'cell')} of the CSV {begins} with =, +, - or @, which a spreadsheet runs as"
            f" formulas: import {them} as text"
        )


def scratch_beside(output: Path) -> Path:
    """Make a scratch folder on the same disk as ``output``. Ends the command if that fails."""
    from opscope.backends import recording_folder
    from opscope.core.refusals import refusal

    try:
        return recording_folder.beside(output)
    except OSError as error:  # some folders report write permission and still refuse a write
        fail(f"{output.parent}: cannot write to this folder: {refusal(error)}")

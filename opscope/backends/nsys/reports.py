"""The output of ``nsys profile``: find its reports, keep them, export them to SQLite, and read its
messages."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Files that nsys writes: a report, by its current name or the name before 2021.4, or only raw events.
SUFFIXES: Final = (".nsys-rep", ".qdrep")
RAW: Final = ".qdstrm"
#: The name of the report in the run's folder, without suffix; the n-th of several is ``report.n``.
NAME: Final = "report"
_NUMBER: Final = re.compile(rf"{NAME}\.?(\d+)?$")
#: Lines of nsys that name a file it wrote; if a disk was full, the file may be elsewhere.
_WROTE: Final = re.compile(rf"(/.*(?:{'|'.join(map(re.escape, (*SUFFIXES, RAW)))}))\"?\s*$")
#: Lines in nsys's output that report a fault. Other lines are progress.
_FAULT: Final = re.compile(
    r"\b(?:error|failed|failure|cannot|could not|unable|not supported|denied|permission|warning|"
    r"illegal|invalid|no space|unrecogni[sz]ed|aborted|terminate)\b",
    re.IGNORECASE,
)
#: Fault lines that are ignored: opscope turns sampling off itself, and an exit status is the program's.
_EXPECTED: Final = re.compile(
    r"non-zero exit code|backtrace|CPU (?:IP/backtrace )?sampling|importer version",
    re.IGNORECASE,
)
_MOST_LINES: Final = 4
_LONGEST: Final = 300


class ExportFailed(RuntimeError):
    """``nsys export`` did not write a database; the message is nsys's reason."""


@dataclass(frozen=True, slots=True)
class Left:
    """The files of a run: ``reports`` in the order of their ranges, ``raw`` that could not be imported."""

    reports: tuple[Path, ...]
    raw: tuple[Path, ...]


def left(folder: Path, log: str) -> Left:
    """Return the files that nsys wrote into ``folder``, or elsewhere according to its output."""
    named = [Path(match[1]) for line in log.splitlines() if (match := _WROTE.search(line))]
    # files elsewhere are nsys's temporary files: they are its result if the last move failed
    paths = sorted({*folder.glob(f"{NAME}*"), *(path for path in named if path.is_file())})
    complete = [path for path in paths if path.stat().st_size]
    reports = [path for path in complete if path.suffix in SUFFIXES]
    inside = [path for path in reports if path.parent == folder]
    raw = [path for path in complete if path.suffix == RAW]
    return Left(tuple(sorted(inside or reports, key=_order)), tuple(sorted(raw, key=_order)))


def _order(path: Path) -> tuple[int, str]:
    match = _NUMBER.search(path.stem)
    return (int(match[1]) if match and match[1] else 0, path.name)


def keep(report: Path, target: Path, *, force: bool) -> Path:
    """Move the report to ``target`` with its suffix, completely or not at all; return where it is.

    Where the name is taken and ``force`` is false, a number is added. Raises OSError; the report then stays.
    """
    wanted = target.with_name(target.stem + report.suffix)
    here = report
    if os.stat(report).st_dev != os.stat(target.absolute().parent).st_dev:
        here = wanted.with_name(f".{wanted.name}.tmp")
        try:
            shutil.copyfile(report, here)
        except BaseException:  # after Ctrl-C too: clean up, then let it continue
            here.unlink(missing_ok=True)
            raise
    number = 1
    while True:
        destination = (
            wanted if number == 1 else wanted.with_name(f"{target.stem}-{number}{report.suffix}")
        )
        try:
            if force:
                os.replace(here, destination)
            else:
                os.link(here, destination)  # unlike a rename, this never replaces a file
                here.unlink()
        except FileExistsError:
            number += 1
            continue
        except OSError:
            if force or destination.exists():
                raise
            os.rename(here, destination)  # a file system without hard links
        if here != report:
            report.unlink(missing_ok=True)
        return destination


def export(nsys: str, report: Path, target: Path) -> None:
    """Write the report as the SQLite database ``target``. Raises ExportFailed; then there is none."""
    command = [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={target}"]
    why = ""
    try:
        done = subprocess.run(
            [*command, str(report)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode or not target.is_file() or not target.stat().st_size:
            lines = faults(done.stdout) or lines_of(done.stdout)[-1:]
            why = "; ".join(lines) or f"it ended with status {done.returncode}"
    except OSError as error:
        why = f"{nsys} does not run: {error.strerror or error}"
    if why:
        target.unlink(missing_ok=True)
        raise ExportFailed(why)


def faults(log: str) -> list[str]:
    """Return the lines of nsys's output that report a fault: distinct, shortened, at most a few."""
    lines = [line for line in lines_of(log) if _FAULT.search(line) and not _EXPECTED.search(line)]
    return list(dict.fromkeys(lines))[:_MOST_LINES]


def lines_of(log: str) -> list[str]:
    """Return the lines of nsys's output, shortened, without those that a progress bar overwrote."""
    # a progress bar returns to the start of its line
    every = (line.rsplit("\r", 1)[-1].strip() for line in log.replace("\r\n", "\n").split("\n"))
    return [line[:_LONGEST] for line in every if line]


def advice(left: Left, nsys: str) -> str:
    """Return what to do with raw events that this nsys could not import."""
    names = " ".join(shlex.quote(str(path)) for path in left.raw)
    return (
        f"an installation of the same version with its importer makes a report of it: QdstrmImporter "
        f"-i {names}; then: nsys export --type sqlite, and opscope report"
        if names
        else f"see what {nsys} needs in its installation guide"
    )


def read_log(path: Path) -> str:
    """Return what nsys printed; empty if there is no such file."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def name_of(words: Sequence[str]) -> str:
    """Return a command as one line for a message, without the program that it starts."""
    return shlex.join(words)

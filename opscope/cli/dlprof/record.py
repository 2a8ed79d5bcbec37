"""``opscope dlprof COMMAND``: record the command, under Nsight Systems if it is installed, else by opscope
itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from opscope import backends
from opscope.adapters import modes
from opscope.backends.nsys import NSYS, SUFFIX
from opscope.backends.nsys.command import CUDA
from opscope.cli import common, nsight_run, run_record
from opscope.cli.program_end import ProgramEnd
from opscope.cli.run import Options

from . import written
from .asked import Asked
from .switches import DETAILED, DIAGNOSTIC, MINIMAL, NORMAL

if TYPE_CHECKING:
    from opscope.profile import Profile

#: The program is ended this many seconds after the recording's end, because Nsight Systems counts by itself.
_MARGIN_S: Final = 0.5
#: Switches for Nsight Systems alone, and why they have no effect without it.
_NSYS_ONLY: Final = {
    "nsys_opts": "the options are Nsight Systems's own",
    "nsys_base_name": "there is no report of Nsight Systems",
    "nsys_profile_range": "only Nsight Systems hears cudaProfilerStart, so all is recorded; "
    "opscope.capture and `opscope run --steps` record a part",
}


def record(asked: Asked) -> int:
    """Record the command, write its profile and its reports, and return the command's status.

    Ends the process with status 2, before the command runs, if the files cannot be written.
    """
    machine = backends.here(in_process=False)
    availability = NSYS.available(machine)
    notes = list(asked.notes)
    if machine.under_nsys:
        notes.append(
            f"{availability.why}; of its report: opscope dlprof --database=REPORT --reports=…"
        )
    elif not availability.works:
        notes.append(f"{availability.why}, so opscope records by itself")
    if not availability.works:
        notes += [
            f"--{name}: no effect: {why}" for name, why in _NSYS_ONLY.items() if name in asked.given
        ]
    written.check(asked)
    created = written.make_folder(asked.folder)
    there: list[Path] = []
    faults: list[str] = []

    def ended(profile: Profile, path: Path) -> None:
        there.append(path)
        try:
            for one in written.write(asked, profile):
                common.say(f"wrote {one}")
        except written.NotWritten as error:
            again = f"opscope dlprof --database={path}"
            faults.append(f"{error}; the profile is there, so the reports can be made by: {again}")

    with common.held(asked.level < NORMAL) as lines:
        for note in notes:
            common.say(note)
        try:
            status = run_record.record(
                _options(asked, availability.works),
                _wishes(asked),
                # options of nsys itself need nsys: nothing else can replace it
                instead=not asked.nsys.given,
                ended=ended,
                end=_end(asked),
            )
        finally:
            written.remove_empty(created)
    for line in lines:
        if not there or (asked.level >= MINIMAL and line.startswith("wrote ")):
            common.say(line)
    if not there and asked.writes:
        faults.append("there is no profile, so no report was written")
    for line in faults:
        common.say(line)
    return status


def _end(asked: Asked) -> ProgramEnd | None:
    """Return the object that ends the program after ``--duration``, as DLProf did; None if there is no
    duration."""
    if not asked.duration:
        return None
    return ProgramEnd(asked.delay + asked.duration + _MARGIN_S)


def _options(asked: Asked, by_nsys: bool) -> Options:
    """Return the options of ``opscope run`` that correspond to DLProf's switches."""
    return Options(
        command=asked.command,
        output=asked.path,
        force=asked.force,
        delay=asked.delay,
        duration=asked.duration,
        backend=NSYS.name if by_nsys else "auto",
        mode=asked.mode,
        trace=",".join(asked.nsys.traces) or None if by_nsys else None,
        range_end=_range_end(asked) if by_nsys else None,
        report=asked.level >= (NORMAL if asked.mode == modes.SIMPLE else DETAILED),
    )


def _wishes(asked: Asked) -> nsight_run.Wishes:
    return nsight_run.Wishes(
        CUDA if asked.nsys_range else None,
        asked.nsys.others,
        asked.folder / f"{asked.nsys_name}{SUFFIX}",
        asked.level >= DIAGNOSTIC,
    )


def _range_end(asked: Asked) -> str | None:
    """Return how the program's ranges end, or None for nsys's default, the end of the first range."""
    return None if asked.nsys.range_end in (None, "stop") else asked.nsys.range_end

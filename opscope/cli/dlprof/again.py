"""``opscope dlprof --database FILE``: reports of what was recorded before."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from opscope.cli import common, progress_bar
from opscope.cli.collected import names_for, print_report

from . import written
from .asked import Asked
from .switches import DETAILED, MINIMAL, NORMAL

#: Switches that only affect recording.
_RECORDING: Final = (
    "delay", "duration", "mode", "nsys_base_name", "nsys_opts", "nsys_profile_range",
)  # fmt: skip
_PROFILE: Final = "profile"


def again(asked: Asked, database: Path) -> None:
    """Write the reports that are asked for, and a profile unless the file is a profile, so that no file is
    read twice.

    Raises BadInput if the file cannot be read, and ends the process with status 2 if a report cannot be made;
    then nothing was written.
    """
    from opscope import readers

    _check_there(database)
    is_profile = readers.format_of(database) == _PROFILE
    if is_profile and not asked.writes:
        common.fail(
            f"{database} is a profile, and no report is named: add --reports=all, or "
            f"`opscope report {database}` shows it"
        )
    written.check(asked)
    with progress_bar.bar(quiet=asked.level < NORMAL):
        with common.held(asked.level < NORMAL):
            _tell(asked)
            profile = common.load([str(database)])
            for note in profile.notes().filter(severity="warning").iter_rows(named=True):
                common.say(f"{database}: {note['what']}")
        created = written.make_folder(asked.folder)
        try:
            files = written.write(asked, profile)
        except written.NotWritten as error:
            written.remove_empty(created)
            common.fail(f"{database}: {error}")
        if not is_profile:
            try:
                path = profile.save_as(asked.path, force=asked.force, others=names_for(asked.path))
            except OSError as error:
                common.fail(f"{asked.path} was not written: {error.strerror or error}")
            files = [path, *files]
        with common.held(asked.level < MINIMAL):
            for file in files:
                common.say(f"wrote {file}")
        if not is_profile and asked.level >= NORMAL:
            common.say(
                f"to make more reports without reading {database} again: "
                f"opscope dlprof --database={files[0]} --reports=…"
            )
        if asked.level >= DETAILED:
            print_report(profile, database if is_profile else files[0], None, None)


def _tell(asked: Asked) -> None:
    """Print which parts of the command line have no effect, because nothing is recorded."""
    if asked.command:
        common.say(f"--database reads what was recorded: {asked.command[0]} is not run")
    idle = [
        f"--{name}"
        for name in _RECORDING
        # the profile's framework decides whether --detailed_mode has an effect
        if name in asked.given and (name != "mode" or asked.detailed)
    ]
    if idle:
        common.say(f"no effect with --database, as nothing is recorded: {', '.join(idle)}")
    for note in asked.notes:
        if not note.startswith("--nsys_opts"):
            common.say(note)


def _check_there(database: Path) -> None:
    """End the process if there is no such file; suggest the file that opscope has written instead."""
    if database.exists():
        return
    stem = database.stem
    names = (
        f"{stem}.nsys-rep", f"{stem}.qdrep", f"{stem.removesuffix('_dldb')}.opscope", "dlprof.opscope",
    )  # fmt: skip
    there = [database.with_name(name) for name in names]
    database_there = next((candidate for candidate in there if candidate.exists()), None)
    common.fail(
        f"{database}: no such file"
        + ("" if database_there is None else f"; did you mean {database_there}?")
    )

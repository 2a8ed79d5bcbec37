"""Record a command: inside its processes, under Nsight Systems, or under another tool around the program."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from opscope import backends
from opscope.adapters import known, modes
from opscope.backends import graph_trace, recording_folder
from opscope.backends.nsys import NSYS
from opscope.backends.recorder import RECORDER
from opscope.core import registered
from opscope.core.capture import attach_place, process
from opscope.core.recording_format import LAUNCHED
from opscope.core.refusals import refusal

from . import (
    ahead,
    child_attachable,
    common,
    declared,
    injected,
    interrupted,
    launch,
    nsight,
    nsight_run,
    program_end,
    progress_bar,
    run_counters,
    run_settings,
    run_target,
    simple,
)
from .child import BACKEND, FROM, STEPS, UNTIL
from .collected import Task, collect_profile, names_for, of_nsight, print_report
from .last import Dumps
from .program_end import ProgramEnd

if TYPE_CHECKING:
    from opscope.profile import Profile

    from .run import Options

#: The variable with the folder into which the processes of a run record.
_FOLDER: Final = "OPSCOPE_RUN_DIR"
#: A file in that folder: the paths of profiles of runs inside this run, one per line.
_INNER: Final = "runs-inside"
#: A recording needs at least this many free bytes to begin.
_LEAST_ROOM: Final = 4096
_HOOK: Final = Path(__file__).parent / "_child"


@dataclass(frozen=True, slots=True)
class Run:
    """A command that can be started, and how it is recorded."""

    asked: Options
    backend: str
    #: The command as it is started, with a tool around the program before it.
    command: list[str]
    target: Path
    #: The folder that the processes record into.
    parts: Path
    env: dict[str, str]
    #: Nsight Systems around the program, if it records.
    nsys: nsight_run.UnderNsight | None
    #: Whether a tool around the program records, and writes a report of its own.
    around: bool
    #: Measures the command's time in simple mode.
    timed: simple.CommandTime | None
    #: Whether nothing is recorded until somebody attaches.
    waits: bool
    #: Whether the command runs without Nsight Systems if Nsight Systems cannot start it.
    can_do_without: bool
    #: Ends the program after a time, if that was asked for.
    end: ProgramEnd | None = None

    def started(self, pid: int) -> None:
        """Start the clock for the program's end."""
        if self.end is not None:
            self.end.started(pid, self.parts)

    def make_dump(self, dump: Path, name: Path) -> None:
        """Make a profile of a dump of ``--last``."""
        asked = self.asked
        task = Task(dump, name, names_for(name), self.command, False, asked.private, asked.mode)
        collect_profile(task, "")


def record(
    asked: Options,
    wishes: nsight_run.Wishes | None = None,
    instead: bool = False,
    ended: Callable[[Profile, Path], None] | None = None,
    end: ProgramEnd | None = None,
) -> int:
    """Run the command, make its profile, and return the status of the command.

    ``wishes`` are for nsys alone. ``instead``: record in another way if the named backend cannot.
    ``ended`` is called with the profile and its path once it is written. ``end`` ends the program.
    Ends the command on bad options, and if the program cannot start.
    """
    run = _prepare(asked, wishes, asked.backend == "auto" or instead)
    if end is not None:
        run = replace(run, end=end, env={**run.env, program_end.VARIABLE: "1"})
    rings, kernels = asked.last is not None, run.backend != RECORDER.name
    with (
        interrupted.Interruptible(run.parts) as watch,
        Dumps(run.parts, run.target, run.make_dump, rings, kernels) as dumps,
    ):
        run, status = _execute(run, dumps)
        watch.begin(status)
        if run.end is not None:
            run.end.ended()
            if run.end.note:
                common.say(f"the time of --duration is over: {run.end.note}")
        # the program has ended, so the terminal is free
        with progress_bar.bar(quiet=common.is_held()):
            dumps.finish()
            _report(run, _write(run, watch, status), ended)
    return status


# ----------------------------------------------------------------------------- before the command


def _prepare(asked: Options, wishes: nsight_run.Wishes | None, can_do_without: bool) -> Run:
    """Return the run, ready to be started; ends the command on bad options."""
    backend, settings = run_settings.settings_of(asked)
    waits = run_settings.waits_for_attach(asked, settings)
    tool = None if backend == "auto" else backends.known.load(backend)
    around = tool is not None and tool.around
    timed = None
    if asked.mode == modes.SIMPLE and not around:
        timed = simple.CommandTime(asked.command, asked.private)
    command, output = run_target.runnable(asked.command), asked.output
    if around and output is not None:
        output = nsight_run.output(output)
    target = run_target.target_of(output, command, asked.force)
    nsys = None
    if backend == NSYS.name:
        graphs = settings[graph_trace.VARIABLE]
        part = nsight_run.Asked(
            asked.steps, asked.delay, asked.duration, asked.trace, asked.range_end, graphs
        )
        foreign = not ahead.is_ours(command[0])
        nsys = nsight_run.prepared(part, foreign, not can_do_without, wishes)
        around = nsys is not None
        settings |= {BACKEND: "auto"} if nsys is None else nsys.settings
    elif asked.trace is not None or asked.range_end is not None:
        common.fail("--trace and --capture-range-end are for --backend nsys")
    elif tool is not None and around:
        target, command = _under(tool, target, command, settings, asked.force)
    ahead.build(command, settings)
    settings |= _helper_settings(asked, backend, command)
    parts = common.scratch_beside(target)
    _tell_run_around(target)
    settings[_FOLDER] = str(parts.resolve())
    settings |= child_attachable.settings(asked.attachable, target.parent.resolve(), waits)
    env = _environment(settings)
    return Run(
        asked, backend, command, target, parts, env, nsys, around, timed, waits, can_do_without
    )


def _tell_run_around(target: Path) -> None:
    """If this runs inside another ``opscope run``, tell that one where the program's profile goes."""
    folder = os.environ.get(_FOLDER)
    if folder:
        with suppress(OSError), Path(folder, _INNER).open("a", encoding="utf-8") as inner:
            inner.write(f"{target.resolve()}\n")


def _under(
    tool: backends.Backend, target: Path, command: list[str], settings: dict[str, str], force: bool
) -> tuple[Path, list[str]]:
    """Return the path of the report that the tool writes instead of a profile, and the command for it."""
    if any(settings.get(name) for name in (STEPS, FROM, UNTIL)):
        common.fail(
            f"--backend {tool.name} records the whole run; for a part of it, type: nsys profile --delay S "
            "--duration S -t nvtx,cuda -o NAME opscope run -- COMMAND"
        )
    try:
        return target.with_suffix(nsight.SUFFIX), tool.wrap(command, target, force=force)
    except ValueError as error:
        common.fail(str(error))


def _helper_settings(asked: Options, backend: str, command: list[str]) -> dict[str, str]:
    """Return the settings of the helper that records kernels where Python does not."""
    rings = asked.last is not None and backend != RECORDER.name
    return injected.settings(
        backend,
        asked.mode,
        command,
        private=asked.private,
        part=asked.is_part,
        inside=asked.counters is not None or rings,
    )


def _environment(settings: dict[str, str]) -> dict[str, str]:
    """Return the environment of the command."""
    env = launch.hooked_environment(os.environ, str(_HOOK), settings)
    groups = {backends.known.GROUP: backends.known.available(), known.GROUP: known.available()}
    env[registered.VARIABLE] = registered.handed_down(groups, env)
    return env


# ----------------------------------------------------------------------------- the command


def _execute(run: Run, dumps: Dumps) -> tuple[Run, int]:
    """Run the command to its end; return the run as it is then, and the status of the command."""
    try:
        if run.nsys is not None:
            try:
                signals = interrupted.SIGNALS
                return run, run.nsys.run(run.command, run.env, run.parts, signals, run.started)
            except nsight_run.NeverBegan as error:
                run = _without_nsight(run, error)
        return run, _run_hooked(run, dumps)
    except OSError as error:
        recording_folder.discard(run.parts)
        common.fail(*launch.explain_start_failure(error, run.command))


def _run_hooked(run: Run, dumps: Dumps) -> int:
    """Run the command without a tool of ours around it; return its status."""

    pids = []

    def started(pid: int) -> None:
        pids.append(pid)
        run.started(pid)
        dumps.program_runs()
        if run.asked.attachable and _may_attach():
            common.say(f"to record the program while it runs: opscope attach {pid}")
        if run.timed is not None:
            run.timed.started(pid)

    began = perf_counter_ns()
    status = launch.run(run.command, run.env, interrupted.SIGNALS, started)
    _write_times(run.parts, pids[0], began, perf_counter_ns(), status)
    return status


def _may_attach() -> bool:
    """Whether there is a folder for the program's socket; if not, the program itself says why."""
    try:
        os.close(attach_place.prepare()[1])
    except OSError:
        return False
    return True


def _write_times(parts: Path, pid: int, began: int, ended: int, status: int) -> None:
    """Write when the command ran, beside what it recorded: a process sees neither its start nor its exit."""
    if not parts.is_dir():
        return  # the program removed the folder; the reader of the recording says so
    times = {"pid": pid, "boot": process.boot(), "began": began, "ended": ended, "status": status}
    path = parts / LAUNCHED
    try:
        path.write_text(json.dumps(times) + "\n", encoding="utf-8")
    except OSError as error:  # the disk is full
        with suppress(OSError):
            path.unlink(missing_ok=True)
        common.say(f"when the command began and ended is not recorded: {refusal(error)}")


def _without_nsight(run: Run, error: nsight_run.NeverBegan) -> Run:
    """Return the run without Nsight Systems; ends the command if the user named that."""
    if not run.can_do_without:
        recording_folder.discard(run.parts)
        common.fail(str(error))
    common.say(f"{error}; the program runs without Nsight Systems")
    return replace(run, nsys=None, around=False, env={**run.env, BACKEND: "auto"})


# ----------------------------------------------------------------------------- after the command


def _write(run: Run, watch: interrupted.Interruptible, status: int) -> tuple[Profile, Path] | None:
    """Write the profile; return it and its path, or None if nothing was recorded."""
    asked, target, parts = run.asked, run.target, run.parts
    names = (
        ()
        if asked.force and target.exists()
        else run_target.other_names(asked.output, run.command, target)
    )
    task = Task(parts, target, names, run.command, asked.force, asked.private, asked.mode)
    try:
        began = not launch.never_began(run.command, status)
        if run.timed is not None and began and not asked.is_part:
            run.timed.write(parts)
        if run.nsys is None:
            profile = collect_profile(task, _why_nothing(run, began))
        else:
            profile = of_nsight(run.nsys, task)
        watch.stands(lambda: recording_folder.discard(parts))
        return profile
    except KeyboardInterrupt:  # on platforms without sigwait
        common.say(watch.line("interrupted"))
        raise declared.Exit(status) from None
    except Exception as error:  # noqa: BLE001  whatever fails, the exit status is the program's
        why, left = recording_folder.reason(error), recording_folder.left(parts)
        common.say(f"{target} was not written: {why}; {left}")
        raise declared.Exit(status) from None


def _why_nothing(run: Run, began: bool) -> str:
    """Return the message to print if nothing was recorded."""
    if run.around and run.target.exists():  # also for a command that is not a Python program
        return f"Nsight Systems wrote {run.target}; to read it: opscope report {run.target}"
    if run.waits or not began:  # each attach made its own profile
        return ""
    inner = run.parts / _INNER
    if inner.is_file():
        names = ", ".join(inner.read_text(encoding="utf-8", errors="replace").splitlines())
        return (
            f"nothing was recorded here: another opscope run inside this one recorded, into {names}"
        )
    return f"nothing was recorded: {_why_no_room(run.parts) or _nothing(run.asked)}"


def _why_no_room(parts: Path) -> str | None:
    """Return why the folder of the recording cannot be written to; None if it can."""
    if not parts.is_dir():
        return None
    path = parts / "room"
    try:
        path.write_bytes(bytes(_LEAST_ROOM))
    except OSError as error:
        return f"{parts.parent.resolve()}: {refusal(error)}"
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    return None


def _nothing(asked: Options) -> str:
    """Return why a recording may be empty, as far as the options explain it."""
    if asked.steps is not None:
        marks = "optimizers mark steps, and so does opscope.step()"
        return f"no process reached the steps {asked.steps}; {marks}"
    if asked.is_bounded and asked.mode == modes.SIMPLE:
        return "no step and no range of the program was in the time of --delay and --duration"
    if asked.is_bounded:
        return "no framework that opscope supports ran in the time of --delay and --duration"
    return (
        "no Python process in which opscope is installed ran a framework that it supports"
        " (see opscope doctor), or the process was killed before it wrote anything; on a GPU --mode simple"
        " records the kernels of any program"
    )


def _report(
    run: Run,
    profile: tuple[Profile, Path] | None,
    ended: Callable[[Profile, Path], None] | None,
) -> None:
    """Print the report of the profile at its path, and pass both to ``ended``."""
    asked = run.asked
    try:
        if profile is None and run.around and asked.report and run.target.exists():
            profile = common.load([str(run.target)]), run.target
        if asked.counters is not None:
            run_counters.tell(None if profile is None else profile[0], asked.counters)
        if profile is None:
            return
        if asked.report:
            print_report(*profile, asked.top, asked.width)
        if ended is not None:
            ended(*profile)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  as above
        common.say(f"the report was not printed: {recording_folder.reason(error)}")

"""``opscope run``: profile an unchanged command, and print where the time went."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import opscope
from opscope.adapters import known, modes
from opscope.backends import recording_folder

from . import ahead, common, interrupted, launch, nsight, simple
from .child import FROM, STEPS, UNTIL

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace
    from opscope.profile import Profile

_SUFFIX = ".opscope"
_HOOK = Path(__file__).parent / "_child"


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="[--] COMMAND [ARGS]...", help="The command, as you usually type it."
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="The profile to write.  [the script's name, with a number if it exists]",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("-f", "--force", help="Replace the profile if it exists.")
    ] = False,
    steps: Annotated[
        str | None, typer.Option("--steps", help="Record only these steps: 3:6 means 3, 4 and 5.")
    ] = None,
    delay: Annotated[
        float, typer.Option("--delay", min=0, help="Start recording after this many seconds.")
    ] = 0,
    duration: Annotated[
        float | None, typer.Option("--duration", min=0, help="Record for this many seconds.")
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Record kernels of the whole run, not of a window; the program keeps them in memory until "
            "it ends.",
        ),
    ] = False,
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            help="How to record: auto, recorder (ops only), kineto (GPU kernels by PyTorch's profiler), "
            "mindspore (MindSpore's profiler), xplane (JAX's profiler), nsys (Nsight Systems), or emit (an "
            "NVTX tool around opscope records).",
        ),
    ] = "auto",
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            help="Which frameworks to observe: auto (all), simple (none: only steps, ranges and kernels, of "
            "any program), pytorch, tensorflow2, jax, or another that `opscope doctor` lists.",
        ),
    ] = modes.AUTO,
    memory: Annotated[
        bool,
        typer.Option("--memory", help="Also record each allocation of tensor memory (PyTorch)."),
    ] = False,
    samples: Annotated[
        float | None,
        typer.Option(
            "--samples",
            min=0,
            max=1000,
            help="Sample the processors this often in a second (default: 10; 0: never).",
        ),
    ] = None,
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Record no arguments, no host name and no folders of paths."
        ),
    ] = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Print the report on stderr at the end.")
    ] = True,
    top: common.Top = None,
    width: common.Width = None,
) -> None:
    """Run COMMAND and profile each of its Python processes.

    The program's input, output, exit status and signals pass through; opscope prints to stderr.
    Processes that the program starts, such as torchrun's ranks, go into the same profile.
    """
    from opscope.core.capture import cpu_samples
    from opscope.core.process_specs import PRIVATE

    backend = _backend(backend, mode, bool(steps or delay or duration is not None))
    settings = {**_settings(steps, delay, duration, backend, whole), known.MODE: mode}
    whole_command = mode == modes.SIMPLE and backend != "nsys"
    timed = simple.CommandTime(command, private) if whole_command else None
    if memory:
        settings["OPSCOPE_MEMORY"] = "1"
    if samples is not None:
        settings[cpu_samples.RATE] = str(samples)
    if private:
        settings[PRIVATE] = "1"
    command = _runnable(command)
    target = _target(output, command, force)
    if backend == "nsys":
        target, command = _under_nsight(target, command, settings, force)
    ahead.build(command, settings)
    parts = common.scratch_beside(target)
    settings["OPSCOPE_RUN_DIR"] = str(parts.resolve())
    env = launch.hooked_environment(os.environ, str(_HOOK), settings)
    with interrupted.Interruptible(parts) as watch:
        try:
            started = (lambda pid: None) if timed is None else timed.started
            status = launch.run(command, env, interrupted.SIGNALS, started)
        except OSError as error:
            recording_folder.discard(parts)
            common.fail(*launch.explain_start_failure(error, command))
        watch.begin(status)
        names = () if force and target.exists() else _names(output, command, target)
        task = _Task(parts, target, names, command, force, private, mode)
        try:
            began = not launch.never_began(command, status)
            why = f"nothing was recorded: {_nothing(steps, delay, duration, mode)}" if began else ""
            if backend == "nsys" and target.exists():  # also of a command that is no Python program
                why = f"Nsight Systems wrote {target}; to read it: opscope report {target}"
            part = steps is not None or delay or duration is not None
            if timed is not None and began and not part:
                timed.write(parts)
            found = _collect(task, why)
            watch.stands(lambda: recording_folder.discard(parts))
        except KeyboardInterrupt:  # on platforms without sigwait
            common.say(watch.line("interrupted"))
            raise typer.Exit(status) from None
        except Exception as error:  # noqa: BLE001  whatever fails, the exit status is the program's
            common.say(
                f"{target} was not written: {recording_folder.reason(error)}; {recording_folder.left(parts)}"
            )
            raise typer.Exit(status) from None
        try:
            if found is None and backend == "nsys" and report and target.exists():
                found = common.load([str(target)]), target
            if found is not None and report and found[0] is not None:
                _report(found[0], found[1], top, width)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  likewise
            common.say(f"the report was not printed: {recording_folder.reason(error)}")
    raise typer.Exit(status)


def _backend(backend: str, mode: str, chosen: bool) -> str:
    """Return the backend to use; ends the command if there is no such mode.

    In simple mode ``auto`` is Nsight Systems where it can record the GPU, as nothing else records the
    kernels of every program; but it cannot record a part of the run (``chosen``).
    """
    from opscope.backends import choose

    try:
        modes.frameworks(mode)
    except ValueError as error:
        common.fail(str(error))
    if mode != modes.SIMPLE or backend != "auto" or chosen:
        return backend
    choice = choose(in_process=False)
    if choice.name == "nsys":
        common.say(f"simple mode: Nsight Systems records the kernels ({choice.reason})")
        return choice.name
    return backend


def _settings(
    steps: str | None, delay: float, duration: float | None, backend: str, whole: bool
) -> dict[str, str]:
    """Return the plan as environment variables for the child's hook; ends the command on bad options."""
    from opscope.backends import has_gpu

    from .child import Plan

    if backend == "kineto" and not has_gpu():
        common.fail("--backend kineto: no GPU is visible here; --backend recorder needs none")
    try:
        plan = Plan.of(steps, delay, duration, backend, whole)
        return plan.environment()
    except ValueError as error:
        common.fail(str(error))


def _under_nsight(
    target: Path, command: list[str], settings: dict[str, str], force: bool
) -> tuple[Path, list[str]]:
    """Return the path of Nsight's report, written instead of the profile, and the command that writes it."""
    if any(settings.get(name) for name in (STEPS, FROM, UNTIL)):
        common.fail(
            "--backend nsys records the whole run; for a part of it, type: nsys profile --delay S "
            "--duration S -t nvtx,cuda -o NAME opscope run -- COMMAND"
        )
    try:
        return target.with_suffix(nsight.SUFFIX), nsight.command(command, target, force=force)
    except ValueError as error:
        common.fail(str(error))


def _runnable(command: list[str]) -> list[str]:
    """Return the command; this Python runs a Python file that cannot be executed directly."""
    script = Path(command[0])
    if script.suffix == ".py" and script.is_file() and shutil.which(command[0]) is None:
        return [sys.executable, *command]
    return command


def _target(output: Path | None, command: list[str], force: bool) -> Path:
    """Return the profile's path; ends the command, before the program runs, if it cannot be written."""
    if output is None:
        base = launch.name_of(command)
        target, number = Path(base + _SUFFIX), 1
        while target.exists() and not force:
            number += 1
            target = Path(f"{base}-{number}{_SUFFIX}")
    elif not output.name:
        common.fail(f"--output {str(output)!r} is not a file name")
    else:
        target = output if output.suffix == _SUFFIX else output.with_name(output.name + _SUFFIX)
    if target.exists() and not force:
        common.fail(f"{target} exists; --force replaces it")
    if target.exists() and not (target / "meta.json").is_file():
        common.fail(f"{target} is not a profile, so --force does not replace it")
    try:
        os.fspath(target).encode()
    except UnicodeEncodeError:
        common.fail(
            f"{target}: the name is not UTF-8, and Polars cannot write to it; choose another with --output"
        )
    if not target.parent.is_dir():
        common.fail(f"{target.parent}: no such folder")
    if not os.access(target.parent, os.W_OK):
        common.fail(f"{target.parent}: cannot write to this folder")
    return target


def _nothing(steps: str | None, delay: float, duration: float | None, mode: str) -> str:
    """Return why a recording may be empty, as far as the options show it."""
    if steps is not None:
        return f"no process reached the steps {steps}; optimizers mark steps, and so does opscope.step()"
    if (delay or duration is not None) and mode == modes.SIMPLE:
        return "no step and no range of the program was in the time of --delay and --duration"
    if delay or duration is not None:
        return "no framework that opscope supports ran in the time of --delay and --duration"
    return (
        "no Python process in which opscope is installed ran a framework that it supports"
        " (see opscope doctor), or the process was killed before it wrote anything"
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """How to write a run's profile: from ``parts`` to ``target``, or to the first free one of ``names``."""

    parts: Path
    target: Path
    names: Iterable[Path]
    command: list[str]
    force: bool
    private: bool
    mode: str


def _names(output: Path | None, command: list[str], target: Path) -> Iterator[Path]:
    """Yield other names for the profile, for when another run has taken its name meanwhile."""
    from opscope.readers.profile.profile_folder import numbered

    base = target if output is not None else Path(launch.name_of(command) + _SUFFIX)
    return numbered(base)


def _collect(task: _Task, nothing: str) -> tuple[Profile | None, Path] | None:
    """Make a profile of the processes' parts, and print where it is.

    Returns the profile and its path; None if nothing was recorded; None in place of the profile if it
    cannot be analysed. Raises what reading and writing raise. ``nothing`` is the line to print if nothing
    was recorded; it is empty where the program's own error explains it.
    """
    from opscope.backends import gpu_vendor
    from opscope.core import redaction
    from opscope.core.job.clocks import aligned
    from opscope.core.tables.redacted import redacted
    from opscope.profile import Profile
    from opscope.readers.profile import profile_folder

    parts, command, private = task.parts, task.command, task.private
    _print_unrecorded(parts)
    closing = nsight.closing_lines(parts)
    if not recording_folder.parts(parts):
        if not parts.is_dir():
            nothing = (
                f"nothing was recorded: the recording in {parts.parent} was deleted during the run"
            )
        for line in closing or ([nothing] if nothing else ()):
            common.say(line)
        return None
    trace = aligned(_readable(parts))
    lines = simple.tell(trace, gpu_vendor()) if task.mode == modes.SIMPLE else []
    if private:
        trace = redacted(trace, private=True)
    # the parts' paths are of no use once the parts are deleted
    told = {name: value for name, value in trace.origin.items() if name in ("mode", "gpu")}
    trace.origin = {
        **told,
        "format": "opscope",
        "tool": f"opscope {opscope.__version__}",
        "command": list(redaction.private(command) if private else redaction.redact(command)),
    }
    # on a GPU without recorded kernels, device time is not known: CPU time is never used in its place
    if any('"gpu": true' in path.read_text("utf-8") for path in parts.glob("part-*/facts.jsonl")):
        trace.origin["gpu"] = True
    profile: Profile | None = Profile(trace)
    assert profile is not None
    names = iter(task.names)  # one iterator for both calls: a name found taken is not tried again
    try:
        written = profile.save_as(task.target, force=task.force, others=names, scratch=parts)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  a fault of the analysis must not cost the recording
        written = profile_folder.write(
            task.target, trace, force=task.force, others=names, scratch=parts
        )
        common.say(
            f"the profile was saved but cannot be analysed: {recording_folder.reason(error)}"
        )
        profile = None
    if written != task.target:
        common.say(f"{task.target} was created meanwhile, so this profile has another name")
    common.say(f"wrote {written}")
    for line in (*lines, *closing) if profile is not None else ():
        common.say(line)
    return profile, written


def _readable(parts: Path) -> Trace:
    """Return the trace of all readable parts; print a line for each part that cannot be read."""
    from opscope.readers.recording.reader import collect

    trace = collect(parts)
    trace.origin.pop("files", None)
    for one in trace.origin.pop("failed", ()):
        common.say(f"left out: {os.path.relpath(one['path'], parts)}: {one['what']}")
    return trace


def _print_unrecorded(parts: Path) -> None:
    """Print why Python processes that loaded opscope's hook were not recorded, each reason once."""
    reasons: dict[tuple[str, ...], int] = {}
    for path in sorted(parts.glob("unrecorded-*.txt")):
        key = tuple(path.read_text(encoding="utf-8", errors="replace").splitlines()[:2])
        reasons[key] = reasons.get(key, 0) + 1
    for (python, reason), count in reasons.items():
        times = f" ({count} processes)" if count > 1 else ""
        common.say(f"not recorded: {python}: {reason}{times}")


def _report(profile: Profile, target: Path, top: int | None, width: int | None) -> None:
    from opscope.reports import console
    from opscope.reports.layout import write

    rows = (common.TOP if top is None else top) or None
    if sys.stderr is None:
        return
    try:
        made = console.first_screen(profile, rows, enough=top is None)
        if len(profile.trace["allocations"]):
            made[-1:-1] = console.tables(profile, ["memory_by_op"], rows)
        write(made, sys.stderr, width)
        common.say(f"more: opscope report {target}")
    except OSError:  # nobody can read it, and the exit status is the program's
        common.discard(sys.stderr)

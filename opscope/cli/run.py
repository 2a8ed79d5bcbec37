"""``opscope run``: profile a command without a change to it, and say where the time went."""

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
from opscope.backends import kept

from . import ahead, common, interrupted, launch, nsight
from .child import FROM, STEPS, UNTIL

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace
    from opscope.profile import Profile

_SUFFIX = ".opscope"
_HOOK = Path(__file__).parent / "_child"


def run(
    command: Annotated[
        list[str],
        typer.Argument(metavar="[--] COMMAND [ARGS]...", help="What to run, as you would without."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="The profile to write.  [the script's name, numbered where it exists]",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("-f", "--force", help="Replace the profile where it exists.")
    ] = False,
    steps: Annotated[
        str | None, typer.Option("--steps", help="Record only these steps: 3:6 is 3, 4 and 5.")
    ] = None,
    delay: Annotated[
        float, typer.Option("--delay", min=0, help="Record from this many seconds after the start.")
    ] = 0,
    duration: Annotated[
        float | None, typer.Option("--duration", min=0, help="Record for this many seconds.")
    ] = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--whole",
            help="Kernels of the whole run, kept in its memory until it ends, not of a window.",
        ),
    ] = False,
    backend: Annotated[
        str,
        typer.Option(
            "--backend",
            help="How: auto, recorder, kineto (GPU kernels by PyTorch), xplane (JAX), nsys (Nsight "
            "Systems), or emit (for the NVTX tool that runs this).",
        ),
    ] = "auto",
    memory: Annotated[
        bool,
        typer.Option("--memory", help="Record each allocation of a tensor's memory too (PyTorch)."),
    ] = False,
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Record no arguments, no host name and no folders of paths."
        ),
    ] = False,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Print the report at the end, on stderr.")
    ] = True,
    top: common.Top = None,
    width: common.Width = None,
) -> None:
    """Run COMMAND and profile every Python process of it.

    The program's input, output, exit status and signals pass through; what opscope has to say goes
    to stderr. Processes that it starts, torchrun's ranks among them, go into the same profile.
    """
    from opscope.core.process_specs import PRIVATE

    settings = _settings(steps, delay, duration, backend, whole)
    if memory:
        settings["OPSCOPE_MEMORY"] = "1"
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
            status = launch.run(command, env, interrupted.SIGNALS)
        except OSError as error:
            kept.discard(parts)
            common.fail(*launch.explain_start_failure(error, command))
        watch.begin(status)
        names = () if force and target.exists() else _names(output, command, target)
        task = _Task(parts, target, names, command, force, private)
        try:
            why = "" if launch.never_began(command, status) else _nothing(steps, delay, duration)
            found = _collect(task, why)
            watch.stands(lambda: kept.discard(parts))
        except KeyboardInterrupt:  # where signals cannot be waited for
            common.say(watch.line("interrupted"))
            raise typer.Exit(status) from None
        except Exception as error:  # noqa: BLE001  whatever fails, the status is the program's
            common.say(f"{target}: not written: {kept.reason(error)}; {kept.left(parts)}")
            raise typer.Exit(status) from None
        try:
            if found is None and backend == "nsys" and report and target.exists():
                found = common.load([str(target)]), target
            if found is not None and report and found[0] is not None:
                _report(found[0], found[1], top, width)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  likewise
            common.say(f"not reported: {kept.reason(error)}")
    raise typer.Exit(status)


def _settings(
    steps: str | None, delay: float, duration: float | None, backend: str, whole: bool
) -> dict[str, str]:
    """What the child's hook needs to know, as environment variables; refuses what makes no sense."""
    from opscope.backends import has_gpu

    from .child import Plan

    if backend == "kineto" and not has_gpu():
        common.fail("--backend kineto: no GPU is visible here; recorder needs none")
    try:
        plan = Plan.of(steps, delay, duration, backend, whole)
        return plan.environment()
    except ValueError as error:
        common.fail(str(error))


def _under_nsight(
    target: Path, command: list[str], settings: dict[str, str], force: bool
) -> tuple[Path, list[str]]:
    """Nsight's report in place of the profile, and the command that has it written."""
    if any(settings.get(name) for name in (STEPS, FROM, UNTIL)):
        common.fail(
            "--backend nsys records all of the run; for a part of it type: nsys profile --delay S "
            "--duration S -t nvtx,cuda -o NAME opscope run -- COMMAND"
        )
    try:
        return target.with_suffix(nsight.SUFFIX), nsight.command(command, target, force=force)
    except ValueError as error:
        common.fail(str(error))


def _runnable(command: list[str]) -> list[str]:
    """The command; a Python file that is no program of its own is run by this Python."""
    script = Path(command[0])
    if script.suffix == ".py" and script.is_file() and shutil.which(command[0]) is None:
        return [sys.executable, *command]
    return command


def _target(output: Path | None, command: list[str], force: bool) -> Path:
    """Where the profile goes; ends the command where that is impossible, before anything is run."""
    if output is None:
        base = launch.name_of(command)
        target, number = Path(base + _SUFFIX), 1
        while target.exists() and not force:
            number += 1
            target = Path(f"{base}-{number}{_SUFFIX}")
    elif not output.name:
        common.fail(f"--output {str(output)!r}: names no profile")
    else:
        target = output if output.suffix == _SUFFIX else output.with_name(output.name + _SUFFIX)
    if target.exists() and not force:
        common.fail(f"{target}: exists; --force replaces it")
    if target.exists() and not (target / "meta.json").is_file():
        common.fail(f"{target}: is no profile, so --force does not replace it")
    try:
        os.fspath(target).encode()
    except UnicodeEncodeError:
        common.fail(
            f"{target}: is not UTF-8, which Polars does not write to; --output names another"
        )
    if not target.parent.is_dir():
        common.fail(f"{target.parent}: no such directory")
    if not os.access(target.parent, os.W_OK):
        common.fail(f"{target.parent}: cannot be written to")
    return target


def _nothing(steps: str | None, delay: float, duration: float | None) -> str:
    """Why there may be nothing in a recording, as far as the options tell."""
    if steps is not None:
        return (
            f"no process came to the steps {steps}; optimizers tell steps, and opscope.step() does"
        )
    if delay or duration is not None:
        return "no framework that opscope knows ran in the time asked for"
    return (
        "no Python process in which opscope is installed ran a framework that it knows"
        " (opscope doctor), or one was killed before anything of it was written"
    )


@dataclass(frozen=True, slots=True)
class _Task:
    """What becomes of a run's recording: ``parts`` are to be ``target``, or the first free of ``names``."""

    parts: Path
    target: Path
    names: Iterable[Path]
    command: list[str]
    force: bool
    private: bool


def _names(output: Path | None, command: list[str], target: Path) -> Iterator[Path]:
    """What else to call the profile, should another run have taken the name by then."""
    from opscope.readers.profile.profile_folder import numbered

    base = target if output is not None else Path(launch.name_of(command) + _SUFFIX)
    return numbered(base)


def _collect(task: _Task, nothing: str) -> tuple[Profile | None, Path] | None:
    """Turn what the processes left into a profile, and say where it is; None where there is nothing,
    a profile of None where it cannot be analysed. Raises what reading and writing do.

    ``nothing`` is why there may be nothing; without it that needs no words, as the program's own error
    says it.
    """
    from opscope.core import redaction
    from opscope.core.job.clocks import aligned
    from opscope.core.tables.redacted import redacted
    from opscope.profile import Profile
    from opscope.readers.profile import profile_folder

    parts, command, private = task.parts, task.command, task.private
    _tell_unrecorded(parts)
    words = nsight.last_words(parts)
    if not kept.parts(parts):
        if not parts.is_dir():
            nothing = f"the folder {parts.parent} went away meanwhile, and with it the recording"
        for line in words or ([f"nothing was recorded: {nothing}"] if nothing else ()):
            common.say(line)
        return None
    trace = aligned(_readable(parts))
    if private:
        trace = redacted(trace, private=True)
    # where the parts lay is of no use once they are gone
    trace.origin = {
        "format": "opscope",
        "tool": f"opscope {opscope.__version__}",
        "command": list(redaction.private(command) if private else redaction.redact(command)),
    }
    # on a GPU without a source of kernels, device time is not known: CPU time never stands for it
    if any('"gpu": true' in path.read_text("utf-8") for path in parts.glob("part-*/facts.jsonl")):
        trace.origin["gpu"] = True
    profile: Profile | None = Profile(trace)
    assert profile is not None
    names = iter(task.names)  # names once found taken are not asked for again
    try:
        written = profile.save_as(task.target, force=task.force, others=names, scratch=parts)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001  a fault of the analysis must not cost the recording
        written = profile_folder.write(
            task.target, trace, force=task.force, others=names, scratch=parts
        )
        common.say(f"not analysed: {kept.reason(error)}")
        profile = None
    if written != task.target:
        common.say(f"{task.target} exists by now, so this run has another name")
    common.say(f"wrote {written}")
    for line in words if profile is not None else ():
        common.say(line)
    return profile, written


def _readable(parts: Path) -> Trace:
    """The trace of all parts that can be read; what one process left damaged is said."""
    from opscope.readers.recording.reader import collect

    trace = collect(parts)
    trace.origin.pop("files", None)
    for one in trace.origin.pop("failed", ()):
        common.say(f"left out: {os.path.relpath(one['path'], parts)}: {one['what']}")
    return trace


def _tell_unrecorded(parts: Path) -> None:
    """Say why Python processes that met our hook could not be recorded, each reason once."""
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
    except OSError:  # nobody can be told, and the status is the program's
        common.discard(sys.stderr)

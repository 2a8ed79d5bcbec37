"""``opscope run``: profile an unchanged command, and print where the time went."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opscope import backends
from opscope.adapters import known, modes
from opscope.backends import graph_trace, recording_folder
from opscope.backends.nsys import NSYS
from opscope.backends.recorder import RECORDER
from opscope.core import registered

from . import (
    ahead,
    child_attachable,
    child_last,
    common,
    injected,
    interrupted,
    launch,
    nsight,
    nsight_run,
    options,
    progress_bar,
    run_counters,
    simple,
)
from .child import BACKEND, FROM, STEPS, UNTIL, WHOLE
from .collected import Task, collect_profile, names_for, of_nsight, print_report
from .last import Dumps

if TYPE_CHECKING:
    from opscope.profile import Profile

_SUFFIX = ".opscope"
#: What chooses a part of the run to record.
_PARTS = (STEPS, FROM, UNTIL, WHOLE)
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
    force: options.Force = False,
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
    counters: run_counters.Names = None,
    counters_by: run_counters.By = None,
    samples: Annotated[
        float | None,
        typer.Option(
            "--samples",
            min=0,
            max=1000,
            help="Sample the processors this often in a second (default: 10; 0: never).",
        ),
    ] = None,
    light: Annotated[
        bool,
        typer.Option(
            "--light",
            help="Measure steps and their phases, for a whole training, and record no ops; slow spells are "
            "recorded in full.",
        ),
    ] = False,
    spells: Annotated[
        bool,
        typer.Option(
            "--spells/--no-spells",
            help="With --light: whether a slow spell is recorded in full, for a few steps, three times an "
            "hour at most.",
        ),
    ] = True,
    private: Annotated[
        bool,
        typer.Option(
            "--private", help="Record no arguments, no host name and no folders of paths."
        ),
    ] = False,
    trace: Annotated[
        str | None,
        typer.Option(
            "--trace",
            help="With nsys: more calls to record in its report, as in osrt,cublas,cudnn,mpi.",
            show_default=False,
        ),
    ] = None,
    range_end: Annotated[
        str | None,
        typer.Option(
            "--capture-range-end",
            help="With nsys: record only what callbacks of opscope and opscope.capture mark: stop (the first "
            "range), repeat (all, a profile each) or repeat:N.",
            show_default=False,
        ),
    ] = None,
    cuda_graph_trace: Annotated[
        str | None,
        typer.Option(
            "--cuda-graph-trace",
            metavar="node|graph",
            help="With cupti and nsys: record each kernel of a CUDA graph (node, the default), or each "
            "launch of one as a whole, at less cost (graph).",
            show_default=False,
        ),
    ] = None,
    attachable: Annotated[
        bool,
        typer.Option(
            "--attachable",
            help="Let `opscope attach PID` record the program while it runs; record nothing else by itself.",
        ),
    ] = False,
    last: Annotated[
        str | None,
        typer.Option(
            "--last",
            metavar="60s|20 steps",
            help="Keep only the last seconds or steps, however long the program runs; with kernels where "
            "CUPTI can be used.",
        ),
    ] = None,
    slow: Annotated[
        float | None,
        typer.Option(
            "--slow",
            metavar="K",
            help="With --last: also write a profile when a step takes K times the median.",
        ),
    ] = None,
    last_signal: Annotated[
        str | None,
        typer.Option(
            "--last-signal",
            metavar="USR2",
            help="With --last: also write a profile at this signal, where the program does not handle it.",
        ),
    ] = None,
    report: options.Report = True,
    top: options.Top = None,
    width: options.Width = None,
) -> None:
    """Run COMMAND and profile each of its Python processes.

    The program's input, output, exit status and signals pass through; opscope prints to stderr.
    Processes that the program starts, such as torchrun's ranks, go into the same profile.
    """
    status = record(
        command,
        output=output,
        force=force,
        steps=steps,
        delay=delay,
        duration=duration,
        whole=whole,
        backend=backend,
        mode=mode,
        memory=memory,
        counters=counters,
        counters_by=counters_by,
        samples=samples,
        light=light,
        spells=spells,
        private=private,
        trace=trace,
        range_end=range_end,
        attachable=attachable,
        last=last,
        slow=slow,
        last_signal=last_signal,
        cuda_graph_trace=cuda_graph_trace,
        report=report,
        top=top,
        width=width,
    )
    raise typer.Exit(status)


def record(
    command: list[str],
    *,
    output: Path | None,
    force: bool = False,
    steps: str | None = None,
    delay: float = 0,
    duration: float | None = None,
    whole: bool = False,
    backend: str = "auto",
    mode: str = modes.AUTO,
    memory: bool = False,
    counters: str | None = None,
    counters_by: str | None = None,
    samples: float | None = None,
    light: bool = False,
    spells: bool = True,
    private: bool = False,
    trace: str | None = None,
    range_end: str | None = None,
    attachable: bool = False,
    last: str | None = None,
    slow: float | None = None,
    last_signal: str | None = None,
    cuda_graph_trace: str | None = None,
    report: bool = True,
    top: int | None = None,
    width: int | None = None,
    wishes: nsight_run.Wishes | None = None,
    instead: bool = False,
    ended: Callable[[Profile, Path], None] | None = None,
) -> int:
    """Run the command, make its profile, and return the status of the command; see ``run``.

    ``wishes`` are for nsys alone. ``instead``: record without the named backend if it cannot. ``ended`` gets
    the profile and its path once it stands. Ends the command on bad options, and if the program cannot start.
    """
    from opscope.core.capture import cpu_samples
    from opscope.core.process_specs import PRIVATE

    named = backend != "auto"
    graphs = _graphs(cuda_graph_trace)
    asked = nsight_run.Asked(steps, delay, duration, trace, range_end, graphs)
    # a tool around the program keeps all, and begins with it
    chosen = whole or memory or bool(samples) or attachable or last is not None or light
    chosen = chosen or counters is not None
    backend = _backend(backend, mode, chosen)
    settings = {**_settings(steps, delay, duration, backend, whole, command), known.MODE: mode}
    settings[graph_trace.VARIABLE] = graphs
    if graphs == graph_trace.GRAPH and backend not in graph_trace.BACKENDS:
        common.fail(
            "--cuda-graph-trace graph needs --backend cupti or nsys: PyTorch's profiler and others trace the"
            " nodes of CUDA graphs"
        )
    settings |= run_counters.settings(counters, counters_by, backend)
    settings |= _last_settings(last, slow, last_signal, backend, settings)
    if last is not None and counters is not None:
        common.fail("--last keeps kernels with their times, and --counters measures them without")
    if light:
        others = whole or memory or last is not None or attachable or counters is not None
        settings |= _light(steps, delay, duration, backend, others, spells)
    asked_only = attachable and last is None and not any(settings[name] for name in _PARTS)
    tool = None if backend == "auto" else backends.known.load(backend)
    around = tool is not None and tool.around
    whole_command = mode == modes.SIMPLE and not around
    timed = simple.CommandTime(command, private) if whole_command else None
    if memory:
        settings["OPSCOPE_MEMORY"] = "1"
    if samples is not None:
        settings[cpu_samples.RATE] = str(samples)
    if private:
        settings[PRIVATE] = "1"
    command = _runnable(command)
    if around and output is not None:
        output = nsight_run.output(output)
    target = _target(output, command, force)
    nsys = None
    if backend == NSYS.name:
        must = named and not instead
        nsys = nsight_run.prepared(asked, not ahead.is_ours(command[0]), must, wishes)
        if nsys is None:
            settings[BACKEND], around = "auto", False
        else:
            settings |= nsys.settings
    elif trace is not None or range_end is not None:
        common.fail("--trace and --capture-range-end are for --backend nsys")
    elif tool is not None and around:
        target, command = _under(tool, target, command, settings, force)
    ahead.build(command, settings)
    part = steps is not None or bool(delay) or duration is not None or last is not None
    settings |= injected.settings(
        backend,
        mode,
        command,
        private=private,
        part=part,
        inside=counters is not None or (last is not None and backend != RECORDER.name),
    )
    parts = common.scratch_beside(target)
    settings["OPSCOPE_RUN_DIR"] = str(parts.resolve())
    settings |= child_attachable.settings(attachable, target.parent.resolve(), asked_only)
    env = launch.hooked_environment(os.environ, str(_HOOK), settings)
    groups = {backends.known.GROUP: backends.known.available(), known.GROUP: known.available()}
    env[registered.VARIABLE] = registered.handed_down(groups, env)

    def make(dump: Path, name: Path) -> None:
        collect_profile(Task(dump, name, names_for(name), command, False, private, mode), "")

    with (
        interrupted.Interruptible(parts) as watch,
        Dumps(parts, target, make, last is not None, backend != RECORDER.name) as dumps,
    ):

        def started(pid: int) -> None:
            dumps.program_runs()
            if attachable:
                common.say(f"to record the program while it runs: opscope attach {pid}")
            if timed is not None:
                timed.started(pid)

        try:
            try:
                if nsys is not None:
                    status = nsys.run(command, env, parts, interrupted.SIGNALS)
            except nsight_run.NeverBegan as error:
                if named and not instead:
                    recording_folder.discard(parts)
                    common.fail(str(error))
                common.say(f"{error}; the program runs without Nsight Systems")
                nsys, around = None, False
                env = {**env, BACKEND: "auto"}
            if nsys is None:
                status = launch.run(command, env, interrupted.SIGNALS, started)
        except OSError as error:
            recording_folder.discard(parts)
            common.fail(*launch.explain_start_failure(error, command))
        watch.begin(status)
        # the program has ended: the terminal is ours
        with progress_bar.bar(quiet=common.is_held()):
            dumps.finish()
            names = () if force and target.exists() else _names(output, command, target)
            task = Task(parts, target, names, command, force, private, mode)
            try:
                began = not launch.never_began(command, status)
                why = (
                    f"nothing was recorded: {_nothing(steps, delay, duration, mode)}"
                    if began
                    else ""
                )
                if asked_only:
                    why = ""  # the profiles are where somebody attached
                if around and target.exists():  # also of a command that is no Python program
                    why = f"Nsight Systems wrote {target}; to read it: opscope report {target}"
                if timed is not None and began and not part:
                    timed.write(parts)
                found = collect_profile(task, why) if nsys is None else of_nsight(nsys, task)
                watch.stands(lambda: recording_folder.discard(parts))
            except KeyboardInterrupt:  # on platforms without sigwait
                common.say(watch.line("interrupted"))
                raise typer.Exit(status) from None
            except Exception as error:  # noqa: BLE001  whatever fails, the exit status is the program's
                why, left = recording_folder.reason(error), recording_folder.left(parts)
                common.say(f"{target} was not written: {why}; {left}")
                raise typer.Exit(status) from None
            try:
                if found is None and around and report and target.exists():
                    found = common.load([str(target)]), target
                if counters is not None:
                    run_counters.tell(None if found is None else found[0], counters)
                if found is not None and report:
                    print_report(found[0], found[1], top, width)
                if found is not None and ended is not None:
                    ended(found[0], found[1])
            except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  likewise
                common.say(f"the report was not printed: {recording_folder.reason(error)}")
    return status


def _backend(backend: str, mode: str, inside: bool) -> str:
    """Return the backend to use; ends the command if there is no such mode.

    ``auto`` is a tool around the program where one can record the GPU, as nothing else records the kernels of
    every program. ``inside``: the user asks for what only a recording in the process has.
    """
    try:
        modes.frameworks(mode)
    except ValueError as error:
        common.fail(str(error))
    if backend != "auto" or inside:
        return backend
    simple_mode = mode == modes.SIMPLE
    choice = backends.choose(machine=backends.here(in_process=False, simple=simple_mode))
    if backends.known.load(choice.name).around:
        what = "simple mode: " if simple_mode else ""
        common.say(f"{what}Nsight Systems records the kernels ({choice.reason})")
        return choice.name
    return backend


def _graphs(text: str | None) -> str:
    """Return how CUDA graphs are traced; ends the command if it is no way."""
    try:
        return graph_trace.NODE if text is None else graph_trace.parse(text)
    except ValueError as error:
        common.fail(f"--cuda-graph-trace {error}")


def _settings(
    steps: str | None,
    delay: float,
    duration: float | None,
    backend: str,
    whole: bool,
    command: list[str],
) -> dict[str, str]:
    """Return the plan as environment variables for the child's hook; ends the command on bad options."""
    from .child import Plan

    try:
        plan = Plan.of(steps, delay, duration, backend, whole)
    except ValueError as error:
        common.fail(str(error))
    if backend != "auto":
        _check(backend, command)
    return plan.environment()


def _light(
    steps: str | None,
    delay: float,
    duration: float | None,
    backend: str,
    more: bool,
    spells: bool,
) -> dict[str, str]:
    """Return light mode's environment variables; ends the command on options that contradict it."""
    from opscope.backends.light import LIGHT, SPELLS

    if steps is not None or delay or duration is not None or more or backend != "auto":
        common.fail(
            "--light measures every step of the run and records nothing else: it cannot be combined with "
            "--steps, --delay, --duration, --whole, --memory, --last, --attachable, --counters or --backend"
        )
    return {LIGHT: "1"} if spells else {LIGHT: "1", SPELLS: "0"}


def _last_settings(
    last: str | None,
    slow: float | None,
    last_signal: str | None,
    backend: str,
    settings: dict[str, str],
) -> dict[str, str]:
    """Return the options of ``--last`` for the child's hook; ends the command on bad ones."""
    try:
        found = child_last.settings(last, slow, last_signal)
    except ValueError as error:
        common.fail(str(error))
    if last is not None and backend not in ("auto", "recorder", "cupti"):
        common.fail(f"--last gives up what is old, and --backend {backend} keeps all")
    if last is not None and any(settings[name] for name in (STEPS, FROM, UNTIL, WHOLE)):
        common.fail("--last cannot be combined with --steps, --delay, --duration or --whole")
    return found


def _check(backend: str, command: list[str]) -> None:
    """End the command, before the program runs, if the backend that the user named cannot work here."""
    machine = backends.here(in_process=False, foreign=not ahead.is_ours(command[0]))
    try:
        tool = backends.known.load(backend)
        found = tool.available(machine)
    except Exception as error:  # noqa: BLE001 - another package's backend may raise anything
        common.fail(f"--backend {backend}: {error}")
    if not found.works and not tool.outside:
        advice = f"; {found.advice}" if found.advice else ""
        common.fail(f"--backend {backend}: {found.why}{advice}")


def _under(
    tool: backends.Backend, target: Path, command: list[str], settings: dict[str, str], force: bool
) -> tuple[Path, list[str]]:
    """Return the path of the tool's report, written instead of a profile, and the command that writes it."""
    if any(settings.get(name) for name in (STEPS, FROM, UNTIL)):
        common.fail(
            f"--backend {tool.name} records the whole run; for a part of it, type: nsys profile --delay S "
            "--duration S -t nvtx,cuda -o NAME opscope run -- COMMAND"
        )
    try:
        return target.with_suffix(nsight.SUFFIX), tool.wrap(command, target, force=force)
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
    common.refuse_url(output, "--output")
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
        " (see opscope doctor), or the process was killed before it wrote anything; on a GPU --mode simple"
        " records the kernels of any program"
    )


def _names(output: Path | None, command: list[str], target: Path) -> Iterator[Path]:
    """Yield other names for the profile, for when another run has taken its name meanwhile."""
    base = target if output is not None else Path(launch.name_of(command) + _SUFFIX)
    return names_for(base)

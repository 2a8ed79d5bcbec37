"""Turn the options of ``opscope run`` into a backend and variables for the program's processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from opscope import backends
from opscope.adapters import known, modes
from opscope.backends import graph_trace

from . import ahead, child_last, common, run_counters
from .child import FROM, STEPS, UNTIL, WHOLE, Plan

if TYPE_CHECKING:
    from .run import Options

#: The options that choose a part of the run to record.
_PARTS: Final = (STEPS, FROM, UNTIL, WHOLE)


def settings_of(asked: Options) -> tuple[str, dict[str, str]]:
    """Return the backend, and the environment variables that carry the options to the program's processes.

    Ends the command on bad options.
    """
    graphs = _graphs(asked.cuda_graph_trace)
    backend = backend_of(asked.backend, asked.mode, _is_inside(asked))
    settings = {**_bounds(asked, backend), known.MODE: asked.mode, graph_trace.VARIABLE: graphs}
    if graphs == graph_trace.GRAPH and backend not in graph_trace.BACKENDS:
        common.fail(
            "--cuda-graph-trace graph needs --backend cupti or nsys: PyTorch's profiler and others trace the"
            " nodes of CUDA graphs"
        )
    settings |= run_counters.settings(asked.counters, asked.counters_by, backend)
    settings |= _last(asked, backend, settings)
    if asked.light:
        settings |= _light(asked, backend)
    return backend, settings | _more(asked)


def waits_for_attach(asked: Options, settings: Mapping[str, str]) -> bool:
    """Whether nothing is recorded before somebody attaches."""
    records = asked.light or asked.last is not None or any(settings[name] for name in _PARTS)
    return asked.attachable and not records


def _is_inside(asked: Options) -> bool:
    """Whether the options need a recording inside the process. A tool around the program records all of it
    from its start."""
    inside = asked.whole or asked.memory or bool(asked.samples) or asked.attachable or asked.light
    return inside or asked.last is not None or asked.counters is not None


def backend_of(backend: str, mode: str, inside: bool) -> str:
    """Return the backend to use; ends the command if there is no such mode. ``auto`` is a tool around the
    program if one can record the GPU, as nothing else records the kernels of every program. ``inside``: the
    options need a recording inside the process."""
    try:
        modes.frameworks(mode)
    except ValueError as error:
        common.fail(str(error))
    if backend != "auto" or inside:
        return backend
    simple_mode = mode == modes.SIMPLE
    choice = backends.choose(machine=backends.here(in_process=False, simple=simple_mode))
    if backends.known.load(choice.name).around:
        prefix = "simple mode: " if simple_mode else ""
        common.say(f"{prefix}Nsight Systems records the kernels ({choice.reason})")
        return choice.name
    return backend


def _graphs(text: str | None) -> str:
    """Return how CUDA graphs are traced; ends the command if there is no such way."""
    try:
        return graph_trace.NODE if text is None else graph_trace.parse(text)
    except ValueError as error:
        common.fail(f"--cuda-graph-trace {error}")


def _bounds(asked: Options, backend: str) -> dict[str, str]:
    """Return which part is recorded by which backend; ends the command if the options contradict."""
    try:
        plan = Plan.of(asked.steps, asked.delay, asked.duration, backend, asked.whole)
    except ValueError as error:
        common.fail(str(error))
    if backend != "auto":
        _check(backend, asked.command)
    return plan.environment()


def _check(backend: str, command: list[str]) -> None:
    """End the command, before the program runs, if the backend that the user named cannot work here."""
    machine = backends.here(in_process=False, foreign=not ahead.is_ours(command[0]))
    try:
        tool = backends.known.load(backend)
        availability = tool.available(machine)
    except Exception as error:  # noqa: BLE001 - another package's backend may raise anything
        common.fail(f"--backend {backend}: {error}")
    if not availability.works and not tool.outside:
        advice = f"; {availability.advice}" if availability.advice else ""
        common.fail(f"--backend {backend}: {availability.why}{advice}")


def _last(asked: Options, backend: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of ``--last``; ends the command on options that contradict it."""
    try:
        last = child_last.settings(asked.last, asked.slow, asked.last_signal)
    except ValueError as error:
        common.fail(str(error))
    if asked.last is None:
        return last
    if backend not in ("auto", "recorder", "cupti"):
        common.fail(f"--last drops old data, and --backend {backend} keeps all")
    if any(settings[name] for name in _PARTS):
        common.fail("--last cannot be combined with --steps, --delay, --duration or --whole")
    if asked.counters is not None:
        common.fail("--last keeps kernels with their times, and --counters measures them without")
    return last


def _light(asked: Options, backend: str) -> dict[str, str]:
    """Return light mode's settings; ends the command on options that contradict it."""
    from opscope.backends.light import LIGHT, SPELLS

    more = asked.whole or asked.memory or asked.counters is not None
    if asked.is_part or more or backend != "auto":
        common.fail(
            "--light measures every step of the run and records nothing else: it cannot be combined with "
            "--steps, --delay, --duration, --whole, --memory, --last, --counters or --backend"
        )
    return {LIGHT: "1"} if asked.spells else {LIGHT: "1", SPELLS: "0"}


def _more(asked: Options) -> dict[str, str]:
    """Return the settings of the options that can be combined with all others."""
    from opscope.core.capture import cpu_samples, host_stacks
    from opscope.core.process_specs import PRIVATE

    settings = {}
    if asked.memory:
        settings["OPSCOPE_MEMORY"] = "1"
    if asked.samples is not None:
        settings[cpu_samples.RATE] = str(asked.samples)
    if not asked.stacks:
        settings[host_stacks.VARIABLE] = "0"
    if asked.private:
        settings[PRIVATE] = "1"
    return settings

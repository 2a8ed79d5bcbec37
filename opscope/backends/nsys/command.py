"""Build the command line of ``nsys profile`` from the options of ``opscope run``."""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from opscope.core.schema import CAPTURE_DOMAIN

from .tool import Tool
from .versions import REPEAT

#: The call sets that opscope's own ranges and kernels need. Other sets slow the program down and add nothing
#: to a profile of opscope; with ``--trace`` the user gets them in Nsight's own report.
ALWAYS: Final = ("cuda", "nvtx")
#: Environment variable in a child of the run: how it tells nsys that a range begins and ends (``ranges.py``).
RANGE: Final = "OPSCOPE_NSYS_RANGE"
CUDA, NVTX = "cudaProfilerApi", "nvtx"
#: The NVTX range that begins a capture if there is no CUDA driver, and its domain.
RANGE_TEXT, RANGE_DOMAIN = "capture", CAPTURE_DOMAIN
_PATTERN: Final = re.compile(r"%(?:q\{([^}]*)\}|(.))")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to record. ``range``: ``CUDA`` or ``NVTX`` if the program says when, else None.

    ``range_end`` as ``nsys --capture-range-end`` has it (``stop``, ``repeat``, ``repeat:3``). ``delay`` and
    ``duration`` are seconds. ``traces`` are sets of calls besides ``ALWAYS``. ``graphs``: ``node``, or
    ``graph`` for CUDA graphs without their kernels.
    """

    range: str | None = None
    range_end: str = "stop"
    delay: float = 0
    duration: float | None = None
    traces: tuple[str, ...] = ()
    graphs: str = "node"


@dataclass(slots=True)
class Line:
    """A command line of nsys, without the program, and notes for the user about it."""

    words: list[str]
    notes: list[str] = field(default_factory=list)


def line(tool: Tool, wanted: Wanted, output: Path) -> Line:
    """Return ``nsys profile …`` with the report ``output``, whose suffix nsys adds.

    Raises ValueError if this version of nsys cannot do it.
    """
    can, command = tool.can, Line([tool.path, "profile"])
    words = command.words
    words.append(f"--trace={','.join(_traces(tool, wanted.traces))}")
    words += ["--sample=none", "--cpuctxsw=none", "--kill=none", "--wait=primary"]
    options = (("cuda-graph-trace", wanted.graphs), *_WHERE_KNOWN)
    words += [f"--{name}={value}" for name, value in options if name in can.options]
    if "mpi" in wanted.traces and "mpi-impl" in can.options:
        implementation = mpi(os.environ)
        if implementation is not None:
            words.append(f"--mpi-impl={implementation}")
    if wanted.range is not None:
        words += _range(tool, wanted)
    for name, seconds in (("delay", wanted.delay), ("duration", wanted.duration)):
        if seconds:
            rounded = seconds if can.fractions or seconds == int(seconds) else math.ceil(seconds)
            if rounded != seconds:
                command.notes.append(
                    f"Nsight Systems {can.name} takes whole seconds: --{name} {seconds:g} is taken for "
                    f"{rounded}"
                )
            words.append(f"--{name}={rounded:g}")
    words += ["--force-overwrite=true", f"--output={output}"]
    return command


#: Options that only some versions have. ``cuda-graph-trace``: without ``node``, a CUDA graph is one row,
#: without its kernels. Forked workers are traced only with their own option. Tracing the completion of CUDA
#: events, a default since 2025, makes streams wait for each other and is in no report of opscope. The report
#: of Nsight Systems holds the program's environment, secrets included, unless it is discarded.
_WHERE_KNOWN: Final = (
    ("trace-fork-before-exec", "true"),
    ("cuda-event-trace", "false"),
    ("discard-environment", "true"),
)


def with_options(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words of ``nsys profile`` in which these options, ``--name=value``, replace its own."""
    named = {word.partition("=")[0] for word in options}
    kept = [word for word in words[2:] if word.partition("=")[0] not in named]
    return [*words[:2], *options, *kept]


def _traces(tool: Tool, more: Sequence[str]) -> list[str]:
    unknown = sorted(set(more) - tool.can.traces)
    if unknown:
        traces = ", ".join(sorted(tool.can.traces - {"none"}))
        raise ValueError(f"--trace {unknown[0]}: Nsight Systems {tool.full} knows only: {traces}")
    return list(dict.fromkeys((*ALWAYS, *more)))


def _range(tool: Tool, wanted: Wanted) -> list[str]:
    words = [f"--capture-range={wanted.range}"]
    if wanted.range == NVTX:
        words.append(f"--nvtx-capture={RANGE_TEXT}@{RANGE_DOMAIN}")
    kind = wanted.range_end.partition(":")[0]
    if "capture-range-end" in tool.can.options:
        if kind not in tool.can.ends:
            ends = ", ".join(sorted(tool.can.ends))
            raise ValueError(
                f"--capture-range-end {wanted.range_end}: Nsight Systems {tool.full} knows only: {ends}"
            )
        return [*words, f"--capture-range-end={wanted.range_end}"]
    if kind == REPEAT:
        raise ValueError(
            f"--capture-range-end {wanted.range_end}: Nsight Systems {tool.full} records one range only; "
            "2021.2 and later repeat"
        )
    return [*words, "--stop-on-range-end=true"]


def parse_end(text: str) -> str:
    """Return the value of ``--capture-range-end``. Raises ValueError unless it leaves the program running."""
    if not re.fullmatch(rf"stop|{REPEAT}(:[1-9]\d*)?", text):
        raise ValueError(
            f"--capture-range-end {text!r}: choose stop, {REPEAT} or {REPEAT}:N "
            "(the values with shutdown would end the program)"
        )
    return text


def parse_traces(text: str) -> tuple[str, ...]:
    """Return the call sets named in ``--trace``. Raises ValueError for an invalid name."""
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    for name in names:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or name == "none":
            raise ValueError(f"--trace {name!r}: give names of sets, as in osrt,cublas,cudnn,mpi")
    return names


def mpi(environ: Mapping[str, str]) -> str | None:
    """Return the MPI implementation that the environment shows, as ``--mpi-impl`` takes it; else None."""
    if any(name.startswith(("OMPI_", "PMIX_")) for name in environ):
        return "openmpi"
    if any(name.startswith(("MPICH_", "I_MPI_", "HYDI_", "PMI_")) for name in environ):
        return "mpich"
    return None


def filled_in(name: str, environ: Mapping[str, str]) -> str:
    """Return a file name with nsys's patterns replaced: ``%q{NAME}`` by a variable, ``%h`` by the host,
    ``%p`` by this process, ``%%`` by ``%``.

    So every rank that runs opscope has a file of its own. Raises ValueError for a variable that is not set
    and for another pattern.
    """

    def replaced(match: re.Match[str]) -> str:
        variable, letter = match.groups()
        if variable is not None:
            if not environ.get(variable):
                raise ValueError(f"--output {name!r}: the environment has no variable {variable}")
            return environ[variable]
        values = {"h": socket.gethostname(), "p": str(os.getpid()), "%": "%"}
        if letter not in values:
            raise ValueError(f"--output {name!r}: %{letter} is none of %q{{NAME}}, %h, %p, %%")
        return values[letter]

    return _PATTERN.sub(replaced, name)

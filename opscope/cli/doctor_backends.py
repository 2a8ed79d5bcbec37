"""The checks of backends in ``opscope doctor``: which work here, which ``auto`` takes, and a test of one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from opscope import backends
from opscope.backends import Auto, Backend, Choice, Machine

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace

#: Seconds for the test of ``auto``'s backend once its program has started; and of one that the user names.
LIMIT_S: Final = 5.0
NAMED_LIMIT_S: Final = 60.0
#: Seconds for the program's start: on a cold GPU a framework, a context and cuDNN may take 10 s and more.
START_S: Final = 120.0
#: The user is told of a start that takes longer than this.
_SLOW_START_S: Final = 2.0
#: Seconds between two checks of the program, and to wait until it ends once it is killed.
_LOOK_S: Final = 0.02
_KILL_S: Final = 5.0
_STEPS: Final = 3
_RANGE: Final = "opscope self-test"
#: The program that is recorded: steps with a range each, then the backend's own sample. It runs the sample
#: once before, so that slow first-time work (imports, the device's context, libraries) counts as its start.
#: ``exec`` only runs source of the installed backend, in a process of its own, never data of a trace.
_PROGRAM: Final = """\
import sys, time
import opscope
from opscope.backends import begin, known
from opscope.core.capture import session
folder, name, ready = sys.argv[1:]
sample = known.load(name).sample
exec(sample)
open(ready, "w").close()
begin(folder, name)
for _ in range({steps}):
    opscope.step()
    with opscope.annotate({text!r}):
        time.sleep(0.001)
exec(sample)
session.stop()
"""
#: The GPU of a ``Machine`` in words.
_OF_GPU: Final = {"nvidia": "an NVIDIA GPU", "amd": "an AMD GPU"}


@dataclass(frozen=True, slots=True)
class Tested:
    """The result of a self-test: whether the recording was complete, what was found, and what to do.
    ``works`` is None where that is not known, because the test did not end in time."""

    name: str
    works: bool | None
    found: str
    advice: str = ""


def about_to_start() -> Machine:
    """Return this machine as a program sees it before it starts: without the modules that doctor imported."""
    return backends.here(modules={})


def rows(machine: Machine, choice: Choice) -> list[dict[str, str]]:
    """Return one row for each backend, the highest rank first; the state of ``auto``'s choice is ``auto``."""
    rows_of_backends = []
    for name, backend, availability in backends.ranked(machine):
        state = "ok" if availability.works else "--"
        why = availability.why
        if name == choice.name:
            state, why = "auto", choice.reason
        elif (
            backend is not None
            and backend.around
            and availability.works
            and availability.auto is Auto.NOW
        ):
            why = f"{why}; opscope run takes it with --mode simple or --backend {name}"
        rows_of_backends.append(
            {
                "state": state,
                "what": f"backend {name}",
                "gives": "" if backend is None else backend.gives,
                "found": why,
                "advice": "" if availability.works else availability.advice,
            }
        )
    return rows_of_backends


def picked(machine: Machine, choice: Choice) -> str:
    """Return one line: the backend that ``auto`` takes here, and the one it takes once a framework is
    used."""
    later = [
        backend.name
        for name, backend, availability in backends.ranked(machine)
        if backend is not None and availability.works and availability.auto is Auto.LATER
    ]
    more = f"; {' or '.join(later)} once a program uses its framework" if later else ""
    return f"{choice.name}: {choice.reason}{more}"


def self_test(
    backend: Backend, limit_s: float = LIMIT_S, waiting: Callable[[], object] = lambda: None
) -> Tested:
    """Record a small known program in a process of its own with ``backend``, and read the recording.

    The program may take ``START_S`` to start: to import the framework, to make a context on the device, to
    load its libraries; on a cold GPU that takes 10 s and more. After that it may take ``limit_s``.
    ``waiting`` is called once if the start takes longer than ``limit_s``.
    """
    name = backend.name
    if backend.outside:
        why = "not tested: a tool outside opscope records, and writes its report at its end"
        return Tested(name, True, why)
    with TemporaryDirectory(prefix="opscope-self-test-", ignore_cleanup_errors=True) as folder:
        target, ready = Path(folder, "recording"), Path(folder, "ready")
        program = _PROGRAM.format(steps=_STEPS, text=_RANGE)
        env = {key: value for key, value in os.environ.items() if not key.startswith("OPSCOPE_RUN")}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        with Path(folder, "errors").open("w+", encoding="utf-8", errors="replace") as errors:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-c", program, target, name, ready],
                    cwd=folder,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
            except OSError as error:
                return Tested(name, False, f"the test cannot run: {error.strerror or error}")
            started, took = _times(process, ready, limit_s, waiting)
            if took is None:
                return _unended(name, started, limit_s)
            if process.returncode:
                errors.seek(0)
                lines = errors.read().strip().splitlines() or [
                    f"its process ended with {process.returncode}"
                ]
                return Tested(name, False, f"it recorded nothing: {lines[-1]}")
        lacks = _lacks(backend, target)
    after = f"in {took:.1f} s"
    if started is not None and started >= _SLOW_START_S:
        after += f" after a start of {started:.1f} s"
    if lacks is not None:
        return Tested(name, False, f"{lacks}, {after}")
    more = f", and {backend.gives}" if backend.sample else ""
    return Tested(
        name, True, f"{_STEPS} steps and {_STEPS} ranges of a program arrived{more}, {after}"
    )


def _times(
    process: subprocess.Popen[bytes], ready: Path, limit_s: float, waiting: Callable[[], object]
) -> tuple[float | None, float | None]:
    """Wait for the program; return the seconds of its start, and those after it. The first are None if it
    never reported its start, the second if it did not end in time; then it is killed."""
    begun = time.monotonic()
    started: float | None = None
    was_late = False
    while process.poll() is None:
        now = time.monotonic() - begun
        if started is None and ready.exists():
            started = now
        if started is None and now > limit_s and not was_late:
            was_late = True
            waiting()
        if now > START_S if started is None else now - started > limit_s:
            process.kill()
            with contextlib.suppress(
                subprocess.TimeoutExpired
            ):  # a process inside the driver cannot be killed
                process.wait(_KILL_S)
            return started, None
        time.sleep(_LOOK_S)
    took = time.monotonic() - begun
    return started, took - (started or 0.0)


def _unended(name: str, started: float | None, limit_s: float) -> Tested:
    """Return the result of a test that did not end, which does not show whether the backend works."""
    if started is None:
        return Tested(
            name,
            None,
            f"not known: the test's program had not started after {START_S:g} s",
            "the first use of a device may take long; see whether it answers (nvidia-smi, rocm-smi), and try "
            "again; --no-self-test leaves the test out",
        )
    finding = f"not known: the test had not ended {limit_s:g} s after its start"
    if limit_s >= NAMED_LIMIT_S:
        return Tested(name, None, finding, "try again when the machine is idle")
    return Tested(name, None, finding, f"opscope doctor --backend {name} waits {NAMED_LIMIT_S:g} s")


def _lacks(backend: Backend, target: Path) -> str | None:
    """Return which part of the known program is missing in the recording, or None."""
    from opscope.readers.errors import BadInput
    from opscope.readers.recording.reader import collect

    try:
        trace = collect(target, strict=True)
        lacks = _lacks_ranges(trace)
        return lacks if lacks is not None else backend.missing(trace)
    except BadInput as error:
        return f"what it recorded cannot be read: {error.what}"
    except (Exception, SystemExit) as error:  # noqa: BLE001 - another package's backend may raise anything
        return f"what it recorded cannot be checked: {type(error).__name__}: {error}"


def _lacks_ranges(trace: Trace) -> str | None:
    import polars as pl

    ranges = trace["ranges"].select(
        pl.col("domain", "text").cast(pl.String), length=pl.col("end") - pl.col("start")
    )
    steps = ranges.filter(pl.col("domain") == "opscope.step").height
    if steps != _STEPS:
        return f"{steps} of {_STEPS} steps arrived"
    slept = ranges.filter(text=_RANGE)
    if slept.height != _STEPS:
        return f"{slept.height} of {_STEPS} ranges arrived"
    if not (slept["length"] >= 1_000_000).all():
        return "a range that took at least 1 ms is shorter in the recording"
    return None


def gpu_of(machine: Machine) -> tuple[str, str] | None:
    """Return the GPU and the advice if an environment variable hides it; else None."""
    hidden = machine.hidden_by
    if machine.gpu is not None or hidden is None:
        return None
    value: Any = machine.environ.get(hidden)
    vendor = _OF_GPU[str(machine.vendor)]
    return f"{vendor} is hidden by {hidden}={value!r}", f"unset {hidden} to use it"

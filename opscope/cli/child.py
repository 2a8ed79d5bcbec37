"""Start recording in a Python process of ``opscope run``, before its program begins."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from opscope.backends import known
from opscope.backends.window import CHOSEN, EXACT, Bounds
from opscope.backends.window import WHOLE as WHOLE_RUN

if TYPE_CHECKING:
    from pathlib import Path

    from opscope.core.capture.session import Capture

#: Environment variables that carry the plan from ``run`` to its children.
FOLDER, BACKEND, STEPS, FROM, UNTIL, WHOLE = (
    f"OPSCOPE_RUN_{name}" for name in ("DIR", "BACKEND", "STEPS", "FROM", "UNTIL", "WHOLE")
)
#: The variable that turns on light mode (``backends.light.LIGHT``, whose module loads NumPy).
LIGHT: Final = "OPSCOPE_LIGHT"
#: Seconds that ``os._exit`` waits for another thread that is ending the recording.
QUICK_EXIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Plan:
    """When to record, and how. ``steps`` is half-open; times are Unix seconds.

    ``whole``: record a profiler's data (kernels, operations) for the whole run, without a bound.
    """

    backend: str = "auto"
    steps: tuple[int, int | None] | None = None
    begin: float | None = None
    end: float | None = None
    whole: bool = False

    @classmethod
    def of(
        cls,
        steps: str | None,
        delay: float,
        duration: float | None,
        backend: str,
        whole: bool = False,
    ) -> Plan:
        """Return the plan for the command line's options. Raises ValueError if they contradict each other."""
        if backend not in (names := known.names()):
            raise ValueError(f"no backend named {backend!r}; choose one of: {', '.join(names)}")
        if steps is not None and (delay or duration is not None):
            raise ValueError("--steps cannot be combined with --delay or --duration")
        if whole and (steps is not None or duration is not None):
            raise ValueError("--whole cannot be combined with --steps or --duration")
        now = time.time()
        return cls(
            backend,
            None if steps is None else parse_steps(steps),
            now + delay if delay else None,
            None if duration is None else now + delay + duration,
            whole,
        )

    @property
    def bounds(self) -> Bounds:
        """The part of the run to profile: the user's choice, else a window that opscope chooses."""
        if self.whole:
            return WHOLE_RUN
        return CHOSEN if self.steps is None and self.end is None else EXACT

    def environment(self) -> dict[str, str]:
        """Return the plan as environment variables."""
        first, last = self.steps or (None, None)
        values = {
            BACKEND: self.backend,
            STEPS: None if first is None else f"{first}:{'' if last is None else last}",
            FROM: self.begin,
            UNTIL: self.end,
            WHOLE: "1" if self.whole else None,
        }
        return {name: "" if value is None else str(value) for name, value in values.items()}

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Plan:
        """Return the plan from the variables that ``environment`` returned. Raises ValueError on other
        text."""
        steps, begin, end = (env.get(name) for name in (STEPS, FROM, UNTIL))
        return cls(
            env.get(BACKEND) or "auto",
            parse_steps(steps) if steps else None,
            float(begin) if begin else None,
            float(end) if end else None,
            bool(env.get(WHOLE)),
        )


def parse_steps(text: str) -> tuple[int, int | None]:
    """Return the bounds of a range of steps: ``3:6`` is (3, 6), the steps 3, 4 and 5.

    ``3:`` is every step from 3 on, ``:6`` the first six, ``4`` step 4 alone. Raises ValueError on any
    other text and on an empty range.
    """
    first, colon, last = text.strip().partition(":")
    try:
        start = int(first) if first else 0
        stop = (int(last) if last else None) if colon else start + 1
    except ValueError:
        start, stop = -1, None
    if start < 0 or not text.strip(": ") or (stop is not None and stop <= start):
        raise ValueError(f"not a range of steps: {text!r}; 3:6 means steps 3, 4 and 5")
    return start, stop


def start(env: Mapping[str, str]) -> None:
    """Hook the frameworks and record as ``env`` says. Called once, before the program begins."""
    import opscope
    from opscope import backends
    from opscope.adapters import modes
    from opscope.backends import cupti, kineto_counters
    from opscope.backends.recorder import RECORDER
    from opscope.core.capture import session
    from opscope.core.capture.imports import time_imports

    # imported only where needed: NumPy and asyncio, which some modules load, take a tenth of a second
    from . import child_attachable, child_exits, child_last, program_end
    from .child_capture import RecordingWithMore

    cupti.attend(env)
    plan = Plan.from_environment(env)
    if env.get(LIGHT) and _light(env[FOLDER]):
        child_attachable.start(env)
        return
    machine = backends.here(env, simple=modes.is_simple(env))
    if plan.backend == "auto":
        # only later is it known which framework the program uses
        asked = [*backends.ranked(machine)]
        choice, wanted = backends.choose(machine=machine, asked=asked), backends.offered(asked)
    else:
        choice = backends.Choice(plan.backend, backends.REQUESTED)
        wanted = [known.load(plan.backend)]
    opscope.init()
    child_exits.keep(env[FOLDER])
    child_attachable.start(env)
    time_imports()
    if child_attachable.alone(env):
        _finish_at_quick_exits()
        return
    if child_last.wanted(env):
        _finish_at_quick_exits()
        child_last.start(env, env[FOLDER])
        return
    if known.load(choice.name).outside:  # the tool that started this process does the recording
        _under_tool(plan, env)
        return
    _finish_at_quick_exits()
    more = [backend for backend in wanted if backend is not RECORDER]
    # the other backends record kernels if no counters can be measured
    if kineto_counters.wanted(env):
        from opscope.backends.cupti_counters import ways

        more = [*ways.offered(machine, env), *more]
    capture = RecordingWithMore(env[FOLDER], plan.bounds, more, choice)
    session.reserve(capture)
    if plan.steps is not None:
        _by_steps(plan.steps, capture)
    elif plan.begin is None and plan.end is None:
        session.start(capture)
    else:
        folder = env[FOLDER] if env.get(program_end.VARIABLE) else None
        _by_time(plan, capture, folder)
        if hasattr(os, "register_at_fork"):  # a forked child has no copy of the timer's thread
            os.register_at_fork(after_in_child=lambda: _by_time(plan, capture, folder))
    if machine.is_unheard:
        backends.warn_unheard()


def _light(folder: str) -> bool:
    """Begin light mode if the environment asks for it; return whether it began."""
    import opscope
    from opscope.backends import light
    from opscope.core.capture.imports import time_imports

    if not light.wanted():
        return False
    light.into(folder, light.spells_wanted())
    opscope.init(spells=light.spells_wanted())
    time_imports()
    _finish_at_quick_exits()
    return True


def _under_tool(plan: Plan, env: Mapping[str, str]) -> None:
    """Leave recording to the tool that started this process; only the range of steps is ours."""
    from opscope.backends.nsys import ranges
    from opscope.core.capture import session

    from . import nsight

    nsight.record_listener(env[FOLDER], env)
    if plan.steps is not None and ranges.wanted(env):
        capture = ranges.RunRange()
        session.reserve(capture)
        _by_steps(plan.steps, capture)


def _by_steps(steps: tuple[int, int | None], capture: Capture) -> None:
    from opscope.callbacks.steprange import StepRange

    StepRange(*steps, make=lambda _: capture).attach()


def _finish_at_quick_exits() -> None:
    """Make ``os._exit`` write the recording first: it skips the functions that run at exit."""
    from opscope.core.capture import session

    leave = os._exit

    def _exit(status: int) -> NoReturn:
        try:
            session.finish(QUICK_EXIT_S)
        finally:
            leave(status)

    os._exit = _exit


def _by_time(plan: Plan, capture: Capture, folder: str | None) -> None:
    """Record as planned. ``folder``: where to write until when it records, if ``opscope`` will end the
    program."""
    from opscope.core.capture import session

    from . import program_end

    now = time.time()
    begin = plan.begin or now
    if plan.end is not None and plan.end <= now:
        if session.capturing() is capture:
            session.stop()
        return
    if begin > now:
        _later(begin - now, lambda: session.start(capture))
    elif session.capturing() is None:
        session.start(capture)
    if plan.end is not None and folder is not None:
        file = program_end.hold(folder)
        _later(plan.end - now, lambda: _stop(file))
    elif plan.end is not None:
        _later(plan.end - now, session.stop)


def _stop(held: Path) -> None:
    from opscope.core.capture import session

    try:
        session.stop()
    finally:
        held.unlink(missing_ok=True)


def _later(seconds: float, function: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, function)
    timer.daemon = True  # recording ends with the program
    timer.name = "opscope-timer"
    timer.start()

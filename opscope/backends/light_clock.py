"""Light mode's clock in C, as built-in functions of Python: compiled on first use, in less than a second."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from opscope.adapters.shared import cache
from opscope.adapters.shared.compiled import BuildError, built
from opscope.core.capture.light import KEPT, NEVER, Clock, Cost, LightClock, Watch

_log = logging.getLogger(__name__)

#: ``auto``, ``native`` (a warning where it cannot be built) or ``python``.
VARIABLE: Final = "OPSCOPE_LIGHT_CLOCK"
SOURCE: Final = Path(__file__).with_name("light_clock.c")
ABI: Final = 1
_ANNOUNCED: Final = "building light mode's clock, once (about 1 s)"


class _State(ctypes.Structure):
    """``struct clock`` of light_clock.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("thread", "phase", "at", "measures")),
        ("times", ctypes.c_int64 * 6),
        *((name, ctypes.c_int64) for name in ("open", "begin", "number", "began_full")),
        *((name, ctypes.c_int64) for name in ("limit", "late", "full", "places")),
        *((name, ctypes.c_int64) for name in ("own", "since", "calls")),
        *((name, ctypes.c_int64) for name in ("count", "total")),
        *((name, ctypes.c_int64) for name in ("measured_calls", "measured_turns", "dropped")),
        ("log", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("used", "room")),
        *((name, ctypes.c_void_p) for name in ("adopts", "tells")),
        ("recent", ctypes.c_int64 * KEPT),
    )


class Library:
    """The loaded library; never unloaded, because hooks may outlive light mode."""

    def __init__(self, path: Path) -> None:
        library = cache.load(path)
        if library.opscope_light_abi() != ABI:
            raise OSError(f"{path} was built for another version of opscope")
        library.opscope_light_size.restype = ctypes.c_int64
        if library.opscope_light_size() != ctypes.sizeof(_State):
            raise OSError(f"{path} does not have the layout that this version of opscope expects")
        library.opscope_light_clock.argtypes = (ctypes.py_object, ctypes.py_object)
        library.opscope_light_clock.restype = ctypes.py_object
        library.opscope_light_state.argtypes = (ctypes.py_object,)
        library.opscope_light_state.restype = ctypes.c_void_p
        library.opscope_light_function.argtypes = (ctypes.py_object, ctypes.c_char_p)
        library.opscope_light_function.restype = ctypes.py_object
        self.call = library


class NativeClock:
    """A ``Clock`` whose hooks are built-in functions."""

    def __init__(self, library: Library) -> None:
        self.watch: Watch | None = None
        self.due = False
        self.between: Callable[[], None] = lambda: None
        self.started: Callable[[], None] | None = None
        # native code keeps these functions, so they must not keep this object alive
        this, call = weakref.ref(self), library.call
        clock = call.opscope_light_clock(_adopts(this), _tells(this))
        self._state = _State.from_address(call.opscope_light_state(clock))

        def function(name: str) -> Any:
            return call.opscope_light_function(clock, name.encode())

        self.enter: Callable[[int], int] = function("enter")
        self.leave: Callable[[int], None] = function("leave")
        self.optimizes: Callable[[], None] = function("optimizes")
        self.optimized: Callable[[], None] = function("optimized")
        self.turns: Callable[[int], None] = function("turns")
        self.turns_after: Callable[[int], None] = function("turns_after")
        self.begins: Callable[[int], None] = function("begins")
        self.ends: Callable[[], None] = function("ends")
        self.here: Callable[[], bool] = function("here")
        self.left: Callable[[], None] = function("left")
        self.named: Callable[[int], None] = function("named")
        self.take: Callable[[], bytes] = function("take")

    def around(self, function: Any, phase: int) -> Any:
        """Return ``function`` with its calls in a phase."""
        enter, leave = self.enter, self.leave

        @functools.wraps(function)
        def phased(*args: Any, **kwargs: Any) -> Any:
            before = enter(phase)
            try:
                return function(*args, **kwargs)
            finally:
                leave(before)

        return phased

    @property
    def full(self) -> bool:
        """Whether everything is recorded as well, so that steps take other times than usual."""
        return bool(self._state.full)

    @full.setter
    def full(self, yes: bool) -> None:
        self._state.full = yes

    @property
    def limit(self) -> int:
        """A step longer than this (ns) is reported to ``watch``."""
        return min(int(self._state.limit), NEVER)

    @limit.setter
    def limit(self, ns: int) -> None:
        self._state.limit = ns

    @property
    def open(self) -> bool:
        """Whether a step is open."""
        return bool(self._state.open)

    @property
    def cost(self) -> Cost:
        """The cost of the hooks, which they measured themselves in some steps."""
        cost, state = Cost(), self._state
        cost.count, cost.total = state.count, state.total
        cost.recent = state.recent[: min(state.count, KEPT)]
        return cost

    @property
    def measured_calls(self) -> int:
        """Number of hook calls in those steps."""
        return int(self._state.measured_calls)

    @property
    def measured_turns(self) -> int:
        """Turns of steps among them for which the time to reach this clock was not measured."""
        return int(self._state.measured_turns)

    @property
    def dropped(self) -> int:
        """Number of steps that were not read in time."""
        return int(self._state.dropped)

    def after_fork(self) -> None:
        """Forget all in a forked child: its steps are its own."""
        state = self._state
        for name in ("open", "full", "late", "thread", "places", "dropped", "used", "measures"):
            setattr(state, name, 0)
        for name in ("count", "total", "calls", "measured_calls", "measured_turns"):
            setattr(state, name, 0)
        state.limit = NEVER
        self.due = False

    def _adopts(self) -> bool:
        state = self._state
        if state.open and state.thread in threading._active:  # type: ignore[attr-defined]
            return False
        started, self.started = self.started, None
        if started is not None:
            started()
        return True

    def _tells(self, took: int) -> None:
        if self.watch is None:
            return
        if took < 0:
            self.watch.usual()
        else:
            self.watch.slow(took)


def _adopts(this: weakref.ref[NativeClock]) -> Callable[[], bool]:
    def adopts() -> bool:
        clock = this()
        return clock is not None and clock._adopts()

    return adopts


def _tells(this: weakref.ref[NativeClock]) -> Callable[[int], None]:
    def tells(took: int) -> None:
        clock = this()
        if clock is not None:
            clock._tells(took)

    return tells


@functools.lru_cache(maxsize=1)
def _load(path: Path) -> Library:
    return Library(path)


def library() -> Library:
    """Return the library; build it first where it is missing. Raises BuildError or OSError if that fails."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise BuildError("this Python has no GIL, on which light mode's clock in C relies")
    if sys.implementation.name != "cpython":
        raise BuildError(f"light mode's clock in C is for CPython, not {sys.implementation.name}")
    return _load(built(SOURCE, announce=_ANNOUNCED))


def make() -> Clock:
    """Return a clock: in C, or in Python if C cannot be built or the user chose Python."""
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted == "python":
        return LightClock()
    try:
        return NativeClock(library())
    except (BuildError, OSError) as error:
        level = logging.WARNING if wanted == "native" else logging.INFO
        _log.log(
            level, "opscope: light mode measures from Python, at five times the cost: %s", error
        )
        return LightClock()

"""The state of this process: its emitters, the running capture, and the current training step.

Everything here can be called at any time: while nothing listens, steps are counted and the rest
does nothing. No framework is imported.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from time import perf_counter_ns
from types import TracebackType
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from opscope.core.schema import STEP, UNENDED

from . import interrupted_end, process, suspendable
from .emit import Emitter, forked
from .light import Clock, turn_ns
from .pool_tasks import at_worker_exit, write_in_forked_worker, write_in_spawned_worker
from .recorder_sink import Recorder

_log = logging.getLogger(__name__)
_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Steps have a separate domain: they end with an iteration, inside or across user ranges.
STEP_FRAMEWORK: Final = "step"
USER_FRAMEWORK: Final = "user"
#: The user's functions that are ops (``opscope.wrap``) have a separate domain too: user ranges are not ops.
WRAP_FRAMEWORK: Final = "wrap"
#: The range in which opscope prepares what it needs.
SET_UP: Final = "opscope sets up"
#: Domains whose ranges opscope reads as something other than user ranges.
_TAKEN: Final = ("kineto", "python", "runtime", "NCCL", "TSL", "TensorRT")


class SessionError(RuntimeError):
    """A capture cannot start, or another capture is already running; the message says why."""


@runtime_checkable
class Capture(Protocol):
    """One capture. ``backends`` implement it; ``session`` starts and stops it once."""

    def warmup(self) -> None:
        """Prepare what is slow to start. Optional; a second call does nothing."""

    def start(self) -> None:
        """Begin. Raises OSError or SessionError if it cannot begin; then nothing is left running."""

    def stop(self) -> None:
        """End, and write the results to the capture's target. A second call does nothing."""


_lock = threading.RLock()
_emitters: dict[str, Emitter] = {}
_recorder: Recorder | None = None
_capture: Capture | None = None
_reserved: Capture | None = None
_warned_reserved = False
_subscribers: list[Callable[[int], None]] = []
_watchers: list[Callable[[], None]] = []
_optimizers: list[tuple[Callable[[], None], Callable[[], None]]] = []
_models: list[weakref.ref[Any]] = []
#: Light mode: the clock of steps and phases, and the function that ends it.
_light: Clock | None = None
_end_light: Callable[[], None] | None = None
#: Whether the user counts steps (``opscope.step``); adapters then do not.
steps_by_user = False
_hooked = False


class _Steps(threading.local):
    number = -1
    pushed = False
    held = False
    #: Whether light mode has begun a step at the end of the previous one, before the program's next step
    #: begins.
    ahead = False


_steps = _Steps()


# -------------------------------------------------------------------------- emitters and sinks


def emitter(framework: str) -> Emitter:
    """Return the emitter of ``opscope.<framework>``; there is one per process."""
    entry = _emitters.get(framework)
    if entry is None:
        with _lock:
            entry = _emitters.get(framework)
            if entry is None:
                entry = Emitter(framework)
                entry.listen(_recorder)
                _emitters[framework] = entry
                # otherwise no tool listens; a recording describes its process by itself
                if entry.nvtx:
                    _hook_exit_and_fork()
                    entry.mark_spec(process.spec())
    return entry


def user_emitter(domain: str | None = None) -> Emitter:
    """Return the emitter of the user's ranges, in ``opscope.user`` or in the NVTX domain ``domain``."""
    if domain is None:
        return emitter(USER_FRAMEWORK)
    key = f"domain {domain}"
    entry = _emitters.get(key)
    if entry is None:
        with _lock:
            entry = _emitters.get(key)
            if entry is None:
                entry = Emitter(USER_FRAMEWORK, domain)
                entry.listen(_recorder)
                _emitters[key] = entry
    return entry


def recorder() -> Recorder | None:
    """Return the recorder that all emitters write to now, or None."""
    return _recorder


def listen(new: Recorder | None) -> None:
    """Let all emitters write to ``new`` (started by its owner), or to no recorder. For backends."""
    global _recorder
    with _lock:
        if new is not None:
            _hook_exit_and_fork()
        _recorder = new
        for emitter in _emitters.values():
            emitter.listen(new)
    for watcher in tuple(_watchers):
        watcher()


def on_activity(watcher: Callable[[], None]) -> Callable[[], None]:
    """Call ``watcher()`` whenever emitters become active or inactive; return a function that undoes this.

    It is called on the thread that starts or stops the capture, after the change: adapters check
    ``emitter.active`` and hook or unhook. It must not raise.
    """
    with _lock:
        _watchers.append(watcher)

    def undo() -> None:
        with _lock:
            if watcher in _watchers:
                _watchers.remove(watcher)

    return undo


def observed() -> bool:
    """Whether adapters are installed, or waiting for their framework to be imported."""
    return bool(_watchers)


def trains(model: object) -> None:
    """Note that ``model`` is being trained: layers are named by their path in it, even if only a part is
    called."""
    with _lock:
        _models[:] = [one for one in _models if one() not in (None, model)]
        _models.append(weakref.ref(model))


def on_optimizer(begins: Callable[[], None], ends: Callable[[], None]) -> Callable[[], None]:
    """Call these around the work of optimizers that are not the framework's own (Keras's on PyTorch).

    They are called on the thread of the optimizer and must not raise. Returns a function that undoes this.
    """
    watcher = (begins, ends)
    with _lock:
        _optimizers.append(watcher)

    def undo() -> None:
        with _lock:
            if watcher in _optimizers:
                _optimizers.remove(watcher)

    return undo


class optimizing:
    """Notify the subscribers of ``on_optimizer`` that an optimizer works inside the block.

    A class, as a generator's context manager costs a microsecond more in each step.
    """

    __slots__ = ("_told",)

    def __enter__(self) -> None:
        self._told = listeners = tuple(_optimizers)
        for begins, _ in listeners:
            begins()

    def __exit__(self, *error: object) -> None:
        for _, ends in reversed(self._told):
            ends()


def models() -> list[Any]:
    """Return the models that are trained, the latest first."""
    return [model for one in reversed(_models) if (model := one()) is not None]


# ------------------------------------------------------------------------------- the capture


def reserve(capture: Capture) -> None:
    """Allow only ``capture`` to start in this process from now on: ``opscope run`` records the process.

    The program's own captures are skipped instead of failing.
    """
    global _reserved
    _reserved = capture


def is_run() -> bool:
    """Whether ``opscope run`` records all of this process, so that everything possible is recorded."""
    return _reserved is not None and not getattr(_reserved, "ring", False)


def is_reserved(subject: object) -> bool:
    """Whether ``opscope run`` records this process, so that the program's own capture ``subject`` is skipped.

    The first True is logged.
    """
    global _warned_reserved
    if _reserved is None:
        return False
    if not _warned_reserved:
        _warned_reserved = True
        _log.warning(
            "opscope run records this process: %s is skipped, the run's profile contains its events",
            subject,
        )
    return True


def start(capture: Capture) -> None:
    """Begin ``capture``. Raises SessionError while another capture runs, and what ``capture.start`` raises.

    Under ``opscope run`` only the run's own capture begins; others are skipped.
    """
    global _capture
    if capture is not _reserved and is_reserved(repr(capture)):
        return
    with _lock:
        if _capture is not None:
            raise SessionError(f"a capture is already running: {_capture!r}")
        _hook_exit_and_fork()
        capture.start()
        _capture = capture


def stop() -> Capture | None:
    """End the running capture and return it; ``None`` if no capture runs."""
    global _capture
    settle = getattr(_capture, "settle", None)
    if settle is not None:
        settle()  # without the lock, which other threads that this waits for may need
    with _lock:
        ended, _capture = _capture, None
        if ended is not None:
            ended.stop()
        return ended


def capturing() -> Capture | None:
    """Return the running capture, or None."""
    return _capture


# --------------------------------------------------------------------------------- light mode


def light() -> Clock | None:
    """Return the clock of light mode; None if that is off."""
    return _light


def measure_steps(clock: Clock | None, end: Callable[[], None] | None = None) -> None:
    """Tell ``clock`` of all steps from now on; ``None``: no clock. ``end``: called when the process ends."""
    global _light, _end_light
    with _lock:
        if clock is not None:
            emitter(STEP_FRAMEWORK)
            _hook_exit_and_fork()
        _light, _end_light = clock, end


def end_light() -> None:
    """End light mode, if it is on, and write its results."""
    if _end_light is not None:
        _end_light()


def _light_step(clock: Clock, number: int | None, turns: Callable[[int], None]) -> int:
    """``step`` in light mode; ``turns`` is the clock's."""
    counted = _steps
    if (
        counted.pushed
        or counted.ahead
        or _subscribers
        or clock.due
        or _emitters[STEP_FRAMEWORK].active
    ):
        end_step()
        return begin_step(number)
    counted.number = number = counted.number + 1 if number is None else number
    turns(number)
    return number


def light_step_ns(clock: Clock) -> float | None:
    """Measure the cost of ``step`` in light mode that ``clock`` itself does not measure (ns). ``clock`` is an
    unused clock of the kind in use. None while another object listens to steps."""
    counted = _steps
    if counted.pushed or _subscribers or emitter(STEP_FRAMEWORK).active:
        return None
    before = counted.number
    try:
        return turn_ns(clock, lambda: _light_step(clock, None, clock.turns))
    finally:
        counted.number = before


# ---------------------------------------------------------------------------- steps and ranges


def step(number: int | None = None) -> int:
    """Begin a step, end the previous one if any, and return the step's number.

    Unless given, numbers count up from 0 on each thread.
    """
    if _light is not None:
        return _light_step(_light, number, _light.turns)
    recording, counted = _recorder, _steps
    if recording is None or not counted.pushed or _subscribers:
        if not (counted.pushed or _subscribers or emitter(STEP_FRAMEWORK).active):
            counted.number = number = counted.number + 1 if number is None else number
            return number  # nothing listens
        end_step()
        return begin_step(number)
    recording.step_turns()
    steps = _emitters[STEP_FRAMEWORK]
    steps.pop()
    counted.number = number = counted.number + 1 if number is None else number
    steps.push_numbered(STEP, number, "step")
    return number


def next_step() -> int:
    """Like ``step()``, but the first call begins step 1; return the number.

    Step 0 may have begun unnoticed, because its hooks are not installed while nothing listens. For the hook
    of an optimizer that ends a step.
    """
    number = _steps.number + 1 or 1
    if _light is not None:
        return _light_step(_light, number, _light.turns_after)
    return step(number)


def begin_step(number: int | None = None) -> int:
    """Open the step range of this thread, after closing an open one. Returns the step's number."""
    if _in_step():
        end_step()
    _steps.number = number = _steps.number + 1 if number is None else number
    if _subscribers:
        _notify(number)
    clock = _light
    if clock is not None and clock.due:
        clock.between()
    if _push_step(number) and _recorder is not None:
        _recorder.step_begins()
    if clock is not None:
        if _steps.ahead and clock.here():
            clock.named(number)
        else:
            clock.begins(number)
        _steps.ahead = False
    return number


def step_comes(number: int) -> None:
    """Begin light mode's step ``number`` here, before ``begin_step``, so that it includes the wait for its
    batch. At the end of each step the next one begins too: in light mode there is no gap between steps."""
    if _light is not None and not _in_step():
        _light.begins(number)
        _steps.ahead = True


def no_step_comes() -> None:
    """No step follows on this thread until the next one begins: a training or an epoch is over."""
    if _steps.ahead:
        _steps.ahead = False
        if _light is not None:
            _light.left()


def end_step() -> None:
    """Close the step range of this thread, and notify subscribers of the next step's number."""
    if _light is not None and not _steps.ahead and _light.here():
        _light.turns(_steps.number + 1)
        _steps.ahead = True
    if _steps.pushed:
        _steps.pushed = False
        if _recorder is not None:
            _recorder.step_ends()
        emitter(STEP_FRAMEWORK).pop()
    if _subscribers and _steps.number >= 0:
        _notify(_steps.number + 1)


def leave_step() -> None:
    """Close the step range of this thread, marked as unended: it is not a whole step and does not count."""
    _steps.ahead = False
    if _light is not None:
        _light.left()
    if not _steps.pushed:
        return
    _steps.pushed = False
    if _recorder is not None:
        _recorder.step_left()
    steps = emitter(STEP_FRAMEWORK)
    steps.mark(steps.prepare(UNENDED, "result"))
    steps.pop()


def _in_step() -> bool:
    """Whether a step is open on this thread, be it for a listener or for light mode."""
    return _steps.pushed or (not _steps.ahead and _light is not None and _light.here())


def _push_step(number: int) -> bool:
    steps = emitter(STEP_FRAMEWORK)
    _steps.pushed = False
    if steps.active:
        if _recorder is not None:
            _recorder.before_step()
        steps.push_numbered(STEP, number, "step")
        _steps.pushed = True
    return _steps.pushed


@contextmanager
def set_up() -> Iterator[None]:
    """Mark the block as opscope's own work, which may be long: its time is in no step and not in the recorded
    time.

    A step that is open on this thread is not counted and begins again afterwards. If something has been
    recorded already, the block gets a range of its own.
    """
    begin, number = perf_counter_ns(), _steps.number
    pushed, busy = _in_step(), _recorder is not None and _recorder.has_begun
    ahead = _steps.ahead
    if pushed or ahead:
        leave_step()
    try:
        with annotate(SET_UP) if busy else nullcontext():
            yield
    finally:
        if _recorder is not None:
            _recorder.set_up(begin, perf_counter_ns())
        if pushed:
            begin_step(number)
        elif ahead:
            step_comes(number + 1)


@contextmanager
def steps_held() -> Iterator[None]:
    """Begin no steps on this thread inside the block, which does not train even if it looks like training."""
    before, _steps.held = _steps.held, True
    try:
        yield
    finally:
        _steps.held = before


@contextmanager
def between_steps() -> Iterator[None]:
    """Run the block, which does not train, outside steps: an open step is dropped, and begun anew after the
    block. Where the user counts steps, only ``steps_held`` applies."""
    ahead = _steps.ahead
    leaves = _in_step() and not (steps_by_user or _steps.held)
    if leaves or ahead:
        leave_step()
    try:
        with steps_held():
            yield
    finally:
        if leaves:
            begin_step(_steps.number)
        elif ahead:
            step_comes(_steps.number + 1)


def are_steps_held() -> bool:
    """Whether this thread is inside ``steps_held``."""
    return _steps.held


def current_step() -> int:
    """Return the number of this thread's current or last step; -1 before the first."""
    return _steps.number


def on_step(subscriber: Callable[[int], None]) -> Callable[[], None]:
    """Call ``subscriber(n)`` when step ``n`` is next, on its thread; return a function that undoes this.

    It is called between two steps, when no step range is open, so a capture started or stopped
    there has whole steps. It may be called twice with the same number: at the end of the previous step,
    and when the step begins. If a subscriber raises, the error is logged and it is not called again.
    """
    with _lock:
        _subscribers.append(subscriber)

    def undo() -> None:
        with _lock:
            if subscriber in _subscribers:
                _subscribers.remove(subscriber)

    return undo


def _notify(number: int) -> None:
    for subscriber in tuple(_subscribers):
        try:
            subscriber(number)
        except Exception:  # noqa: BLE001 - a capture that cannot start must not stop the training
            _log.exception("opscope: a step subscriber failed and is removed")
            with _lock:
                if subscriber in _subscribers:
                    _subscribers.remove(subscriber)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Put a part of the step (``forward``, ``backward``, ``evaluate``) in a range of category ``phase``."""
    with annotate(name, "phase"):
        yield


class annotate:
    """A user range in the NVTX domain ``opscope.user``, as a context manager and as a decorator.

    A text that begins with ``layer:`` makes the range a layer inside the layers around it. ``domain`` puts
    it in another NVTX domain; ValueError if that is a framework's domain, or if a category is given too.

    A decorated coroutine or generator has one range for each stretch that it runs, from a resumption to
    the next suspension. A ``with`` block must not suspend (``await``, ``yield``): ranges nest on a thread,
    and other code that runs there meanwhile would be inside the range, or end it.
    """

    __slots__ = ("_pushed", "category", "domain", "text")

    def __init__(
        self, text: str, category: str | None = None, *, domain: str | None = None
    ) -> None:
        if domain is not None and (category or not domain or _is_taken(domain)):
            raise ValueError(
                "category and domain cannot be combined: only opscope's own domain has categories"
                if category
                else f"{domain!r} cannot be the domain of a user range: choose another name"
            )
        self.domain = domain
        self.text = text if type(text) is str else str(text)  # a number may also be a name
        self.category = category
        self._pushed: list[bool] = []

    def __enter__(self) -> annotate:
        user = user_emitter(self.domain)
        active = user.active
        if active:
            user.push(user.prepare(self.text, self.category))
        self._pushed.append(active)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pushed.pop():
            user_emitter(self.domain).pop()

    def __call__(self, function: _Function) -> _Function:
        if suspendable.suspends(function):
            return suspendable.inside(function, self._again)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]

    def _again(self) -> annotate:
        return annotate(self.text, self.category, domain=self.domain)


def _is_taken(domain: str) -> bool:
    return domain in _TAKEN or domain.startswith("opscope.")


# ------------------------------------------------------------------------------ exit and fork


def _hook_exit_and_fork() -> None:
    global _hooked
    if _hooked:
        return
    _hooked = True
    atexit.register(finish)
    write_in_spawned_worker(_write)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_parent=_in_parent, after_in_child=_in_child)


def finish(wait_s: float = -1) -> None:
    """End this process's capture, and a recording that runs without one.

    If another thread is doing this, wait up to ``wait_s`` seconds for it (-1: without limit), then give up.
    """
    lock = _lock
    if not lock.acquire(timeout=wait_s):
        return
    try:
        stop()
        left = _recorder
        if left is not None:
            listen(None)
            note_missing_kernels(left)
            left.stop()
        end_light()
        leave_step()  # this thread's step; the steps of other threads end with the trace
    finally:
        lock.release()
        interrupted_end.keep()


def note_missing_kernels(left: Recorder) -> None:
    """Note in the recording of a forked child, which has no profiler, that the child used a GPU."""
    initialized = getattr(sys.modules.get("torch.cuda"), "is_initialized", None)
    if initialized is not None and initialized():
        left.fact(gpu=True)
        left.note(
            "warning",
            "kernels of a forked process are not captured; opscope run captures the kernels of each process",
        )


def describe() -> None:
    """Send the description of this process and its graphs again, because a new NVTX tool has no earlier
    mark."""
    heard = [emitter for emitter in tuple(_emitters.values()) if emitter.nvtx]
    if heard:
        heard[0].mark_spec(process.spec())
    for emitter_heard in heard:
        emitter_heard.mark_specs_again()


def _in_parent() -> None:
    heard = next((emitter for emitter in tuple(_emitters.values()) if emitter.nvtx), None)
    if heard is not None:
        heard.mark_spec(process.forked_spec())


def _in_child() -> None:
    """Set up a forked child: it records into its own part and never touches its parent's files.

    The running capture belongs to the parent, which alone ends it, unless the capture's ``in_child`` says
    that it continues in the child. The child describes itself to an NVTX tool. The parent's current step
    is not the child's.
    """
    global _lock, _capture
    _lock = threading.RLock()
    forked()
    _steps.pushed = False
    heard = [emitter for emitter in _emitters.values() if emitter.nvtx]
    for emitter_heard in heard:
        emitter_heard.after_fork()
    if heard:
        heard[0].mark_spec(process.spec())
        at_worker_exit(_steps, _leave_step_at_worker_exit)
    alone = getattr(_capture, "alone", False)
    goes_on = None if alone else getattr(_capture, "in_child", None)
    if goes_on is None or not goes_on():
        _capture = None
    old = _recorder
    if old is None:
        return
    old.abandon()
    if alone:  # the process that attached requested only this process
        listen(None)
        return
    mine = old.child()
    mine.start(lazy=True)
    listen(mine)
    at_worker_exit(mine, _finish_at_worker_exit)


def _finish_at_worker_exit(_mine: Recorder) -> None:
    from multiprocessing.util import Finalize

    # this also ends the worker's own capture: by then the worker may have a profiler
    Finalize(None, finish, exitpriority=0)
    write_in_forked_worker(_write)


def _write() -> None:
    if _recorder is not None:
        _recorder.flush()


def _leave_step_at_worker_exit(_: Any) -> None:
    from multiprocessing.util import Finalize

    Finalize(None, leave_step, exitpriority=0)

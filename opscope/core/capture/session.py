"""What is going on in this process: the emitters, which capture runs, and where training stands.

Everything here may be called at any time: with nothing listening, steps are counted and the rest
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

from . import process, suspendable
from .emit import Emitter, forked
from .recorder_sink import Recorder

_log = logging.getLogger(__name__)
_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Steps have a domain of their own: they end where an iteration ends, inside or across user ranges.
STEP_FRAMEWORK: Final = "step"
USER_FRAMEWORK: Final = "user"
#: The user's functions that are ops (``opscope.wrap``) have one too: a range of the user's is no op.
WRAP_FRAMEWORK: Final = "wrap"
#: The range in which opscope makes ready what it needs.
SET_UP: Final = "opscope sets up"
#: Domains whose ranges mean something else than the user's own.
_TAKEN: Final = ("kineto", "python", "runtime", "NCCL", "TSL", "TensorRT")


class SessionError(RuntimeError):
    """A capture was asked for that cannot be."""


@runtime_checkable
class Capture(Protocol):
    """How a capture is made; ``backends`` implement it, ``session`` drives it, once each."""

    def warmup(self) -> None:
        """Prepare what is slow to start. May be left out; harmless when called twice."""

    def start(self) -> None:
        """Begin. Raises OSError or SessionError where it cannot; then nothing is left running."""

    def stop(self) -> None:
        """End, and leave the results where the capture was told to. Harmless when called twice."""


_lock = threading.RLock()
_emitters: dict[str, Emitter] = {}
_recorder: Recorder | None = None
_capture: Capture | None = None
_reserved: Capture | None = None
_told_reserved = False
_subscribers: list[Callable[[int], None]] = []
_watchers: list[Callable[[], None]] = []
_optimizers: list[tuple[Callable[[], None], Callable[[], None]]] = []
_models: list[weakref.ref[Any]] = []
#: The user tells the steps (``opscope.step``): adapters no longer do.
steps_by_user = False
_hooked = False


class _Steps(threading.local):
    number = -1
    pushed = False
    held = False


_steps = _Steps()


# -------------------------------------------------------------------------- emitters and sinks


def emitter(framework: str) -> Emitter:
    """The emitter of ``opscope.<framework>``, one a process."""
    found = _emitters.get(framework)
    if found is None:
        with _lock:
            found = _emitters.get(framework)
            if found is None:
                found = Emitter(framework)
                found.listen(_recorder)
                _emitters[framework] = found
                if found.nvtx:  # else nothing is to be told to anyone, or a recording does
                    _hook_exit_and_fork()
                    found.tell(process.spec())
    return found


def user_emitter(domain: str | None = None) -> Emitter:
    """The emitter of the user's ranges, in ``opscope.user`` or in an NVTX domain of the user's choice."""
    if domain is None:
        return emitter(USER_FRAMEWORK)
    key = f"domain {domain}"
    found = _emitters.get(key)
    if found is None:
        with _lock:
            found = _emitters.get(key)
            if found is None:
                found = Emitter(USER_FRAMEWORK, domain)
                found.listen(_recorder)
                _emitters[key] = found
    return found


def recorder() -> Recorder | None:
    """The recorder that all emitters write to now."""
    return _recorder


def listen(new: Recorder | None) -> None:
    """Let all emitters write to ``new`` (started by its owner), or to none. For backends."""
    global _recorder
    with _lock:
        if new is not None:
            _hook_exit_and_fork()
        _recorder = new
        for one in _emitters.values():
            one.listen(new)
    for watcher in tuple(_watchers):
        watcher()


def on_activity(watcher: Callable[[], None]) -> Callable[[], None]:
    """Call ``watcher()`` whenever emitters begin or cease to be active; returns what undoes that.

    It is called on the thread that starts or stops the capture, after the change: adapters look at
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
    """Whether adapters are installed, or wait for their framework."""
    return bool(_watchers)


def trains(model: object) -> None:
    """``model`` is what is trained: layers are named after it, also where a part of it is called."""
    with _lock:
        _models[:] = [one for one in _models if one() not in (None, model)]
        _models.append(weakref.ref(model))


def on_optimizer(begins: Callable[[], None], ends: Callable[[], None]) -> Callable[[], None]:
    """Call these around the work of optimizers that are not the framework's own (Keras's on PyTorch).

    On the thread that works; they must not raise. Returns what undoes that.
    """
    watcher = (begins, ends)
    with _lock:
        _optimizers.append(watcher)

    def undo() -> None:
        with _lock:
            if watcher in _optimizers:
                _optimizers.remove(watcher)

    return undo


@contextmanager
def optimizing() -> Iterator[None]:
    """An optimizer works inside: adapters of the framework that it works in are told."""
    told = tuple(_optimizers)
    for begins, _ in told:
        begins()
    try:
        yield
    finally:
        for _, ends in reversed(told):
            ends()


def models() -> list[Any]:
    """What is trained, the latest first."""
    return [model for one in reversed(_models) if (model := one()) is not None]


# ------------------------------------------------------------------------------- the capture


def reserve(capture: Capture) -> None:
    """Only ``capture`` is started in this process from now on: ``opscope run`` records it.

    A program that captures by itself is not to fail for that, which it could not foresee.
    """
    global _reserved
    _reserved = capture


def is_reserved(what: object) -> bool:
    """Whether ``opscope run`` records this process, so that the program's own capture ``what`` is none.

    The first time that is told in the log.
    """
    global _told_reserved
    if _reserved is None:
        return False
    if not _told_reserved:
        _told_reserved = True
        _log.warning("opscope run records this process: no %s, it is in the run's profile", what)
    return True


def start(capture: Capture) -> None:
    """Begin ``capture``. Raises SessionError when another one runs, and what ``capture.start`` does.

    Under ``opscope run`` nothing begins but its own.
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
    """End the capture that runs and return it; ``None`` when none does."""
    global _capture
    with _lock:
        ended, _capture = _capture, None
        if ended is not None:
            ended.stop()
        return ended


def capturing() -> Capture | None:
    """The capture that runs."""
    return _capture


# ---------------------------------------------------------------------------- steps and ranges


def step(number: int | None = None) -> int:
    """An iteration begins here, and the one before, if any, ends. Returns its number.

    Numbers go up from 0 on each thread unless given.
    """
    recording, counted = _recorder, _steps
    if recording is None or not counted.pushed or _subscribers:
        if not (counted.pushed or _subscribers or emitter(STEP_FRAMEWORK).active):
            counted.number = number = counted.number + 1 if number is None else number
            return number  # nobody listens
        end_step()
        return begin_step(number)
    recording.step_turns()
    steps = _emitters[STEP_FRAMEWORK]
    steps.pop()
    counted.number = number = counted.number + 1 if number is None else number
    steps.push_numbered(STEP, number, "step")
    return number


def next_step() -> int:
    """``step()``, where step 0 may have begun untold: what would tell of it is not hooked while nobody
    listens. Returns the number."""
    return step(_steps.number + 1 or 1)


def begin_step(number: int | None = None) -> int:
    """Open the step range of this thread, closing one that is open. Returns the step's number."""
    if _steps.pushed:
        end_step()
    _steps.number = number = _steps.number + 1 if number is None else number
    if _subscribers:
        _tell(number)
    if _push_step(number) and _recorder is not None:
        _recorder.step_begins()
    return number


def end_step() -> None:
    """Close the step range of this thread; subscribers hear of the step to come."""
    if _steps.pushed:
        _steps.pushed = False
        if _recorder is not None:
            _recorder.step_ends()
        emitter(STEP_FRAMEWORK).pop()
    if _subscribers and _steps.number >= 0:
        _tell(_steps.number + 1)


def leave_step() -> None:
    """Close the step range of this thread where nothing will end it: it is no whole step."""
    if not _steps.pushed:
        return
    _steps.pushed = False
    if _recorder is not None:
        _recorder.step_left()
    steps = emitter(STEP_FRAMEWORK)
    steps.mark(steps.prepare(UNENDED, "result"))
    steps.pop()


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
    """What runs inside is opscope's, and may take long: it is in no step, nor in the time recorded.

    A step that is open on this thread is none to be counted, and begins anew. Where something is
    recorded already, the time has a range of its own.
    """
    begin, number = perf_counter_ns(), _steps.number
    pushed, busy = _steps.pushed, _recorder is not None and _recorder.has_begun
    if pushed:
        leave_step()
    try:
        with annotate(SET_UP) if busy else nullcontext():
            yield
    finally:
        if _recorder is not None:
            _recorder.set_up(begin, perf_counter_ns())
        if pushed:
            begin_step(number)


@contextmanager
def steps_held() -> Iterator[None]:
    """What runs meanwhile on this thread is no training, however it looks: no step begins in it."""
    before, _steps.held = _steps.held, True
    try:
        yield
    finally:
        _steps.held = before


def are_steps_held() -> bool:
    """Whether this thread is inside ``steps_held``."""
    return _steps.held


def current_step() -> int:
    """The step this thread is in (or was last); -1 before the first."""
    return _steps.number


def on_step(subscriber: Callable[[int], None]) -> Callable[[], None]:
    """Call ``subscriber(n)`` when step ``n`` is next, on its thread; returns what undoes that.

    It is called between two steps, when no step range is open, so a capture started or stopped
    there has whole steps. It may be called twice with one number: at the end of the step before,
    and when the step begins. One that raises is logged and not called again.
    """
    with _lock:
        _subscribers.append(subscriber)

    def undo() -> None:
        with _lock:
            if subscriber in _subscribers:
                _subscribers.remove(subscriber)

    return undo


def _tell(number: int) -> None:
    for subscriber in tuple(_subscribers):
        try:
            subscriber(number)
        except Exception:  # noqa: BLE001 - a capture that cannot start must not stop the training
            _log.exception("opscope: a step subscriber failed and is taken out")
            with _lock:
                if subscriber in _subscribers:
                    _subscribers.remove(subscriber)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """A part of the step (``forward``, ``backward``, ``evaluate``) as a range, category ``phase``."""
    with annotate(name, "phase"):
        yield


class annotate:
    """A range of the user's own in ``opscope.user``: a context manager, and a decorator.

    A text that begins with ``layer:`` makes it a layer, within those around it. ``domain`` is another
    NVTX domain to have it in: ValueError where that is a framework's, or a category is given too.

    A decorated coroutine or generator has a range for each stretch that it runs, from a resumption to
    the next wait. A block must not wait (``await``, ``yield``): ranges nest on a thread, and what else
    runs there meanwhile would be inside, or end it.
    """

    __slots__ = ("_pushed", "category", "domain", "text")

    def __init__(
        self, text: str, category: str | None = None, *, domain: str | None = None
    ) -> None:
        if domain is not None and (category or not domain or _is_taken(domain)):
            raise ValueError(
                "a category is told in opscope's own domain only"
                if category
                else f"not a domain for a range of your own: {domain!r}"
            )
        self.domain = domain
        self.text = text if type(text) is str else str(text)  # a number is as good a name
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
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_parent=_in_parent, after_in_child=_in_child)


def finish(wait_s: float = -1) -> None:
    """End what this process captures, and what it records without a capture of its own.

    Where another thread is at that, nothing is done after ``wait_s`` (-1: it is waited for).
    """
    lock = _lock
    if not lock.acquire(timeout=wait_s):
        return
    try:
        stop()
        left = _recorder
        if left is not None:
            listen(None)
            tell_unseen(left)
            left.stop()
        leave_step()  # of this thread; those of others end with the trace
    finally:
        lock.release()


def tell_unseen(left: Recorder) -> None:
    """Let the recording of a forked child, which has no profiler, say whether it used a GPU."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        left.fact(gpu=True)
        left.note(
            "warning",
            "kernels of a forked process are not captured: opscope run captures those of each process",
        )


def _in_parent() -> None:
    heard = next((one for one in tuple(_emitters.values()) if one.nvtx), None)
    if heard is not None:
        heard.tell(process.forked_spec())


def _in_child() -> None:
    """A forked child records into a part of its own; it never touches its parent's files.

    The capture that runs is the parent's, which alone ends it, but where it says (``in_child``) that it
    goes on in a child by itself. To an NVTX tool the child tells who it is. The step that its parent is
    in is none of its own.
    """
    global _lock, _capture
    _lock = threading.RLock()
    forked()
    _steps.pushed = False
    heard = [one for one in _emitters.values() if one.nvtx]
    for one in heard:
        one.after_fork()
    if heard:
        heard[0].tell(process.spec())
        _at_worker_exit(_steps, _leave_step_at_worker_exit)
    goes_on = getattr(_capture, "in_child", None)
    if goes_on is None or not goes_on():
        _capture = None
    old = _recorder
    if old is None:
        return
    old.abandon()
    mine = Recorder(old.root)
    mine.start(lazy=True)
    listen(mine)
    _at_worker_exit(mine, _finish_at_worker_exit)


def _at_worker_exit(of: Any, registers: Callable[[Any], None]) -> None:
    """A multiprocessing worker leaves by os._exit, past atexit, but runs its own finalizers."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.register_after_fork(of, registers)


def _finish_at_worker_exit(_mine: Recorder) -> None:
    from multiprocessing.util import Finalize

    # its capture too: by then it may have a profiler of its own
    Finalize(None, finish, exitpriority=0)


def _leave_step_at_worker_exit(_: Any) -> None:
    from multiprocessing.util import Finalize

    Finalize(None, leave_step, exitpriority=0)

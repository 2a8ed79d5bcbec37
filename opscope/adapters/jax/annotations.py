"""Record the steps and ranges that the program marks with ``jax.profiler``."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType
from typing import Any, Final

from opscope.adapters.shared.patch import Patches
from opscope.core.capture import session

#: Prefix of the ranges that opscope's own backends make.
_OURS: Final = "opscope."
_MARK: Final = "_opscope_range"


def _by_jax(frame: FrameType | None) -> bool:
    """Whether JAX itself made the annotation: it annotates much of its own work."""
    if frame is not None and frame.f_globals.get("__name__") == "jax._src.profiler":
        frame = frame.f_back  # for annotate_function, use the caller of the function
    module = frame.f_globals.get("__name__") if frame is not None else None
    return isinstance(module, str) and module.partition(".")[0] in ("jax", "jaxlib")


class _Open(threading.local):
    def __init__(self) -> None:
        self.stack: list[str | None] = []


class Annotations:
    """Makes a ``StepTraceAnnotation`` a step and a ``TraceAnnotation`` a user range."""

    what: Final = "steps and annotations of jax.profiler"

    def __init__(self, failed: Callable[[str], None]) -> None:
        self._failed = failed
        self._patches = Patches()
        self._open = _Open()

    def install(self) -> None:
        """Hook both classes. Raises AttributeError or ImportError if this version of JAX lacks them."""
        profiler = import_module("jax._src.profiler")
        plain, step = profiler.TraceAnnotation, profiler.StepTraceAnnotation
        init, enter, leave = plain.__init__, plain.__enter__, plain.__exit__
        step_init = step.__init__

        def named(annotation: Any, name: str, /, **kwargs: Any) -> None:
            init(annotation, name, **kwargs)
            if _MARK not in annotation.__dict__:
                own = "" if _by_jax(sys._getframe(1)) else str(name)
                setattr(annotation, _MARK, ("range", own or _OURS))

        def numbered(annotation: Any, name: str, /, **kwargs: Any) -> None:
            number = kwargs.get("step_num")
            setattr(annotation, _MARK, ("step", int(number) if number is not None else None))
            step_init(annotation, name, **kwargs)

        def begin(annotation: Any) -> Any:
            self._begin(annotation)
            return enter(annotation)

        def end(annotation: Any, *error: Any) -> Any:
            try:
                return leave(annotation, *error)
            finally:
                self._end()

        self._patches.set(step, "__init__", numbered)
        self._patches.set(plain, "__init__", named)
        self._patches.set(plain, "__enter__", begin)
        self._patches.set(plain, "__exit__", end)

    def uninstall(self) -> None:
        self._patches.restore()

    def _begin(self, annotation: Any) -> None:
        opened = None
        try:
            kind, value = getattr(annotation, _MARK, ("range", _OURS))
            if kind == "step":
                if not session.steps_by_user:
                    session.begin_step(value if isinstance(value, int) else None)
                    opened = "step"
            elif not str(value).startswith(_OURS):
                user = session.emitter(session.USER_FRAMEWORK)
                if user.active:
                    user.push(user.prepare(str(value)))
                    opened = "range"
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("an annotation could not be recorded")
        self._open.stack.append(opened)

    def _end(self) -> None:
        try:
            opened = self._open.stack.pop() if self._open.stack else None
            if opened == "step":
                session.end_step()
            elif opened == "range":
                session.emitter(session.USER_FRAMEWORK).pop()
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("an annotation could not be closed")

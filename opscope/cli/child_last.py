"""Keep the last seconds or steps in a Python process of ``opscope run --last``."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from opscope.core.capture.ring_recorder import RingRecorder

#: Environment variables that carry the options from ``run`` to its children.
LAST, SLOW, SIGNAL = (f"OPSCOPE_RUN_{name}" for name in ("LAST", "SLOW", "LAST_SIGNAL"))
NAMES: Final = (LAST, SLOW, SIGNAL)
BACKEND: Final = "OPSCOPE_RUN_BACKEND"


def settings(last: str | None, slow: float | None, on: str | None) -> dict[str, str]:
    """Return the options as environment variables. Raises ValueError for wrong ones."""
    # lazy, here and below: every process of a run calls ``wanted``
    from opscope.core.capture.ring_bounds import Bounds, parse_last
    from opscope.core.capture.ring_signal import parse_signal

    if last is None:
        if slow is not None or on is not None:
            raise ValueError("--slow and --last-signal need --last: how much of the run is kept")
        return dict.fromkeys(NAMES, "")
    bounds = Bounds(parse_last(last), slow)
    number = None if on is None else parse_signal(on)
    return {
        LAST: str(bounds.last),
        SLOW: "" if slow is None else str(slow),
        SIGNAL: "" if number is None else number.name,
    }


def wanted(env: Mapping[str, str]) -> bool:
    """Whether the run keeps only its last seconds or steps."""
    return bool(env.get(LAST))


def start(env: Mapping[str, str], folder: str) -> None:
    """Begin to keep the last part of this process. ``opscope run`` makes profiles of its dumps."""
    from opscope.backends.recorder import RECORDER
    from opscope.backends.ring import RingCapture
    from opscope.core.capture import session
    from opscope.core.capture.ring_bounds import Bounds, parse_last
    from opscope.core.capture.ring_signal import OnSignal, parse_signal

    slow, on = env.get(SLOW), env.get(SIGNAL)
    bounds = Bounds(parse_last(env[LAST]), float(slow) if slow else None)
    capture = RingCapture(folder, bounds, lazy=True, kernels=env.get(BACKEND) != RECORDER.name)
    session.reserve(capture)
    session.start(capture)
    if on and threading.current_thread() is threading.main_thread():
        OnSignal(parse_signal(on), _ring).install()


def _ring() -> RingRecorder | None:
    from opscope.core.capture import session
    from opscope.core.capture.ring_recorder import RingRecorder

    recorder = session.recorder()
    return recorder if isinstance(recorder, RingRecorder) else None

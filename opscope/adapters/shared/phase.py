"""Put each call of a framework's function in the range of a phase."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opscope.core.capture.emit import Emitter


def in_phase(original: Any, emitter: Emitter, phase: str, listens: Callable[[], bool]) -> Any:
    """Return ``original`` with a range of phase ``phase`` around its calls, while ``listens`` says so."""

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not listens():
            return original(*args, **kwargs)
        emitter.push(emitter.prepare(phase, "phase"))
        try:
            return original(*args, **kwargs)
        finally:
            emitter.pop()

    return run

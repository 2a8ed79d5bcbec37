"""Count steps: each optimizer step ends one. Always hooked, as a capture may wait for its first step."""

from __future__ import annotations

import functools
import threading
from typing import Any

from opscope.core.capture import session
from opscope.core.capture.hooked_steps import next_step


class Steps(threading.local):
    """The hook of ``Optimizer.step``. Records for each thread whether an optimizer step is running."""

    def __init__(self, counted: bool) -> None:
        self._counted = counted
        self.optimizing = False

    def around(self, original: Any) -> Any:
        """Return the replacement of ``Optimizer.step``."""

        @functools.wraps(original)
        def step(optimizer: Any, *args: Any) -> Any:
            before, self.optimizing = self.optimizing, True
            try:
                result = original(optimizer, *args)
            finally:
                self.optimizing = before
            if self._counted and not session.steps_by_user:
                next_step()
            return result

        return step

"""Steps: an optimizer's step ends one. Always hooked, for a capture may wait for its first step."""

from __future__ import annotations

import functools
import threading
from typing import Any

from opscope.core.capture import session


class Steps(threading.local):
    """What stands around ``Optimizer.step``; of each thread, whether it is inside."""

    def __init__(self, counted: bool) -> None:
        self._counted = counted
        self.optimizing = False

    def around(self, original: Any) -> Any:
        """Ours in the place of ``Optimizer.step``."""

        @functools.wraps(original)
        def step(optimizer: Any, *args: Any) -> Any:
            before, self.optimizing = self.optimizing, True
            try:
                result = original(optimizer, *args)
            finally:
                self.optimizing = before
            if self._counted and not session.steps_by_user:
                session.next_step()
            return result

        return step

"""Count steps: each optimizer step ends one. Always hooked, as a capture may wait for its first step."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

from opscope.core.capture import session


def with_step(optimizer: type) -> Iterator[type]:
    """Yield the class and its subclasses that define ``step``: Adam has its own, SGD inherits it."""
    if "step" in vars(optimizer):
        yield optimizer
    for subclass in optimizer.__subclasses__():
        yield from with_step(subclass)


class Steps(threading.local):
    """The hook of the optimizers' ``step``. Records for each thread whether an optimizer step is running."""

    def __init__(self, counted: bool) -> None:
        self._counted = counted
        self.optimizing = False

    def around(self, original: Any) -> Any:
        """Return the replacement of a class's ``step``."""

        @functools.wraps(original)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self.optimizing:  # a step that calls the step of its base class is one step
                return original(optimizer, *args, **kwargs)
            self.optimizing = True
            try:
                result = original(optimizer, *args, **kwargs)
            finally:
                self.optimizing = False
            if self._counted and not session.steps_by_user:
                session.next_step()
            return result

        return step

"""The progress bar: one line on stderr's terminal, from a second into the work until output or the end. It
shows the innermost stage that ``core.progress`` reports: how much is done, and how long the rest takes at the
rate so far. Nothing is drawn if stderr is not a terminal, or a dumb one, or a notebook's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from opscope.core import progress
from opscope.core.cells import in_notebook

if TYPE_CHECKING:
    from .stage_bar import Bar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
#: Seconds of work after which the bar appears.
DELAY: Final = 1.0
#: The object that shows this process's bar, while a command works under one.
_shown: _Lazy | None = None


def _wanted() -> bool:
    try:
        terminal = sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # stderr is closed
        return False
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return terminal and not dumb and not in_notebook()  # a notebook's cell keeps every line


@contextmanager
def bar(quiet: bool = False) -> Iterator[None]:
    """Show a bar for the block's work, if stderr is a terminal and the work takes long; never if ``quiet``.
    However the block ends, it removes the line and puts the cursor back."""
    global _shown
    if quiet or _shown is not None or not _wanted():
        yield
        return
    _shown = lazy = _Lazy()
    try:
        with progress.listening(lazy.heard):
            yield
    finally:
        _shown = None
        if lazy.bar is not None:
            lazy.bar.end()


class _Lazy:
    """Makes the bar when the first stage opens: many commands open none, and Rich takes 50 ms to import."""

    def __init__(self) -> None:
        self.bar: Bar | None = None
        self._none = False

    def heard(self, stage: progress.Stage) -> None:
        if self.bar is None and not self._none:
            # imported here, because imports in two threads may clash
            from .stage_bar import bar_on_stderr

            self.bar = bar_on_stderr(DELAY)
            self._none = self.bar is None
        if self.bar is not None:
            self.bar.heard(stage)


@contextmanager
def aside() -> Iterator[None]:
    """Take the bar down, if there is one, while something is written to the terminal."""
    shown = None if _shown is None else _shown.bar
    if shown is None:
        yield
        return
    with shown.aside():
        yield


def with_bar(command: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Show a bar while the command works."""

    @wraps(command)
    def shown(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with bar():
            return command(*args, **kwargs)

    return shown

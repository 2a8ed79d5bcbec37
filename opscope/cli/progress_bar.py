"""The progress bar: one line on stderr's terminal, from a second into the work until output or the end.

It shows the innermost stage that ``core.progress`` tells of: what is done of it, and how long the rest takes
at the rate so far. Nothing is drawn where stderr is no terminal, a dumb one or a notebook's.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from opscope.core import progress
from opscope.core.cells import in_notebook

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
#: Seconds of work after which the bar appears.
DELAY: Final = 1.0
_PER_SECOND: Final = 8
#: Characters of the bar itself.
_WIDEST, _NARROWEST = 30, 8
#: Characters of a stage's name that are needed to know it.
_NAME: Final = 16
_SPINNER, _SPINNER_ASCII = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "-\\|/"
#: What is shown between two stages.
_BETWEEN: Final = "working"
#: What shows the bar of this process, while a command works under one.
_shown: _Lazy | None = None


class Bar:
    """One line that shows the innermost stage. ``clock`` gives seconds; ``delay`` is 0 to draw at once."""

    def __init__(
        self, console: Console, delay: float = DELAY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._delay, self._clock = console, delay, clock
        self._lock = threading.RLock()
        #: The open stages, the innermost last, and when each opened.
        self._open: list[tuple[progress.Stage, float]] = []
        self._timer: threading.Timer | None = None
        self._live: Any = None
        self._ended = False
        #: How many are writing something else.
        self._aside = 0
        self._began = clock()

    def heard(self, stage: progress.Stage) -> None:
        """A stage has opened, moved or ended."""
        if stage.over:
            self._open = [one for one in self._open if one[0] is not stage]
        elif all(one[0] is not stage for one in self._open):
            self._open = [*self._open, (stage, self._clock())]
            self._arm()

    def _arm(self) -> None:
        with self._lock:
            if self._timer is not None or self._live is not None or self._ended or self._aside:
                return
            if not self._delay:
                self._appear()
                return
            self._timer = threading.Timer(self._delay, self._appear)
            self._timer.daemon = True
            try:
                self._timer.start()
            except RuntimeError:  # no thread can be started: there is no bar then
                self._timer = None
                self._ended = True

    def _appear(self) -> None:
        from rich.live import Live

        class Quiet(Live):
            """A terminal that has gone is no error."""

            def refresh(self) -> None:
                try:
                    super().refresh()
                except (OSError, ValueError):
                    return

        with self._lock:
            self._timer = None
            if self._ended or self._aside or self._live is not None:
                return
            live = Quiet(
                console=self._console,
                get_renderable=self.line,
                refresh_per_second=_PER_SECOND,
                transient=True,
                redirect_stdout=False,  # it would be printed on stderr
                redirect_stderr=True,  # log messages are printed above the bar
                vertical_overflow="crop",
            )
            self._live = live  # before it draws: Ctrl-C may come in between
            try:
                live.start(refresh=True)
            except (OSError, ValueError, RuntimeError):  # no terminal, or no thread
                self.end()

    def take_down(self) -> None:
        """Remove the line; the bar appears again a second into the next stage."""
        with self._lock:
            timer, live = self._timer, self._live
            self._timer = self._live = None
            if timer is not None:
                timer.cancel()
            if live is not None:
                try:
                    live.stop()
                except (OSError, ValueError):  # the terminal has gone
                    return

    def end(self) -> None:
        """Remove the line; the bar does not appear again."""
        with self._lock:
            self._ended = True
            self.take_down()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Remove the line while something else is written; after that it may appear again."""
        with self._lock:  # not held meanwhile: writing may wait for a reader
            self._aside += 1
            self.take_down()
        try:
            yield
        finally:
            with self._lock:
                self._aside -= 1
            if self._open:
                self._arm()

    # --------------------------------------------------------------------------- the line

    def line(self) -> RenderableType:
        """Return the line, which fits the terminal."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now, stages = self._clock(), self._open
        stage, opened = stages[-1] if stages else (None, self._began)
        most = max(1, self._console.width - 1)  # a full line would move some terminals to the next
        told = _told(stage, now - opened)
        name = Text(_BETWEEN if stage is None else _visible(stage.name), no_wrap=True)
        spins = _SPINNER if self._console.encoding.startswith("utf") else _SPINNER_ASCII
        spin = spins[int(now * _PER_SECOND) % len(spins)]
        needed = min(name.cell_len, _NAME) + _NARROWEST + 2
        while len(told) > 1 and sum(map(len, told)) + 2 * len(told) + needed > most:
            told = told[:-1]  # the last is needed least
        rest = ", ".join(told)
        room = most - len(rest) - 3
        total = None if stage is None else stage.total
        if stage is None or not total:
            name.truncate(max(0, room - 1), overflow="ellipsis")
            return _fitted(
                Text(f"{spin} ", no_wrap=True).append_text(name).append(f"  {rest}"), most
            )
        name.truncate(max(_NARROWEST, room - _NARROWEST), overflow="ellipsis")
        length = min(_WIDEST, room - name.cell_len)
        if length < _NARROWEST:
            name.truncate(max(0, room), overflow="ellipsis")
            return _fitted(name.append(f" {rest}" if name.plain else rest), most)
        grid = Table.grid(padding=(0, 1, 0, 0))
        for _ in range(3):
            grid.add_column(no_wrap=True)
        drawn = ProgressBar(total=total, completed=stage.done, width=length)
        grid.add_row(name, drawn, Text(rest))
        return grid


def _fitted(text: Text, most: int) -> Text:
    text.truncate(most, overflow="crop")
    return text


def _told(stage: progress.Stage | None, seconds: float) -> list[str]:
    """Return what is said of the stage after so many seconds of it, the most needed first."""
    if stage is None or not stage.total:
        done = "" if stage is None or not stage.done else _amount(stage.done, stage.unit)
        return [_clock(seconds), *([done] if done else [])]
    said = [f"{100 * stage.done // stage.total} %"]
    left = remaining(stage.done, stage.total, seconds)
    if left is not None:
        said.append(f"{_clock(left)} left")
    if stage.unit:
        said.append(f"{_amount(stage.done, '')} of {_amount(stage.total, stage.unit)}"
                    if stage.unit != progress.BYTES
                    else _of_bytes(stage.done, stage.total))  # fmt: skip
    return said


#: The share of a stage that must be done before a rate is known: the first bytes are seldom like the others.
_RATED: Final = 0.02


def remaining(done: int, total: int, seconds: float) -> float | None:
    """Return the seconds that the rest takes at the rate so far; None before there is one, and at the end.

    A stage that is all done and not over yet does what nobody measures.
    """
    if done >= total or seconds <= 0 or done < total * _RATED:
        return None
    return seconds * (total - done) / done


_SIZES: Final = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def _clock(seconds: float) -> str:
    whole = math.ceil(max(0.0, seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def _amount(many: int, unit: str) -> str:
    if unit == progress.BYTES:
        return _of_bytes(many, None)
    return f"{many:,} {unit}".rstrip()


def _of_bytes(done: int, total: int | None) -> str:
    """Return bytes in the unit that suits the larger number."""
    most = done if total is None else total
    scale, unit = next((one for one in _SIZES if most >= one[0]), (1, "bytes"))
    digits = 0 if scale == 1 else 1
    said = [f"{one / scale:.{digits}f}" for one in (done, total) if one is not None]
    return f"{' of '.join(said)} {unit}"


def _visible(text: str) -> str:
    from opscope.core.question.units import (
        visible,  # a file's name may contain a terminal's control codes
    )

    return visible(text)


# ---------------------------------------------------------------------------- where it is


def _wanted() -> bool:
    try:
        terminal = sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # closed
        return False
    dumb = os.environ.get("TERM", "").lower() in ("dumb", "unknown")
    return terminal and not dumb and not in_notebook()  # a notebook's cell keeps every line


@contextmanager
def bar(quiet: bool = False) -> Iterator[None]:
    """Show a bar for the block's work, if stderr is a terminal and it takes long; none if ``quiet``.

    However the block ends, the line is gone and the cursor is where it was.
    """
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
            console = _console()
            self._none = console is None
            self.bar = None if console is None else Bar(console, DELAY)
        if self.bar is not None:
            self.bar.heard(stage)


def _console() -> Console | None:
    from rich.console import Console
    from rich.live import Live  # here, not in the timer's thread: imports of two threads may clash
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    del Live, ProgressBar, Table

    class Steady(Console):
        def show_cursor(self, show: bool = True) -> bool:
            """Leave the cursor as it is: a command that is killed cannot show it again."""
            return False

    found = Steady(stderr=True, highlight=False)
    return found if found.is_terminal and found.is_interactive else None


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

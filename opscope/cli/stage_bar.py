"""One line of ``rich.progress`` for the innermost stage of the work; loaded only on a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment, Segments
from rich.table import Table

from opscope.core import progress
from opscope.core.question.units import visible

_PER_SECOND: Final = 8
#: The most characters of the bar itself, and the fewest that identify a stage's name.
_WIDTH, _NAME = 30, 16
#: Seconds over which the rate is computed: with Rich's 30, a slow stage has no data.
_RATED_S: Final = 600.0
#: The text shown between two stages.
_BETWEEN: Final = "working"
#: A width greater than any line's.
_UNBOUND: Final = 1 << 16


class Bar:
    """One line that shows the innermost stage. ``clock`` gives seconds; ``delay`` is 0 to draw at once.

    It begins ``delay`` after a stage opens, and is taken down while anything else is written. A ``Progress``
    keeps the stages as tasks, the innermost last, and never draws by itself: its own display cannot be begun
    again on another line.
    """

    def __init__(
        self, console: Console, delay: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console, self._delay = console, delay
        self._lock = threading.RLock()
        #: Held while tasks are added, removed and drawn. ``_lock`` cannot serve, as the display has
        #: a lock of its own.
        self._changing = threading.Lock()
        self._progress = Progress(
            console=console,
            auto_refresh=False,
            speed_estimate_period=_RATED_S,
            get_time=clock,
        )
        self._progress.add_task(_BETWEEN, total=None, stage=None)
        self._timer: threading.Timer | None = None
        self._live: Any = None
        self._ended = False
        #: The number of callers that are writing something else.
        self._aside = 0

    def heard(self, stage: progress.Stage) -> None:
        """A stage has opened, moved or ended."""
        with self._changing:
            ids = [task.id for task in self._progress.tasks if task.fields["stage"] is stage]
            if stage.over:
                for number in ids:
                    self._progress.remove_task(number)
            elif not ids:
                name = visible(stage.name)  # a file's name may contain a terminal's control codes
                self._progress.add_task(name, total=stage.total or None, stage=stage)
        if not stage.over and not ids:
            self._arm()

    def line(self) -> RenderableType:
        """Return the line, which fits the terminal: the least needed parts are left out."""
        # a full line would make some terminals wrap to the next
        most = max(1, self._console.width - 1)
        with self._changing:
            task = self._progress.tasks[-1]
            stage = task.fields["stage"]
            if stage is not None:
                self._progress.update(task.id, completed=stage.done)
            cells = [column(task) for column in _columns(stage, min(_WIDTH, 1 + most // 3))]
        options = self._console.options
        unbound = options.update(width=_UNBOUND)
        grid = _row(cells, max(_NAME, most // 2))
        while len(cells) > 1 and self._console.measure(grid, options=unbound).maximum > most:
            del cells[-1]
            grid = _row(cells, max(_NAME, most // 2))
        drawn = self._console.render_lines(grid, options.update(width=most), pad=False)
        return Segments([*drawn[0], Segment.line()])

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
            except RuntimeError:  # no thread can be started, so no bar is shown
                self._timer = None
                self._ended = True

    def _appear(self) -> None:
        with self._lock:
            self._timer = None
            if self._ended or self._aside or self._live is not None:
                return
            live = _Quiet(
                console=self._console,
                get_renderable=self.line,
                refresh_per_second=_PER_SECOND,
                transient=True,
                redirect_stdout=False,  # otherwise Rich would print it on stderr
                redirect_stderr=True,  # log messages are printed above the bar
                vertical_overflow="crop",
            )
            self._live = live  # set before it draws, because Ctrl-C may come in between
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
        with self._lock:  # not locked meanwhile, as writing may wait for a reader
            self._aside += 1
            self.take_down()
        try:
            yield
        finally:
            with self._lock:
                self._aside -= 1
            if len(self._progress.tasks) > 1:
                self._arm()


class _Quiet(Live):
    """It is no error if the terminal has gone."""

    def refresh(self) -> None:
        try:
            super().refresh()
        except (OSError, ValueError):
            return


class _Steady(Console):
    def show_cursor(self, show: bool = True) -> bool:
        """Leave the cursor as it is: a command that is killed cannot show it again."""
        return False


def bar_on_stderr(delay: float) -> Bar | None:
    """Return a bar on the terminal of stderr; None if Rich finds no terminal that it can draw on."""
    console = _Steady(stderr=True, highlight=False)
    return Bar(console, delay) if console.is_terminal and console.is_interactive else None


def _columns(stage: progress.Stage | None, width: int) -> Iterator[ProgressColumn]:
    """Yield the parts of a stage's line, the most needed first, with a bar of ``width``."""
    yield TextColumn("{task.description}", markup=False)
    yield BarColumn(width)
    if stage is None or not stage.total:
        yield TimeElapsedColumn()
    else:
        yield TaskProgressColumn()
        yield TimeRemainingColumn(compact=True)
    if stage is None or not stage.unit:
        return
    if stage.unit == progress.BYTES:
        yield DownloadColumn()
    else:
        total = f" of {stage.total:,}" if stage.total else ""
        yield TextColumn(f"{stage.done:,}{total} {stage.unit}", markup=False)


def _row(cells: list[RenderableType], widest: int) -> Table:
    """Return the cells in one row, a space apart, the first at most ``widest``."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, overflow="ellipsis", max_width=widest)
    for _ in cells[1:]:
        grid.add_column(no_wrap=True)
    grid.add_row(*cells)
    return grid

"""Progress of long work: readers, attribution, analysis and exports report it, and a listener receives it.

Work opens a ``stage`` and moves it on. Without a listener, which is the default, a stage costs a microsecond
and its updates cost nothing. A listener is set by ``listening`` for a block of code and for what that code
calls; a stage opened within another has the outer one as its ``parent``.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

#: A user's callback: called with the stage's name, the amount done, and the total (None: not known).
Callback: TypeAlias = Callable[[str, int, "int | None"], object]
#: The most files of a folder that are counted; the total leaves out the rest.
_MOST_FILES: Final = 100_000
#: Units.
BYTES: Final = "bytes"
CALLS: Final = "distinct calls"
ROWS: Final = "rows"
SLICES: Final = "slices"


class Stage:
    """A part of the work: ``done`` of ``total``, in ``unit`` (None: the total is not known).

    ``done`` never falls and never exceeds ``total``, and is ``total`` once the stage is ``over``, unless it
    ended by an error. Threads may move it.
    """

    __slots__ = ("_listener", "_lock", "done", "name", "over", "parent", "total", "unit")

    def __init__(
        self,
        name: str,
        total: int | None = None,
        unit: str = "",
        parent: Stage | None = None,
        listener: Listener | None = None,
    ) -> None:
        self.name, self.total, self.unit, self.parent = name, total, unit, parent
        self.done, self.over = 0, False
        self._listener = listener
        self._lock = threading.Lock()

    def add(self, count: int = 1) -> None:
        """Report that ``count`` more units have been done."""
        if self._listener is not None:
            with self._lock:
                self._to(self.done + count)

    def _to(self, done: int) -> None:
        done = done if self.total is None else min(done, self.total)
        if done > self.done and not self.over and self._listener is not None:
            self.done = done
            self._listener(self)

    def _open(self) -> None:
        if self._listener is not None:
            self._listener(self)

    def _end(self, is_complete: bool) -> None:
        if self._listener is None:
            return
        with self._lock:
            if is_complete:
                self.total = self.done if self.total is None else self.total
                self.done = self.total
            self.over = True
            self._listener(self)


Listener: TypeAlias = Callable[[Stage], object]


class Reading(Stage):
    """The stage of reading files, counted in bytes on disk, compressed if the files are."""

    __slots__ = ("_at", "_sizes")

    def __init__(
        self, name: str, sizes: dict[str, int], parent: Stage | None, listener: Listener
    ) -> None:
        super().__init__(name, sum(sizes.values()), BYTES, parent, listener)
        self._sizes = sizes
        self._at: dict[str, int] = {}

    def read(self, path: str, position: int | None, more: int = 0) -> None:
        """Report that the file is read up to ``position`` (None: no change), and ``more`` bytes beyond it."""
        size = self._sizes.get(path)
        if size is None:  # a file outside the stage, such as a temporary one
            return
        with self._lock:
            before = self._at.get(path, 0)
            now = min(max(before, before if position is None else position) + more, size)
            self._at[path] = now
            self._to(self.done + now - before)


#: The stage that is updated if nobody listens.
_SILENT: Final = Stage("")
_listener: ContextVar[Listener | None] = ContextVar("opscope_progress", default=None)
_current: ContextVar[Stage | None] = ContextVar("opscope_stage", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener`` with every stage in the block when the stage opens, moves or ends. The working
    thread makes the call, which may be another thread than the one that entered the block. An exception
    from it ends the work."""
    token, inner = _listener.set(listener), _current.set(None)
    try:
        yield
    finally:
        _current.reset(inner)
        _listener.reset(token)


@contextmanager
def told(callback: Callback | None) -> Iterator[None]:
    """Call ``callback(name, done, total)`` for every stage in the block; None changes nothing."""
    if callback is None:
        yield
        return

    def listener(stage: Stage) -> None:
        callback(stage.name, stage.done, stage.total)

    with listening(listener):
        yield


def heard() -> bool:
    """Whether anyone listens."""
    return _listener.get() is not None


@contextmanager
def stage(name: str, total: int | None = None, unit: str = "") -> Iterator[Stage]:
    """Open a stage for the work of the block. An error in the block ends the stage at its present value."""
    listener = _listener.get()
    if listener is None:
        yield _SILENT
        return
    with _opened(Stage(name, total, unit, _current.get(), listener)) as opened:
        yield opened


@contextmanager
def _opened(stage: Stage) -> Iterator[Stage]:
    token = _current.set(stage)
    is_complete = False
    try:
        stage._open()
        yield stage
        is_complete = True
    finally:
        _current.reset(token)
        stage._end(is_complete)


# ---------------------------------------------------------------------------------- files


@contextmanager
def reading(
    paths: Iterable[str | os.PathLike[str]], without: str = "\0", named: str | None = None
) -> Iterator[None]:
    """Open the stage of reading files and folders; if such a stage is open already, it counts these files,
    too. ``without``: leave out the files of a folder whose names begin so. ``named``: a name for the
    stage, in place of the first path's name."""
    listener, outer = _listener.get(), _current.get()
    if listener is None or isinstance(outer, Reading):
        yield
        return
    listed = [os.fspath(path) for path in paths]
    sizes = dict(_sizes(listed, without))
    count = len(listed)
    if named is None and count:
        more = f" and {count - 1} more" if count > 1 else ""
        named = os.path.basename(os.path.normpath(listed[0])) + more
    with _opened(Reading(f"reading {named or 'nothing'}", sizes, outer, listener)):
        yield


def _sizes(paths: Iterable[str], without: str) -> Iterator[tuple[str, int]]:
    """Yield each file and its size in bytes; files that cannot be accessed are left out."""
    left = _MOST_FILES
    for path in paths:
        files: Iterable[str] = (path,)
        if os.path.isdir(path):
            files = (
                os.path.join(folder, name)
                for folder, _, names in os.walk(path)
                for name in names
                if not name.startswith(without)
            )
        for file in files:
            left -= 1
            if left < 0:
                return
            try:
                if os.path.isfile(file):
                    yield file, os.path.getsize(file)
            except OSError:
                continue


def reads() -> Reading | None:
    """Return the open stage of reading; None if there is none."""
    stage_above = _current.get()
    while stage_above is not None and not isinstance(stage_above, Reading):
        stage_above = stage_above.parent
    return stage_above


def read_to(path: str | os.PathLike[str], position: int) -> None:
    """Report that the file is read up to the byte ``position``."""
    if (reading := reads()) is not None:
        reading.read(os.fspath(path), position)


def read_share(path: str | os.PathLike[str], share: float) -> None:
    """Report that a fraction of the file is read: for a compressed file, whose positions are not known."""
    if (reading := reads()) is not None:
        name = os.fspath(path)
        reading.read(name, int(share * reading._sizes.get(name, 0)))


def read_whole(path: str | os.PathLike[str], without: Any = ()) -> None:
    """Report that all of the file is read, or all files below the folder except those in ``without``."""
    if (reading := reads()) is None:
        return
    name = os.fspath(path)
    left = tuple(os.fspath(path) for path in without)
    inner = name + os.sep
    for file, size in reading._sizes.items():
        if (file == name or file.startswith(inner)) and not any(
            file == path or file.startswith(path + os.sep) for path in left
        ):
            reading.read(file, size)

"""The capture of the best backend that can start; if one cannot start, the next best replaces it."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from opscope.core.capture import session
from opscope.core.capture.session import Capture

from . import known
from .base import Backend
from .choice import REQUESTED, Choice, candidates, here, make, warn, warn_unheard
from .recorder import RECORDER
from .window import EXACT

_log = logging.getLogger(__name__)


class Best:
    """Captures into ``folder`` with ``backend``; if that is ``auto``, with the best backend that can start.

    ``choice`` says which it is; it is None before ``warmup``. ``inner`` is its capture, None if a tool
    outside the process records. Raises ValueError for an unknown backend.
    """

    def __init__(self, folder: Path, backend: str = "auto") -> None:
        self.folder = folder
        self.choice: Choice | None = None
        self.inner: Capture | None = None
        self._machine = here()
        self._failed: list[tuple[Backend, str]] = []
        self._tries: Iterator[tuple[Choice, Backend]] | None = None
        self._one: Backend | None = None
        if backend == "auto":
            self._tries = candidates(self._machine)
        else:
            self.inner = make(backend, folder)
            self.choice, self._one = Choice(backend, REQUESTED), known.load(backend)
        self._warm = False

    def choose(self) -> Choice:
        """Return the choice, which may change as long as the capture has not begun."""
        while self._one is None:
            assert self._tries is not None
            # the recorder is last, and ``_give_up`` raises there
            choice, self._one = next(self._tries)
            self.choice = choice.instead_of(self._failed)
            try:
                self.inner = None if self._one.outside else self._one.capture(self.folder, EXACT)
            except Exception as error:  # noqa: BLE001 - of another package: ``_give_up`` judges it
                self._give_up(error)
        assert self.choice is not None
        return self.choice

    def warmup(self) -> None:
        """Choose a backend and let it prepare what is slow to start. Raises what ``start`` raises."""
        while not self._warm:
            self.choose()
            try:
                if self.inner is not None:
                    self.inner.warmup()
                self._warm = True
            except Exception as error:  # noqa: BLE001 - likewise
                self._give_up(error)

    def start(self) -> None:
        """Begin. Raises SessionError if a backend requested by name cannot start, OSError."""
        while True:
            self.warmup()
            if self.inner is None:
                return
            try:
                self.inner.start()
                break
            except Exception as error:  # noqa: BLE001 - likewise
                self._give_up(error)
        assert self.choice is not None
        self.choice.tell(session.recorder())
        if self._failed:
            warn(self.choice.reason)
        if self._machine.is_unheard:
            warn_unheard()

    def stop(self) -> None:
        """End. A second call does nothing."""
        inner, self.inner = self.inner, None
        if inner is not None:
            inner.stop()

    def in_child(self) -> bool:
        """Continue in a forked child if the backend does."""
        goes_on = getattr(self.inner, "in_child", None)
        return goes_on is not None and bool(goes_on())

    def __repr__(self) -> str:
        return f"Best({str(self.folder)!r})" if self.inner is None else repr(self.inner)

    def _give_up(self, error: Exception) -> None:
        """Replace the backend by the next best. Raises ``error`` if there is none, or if the disk is at
        fault."""
        backend = self._one
        if (
            self._tries is None
            or backend is None
            or backend is RECORDER
            or isinstance(error, OSError)
        ):
            raise error
        self._failed.append((backend, str(error)))
        self._one, self.inner, self._warm = None, None, False


def begin(folder: str | os.PathLike[str], backend: str = "auto") -> Choice:
    """Start a capture of this process into ``folder``; return the backend started, and why.

    If the best one cannot start, ``auto`` falls back to the next, and the reason says so. Raises
    ValueError for an unknown backend, and for a backend requested by name what ``session.start`` raises.
    """
    best = Best(Path(folder), backend)
    choice = best.choose()
    if best.inner is None:
        if not here().is_heard:
            _log.warning(
                "opscope: nothing is recorded: the backend emit needs an NVTX tool, and none is attached"
            )
        return choice
    session.start(best)
    return best.choose()

"""The common part of both captures of hardware counters: the libraries, and the facts about devices and
notes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from opscope.backends import kineto_capture
from opscope.backends.beside import Beside
from opscope.backends.cupti import library as libraries
from opscope.backends.cupti.api import Cupti, CuptiError
from opscope.backends.window import EXACT, Bounds
from opscope.core.capture.session import SessionError

from .calls import FOR_RANGES, CountersRefused, Library, Params
from .driver import Driver


class Counting(Beside):
    """Captures ranges with the recorder and counters ``names`` with CUPTI, into ``folder``.

    ``path`` is the ``libcupti`` to use, by default the one that fits this process.
    """

    gives = "hardware counters"
    gpu = True
    #: CUPTI's calls that are needed.
    calls: ClassVar[Sequence[type[Params]]] = FOR_RANGES

    def __init__(
        self,
        folder: str | os.PathLike[str],
        names: Sequence[str],
        bounds: Bounds = EXACT,
        path: Path | None = None,
    ) -> None:
        super().__init__(folder, bounds)
        self._names, self._path = tuple(names), path
        self._cupti: Cupti | None = None
        self._library: Library | None = None
        self._driver: Driver | None = None
        self._version = 0
        self._notes: list[str] = []

    def warmup(self) -> None:
        """Load what is needed. Raises SessionError if something is not available."""
        torch = kineto_capture.loaded_torch(self._give_way)
        if self._cupti is not None:
            return
        library, why = libraries.here(torch) if self._path is None else (None, "")
        path = self._path if library is None else library.path
        if path is None:
            raise SessionError(why)
        try:
            self._library = Library(path, self.calls)
            cupti = Cupti(path)
            self._version = cupti.version()
            self._prepare()
            self._driver = Driver()
        except (CuptiError, CountersRefused) as error:
            raise SessionError(str(error)) from error
        self._cupti = cupti

    def _prepare(self) -> None:
        """Load what else a capture needs. Raises SessionError."""

    def _is_taken(self) -> bool:
        return kineto_capture.runs()

    def _about(self, devices: Sequence[int]) -> Iterator[dict[str, Any]]:
        """Yield the facts about the devices, and all notes."""
        assert self._driver is not None
        for device in devices:
            try:
                yield {"devices": [self._driver.described(device)]}
            except CountersRefused as error:
                self._notes.append(f"what device {device} is, is not known: {error}")
        for note in self._notes:
            yield {"note": note}

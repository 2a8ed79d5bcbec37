"""Make profiles of the dumps of ``opscope run --last`` while the program runs."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

from opscope.backends.choice import here
from opscope.backends.ring import dump_name, left_over, why_ranges_alone

from . import common

#: Seconds between looks for a dump.
_LOOK_S: Final = 0.5


class Dumps:
    """Makes a profile of each dump below ``parts``, beside ``target``: ``NAME-slow-1.opscope``. ``make(dump,
    target)`` writes the profile and prints where it is; it may raise anything. Call ``program_runs`` once the
    program is started. The end of the block waits for the dumps that are left."""

    def __init__(
        self,
        parts: Path,
        target: Path,
        make: Callable[[Path, Path], object],
        wanted: bool,
        kernels: bool = True,
    ) -> None:
        self._parts = parts
        self._target = target
        self._make = make
        self._wanted = wanted
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        why = why_ranges_alone(here(in_process=False)) if wanted and kernels else None
        if why is not None:
            common.say(why)

    def program_runs(self) -> None:
        """Look for dumps from now on. The thread inherits the signals that are blocked here."""
        if self._wanted:
            self._thread = threading.Thread(target=self._look, name="opscope-dumps", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Make profiles of the dumps that are left, and stop looking."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Dumps:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        self._over.set()
        return False

    def _look(self) -> None:
        while True:
            last = self._over.wait(_LOOK_S)
            for dump, details in left_over(self._parts):
                self._one(dump, details)
            if last:
                return

    def _one(self, dump: Path, details: dict[str, Any]) -> None:
        try:
            common.say(str(details["why"]))
            self._make(dump, dump_name(self._target, str(details["made_by"])))
        except Exception as error:  # noqa: BLE001 - the program and the run continue
            common.say(f"a profile of {dump} could not be written: {error}")
        finally:
            shutil.rmtree(dump, ignore_errors=True)

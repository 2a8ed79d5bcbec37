"""Light mode of this process: its recording, the full recording of slow spells, and the profile at the
end."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from opscope.core.capture import process, session
from opscope.core.capture.light_recording import LightRecording
from opscope.core.capture.session import Capture

from . import choose, light_clock, make, recording_folder
from .profile_capture import check_target

_log = logging.getLogger(__name__)

#: The environment variables of ``opscope run --light`` and ``--no-spells``.
LIGHT: Final = "OPSCOPE_LIGHT"
SPELLS: Final = "OPSCOPE_SPELLS"


def wanted() -> bool:
    """Whether this process was started by ``opscope run --light``."""
    return os.environ.get(LIGHT, "") not in ("", "0")


def spells_wanted() -> bool:
    """Whether the environment allows slow spells to be recorded in full."""
    return os.environ.get(SPELLS, "") != "0"


def into(folder: str | os.PathLike[str], spells: bool) -> LightRecording:
    """Begin light mode in ``folder``. Nothing is created there before the first step."""
    spell = (lambda: _spell(folder)) if spells else None
    recording = LightRecording(folder, spell, clock=light_clock.make)
    recording.start()
    return recording


def _spell(folder: str | os.PathLike[str]) -> Capture:
    """Return the capture of a slow spell: the best one that this process can make."""
    name = choose().name
    capture = make("recorder" if name in ("emit", "nsys") else name, folder)
    assert capture is not None
    return capture


class LightProfile:
    """Light mode from ``start`` until the process ends, when the profile ``path`` is written.

    ``tell`` is called with the path that was written.
    """

    def __init__(
        self, path: Path | None, spells: bool, tell: Callable[[Path], object] = lambda path: None
    ) -> None:
        """``path`` None: a name made from the program's name and the rank, in the current folder.

        Raises FileExistsError if ``path`` exists.
        """
        if path is not None:
            check_target(path, False)
        self.path = _name() if path is None else path
        self._spells = spells
        self._tell = tell
        self._recording: LightRecording | None = None
        self._folder: Path | None = None
        self._owner = os.getpid()

    def start(self) -> None:
        """Begin. Raises OSError if no folder can be made beside the profile."""
        self.path.absolute().parent.mkdir(parents=True, exist_ok=True)
        self._folder = recording_folder.beside(self.path)
        self._recording = into(self._folder, self._spells)
        session.measure_steps(self._recording.clock, self.stop)

    def stop(self) -> None:
        """End, and write the profile. A second call does nothing. Never raises."""
        recording, self._recording = self._recording, None
        if recording is None or self._folder is None:
            return
        recording.stop()
        if os.getpid() != self._owner:  # a forked child: its part goes into its parent's profile
            return
        try:
            if not recording_folder.parts(self._folder):
                recording_folder.discard(self._folder)
                return
            written = recording_folder.to_profile(self._folder, self.path, False)
            if written is not None:
                self._tell(written)
        except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
            _log.warning("opscope: light mode's profile: %s", recording_folder.reason(error))


def _name() -> Path:
    who = process.current()
    script = Path(sys.argv[0] if sys.argv and sys.argv[0] not in ("", "-c", "-m") else "python")
    rank = f"-rank{who.rank}" if who.rank is not None and (who.world_size or 1) > 1 else ""
    base = f"{script.stem or 'python'}-light{rank}"
    path, number = Path(f"{base}.opscope"), 1
    while path.exists():
        number += 1
        path = Path(f"{base}-{number}.opscope")
    return path

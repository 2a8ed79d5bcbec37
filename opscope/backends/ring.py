"""The ``ring`` backend: keeps the last seconds or steps of the program, and writes them when asked.

If CUPTI can be used, the ring also has kernels: CUPTI's buffers are stored in its segments
(``cupti/ring.py``). Frameworks' own profilers keep all events in memory until they end, so a ring cannot use
them.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from opscope.core.capture import ring_dump, session
from opscope.core.capture.ring_bounds import Bounds
from opscope.core.capture.ring_recorder import ATTACH, EXCEPTION, RingRecorder

from .machine import Machine

if TYPE_CHECKING:
    from .cupti.ring import RingActivity

_log = logging.getLogger(__name__)

#: Why a ring has no kernels; the reason that CUPTI cannot be used follows.
RANGES_ALONE: Final = (
    "the last of the program is kept as ranges only, without kernels: PyTorch's profiler keeps all in memory,"
    " and CUPTI cannot be used"
)
#: Why CUPTI records the kernels of a ring.
BY_SEGMENTS: Final = "no other recorder of kernels drops old ones, as a ring must"
#: Seconds that the end of a capture waits for a dump that is being converted to a profile.
PATIENCE_S: Final = 600.0


class RingCapture:
    """Captures the last part of this process and of its forked children into ``folder``, until ``stop``.

    ``on_dump(folder, what)`` is called with each dump, on the thread that made it. ``lazy``: make the
    process's part only when it records something. ``kernels``: whether CUPTI records the GPU's work, if it
    can, once the program uses CUDA; or the ``RingActivity`` that does.
    """

    ring = True

    def __init__(
        self,
        folder: str | os.PathLike[str],
        bounds: Bounds,
        on_dump: Callable[[Path, dict[str, Any]], None] | None = None,
        lazy: bool = False,
        kernels: bool | RingActivity = True,
    ) -> None:
        self.folder = Path(folder)
        self.bounds = bounds
        self.recorder: RingRecorder | None = None
        #: The cause of the capture's end, for its profile: a keyword and a line.
        self.ended_by: tuple[str, str] | None = None
        self.is_busy: Callable[[], bool] = lambda: False
        self._printed: object = None
        self._on_dump = on_dump
        self._lazy = lazy
        self._kernels = kernels
        self._activity: RingActivity | None = None

    def warmup(self) -> None:
        """Do nothing: the recorder starts fast."""

    def start(self) -> None:
        """Begin. Raises OSError if the folder cannot be made."""
        self._printed = getattr(sys, "last_value", None)
        recorder = RingRecorder(self.folder, self.bounds, self._on_dump)
        recorder.is_busy = self.is_busy
        recorder.start(lazy=self._lazy)
        session.listen(recorder)
        self.recorder = recorder
        self._begin_kernels(recorder)

    def _begin_kernels(self, recorder: RingRecorder) -> None:
        """Have CUPTI record beside the ring, now or once the program uses CUDA; if it cannot, note why."""
        if self._kernels is False:
            return
        if self._kernels is not True:
            self._activity = self._kernels
            self._join()
            return
        from . import choice  # lazy: it is not needed for a recording without a GPU

        machine = choice.here()
        why = why_ranges_alone(machine)
        if why is not None:
            recorder.note("info", f"kernels are not captured: {why}")
        if machine.gpu != "nvidia" or why is not None:
            return
        from . import begins  # lazy: likewise
        from .cupti import injection
        from .cupti.ring import RingActivity

        self._activity = RingActivity()
        if begins.cuda_in_use() or injection.begun(whoever=True):
            self._join()
        else:
            begins.when_cuda_begins(self._join)
            injection.when_begun(self._join, whoever=True)

    def _join(self) -> None:
        """Begin to record kernels; a failure is noted, and the ring continues without them."""
        recorder, activity = self.recorder, self._activity
        if recorder is None or activity is None or activity.joined:
            return
        try:
            activity.join(recorder)
            recorder.fact(backend="cupti", reason=BY_SEGMENTS, better=[])
        except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
            _log.warning("opscope: kernels are not recorded: %s", error)
            if recorder.running:
                recorder.note("warning", f"kernels are not captured: {error}")
                recorder.fact(gpu=True)

    def stop(self) -> None:
        """End. Afterwards ``readers.recording.reader.collect(folder)`` reads the last part."""
        recorder = session.recorder()
        session.listen(None)
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.leave()
        if recorder is None:
            return
        if isinstance(recorder, RingRecorder):
            ended = self.ended_by or self._program_ended_by()
            if ended is not None:
                recorder.because(*ended)
        cuda = sys.modules.get("torch.cuda")
        if cuda is not None and cuda.is_initialized():
            recorder.fact(gpu=True)  # this matters if no kernels were recorded
        recorder.stop()

    def in_child(self) -> bool:
        """Continue in a forked child, which keeps a ring of its own beside its parent's."""
        self.recorder = None  # the child's own ring is made without dumps
        activity, self._activity = self._activity, None
        if activity is not None:
            activity.in_child()
        return True

    def _program_ended_by(self) -> tuple[str, str] | None:
        """Return the exception that ended the program, if one did since the start and Python has printed
        it."""
        error = getattr(sys, "last_value", None)
        if error is None or error is self._printed:
            return None
        return EXCEPTION, described(error)

    def __repr__(self) -> str:
        return f"RingCapture({str(self.folder)!r})"


def why_ranges_alone(machine: Machine) -> str | None:
    """Return why a ring has no kernels on this machine; None if it has, or if there is no GPU."""
    from .cupti import CUPTI  # lazy: not needed for a recording without a GPU

    if machine.gpu is None:
        return None
    if machine.under_nsys:
        return f"{RANGES_ALONE}: Nsight Systems runs this process, and one tool at a time records kernels"
    choice = CUPTI.available(machine)
    return None if choice.works else f"{RANGES_ALONE}: {choice.why}"


def described(error: BaseException) -> str:
    """Return a line about an exception without its text, which may contain private data."""
    return f"an exception left it: {type(error).__name__}"


class Profiles:
    """Converts each dump to a profile beside ``target``, one after the other, on a thread that ends with the
    last.

    ``NAME-slow-1.opscope`` is the profile of the first slow step. ``say`` is called with a line for each.
    """

    def __init__(self, target: Path, say: Callable[[str], None]) -> None:
        self._target = target
        self._say = say
        self._waiting: list[tuple[Path, dict[str, Any]]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def add(self, dump: Path, details: dict[str, Any]) -> None:
        """Convert this dump to a profile after those before it."""
        with self._lock:
            self._waiting.append((dump, details))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="opscope-dump", daemon=True)
                self._thread.start()

    def is_busy(self) -> bool:
        """Whether a dump is being converted."""
        return self._thread is not None

    def wait(self, seconds: float = PATIENCE_S) -> None:
        """Wait until all dumps are converted."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(seconds)

    def name(self, details: dict[str, Any]) -> Path:
        """Return the first free name for a profile of this dump."""
        return dump_name(self._target, str(details["made_by"]))

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                dump, details = self._waiting.pop(0)
            try:
                self._make(dump, details)
            except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
                _log.warning("opscope: %s could not be made into a profile: %s", dump, error)

    def _make(self, dump: Path, details: dict[str, Any]) -> None:
        # lazy: loads Polars, which recording a program does not need
        from . import recording_folder

        written = recording_folder.to_profile(dump, self.name(details), force=False)
        if written is not None:
            self._say(f"{details['why']}: wrote {written}")


def dump_name(target: Path, made_by: str) -> Path:
    """Return the first free name of the profile of a dump: ``NAME-slow-1.opscope``."""
    number = 1
    while True:
        path = target.with_name(f"{target.stem}-{made_by}-{number}{target.suffix}")
        if not path.exists():
            return path
        number += 1


def left_over(root: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the complete dumps that were not converted to profiles."""
    dumps = []
    for _, _, path in ring_dump.dumps(root):
        details = ring_dump.ready(path)
        # the attached process converts this dump
        if details is not None and details.get("made_by") != ATTACH:
            dumps.append((path, details))
    return dumps

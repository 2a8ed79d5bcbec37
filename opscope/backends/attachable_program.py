"""Carries out what ``opscope attach`` asks of this program: start, stop, dump, status.

Nothing is recorded or hooked until somebody attaches. The recording is made in a folder that the program
chose, and stays there: the attached process makes a profile of it, so that the program never loads Polars.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from opscope.core.capture import attach_place, process, session
from opscope.core.capture.attach_protocol import MOST_SECONDS, Refused
from opscope.core.capture.attach_server import Server
from opscope.core.capture.recorder_sink import Recorder, read_clock
from opscope.core.capture.ring_recorder import ATTACH, RingRecorder
from opscope.core.refusals import refusal

from . import begin

_log = logging.getLogger(__name__)

#: Why a capture ended, in words.
AFTER_STEPS = "after {} steps"
AFTER_SECONDS = "after {:g} s"
ASKED = "opscope attach --stop asked for it"
ENDED = "the program's own capture, or the program, ended it"


class _Asked:
    """A requested capture: its folder, its bounds, and its state."""

    def __init__(self, number: int, folder: Path, steps: int | None, seconds: float | None) -> None:
        self.number = number
        self.folder = folder
        self.steps = steps
        self.until = time.monotonic() + (seconds or MOST_SECONDS)
        self.seconds = seconds or MOST_SECONDS
        self.done = 0
        self.ended: str | None = None
        self.backend = ""
        self.thread = 0
        self.last: int | None = None
        #: When the first complete step began (ns, Unix time).
        self.first: int | None = None
        self.undo: Callable[[], None] = lambda: None


class Attachable:
    """This program as ``opscope attach`` sees it. Recordings are made in the folder ``place``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.place = Path(folder).absolute()
        self._server = Server(self._answer, self._tick)
        self._lock = threading.RLock()
        self._now: _Asked | None = None
        self._numbers = 0

    def start(self) -> None:
        """Let others attach from now on. Raises OSError."""
        self._server.start()

    def stop(self) -> None:
        """Stop accepting attachments. A capture that is still running ends with the program."""
        self._server.stop()

    # ---------------------------------------------------------------- requests, on the server's thread

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        command = request["command"]
        if command == "start":
            return self._start(request["steps"], request["seconds"])
        if command == "stop":
            return self._stop()
        if command == "dump":
            return self._dump()
        return self._status()

    def _start(self, steps: int | None, seconds: float | None) -> dict[str, Any]:
        running = session.capturing()
        if isinstance(session.recorder(), RingRecorder):
            raise Refused("this program keeps its last seconds or steps: --dump writes them")
        if running is not None:
            raise Refused(f"a capture is already running: {running!r}")
        try:
            folder = Path(mkdtemp(prefix=f".attach-{os.getpid()}-", dir=self.place))
        except OSError as error:
            raise Refused(f"no recording can be made in {self.place}: {refusal(error)}") from None
        self._numbers += 1
        asked = _Asked(self._numbers, folder, steps, seconds)
        # set before the capture begins, because steps that pass while it begins are recorded and count
        asked.undo = session.on_step(lambda number: self._step(asked, number))
        try:
            backend = begin(folder).name
            if backend == "emit":
                raise Refused("a tool around this program records it (Nsight Systems)")
        except Refused:
            asked.undo()
            _remove(folder)
            raise
        except Exception as error:  # noqa: BLE001 - whoever attached is told, the program goes on
            asked.undo()
            _remove(folder)
            why = refusal(error) if isinstance(error, OSError) else error
            raise Refused(f"the capture cannot start: {why}") from None
        capture = session.capturing()
        if capture is not None:
            capture.alone = True  # type: ignore[attr-defined]
        with self._lock:
            asked.backend = backend
            self._now = asked
            if asked.first is not None:
                _begins_with_a_step(session.recorder(), asked)
        return self._status()

    def _stop(self) -> dict[str, Any]:
        asked = self._now
        if asked is None or asked.ended is not None:
            raise Refused("nothing is being recorded")
        self._end(asked, ASKED)
        return self._status()

    def _dump(self) -> dict[str, Any]:
        recorder = session.recorder()
        if not isinstance(recorder, RingRecorder):
            raise Refused("this program keeps no recent events: start it with --last")
        done = recorder.dump(ATTACH, "opscope attach --dump asked for it", gap=0.0, most=0)
        if isinstance(done, str):
            raise Refused(done)
        return {**self._status(), "dump": str(done)}

    def _status(self) -> dict[str, Any]:
        who, asked = process.current(), self._now
        self._notice_the_end(asked)
        recorder = session.recorder()
        state = "idle"
        if isinstance(recorder, RingRecorder):
            state = f"keeps the last {recorder.bounds.last}"
        elif asked is not None and asked.ended is None:
            state = "recording"
        elif recorder is not None:
            state = "records by itself"
        status: dict[str, Any] = {
            "pid": who.pid,
            "name": who.name,
            "rank": who.rank,
            "state": state,
            "step": max(session.current_step(), asked.last or -1) if asked else None,
            "place": str(self.place),
            "ring": str(recorder.root) if isinstance(recorder, RingRecorder) else None,
        }
        if asked is not None:
            status |= {
                "capture": asked.number,
                "folder": str(asked.folder),
                "backend": asked.backend,
                "steps": asked.done,
                "ended": asked.ended,
            }
        return status

    # ---------------------------------------------------------------- the end of a capture

    def _tick(self) -> float | None:
        asked = self._now
        if asked is None or asked.ended is not None:
            return None
        left = asked.until - time.monotonic()
        if left > 0:
            return left
        try:
            self._end(asked, AFTER_SECONDS.format(asked.seconds))
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            _log.exception("opscope: a requested capture failed at its end")
        return None

    def _step(self, asked: _Asked, number: int) -> None:
        """Note on a step's thread that step ``number`` is next; the same step may be reported twice."""
        recorder = session.recorder()
        if os.getpid() != self._server_pid or asked.ended is not None or recorder is None:
            return
        if number == asked.last:
            return
        thread = threading.get_ident()
        with self._lock:
            if not asked.thread:
                asked.thread = thread
                perf, unix, _ = read_clock()
                asked.first = time.perf_counter_ns() + unix - perf
                _begins_with_a_step(recorder, asked)
            elif asked.thread != thread:
                return
            else:
                asked.done += 1
            asked.last = number
            begun = self._now is asked
        # a recording that is still beginning cannot be ended: a later step will end it
        if begun and asked.steps is not None and asked.done >= asked.steps:
            self._end(asked, AFTER_STEPS.format(asked.steps))

    @property
    def _server_pid(self) -> int:
        return self._server.pid

    def _notice_the_end(self, asked: _Asked | None) -> None:
        if asked is not None and asked.ended is None and session.capturing() is None:
            asked.ended = ENDED
            asked.undo()

    def _end(self, asked: _Asked, why: str) -> None:
        with self._lock:
            if asked.ended is not None:
                return
            running = session.capturing()
            asked.undo()
            if running is not None and getattr(running, "alone", False):
                session.stop()
            asked.ended = why


def _begins_with_a_step(recorder: Recorder | None, asked: _Asked) -> None:
    """Drop the records of the step during which somebody attached, because it is incomplete."""
    if recorder is not None and asked.backend == "recorder" and asked.first is not None:
        recorder.fact(
            ring={
                "from_unix": asked.first,
                "made_by": "attach",
                "why": "opscope attach",
                "last": "",
            }
        )


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        _log.info("opscope: the folder %s was not removed", folder)


_this: Attachable | None = None


def attachable(folder: str | os.PathLike[str]) -> bool:
    """Let ``opscope attach`` reach this program; recordings are made in ``folder``.

    A second call does nothing. Returns whether it can be reached; if not, the reason is logged.
    """
    global _this
    if _this is not None:
        return True
    program = Attachable(folder)
    try:
        program.start()
    except OSError as error:
        _log.warning(
            "opscope: nobody can attach to this program: %s (%s)", error, attach_place.WAY_OUT
        )
        return False
    _this = program
    return True


def unattachable() -> None:
    """Undo ``attachable``."""
    global _this
    program, _this = _this, None
    if program is not None:
        program.stop()

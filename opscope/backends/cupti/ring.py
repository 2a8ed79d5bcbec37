"""CUPTI's activity in a ring: its buffers are stored in the ring's segments and are deleted with them."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from pathlib import Path
from time import monotonic, perf_counter_ns
from typing import Final

from opscope.backends.window import EXACT, Window
from opscope.core.capture.ring_recorder import RingRecorder
from opscope.core.capture.session import SessionError
from opscope.core.cupti import files

from .api import CuptiError
from .capture import APPEND, FLUSH_S, CuptiCapture

_log = logging.getLogger(__name__)
#: Bytes of a buffer: about a thousand records. CUPTI hands a buffer back when it is full or its last kernel
#: has ended. With small buffers, less is missing when a profile of a busy GPU is written.
BUFFER_BYTES: Final = 1 << 18
#: Facts that belong to a segment; other facts belong to the whole part.
_TIMED: Final = ("clock", "dropped")
#: Longest wait for the disk when a segment ends; the recorder's own writing waits meanwhile.
_TURN_S: Final = 2.0
UNENDED: Final = (
    "the last work before a profile was written may be missing, as CUPTI hands over what has ended"
)


class RingActivity(CuptiCapture):
    """CUPTI's kernels, copies and calls beside a ring: ``join`` begins, ``leave`` ends.

    It is an element of the ring's ``segmented``. ``limits`` as for ``CuptiCapture``.
    """

    def __init__(self, path: Path | None = None, limits: dict[str, int] | None = None) -> None:
        super().__init__("", EXACT, path, {"buffer_bytes": BUFFER_BYTES, **(limits or {})})
        self._timed = -1
        self._opened = 0
        self._joining = threading.Lock()
        self._left = False

    @property
    def joined(self) -> bool:
        """Whether CUPTI records now."""
        return self._handle is not None

    def join(self, ring: RingRecorder) -> None:
        """Begin to record beside the ring, unless recording has begun or ended already. Raises
        SessionError, OSError."""
        with self._joining:
            if self._handle is not None or self._left:
                return
            self._limits.setdefault("most_bytes", ring.bounds.max_bytes // 4)
            self.warmup()
            if self._is_taken():
                raise SessionError("the program's own profiler runs")
            self._pid = os.getpid()
            self._begin()
            try:
                ring.join(self)
            except BaseException:  # after Ctrl-C too: clean up, then let it continue
                self._let_go()
                self._close_all()
                raise
            self._recorder = ring

    def leave(self) -> None:
        """End, after the device's work; CUPTI's remaining records go into the last segment. Never fails."""
        with self._joining:
            self._left = True
            recorder = self._recorder
            if self._handle is None or os.getpid() != self._pid:
                return
            try:
                self._settle()
            except Exception as error:  # noqa: BLE001 - whatever fails, CUPTI must be let go
                self._note(f"the device failed: {error}")
            if isinstance(recorder, RingRecorder):
                recorder.part_from(self)
                recorder.fact(**self._window_fact(None))
            try:
                self._end(None)
            except RuntimeError as error:
                _log.warning("opscope: the last kernels are not in the ring: %s", error)
            self._close_all()
            self._recorder = None

    def _give_way(self) -> None:
        """End before the program's own profiler begins; the ring goes on without kernels."""
        recorder = self._recorder
        self.leave()
        if recorder is not None:
            recorder.note(
                "warning", "kernels are not captured from here on: the program's own profiler began"
            )
            recorder.fact(gpu=True)

    # ------------------------------------------------------------------------- as a ring's source

    def begin(self, part: Path, segment: Path) -> dict[str, object]:
        """Open the files, with the ring's lock held; return the facts for the recording. Raises OSError."""
        assert self._helper is not None
        raw = os.open(segment / files.RAW, APPEND, 0o644)
        self._files = raw, os.open(part / files.FACTS, APPEND, 0o644)
        self._timed = os.open(segment / files.FACTS, APPEND, 0o644)
        if os.fstat(self._files[1]).st_size == 0:
            self._write({"version": self._version, "kinds": self._enabled, "pointer_bytes": 8})
        self._write_timed({"buffers_before": 0})
        for note in self._notes:
            self._write({"note": note})
        self._helper.open(*self._files)
        self._opened = perf_counter_ns()
        return {"profiling": self._opened, "gives": self.gives, "profiler": self.profiler}

    def segment(self, ended: Path, begun: Path) -> tuple[int, dict[str, object]]:
        """Write complete records into the segment that has ended, the rest into the next one.

        Returns the bytes in the segment that has ended, and the facts for the recording.
        """
        native = self._helper
        if self._files is None or native is None or self._handle is None:
            return 0, {}
        self._hand_over_now()
        byte_count = int(native.state().bytes)
        raw = os.open(begun / files.RAW, APPEND, 0o644)
        timed = os.open(begun / files.FACTS, APPEND, 0o644)
        before = native.turn(raw, _TURN_S)
        if before is None:  # the disk hangs: continue in the segment before
            self._note("the disk was too slow: kernels lie in an earlier segment than their time")
            os.close(raw)
            os.close(timed)
            return byte_count, {}
        old, self._files = self._files, (raw, self._files[1])
        earlier, self._timed = self._timed, timed
        self._write_timed({"buffers_before": before})
        for file in (old[0], earlier):
            os.close(file)
        with contextlib.suppress(CuptiError):
            self._tie_anew()
        return byte_count, self._window_fact(None)

    def held(self) -> int:
        """Return the bytes in the current segment; once a second, have CUPTI hand over what is complete."""
        if self._files is None or self._helper is None or self._handle is None:
            return 0
        if monotonic() - self._flushed >= FLUSH_S:
            self._hand_over_now()
        return int(self._helper.state().bytes)

    def _hand_over_now(self) -> None:
        self._flushed = monotonic()
        assert self._helper is not None
        try:
            self._flush(0)
            self._written()
            self._tie()
        except CuptiError as error:
            if str(error) != self._failed_flush:
                self._failed_flush = str(error)
                self._note(str(error))
        if self._helper.state().outstanding:
            self._note(UNENDED)

    def _tie_anew(self) -> None:
        """Begin a segment with a pair of readings, because earlier pairs may be deleted."""
        assert self._clocks is not None
        self._clocks.read()
        for pair in self._clocks.take():
            self._write({"clock": pair})

    def _window_fact(self, ended: str | None) -> dict[str, object]:
        return {
            "window": [self._opened, perf_counter_ns()],
            "chosen": False,
            "steps": [None, None],
            "ended": ended,
        }

    # ----------------------------------------------------------------------------------- files

    def _write(self, line: object) -> None:
        if isinstance(line, dict) and next(iter(line)) in _TIMED:
            self._write_timed(line)
        else:
            super()._write(line)

    def _note(self, text: str) -> None:
        if text not in self._notes:  # a fact of CUPTI's own: the recorder's lock may be held
            self._notes.append(text)
            self._write({"note": text})

    def _write_timed(self, line: object) -> None:
        files_, timed = self._files, self._timed
        if files_ is None or timed < 0:
            return
        self._files = files_[0], timed
        try:
            super()._write(line)
        finally:
            self._files = files_

    def _close_all(self) -> None:
        opened, self._files = self._files, None
        timed, self._timed = self._timed, -1
        for file in (*(opened or ()), timed):
            with contextlib.suppress(OSError):
                if file >= 0:
                    os.close(file)

    def _fills(self, window: Window) -> bool:
        return False  # old segments are deleted

    def in_child(self) -> bool:
        """Forget the parent's files in a forked child, where CUDA cannot be used."""
        self._left = True
        self._joining = threading.Lock()
        self._close_all()
        self._recorder = None
        return super().in_child()

"""The base of captures that run a framework's own profiler beside opscope's recorder.

The profiler records the work, the recorder the ranges around it. Probes align their clocks: these are calls
that both record, with the recorder's clock read before and after each.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from typing import ClassVar, Final

from opscope.core.capture import session
from opscope.core.capture.cuda_graphs import OF_PROCESS
from opscope.core.capture.probes import PROBE_NS, PROBES, paced
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.capture.session import SessionError

from .cuda_graph_captures import METHODS
from .keeper import Keeper
from .window import EXACT, FULL, GAVE_WAY, Bounds, Window

_log = logging.getLogger(__name__)
#: Longest wait for a profiler's start, and for a device, which a collective may block for ever.
SETTLE_S: Final = 30.0
#: Longest wait for the capture of a CUDA graph when the profiler begins or the recording ends.
QUIET_S: Final = 10.0
#: Longest time for a profiler to write its trace: 30 to 200 s for 2 M events.
END_S: Final = 600.0

_ENDED, _REFUSED, _LATE = "ended", "refused", "late"


class Beside:
    """Runs the recorder from ``start`` to ``stop``, and a profiler during a part of that time (its window),
    into ``folder``.

    ``bounds`` say what ends the window. The profiler's trace is written at that time, so that a program that
    is killed later loses none of it; the recording goes on. Forked children are recorded without the
    profiler. A subclass begins, touches and ends its profiler.
    """

    #: The word for what the profiler records, and the profiler's name, for messages.
    gives: ClassVar[str]
    profiler: ClassVar[str]
    #: Whether the profiler records a GPU's work.
    gpu: ClassVar[bool] = False

    def __init__(self, folder: str | os.PathLike[str], bounds: Bounds = EXACT) -> None:
        self.folder = Path(folder)
        #: Called with a line of text if the window ends before ``stop``.
        self.announce: Callable[[str], object] = _log.warning
        self._bounds = bounds
        #: The recorder that gets the probes, while the profiler runs.
        self._recorder: Recorder | None = None
        self._undo: Callable[[], None] | None = None
        self._next_probe = 0
        self._pid = 0
        self._window: Window | None = None  # while the profiler runs
        self._awaited: Window | None = None  # while a second window will begin once steps are alike
        self._keeper: Keeper | None = None
        self._stepping: int | None = None  # the thread whose steps count
        self._before = 0  # value of ``_events``'s counter when the window was opened
        self._ending = threading.Lock()
        self._take_over: Callable[[], None] | None = None

    def take_over(self, end: Callable[[], None]) -> None:
        """Have ``start`` call ``end`` once the profiler runs, to end the recording that this one follows."""
        self._take_over = end

    def warmup(self) -> None:
        """Prepare what is slow to start. Raises SessionError if the profiler is not available."""

    def start(self) -> None:
        """Begin. Raises SessionError if the profiler cannot start, OSError if the folder cannot be made."""
        self.warmup()
        self._pid = os.getpid()
        window = self._open(self._bounds)
        end, self._take_over = self._take_over, None
        if end is not None:
            end()
        recorder = Recorder(self.folder)
        try:
            recorder.start()
        except OSError:
            self._abandon()
            raise
        self._record(recorder, window)
        self._undo = session.on_step(self._on_step)

    def stop(self) -> None:
        """End. Afterwards ``readers.recording.reader.collect(folder)`` reads the whole trace."""
        recorder = session.recorder()
        if self._undo is not None:
            self._undo()
            self._undo = None
        self._awaited = None
        try:
            if os.getpid() != self._pid:
                if recorder is not None:
                    session.note_missing_kernels(recorder)
            else:
                session.listen(None)
                if recorder is not None:
                    recorder.end()
                self._close(QUIET_S, last=True)
        finally:
            self._recorder = None
            session.listen(None)
            if recorder is not None:
                recorder.stop()

    def in_child(self) -> bool:
        """Continue in a forked child: it is recorded without a profiler."""
        return True

    # ---------------------------------------------------------------- overridden by subclasses

    def _prepare(self) -> None:
        """Prepare ``_begin``, on the thread that opens the window. Raises SessionError."""

    def _begin(self) -> None:
        """Start the profiler. Raises SessionError."""
        raise NotImplementedError

    def _touch(self) -> bool:
        """Make one call that the profiler sees; return False if there is no call to make."""
        raise NotImplementedError

    def _settle(self) -> None:
        """Wait for the device work started so far: it is part of the window. Raises RuntimeError."""
        raise NotImplementedError

    def _end(self, folder: Path | None) -> None:
        """Stop the profiler, even if something fails, and write its trace into the part ``folder``, unless
        that is None.

        Raises RuntimeError, OSError.
        """
        raise NotImplementedError

    def _is_capturing(self) -> bool:
        """Whether this thread is capturing a CUDA graph, which waiting for the device would break."""
        return threading.get_ident() in OF_PROCESS.threads

    def _is_taken(self) -> bool:
        """Whether the program's own profiler runs; two profilers must not run at once."""
        return False

    def _is_full(self) -> bool:
        """Whether the profiler has begun to drop events."""
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    # ---------------------------------------------------------------- the window begins

    def _open(self, bounds: Bounds) -> Window:
        """Start the profiler after all earlier device work has ended. Raises SessionError."""
        if any(pid == os.getpid() for pid, _ in _UNENDED):
            raise SessionError("the profiler of an earlier recording has not ended yet")
        if self._is_taken():
            raise SessionError("the program's own profiler runs")
        self._keeper = keeper = Keeper(self._tick)
        wait_s = 0 if self._is_capturing() else QUIET_S
        try:
            with OF_PROCESS.kept_out(wait_s) as quiet:
                if not quiet:
                    raise SessionError("a CUDA graph is being captured")
                keeper.submit(self._settle).wait(SETTLE_S)
                self._prepare()
                window = Window(bounds, perf_counter_ns())
                begun = keeper.submit(self._begin)
                try:
                    begun.wait(SETTLE_S)
                except TimeoutError:
                    keeper.submit(lambda: self._end(None))
                    raise
        except TimeoutError:
            keeper.leave()
            raise SessionError(f"{self.profiler} has not started within {SETTLE_S:g} s") from None
        except RuntimeError as error:
            keeper.leave()
            if isinstance(error, SessionError):
                raise
            raise SessionError(f"{self.profiler} cannot start: {error}") from error
        except BaseException:  # above all Ctrl-C: the thread must not outlive the window
            keeper.leave()
            raise
        return window

    def _abandon(self) -> None:
        """Stop the profiler without writing its trace."""
        assert self._keeper is not None
        self._keeper.submit(lambda: self._end(None)).wait(SETTLE_S)
        self._keeper.leave()

    def _record(self, recorder: Recorder, window: Window) -> None:
        """Record into ``recorder`` beside the running profiler."""
        if self.gpu:
            recorder.fact(gpu=True)
        recorder.fact(profiling=window.opened, gives=self.gives, profiler=self.profiler)
        self._recorder = recorder
        self._before = recorder.written + OF_PROCESS.replayed // 3
        self._window = window
        session.listen(recorder)
        self._probe_as_known(PROBES)

    # ---------------------------------------------------------------- the window is open

    def _events(self) -> int:
        """Estimate the number of events in the profiler's memory; a running profiler does not give it.

        In 13 real traces of PyTorch programs, a leaf op has 0.8 to 3.2 events (calls, kernels, copies) and
        the recorder writes 2 or 3 records for it: so there are about as many records as events, or more. A
        kernel replayed by a CUDA graph is one event without a record; when captured it was one op.
        """
        recorder = self._recorder
        written = 0 if recorder is None else recorder.written
        return written + OF_PROCESS.replayed // 3 - self._before

    def _on_step(self, number: int) -> None:
        if os.getpid() != self._pid:
            return
        here = threading.get_ident()
        if self._stepping is None:
            self._stepping = here
        if self._stepping != here:
            return  # if several threads have steps, only the first thread's count
        now, window = perf_counter_ns(), self._window
        if window is None:
            self._await(number, now)
        elif window.step(number, now, self._events()) or self._fills(window):
            if not self._is_capturing():
                self._close()
        elif now >= self._next_probe:
            self._probe_as_known(2)

    def _tick(self) -> None:
        """End the window if that is due; called at intervals on the keeper's thread."""
        window = self._window
        if window is None or os.getpid() != self._pid:
            return
        due = window.tick(perf_counter_ns(), self._events()) or self._fills(window)
        if due and not OF_PROCESS.threads:
            self._close(waits=False)

    def _fills(self, window: Window) -> bool:
        if self._is_full():
            window.over = FULL
        return window.over is not None

    def _await(self, number: int, now: int) -> None:
        """Open a second window, in a part of its own, once steps are alike; the first window ended before
        steps were alike."""
        awaited, recorder = self._awaited, session.recorder()
        if awaited is None or recorder is None:
            if self._undo is not None:  # steps are cheaper without a subscriber
                self._undo()
                self._undo = None
            return
        awaited.step(number, now, 0)
        if awaited.begin is None or self._is_taken():
            return
        if self._is_capturing() or OF_PROCESS.threads:
            return
        self._awaited = None
        self.warmup()
        window = self._open(replace(self._bounds, chosen=False))
        window.step(number, window.opened, 0)
        session.listen(None)
        recorder.stop()
        following = Recorder(self.folder)
        try:
            following.start()
        except OSError:
            self._abandon()
            raise
        self._record(following, window)

    # ---------------------------------------------------------------- the window ends

    def _give_way(self) -> None:
        """End our window before the program's own profiler begins, which cannot run beside ours."""
        window = self._window
        if window is not None and os.getpid() == self._pid:
            window.over = window.over or GAVE_WAY
            self._close(QUIET_S)

    def _close(self, quiet_s: float = 0, last: bool = False, waits: bool = True) -> None:
        """End the window; while a CUDA graph is being captured, leave that to a later step or tick.

        If another thread is ending the window, wait for it (``waits``), so that the program continues after
        the window. The keeper's thread does not wait: the other thread needs it. ``last``: the recording
        ends too.
        """
        if not self._ending.acquire(timeout=END_S if waits else 0):
            return
        try:
            if self._window is not None:
                self._probe_as_known(PROBES)
                self._end_window(self._window, 0 if self._is_capturing() else quiet_s, last)
        finally:
            self._ending.release()

    def _end_window(self, window: Window, quiet_s: float, last: bool) -> None:
        keeper, recorder, settled = self._keeper, self._recorder, threading.Event()
        assert keeper is not None
        unended = (os.getpid(), self)
        _UNENDED.add(unended)
        job = keeper.submit(lambda: self._finish(window, recorder, quiet_s, settled))
        try:
            outcome = job.wait(END_S) if settled.wait(quiet_s + SETTLE_S) else _LATE
        except TimeoutError:
            outcome = _LATE
        except BaseException:  # above all Ctrl-C
            self._window = self._recorder = None
            self._lost(recorder, "interrupted while waiting for the device")
            keeper.leave()
            raise
        if outcome == _REFUSED and not last:
            _UNENDED.discard(unended)
            return
        if outcome == _REFUSED:  # the trace is lost; the profiler ends at a later tick
            window.over = window.over or "the recording ended"
            self._recorder = None
            self._lost(recorder, "the recording ended while a CUDA graph was being captured")
            return
        self._window = self._recorder = None
        keeper.leave()
        METHODS.uninstall()
        if outcome == _LATE:
            self._lost(recorder, f"the device has not finished within {SETTLE_S:g} s")
        elif window.over is not None and not last:
            self._awaited = window if window.begin is None else None
            self.announce(_coverage_line(self.gives, window))

    def _finish(
        self, window: Window, recorder: Recorder | None, quiet_s: float, settled: threading.Event
    ) -> str:
        """Stop the profiler and write its trace; runs on the keeper's thread, returns the outcome.

        ``settled`` is set once the wait for the device is over.
        """
        with OF_PROCESS.kept_out(quiet_s) as quiet:
            if not quiet:
                settled.set()
                return _REFUSED
            end, failed = perf_counter_ns(), None
            try:
                self._settle()
            except Exception as error:  # noqa: BLE001 - whatever fails, the profiler must end
                self._lost(recorder, f"the device failed: {error}")
            settled.set()
            # a recording that has ended meanwhile accepts no more data
            open_recorder = recorder if recorder is not None and recorder.running else None
            try:
                self._end(None if open_recorder is None else open_recorder.folder)
            except Exception as error:  # noqa: BLE001 - likewise
                failed = f"{self.profiler} failed: {error}"
        _UNENDED.discard((os.getpid(), self))
        if failed is not None:
            self._lost(recorder, failed)
        elif open_recorder is not None:
            # a recording that ends before its bounds is kept completely
            is_complete = window.over is None
            begin = window.opened if is_complete or window.begin is None else window.begin
            chosen = self._bounds.chosen and window.begin is not None
            open_recorder.fact(
                window=[begin, end],
                chosen=chosen and not (is_complete and window.bounds.chosen),
                steps=[window.first, window.last],
                ended=window.over,
            )
            open_recorder.flush()  # so that a process that is killed later does not lose it
        return _ENDED

    def _lost(self, recorder: Recorder | None, why: str) -> None:
        _log.warning("this capture contains no %s: %s", self.gives, why)
        if recorder is not None:
            recorder.note("warning", f"{self.gives} not captured: {why}")

    def _probe_as_known(self, times: int) -> None:
        """Probe on this thread, and register the thread with the recording, so that readers find the probes'
        calls."""
        recorder = self._recorder
        if recorder is not None and not hasattr(recorder.local, "log"):
            recorder.new_thread()
        self._probe(times)

    def _probe(self, times: int) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        thread = threading.get_native_id()
        for _ in paced(times):
            before = perf_counter_ns()
            seen = self._touch()
            after = perf_counter_ns()
            if not seen:
                break
            recorder.fact(probe=[before, after, thread])
        self._next_probe = perf_counter_ns() + PROBE_NS


#: (pid, capture) whose profiler has not ended yet: no other profiler may begin before.
_UNENDED: Final[set[tuple[int, Beside]]] = set()


def _coverage_line(gives: str, window: Window) -> str:
    """Return the line that says for which part of a run kernels (or the profiler's other data) were
    recorded."""
    since = window.opened if window.begin is None else window.begin
    extent = f"{(perf_counter_ns() - since) / 1e9:.1f} s"
    if window.begin is not None and window.first is not None and window.last is not None:
        extent = f"steps {window.first} to {window.last}"
    return (
        f"{gives} were captured only for {extent} ({window.over}); "
        "to change that, use --steps, --duration or --whole of opscope run"
    )

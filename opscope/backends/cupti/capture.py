"""The ``cupti`` capture: CUPTI records the GPU's activity in the process, opscope's recorder records the
ranges."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, perf_counter_ns, sleep
from typing import Any, Final

from opscope.adapters.shared.compiled import BuildError
from opscope.backends import gpu_runtime, graph_trace, kineto_capture
from opscope.backends.beside import Beside
from opscope.backends.window import EXACT, Bounds, Window
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.capture.session import SessionError
from opscope.core.cupti import files, kinds
from opscope.core.cupti.layouts import UnknownVersion

from . import clocks, helper, library, others
from .api import FIRST, KINDS, MULTIPLE_SUBSCRIBERS, Cupti, CuptiError
from .clocks import Clocks

_log = logging.getLogger(__name__)
#: CUPTI's numbers of callback domains, and of the callbacks that are enabled in them.
_RESOURCE, _STATE = 3, 6
_NODE_CREATED, _NODE_CLONED, _FATAL, _ERROR = 13, 20, 1, 2
_SYSTEM_THREADS, _LIBRARY_THREADS, _FORCED = 1, 0, 1
#: CUPTI_ERROR_NOT_COMPATIBLE, _INVALID_KIND and _NOT_SUPPORTED: a kind of activity is not available here.
_NO_SUCH_KIND: Final = (14, 21, 27)
#: Seconds between flushes of complete records, so that a killed process loses little.
FLUSH_S: Final = 1.0
#: Longest wait for kernels that still run when the window ends, and for the disk.
DRAIN_S: Final = 2.0
DISK_S: Final = 30.0
KILLED: Final = "the process ended abruptly"
#: The mode in which its files are opened.
APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)


class CuptiCapture(Beside):
    """Captures ranges with the recorder and the GPU's activity with CUPTI, into ``folder``.

    ``path`` is the ``libcupti`` to use, by default the one that fits this process. ``limits`` go to
    ``helper.Helper.configure``. Forked children are recorded without kernels.
    """

    gives = "kernels"
    profiler = "CUPTI"
    gpu = True

    def __init__(
        self,
        folder: str | os.PathLike[str],
        bounds: Bounds = EXACT,
        path: Path | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(folder, bounds)
        self._path = path
        self._limits = dict(limits or {})
        self._cupti: Cupti | None = None
        self._helper: helper.Helper | None = None
        self._version = 0
        self._handle: Any = None
        self._enabled: list[int] = []
        self._clocks: Clocks | None = None
        self._files: tuple[int, int] | None = None
        self._notes: list[str] = []
        self._flushed = 0.0
        self._dropped = 0
        self._failed_flush: str | None = None
        self._lines = threading.Lock()

    # ------------------------------------------------------------------------------- preparing

    def warmup(self) -> None:
        """Load the library and build the helper. Raises SessionError if either fails."""
        torch = kineto_capture.loaded_torch(self._give_way)
        if self._cupti is not None:
            return
        path, why = self._path, ""
        if path is None:
            library_file, why = library.here(torch)
            path = None if library_file is None else library_file.path
        if path is None:
            raise SessionError(why)
        try:
            cupti = Cupti(path)
            self._version = cupti.version()
            self._helper = helper.load()
            helper.places(self._version)
        except (CuptiError, BuildError, UnknownVersion) as error:
            raise SessionError(str(error)) from error
        except OSError as error:
            raise SessionError(f"opscope's helper for CUPTI cannot be used: {error}") from error
        self._cupti = cupti

    def _begin(self) -> None:
        cupti, native = self._cupti, self._helper
        assert cupti is not None
        assert native is not None
        self._notes = [f"with this version of CUPTI {lack}" for lack in cupti.lacks]
        self._notes += others.notes()
        self._enabled, self._dropped, self._failed_flush = [], 0, None
        calls = ("cuptiActivityGetNextRecord", "cuptiGetGraphNodeId", "cuptiGetGraphId")
        native.configure(
            self._version, {name: cupti.address(name) for name in calls}, **self._limits
        )
        try:
            self._handle = cupti.subscribe(native.address("called"))
        except CuptiError as error:
            if error.code == MULTIPLE_SUBSCRIBERS:
                name = cupti.other_subscriber(native.address("called"))
                raise SessionError(f"{error}{others.guess(name)}") from error
            raise SessionError(str(error)) from error
        try:
            native.begin()
            self._start(cupti, native)
        except BaseException as error:
            self._let_go()
            if isinstance(error, (CuptiError, OSError)):
                raise SessionError(str(error)) from error
            raise

    def _start(self, cupti: Cupti, native: helper.Helper) -> None:
        registered = self._try(
            "cuptiActivityRegisterTimestampCallback", native.address("clock"),
            loss="times are of CUPTI's own clock",
        )  # fmt: skip
        native.system_threads(
            self._try("cuptiSetThreadIdType", _SYSTEM_THREADS, loss="threads may not be told apart")
        )
        self._clocks = Clocks(cupti.timestamp, registered)
        cupti.call(
            "cuptiActivityRegisterCallbacks",
            native.address("requested"),
            native.address("completed"),
        )
        if cupti.has("cuptiGetGraphNodeId"):
            for event in (_NODE_CREATED, _NODE_CLONED):
                self._try(
                    "cuptiEnableCallback", 1, self._handle, _RESOURCE, event,
                    loss="which op captured a node of a CUDA graph is not recorded",
                )  # fmt: skip
        for event in (_FATAL, _ERROR):  # versions before CUDA 12.2 have no such domain
            with contextlib.suppress(CuptiError):
                cupti.call("cuptiEnableCallback", 1, self._handle, _STATE, event)
        self._enable_kernels(cupti)
        for name, kind in KINDS.items():
            if kind != FIRST and self._try("cuptiActivityEnable", kind, loss=f"no {name}"):
                self._enabled.append(kind)
        self._clocks.read()
        self._flushed = monotonic()

    def _enable_kernels(self, cupti: Cupti) -> None:
        """Enable kernels, and CUDA graphs as wholes if that is requested or is all that is available."""
        asked, failed = graph_trace.whole(), None
        try:
            cupti.call("cuptiActivityEnable", FIRST)
            self._enabled.append(FIRST)
        except CuptiError as error:
            if error.code not in _NO_SUCH_KIND:  # recording is forbidden, and graphs with it
                raise
            failed = error
        if not asked and failed is None:
            return
        loss = "CUDA graphs are traced by their nodes"
        if self._try("cuptiActivityEnable", kinds.GRAPH_TRACE, loss=loss):
            self._enabled.append(kinds.GRAPH_TRACE)
        elif failed is not None:
            raise failed
        if failed is not None:
            self._note(f"single kernels are not recorded, only CUDA graphs as wholes: {failed}")

    def _try(self, name: str, *arguments: Any, loss: str) -> bool:
        """Make a call that may fail, noting what is missing then; return whether it worked."""
        assert self._cupti is not None
        if not self._cupti.has(name):
            return False
        try:
            self._cupti.call(name, *arguments)
        except CuptiError as error:
            self._note(f"{loss}: {error}")
            return False
        return True

    def _note(self, text: str) -> None:
        if text in self._notes:
            return
        self._notes.append(text)
        recorder = self._recorder
        if self._files is not None and recorder is not None and recorder.running:
            recorder.note("warning", f"CUPTI: {text}")
        else:  # a fact of CUPTI's own, which readers show as information
            self._write({"note": text})

    # ------------------------------------------------------------------------------- recording

    def _record(self, recorder: Recorder, window: Window) -> None:
        super()._record(recorder, window)
        folder, native = recorder.folder, self._helper
        assert native is not None
        if folder is None:  # the disk refused it; the recorder has already reported that
            return
        try:
            raw = os.open(folder / files.RAW, APPEND, 0o644)
            self._files = raw, os.open(folder / files.FACTS, APPEND, 0o644)
        except OSError as error:
            self._lost(recorder, f"{folder}: {error.strerror}")
            return
        self._write({"version": self._version, "kinds": self._enabled, "pointer_bytes": 8})
        for note in self._notes:
            self._write({"note": note})
        native.open(*self._files)

    def _write(self, line: object) -> None:
        if self._files is None:
            return
        with self._lines:
            try:
                os.write(self._files[1], json.dumps(line).encode() + b"\n")
            except OSError as error:
                _log.warning("opscope: CUPTI's facts are incomplete: %s", error)

    def _events(self) -> int:
        return 0  # the records are on disk, not in memory

    def _is_taken(self) -> bool:
        return kineto_capture.runs()

    def _fills(self, window: Window) -> bool:
        if self._files is not None and self._helper is not None:
            state = self._helper.state()
            if state.error:
                window.over = f"the disk took no more: {os.strerror(state.error)}"
            elif state.full:
                window.over = "the recording reached its limit of size"
        return window.over is not None

    def _tick(self) -> None:
        super()._tick()
        if self._window is not None and os.getpid() == self._pid:
            self._hand_over()

    def _hand_over(self) -> None:
        """Have CUPTI hand over complete records, once a second, and read the clocks."""
        if self._files is None or monotonic() - self._flushed < FLUSH_S:
            return
        self._flushed = monotonic()
        window, recorder, now = self._window, self._recorder, perf_counter_ns()
        try:
            self._flush(0)
            self._written()
            self._tie()
            if window is not None and recorder is not None:
                # a window for the case that the process is killed; the window's end replaces it
                begin = window.opened if window.begin is None else window.begin
                recorder.fact(
                    window=[begin, now],
                    chosen=False,
                    steps=[window.first, window.last],
                    ended=KILLED,
                )
        except CuptiError as error:
            if str(error) != self._failed_flush:
                self._failed_flush = str(error)
                self._note(str(error))

    def _written(self) -> None:
        """Wait a moment until the handed-over records are on disk: they show which clock the records have."""
        assert self._helper is not None
        for _ in range(20):
            if not self._helper.state().waiting:
                return
            sleep(0.005)

    def _flush(self, flag: int) -> None:
        assert self._cupti is not None
        self._cupti.call("cuptiActivityFlushAll", flag)
        if self._cupti.has("cuptiActivityGetNumDroppedRecords"):
            count = self._cupti.dropped()
            if count:
                self._dropped += count
                self._write({"dropped": count, "context": 0, "stream": 0})

    def _tie(self, at_end: bool = False) -> None:
        """Read the clocks, and write the pairs of readings once the records' clock is known."""
        assert self._clocks is not None
        assert self._helper is not None
        state = self._helper.state()
        self._clocks.read()
        if not self._clocks.choose(state.first_call, state.last_call, at_end):
            self._note("the records' times lie outside the recording on every clock that was tried")
        elif self._clocks.registered and self._clocks.chosen not in (None, clocks.OURS):
            self._note(
                f"CUPTI was given the recorder's clock but its records use {self._clocks.chosen}"
            )
        for pair in self._clocks.take():
            self._write({"clock": pair})

    # -------------------------------------------------------------------------------- the end

    def _touch(self) -> bool:
        return False  # CUPTI's own clock is read

    def _settle(self) -> None:
        """Wait for the device's work: through PyTorch if it is in use, else until CUPTI has handed over
        everything.

        Only a thread that may synchronise does so: waiting for a context would break the capture of a CUDA
        graph.
        """
        if self._files is None and not self._enabled:
            return  # nothing is recorded yet
        torch = sys.modules.get("torch")
        if (
            torch is not None
            and gpu_runtime.platform(torch) == "cuda"
            and torch.cuda.is_initialized()
        ):
            kineto_capture.synchronize(torch)
        native = self._helper
        assert native is not None
        until = monotonic() + DRAIN_S
        begun = native.state()
        # other threads of the program may go on launching: wait only for what is running now
        awaited = begun.completed + begun.outstanding
        with contextlib.suppress(CuptiError):  # reported at the end
            while True:
                self._flush(0)
                if native.state().completed >= awaited:
                    return
                if monotonic() > until:
                    break
                sleep(0.01)
            self._note(
                "some of the device's work had not ended when the recording did: its times are unknown"
            )

    def _end(self, folder: Path | None) -> None:
        cupti, native = self._cupti, self._helper
        if cupti is None or native is None or self._handle is None:
            return
        problems: list[str] = []
        for kind in self._enabled:
            self._attempt(problems, "cuptiActivityDisable", kind)
        self._enabled = []
        try:
            self._flush(_FORCED)
            self._written()
            self._tie(at_end=True)
        except CuptiError as error:
            problems.append(str(error))
        self._let_go(problems)
        state = native.state()
        self._tell(state, problems)
        self._write({"stop": perf_counter_ns()})
        self._close_files(state)
        if problems and not state.records:
            raise RuntimeError("; ".join(problems))

    def _let_go(self, problems: list[str] | None = None) -> None:
        """Unsubscribe, restore settings, end the helper. Never fails."""
        cupti, native = self._cupti, self._helper
        assert cupti is not None
        assert native is not None
        errors = [] if problems is None else problems
        for kind in self._enabled:
            self._attempt(errors, "cuptiActivityDisable", kind)
        self._enabled = []
        # the program's own profiler may begin after this one, and expects CUPTI's defaults
        if cupti.has("cuptiActivityRegisterTimestampCallback"):
            self._attempt(errors, "cuptiActivityRegisterTimestampCallback", native.address("unix"))
        if cupti.has("cuptiSetThreadIdType"):
            self._attempt(errors, "cuptiSetThreadIdType", _LIBRARY_THREADS)
        if self._handle is not None:
            self._attempt(errors, "cuptiUnsubscribe", self._handle)
            self._handle = None
        self._ended = native.end(DISK_S)

    def _attempt(self, problems: list[str], name: str, *arguments: Any) -> None:
        assert self._cupti is not None
        try:
            self._cupti.call(name, *arguments)
        except CuptiError as error:
            problems.append(str(error))

    def _tell(self, state: helper.State, problems: list[str]) -> None:
        """Note everything that the recording lacks."""
        for problem in problems:
            self._note(problem)
        if self._dropped:
            self._note(f"CUPTI dropped {self._dropped:,} records")
        if state.refused:
            self._note(
                f"{state.refused:,} times no buffer was free, so CUPTI dropped records: the disk was too slow"
            )
        if state.lost_buffers:
            why = (
                os.strerror(state.error) if state.error
                else "the recording reached its limit of size" if state.full
                else "the disk did not take them in time"
            )  # fmt: skip
            self._note(
                f"{state.lost_buffers:,} buffers with {state.lost_records:,} records are lost: {why}"
            )
        if state.outstanding:
            self._note(f"CUPTI has not handed back {state.outstanding:,} buffers")
        if state.foreign:
            self._note(
                f"{state.foreign:,} buffers came back that this recording had not handed out"
            )
        if state.unread_names:
            self._note(f"{state.unread_names:,} names could not be read")
        if state.wrong_sizes:
            self._note(
                f"{state.wrong_sizes:,} kinds of records have another size than their layout in version "
                f"{self._version}"
            )
        if state.lost_nodes:
            self._note(f"{state.lost_nodes:,} nodes of CUDA graphs were not noted")

    def _close_files(self, state: helper.State) -> None:
        opened, self._files = self._files, None
        if opened is None or not self._ended:
            return  # the helper's thread hangs in a write: its files must stay open
        for file in opened:
            with contextlib.suppress(OSError):
                os.close(file)

    def in_child(self) -> bool:
        """Continue in a forked child, where CUDA cannot be used: record it without CUPTI."""
        opened, self._files = self._files, None
        for file in opened or ():
            with contextlib.suppress(OSError):
                os.close(file)
        self._handle, self._enabled = None, []
        return super().in_child()

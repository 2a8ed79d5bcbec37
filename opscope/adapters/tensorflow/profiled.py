"""Record graph ops with TensorFlow's own profiler, if they cannot be observed as they run (running.py).

The profiler's trace is stored beside the recorder's events, where the reader of recordings looks for it.
Probes put both on one clock: calls that both record, with the recorder's clock read before and after.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from pathlib import Path
from time import perf_counter_ns
from typing import Any, Final

from tensorflow.python.profiler import profiler_v2
from tensorflow.python.profiler.trace import Trace

from opscope.core.capture.probes import PROBE_NS, PROBES, paced
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.recording_format import PROBE, XPLANE

_log = logging.getLogger(__name__)

#: Seconds after which the profiler is stopped: it keeps all events in memory until then.
LIMIT_S: Final = 120


class Profiled:
    """A session of TensorFlow's profiler beside one recorder. It gives way to the program's own profiler."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._session: Any = None
        self._original: Any = None
        self._ours: Any = None
        self._pid = os.getpid()
        self._next_probe = self._deadline = 0

    def start(self) -> None:
        """Start the profiler. If it cannot start, the recording gets a note with the reason."""
        assert self._recorder.folder is not None
        options = profiler_v2.ProfilerOptions(python_tracer_level=0)
        session = profiler_v2._pywrap_profiler.ProfilerSession()
        try:
            session.start(str(self._scratch), dict(options._asdict()))
        except Exception as error:  # noqa: BLE001 - TensorFlow raises many kinds; the capture goes on
            self._note(
                f"ops inside tf.function are not recorded: TensorFlow's profiler cannot start: {error}"
            )
            return
        self._session = session
        self._deadline = perf_counter_ns() + LIMIT_S * 1_000_000_000
        self._probe(PROBES)
        self._original = original = profiler_v2._pywrap_profiler.ProfilerSession

        def ProfilerSession(*args: Any, **kwargs: Any) -> Any:
            self.stop(
                "the program's own profiler has started: graph ops are not recorded after that"
            )
            return original(*args, **kwargs)

        self._ours = ProfilerSession
        profiler_v2._pywrap_profiler.ProfilerSession = ProfilerSession

    def before_run(self, shapes: bool = False, operations: bool = False) -> None:
        """Take a probe if one is due, or stop at the time limit. Called before each run of a graph."""
        now = perf_counter_ns()
        if self._session is None or now < self._next_probe or os.getpid() != self._pid:
            return
        if now > self._deadline:
            self.stop(
                f"TensorFlow's profiler was stopped after {LIMIT_S} s, as it keeps all events in "
                "memory: graph ops are not recorded after that"
            )
        else:
            self._probe(2)

    def stop(self, why: str | None = None) -> None:
        """Stop the profiler and put its trace into the recording. A second call does nothing."""
        session, self._session = self._session, None
        if session is None or os.getpid() != self._pid:
            return
        module = profiler_v2._pywrap_profiler
        if module.ProfilerSession is self._ours:
            module.ProfilerSession = self._original
        if why is not None:
            self._note(why)
        self._probe(PROBES)
        try:
            session.export_to_tb()
            files = sorted(self._scratch.rglob("*.xplane.pb"))
            if files and self._recorder.folder is not None:
                shutil.move(files[-1], self._recorder.folder / XPLANE)
        except Exception as error:  # noqa: BLE001 - TensorFlow raises many kinds; the ranges remain
            self._note(
                f"ops inside tf.function are not recorded: TensorFlow's profiler failed: {error}"
            )
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def _scratch(self) -> Path:
        assert self._recorder.folder is not None
        return self._recorder.folder / "tensorflow-profile"

    def _note(self, message: str) -> None:
        _log.warning("opscope: %s", message)
        self._recorder.note("warning", message)

    def _probe(self, times: int) -> None:
        thread = threading.get_native_id()
        for _ in paced(times):
            before = perf_counter_ns()
            with Trace(PROBE):
                pass
            self._recorder.fact(probe=[before, perf_counter_ns(), thread])
        self._next_probe = perf_counter_ns() + PROBE_NS

"""Graph ops by TensorFlow's own profiler, where they cannot be heard as they run (running.py).

Its trace goes beside the recorder's events, which is where reading a recording looks for one; calls
that both see, their times read before and after (probes), put the two on one clock.
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

#: TensorFlow's profiler keeps all events in memory until it stops.
LIMIT_S: Final = 120


class Profiled:
    """A session of TensorFlow's profiler beside one recorder. The program's own takes precedence."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._session: Any = None
        self._original: Any = None
        self._ours: Any = None
        self._pid = os.getpid()
        self._next_probe = self._deadline = 0

    def start(self) -> None:
        """Begin; where that cannot be, the recording is told why."""
        assert self._recorder.folder is not None
        options = profiler_v2.ProfilerOptions(python_tracer_level=0)
        session = profiler_v2._pywrap_profiler.ProfilerSession()
        try:
            session.start(str(self._scratch), dict(options._asdict()))
        except Exception as error:  # noqa: BLE001 - TensorFlow raises many kinds; the capture goes on
            self._note(f"ops inside tf.function are not seen: its profiler cannot start: {error}")
            return
        self._session = session
        self._deadline = perf_counter_ns() + LIMIT_S * 1_000_000_000
        self._probe(PROBES)
        self._original = original = profiler_v2._pywrap_profiler.ProfilerSession

        def ProfilerSession(*args: Any, **kwargs: Any) -> Any:
            self.stop(
                "the program's own profiler has begun: ops of graphs are not seen from there on"
            )
            return original(*args, **kwargs)

        self._ours = ProfilerSession
        profiler_v2._pywrap_profiler.ProfilerSession = ProfilerSession

    def keep(self, shapes: bool = False, operations: bool = False) -> None:
        """A graph is about to run."""
        now = perf_counter_ns()
        if self._session is None or now < self._next_probe or os.getpid() != self._pid:
            return
        if now > self._deadline:
            self.stop(
                f"TensorFlow's profiler, which keeps all in memory, was stopped after {LIMIT_S} s: "
                "ops of graphs are not seen from there on"
            )
        else:
            self._probe(2)

    def stop(self, why: str | None = None) -> None:
        """End, and leave the trace in the recording. Harmless when called twice."""
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
            found = sorted(self._scratch.rglob("*.xplane.pb"))
            if found and self._recorder.folder is not None:
                shutil.move(found[-1], self._recorder.folder / XPLANE)
        except Exception as error:  # noqa: BLE001 - TensorFlow raises many kinds; the ranges are there
            self._note(f"ops inside tf.function are not seen: its profiler failed: {error}")
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def _scratch(self) -> Path:
        assert self._recorder.folder is not None
        return self._recorder.folder / "tensorflow-profile"

    def _note(self, what: str) -> None:
        _log.warning("opscope: %s", what)
        self._recorder.note("warning", what)

    def _probe(self, times: int) -> None:
        thread = threading.get_native_id()
        for _ in paced(times):
            before = perf_counter_ns()
            with Trace(PROBE):
                pass
            self._recorder.fact(probe=[before, perf_counter_ns(), thread])
        self._next_probe = perf_counter_ns() + PROBE_NS

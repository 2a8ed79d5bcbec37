"""Record the times of layers by an IProfiler, if the user asked for it and has not set one.

With a profiler, TensorRT waits for the end of each run and reports the time of each layer. It reports
durations without a start, so they are added up by layer and emitted as figures, not as ranges.
"""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from opscope.core.capture.emit import Emitter
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.rangetext import format_spec
from opscope.core.schema import OpCall
from opscope.core.tensorrt_layers import TIMES

from .engines import Engine

_log = logging.getLogger(__name__)
#: The most single times of a layer that are kept for its median.
MOST: Final = 10_000


class _Sum:
    __slots__ = ("each", "runs", "total")

    def __init__(self) -> None:
        self.runs = 0
        self.total = 0.0
        self.each: list[float] = []

    def add(self, milliseconds: float) -> None:
        self.runs += 1
        self.total += milliseconds
        if len(self.each) < MOST:
            self.each.append(milliseconds)


class LayerTimes:
    """Our profilers: one for each context that has none, while runs are recorded.

    It has its own emitter, which no session knows. So it still has the recorder when a recording ends, and
    can emit before the recorder writes for the last time.
    """

    def __init__(self, trt: Any, failed: Callable[[str], None]) -> None:
        self._emitter = Emitter(TIMES)
        self._recorder: Recorder | None = None
        self._failed = failed
        self._lock = threading.Lock()
        self._profiler: Any = _profiler_class(trt)
        self._of_context: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self._sums: dict[tuple[str, str], _Sum] = {}
        self._said = False

    def before(self, context: Any) -> None:
        """Give the context our profiler, unless it has one, delays its reports, or is being captured."""
        if context in self._of_context or context.profiler is not None:
            return
        if not context.enqueue_emits_profile or _capturing():
            return
        profiler = self._profiler()
        context.profiler = profiler
        self._of_context[context] = profiler
        if not self._said:
            self._said = True
            _log.warning(
                "opscope: layers are timed by an IProfiler: each run of an engine waits for its end, so the"
                " runs of this program do not overlap with anything"
            )

    def after(self, context: Any, engine: Engine, ran: bool) -> None:
        """Take the times that our profiler received for the run that just ended. Never raises."""
        try:
            profiler = self._of_context.get(context)
            if profiler is None:
                return
            heard, profiler.heard = profiler.heard, []
            if not ran:
                return
            with self._lock:
                for layer, milliseconds in heard:
                    self._sums.setdefault((engine.graph, layer), _Sum()).add(milliseconds)
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the times of an engine's layers could not be taken")

    def listen(self, recorder: Recorder | None) -> None:
        """A recording has begun or ended; the one that ends gets the sums of its runs. Never raises."""
        if recorder is self._recorder:
            return
        self.emit()
        self._recorder = recorder
        self._emitter.listen(recorder)

    def emit(self) -> None:
        """Emit the sums as marks, and start new ones. Never raises."""
        try:
            with self._lock:
                sums, self._sums = self._sums, {}
            for (graph, layer), sum_ in sums.items():
                figures = OpCall(
                    "trt::figures", (), None,
                    (("runs", sum_.runs), ("total_ms", sum_.total),
                     ("mean_ms", sum_.total / sum_.runs), ("median_ms", median(sum_.each))),
                )  # fmt: skip
                self._emitter.mark(
                    self._emitter.prepare(format_spec(graph, layer, figures), "spec")
                )
        except Exception:  # noqa: BLE001 - our fault must never reach the user's program
            self._failed("the times of an engine's layers could not be reported")

    def detach(self) -> None:
        """Take our profilers from contexts that still have them. Never raises."""
        for context, profiler in list(self._of_context.items()):
            try:
                if context.profiler is profiler:
                    context.profiler = None
            except Exception:  # noqa: BLE001 - the context may refuse; its profiler then goes on doing nothing
                _log.warning(
                    "opscope: an execution context keeps opscope's profiler", exc_info=True
                )
        self._of_context.clear()


def _capturing() -> bool:
    """Whether PyTorch is capturing a CUDA graph on its current stream: nothing may wait during a capture."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    # PyTorch lacks the function while it is being imported
    initialized = getattr(cuda, "is_initialized", None)
    if cuda is None or initialized is None or not initialized():
        return False
    return bool(cuda.is_current_stream_capturing())


def _profiler_class(trt: Any) -> Any:
    class Profiler(trt.IProfiler):  # type: ignore[misc]
        """Keeps what TensorRT reports until the run ends."""

        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.heard: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            """TensorRT calls this for each layer of a run."""
            self.heard.append((str(layer_name), float(ms)))

    return Profiler

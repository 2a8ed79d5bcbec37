"""The capture of the ``mindspore`` backend: MindSpore's profiler records operators, the recorder ranges.

The profiler's own core is used (``_c_expression.Profiler``), not ``mindspore.profiler``: that has one state
for the whole process, writes to stdout, and parses what it wrote for seconds. Both write the same files.
"""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from opscope.core.capture.session import SessionError
from opscope.core.recording_format import MINDSPORE, MINDSPORE_GRAPHS

from . import mindspore_graphs
from .beside import QUIET_S, Beside
from .window import EXACT, Bounds

_log = logging.getLogger(__name__)
#: PyNative mode runs operators behind the program, on a thread of its own. Any call of MindSpore that waits
#: for it also consumes the error of a failed operator, and the program would continue with wrong data (2.7 to
#: 2.10: ``_pynative_executor.sync``, ``synchronize``, ``asnumpy`` of any tensor). So it is watched from
#: outside: the operators are done when no thread of MindSpore's has run for ``QUIET`` looks in a row.
LOOK_S: Final = 0.002
QUIET: Final = 6
#: Longest wait until they rest: MindSpore's threads that read data may never rest.
DRAIN_S: Final = 2.0


class MindSporeCapture(Beside):
    """Captures this process's ranges with the recorder and operators with MindSpore's profiler.

    It needs a build for the CPU or one that runs operators there; what a GPU or an NPU runs it does not
    see. ``bounds`` say what ends the operators' window. The profiler ends before the program's own begins.
    Forked children are recorded without operators.
    """

    gives = "operators"
    profiler = "mindspore.profiler"

    def __init__(self, folder: str | os.PathLike[str], bounds: Bounds = EXACT) -> None:
        super().__init__(folder, bounds)
        self._profiler: Any = None
        self._graphs = mindspore_graphs
        self._leaving = mindspore_graphs.Leaving()

    def warmup(self) -> None:
        """Import MindSpore. Raises SessionError if it, or its profiler, cannot be had."""
        if self._profiler is not None:
            return
        try:
            import mindspore
            from mindspore import _c_expression
        except ImportError as error:
            raise SessionError(f"MindSpore cannot be imported: {error}") from error
        kind = getattr(_c_expression, "Profiler", None)
        instance = None if kind is None else kind.get_instance("CPU")
        wanted = ("init", "step_profiling_enable", "enable_op_time", "stop")
        if instance is None or not all(hasattr(instance, name) for name in wanted):
            version = getattr(mindspore, "__version__", "?")
            raise SessionError(f"MindSpore {version} has no profiler that opscope knows")
        _before_others(self._give_way)
        self._profiler = instance

    @property
    def _scratch(self) -> Path:
        return self.folder / f"mindspore-{os.getpid()}"

    def _begin(self) -> None:
        # MindSpore destroys its executors at exit, before a recording that began before the import ends. If
        # the graphs are requested after that, MindSpore creates a new executor and ends the process by
        # SIGABRT.
        atexit.register(self._at_exit)
        self._scratch.mkdir(parents=True, exist_ok=True)
        self._leaving.begin()
        self._profiler.init(str(self._scratch))
        self._profiler.step_profiling_enable(True)
        self._profiler.enable_op_time()

    def _touch(self) -> bool:
        # there is no call that both record: the profiler's times are the system's Unix time
        return False

    def _settle(self) -> None:
        drained()

    def _is_taken(self) -> bool:
        interface = _interface()
        return interface is not None and bool(getattr(interface, "is_initialized", False))

    def _at_exit(self) -> None:
        """End the profiler while MindSpore can still describe its graphs."""
        if os.getpid() == self._pid:
            self._close(QUIET_S, last=True)

    def _end(self, folder: Path | None) -> None:
        atexit.unregister(self._at_exit)
        self._leaving.end()
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        try:
            # the profiler writes without a lock: running work must have ended, and no new work may begin
            profiler.step_profiling_enable(False)
            time.sleep(LOOK_S)
            profiler.stop()
            if folder is not None:
                self._keep(folder)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _keep(self, folder: Path) -> None:
        """Move the profiler's files, and the descriptions of the graphs' nodes, into the part ``folder``."""
        if not any(self._scratch.iterdir()):  # nothing ran
            return
        with (self._scratch / MINDSPORE_GRAPHS).open("w", encoding="utf-8") as file:
            for graph in self._graphs.graphs(self._leaving.messages):
                file.write(json.dumps(graph) + "\n")
        shutil.move(self._scratch, folder / MINDSPORE)


def drained() -> bool:
    """Wait until MindSpore's threads rest; return whether they do within ``DRAIN_S``."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():  # not Linux
        time.sleep(QUIET * LOOK_S)
        return False
    until = time.monotonic() + DRAIN_S
    quiet = 0
    while quiet < QUIET:
        if time.monotonic() > until:
            return False
        quiet = 0 if _busy(tasks) else quiet + 1
        time.sleep(LOOK_S)
    return True


def _busy(tasks: Path) -> bool:
    """Whether a thread that is not Python's is running or ready to run."""
    ours = {str(thread.native_id) for thread in threading.enumerate()}
    for task in os.listdir(tasks):
        if task in ours:
            continue
        try:
            state = (tasks / task / "stat").read_bytes().rpartition(b") ")[2][:1]
        except OSError:  # the thread has ended
            continue
        if state in (b"R", b"D"):
            return True
    return False


#: Called before the program's own profiler begins; it belongs to the latest capture.
_give_way: Final[list[Callable[[], None]]] = []


def _interface() -> Any:
    module = sys.modules.get("mindspore.profiler.profiler_interface")
    return getattr(module, "ProfilerInterface", None)


def _before_others(give_way: Callable[[], None]) -> None:
    """Call ``give_way`` before ``mindspore.profiler`` begins: there is one profiler a process."""
    _give_way[:] = [give_way]
    interface = _interface()
    original = getattr(interface, "init", None)
    if original is None or hasattr(original, "opscope"):
        return

    @functools.wraps(original)
    def init(*args: Any, **kwargs: Any) -> Any:
        for callback in _give_way:
            try:
                callback()
            except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                _log.exception(
                    "opscope: its profiler could not be stopped before the program's own one began"
                )
        return original(*args, **kwargs)

    init.opscope = True  # type: ignore[attr-defined]
    interface.init = staticmethod(init)

"""The capture of the ``xplane`` backend: jax.profiler records operations, the recorder the ranges."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from opscope.core.capture.session import SessionError
from opscope.core.recording_format import PROBE, XPLANE

from .beside import Beside
from .window import EXACT, Bounds

#: Longest wait for the threads to which XLA passed on work on a CPU: threads of the program may never rest.
AT_REST_S: Final = 0.5


class XPlaneCapture(Beside):
    """Captures this process's ranges with the recorder and operations with jax.profiler, into ``folder``.

    ``bounds`` say what ends the operations' window. XLA itself keeps at most 2 M calls and 2 M activities
    of a GPU, and all operations of a CPU. Forked children are recorded without operations.
    """

    gives = "operations"
    profiler = "jax.profiler"

    def __init__(self, folder: str | os.PathLike[str], bounds: Bounds = EXACT) -> None:
        super().__init__(folder, bounds)
        self._jax: Any = None

    def warmup(self) -> None:
        """Import JAX. Raises SessionError if it cannot be imported."""
        if self._jax is None:
            try:
                import jax
                import jax.profiler
            except ImportError as error:
                raise SessionError(f"JAX cannot be imported: {error}") from error
            self._jax = jax

    @property
    def _scratch(self) -> Path:
        return self.folder / f"xplane-{os.getpid()}"

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        chosen = {}
        kind = getattr(self._jax.profiler, "ProfileOptions", None)
        if kind is not None:  # JAX 0.6.0 has no options: then every Python call is in the trace too
            chosen["profiler_options"] = options = kind()
            options.python_tracer_level = 0  # no range for every Python call
            options.host_tracer_level = 2  # the lowest level at which JAX 0.6 records operations
        try:
            self._jax.profiler.start_trace(str(self._scratch), **chosen)
        except RuntimeError as error:
            raise SessionError(f"jax.profiler cannot start: {error}") from error

    def _touch(self) -> bool:
        with self._jax.profiler.TraceAnnotation(PROBE):
            return True

    def _settle(self) -> None:
        for array in self._jax.live_arrays():
            try:
                array.block_until_ready()
            except RuntimeError:  # deleted meanwhile, or the user's computation failed
                continue
        if self._jax.default_backend() == "cpu":  # results that were dropped cannot be waited for
            until = time.monotonic() + AT_REST_S
            while _others_run() and time.monotonic() < until:
                time.sleep(0.001)

    def _end(self, folder: Path | None) -> None:
        try:
            self._stop()
            files = sorted(self._scratch.glob("plugins/profile/*/*.xplane.pb"))
            if folder is not None and files:
                shutil.move(files[-1], folder / XPLANE)
        finally:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _stop(self) -> None:
        try:
            self._jax.profiler.stop_trace()
        except BaseException:  # an interrupt too
            # if JAX cannot write (a full disk), it keeps the session open, and no other could begin
            state = getattr(getattr(self._jax._src, "profiler", None), "_profile_state", None)
            if state is not None:
                with state.lock:
                    state.reset()
            raise


def _others_run() -> bool:
    """Whether another thread of this process runs or is ready to; false where the system does not tell."""
    for stat in Path("/proc/self/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            is_mine = stat.parent.name == str(threading.get_native_id())
            if not is_mine and stat.read_bytes().rpartition(b")")[2].split()[:1] == [b"R"]:
                return True
    return False

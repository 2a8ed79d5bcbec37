"""The capture of the ``kineto`` backend: torch.profiler records GPU activities, the recorder the ops."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from opscope.core.capture.session import SessionError
from opscope.core.recording_format import KINETO

from . import gpu_runtime, kineto_counters
from .beside import Beside
from .cuda_graph_captures import METHODS
from .window import EXACT, Bounds

_log = logging.getLogger(__name__)


class Profiler(Protocol):
    """The methods of ``torch.profiler.profile`` that are used here."""

    def prepare_trace(self) -> None: ...
    def start_trace(self) -> None: ...
    def stop_trace(self) -> None: ...
    def export_chrome_trace(self, path: str) -> Any: ...


class Cuda(Protocol):
    """The calls of the CUDA runtime and of PyTorch that the capture needs."""

    def probe(self) -> bool:
        """Make one call, legal at any time, that ``recording_format.PROBE_CALL`` matches; False if none."""

    def synchronize(self) -> None:
        """Wait for every GPU that this process uses."""

    def watch(self, give_way: Callable[[], None]) -> None:
        """Report captures of CUDA graphs to ``core.capture.cuda_graphs``, and call ``give_way`` before the
        program's own profiler begins."""

    def is_taken(self) -> bool:
        """Whether a profiler of PyTorch runs."""

    def is_capturing(self) -> bool:
        """Whether this thread's current stream is being captured."""

    def is_full(self) -> bool:
        """Whether the profiler has stopped collecting events."""


class KinetoCapture(Beside):
    """Captures ranges with the recorder and CUDA activities with torch.profiler, into ``folder``.

    ``profiler`` and ``cuda`` default to PyTorch's. ``bounds`` say what ends the kernels' window. Forked
    children are recorded without kernels.
    """

    gives = "kernels"
    profiler = "torch.profiler"
    gpu = True

    def __init__(
        self,
        folder: str | os.PathLike[str],
        profiler: Callable[[], Profiler] | None = None,
        cuda: Cuda | None = None,
        bounds: Bounds = EXACT,
    ) -> None:
        super().__init__(folder, bounds)
        self._make = profiler or _torch_profiler
        self._cuda = cuda
        self._profiler: Profiler | None = None

    def warmup(self) -> None:
        """Make the profiler, which initialises CUDA's tracing."""
        if self._profiler is None:
            self._profiler = self._make()
        if self._cuda is None:
            self._cuda = _TorchCuda()
        self._cuda.watch(self._give_way)

    def _prepare(self) -> None:
        # Kineto initialises itself here, and writes an error to stderr if this is not the main thread
        self._try("prepare_trace")

    def _begin(self) -> None:
        self._try("start_trace")

    def _try(self, name: str) -> None:
        assert self._profiler is not None
        try:
            with _ours():
                getattr(self._profiler, name)()
        except (RuntimeError, AssertionError) as error:
            # CUPTI in use, a profiler running, no activity
            self._profiler = None
            raise SessionError(f"torch.profiler cannot start: {error}") from error

    def _touch(self) -> bool:
        assert self._cuda is not None
        return self._cuda.probe()

    def _settle(self) -> None:
        assert self._cuda is not None
        self._cuda.synchronize()

    def _is_capturing(self) -> bool:
        assert self._cuda is not None
        return super()._is_capturing() or self._cuda.is_capturing()

    def _is_taken(self) -> bool:
        assert self._cuda is not None
        return self._cuda.is_taken()

    def _is_full(self) -> bool:
        assert self._cuda is not None
        return self._cuda.is_full()

    def _end(self, folder: Path | None) -> None:
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        try:
            profiler.stop_trace()
        except BaseException:  # an interrupt too
            _disable()  # otherwise no other profiler could begin
            raise
        if folder is not None:
            trace = folder / KINETO
            profiler.export_chrome_trace(str(trace.with_suffix(".tmp.json")))
            trace.with_suffix(".tmp.json").replace(trace)


class _TorchCuda:
    def __init__(self) -> None:
        import torch

        self._torch = torch
        if not torch.cuda.is_available():
            raise SessionError("PyTorch sees no GPU")
        self._call = gpu_runtime.driver_version_call(torch)
        if self._call is None:
            _log.warning(
                "PyTorch's GPU runtime was not found: probes cannot align the clocks of kernels and ranges"
            )

    def probe(self) -> bool:
        if self._call is None:
            return False
        self._call()
        return True

    def watch(self, give_way: Callable[[], None]) -> None:
        before_others(self._torch, give_way)
        graphs = [getattr(self._torch.cuda, "CUDAGraph", None)]
        graphs.append(getattr(getattr(self._torch, "accelerator", None), "Graph", None))
        METHODS.install(*(graph for graph in graphs if graph is not None))

    def is_capturing(self) -> bool:
        cuda = self._torch.cuda  # before CUDA is initialised, nothing can be captured
        return cuda.is_initialized() and bool(cuda.is_current_stream_capturing())

    def is_taken(self) -> bool:
        return is_taken(self._torch)

    def is_full(self) -> bool:
        # since PyTorch 2.13
        stopped = getattr(self._torch.autograd, "_is_kineto_stopped", None)
        return stopped is not None and bool(stopped())

    def synchronize(self) -> None:
        synchronize(self._torch)


def is_taken(torch: Any) -> bool:
    """Whether a profiler of PyTorch runs."""
    return bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False))


def runs() -> bool:
    """Whether a profiler of PyTorch runs, where the program has imported PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "autograd") and is_taken(torch)


def synchronize(torch: Any) -> None:
    """Wait for every GPU on which PyTorch has a context in this process. Raises RuntimeError."""
    cuda = torch.cuda
    if not cuda.is_initialized():
        return  # CUDA is not initialised, or is just being initialised: nothing was launched
    used = _use(torch)
    if used:
        # when they stop, PyTorch and Kineto wait for this thread's device, which is 0 unless set
        cuda.set_device(used[0])
    for device in used:
        cuda.synchronize(device)


def _use(torch: Any) -> list[int]:
    """Return the devices on which this process has a context; waiting for another would make one."""
    has = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if has is None:  # a private function, so a release may remove it
        return [torch.cuda.current_device()]
    return [device for device in range(torch.cuda.device_count()) if has(device)]


_mine = threading.local()
#: Called before another profiler begins; it belongs to the latest capture.
_give_way: list[Callable[[], None]] = []


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """Mark a profiler that this thread begins inside the block as ours."""
    _mine.yes = True
    try:
        yield
    finally:
        _mine.yes = False


def loaded_torch(give_way: Callable[[], None]) -> Any:
    """Return PyTorch if the program has imported it, and call ``give_way`` before its profiler begins.

    Where that cannot be hooked, CUPTI refuses PyTorch's profiler itself.
    """
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "autograd"):
        with contextlib.suppress(SessionError):
            before_others(torch, give_way)
    return torch


def before_others(torch: Any, give_way: Callable[[], None]) -> None:
    """Call ``give_way`` before any other profiler of PyTorch begins.

    Two profilers at a time, on two threads, crash the process (PyTorch 2.13: a segmentation fault when both
    end). Raises SessionError if this PyTorch has no place to hook.
    """
    _give_way[:] = [give_way]
    module = torch.autograd.profiler
    original = getattr(module, "_prepare_profiler", None)
    if original is None or hasattr(original, "opscope"):
        if original is None:
            raise SessionError(
                "opscope cannot detect when this PyTorch begins a profiler, and two must not run at once"
            )
        return

    @functools.wraps(original)
    def _prepare_profiler(*args: Any, **kwargs: Any) -> Any:
        if not getattr(_mine, "yes", False):
            for callback in _give_way:
                try:
                    callback()
                except Exception:  # noqa: BLE001 - our fault must never reach the user's program
                    _log.exception(
                        "opscope: its profiler could not be stopped before the program's own one began"
                    )
        return original(*args, **kwargs)

    _prepare_profiler.opscope = True  # type: ignore[attr-defined]
    module._prepare_profiler = _prepare_profiler


def _disable() -> None:
    """Stop the profiler after ``stop_trace`` failed, so that another can begin on this thread."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    # the profiler may have stopped after all
    with contextlib.suppress(RuntimeError, AttributeError):
        torch.autograd._disable_profiler()
    with contextlib.suppress(AttributeError):
        torch.autograd.profiler._run_on_profiler_stop()


def _torch_profiler() -> Profiler:
    try:
        from torch.profiler import ProfilerActivity, profile
    except ImportError as error:
        raise SessionError(f"PyTorch's profiler cannot be imported: {error}") from error
    wanted: dict[str, Any] = {"activities": [ProfilerActivity.CUDA]}
    if "acc_events" in inspect.signature(profile.__init__).parameters:
        wanted["acc_events"] = (
            # otherwise the profiler warns that a second cycle would drop the first one's events
            True
        )
    profiler: Profiler = profile(**wanted, **_counters())
    return profiler


def _counters() -> dict[str, Any]:
    """Return the profiler's arguments for hardware counters; none if none are requested or available."""
    names = kineto_counters.wanted()
    if not names:
        return {}
    torch = sys.modules["torch"]
    refused = kineto_counters.refusal(torch)
    if refused is None:
        return kineto_counters.arguments(torch, names)
    _log.warning("opscope: hardware counters are not measured: %s", refused)
    return {}

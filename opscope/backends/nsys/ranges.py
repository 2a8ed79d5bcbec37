"""In a program under nsys: announce when a range of steps begins and ends, so that nsys starts and stops
recording."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from opscope.backends.machine import under_nsys
from opscope.core.capture import session
from opscope.core.capture.nvtx_sink import open_domain
from opscope.core.capture.session import SessionError
from opscope.core.recording_format import UNRECORDED

from .command import NVTX, RANGE, RANGE_DOMAIN, RANGE_TEXT

_log = logging.getLogger(__name__)

#: CUDA libraries by the start of the file's name, each with its two functions. The runtime comes first: every
#: version of nsys notices calls of the runtime's functions. JAX has the runtime inside its own library.
_LIBRARIES: Final = (
    ("libcudart.so", "cudaProfilerStart", "cudaProfilerStop"),
    ("libcuda.so", "cuProfilerStart", "cuProfilerStop"),
)
_DRIVER: Final = "libcuda.so.1"
_FOLDER: Final = "OPSCOPE_RUN_DIR"


class NsysRange:
    """A capture made by nsys, which records from ``start`` to ``stop`` into its own report.

    nsys must have been started with ``--capture-range``; otherwise it records all the time, and ignores
    this. ``kind``: ``nvtx`` for a range of NVTX, else the functions of CUDA.
    """

    def __init__(self, kind: str | None = None) -> None:
        self._kind = os.environ.get(RANGE) if kind is None else kind
        self._end: Callable[[], object] | None = None

    def warmup(self) -> None:
        """Nothing is slow to start."""

    def start(self) -> None:
        """Begin the range. Raises SessionError if nsys cannot be told."""
        if self._end is not None:
            return
        self._end = _by_nvtx() if self._kind == NVTX else _by_cuda()
        session.describe()  # nsys does not have the marks made before the range

    def stop(self) -> None:
        """End the range. A second call does nothing."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def in_child(self) -> bool:
        """A forked child is in the range of its parent, and must not end it."""
        self._end = None
        return False

    def __repr__(self) -> str:
        return "<range for Nsight Systems>"


def begun() -> NsysRange | None:
    """Return a range that has begun, for a capture of the program's own (``opscope.capture``, a callback).

    None if this process is not under Nsight Systems, or if nsys cannot be told; if it records ranges only,
    that is logged. nsys ignores a range unless it was started with ``--capture-range``.
    """
    if not under_nsys() or not (wanted() or any(_is_cuda(path) for path in _load())):
        return None
    capture = NsysRange()
    try:
        capture.start()
    except SessionError as error:
        _log.warning("opscope: %s", error)
        return None
    return capture


def wanted(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether ``opscope run`` started nsys so that it records ranges only."""
    return bool(environ.get(RANGE))


def report_failure(reason: str) -> None:
    """Store the reason in the run's folder, so that ``opscope run`` prints it at the end."""
    folder = os.environ.get(_FOLDER)
    if folder:
        with contextlib.suppress(
            OSError
        ):  # the folder is gone, and with it the place to report this
            path = Path(folder, UNRECORDED.format(os.getpid()))
            path.write_text(f"{sys.executable}\n{reason}\n", encoding="utf-8")


class RunRange(NsysRange):
    """The range of ``opscope run --steps``: failures are reported at the end of the run, not to the
    program."""

    def start(self) -> None:
        try:
            super().start()
        except SessionError as error:
            report_failure(str(error))


def _by_nvtx() -> Callable[[], object]:
    domain = _domain()
    if domain is None:
        raise SessionError(
            "no NVTX tool hears this process, so Nsight Systems cannot be told to record"
        )
    number = domain.start_range(domain.get_event_attributes(message=RANGE_TEXT.encode()))
    return lambda: domain.end_range(number)


@functools.cache
def _domain() -> Any | None:
    return open_domain(RANGE_DOMAIN)


def _by_cuda() -> Callable[[], object]:
    library, begin, end = cuda_functions()
    status = begin()
    if status:
        _log.info("opscope: %s returned %d", library, status)
    stop: Callable[[], object] = end
    return stop


def cuda_functions() -> tuple[str, Any, Any]:
    """Return a CUDA library of this process and its functions that start and stop a profiler.

    Raises SessionError if there is no CUDA here. Only libraries that the program has loaded are used: the
    driver is loaded here if there is none, which creates no context.
    """
    loaded = _load()
    for prefix, begin, end in _LIBRARIES:
        for path in loaded:
            if not Path(path).name.startswith(prefix):
                continue
            functions = _functions(path, begin, end)
            if functions is not None:
                return (path, *functions)
    functions = _functions(_DRIVER, *_LIBRARIES[1][1:])
    if functions is None:
        raise SessionError(
            "CUDA is not in this process, so Nsight Systems cannot be told to record these steps"
        )
    return (_DRIVER, *functions)


def _is_cuda(path: str) -> bool:
    return any(Path(path).name.startswith(prefix) for prefix, _, _ in _LIBRARIES)


def _functions(path: str, begin: str, end: str) -> tuple[Any, Any] | None:
    try:
        library = ctypes.CDLL(path)
        return getattr(library, begin), getattr(library, end)
    except (OSError, AttributeError):
        return None


def _load() -> list[str]:
    """The files of the shared libraries in this process, each once, in order of address."""
    try:
        lines = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    paths = (line.split(None, 5)[5] for line in lines if len(line.split(None, 5)) == 6)
    return list(dict.fromkeys(path for path in paths if ".so" in path))

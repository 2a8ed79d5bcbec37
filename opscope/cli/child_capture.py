"""How a child of ``opscope run`` records: ranges from its start, kernels from when it first uses a GPU."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from opscope.backends.window import EXACT, Bounds
from opscope.core.capture import session
from opscope.core.capture.recorder_sink import Recorder
from opscope.core.capture.session import Capture, SessionError

_log = logging.getLogger(__name__)


class Recording:
    """The recorder, its part made only when something is recorded: most children record nothing.

    The backend of the same purpose loads what reads the parts back, which no child needs.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def warmup(self) -> None:
        """Nothing is slow here."""

    def start(self) -> None:
        """Begin. Raises OSError where the folder is gone."""
        recorder = Recorder(self.folder)
        recorder.start(lazy=True)
        session.listen(recorder)

    def in_child(self) -> bool:
        """A forked child is recorded as its parent is."""
        return True

    def stop(self) -> None:
        """End, and say whether the process used a GPU, whose kernels this does not see."""
        recorder = session.recorder()
        session.listen(None)
        if recorder is not None:
            if _cuda_in_use():
                recorder.fact(gpu=True)
            recorder.stop()


@dataclass(frozen=True, slots=True)
class Source:
    """Where more than ranges comes from, once the program has begun to use a device.

    ``when`` calls what it is given once that is so; ``capture`` makes the backend, not yet started.
    ``gpu``: it is a GPU's, whose kernels the ranges alone would lack.
    """

    gives: str
    in_use: Callable[[], bool]
    when: Callable[[Callable[[], None]], None]
    capture: Callable[[Path, Bounds], Capture]
    gpu: bool


class RecordingWithMore(Recording):
    """A recording that gets more than ranges once a source of it has begun, the first that does.

    Not before: beginning for it would settle what the program could still choose. Initialising CUDA
    gives a context to processes that never use a GPU, and their forked children could no longer use
    one; starting JAX's backends settles its devices. What was recorded until then is one part, what
    comes after, with the profiler's trace, another. A program that profiles itself meets ours; then
    ``--backend recorder`` is the way. ``bounds``: of the window that has more. A forked child goes on
    by itself, and gets a profiler of its own once it begins to use a device.
    """

    sources: ClassVar[tuple[Source, ...]] = ()

    def __init__(self, folder: str | os.PathLike[str], bounds: Bounds = EXACT) -> None:
        super().__init__(folder)
        self._bounds = bounds
        self._inner: Capture | None = None
        for source in self.sources:
            source.when(self._begins)

    def start(self) -> None:
        """Begin. Raises OSError where the folder is gone."""
        begun = next((source for source in self.sources if source.in_use()), None)
        self._inner = None if begun is None else self._with_more(begun)
        if self._inner is None:
            self._inner = Recording(self.folder)
            self._inner.start()

    def stop(self) -> None:
        """End. Harmless when called twice."""
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.stop()

    def _with_more(self, source: Source) -> Capture | None:
        """The capture, started; None, and the reason in the log, where it cannot be."""
        capture = source.capture(self.folder, self._bounds)
        try:
            capture.start()
        except SessionError as error:
            _log.warning("opscope: %s are not recorded: %s", source.gives, error)
            return None
        recorder = session.recorder()
        if source.gpu and recorder is not None:
            recorder.fact(gpu=True)
        return capture

    def in_child(self) -> bool:
        """The parent's profiler is none of this process's; its own begins with a device."""
        if self._inner is not None:
            self._inner = Recording(self.folder)
        return True

    def _begins(self) -> None:
        try:
            if type(self._inner) is Recording:
                self._inner.stop()
                self.start()
        except Exception as error:  # noqa: BLE001  the framework would raise it into the user's program
            _log.warning("opscope: nothing is recorded from here on: %s", error)
            self._inner = None


def _jax_in_use() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def _when_jax_begins(what: Callable[[], None]) -> None:
    """Call ``what`` once JAX has started its backends in this process."""
    import wrapt

    def imported(bridge: Any) -> None:
        original = getattr(bridge, "backends", None)
        if original is None:  # private, so it may go: then there are no operations
            _log.warning("opscope: operations are not recorded: this JAX starts otherwise")
            return

        def backends() -> Any:
            first = not bridge.backends_are_initialized()
            found = original()
            if first:
                bridge.backends = original
                what()
            return found

        bridge.backends = backends

    wrapt.register_post_import_hook(imported, "jax._src.xla_bridge")


def _cuda_in_use() -> bool:
    from opscope.adapters.shared.cuda import in_use

    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and in_use(cuda)


def _when_cuda_begins(what: Any) -> None:
    """Call ``what`` when PyTorch initialises CUDA in this process, at once where it has already."""
    import wrapt

    from opscope.adapters.shared.cuda import when_in_use

    def imported(torch: Any) -> None:
        try:
            when_in_use(torch.cuda, what)
        except AttributeError as error:  # private, so it may go: then there are no kernels
            _log.warning("opscope: kernels are not recorded: %s", error)

    wrapt.register_post_import_hook(imported, "torch")


def _kineto(folder: Path, bounds: Bounds) -> Capture:
    from opscope.backends.kineto import KinetoCapture

    capture = KinetoCapture(folder, bounds=bounds)
    capture.tell = _tell
    return capture


def _xplane(folder: Path, bounds: Bounds) -> Capture:
    from opscope.backends.xplane import XPlaneCapture

    capture = XPlaneCapture(folder, bounds=bounds)
    capture.tell = _tell
    return capture


def _tell(line: str) -> None:
    """Say it on stderr, once a machine: the ranks of a job that is started by torchrun do alike."""
    if os.environ.get("LOCAL_RANK", "0") == "0" and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # nobody can be told
            sys.stderr.write(f"opscope: {line}\n")
            sys.stderr.flush()


_KERNELS: Final = Source("kernels", _cuda_in_use, _when_cuda_begins, _kineto, gpu=True)
_OPERATIONS: Final = Source("operations", _jax_in_use, _when_jax_begins, _xplane, gpu=False)


class RecordingWithKernels(RecordingWithMore):
    """Kernels too, by PyTorch's profiler."""

    sources = (_KERNELS,)


class RecordingWithProfile(RecordingWithMore):
    """Operations too, by JAX's profiler."""

    sources = (_OPERATIONS,)


class RecordingWithEither(RecordingWithMore):
    """Kernels or operations: which framework the program will use shows only when it does."""

    sources = (_KERNELS, _OPERATIONS)

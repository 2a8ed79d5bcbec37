"""The captures of ``opscope run``'s children: ranges from the start, kernels once the GPU is used."""

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
    """The recorder, which creates its part only when it records something: most children record nothing.

    The backend ``recorder`` is not used here: it loads the reader of parts, which no child needs.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def warmup(self) -> None:
        """Do nothing: starting is fast."""

    def start(self) -> None:
        """Start recording. Raises OSError if the folder is gone."""
        recorder = Recorder(self.folder)
        recorder.start(lazy=True)
        session.listen(recorder)

    def in_child(self) -> bool:
        """Record a forked child in the same way as its parent."""
        return True

    def stop(self) -> None:
        """Stop recording, and note whether the process used a GPU, whose kernels are not recorded here."""
        recorder = session.recorder()
        session.listen(None)
        if recorder is not None:
            if _cuda_in_use():
                recorder.fact(gpu=True)
            recorder.stop()


@dataclass(frozen=True, slots=True)
class Source:
    """A profiler that records more than ranges, once the program uses a device.

    ``gives`` names what it records. ``in_use`` returns whether the program uses the device already;
    ``when`` calls its argument once it does. ``capture`` makes the backend without starting it. ``gpu``:
    the device is a GPU, whose kernels a recording of ranges alone lacks.
    """

    gives: str
    in_use: Callable[[], bool]
    when: Callable[[Callable[[], None]], None]
    capture: Callable[[Path, Bounds], Capture]
    gpu: bool


class RecordingWithMore(Recording):
    """A recording that adds a profiler's data once the program uses the device of one of ``sources``.

    The profiler starts no earlier, because starting it would make choices that belong to the program.
    Initialising CUDA creates a context in processes that never use a GPU, and their forked children could
    no longer use one; starting JAX's backends fixes its devices. What was recorded before that is one
    part; what comes after, with the profiler's trace, is another. A program that starts a profiler itself
    conflicts with this one: use ``--backend recorder`` there. ``bounds`` limits the profiler's window. A
    forked child records on its own, and starts its own profiler once it uses a device.
    """

    sources: ClassVar[tuple[Source, ...]] = ()

    def __init__(self, folder: str | os.PathLike[str], bounds: Bounds = EXACT) -> None:
        super().__init__(folder)
        self._bounds = bounds
        self._inner: Capture | None = None
        for source in self.sources:
            source.when(self._begins)

    def start(self) -> None:
        """Start recording. Raises OSError if the folder is gone."""
        begun = next((source for source in self.sources if source.in_use()), None)
        self._inner = None if begun is None else self._with_more(begun)
        if self._inner is None:
            self._inner = Recording(self.folder)
            self._inner.start()

    def stop(self) -> None:
        """Stop recording. A second call does nothing."""
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.stop()

    def _with_more(self, source: Source) -> Capture | None:
        """Return the source's capture, started; None, with the reason in the log, if it cannot start."""
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
        """Drop the parent's profiler in a forked child; the child's own starts once it uses a device."""
        if self._inner is not None:
            self._inner = Recording(self.folder)
        return True

    def _begins(self) -> None:
        try:
            if type(self._inner) is Recording:
                self._inner.stop()
                self.start()
        except Exception as error:  # noqa: BLE001  the framework would raise it into the user's program
            _log.warning("opscope: recording stops here: %s", error)
            self._inner = None


def _jax_in_use() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bool(bridge.backends_are_initialized())


def _when_jax_begins(what: Callable[[], None]) -> None:
    """Call ``what`` once JAX has started its backends in this process."""
    import wrapt

    def imported(bridge: Any) -> None:
        original = getattr(bridge, "backends", None)
        if (
            original is None
        ):  # private to JAX, so a version may lack it: no operations are recorded then
            _log.warning(
                "opscope: operations are not recorded: this version of JAX has no xla_bridge.backends"
            )
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


def _mindspore_in_use() -> bool:
    from opscope.backends import mindspore_alone

    return mindspore_alone()


def _when_mindspore_begins(what: Callable[[], None]) -> None:
    """Call ``what`` once the program has imported MindSpore, and neither PyTorch nor JAX before it.

    MindSpore's profiler makes no choice that belongs to the program, so it need not wait for a device.
    """
    import wrapt

    def imported(_: Any) -> None:
        if _mindspore_in_use():
            what()

    wrapt.register_post_import_hook(imported, "mindspore")


def _cuda_in_use() -> bool:
    from opscope.adapters.shared.cuda import in_use

    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and in_use(cuda)


def _when_cuda_begins(what: Any) -> None:
    """Call ``what`` when PyTorch initialises CUDA in this process; at once if it already has."""
    import wrapt

    from opscope.adapters.shared.cuda import when_in_use

    def imported(torch: Any) -> None:
        try:
            when_in_use(torch.cuda, what)
        except AttributeError as error:  # private to PyTorch, so it may be missing: no kernels then
            _log.warning("opscope: kernels are not recorded: %s", error)

    wrapt.register_post_import_hook(imported, "torch")


def _kineto(folder: Path, bounds: Bounds) -> Capture:
    from opscope.backends.kineto import KinetoCapture

    capture = KinetoCapture(folder, bounds=bounds)
    capture.announce = _print_line
    return capture


def _xplane(folder: Path, bounds: Bounds) -> Capture:
    from opscope.backends.xplane import XPlaneCapture

    capture = XPlaneCapture(folder, bounds=bounds)
    capture.announce = _print_line
    return capture


def _mindspore(folder: Path, bounds: Bounds) -> Capture:
    from opscope.backends.mindspore_profiler import MindSporeCapture

    capture = MindSporeCapture(folder, bounds=bounds)
    capture.announce = _print_line
    return capture


def _print_line(line: str) -> None:
    """Print a line on stderr, once per machine: the ranks that torchrun starts would all print it."""
    if os.environ.get("LOCAL_RANK", "0") == "0" and sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):  # stderr is closed: nobody can read it
            sys.stderr.write(f"opscope: {line}\n")
            sys.stderr.flush()


_KERNELS: Final = Source("kernels", _cuda_in_use, _when_cuda_begins, _kineto, gpu=True)
_OPERATIONS: Final = Source("operations", _jax_in_use, _when_jax_begins, _xplane, gpu=False)
_OPERATORS: Final = Source(
    "operators", _mindspore_in_use, _when_mindspore_begins, _mindspore, gpu=False
)


class RecordingWithKernels(RecordingWithMore):
    """A recording with kernels, from PyTorch's profiler."""

    sources = (_KERNELS,)


class RecordingWithOperations(RecordingWithMore):
    """A recording with operations, from JAX's profiler."""

    sources = (_OPERATIONS,)


class RecordingWithOperators(RecordingWithMore):
    """A recording with operators, from MindSpore's profiler."""

    sources = (_OPERATORS,)


class RecordingWithProfile(RecordingWithMore):
    """A recording with what the profiler of the program's framework gives on a machine without a GPU."""

    sources = (_OPERATIONS, _OPERATORS)


class RecordingWithEither(RecordingWithMore):
    """A recording with kernels or operations: the program's framework is known only once it is used."""

    sources = (_KERNELS, _OPERATIONS, _OPERATORS)

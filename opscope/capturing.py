"""``with opscope.capture(path):``, a profile of what runs inside it, kernels included where they can be seen."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final

from . import backends
from .core import session

_log = logging.getLogger(__name__)

BACKENDS: Final = ("auto", "recorder", "kineto")


class capture:
    """Record into the profile ``path``, a directory ``NAME.opscope``.

    ``backend`` is ``auto`` (Kineto's kernels beside the recorder's ranges where there is a GPU, else
    the recorder), ``recorder`` or ``kineto``. A block that raises still leaves its profile. Under
    Nsight Systems ``auto`` writes nothing: the ranges go into its own report.

    Entering raises ValueError for another backend, FileExistsError where ``path`` exists and not
    ``force``, and opscope.core.session.SessionError where a capture is running already or the
    backend that was asked for cannot start.
    """

    def __init__(
        self, path: str | os.PathLike[str], backend: str = "auto", force: bool = False
    ) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"no backend {backend!r}; there are {', '.join(BACKENDS)}")
        self.path = Path(path)
        self._backend = backend
        self._force = force
        self._parts: Path | None = None
        self._running: session.Capture | None = None

    def __enter__(self) -> capture:
        import opscope

        if self.path.exists() and not self._force:
            raise FileExistsError(f"{self.path} exists (force=True replaces it)")
        backend = self._backend
        if backend == "auto":
            choice = backends.choose()
            _log.info("opscope: %s (%s)", choice.name, choice.reason)
            if choice.name == "emit":
                _log.warning("opscope: no profile is written: %s", choice.reason)
                opscope.init()
                return self
            backend = choice.name
        opscope.init()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Beside the profile rather than in the system's folder for temporary files: as large, and
        # on the same disk.
        self._parts = Path(tempfile.mkdtemp(prefix=f".{self.path.name}-", dir=self.path.parent))
        try:
            self._running = self._start(backend, self._parts)
        except BaseException:
            self._clean()
            raise
        return self

    def _start(self, backend: str, parts: Path) -> session.Capture:
        from .backends.recorder import RecorderCapture

        one: session.Capture
        if backend == "kineto":
            from .backends.kineto import KinetoCapture

            one = KinetoCapture(parts)
            try:
                session.start(one)
                return one
            except session.SessionError as error:
                if self._backend != "auto" or session.capturing() is not None:
                    raise
                _log.warning("opscope: kernels are not captured: %s", error)
        one = RecorderCapture(parts)
        session.start(one)
        return one

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._parts is None:
            return
        try:
            if session.capturing() is self._running:
                session.stop()
            self._write(self._parts)
        except Exception:
            if error is None:
                raise
            # The user's error is the one to be seen; ours is told beside it.
            _log.exception("opscope: the profile %s could not be written", self.path)
        finally:
            self._clean()

    def _write(self, parts: Path) -> None:
        from .backends import recorder
        from .readers import opscope_profile

        opscope_profile.write(self.path, recorder.collect(parts), force=self._force)

    def _clean(self) -> None:
        parts, self._parts, self._running = self._parts, None, None
        if parts is not None:
            shutil.rmtree(parts, ignore_errors=True)

"""A capture that leaves a profile: any in-process backend, read and written when it ends."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp

from opscope.core.session import Capture

from . import choose, make


def check_target(path: Path, force: bool) -> None:
    """Raise FileExistsError where the profile ``path`` could not be written at the end, when all would be
    lost: it exists and not ``force``, or is no profile."""
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; force=True replaces it")
    if path.exists() and not (path / "meta.json").is_file():
        raise FileExistsError(f"{path} exists and is no profile, so force does not replace it")


class ProfileCapture:
    """What runs from ``start`` to ``stop``, as the profile ``path``.

    ``backend`` is ``auto``, ``kineto``, ``xplane`` or ``recorder``. Starting raises FileExistsError where
    ``path`` exists and not ``force``, ValueError on an unknown backend.
    """

    def __init__(
        self, path: str | os.PathLike[str], backend: str = "auto", force: bool = False
    ) -> None:
        self.path = Path(path)
        self._backend = backend
        self._force = force
        self._folder: str | None = None
        self._inner: Capture | None = None

    def warmup(self) -> None:
        """Make the backend's capture, and let it prepare. Raises what ``start`` does."""
        if self._folder is not None:
            return
        check_target(self.path, self._force)
        name = choose().name if self._backend == "auto" else self._backend
        parent = self.path.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        # beside the profile, so that the disk which will hold it holds the recording too
        folder = mkdtemp(prefix=f".{self.path.name}-", dir=parent)
        try:
            inner = make(name, folder)
            if inner is not None:
                inner.warmup()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._folder, self._inner = folder, inner

    def start(self) -> None:
        """Begin. Raises OSError where the folder cannot be written."""
        self.warmup()
        if self._inner is None:
            return
        try:
            self._inner.start()
        except BaseException:
            assert self._folder is not None
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = self._inner = None
            raise

    def stop(self) -> None:
        """End, and write the profile; nothing where the tool around the process records."""
        inner, self._inner = self._inner, None
        folder, self._folder = self._folder, None
        if folder is None:
            return
        try:
            if inner is not None:
                inner.stop()
                trace = import_module("opscope.backends.recorder").collect(folder)
                write = import_module("opscope.readers.opscope_profile").write
                write(self.path, trace, force=self._force)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def __repr__(self) -> str:
        return f"ProfileCapture({str(self.path)!r})"

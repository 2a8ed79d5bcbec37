"""A capture that writes a profile: at its end, the recording of an in-process backend is read and saved."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opscope.core.capture import session
from opscope.core.capture.session import Capture
from opscope.core.cells import replaces

from . import recording_folder
from .best import Best, begin
from .nsys import ranges

_log = logging.getLogger(__name__)


def check_target(path: Path, force: bool) -> None:
    """Raise FileExistsError if the profile ``path`` could not be written at the end, when everything would be
    lost.

    That is the case if ``path`` exists and ``force`` is false, or if it exists and is not a profile.
    """
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; force=True replaces it")
    if path.exists() and not (path / "meta.json").is_file():
        raise FileExistsError(f"{path} exists and is no profile, so force does not replace it")


class ProfileCapture:
    """Captures what runs from ``start`` to ``stop`` into the profile ``path``.

    ``backend`` is ``auto`` or the name of one that ``opscope doctor`` lists. ``force`` replaces an existing
    profile; by default this is done only in IPython and notebooks. Starting raises FileExistsError if
    ``path`` exists and is not to be replaced, and ValueError for an unknown backend. If the disk takes
    nothing, at the start or at the end, a warning is logged; the recording is kept if possible. Under
    ``opscope run`` nothing is prepared, because the run records the process.
    """

    def __init__(
        self, path: str | os.PathLike[str], backend: str = "auto", force: bool | None = None
    ) -> None:
        self.path = Path(path)
        self._backend = backend
        self._force = replaces(force)
        self._folder: Path | None = None
        self._inner: Capture | None = None
        #: Under Nsight Systems, which does the recording: the range that controls it.
        self._range: Capture | None = None

    def warmup(self) -> None:
        """Make the backend's capture and let it prepare. Raises what ``start`` raises."""
        if self._folder is not None or session.is_reserved(repr(self)):
            return
        try:
            self._prepare()
        except OSError as error:
            self._refused(error)

    def _prepare(self) -> None:
        check_target(self.path, self._force)
        parent = self.path.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        folder = recording_folder.beside(self.path)
        try:
            best = Best(folder, self._backend)
            best.warmup()
        except BaseException:  # above all Ctrl-C: delete the folder, which is still empty
            recording_folder.discard(folder)
            raise
        self._folder, self._inner = folder, None if best.inner is None else best

    def _refused(self, error: OSError) -> None:
        if recording_folder.is_taken(error):
            raise error
        _log.warning(
            "opscope: nothing is recorded into %s: %s", self.path, recording_folder.reason(error)
        )

    def start(self) -> None:
        """Begin."""
        self.warmup()
        if self._inner is None:
            if self._folder is not None:
                self._range = ranges.begun()
            return
        try:
            self._inner.start()
        except BaseException as error:  # above all Ctrl-C, as in _prepare
            assert self._folder is not None
            recording_folder.discard(self._folder)
            self._folder = self._inner = None
            if not isinstance(error, OSError):
                raise
            self._refused(error)

    def stop(self) -> None:
        """End, and write the profile; write nothing if a tool outside the process records."""
        inner, self._inner = self._inner, None
        folder, self._folder = self._folder, None
        mine, self._range = self._range, None
        if mine is not None:
            mine.stop()
        if folder is None:
            return
        if inner is None:
            recording_folder.discard(folder)
            return
        try:
            inner.stop()
        except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
            _log.warning("opscope: the capture into %s failed at its end: %s", self.path, error)
        recording_folder.to_profile(folder, self.path, self._force)

    def __repr__(self) -> str:
        return f"capture into {self.path}"


@contextmanager
def capture(
    path: str | os.PathLike[str], *, backend: str = "auto", force: bool | None = None
) -> Iterator[None]:
    """Capture the block into the profile ``path``, which is written even if the block raises.

    ``backend`` is ``auto`` or the name of one that ``opscope doctor`` lists: ``emit`` writes nothing, as the
    tool that runs the process does. ``force`` replaces an existing profile; by default this is done only in
    IPython and notebooks. Raises FileExistsError if ``path`` exists and is not to be replaced or is no
    profile, ValueError for an unknown backend, SessionError while another capture runs. If the disk takes
    nothing, at the start or at the end, a warning is logged; the recording is kept if possible. Under
    ``opscope run`` no profile is written here: the run's profile contains the block.
    """
    target, replace = Path(path), replaces(force)
    folder = (
        None if session.is_reserved(f"capture into {target}") else _begin(target, backend, replace)
    )
    owner = os.getpid()
    outside = None
    if folder is None and not session.is_run():
        outside = ranges.begun()
    try:
        yield
    finally:
        if outside is not None and os.getpid() == owner:
            outside.stop()
        # a forked child leaves the block: the profile belongs to its parent
        if os.getpid() != owner:
            session.finish()
        elif folder is not None:
            try:
                session.stop()
            except Exception as error:  # noqa: BLE001 - our fault must never reach the user's program
                _log.warning("opscope: the capture into %s failed at its end: %s", target, error)
            recording_folder.to_profile(folder, target, replace)


def _begin(target: Path, backend: str, force: bool) -> Path | None:
    """Begin a capture and return its folder; None if a tool records instead, or the disk refuses writes."""
    folder = None
    try:
        check_target(target, force)
        target.absolute().parent.mkdir(parents=True, exist_ok=True)
        folder = recording_folder.beside(target)
        if begin(folder, backend).name != "emit":
            return folder
    except BaseException as error:  # above all Ctrl-C: delete the folder, which is still empty
        if folder is not None:
            recording_folder.discard(folder)
        if not isinstance(error, OSError) or recording_folder.is_taken(error):
            raise
        _log.warning(
            "opscope: nothing is recorded into %s: %s", target, recording_folder.reason(error)
        )
        return None
    recording_folder.discard(folder)
    return None

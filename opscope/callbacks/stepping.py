"""What the callbacks of all frameworks share: steps told to the session, windows of them captured."""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from opscope.core import session
from opscope.core.session import Capture

from .steprange import StepRange


class ProfileCapture:
    """A capture that leaves a finished profile at ``path`` when it stops.

    Raises FileExistsError at its start where ``path`` exists and not ``force``.
    """

    def __init__(self, path: str | os.PathLike[str], backend: str = "auto", force: bool = False):
        self.path = Path(path)
        self.backend = backend
        self.force = force
        self._folder: Path | None = None
        self._inner: Capture | None = None

    def warmup(self) -> None:
        """Make the backend's capture, and let it prepare."""
        if self._folder is not None:
            return
        if self.path.exists() and not self.force:
            raise FileExistsError(f"{self.path} exists; force=True replaces it")
        if self.path.exists() and not (self.path / "meta.json").is_file():
            raise FileExistsError(
                f"{self.path} exists and is no profile: force does not replace it"
            )
        # by name: this room knows only core, whoever installs the callback has the whole package
        backends = import_module("opscope.backends")
        name = backends.choose().name if self.backend == "auto" else self.backend
        parent = self.path.absolute().parent
        parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix=f".{self.path.name}-", dir=parent))
        self._inner = backends.make(name, self._folder)
        if self._inner is not None:
            self._inner.warmup()

    def start(self) -> None:
        """Begin."""
        self.warmup()
        if self._inner is not None:
            self._inner.start()

    def stop(self) -> None:
        """End, and write the profile."""
        inner, self._inner = self._inner, None
        folder, self._folder = self._folder, None
        if folder is None:
            return
        try:
            if inner is not None:
                inner.stop()
                trace = import_module("opscope.backends.recorder").collect(folder)
                write = import_module("opscope.readers.opscope_profile").write
                write(self.path, trace, force=self.force)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def __repr__(self) -> str:
        return f"ProfileCapture({str(self.path)!r})"


class Stepping:
    """Counts a training loop's steps and captures [start, stop) of them into ``path``.

    Without ``path`` it only tells the steps: for a capture that something else makes (``opscope
    run``, Nsight Systems). With ``repeat`` other than 1 the windows are ``path`` with ``-0``,
    ``-1`` … before its suffix. Raises ValueError as StepRange does.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        start: int = 1,
        stop: int | None = 4,
        warmup: int = 0,
        repeat: int = 1,
        backend: str = "auto",
        force: bool = False,
    ) -> None:
        self.number = -1
        self._path = None if path is None else Path(path)
        self._repeat, self._backend, self._force = repeat, backend, force
        self._range: StepRange | None = None
        if path is not None:
            self._range = StepRange(start, stop, warmup, repeat, self._make)
        self._open = False
        #: Whether others told the steps before; None while this one does not.
        self._others: bool | None = None

    def _make(self, window: int) -> Capture:
        assert self._path is not None
        path = self._path
        if self._repeat != 1:
            path = path.with_name(f"{path.stem}-{window}{path.suffix}")
        return ProfileCapture(path, self._backend, self._force)

    def begin(self, model: object = None) -> None:
        """The training of ``model`` begins: until it ends this alone tells the steps."""
        if model is not None:
            session.trains(model)
        if self._range is not None:
            _package().init()
        if self._others is None:
            self._others = session.steps_by_user
        session.steps_by_user = True
        self._next(self.number + 1)

    def step_begins(self) -> None:
        """The next step begins; one that was not ended ends."""
        self.step_ends()
        self.number += 1
        self._next(self.number)
        session.begin_step(self.number)
        self._open = True

    def step_ends(self) -> None:
        """The step ends."""
        if self._open:
            self._open = False
            session.end_step()
            self._next(self.number + 1)

    def end(self) -> None:
        """Training is over, or failed."""
        self.step_ends()
        if self._range is not None:
            self._range.finish()
        if self._others is not None:
            session.steps_by_user = self._others
            self._others = None

    def _next(self, number: int) -> None:
        if self._range is not None:
            self._range.at(number)


def _package() -> Any:
    return import_module("opscope")

"""Find the source lines of a call: the user's innermost frames, preceded by the innermost frame of a
library that may contain the model (``core/code_files.py``)."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from opscope.adapters import known
from opscope.core.capture import source_files
from opscope.core.cells import cell
from opscope.core.code_files import (
    GENERATED,
    LIMIT,
    has_models,
    is_library_s,
    library_file,
    select_frames,
)
from opscope.core.schema import Frame

#: The folder of opscope's own code.
_OPSCOPE: Final = str(Path(__file__).absolute().parents[2])
#: Part of the names of files that TensorFlow generates from the user's functions.
_AUTOGRAPH: Final = "__autograph_generated_file"
#: Frames to walk for each call: a deep recursion must not make every op slow.
DEPTH: Final = 100
#: Places to remember; only programs that generate code while they run have more.
MAX_PLACES: Final = 65_536


class LibraryFile(str):
    """A library's file as the range text writes it; the user's files are plain ``str``."""

    __slots__ = ()


class Source:
    """A place in the user's program. Each place has one object, so identity is equality."""

    __slots__ = ("frames",)

    def __init__(self, frames: tuple[Frame, ...]) -> None:
        self.frames = frames


NOWHERE: Final = Source(())


class Sources:
    """Finds the place of a call by walking up its frames. Remembers every file and place."""

    def __init__(self) -> None:
        self._foreign = tuple(folder + os.sep for folder in _library_folders())
        self._here = os.getcwd() + os.sep
        #: Packages that run every model: each framework with an adapter, also one of another package. For
        #: transformers, whose adapter is for generation only, ``core/code_files.py`` lists these files.
        self._frameworks = frozenset(name for name in known.available() if not has_models(name))
        #: A code object's file name → the name in the range text, None if frames in it are left out.
        self._files: dict[str, str | None] = {}
        #: The files that are notebook cells: a cell's name changes when it runs again.
        self._cells: set[str] = set()
        self._places: dict[tuple[int, ...], Source] = {}
        # A place is keyed by the ids of its code objects, so they must live as long as the place.
        self._codes: dict[int, CodeType] = {}

    def find(self, frame: FrameType | None) -> Source:
        """Return the place of ``frame`` and its callers: the user's frames, preceded by a library's."""
        files = self._files
        codes: list[int] = []
        depth, left = DEPTH, LIMIT
        frames: list[Any] = []
        while frame is not None and depth:
            depth -= 1
            code = frame.f_code
            file = code.co_filename
            try:
                shown = files[file]
            except KeyError:
                shown = files[file] = self._classify(file)
            if shown is not None:
                users = type(shown) is str
                if users or not codes:
                    # the instruction rather than the line: reading the line searches a table
                    codes.append(id(code))
                    codes.append(frame.f_lasti)
                    frames.append(frame)
                if users:
                    left -= 1
                    if not left:
                        break
            frame = frame.f_back
        if not codes:
            return NOWHERE
        key = tuple(codes)
        source = self._places.get(key)
        return self._remember(key, frames) if source is None else source

    def shown(self, file: str) -> str | None:
        """Return the name that the range text gives a code object's file.

        It is a ``LibraryFile`` for a library that may contain the model, and None for a file that is
        neither that nor the user's.
        """
        if file not in self._files:
            self._files[file] = self._classify(file)
        return self._named(file)

    def _named(self, file: str) -> str | None:
        return (cell(file) if file in self._cells else None) or self._files[file]

    def users(self, file: str) -> str | None:
        """Return the name that the range text gives a code object's file, None if not the user's."""
        shown = self.shown(file)
        return None if isinstance(shown, LibraryFile) else shown

    def places(self, stack: Iterable[tuple[str, int]]) -> tuple[Frame, ...]:
        """Return the frames to keep of a stack of (file, line), innermost first."""
        shown_frames = ((self.shown(file), line) for file, line in stack)
        return select_frames(
            ((shown, line), not isinstance(shown, LibraryFile))
            for shown, line in shown_frames
            if shown is not None
        )

    def _remember(self, key: tuple[int, ...], found: list[FrameType]) -> Source:
        if len(self._places) >= MAX_PLACES:
            self._places.clear()
            self._codes.clear()
        for frame in found:
            self._codes[id(frame.f_code)] = frame.f_code
        frames = tuple(
            (self._named(frame.f_code.co_filename) or "?", frame.f_lineno or 0) for frame in found
        )
        source = self._places[key] = Source(frames)
        return source

    def _classify(self, file: str) -> str | None:
        typed = cell(file)
        if typed is not None:
            self._cells.add(file)
            return typed
        if file.startswith("<"):  # <frozen …>, <string>, code that torch.fx generated
            return None
        # the user's function as TensorFlow has rewritten it, with other line numbers
        if _AUTOGRAPH in file:
            return None
        path = os.path.abspath(file)
        if path.startswith(self._foreign) or GENERATED.search(path) or is_library_s(path):
            inside = library_file(path)
            if inside is None or inside.partition("/")[0] in self._frameworks:
                return None
            return LibraryFile(inside)
        shown = path.removeprefix(self._here)
        source_files.note(shown, path)
        return shown


def _library_folders() -> set[str]:
    """Return the folders of code that is not the user's: the standard library, installed packages,
    opscope, and wherever they are installed, every imported framework that has an adapter and the package
    that brought the adapter."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages())
    folders.add(site.getusersitepackages())
    folders.add(_OPSCOPE)
    packages = {target.partition(":")[0].partition(".")[0] for target in known.available().values()}
    for name in {*known.available(), *packages}:
        module = sys.modules.get(name)
        if module is not None and module.__file__:
            folders.add(os.path.dirname(os.path.abspath(module.__file__)))
    return folders | {os.path.realpath(folder) for folder in folders}

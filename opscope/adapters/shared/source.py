"""The source lines of a call: the user's innermost frames, and before them the innermost one of a library
that may hold the model (``core/code_files.py``)."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from opscope.adapters import known
from opscope.core.cells import cell
from opscope.core.code_files import LIMIT, is_library_s, kept, library_file
from opscope.core.schema import Frame

#: Where opscope's own code lies.
_OPSCOPE: Final = str(Path(__file__).absolute().parents[2])
#: What torch.compile generates: a folder of two letters, a hash, wherever its cache lies.
_GENERATED: Final = re.compile(r"[/\\][a-z2-7]{2}[/\\]c[a-z2-7]{51}\.py\Z")
#: In the names of files that TensorFlow makes of the user's functions.
_AUTOGRAPH: Final = "__autograph_generated_file"
#: Frames looked at for each call: a deep recursion must not make every op slow.
DEPTH: Final = 100
#: Places kept; more come only from code that is made while the program runs.
MAX_PLACES: Final = 65_536


class LibraryFile(str):
    """How the text writes a library's file, where others are the user's."""

    __slots__ = ()


class Source:
    """A place in the user's program. One object per place, so identity is equality."""

    __slots__ = ("frames",)

    def __init__(self, frames: tuple[Frame, ...]) -> None:
        self.frames = frames


NOWHERE: Final = Source(())


class Sources:
    """Finds the place of a call by walking up from it; remembers what each file and place is."""

    def __init__(self) -> None:
        self._foreign = tuple(folder + os.sep for folder in _library_folders())
        self._here = os.getcwd() + os.sep
        #: File name as the code object has it → how the text writes it; None where it does not.
        self._files: dict[str, str | None] = {}
        #: Those that are cells: what they are called changes when they run again.
        self._cells: set[str] = set()
        self._places: dict[tuple[int, ...], Source] = {}
        # A place is keyed by the id of its code objects: they must stay alive as long as it does.
        self._codes: dict[int, CodeType] = {}

    def find(self, frame: FrameType | None) -> Source:
        """The place of the frames at and above ``frame``: the user's, a library's before them."""
        files = self._files
        place: list[int] = []
        depth, left = DEPTH, LIMIT
        found: list[Any] = []
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
                if users or not place:
                    # The instruction rather than the line: the line is searched for in a table.
                    place.append(id(code))
                    place.append(frame.f_lasti)
                    found.append(frame)
                if users:
                    left -= 1
                    if not left:
                        break
            frame = frame.f_back
        if not place:
            return NOWHERE
        key = tuple(place)
        source = self._places.get(key)
        return self._remember(key, found) if source is None else source

    def shown(self, file: str) -> str | None:
        """How the text writes a code object's file, a ``LibraryFile`` where it is a library's; None of
        what is neither that nor the user's."""
        if file not in self._files:
            self._files[file] = self._classify(file)
        return self._named(file)

    def _named(self, file: str) -> str | None:
        return (cell(file) if file in self._cells else None) or self._files[file]

    def users(self, file: str) -> str | None:
        """How the text writes a code object's file; None where it is not the user's."""
        shown = self.shown(file)
        return None if isinstance(shown, LibraryFile) else shown

    def places(self, stack: Iterable[tuple[str, int]]) -> tuple[Frame, ...]:
        """The frames that are kept of a stack that is given as (file, line), innermost first."""
        known = ((self.shown(file), line) for file, line in stack)
        return kept(
            ((shown, line), not isinstance(shown, LibraryFile))
            for shown, line in known
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
        if file.startswith("<"):  # <frozen …>, <string>, graphs that torch.fx wrote
            return None
        if _AUTOGRAPH in file:  # the user's function as TensorFlow rewrote it: its lines are others
            return None
        path = os.path.abspath(file)
        if path.startswith(self._foreign) or _GENERATED.search(path) or is_library_s(path):
            inside = library_file(path)
            return None if inside is None else LibraryFile(inside)
        return path.removeprefix(self._here)


def _library_folders() -> set[str]:
    """Where code lies that is not the user's: the standard library, installed packages, opscope, and
    every framework that has an adapter, wherever it lies."""
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders.update(site.getsitepackages())
    folders.add(site.getusersitepackages())
    folders.add(_OPSCOPE)
    for name in known.available():
        module = sys.modules.get(name)
        if module is not None and module.__file__:
            folders.add(os.path.dirname(os.path.abspath(module.__file__)))
    return folders | {os.path.realpath(folder) for folder in folders}

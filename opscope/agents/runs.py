"""The runs that an agent opened, and which files it may open: those in the folders that its user named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from opscope.core.lru_cache import LRUCache
from opscope.profile import Profile, load
from opscope.readers import format_of
from opscope.remote.urls import is_pattern, is_url

#: Number of profiles that are kept open; a dropped one is read again.
_KEPT: Final = 4
#: Number of files that are looked at before a folder is opened or listed.
_FILES: Final = 20_000
#: Number of files whose format the listing of a folder determines.
_LISTED: Final = 200


class NotOpened(ValueError):
    """A file may not be opened, or no run is open; the message says why."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How the files of a run are read, as ``opscope.load`` takes it. ``gpu``: the name of its devices."""

    gpu: str | None = None
    model: str | None = None
    strict: bool = False
    unrelated: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """An open run: its number, the files as they were given, and where they are."""

    number: int
    files: tuple[str, ...]
    paths: tuple[str, ...]
    reading: Reading = Reading()

    @property
    def name(self) -> str:
        """The run in words: its number and its files."""
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{self.number}: {self.files[0]}{more}"


@dataclass(slots=True)
class Runs:
    """The runs by number. ``roots``: the files and folders that may be opened; None: the user typed the
    files, so any. ``source_root``: the folder whose source files may be shown, else those of ``roots``."""

    roots: tuple[Path, ...] | None = None
    source_root: Path | None = None
    reading: Reading = Reading()
    opened: list[Run] = field(default_factory=list)
    _profiles: LRUCache[Profile] = field(default_factory=lambda: LRUCache(_KEPT), repr=False)

    def open(self, files: Sequence[str], gpu: str | None = None) -> Run:
        """Open the files of one run, and return it; files that are open already give the same run. Raises
        NotOpened for a file that may not be opened, BadInput for one that cannot be read."""
        if not files:
            raise NotOpened("no file was named")
        paths = tuple(path for file in files for path in self._paths(file))
        reading = Reading(gpu or self.reading.gpu, self.reading.model, self.reading.strict,
                          self.reading.unrelated)  # fmt: skip
        for run in self.opened:
            if (run.paths, run.reading) == (paths, reading):
                return run
        run = Run(len(self.opened) + 1, tuple(files), paths, reading)
        self.profile(run)
        self.opened.append(run)
        return run

    def run(self, name: str | None) -> Run:
        """Return the run of this number or file; without a name the last one that was opened.

        If nothing is open and only one file may be opened, it is that file. Raises NotOpened.
        """
        if name is None:
            if self.opened:
                return self.opened[-1]
            if self.roots is not None and len(self.roots) == 1 and _is_run(self.roots[0]):
                return self.open([str(self.roots[0])])
            raise NotOpened("no run is open: call open with the files of one")
        if name.isdecimal() and 0 < int(name) <= len(self.opened):
            return self.opened[int(name) - 1]
        for run in self.opened:
            if name in run.files:
                return run
        return self.open([name])

    def profile(self, run: Run) -> Profile:
        """Return the profile of a run, read again if it was given up. Raises BadInput."""

        def read() -> Profile:
            reading, paths = run.reading, list(run.paths)
            return load(
                paths[0] if len(paths) == 1 else paths,
                gpu=reading.gpu,
                model=reading.model,
                strict=reading.strict,
                unrelated=reading.unrelated,
            )

        return self._profiles.get((run.paths, run.reading), read)

    @property
    def source_roots(self) -> tuple[Path, ...]:
        """The folders whose source files may be shown."""
        if self.source_root is not None:
            return (self.source_root,)
        return tuple(root for root in self.roots or () if root.is_dir() and not _is_profile(root))

    def traces(self) -> list[tuple[str, str]]:
        """Return files and profiles that may be opened, with their formats, by name."""
        paths = sorted(path for root in self.roots or () for path in islice(_files(root), _FILES))
        inside = [(name, path) for name, path in paths[:_LISTED] if self._inside(path) is not None]
        entries = ((name, format_of(path)) for name, path in inside)
        return [(name, form) for name, form in entries if form is not None]

    def _paths(self, file: str) -> Iterator[str]:
        """Yield the paths of a file or pattern, each in the folders that the user named."""
        if self.roots is None:
            yield file
            return
        if is_url(file):
            raise NotOpened(
                f"{file}: a URL is not opened: only files in the folders that were named"
            )
        try:
            encoded = os.fsencode(file)
        except UnicodeEncodeError:  # half a surrogate pair, which JSON can write
            encoded = b"\0"
        if b"\0" in encoded:
            raise NotOpened("this is not the name of a file")
        paths = [self._inside(path) for path in self._candidates(file)]
        # the same message in both cases, so that nobody learns which files exist outside
        if not paths or None in paths:
            raise NotOpened(
                f"{file}: no such file in the folders that were named, or it leads out of them"
            )
        yield from (os.fspath(path) for path in paths if path is not None)

    def _candidates(self, file: str) -> Iterator[Path]:
        """Yield the paths that a name may mean: below each root, or a root itself."""
        for root in self.roots or ():
            below = root if root.is_dir() and not _is_profile(root) else root.parent
            path = below / file  # an absolute path replaces ``below``
            if self._inside(path) is not None:
                yield path
                return
            if is_pattern(file) and not os.path.isabs(file) and ".." not in Path(file).parts:
                matches = sorted(below.glob(file))
                if matches:
                    yield from matches[:_FILES]
                    return

    def _inside(self, path: Path) -> Path | None:
        """Return the real path if it, and all that lies in it, is in a root; None otherwise."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):  # it does not exist, or its links form a circle
            return None
        roots = [root.resolve() for root in self.roots or ()]

        def is_inside(target: Path) -> bool:
            return any(target == root or target.is_relative_to(root) for root in roots)

        if not is_inside(real):
            return None
        return real if all(is_inside(link.resolve()) for link in _links(real)) else None


def _links(folder: Path) -> Iterator[Path]:
    """Yield the links in a folder. Raises NotOpened for one with too many files to look at."""
    count = 0
    for parent, folders, files in os.walk(folder):
        count += len(files) + len(folders)
        if count > _FILES:
            raise NotOpened(f"{folder.name}: it has more than {_FILES:,} files: name some of them")
        yield from (
            path for name in (*files, *folders) if (path := Path(parent, name)).is_symlink()
        )


def _is_profile(path: Path) -> bool:
    return path.is_dir() and path.suffix == ".opscope"


def _is_run(path: Path) -> bool:
    """Whether a root is one run itself: a file, or a profile."""
    return path.is_file() or _is_profile(path)


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files and profiles below a root that may be traces, named as ``open`` takes them."""
    if _is_run(root):
        yield root.name, root
        return
    for parent, folders, files in os.walk(root):
        profiles = [name for name in folders if name.endswith(".opscope")]
        folders[:] = [name for name in folders if name not in profiles and not name.startswith(".")]
        for name in (*profiles, *filter(_looks_like_a_trace, files)):
            path = Path(parent, name)
            if path.is_file() or path.is_dir():  # no pipe and no device
                yield os.fspath(path.relative_to(root)), path


#: Suffixes that traces have; other files are opened as well, but not listed.
_ENDS: Final = (".json", ".json.gz", ".jsonl", ".sqlite", ".db", ".rpd", ".pb", ".nvvp", ".csv", ".parquet",
                ".txt.gz", ".zip", ".tar.gz", ".npy", ".opscope")  # fmt: skip


def _looks_like_a_trace(name: str) -> bool:
    return name.endswith(_ENDS) and not name.startswith(".")

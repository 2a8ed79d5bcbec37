"""Profiles of the shared traces, which a worker reads, links and attributes once: tests only look at them.

``load`` stands in the place of ``opscope.load`` where a test does not change its profile, and asks neither what
is computed when, nor where it is kept, nor how the file is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from opscope.profile import Profile
from opscope.profile import load as read

#: The tables and frames of all profiles that are held may take so many bytes; the last one is always held.
MOST = 512 << 20
ROOT = Path(os.environ.get("OPSCOPE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def _print_of(frame: pl.DataFrame) -> tuple[Any, ...]:
    """What changes with a frame: its columns, its rows and their order."""
    rows = frame.hash_rows() if frame.width else pl.Series(dtype=pl.UInt64)
    return (
        tuple(frame.schema.items()),
        len(frame),
        (rows * pl.int_range(1, len(rows) + 1, eager=True)).sum(),
    )


class Held:
    """A profile, the tests that were given it, and what its frames were when they were first seen."""

    def __init__(self, profile: Profile) -> None:
        self.profile, self.tests = profile, []
        self._prints: dict[tuple[str, str], tuple[pl.DataFrame, tuple[Any, ...]]] = {}
        self.check()

    def _frames(self) -> Mapping[tuple[str, str], pl.DataFrame]:
        # attribution adds notes to the trace
        tables = {
            ("table", name): frame
            for name, frame in self.profile.trace.tables.items()
            if name != "notes"
        }
        return tables | {("frame", name): frame for name, frame in self.profile._frames.items()}

    def size(self) -> int:
        return sum(frame.estimated_size() for frame in self._frames().values())

    def check(self) -> None:
        """Raise AssertionError if a frame is no longer what it was; remember those that are new."""
        frames = self._frames()
        for key, (frame, before) in self._prints.items():
            same = frames.get(key) is frame and _print_of(frame) == before
            assert same, (
                f"a test changed the {key[0]} {key[1]} of a shared profile: of {self.tests}"
            )
        self._prints |= {
            key: (frame, _print_of(frame))
            for key, frame in frames.items()
            if key not in self._prints
        }


class Shelf:
    """The profiles that are held, those used last at the end."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._held: dict[tuple[Any, ...], Held] = {}

    def load(self, path: Any, **how: Any) -> Profile:
        key = (str(path), *sorted((name, str(value)) for name, value in how.items()))
        held = self._held.pop(key, None)
        if held is None:
            held = Held(read(path, **how))
        else:
            held.check()
        held.tests.append(os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0])
        self._held[key] = held
        while len(self._held) > 1 and sum(one.size() for one in self._held.values()) > self._most:
            self._held.pop(next(iter(self._held))).check()
        return held.profile

    def check(self) -> None:
        for held in self._held.values():
            held.check()


SHELF = Shelf()


def load(path: Any, **how: Any) -> Profile:
    """Return the profile of a file of the shared folder, the same to all tests; of another file, its own."""
    shared = isinstance(path, (str, Path)) and ROOT.resolve() in Path(path).resolve().parents
    return SHELF.load(path, **how) if shared else read(path, **how)

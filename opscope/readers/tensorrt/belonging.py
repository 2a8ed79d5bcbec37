"""Decide which files belong to one engine: by their names, and by the names of their layers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from opscope.readers.errors import BadInput

from .decoding import decode
from .parts import Part

#: The ends of the names that trtexec's users and TREx give these files, the longest first.
ENDINGS: Final = (
    ".profile.metadata.json",
    ".build.metadata.json",
    ".metadata.json",
    ".graph.json",
    ".profile.json",
    ".timing.json",
    ".layers.json",
    ".times.json",
    ".build.log",
    ".profile.log",
)
#: The least share of the layers with times that must be among the engine's layers.
_MOST: Final = 0.5


@dataclass(slots=True)
class Engine:
    """The files of one engine. ``beside``: files found by their names, which the user did not name."""

    parts: list[Part] = field(default_factory=list)
    beside: list[Part] = field(default_factory=list)

    def first(self, kind: str) -> Part | None:
        """Return the first part that has this kind of content."""
        return next((part for part in (*self.parts, *self.beside) if kind in part.kinds), None)

    @property
    def paths(self) -> list[str]:
        return [os.fspath(part.path) for part in (*self.parts, *self.beside)]


def stem(path: Path) -> str:
    """Return a file's name without the suffix that names its content."""
    for ending in ENDINGS:
        if path.name.endswith(ending) and path.name != ending:
            return path.name.removesuffix(ending)
    return path.stem


def found_beside(path: Path) -> list[Path]:
    """Return the files of the engine of ``path`` that lie beside it, by their names."""
    if not path.name.endswith(ENDINGS):
        return []
    name = stem(path)
    beside = (path.with_name(name + ending) for ending in ENDINGS)
    return [file for file in beside if file != path and file.is_file()]


def alone(path: Path) -> Engine:
    """Return the engine of one file, with the files beside it that belong to the same engine. Raises
    BadInput."""
    engine = Engine([decode(path)])
    for other in found_beside(path):
        _add_beside(engine, other)
    return engine


def _add_beside(engine: Engine, path: Path) -> None:
    """Add a file beside the others, or say in a note why it is left out."""
    notes = engine.parts[0].notes
    try:
        part = decode(path)
    except BadInput as error:
        notes.append(("warning", f"left out: {path.name} beside it: {error.what}", 1))
        return
    taken = next((kind for kind in part.kinds if engine.first(kind) and kind != "device"), None)
    if taken is not None:
        return
    why = _contradiction([*engine.parts, *engine.beside], part)
    if why is not None:
        notes.append(("warning", f"left out: {path.name} beside it: {why}", 1))
        return
    engine.beside.append(part)


def together(paths: Sequence[Path]) -> tuple[list[Engine], list[BadInput]]:
    """Return the engines of several files (those of one name, and those whose layers have the same names),
    and what cannot be read.

    Raises BadInput for a file of times that belongs to none of the engines, and for one that repeats another
    file of its engine.
    """
    named: dict[tuple[Path, str], Engine] = {}
    failed: list[BadInput] = []
    for path in paths:
        try:
            part = decode(path)
        except BadInput as error:
            failed.append(error)
            continue
        engine = named.setdefault((path.parent, stem(path)), Engine())
        why = _contradiction(engine.parts, part)
        if why is not None:
            raise BadInput(path, why)
        engine.parts.append(part)
    given = {path.resolve() for path in paths}
    for engine in named.values():
        for part in list(engine.parts):
            for other in found_beside(part.path):
                if other.resolve() not in given:
                    given.add(other.resolve())
                    _add_beside(engine, other)
    return _merge(list(named.values())), failed


def _merge(engines: list[Engine]) -> list[Engine]:
    """Join engines with different names: times are joined with the engine whose layers have the same
    names, other files with the only engine."""
    complete = [engine for engine in engines if engine.first("layers")]
    for engine in [
        engine for engine in engines if not engine.first("layers") and engine.first("times")
    ]:
        fitting = [
            one
            for one in complete
            if not one.first("times") and _contradiction(one.parts, engine.parts[0]) is None
        ]
        if len(fitting) == 1:
            fitting[0].parts += engine.parts
            engines.remove(engine)
        elif len(complete) == 1 and len(engines) == 2 and not complete[0].first("times"):
            part = next(part for part in engine.parts if "times" in part.kinds)
            raise BadInput(part.path, _contradiction(complete[0].parts, part) or "another engine's")
    core = [engine for engine in engines if engine.first("layers") or engine.first("times")]
    if len(core) != 1:
        return engines
    for engine in [engine for engine in engines if engine is not core[0]]:
        taken = any(core[0].first(kind) for part in engine.parts for kind in part.kinds)
        if not taken:
            core[0].parts += engine.parts
            engines.remove(engine)
    return engines


def _contradiction(parts: Sequence[Part], other: Part) -> str | None:
    """Return why ``other`` does not belong to the engine of ``parts``; None if nothing contradicts."""
    for part in parts:
        for kind in ("layers", "times", "runs"):
            if kind in part.kinds and kind in other.kinds:
                return f"the {_WORDS[kind]} of an engine twice (also in {part.path.name})"
        for graph, profile in ((part, other), (other, part)):
            if graph.layers and profile.times is not None:
                why = _no_times_of(graph, profile)
                if why is not None:
                    return why
    return None


_WORDS: Final = {"layers": "layers", "times": "layers' times", "runs": "runs"}


def _no_times_of(graph: Part, profile: Part) -> str | None:
    assert profile.times is not None
    names = {layer.name for layer in graph.layers}
    missing = [layer.name for layer in profile.times.layers if layer.name not in names]
    if len(missing) <= _MOST * len(profile.times.layers):
        return None
    count = len(profile.times.layers)
    return (
        f"times of another engine: {len(missing)} of {count} layers are not in {graph.path.name}"
        f" (first: {missing[0][:80]!r})"
    )

"""Make the partial of a trace: read it, attribute it, and write its statistics as one small file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from opscope import readers
from opscope.profile import load
from opscope.readers import at_urls, containers
from opscope.readers.errors import TRUNCATED, BadInput
from opscope.remote.urls import is_url

from . import packed, places
from .identity import FAILED, SUFFIX, identity_of, name_of, partial_name

__all__ = ["partial_name", "sources", "write_failure", "write_partial"]


def write_partial(
    source: str | os.PathLike[str],
    parts: str | os.PathLike[str],
    *,
    gpu: str | None = None,
    model: str | os.PathLike[str] | None = None,
    advice: bool = False,
    force: bool = False,
) -> str:
    """Read the trace or profile ``source`` (path or URL) and write its partial into the folder ``parts``
    (path or URL), which is created if needed; return the partial's name.

    The partial appears completely or not at all. If it exists already, nothing is read, unless ``force`` is
    set. ``gpu`` and ``model`` are those of ``opscope.load``; with ``advice`` the partial also holds the
    detectors' findings, which take about as long as reading the file. Raises opscope.errors.BadInput for a
    file that cannot be read or was replaced meanwhile; UnknownDevice for an unknown ``gpu``.
    """
    identity = identity_of(source)
    name = name_of(identity, gpu, model, advice)
    if not force and places.exists(parts, name):
        return name
    profile = load(source, gpu=gpu, model=model)
    if TRUNCATED in profile.trace.origin:  # no progress bar
        raise BadInput(identity.place, readers.alone(profile.trace))
    if identity_of(source) != identity:
        raise BadInput(identity.place, "was replaced while it was read: make its partial again")
    from .statistics import statistics  # lazy: names of partials need no analysis

    about, tables = statistics(profile, advice)
    about["source"] = {
        "place": identity.place,
        "version": identity.version,
        "size": identity.size,
        "gpu": gpu,
    }
    with places.written(parts, name) as local:
        packed.write(local, about, tables)
    places.remove(parts, failed_name(name))
    return name


def sources(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the files that ``paths`` mean, each of which gets a partial: the matches of a pattern, and the
    traces in a folder that is not a trace itself.

    Raises BadInput for a pattern without matches and for a folder without traces.
    """
    found: list[str] = []
    for path in at_urls.expanded(paths):
        text = os.fspath(path)
        if not is_url(text) and os.path.isdir(text) and readers.format_of(text) == "folder":
            inside, archives = readers.parted(Path(text))
            if not inside:
                raise BadInput(text, readers.none_in(Path(text), archives))
            found += map(os.fspath, inside)
        elif not is_url(text) and containers.split(Path(text)) is not None:
            reason = "a partial is of a file, not of a member of an archive: unpack the archive"
            raise BadInput(text, reason)
        else:
            found.append(text)
    return found


def failed_name(name: str) -> str:
    """Return the name of the note that the file of the partial ``name`` could not be read."""
    return name.removesuffix(SUFFIX) + FAILED


def write_failure(
    source: str | os.PathLike[str],
    parts: str | os.PathLike[str],
    reason: str,
    *,
    gpu: str | None = None,
    model: str | os.PathLike[str] | None = None,
    advice: bool = False,
) -> str | None:
    """Write a note into ``parts`` on why ``source`` could not be read, for the merge to report; return its
    name.

    A later partial of the same file removes the note. Returns None if the file cannot even be found.
    """
    try:
        identity = identity_of(source)
    except BadInput:
        return None
    failure: dict[str, Any] = {"place": identity.place, "what": reason}
    name = failed_name(name_of(identity, gpu, model, advice))
    with places.written(parts, name) as local:
        Path(local).write_text(json.dumps(failure) + "\n", "utf-8")
    return name

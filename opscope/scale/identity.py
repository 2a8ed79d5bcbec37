"""The identity of a trace file (place, version, size), from which the name of its partial is made."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opscope.profile.profile import ANALYSIS
from opscope.readers import at_urls
from opscope.readers.errors import BadInput
from opscope.remote.urls import is_pattern, is_url, shown

from .places import told

#: The suffix of the file names of partials.
SUFFIX: Final = ".partial.parquet"
#: The suffix of the name of a note that says why a file could not be read.
FAILED: Final = ".failed.json"
_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Identity:
    """The current identity of a source: ``place`` (URL without credentials, or absolute path), ``version``
    (etag, generation or time of change; None if the store has none) and ``size`` in bytes."""

    place: str
    version: str | None
    size: int | None


def identity_of(source: str | os.PathLike[str]) -> Identity:
    """Return the identity of a file, or of a folder that is one trace, without reading it. Raises
    BadInput."""
    if is_url(source):
        return _of_url(os.fspath(source))
    location = os.path.abspath(source)
    if os.path.isdir(location):
        return _of_folder(Path(location))
    try:
        status = os.stat(location)
    except OSError as error:
        raise BadInput(source, error.strerror or "cannot be read") from error
    return Identity(location, str(status.st_mtime_ns), status.st_size)


def _of_url(url: str) -> Identity:
    if is_pattern(url):
        raise BadInput(shown(url), "a partial is of one file: give its own URL, not a pattern")
    file = at_urls.listed(url)[0]
    if not file.is_folder:
        return Identity(shown(url), file.version, file.size)
    from opscope.remote.listed import under  # lazy: few traces are at URLs

    with told(url):
        inside = under(url)
    versions = [(name, one.version, one.size) for name, one in sorted(inside.items())]
    return Identity(
        shown(url).rstrip("/"), _digest(versions), sum(one.size or 0 for one in inside.values())
    )


def _of_folder(folder: Path) -> Identity:
    files = [
        (
            str(path.relative_to(folder).as_posix()),
            (status := path.stat()).st_mtime_ns,
            status.st_size,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    return Identity(str(folder), _digest(files), sum(size for _, _, size in files))


def partial_name(
    source: str | os.PathLike[str],
    *,
    gpu: str | None = None,
    model: str | os.PathLike[str] | None = None,
    advice: bool = False,
) -> str:
    """Return the name of the partial of ``source``, without reading the source. Raises BadInput.

    Equal names mean the same source, analysed by the same version with the same options, so an existing
    partial of that name can be reused.
    """
    return name_of(identity_of(source), gpu, model, advice)


def name_of(
    identity: Identity,
    gpu: str | None,
    model: str | os.PathLike[str] | None,
    advice: bool = False,
) -> str:
    """Return the name of the partial of the source with this identity."""
    beside = None if model is None else identity_of(model)
    asked = [
        ANALYSIS,
        [identity.place, identity.version, identity.size],
        gpu,
        beside and [beside.place, beside.version, beside.size],
        advice,
    ]
    name = identity.place.rstrip("/").rpartition("/")[2].partition(".")[0]
    clean = re.sub(r"[^A-Za-z0-9_-]+", "-", name)[:_SHOWN].strip("-") or "trace"
    return f"{clean}-{_digest(asked)}{SUFFIX}"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:20]

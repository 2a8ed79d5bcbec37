"""List what a URL means: one file, a folder, or the files of a pattern; each with its identity."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .errors import NotReached
from .stores import below, path_in, store, tried
from .urls import is_pattern, is_web, scheme_of

#: A pattern or a folder with more files than this is refused: it is not what anyone means.
MOST: Final = 1_000_000
#: The file that makes a folder a profile or a recording.
META: Final = "meta.json"
#: Keys of fsspec's ``info`` that tell one version of an object from the next, the most exact first.
_VERSIONS: Final = (
    "generation", "ETag", "etag", "VersionId", "version_id", "md5Hash", "content_md5", "LastModified",
    "last_modified", "mtime", "updated",
)  # fmt: skip


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """A file or folder at a URL. ``size`` in bytes and ``version`` (etag or generation) identify a file's
    content; None where the store does not say."""

    url: str
    is_folder: bool = False
    size: int | None = None
    version: str | None = None


def look(url: str, opened: Any = None) -> Found:
    """Return what is at ``url``. Raises NotReached, for what is not there too."""
    place = url if is_web(url) else url.rstrip("/")
    known = opened or store(url)
    info = tried(url, lambda: known.info(path_in(known, place)))
    return _found(place, info)


def matching(pattern: str) -> list[Found]:
    """Return what the pattern matches, by name in natural order. Raises NotReached, for no match too."""
    known = store(pattern)
    found = tried(pattern, lambda: known.glob(path_in(known, pattern), detail=True))
    if not found:
        raise NotReached(pattern, "matches nothing")
    return _sorted(pattern, found.values())


def entries(url: str) -> list[Found]:
    """Return what is in the folder at ``url``, by name in natural order. Raises NotReached."""
    known, place = store(url), url.rstrip("/")
    path = path_in(known, place)
    infos = tried(url, lambda: known.ls(path, detail=True))
    # stores name the folder itself among its entries where somebody made a marker for it
    return _sorted(url, [one for one in infos if str(one["name"]).strip("/") != path.strip("/")])


def under(url: str) -> dict[str, Found]:
    """Return the files in the folder at ``url`` and below, by their path in it. Raises NotReached.

    A name that leads out of the folder is refused.
    """
    known, place = store(url), url.rstrip("/")
    base = path_in(known, place).strip("/")
    infos = tried(url, lambda: below(known, base))
    _bound(url, len(infos))
    found = {}
    for name, info in sorted(infos.items()):
        inner = str(name).strip("/").removeprefix(base).strip("/")
        if not inner:
            continue
        clean = posixpath.normpath(inner)
        if clean != inner or clean.startswith(("..", "/")) or "\\" in inner or "\0" in inner:
            raise NotReached(url, f"has a file of an unsafe name: {inner[:80]!r}")
        found[inner] = _found(f"{place}/{inner}", info)
    return found


def expand(url: str) -> list[Found]:
    """Return what ``url`` names: the files of a pattern, or the one file or folder. Raises NotReached."""
    return matching(url) if is_pattern(url) else [look(url)]


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts ``rank2`` before ``rank10``."""
    return [
        (0, int(part), part) if part.isdecimal() and len(part) < 19 else (1, 0, part)
        for part in re.split(r"(\d+)", text)
        if part
    ]


def _sorted(url: str, infos: Any) -> list[Found]:
    known = list(infos)
    _bound(url, len(known))
    scheme = scheme_of(url)
    account = url.partition("://")[2].partition("/")[0].partition("@")
    found = []
    for info in known:
        name = str(info["name"]).lstrip("/")
        if account[1]:  # abfss://container@account/…: fsspec leaves the account out
            container, _, rest = name.partition("/")
            name = f"{container}@{account[2]}/{rest}"
        found.append(_found(f"{scheme}://{name}", info))
    return sorted(found, key=lambda one: natural(one.url))


def _bound(url: str, many: int) -> None:
    if many > MOST:
        raise NotReached(url, f"names {many:,} files; at most {MOST:,} are taken")


def _found(url: str, info: Mapping[str, Any]) -> Found:
    if info.get("type") == "directory":
        return Found(url.rstrip("/"), True)
    size = info.get("size")
    version = next((str(info[key]) for key in _VERSIONS if info.get(key)), None)
    return Found(url, False, int(size) if size is not None else None, version)

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

#: A pattern or a folder with more files than this is refused: nobody wants that many.
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
    content; None if the store does not say."""

    url: str
    is_folder: bool = False
    size: int | None = None
    version: str | None = None


def look(url: str, opened: Any = None) -> Found:
    """Return what is at ``url``. Raises NotReached, also if it does not exist."""
    location = url if is_web(url) else url.rstrip("/")
    opened_store = opened or store(url)
    info = tried(url, lambda: opened_store.info(path_in(opened_store, location)))
    return _find(location, info)


def matching(pattern: str) -> list[Found]:
    """Return the matches of the pattern, by name in natural order. Raises NotReached, for no match too."""
    opened_store = store(pattern)
    infos = tried(pattern, lambda: opened_store.glob(path_in(opened_store, pattern), detail=True))
    if not infos:
        raise NotReached(pattern, "matches nothing")
    return _sort(pattern, infos.values())


def entries(url: str) -> list[Found]:
    """Return the content of the folder at ``url``, by name in natural order. Raises NotReached."""
    opened_store, location = store(url), url.rstrip("/")
    path = path_in(opened_store, location)
    infos = tried(url, lambda: opened_store.ls(path, detail=True))
    # stores list the folder itself as an entry if somebody made a marker for it
    return _sort(url, [info for info in infos if str(info["name"]).strip("/") != path.strip("/")])


def under(url: str) -> dict[str, Found]:
    """Return the files in the folder at ``url`` and below, by their path in it. Raises NotReached.

    A name that leads out of the folder is refused.
    """
    opened_store, location = store(url), url.rstrip("/")
    base = path_in(opened_store, location).strip("/")
    infos = tried(url, lambda: below(opened_store, base))
    _bound(url, len(infos))
    files_by_name = {}
    for name, info in sorted(infos.items()):
        inner = str(name).strip("/").removeprefix(base).strip("/")
        if not inner:
            continue
        clean = posixpath.normpath(inner)
        if clean != inner or clean.startswith(("..", "/")) or "\\" in inner or "\0" in inner:
            raise NotReached(url, f"has a file of an unsafe name: {inner[:80]!r}")
        files_by_name[inner] = _find(f"{location}/{inner}", info)
    return files_by_name


def expand(url: str) -> list[Found]:
    """Return the files of the pattern ``url``, or the one file or folder there. Raises NotReached."""
    return matching(url) if is_pattern(url) else [look(url)]


def natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts ``rank2`` before ``rank10``."""
    return [
        (0, int(part), part) if part.isdecimal() and len(part) < 19 else (1, 0, part)
        for part in re.split(r"(\d+)", text)
        if part
    ]


def _sort(url: str, infos: Any) -> list[Found]:
    known_infos = list(infos)
    _bound(url, len(known_infos))
    scheme = scheme_of(url)
    account = url.partition("://")[2].partition("/")[0].partition("@")
    files = []
    for info in known_infos:
        name = str(info["name"]).lstrip("/")
        if account[1]:  # abfss://container@account/…: fsspec leaves the account out
            container, _, rest = name.partition("/")
            name = f"{container}@{account[2]}/{rest}"
        files.append(_find(f"{scheme}://{name}", info))
    return sorted(files, key=lambda file: natural(file.url))


def _bound(url: str, count: int) -> None:
    if count > MOST:
        raise NotReached(url, f"names {count:,} files; at most {MOST:,} are taken")


def _find(url: str, info: Mapping[str, Any]) -> Found:
    if info.get("type") == "directory":
        return Found(url.rstrip("/"), True)
    size = info.get("size")
    version = next((str(info[key]) for key in _VERSIONS if info.get(key)), None)
    return Found(url, False, int(size) if size is not None else None, version)

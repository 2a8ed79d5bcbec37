"""Read traces at URLs: each is copied to scratch, read, and removed; messages and traces name the URL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.remote.errors import NotReached
from opscope.remote.urls import is_pattern, is_url, is_web, shown

from .errors import BadInput, NotATrace
from .heads import SIDES, SQLITE

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace
    from opscope.remote.listed import Found

#: Key of a trace's origin: the URLs that it was read from, each with its size and version.
SOURCES = "sources"


class GivenTwice(BadInput):
    """Two of the files are the same and would count twice, which is an error even if files may fail."""


def expanded(paths: Iterable[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    """Return the paths with each pattern (``*``, ``?``, ``[``) replaced by its matches.

    A local path that exists is not a pattern. Raises BadInput for a pattern that matches nothing.
    """
    paths_expanded: list[str | os.PathLike[str]] = []
    for path in paths:
        text = os.fspath(path)
        if not is_pattern(text):
            paths_expanded.append(path)
        elif is_url(text):
            paths_expanded += [entry.url for entry in listed(text)]
        elif os.path.lexists(text):
            paths_expanded.append(path)
        else:
            paths_expanded += matches(text)
    return paths_expanded


def matches(pattern: str) -> list[str]:
    """Return the local files that match, in natural order. Raises BadInput if there are none."""
    from glob import glob

    from opscope.remote.listed import natural  # lazy: few paths are patterns

    paths = sorted(glob(pattern), key=natural)
    if not paths:
        raise BadInput(pattern, "matches nothing" if is_pattern(pattern) else "no such file")
    return paths


def listed(url: str) -> list[Found]:
    """Return the objects that the URL or its pattern names. Raises BadInput."""
    from opscope.remote.listed import expand  # lazy: few traces are at URLs

    with _tell(url):
        return expand(url)


def entries(url: str) -> tuple[bool, list[Found]]:
    """Return whether the folder at ``url`` is a profile or recording, and its content. Raises BadInput."""
    from opscope.remote import listed as listing  # lazy: few traces are at URLs

    with _tell(url):
        entries_there = [
            entry for entry in listing.entries(url) if not _name(entry.url).startswith(".")
        ]
    return any(_name(entry.url) == listing.META for entry in entries_there), entries_there


@contextlib.contextmanager
def at_hand(url: str, file: Found | None = None) -> Iterator[Path]:
    """Yield a copy of the file or folder at ``url``, removed at the end; in a BadInput about the copy, the
    URL is named."""
    from opscope.remote.copied import copied, scratch  # lazy: few traces are at URLs

    with scratch() as folder:
        with _tell(url):
            local = copied(file or listed(url)[0], folder)
            if local.is_file():
                _copy_sides(url, local)
        try:
            yield local
        except BadInput as error:
            # the error names a file already, perhaps another one: several copies may exist
            if is_url(error.path):
                raise
            raise _rename(error, folder, local, url) from error


def _copy_sides(url: str, local: Path) -> None:
    """Copy the side files of the database at ``url``, because without them the database has other rows."""
    from opscope.remote.copied import copied  # lazy: few traces are at URLs
    from opscope.remote.listed import look

    with local.open("rb") as file:
        if file.read(len(SQLITE)) != SQLITE:
            return
    location, mark, query = url.partition("?") if is_web(url) else (url, "", "")
    for suffix in SIDES:
        try:
            side = look(location + suffix + mark + query)
        except NotReached:  # it does not exist, as for most databases
            continue
        copied(side, local.parent).rename(local.with_name(local.name + suffix))


@contextlib.contextmanager
def local(path: str | os.PathLike[str] | None) -> Iterator[str | os.PathLike[str] | None]:
    """Yield the path itself, or a copy of the file at a URL, removed at the end."""
    if not is_url(path):
        yield path
        return
    with at_hand(str(path)) as copy:
        yield copy


def read(file: Found, open_local: Callable[[Path], Trace]) -> Trace:
    """Return the trace in the file or folder. Raises BadInput."""
    with at_hand(file.url, file) as copy:
        trace = open_local(copy)
        for name in trace.tables:  # a profile reads its tables lazily, and the copy will be removed
            trace[name]
    name_urls(trace, file, copy)
    return trace


def name_urls(trace: Trace, file: Found, copy: Path) -> None:
    """Let the trace name ``file`` instead of its copy, and keep the URL's identity."""
    name, here = shown(file.url), os.fspath(copy)
    rename(trace, lambda text: text.replace(here, name))
    trace.origin[SOURCES] = [{"url": name, "size": file.size, "version": file.version}]


def rename(trace: Trace, named: Callable[[str], str]) -> None:
    """Replace texts in the trace's origin and notes by what ``named`` returns for each."""
    import polars as pl

    trace.origin = _replace(trace.origin, named)
    if trace.has("notes"):
        notes = trace["notes"]
        texts = [pl.Series(one.name, [text if text is None else named(text) for text in one]) for one in notes
                 if one.dtype == pl.String]  # fmt: skip
        trace.tables["notes"] = notes.with_columns(texts)


def same_content(files: Iterable[Found]) -> None:
    """Raise GivenTwice if two of the files have one URL, or the same size and version."""
    seen: dict[Any, str] = {}
    for file in files:
        if file.url in seen:
            raise GivenTwice(shown(file.url), "given twice")
        seen[file.url] = file.url
        if file.size and file.version:
            before = seen.setdefault((file.size, file.version), file.url)
            if before != file.url:
                raise GivenTwice(
                    shown(file.url),
                    f"has the same content as {shown(before)}: it would count twice",
                )


def _name(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


@contextlib.contextmanager
def _tell(url: str) -> Iterator[None]:
    try:
        yield
    except NotReached as error:
        reason = error.what
        if "!" in url:
            reason += (
                "; a member of an archive cannot be chosen behind a URL: copy the archive first"
            )
        raise BadInput(shown(url) if error.url == shown(url) else error.url, reason) from error


def _rename(error: BadInput, folder: Path, copy: Path, url: str) -> BadInput:
    name = shown(url)
    inner = error.path.removeprefix(os.fspath(copy))
    path = name + inner if inner != error.path else name
    message = error.what.replace(os.fspath(copy), name).replace(os.fspath(folder), name)
    return NotATrace(path, message) if isinstance(error, NotATrace) else BadInput(path, message)


def _replace(value: Any, named: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return named(value)
    if isinstance(value, dict):
        return {key: _replace(item, named) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_replace(item, named) for item in value)
    return value

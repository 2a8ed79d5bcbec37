"""Read traces at URLs: each is copied to scratch, read, and removed; messages and traces name the URL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope.remote.errors import NotReached
from opscope.remote.urls import is_pattern, is_url, shown

from .errors import BadInput, NotATrace

if TYPE_CHECKING:
    from opscope.core.tables.trace import Trace
    from opscope.remote.listed import Found

#: Key of a trace's origin: the URLs that it was read from, each with its size and version.
SOURCES = "sources"


class GivenTwice(BadInput):
    """Two of the files are one: they would count twice, which is an error even where files may fail."""


def expanded(paths: Iterable[str | os.PathLike[str]]) -> list[str | os.PathLike[str]]:
    """Return the paths with each pattern (``*``, ``?``, ``[``) replaced by what it matches.

    A local path that exists is no pattern. Raises BadInput for a pattern that matches nothing.
    """
    found: list[str | os.PathLike[str]] = []
    for path in paths:
        text = os.fspath(path)
        if not is_pattern(text):
            found.append(path)
        elif is_url(text):
            found += [one.url for one in listed(text)]
        elif os.path.lexists(text):
            found.append(path)
        else:
            found += matches(text)
    return found


def matches(pattern: str) -> list[str]:
    """Return the local files that match, in natural order. Raises BadInput if there are none."""
    from glob import glob

    from opscope.remote.listed import natural  # lazy: few paths are patterns

    found = sorted(glob(pattern), key=natural)
    if not found:
        raise BadInput(pattern, "matches nothing" if is_pattern(pattern) else "no such file")
    return found


def listed(url: str) -> list[Found]:
    """Return what the URL or its pattern names. Raises BadInput."""
    from opscope.remote.listed import expand  # lazy: few traces are at URLs

    with _told(url):
        return expand(url)


def entries(url: str) -> tuple[bool, list[Found]]:
    """Return whether the folder at ``url`` is a profile or recording, and what is in it. Raises BadInput."""
    from opscope.remote import listed as listing  # lazy: few traces are at URLs

    with _told(url):
        found = [one for one in listing.entries(url) if not _name(one.url).startswith(".")]
    return any(_name(one.url) == listing.META for one in found), found


@contextlib.contextmanager
def at_hand(url: str, found: Found | None = None) -> Iterator[Path]:
    """A copy of the file or folder at ``url``, removed at the end; a BadInput about it names the URL."""
    from opscope.remote.copied import copied, scratch  # lazy: few traces are at URLs

    with scratch() as folder:
        with _told(url):
            local = copied(found or listed(url)[0], folder)
        try:
            yield local
        except BadInput as error:
            if is_url(
                error.path
            ):  # it is named already, and may be another one: several may be at hand
                raise
            raise _renamed(error, folder, local, url) from error


@contextlib.contextmanager
def local(path: str | os.PathLike[str] | None) -> Iterator[str | os.PathLike[str] | None]:
    """The path itself, or a copy of what is at it if it is a URL, removed at the end."""
    if not is_url(path):
        yield path
        return
    with at_hand(str(path)) as copy:
        yield copy


def read(found: Found, open_local: Callable[[Path], Trace]) -> Trace:
    """Return the trace in the file or folder. Raises BadInput."""
    with at_hand(found.url, found) as copy:
        trace = open_local(copy)
        for name in trace.tables:  # a profile reads its tables lazily, and the copy goes
            trace[name]
    name_urls(trace, found, copy)
    return trace


def name_urls(trace: Trace, found: Found, copy: Path) -> None:
    """Let the trace name ``found`` in the place of its copy, and keep what identifies it."""
    name, here = shown(found.url), os.fspath(copy)
    rename(trace, lambda text: text.replace(here, name))
    trace.origin[SOURCES] = [{"url": name, "size": found.size, "version": found.version}]


def rename(trace: Trace, named: Callable[[str], str]) -> None:
    """Let the trace name itself in its origin and its notes as ``named`` says of each text."""
    import polars as pl

    trace.origin = _replaced(trace.origin, named)
    if trace.has("notes"):
        notes = trace["notes"]
        texts = [pl.Series(one.name, [text if text is None else named(text) for text in one]) for one in notes
                 if one.dtype == pl.String]  # fmt: skip
        trace.tables["notes"] = notes.with_columns(texts)


def same_content(found: Iterable[Found]) -> None:
    """Raise GivenTwice where two of the files have one URL, or one size and version."""
    seen: dict[Any, str] = {}
    for one in found:
        if one.url in seen:
            raise GivenTwice(shown(one.url), "given twice")
        seen[one.url] = one.url
        if one.size and one.version:
            before = seen.setdefault((one.size, one.version), one.url)
            if before != one.url:
                raise GivenTwice(
                    shown(one.url), f"has the same content as {shown(before)}: it would count twice"
                )


def _name(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    try:
        yield
    except NotReached as error:
        raise BadInput(shown(url) if error.url == shown(url) else error.url, error.what) from error


def _renamed(error: BadInput, folder: Path, copy: Path, url: str) -> BadInput:
    name = shown(url)
    inner = error.path.removeprefix(os.fspath(copy))
    path = name + inner if inner != error.path else name
    what = error.what.replace(os.fspath(copy), name).replace(os.fspath(folder), name)
    return NotATrace(path, what) if isinstance(error, NotATrace) else BadInput(path, what)


def _replaced(value: Any, named: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return named(value)
    if isinstance(value, dict):
        return {key: _replaced(one, named) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_replaced(one, named) for one in value)
    return value

"""Where commands write: a local path, or a URL. The file for a URL is made in scratch and then uploaded."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opscope.remote.urls import is_url, name_of, shown

from . import common


@dataclass(frozen=True, slots=True)
class Place:
    """``path`` is where to write on this disk; ``url`` is where the result goes at the end, or None."""

    path: Path
    url: str | None = None
    _said: list[str] = field(default_factory=list)

    def say(self, message: str) -> None:
        """Print a message once the file is at its destination."""
        self._said.append(message)

    def named(self, path: Path | None = None) -> str:
        """Return how messages name the destination, or the file ``path`` in it."""
        if self.url is None:
            return str(self.path if path is None else path)
        inner = "" if path is None else f"/{path.name}"
        return shown(self.url).rstrip("/") + inner


@contextlib.contextmanager
def file(output: str | os.PathLike[str], force: bool) -> Iterator[Place]:
    """The destination of one file, or of a folder that is one output. If something exists at a URL, the
    command ends at once; the command itself checks a local path."""
    if is_url(output):
        with _file_at(str(output), force) as output_place:
            yield output_place
    else:
        output_place = Place(Path(output))
        yield output_place
    for line in output_place._said:
        common.say(line)


@contextlib.contextmanager
def _file_at(url: str, force: bool) -> Iterator[Place]:
    from opscope.remote import copied, written

    with _tell(url):
        written.check(url, force)
    with copied.scratch() as scratch:
        output_place = Place(scratch / name_of(url), url)
        yield output_place
        with _tell(url):
            written.put(output_place.path, url, force)


@contextlib.contextmanager
def folder(output: str | None, force: bool = True) -> Iterator[Place]:
    """The folder into which files are written, the current one if None; at a URL all of them appear or
    none."""
    if output is None or not is_url(output):
        yield Place(Path(output or ""))
        return
    from opscope.remote import copied, written

    with copied.scratch() as scratch:
        output_place = Place(scratch / "files", output)
        yield output_place
        with _tell(output):
            written.write_files(output_place.path, output.rstrip("/"), force)


@contextlib.contextmanager
def _tell(url: str) -> Iterator[None]:
    from opscope.remote.errors import NotReached

    try:
        yield
    except NotReached as error:
        common.fail(f"{error.url} was not written: {error.what}")
    except FileExistsError as error:
        said = str(error)
        replaceable = said.removesuffix(": already exists")
        common.fail(f"{replaceable} exists; --force replaces it" if replaceable != said else said)

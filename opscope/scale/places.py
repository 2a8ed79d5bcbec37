"""A folder of partials, local or at a URL: list it, and read, write or remove its files."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from opscope.readers import at_urls
from opscope.readers.errors import BadInput
from opscope.remote.errors import NotReached
from opscope.remote.urls import is_url, shown

Place = str | os.PathLike[str]


def join(folder: Place, name: str) -> str:
    """Return the path or URL of the file ``name`` in the folder."""
    text = os.fspath(folder)
    return f"{text.rstrip('/')}/{name}" if is_url(text) else os.path.join(text, name)


def names(folder: Place) -> list[str]:
    """Return the names of the files in the folder, sorted. Raises BadInput if there is no such folder."""
    if not is_url(folder):
        try:
            return sorted(entry.name for entry in os.scandir(folder) if entry.is_file())
        except OSError as error:
            raise BadInput(folder, error.strerror or "cannot be read") from error
    from opscope.remote.listed import entries  # lazy: few folders are at URLs

    with told(os.fspath(folder)):
        listed = entries(os.fspath(folder))
    return sorted(entry.url.rpartition("/")[2] for entry in listed if not entry.is_folder)


def exists(folder: Place, name: str) -> bool:
    """Return whether the folder has the file. Raises BadInput for a store that refuses."""
    if not is_url(folder):
        return os.path.isfile(join(folder, name))
    from opscope.remote.stores import path_in, store, tried  # lazy: few folders are at URLs

    url = join(folder, name)
    with told(url):
        opened_store = store(url)
        return bool(tried(url, lambda: opened_store.exists(path_in(opened_store, url))))


@contextlib.contextmanager
def at_hand(path: Place) -> Iterator[Path]:
    """Yield the local file, or a copy of a file at a URL that is removed at the end. Raises BadInput."""
    if not is_url(path):
        yield Path(path)
        return
    with at_urls.at_hand(os.fspath(path)) as copy:
        yield copy


@contextlib.contextmanager
def written(folder: Place, name: str) -> Iterator[Path]:
    """Yield a local path; the file written there appears as ``name`` in the folder at the end, complete.

    An older file of that name is replaced. Raises BadInput for errors of the store or the disk.
    """
    if not is_url(folder):
        location = Path(folder)
        temporary = location / f".{name}.{secrets.token_hex(6)}.tmp"
        try:
            location.mkdir(parents=True, exist_ok=True)
            try:
                yield temporary
                os.replace(temporary, location / name)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(location, f"cannot be written: {error.strerror or error}") from error
        return
    from opscope.remote.copied import scratch  # lazy: few folders are at URLs
    from opscope.remote.written import write_file

    with scratch() as local:
        yield local / name
        url = join(folder, name)
        with told(url):
            write_file(local / name, url, force=True)


def remove(folder: Place, name: str) -> None:
    """Remove the file if it is there. Raises BadInput if a store refuses."""
    if not is_url(folder):
        Path(folder, name).unlink(missing_ok=True)
        return
    if not exists(folder, name):
        return
    from opscope.remote.stores import path_in, store, tried  # lazy: few folders are at URLs

    url = join(folder, name)
    with told(url):
        opened_store = store(url)
        tried(url, lambda: opened_store.rm_file(path_in(opened_store, url)))


@contextlib.contextmanager
def told(url: str) -> Iterator[None]:
    """Raise errors of the store as BadInput."""
    try:
        yield
    except NotReached as error:
        raise BadInput(shown(url) if error.url == shown(url) else error.url, error.what) from error

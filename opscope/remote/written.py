"""Write a file or a folder to a URL, so that it appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .copied import scratch
from .errors import NotReached
from .listed import META
from .stores import below, in_words, path_in, store, tried
from .urls import is_web, name_of, shown


def write_file(source: Path, url: str, force: bool = False) -> None:
    """Write one file; the stores show it when it is complete. Raises NotReached, and FileExistsError."""
    opened_store, path = _open(url)
    if not force:  # putting a file replaces an existing one without asking
        _refuse(opened_store, path, url, force)
    tried(url, lambda: opened_store.put_file(os.fspath(source), path))


def write_files(source: Path, url: str, force: bool = False) -> None:
    """Write each file of a folder into the folder at ``url``, which may hold others.

    Raises FileExistsError if one exists and ``force`` is not set, and NotReached; then no file stays.
    """
    opened_store, path = _open(url)
    names = _names(source)
    if not force:
        for name in names:
            if tried(url, lambda far=f"{path}/{name}": opened_store.exists(far)):  # type: ignore[misc]
                raise FileExistsError(f"{shown(url)}/{name}: already exists")
    _put_all(opened_store, path, url, source, names)


def write_folder(source: Path, url: str, force: bool = False, last: str = META) -> None:
    """Write a folder, with the file ``last`` at the end: readers do not take a folder without this file for a
    profile.

    With ``force`` an existing profile is replaced: its file ``last`` is removed first, so that no reader
    finds a mixture of both. Raises FileExistsError, and NotReached; then what was written is removed again.
    """
    opened_store, path = _open(url)
    before = _refuse(opened_store, path, url, force)
    if before:
        if last not in before:
            raise FileExistsError(
                f"{shown(url)}: exists and is not a profile, so it is not replaced"
            )
        _remove(opened_store, url, [f"{path}/{last}"])
    ordered = [*(name for name in _names(source) if name != last), last]
    _put_all(opened_store, path, url, source, ordered)
    _remove(opened_store, url, [f"{path}/{name}" for name in before if name not in ordered])


def check(url: str, force: bool = False) -> None:
    """Raise FileExistsError where something is at ``url`` and ``force`` is not set; NotReached."""
    opened_store, path = _open(url)
    _refuse(opened_store, path, url, force)


def put(local: Path, url: str, force: bool = False) -> None:
    """Write the file, the profile or the files of the folder. Raises FileExistsError, and NotReached."""
    if not local.is_dir():
        write_file(local, url, force)
    elif (local / META).is_file():
        write_folder(local, url, force)
    else:
        write_files(local, url, force)


@contextlib.contextmanager
def at_end(url: str, force: bool = False) -> Iterator[Path]:
    """A path in scratch; the folder or file that is there at the end is written to ``url``.

    Raises FileExistsError at once if the name is taken, and NotReached.
    """
    check(url, force)
    with scratch() as folder:
        local = folder / name_of(url)
        yield local
        put(local, url, force)


def _open(url: str) -> tuple[Any, str]:
    if is_web(url):
        raise NotReached(url, "a web server takes no files; write to s3://, gs:// or az://")
    opened_store = store(url)
    return opened_store, path_in(opened_store, url.rstrip("/"))


def _names(folder: Path) -> list[str]:
    """The files in the folder and below, by their path in it."""
    return sorted(
        str(path.relative_to(folder).as_posix()) for path in folder.rglob("*") if path.is_file()
    )


def _put_all(opened_store: Any, path: str, url: str, source: Path, names: Iterable[str]) -> None:
    """Write the files in order; after an error none of them stays. Raises NotReached."""
    written: list[str] = []
    try:
        for name in names:
            far_path = f"{path}/{name}"
            written.append(far_path)
            tried(
                url,
                lambda local=source / name, far=far_path: opened_store.put_file(  # type: ignore[misc]
                    os.fspath(local), far
                ),
            )
    except BaseException:  # after an interrupt too: nothing stays half-written
        _remove(opened_store, url, written, quiet=True)
        raise


def _refuse(opened_store: Any, path: str, url: str, force: bool) -> list[str]:
    """Return the existing files, by name. Raises FileExistsError if it must not be replaced."""
    infos = tried(url, lambda: below(opened_store, path) if opened_store.exists(path) else {})
    # SeaweedFS keeps an empty folder when its files are gone, and lists it
    names_found = [name for name, info in infos.items() if info.get("type") != "directory"]
    names = [str(name).strip("/").removeprefix(path.strip("/")).strip("/") for name in names_found]
    if names and not force:
        raise FileExistsError(f"{shown(url)}: already exists")
    return names


def _remove(opened_store: Any, url: str, paths: Iterable[str], quiet: bool = False) -> None:
    for path in paths:
        try:
            tried(url, lambda far=path: opened_store.rm_file(far))  # type: ignore[misc]
        except NotReached as error:
            if quiet and "cannot be reached" in error.what:
                return  # then the other files cannot be reached either
            if not quiet:
                raise NotReached(
                    url, f"what was there could not be removed: {in_words(error)}"
                ) from error

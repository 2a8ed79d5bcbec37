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
from .stores import in_words, store, tried
from .urls import is_web, name_of


def write_file(source: Path, url: str, force: bool = False) -> None:
    """Write one file; the stores show it when it is whole. Raises NotReached, and FileExistsError."""
    known, path = _opened(url)
    _refuse(known, path, url, force)
    tried(url, lambda: known.put_file(os.fspath(source), path))


def write_folder(source: Path, url: str, force: bool = False, last: str = META) -> None:
    """Write a folder, the file ``last`` at its end: a folder without it is no profile to any reader.

    With ``force`` a profile that is there is replaced: its ``last`` is removed first, so that no reader
    finds half of each. Raises FileExistsError, and NotReached; then what was written is removed again.
    """
    known, path = _opened(url)
    names = sorted(
        str(one.relative_to(source).as_posix()) for one in source.rglob("*") if one.is_file()
    )
    before = _refuse(known, path, url, force)
    if before:
        if last not in before:
            raise FileExistsError(f"{url}: exists and is not a profile, so it is not replaced")
        _remove(known, url, [f"{path}/{last}"])
    ordered = [*(name for name in names if name != last), last]
    written: list[str] = []
    try:
        for name in ordered:
            place = f"{path}/{name}"
            written.append(place)
            tried(url, lambda local=source / name, far=place: known.put_file(os.fspath(local), far))  # type: ignore[misc]
    except BaseException:
        _remove(known, url, [one for one in written if known.exists(one)], quiet=True)
        raise
    _remove(known, url, [f"{path}/{name}" for name in before if name not in ordered])


@contextlib.contextmanager
def at_end(url: str, force: bool = False) -> Iterator[Path]:
    """A path in scratch; the folder or file that is there at the end is written to ``url``.

    Raises FileExistsError at once where the name is taken, and NotReached.
    """
    known, path = _opened(url)
    _refuse(known, path, url, force)
    with scratch() as folder:
        local = folder / name_of(url)
        yield local
        (write_folder if local.is_dir() else write_file)(local, url, force)


def _opened(url: str) -> tuple[Any, str]:
    if is_web(url):
        raise NotReached(url, "a web server takes no files; write to s3://, gs:// or az://")
    known = store(url)
    return known, str(known._strip_protocol(url.rstrip("/")))


def _refuse(known: Any, path: str, url: str, force: bool) -> list[str]:
    """Return what is there already, by name. Raises FileExistsError where it may not be replaced."""
    found = tried(url, lambda: known.find(path) if known.exists(path) else [])
    names = [str(one).strip("/").removeprefix(path.strip("/")).strip("/") for one in found]
    if names and not force:
        raise FileExistsError(f"{url}: already exists")
    return names


def _remove(known: Any, url: str, paths: Iterable[str], quiet: bool = False) -> None:
    for path in paths:
        try:
            tried(url, lambda far=path: known.rm_file(far))  # type: ignore[misc]
        except NotReached as error:
            if not quiet:
                raise NotReached(
                    url, f"what was there could not be removed: {in_words(error)}"
                ) from error

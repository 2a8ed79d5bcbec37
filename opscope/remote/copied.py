"""Copy files from URLs to scratch: whole, of one version, and gone after their use."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opscope.core import progress

from .errors import NotReached
from .listed import Found, look, under
from .stores import path_in, store, tried
from .urls import name_of


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is removed at the end, whatever happens; in ``TMPDIR`` as Python finds it."""
    with tempfile.TemporaryDirectory(prefix="opscope-") as folder:
        yield Path(folder)


def copied(found: Found, folder: Path) -> Path:
    """Copy the file or the folder to ``folder`` and return its path there.

    A file that is replaced while it is copied is copied again, once. Raises NotReached if it is replaced
    again, if it arrives incomplete, if the disk has no room for it, and for what a store refuses.
    """
    target = folder / name_of(found.url)
    if not found.is_folder:
        _copy(found, target)
        return target
    held = under(found.url)
    if not held:
        raise NotReached(found.url, "the folder is empty")
    _room(found.url, sum(one.size or 0 for one in held.values()), folder)
    known = store(found.url)
    for name, one in held.items():
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        _copy(one, place, known)
    if under(found.url) != held:
        raise NotReached(found.url, "was changed while it was read")
    return target


def _copy(found: Found, target: Path, known: Any = None) -> None:
    known = known or store(found.url)
    path = path_in(known, found.url)
    found = look(found.url, known)  # a listing may be older, and name its versions in another way
    for last in (False, True):
        _room(found.url, found.size or 0, target.parent)
        _get(found, known, path, target)
        now = look(found.url, known)
        size = target.stat().st_size
        if (now.size, now.version) == (found.size, found.version):
            # a store that compresses on the way states another size than it sends, or none
            if found.size is not None and size < found.size:
                raise NotReached(found.url, f"arrived incomplete: {size:,} of {found.size:,} bytes")
            return
        if last:
            raise NotReached(found.url, "was replaced while it was read, twice")
        found = now


def _get(found: Found, known: Any, path: str, target: Path) -> None:
    with progress.stage(f"copying {target.name}", found.size, progress.BYTES) as stage:
        moved = _moved(stage) if progress.heard() else None
        more = {} if moved is None else {"callback": moved}
        try:
            tried(found.url, lambda: known.get_file(path, str(target), **more))
        except NotReached:
            if moved is not None and moved.raised is not None:  # who listens ended the work
                raise moved.raised from None
            raise


def _moved(stage: progress.Stage) -> Any:
    """What fsspec tells of bytes that arrived, as it wants it."""
    from fsspec.callbacks import Callback  # lazy: it is an extra

    class Moved(Callback):  # type: ignore[misc]
        raised: BaseException | None = None

        def relative_update(self, inc: int = 1) -> None:
            try:
                stage.add(inc)
            except BaseException as error:  # noqa: BLE001 - it goes on in the thread that asked
                self.raised = error
                # an interruption as such would end fsspec's own thread, for which all others wait
                raise RuntimeError("the work was ended") from None

    return Moved()


def _room(url: str, size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise NotReached(
            url,
            f"has {size:,} bytes, and {os.fspath(folder)} has room for {free:,}; TMPDIR chooses another",
        )

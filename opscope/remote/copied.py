"""Copy files from URLs to scratch: complete, of one version, and removed after use."""

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


def copied(listed_file: Found, folder: Path) -> Path:
    """Copy the file or the folder to ``folder`` and return its path there.

    A file that is replaced while it is copied is copied again, once. Raises NotReached if it is replaced
    again, if it arrives incomplete, if the disk has no room for it, or if a store refuses.
    """
    target = folder / name_of(listed_file.url)
    if not listed_file.is_folder:
        _copy(listed_file, target)
        return target
    inner_files = under(listed_file.url)
    if not inner_files:
        raise NotReached(listed_file.url, "the folder is empty")
    _room(listed_file.url, sum(inner_file.size or 0 for inner_file in inner_files.values()), folder)
    opened = store(listed_file.url)
    for name, one in inner_files.items():
        local = target / name
        local.parent.mkdir(parents=True, exist_ok=True)
        _copy(one, local, opened)
    if under(listed_file.url) != inner_files:
        raise NotReached(listed_file.url, "was changed while it was read")
    return target


def _copy(listed_file: Found, target: Path, opened_store: Any = None) -> None:
    opened_store = opened_store or store(listed_file.url)
    path = path_in(opened_store, listed_file.url)
    # a listing may be older, and name its versions in another way
    listed_file = look(listed_file.url, opened_store)
    for last in (False, True):
        _room(listed_file.url, listed_file.size or 0, target.parent)
        _get(listed_file, opened_store, path, target)
        now = look(listed_file.url, opened_store)
        size = target.stat().st_size
        if (now.size, now.version) == (listed_file.size, listed_file.version):
            # a store that compresses in transit states another size than it sends, or none
            if listed_file.size is not None and size < listed_file.size:
                raise NotReached(
                    listed_file.url, f"arrived incomplete: {size:,} of {listed_file.size:,} bytes"
                )
            return
        if last:
            raise NotReached(listed_file.url, "was replaced while it was read, twice")
        listed_file = now


def _get(listed_file: Found, opened_store: Any, path: str, target: Path) -> None:
    with progress.stage(f"copying {target.name}", listed_file.size, progress.BYTES) as stage:
        moved = _move(stage) if progress.heard() else None
        more = {} if moved is None else {"callback": moved}
        try:
            tried(listed_file.url, lambda: opened_store.get_file(path, str(target), **more))
        except NotReached:
            if moved is not None and moved.raised is not None:  # the progress callback raised
                raise moved.raised from None
            raise


def _move(stage: progress.Stage) -> Any:
    """Return a callback for fsspec that passes on how many bytes arrived."""
    from fsspec.callbacks import Callback  # lazy: fsspec is an extra

    class Moved(Callback):  # type: ignore[misc]
        raised: BaseException | None = None

        def relative_update(self, inc: int = 1) -> None:
            try:
                stage.add(inc)
            except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
                self.raised = error
                # raised unchanged, an interruption would end fsspec's own thread, for which all others wait
                raise RuntimeError("the copying was interrupted") from None

    return Moved()


def _room(url: str, size: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise NotReached(
            url,
            f"has {size:,} bytes, and {os.fspath(folder)} has room for {free:,}; TMPDIR chooses another",
        )

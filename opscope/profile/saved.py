"""Write a Profile as a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path as FilePath
from typing import Final, TypeAlias

import polars as pl

from opscope.core.attribution.found import NOTES
from opscope.core.cells import replaces
from opscope.core.tables.columns import pieces
from opscope.readers.profile import profile_writing
from opscope.readers.profile.kept import Place
from opscope.readers.profile.profile_folder import Tables
from opscope.remote.urls import is_url
from opscope.remote.written import at_end

from .base import STORED
from .work import Work

Path: TypeAlias = "str | PathLike[str]"

#: Version of the analysis. Increase it when results change, so that saved results are recomputed.
ANALYSIS: Final = 16
#: The note on a profile that another version saved, if its results cannot be kept.
ANEW: Final = (
    "another version of opscope saved this profile, and nothing can be kept in its folder: each result is "
    "computed anew whenever the profile is opened; those of a copy in a folder of your own are kept"
)


class Saved(Work):
    """Save the trace with the results that were computed."""

    def save(self, path: Path, *, force: bool | None = None) -> None:
        """Write the trace, and the results that were computed so far, as a directory ``NAME.opscope``.

        Who opens it computes the others when they are first asked for, and keeps them in the directory if it
        is theirs (``OPSCOPE_KEEP=0`` in the environment: not).
        Raises FileExistsError if it exists, unless ``force`` is true, the default in IPython and notebooks.
        ``path`` may be a URL (``s3://bucket/run.opscope``): the profile appears there whole or not at all;
        what a store refuses raises opscope.errors.NotReached.
        """
        if is_url(path):
            with at_end(str(path), force=replaces(force)) as local:
                self.save_as(local)
            return
        self.save_as(path, force=replaces(force))

    def save_as(
        self,
        path: Path,
        *,
        force: bool = False,
        others: Iterable[Path] = (),
        scratch: Path | None = None,
    ) -> FilePath:
        """Like ``save``; if ``path`` is taken, use the first free name of ``others``. Return that path.

        ``scratch`` is a folder on the same disk in which the profile is built.
        """
        if self.selected is not None:
            raise ValueError(f"only a whole profile can be saved, this is of {self.selected}")
        about = {"analysis": ANALYSIS}
        if NOTES in self._frames or NOTES in self._stored:
            self._note_linking()
        frames = {**self._computed(), **self._linked()}
        return profile_writing.write(path, self.trace, frames, about, force, others, scratch)

    def _computed(self) -> dict[str, Iterable[pl.DataFrame]]:
        """Return the frames that were computed so far or came with the trace, in pieces."""
        frames: dict[str, Iterable[pl.DataFrame]] = {}
        for name, table in STORED.items():
            if name == "op_sums" and "op_totals" in self._frames:
                continue  # they are used in its place
            frame = self._frames.get(name)
            if frame is None and name in self._stored:
                frame = self._from_stored(name)
            if frame is not None:
                frame = self._without_own(name, frame)
                frames[name] = [frame] if table is None else _in_pieces(frame)
        return frames

    def _linked(self) -> dict[str, Iterable[pl.DataFrame]]:
        """Return the tables of an attribution that was computed or came with the trace."""
        if "attribution" in vars(self):
            found = self.attribution.found
        else:
            found = self._found()
        return {} if found is None else {name: [one] for name, one in found.tables().items()}

    def keep_in(self, path: Path) -> None:
        """Use the results that are kept in the folder of this saved profile, and keep there what is computed.

        ``OPSCOPE_KEEP=0`` in the environment: nothing more is kept.
        """
        try:
            place = Place.of(path, ANALYSIS)
        except OSError:  # it is gone
            return
        files = place.files()
        if files:
            stored = self._stored
            of = stored if isinstance(stored, Tables) else Tables(FilePath(path), {}, {}, False)
            self._stored, self._kept = of.plus(files), frozenset(files)
        self._place = place

    def _keep_more(self) -> None:
        """Make and keep what the report does without: the columns of kernels and copies, which advice and
        most questions of them need, and the iterations of processes that mark no steps, which advice and a
        difference need.

        Of a million kernels the columns take 1.5 s to make, and 0.4 s to read; iterations 0.3 s to find.
        """
        if self._place is None:
            return
        if not self.cpu_only:
            for name in ("kernels", "memops"):
                self._cached(name)
        if "attribution" in vars(self) and self._stepping[1]:  # else it takes 2 s to read
            self._cached("detected_steps")

    def _opened(self, path: str, older: bool, keep: bool) -> None:
        """Note where it was saved, whether by another version (``older``), and whether to keep results."""
        self._path = path
        if not keep:
            self._place = None
        can_keep = self._place is not None and self._place.keeps()
        self._older = older
        self._anew = ANEW if older and not can_keep and not self._kept else None


def _in_pieces(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    return (frame[part] for part in pieces(len(frame)))

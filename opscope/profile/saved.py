"""Write a Profile as a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from os import PathLike
from pathlib import Path as FilePath
from shlex import quote
from typing import Final, TypeAlias

import polars as pl

from opscope.core.advice.diagnosis_sums import joined, sums
from opscope.core.analysis.kernels import kernel_pieces
from opscope.core.analysis.kinds import for_kinds
from opscope.core.analysis.op_totals import pieces_of_ops, pieces_of_sums
from opscope.core.cells import replaces
from opscope.core.tables.columns import pieces
from opscope.readers.profile import profile_folder
from opscope.remote.urls import is_url
from opscope.remote.written import at_end

from .base import STORED
from .work import Work

Path: TypeAlias = "str | PathLike[str]"

#: Version of the analysis. Increase it when results change, so that saved results are recomputed.
ANALYSIS: Final = 16


def _when(stored: tuple[str, str | None]) -> int:
    """Return the place of a frame in the order in which they are written.

    The diagnosis follows the kernels on their thread: beside them, its table of the devices' work would be in
    memory with theirs.
    """
    name, table = stored
    if name == "op_totals":
        return 0
    if name == "diagnosis":
        return 2
    return 3 if table is None else 1


def anew(path: str) -> str:
    """Say that another version saved the profile at ``path``, what that costs, and how to save it anew."""
    code = f"import opscope; p = {path!r}; opscope.load(p).save(p, force=True)"
    return (
        "another version of opscope saved this profile: all results are computed anew, which takes three"
        f" times the time and memory; to save it anew: python -c {quote(code)}"
    )


class Saved(Work):
    """Save the trace with its results."""

    def save(self, path: Path, *, force: bool | None = None) -> None:
        """Write the trace and the results as a directory ``NAME.opscope``.

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
        frames: dict[str, pl.DataFrame | Iterable[pl.DataFrame]] = {}
        # each frame is made when it is written, and what it needs stays in memory. The totals of ops come
        # first, as they take most and leave nothing. Then what is as long as the trace, in pieces that leave
        # nothing, on a thread of its own, beside what is short
        for name, table in sorted(STORED.items(), key=_when):
            frames[name] = self._parts(name) if table is None else self._beside(name, table)
        about = {"analysis": ANALYSIS}
        aside = [name for name, table in STORED.items() if table is not None or name == "diagnosis"]
        return profile_folder.write(path, self.trace, frames, about, force, others, scratch, aside)

    def _beside(self, name: str, table: str) -> Iterator[pl.DataFrame]:
        """Yield the frame ``name`` in pieces, without the columns of the trace's table ``table``."""
        if name == "kernels" and name not in self._frames and name not in self._stored:
            parts = kernel_pieces(self._ops, self._executed)
        else:
            frame = self._cached(name)
            parts = (frame[part] for part in pieces(len(frame)))
        for part in parts:
            yield part.drop(set(part.columns) & set(self.trace[table].columns))

    def _parts(self, name: str) -> Iterator[pl.DataFrame]:
        """Pieces of the frame ``name``."""
        if name != "op_totals" or name in self._frames or name in self._stored:
            yield self._cached(name)
            return
        if "_op_sums" in vars(self):
            yield from pieces_of_sums(self._op_sums)
            return
        summed, rated, device = [], [], self.device[0]
        for part in pieces_of_ops(self._ops):
            summed.append(for_kinds(part))
            rated.append(sums(part, device, not self.cpu_only))
            yield part
        self._sums_of_saving = joined(rated)
        if "kinds" not in self._stored:  # they would make the sums of all ops
            self._frame("kinds", lambda: self._kinds_of(pl.concat(summed)))

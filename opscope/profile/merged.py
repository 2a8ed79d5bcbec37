"""The profile of a job that was merged from partials: totals, steps and collectives, and no events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from html import escape
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from opscope.core.advice.diagnosis_merged import diagnosis as merged_diagnosis
from opscope.core.analysis.diff.light import reduce_light
from opscope.core.analysis.diff.merged_job import reduce_merged
from opscope.core.analysis.diff.rankwise import counted, ranked
from opscope.core.analysis.diff.reduced import STEPS as BY_STEPS
from opscope.core.analysis.diff.reduced import Ending
from opscope.core.analysis.host import light_diagnosis
from opscope.core.analysis.ranks.arrivals import arrived_apart
from opscope.core.analysis.ranks.stragglers import stragglers
from opscope.core.analysis.steps.step_times import STEPS, processes_of, steps_at
from opscope.core.job.numbering import matched_in
from opscope.core.job.timed import one_clock
from opscope.core.not_merged import NotMerged
from opscope.core.once import lock_of, once
from opscope.core.perf.devices.of_trace import trace_device
from opscope.core.perf.devices.peaks import Device
from opscope.core.tables.columns import as_text
from opscope.core.tables.narrow import Frames, each, whole
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.profile import profile_writing
from opscope.readers.profile.profile_folder import Tables

from .diagnosed import Diagnosed
from .saved import ANALYSIS, Path, Saved

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from opscope.core.attribution.attribute import Attribution

    from .base import Where

#: Tables of a trace that are few rows however long it is: a partial has all of each, and so has a merge.
HELD: Final = (
    "processes", "clocks", "devices", "windows", "own_costs", "notes", "light", "light_blocks",
    "light_lengths", "light_steps",
)  # fmt: skip
#: Key of a saved profile's meta that says that it was merged, and what is known of the job.
MERGED: Final = "merged"


class _Held(dict[str, pl.DataFrame]):
    """The tables that a merged profile has; asking for another raises NotMerged, for it is not empty."""

    def __missing__(self, name: str) -> pl.DataFrame:
        raise NotMerged(name)


class Answers(Diagnosed, Saved):
    """What a merged profile answers, from the frames that were merged; all else raises NotMerged."""

    def __init__(
        self, trace: Trace, stored: Mapping[str, pl.DataFrame] | None = None, about: Any = None
    ) -> None:
        """``trace``: the tables ``HELD``; ``stored``: the frames; ``about``: what else is known (JSON)."""
        about = about if isinstance(about, dict) else {}
        recorded = frozenset(map(str, about.get("present", ())))
        held = _Held({name: trace[name] for name in HELD})
        super().__init__(Trace(held, recorded | trace.present, trace.origin), stored)
        self._about: dict[str, Any] = about
        #: The frames as they were given: unlike those of a saved profile they cannot be made again.
        self._given_frames = self._stored

    def _note_linking(self) -> None:
        """Do nothing: the notes of all files were merged."""

    @property
    def manifest(self) -> dict[str, Any]:
        """Which ranks the profile is of: ``expected``, ``read``, ``failed``, ``missing`` and more."""
        found: dict[str, Any] = self._about.get("manifest", {})
        return found

    @property
    def cpu_only(self) -> bool:
        """Whether the traces show no use of a GPU, so that the CPU is the device."""
        return bool(self._about.get("cpu_only"))

    @once
    def device(self) -> tuple[Device | None, str | None]:
        """The device's limits and None, or None and the reason why the limits are not known."""
        return trace_device(self.trace["devices"], bool(self._about.get("on_gpu")))

    @property
    def holds(self) -> list[str]:
        """The names of the frames and tables that were merged, sorted."""
        return sorted({*self._given_frames, *self.trace.tables})

    def select(self, **where: Unpack[Where]) -> Self:
        """Return the profile itself if nothing is selected; a selection raises NotMerged."""
        if any(value is not None for value in where.values()):
            raise NotMerged("ops and kernels to select")
        return self

    @once
    def attribution(self) -> Attribution:
        raise NotMerged("events")

    @once
    def _exchanged(self) -> pl.DataFrame:
        return self._frame("exchanged", self._lacking("collectives"))

    @once
    def _step_table(self) -> pl.DataFrame:
        return self._frame("step_table", self._lacking("steps"))

    @once
    def _found_steps(self) -> pl.DataFrame:
        return self._step_table.select(*STEPS)

    @once
    def _diagnosed(self) -> pl.DataFrame:
        place = steps_at(counted(self._step_table))

        def judged(piece: pl.DataFrame) -> pl.DataFrame:
            end = piece["end"].fill_null(0).to_numpy() - 1
            inside = place(processes_of(piece["process"]), end) >= 0
            return piece.filter(pl.Series(inside, dtype=pl.Boolean))

        late = stragglers(self.trace, each(self._exchanged_in, judged))
        names = self.trace["processes"]["framework"].drop_nulls().cast(pl.String).unique().to_list()
        return merged_diagnosis(
            ranked(self._step_table, self._exchanged_in),
            late,
            not self.cpu_only,
            names[0] if len(names) == 1 else None,
            self.merged_of or "",
        )

    def _make_diagnosis(self) -> pl.DataFrame:
        return light_diagnosis.diagnosis(self.trace) if self.is_light else self._diagnosed

    def _reducing(self, how: str = BY_STEPS) -> Ending:
        if self.is_light:
            found = reduce_light(self.trace, how)
        else:
            found = reduce_merged(
                self.trace,
                self._step_table,
                self._exchanged_in,
                self.spans,
                self._totals_of_all,
                how,
                bool(self._about.get("on_gpu")),
            )
        return lambda: found

    @once
    def spans(self) -> pl.DataFrame:
        """The first start and the last end (ns) of each process's events."""
        return self._frame("bounds", self._lacking("times of events"))

    def _exchanged_in(self) -> Iterator[pl.DataFrame]:
        return self._frame_in("exchanged", "collectives")

    @once
    def _arrived(self) -> pl.DataFrame:
        return whole(self._arrived_in)

    def _arrived_in(self) -> Iterator[pl.DataFrame]:
        parts = partial(self._frame_in, "arrivals", "collectives")
        try:
            yield from arrived_apart(self._exchanged_in, parts)()
        except ValueError as error:
            raise BadInput(self._path or "a merged job", f"damaged: {error}") from error

    @once
    def _calls_made(self) -> pl.DataFrame:
        return self._frame("calls_made", self._lacking("calls of collectives"))

    def _called_in(self) -> Iterator[pl.DataFrame]:
        made = partial(self._frame_in, "calls_made", "calls of collectives")
        return matched_in(made, one_clock(self.trace))()

    @once
    def _kernel_speeds(self) -> pl.DataFrame:
        return self._frame("kernel_speeds", self._lacking("kernels"))

    @once
    def _medians_of_samples(self) -> pl.DataFrame:
        return self._frame("medians_of_samples", self._lacking("samples"))

    @once
    def _moved(self) -> pl.DataFrame:
        return self._frame("moved", self._lacking("messages"))

    def rank_advice(self) -> pl.DataFrame:
        """What the detectors said of each file alone: the columns of ``advice()``, and the file's first
        ``process``, its ``devices`` and ``wall_time``. Raises NotMerged where the partials hold none."""
        return as_text(self._frame("rank_advice", self._lacking("advice")))

    def groups(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The process groups that each process is a member of, and their ranks."""
        return self.select(**where)._frame("groups", self._lacking("process groups"))

    def meshes(self, **where: Unpack[Where]) -> pl.DataFrame:
        """The dimensions of each DeviceMesh, and the coordinate of each process along them."""
        return self.select(**where)._frame("meshes", self._lacking("meshes"))

    @staticmethod
    def _lacking(what: str) -> Callable[[], pl.DataFrame]:
        def make() -> pl.DataFrame:
            raise NotMerged(what)

        return make

    def _frame(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        stored = name.replace(" ", "_")
        with lock_of(self, f"frame of {name}"):
            if name not in self._frames:
                held = stored in self._given_frames
                self._frames[name] = self._given_frames[stored] if held else make()
            return self._frames[name]

    def _frame_in(self, name: str, what: str) -> Iterator[pl.DataFrame]:
        """Yield the frame in pieces, anew each time; one that has one piece is kept."""
        given = self._given_frames
        if name not in given:
            raise NotMerged(what)
        if isinstance(given, (Frames, Tables)) and name not in self._frames and given.several(name):
            return given.pieces(name)
        return iter((self._frame(name, self._lacking(what)),))

    def _passing(self, name: str, columns: Any, row: int | None = None) -> pl.DataFrame:
        frame = self._cached(name)
        return frame if row is None else frame[row]

    @property
    def has_ranges(self) -> bool:
        """Whether any of the traces has a range: an op, a layer, a step."""
        return bool(self._about.get("ranges"))

    @property
    def call_names(self) -> list[str]:
        """The names of the first thousand calls of each file, sorted."""
        return list(map(str, self._about.get("calls", ())))

    @property
    def domains(self) -> list[str]:
        """The domains of the traces' ranges, sorted."""
        return list(map(str, self._about.get("domains", ())))

    @property
    def merged_of(self) -> str | None:
        """Of which part of a job the profile was merged: ``997 of 1,000 ranks``."""
        known = self.manifest
        return (
            f"{known.get('read', 0):,} of {known.get('expected', 0):,} {known.get('of', 'ranks')}"
        )

    def save_as(
        self,
        path: Path,
        *,
        force: bool = False,
        others: Iterable[Path] = (),
        scratch: Path | None = None,
    ) -> FilePath:
        """Like ``save``; if ``path`` is taken, use the first free name of ``others``. Return that path."""
        present = self.trace.present & set(HELD)
        held = Trace(dict(self.trace.tables), present, self.trace.origin)
        frames = {name: self._in_pieces(name) for name in self._given_frames}
        about = {"analysis": ANALYSIS, MERGED: self._about}
        return profile_writing.write(path, held, frames, about, force, others, scratch)

    def _in_pieces(self, name: str) -> Iterator[pl.DataFrame]:
        given = self._given_frames
        pieces = given.pieces(name) if isinstance(given, Frames) else (given[name],)
        return (as_text(piece) for piece in pieces)

    def __repr__(self) -> str:
        return f"<Profile merged from partials of {self.merged_of}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>"


def checked(path: str | PathLike[str], meta: Mapping[str, Any]) -> Any:
    """Return what a saved merged profile knows of its job. Raises BadInput where another analysis made it."""
    if meta.get("analysis") != ANALYSIS:
        raise BadInput(
            path,
            f"was merged by another version (analysis {meta.get('analysis')}, this is {ANALYSIS}), and a"
            " merge cannot be computed anew: make and merge the partials again",
        )
    return meta.get(MERGED)

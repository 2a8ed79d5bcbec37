"""The profile of a job that was merged from partials: totals, steps and collectives, and no events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from html import escape
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, TypeVar

import polars as pl

from opscope.core.advice.causes import causes, light_causes
from opscope.core.advice.diagnosis import Causes
from opscope.core.advice.diagnosis_merged import causes_of_sums
from opscope.core.analysis.diff.light import reduce_light
from opscope.core.analysis.diff.merged_job import reduce_merged
from opscope.core.analysis.diff.rankwise import ranked
from opscope.core.analysis.diff.reduced import STEPS as BY_STEPS
from opscope.core.analysis.diff.reduced import Ending
from opscope.core.analysis.ops.exchanges import exchange_pieces, exchanges
from opscope.core.analysis.ops.lost_kernels import idle_unknown
from opscope.core.analysis.ops.windows import event_bounds
from opscope.core.analysis.ranks.arrivals import arrival_pieces, arrival_table, arrived_apart
from opscope.core.analysis.ranks.collective_faults import call_pieces, collective_calls
from opscope.core.analysis.ranks.rank_outliers import sample_medians, speeds_of_kernels
from opscope.core.analysis.ranks.rank_pairs import messages
from opscope.core.analysis.ranks.stragglers import step_stragglers
from opscope.core.analysis.steps.step_times import STEPS, step_bounds
from opscope.core.analysis.steps.steps import table_of_steps
from opscope.core.job.clocks import one_clock
from opscope.core.job.numbering import matched_in
from opscope.core.not_merged import NotMerged
from opscope.core.once import lock_of, once
from opscope.core.perf.devices.of_trace import trace_device
from opscope.core.perf.devices.peaks import Device
from opscope.core.tables.columns import as_text
from opscope.core.tables.narrow import Frames, Pieces, whole
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.profile import profile_writing
from opscope.readers.profile.profile_folder import Tables

from .difference import totals_of_all
from .profile import ANALYSIS, MERGED, Path, Profile
from .stored import stored_frame

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from opscope.core.attribution.attribute import Attribution

    from .selected import Where

_Part = TypeVar("_Part")
#: Tables of a trace that have few rows even if the trace is long: partials and merges have all of their rows.
HELD: Final = (
    "processes", "clocks", "devices", "windows", "own_costs", "notes", "light", "light_blocks",
    "light_lengths", "light_steps",
)  # fmt: skip


class _Held(dict[str, pl.DataFrame]):
    """The tables that a merged profile has; asking for another raises NotMerged, for it is not empty."""

    def __missing__(self, name: str) -> pl.DataFrame:
        raise NotMerged(name)


class Merged(Profile):
    """The profile of a whole job, merged from the partials of its ranks (``opscope merge``).

    Each of its frames equals the frame from ``opscope.load`` of the same files. What needs events raises
    opscope.errors.NotMerged. ``manifest`` lists its ranks.
    """

    def __init__(
        self, trace: Trace, stored: Mapping[str, pl.DataFrame] | None = None, about: Any = None
    ) -> None:
        """``trace``: the tables ``HELD``; ``stored``: the frames; ``about``: other facts (JSON)."""
        about = about if isinstance(about, dict) else {}
        recorded = frozenset(map(str, about.get("present", ())))
        held_tables = _Held({name: trace[name] for name in HELD})
        super().__init__(Trace(held_tables, recorded | trace.present, trace.origin), stored)
        self._about: dict[str, Any] = about
        #: The frames as they were given: unlike the frames of a saved profile, they cannot be made again.
        self._given_frames = self._stored

    def _give_back(self) -> None:
        """Do nothing: merged frames cannot be made again."""

    def _note_linking(self) -> None:
        """Do nothing: the notes of all files are merged already."""

    @property
    def manifest(self) -> dict[str, Any]:
        """Which ranks the profile is of: ``expected``, ``read``, ``failed``, ``missing`` and more."""
        manifest_of_job: dict[str, Any] = self._about.get("manifest", {})
        return manifest_of_job

    @property
    def cpu_only(self) -> bool:
        """Whether the traces show no use of a GPU, so that the CPU is the device."""
        return bool(self._about.get("cpu_only"))

    @once
    def device(self) -> tuple[Device | None, str | None]:
        """The device's limits and None, or None and the reason why the limits are not known."""
        on_gpu, versions = bool(self._about.get("on_gpu")), self.trace["processes"]["versions"]
        return trace_device(self.trace["devices"], on_gpu, versions)

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

    def _make(self, part: Callable[[Any], _Part]) -> _Part:
        own = _OWN_PARTS.get(part)
        return super()._make(part) if own is None else own(self)

    def _reducing(self, how: str | None = None) -> Ending:
        how = BY_STEPS if how is None else how
        if self.is_light:
            reduced = reduce_light(self.trace, how)
        else:
            reduced = reduce_merged(
                self.trace,
                self.of(table_of_steps),
                self.of(exchange_pieces),
                self.spans,
                self.of(totals_of_all),
                how,
                bool(self._about.get("on_gpu")),
            )
        return lambda: reduced

    def pieces_of(self, name: str, noun: str) -> Pieces:
        """Return a frame in pieces, which can be iterated repeatedly; a frame of a single piece is kept.
        ``noun`` names what a profile without the frame lacks."""
        return lambda: self._frame_in(name, noun)

    def given(self, name: str, noun: str) -> pl.DataFrame:
        """Return a frame that was merged; ``noun`` names what a profile without it lacks."""
        return self._frame(name, lambda: _lacks(noun))

    def _arrived_in(self) -> Iterator[pl.DataFrame]:
        parts = partial(self._frame_in, "arrivals", "collectives")
        try:
            yield from arrived_apart(self.of(exchange_pieces), parts)()
        except ValueError as error:
            raise BadInput(self._path or "a merged job", f"damaged: {error}") from error

    def rank_advice(self) -> pl.DataFrame:
        """The detectors' answers on each file alone: the columns of ``advice()``, and the file's first
        ``process``, its ``devices`` and ``wall_time``. Raises NotMerged if the partials have none."""
        return as_text(self.given("rank_advice", "advice"))

    def _frame(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        stored = name.replace(" ", "_")
        with lock_of(self, f"frame of {name}"):
            if name not in self._frames:
                given = stored in self._given_frames
                self._frames[name] = self._given_frames[stored] if given else make()
            return self._frames[name]

    def _frame_in(self, name: str, noun: str) -> Iterator[pl.DataFrame]:
        """Yield the frame in pieces, which can be iterated repeatedly; a frame of a single piece is kept."""
        given = self._given_frames
        if name not in given:
            raise NotMerged(noun)
        if isinstance(given, (Frames, Tables)) and name not in self._frames and given.several(name):
            return given.pieces(name)
        return iter((self.given(name, noun),))

    def _columns_of(
        self, name: str, columns: Collection[str], row: int | None = None
    ) -> pl.DataFrame:
        frame = stored_frame(self, name)
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
        """The part of a job that the profile was merged from: ``997 of 1,000 ranks``."""
        manifest = self.manifest
        return f"{manifest.get('read', 0):,} of {manifest.get('expected', 0):,} {manifest.get('of', 'ranks')}"

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
        trace = Trace(dict(self.trace.tables), present, self.trace.origin)
        frames = {name: self._in_pieces(name) for name in self._given_frames}
        about = {"analysis": ANALYSIS, MERGED: self._about}
        return profile_writing.write(path, trace, frames, about, force, others, scratch)

    def _in_pieces(self, name: str) -> Iterator[pl.DataFrame]:
        given = self._given_frames
        pieces = given.pieces(name) if isinstance(given, Frames) else (given[name],)
        return (as_text(piece) for piece in pieces)

    def __repr__(self) -> str:
        return f"<Profile merged from partials of {self.merged_of}>"

    def _repr_html_(self) -> str:
        return f"<p>{escape(repr(self))}</p>"


def checked(path: str | PathLike[str], meta: Mapping[str, Any]) -> Any:
    """Return the job's facts in a saved merged profile. Raises BadInput if another analysis made it."""
    if meta.get("analysis") != ANALYSIS:
        raise BadInput(
            path,
            f"was merged by another version (analysis {meta.get('analysis')}, this is {ANALYSIS}), and a"
            " merge cannot be computed anew: make and merge the partials again",
        )
    return meta.get(MERGED)


def _lacks(noun: str) -> pl.DataFrame:
    raise NotMerged(noun)


def _matched_calls(profile: Merged) -> Pieces:
    calls = profile.pieces_of("calls_made", "calls of collectives")
    return matched_in(calls, one_clock(profile.trace))


def _causes(profile: Merged) -> Causes:
    if profile.is_light:
        return light_causes(profile)
    steps = ranked(profile.of(table_of_steps), profile.of(exchange_pieces))
    names = profile.trace["processes"]["framework"].drop_nulls().cast(pl.String).unique().to_list()
    return causes_of_sums(
        steps,
        step_stragglers(profile),
        not profile.cpu_only,
        names[0] if len(names) == 1 else None,
        profile.merged_of or "",
        profile.of(idle_unknown),
        int(profile.summary()["wall_time"][0] or 0),
    )


#: Values shared by several questions, computed from the tables that a merge keeps.
_OWN_PARTS: Final[Mapping[Callable[..., Any], Callable[[Merged], Any]]] = {
    causes: _causes,
    exchanges: lambda profile: profile.given("exchanged", "collectives"),
    exchange_pieces: lambda profile: profile.pieces_of("exchanged", "collectives"),
    table_of_steps: lambda profile: profile.given("step_table", "steps"),
    step_bounds: lambda profile: profile.of(table_of_steps).select(*STEPS),
    event_bounds: lambda profile: profile.given("bounds", "times of events"),
    arrival_pieces: lambda profile: profile._arrived_in,
    arrival_table: lambda profile: whole(profile._arrived_in),
    collective_calls: lambda profile: profile.given("calls_made", "calls of collectives"),
    call_pieces: _matched_calls,
    speeds_of_kernels: lambda profile: profile.given("kernel_speeds", "kernels"),
    sample_medians: lambda profile: profile.given("medians_of_samples", "samples"),
    messages: lambda profile: profile.given("moved", "messages"),
}

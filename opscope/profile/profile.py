"""Profile: a trace that answers each question by a method, selects parts of itself, and saves itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from os import PathLike
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.diff.question import QUESTION as DIFFERENCE
from opscope.core.analysis.host.light import is_light
from opscope.core.analysis.ops.executed import copy_executions, kernel_executions
from opscope.core.analysis.ops.ops import op_index
from opscope.core.analysis.ops.selection import Selection, select
from opscope.core.analysis.ops.totals import distinct_texts, summed_columns
from opscope.core.analysis.ops.windows import event_bounds
from opscope.core.analysis.steps.detected_iterations import BY_KEY, by_key, iterated
from opscope.core.analysis.steps.key_ops import Key, key_ops, unknown_key
from opscope.core.analysis.steps.step_times import has_steps, stepping
from opscope.core.attribution.attribute import Attribution, add_notes, attribute
from opscope.core.attribution.found import NAMES as LINKED
from opscope.core.attribution.found import NOTES, Found, Unfit, notes_of
from opscope.core.cells import replaces
from opscope.core.lru_cache import LRUCache
from opscope.core.once import lock_of, once
from opscope.core.question.methods import documented
from opscope.core.tables.columns import hand_back, pieces
from opscope.core.tables.mapped import Mapped
from opscope.core.tables.trace import Trace
from opscope.profile_html import page
from opscope.readers.errors import BadInput
from opscope.readers.profile.kept import Place
from opscope.readers.profile.profile_folder import Tables
from opscope.remote.urls import is_url

from .selected import KEY, Where, refuse_unknown, selection
from .stored import (
    STORED,
    columns_of_trace,
    fitting,
    linking_notes,
    stored_frame,
    without_own,
)

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from opscope.core.analysis.diff.reduced import Ending
    from opscope.core.dlprof.model import Source

Path: TypeAlias = "str | PathLike[str]"
_Part = TypeVar("_Part")
_log = logging.getLogger(__name__)
#: How many selections, and how many profiles by a key, a profile keeps: each has tables of its own.
PARTS_KEPT: Final = 8
#: A notebook shows only one line for a trace with more rows; a summary of so many takes some seconds.
_SHOWN: Final = 1_000_000
#: Version of the analysis. Increase it when results change, so that saved results are recomputed.
ANALYSIS: Final = 28
#: Key of a saved profile's meta that marks it as merged, with the facts about the job.
MERGED: Final = "merged"
#: The note on a profile that another version saved, if its results cannot be kept.
ANEW: Final = (
    "another version of opscope saved this profile, and nothing can be kept in its folder: each result is "
    "computed anew whenever the profile is opened; those of a copy in a folder of your own are kept"
)


class Profile(Answers):
    """A trace whose kernels are linked to their ops; ``opscope.load`` returns it.

    Its methods return Polars frames, each computed at the first call and then cached. Times are integer ns,
    sizes are bytes, shares are fractions of 1; unknown values are null. Text columns are String. For frames
    with many millions of rows, ``categories=True`` gives Categorical text: 4 bytes a value instead of 16.
    """

    _part_of: Any

    def __init__(self, trace: Trace, stored: Mapping[str, pl.DataFrame] | None = None) -> None:
        """``stored``: frames that ``save`` wrote; they are used without being recomputed."""
        super().__init__(trace)
        self._stored = stored or {}
        self._path: str | None = None
        self._selections: LRUCache[Self] = LRUCache(PARTS_KEPT)
        self._keys: LRUCache[Self] = LRUCache(PARTS_KEPT)
        #: Why results are computed anew each time the profile is opened; None if they are stored.
        self._anew: str | None = None
        #: Whether another version saved it, so that the results saved with it are of no use.
        self._older = False
        #: Where results are kept once they are computed; None: nowhere.
        self._place: Place | None = None
        #: The stored results that were added there later: damage in them is no error.
        self._kept: frozenset[str] = frozenset()
        #: The profile whose trace has all columns: this one, unless it is ``_narrow``.
        self._whole: Profile = self
        #: The folder that keeps columns which take much memory; None: they stay in memory.
        self._mapped: Mapped | None = None
        #: Another reading of the same trace whose attribution this profile uses; None: it makes its own.
        self._reading: Profile | None = None

    def __repr__(self) -> str:
        """Return the number of kernels, memops, ranges and processes, and the source; computes nothing."""
        counts = {
            name: len(self.trace[name])
            for name in ("kernels", "memops", "ranges", "processes")
            if self.trace.has(name)
        }
        words = [
            f"{count:,} {(name[:-2] if name == 'processes' else name[:-1]) if count == 1 else name}"
            for name, count in counts.items()
        ]
        origin = self.trace.origin
        paths = origin.get("paths") or [
            path for part in origin.get("parts", ()) for path in part.get("paths") or ()
        ]
        if self._path is not None:  # the files that a saved profile was made from may be gone
            paths = [self._path]
        where = f" from {paths[0]}" if paths else ""
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        contents = ", ".join(words) or "nothing"
        return f"<Profile of {contents}; {origin.get('format', 'no format')}{where}{more}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the repr and, unless the trace is large, the summary and first ops.

        With ``opscope.load`` the verdict and a median step are shown above them, 20 kB in all.
        """
        if len(self.trace["kernels"]) > _SHOWN or len(self.trace["ranges"]) > _SHOWN:
            return f"<p>{escape(repr(self))}</p>"
        summary = self.summary().row(0, named=True)
        device = "the CPU" if self.cpu_only else "the GPU"
        words = page(repr(self), summary, self.op_totals(), device)
        return words if _show is None else _show(self, words)

    # ------------------------------------------------------------------ facts that the trace states

    @property
    def spans(self) -> pl.DataFrame:
        """The first start and the last end (ns) of each process's events."""
        return self.of(event_bounds)

    @property
    def is_light(self) -> bool:
        """Whether light mode recorded a process."""
        return is_light(self.trace)

    def op_columns(self, *columns: str) -> pl.DataFrame:
        """Columns of ``op_totals()`` in no order, with text as categories; of a saved profile only these are
        read, and not kept."""
        return summed_columns(self, columns).select(columns)

    def distinct(self, column: str) -> list[str]:
        """Return the distinct texts of a column of ``op_totals()`` (``layer``, ``direction`` …), sorted."""
        return distinct_texts(self, column)

    def op_analyse(self, op_name: str | Sequence[str], device_id: int = 0) -> str:
        """Return the times of operators by the shapes of their inputs, as JSON in MindSpore's form.

        ``{"Conv2D": [{"op_side": "gpu", "input_shape": "input_1:[8, 1, 32, 32],input_2:[6, 1, 5, 5]",
        "op_occurrences": 4, "op_total_time(us)": 56.6, "op_avg_time(us)": 14.2}], "device_id": 0}``.
        ``op_name``: an op's name, a node's (``Conv2D-op0``), or a list. On the side ``gpu`` the time is
        that of the kernels on ``device_id``, of the ops inside too; on the side ``cpu`` the host's. Raises
        TypeError for a name that is no text and a device that is no number, ValueError if the profile has
        no such operator or device.
        """
        names = [op_name] if isinstance(op_name, str) else list(op_name)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise TypeError("op_name must be a name or a list of names")
        if not isinstance(device_id, int) or isinstance(device_id, bool):
            raise TypeError(f"device_id must be an int, not {type(device_id).__name__}")
        # lazy: reports do not need this module
        from opscope.core.analysis.ops.op_analyse import op_analyse

        entries = op_analyse(self.of(op_index), names, device_id)
        return json.dumps({**entries, "device_id": device_id}, ensure_ascii=False)

    @once
    def dlprof(self) -> Source:
        """The source of DLProf's reports; ``opscope report --style dlprof`` writes them."""
        from opscope.core.dlprof.model import COSTS, Source  # lazy: few ask for it

        return Source(self.of(op_index), self._columns_of("kernels", COSTS), self.device[0])

    def pyprof_pieces(self, columns: Collection[str]) -> Iterator[pl.DataFrame]:
        """Yield ``pyprof(columns)`` in pieces, at least one, so that it need not fit in memory."""
        from opscope.core.pyprof.question import pyprof_pieces  # lazy: few ask for it

        return pyprof_pieces(self, columns)

    # ------------------------------------------------------------------ parts of a profile

    def select(self, **where: Unpack[Where]) -> Self:
        """Return the profile of only some steps, devices, ranks, layers or user ranges.

        ``steps``: a step's number, or the first and the last (both included; None: no bound). ``layer``: the
        path of a module, with all inside it, or a pattern (``encoder.*.attention``). ``range``: the text of a
        user range, or a pattern. What is kept satisfies every argument; each kernel keeps the op that it
        has in the whole profile. Every method that returns a frame takes the same arguments:
        ``profile.op_totals(steps=(3, 8))``. ``key``: the name of an op that runs once in each
        iteration, or its ``op_id``: steps are then the iterations that it ends. Of a profile without steps,
        ``steps`` are the iterations that ``iterations()`` lists.

        Raises ValueError if nothing is selected, with what the profile has.
        """
        refuse_unknown(where)
        key = where.get(KEY)
        if key is not None:
            others: Any = {name: value for name, value in where.items() if name != KEY}
            return self._by_key(str(key)).select(**others)
        if where.get("steps") is not None and not self.of(has_steps):
            iterations: Any = self.of(iterated)[0]
            if iterations is not self:
                part: Self = iterations.select(**where)
                return part
        wanted = selection(where)
        return self._selections.get(wanted, lambda: self._selected(wanted)) if wanted else self

    def _give_up(self) -> None:
        """Let the whole profile forget this selection; the next request makes it again."""
        if self._part_of is not None:
            self._part_of[0]._selections.forget(self)

    def _selected(self, wanted: Selection) -> Self:
        ops, kernels, memops = select(self.of(op_index), wanted)
        part = type(self)(ops.attribution.trace)
        part.attribution = ops.attribution
        part._give(op_index, ops)
        part._give(kernel_executions, self.of(kernel_executions).filter(kernels))
        part._part_of = self, kernels
        part._anew = self._anew
        part._give(copy_executions, self.of(copy_executions).filter(memops))
        return part

    def _by_key(self, key: str) -> Self:
        """Return the profile whose steps are the iterations that the key node ends."""

        return self._keys.get(key, lambda: self._ended_by(key))

    def _ended_by(self, key: str) -> Self:
        ops = self.of(op_index)
        rows_of_key = key_ops(ops, key) or self._key_by_id(key)
        if rows_of_key is None:
            raise ValueError(unknown_key(ops, key))
        return self._with_steps(
            by_key(ops, rows_of_key), BY_KEY.format(name=rows_of_key.name), False
        )

    def _key_by_id(self, key: str) -> Key | None:
        """Return the key node that has the id ``key`` in DLProf's reports."""
        rows = self.dlprof.rows_of(key)
        return None if rows is None or not len(rows) else Key(rows, key)

    def _with_steps(self, steps: pl.DataFrame, note: str, keep: bool) -> Self:
        part = super()._with_steps(steps, note, keep)
        part._path, part._anew = self._path, self._anew
        return part

    def _narrow(
        self,
        only: Mapping[str, Collection[str]],
        mapped: Mapped | None = None,
        apart: Collection[tuple[str, str]] = (),
    ) -> Self:
        """Return a profile that reads only the columns in ``only``, for a caller that shows the trace
        once and drops it; this profile if any of its tables was read already. The new profile keeps only
        its attribution in the profile's folder. ``mapped``: the folder for tables and attribution that
        take much memory; ``apart``: columns of integers that are kept beside the tables."""
        tables = self.trace.tables
        narrowed = tables.narrowed(only, mapped) if isinstance(tables, Tables) else None
        if narrowed is None or self._part_of is not None or "attribution" in vars(self):
            return self
        beside = {column: narrowed.numbers(*column) for column in apart}
        part = type(self)(
            Trace(narrowed, self.trace.present, self.trace.origin, beside), self._stored
        )
        part._path, part._place, part._kept = self._path, self._place, self._kept
        part._whole, part._mapped = self, mapped
        return part

    # ------------------------------------------------------------------ the difference from another run

    def diff(self, other: Profile, by: str = "part", **where: Unpack[Where]) -> pl.DataFrame:
        """What changed from this run (a) to another (b): times are means per step, in ns.

        ``by``: ``step`` is the whole step; ``part`` what the process did in it; ``cause`` each part by op:
        parts and causes add up to the step exactly. ``op_sum`` is each op, all its shapes and layers
        together, with its FLOPs and bytes for each second; ``op`` is the device time of each op (without a
        GPU, its own time), no matter what else ran then; ``kernel`` the ops that have the same inputs but
        other kernels; ``run`` how the runs themselves differ. Of jobs of several ranks ``rank`` is the step
        of each, and ``rank_step`` each step of each. Of merged jobs, whose ops are not known step by step,
        ``op_total`` and ``kernel_total`` are of all that was recorded. Steps of warm-up are left out;
        profiles without steps are compared by the iterations that repeat, else whole. What is selected is
        selected in both. Raises ValueError for another ``by``.
        """
        from . import difference as differences  # lazy: few profiles are compared

        if by not in differences.BY:
            raise ValueError(f"by must be {', '.join(differences.BY)}, not {by!r}")
        difference = differences.difference_of(self.select(**where), other.select(**where))
        return differences.table(difference, by)

    def _reducing(self, how: str | None = None) -> Ending:
        """Return a function that finishes reducing the profile (default: by steps) without reading more."""
        from . import difference as differences  # lazy: few profiles are compared

        return differences.reducing(self, how)

    # ------------------------------------------------------------------ results made once and kept

    @once
    def attribution(self) -> Attribution:
        """The op to which each kernel and copy belongs."""
        if self._reading is not None:
            shared = self._reading.attribution
            add_notes(self.trace, () if shared.found is None else shared.found.notes)
            return shared
        stored = self._found()
        if stored is not None:
            try:
                return attribute(self.trace, stored, mapped=self._mapped)
            except Unfit as error:
                _log.debug("%s: the stored attribution is not used: %s", self._path, error)
        attribution = attribute(self.trace, mapped=self._mapped)
        if attribution.found is not None:
            for name, frame in attribution.found.tables().items():
                self._keep(name, frame)
        return attribution

    def _make(self, part: Callable[[Any], _Part]) -> _Part:
        if self._reading is not None and part is op_index:
            return self._reading.of(part)
        return super()._make(part)

    def _frame(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        with lock_of(self, f"frame of {name}"):
            if name not in self._frames:
                stored = self._from_stored(name) if name in self._stored else None
                self._frames[name] = frame = make() if stored is None else stored
                if stored is None and name in STORED:
                    self._keep(name, without_own(name, frame))
                hand_back()  # of a million kernels, glibc keeps 0.3 GB of what the frame needed
            return self._frames[name]

    def _columns_of(
        self, name: str, columns: Collection[str], row: int | None = None
    ) -> pl.DataFrame:
        if name not in self._frames and name in self._stored:
            frame = self._from_stored(name, columns, row)
            if frame is not None:
                return frame
        # a narrowed profile lacks columns for a frame that was not stored: the whole profile makes it
        frame = stored_frame(self._whole, name)
        return frame if row is None else frame[row]

    def _own_columns(
        self, table: str, wanted: Sequence[str], row: int | None = None
    ) -> tuple[pl.DataFrame, int]:
        return columns_of_trace(self._whole.trace, table, wanted, row)

    def _is_at_hand(self, name: str) -> bool:
        return name in self._frames or name in self._stored

    def _give_back(self) -> None:
        """Forget the frames that are stored, and those that repeat a table of the trace.

        They are read or made again. Of a million kernels they take 0.35 GB, and half a second to read.
        """
        for name in (*self._stored, *(name for name, table in STORED.items() if table)):
            with lock_of(self, f"frame of {name}"):
                self._frames.pop(name, None)
            with lock_of(self, f"text of {name}"):
                self._texts.pop(name, None)
        hand_back()

    def _all_notes(self) -> pl.DataFrame:
        """The notes of reading, of linking kernels to ops, and of loading."""
        self._note_linking()
        noted = self.trace["notes"]
        if self._anew is None:
            return noted
        row = {"severity": ["warning"], "what": [self._anew], "how_many": [1]}
        return pl.concat([noted, pl.DataFrame(row, schema=noted.schema)])

    def _note_linking(self) -> None:
        """Add the notes of linking to the trace's notes; a saved profile has them without linking again."""
        if "attribution" not in vars(self):  # otherwise these notes exist already
            add_notes(self.trace, notes_of(linking_notes(self)))

    def _keep(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a computed result in the profile's folder, if the profile has a folder that we may write."""
        if self._whole is not self and name not in LINKED:
            return
        file = None if self._place is None else self._place.keep(name, frame)
        if file is None:
            return
        with lock_of(self, "stored"):
            stored = self._stored
            if not isinstance(stored, Tables):
                stored = Tables(file.parent, {}, {}, False)
            self._stored, self._kept = stored.plus({name: file}), self._kept | {name}

    def _found(self) -> Found | None:
        """Return what an earlier attribution of the trace found; None if it is not stored or does not fit."""
        tables = {name: self._as_stored(name) for name in LINKED if name in self._stored}
        if len(tables) < len(LINKED):
            return None
        stored = {name: frame for name, frame in tables.items() if frame is not None}
        try:
            return Found.of_tables(stored, self.trace) if len(stored) == len(tables) else None
        except Unfit as error:
            _log.debug("%s: the stored attribution is not used: %s", self._path, error)
            return None

    def _as_stored(self, name: str) -> pl.DataFrame | None:
        """Return a stored table as it is; None if it was kept and is damaged. Raises BadInput."""
        return self._unless_damaged(name, lambda: self._stored[name])

    def _from_stored(
        self, name: str, columns: Collection[str] | None = None, row: int | None = None
    ) -> pl.DataFrame | None:
        """Return the stored frame, or only its ``columns`` and ``row`` if given; None if it does not fit
        this version and trace, or was kept and is damaged."""
        return self._unless_damaged(name, lambda: fitting(self, self._stored, name, columns, row))

    def _unless_damaged(self, name: str, read: Callable[[], _Part]) -> _Part | None:
        try:
            return read()
        except BadInput as error:
            if name not in self._kept:
                raise
            _log.debug("%s: what was kept is not used: %s", self._path, error)
            return None

    def _forget(self) -> None:
        """Forget stored results, because devices were renamed; links of kernels to ops stay."""
        self._stored = {
            name: frame
            for name in LINKED
            if name in self._stored and (frame := self._as_stored(name)) is not None
        }
        self._place = None

    # ------------------------------------------------------------------ saving

    def save(self, path: Path, *, force: bool | None = None) -> None:
        """Write the trace, and the results that were computed so far, as a directory ``NAME.opscope``.

        Whoever opens it computes the other results when they are first asked for, and stores them in the
        directory if they own it (``OPSCOPE_KEEP=0`` in the environment: not). Raises FileExistsError if it
        exists, unless ``force`` is true, the default in IPython and notebooks. ``path`` may be a URL
        (``s3://bucket/run.opscope``): the profile appears there completely or not at all; what a store
        refuses raises opscope.errors.NotReached.
        """
        if is_url(path):
            from opscope.remote.written import at_end  # lazy: only for a URL

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
        # lazy: reading does not need this module
        from opscope.readers.profile import profile_writing

        about = {"analysis": ANALYSIS}
        if NOTES in self._frames or NOTES in self._stored:
            self._note_linking()
        frames = {**self._compute(), **self._link()}
        return profile_writing.write(path, self.trace, frames, about, force, others, scratch)

    def _compute(self) -> dict[str, Iterable[pl.DataFrame]]:
        """Return the frames that were computed so far or came with the trace, in pieces."""
        frames: dict[str, Iterable[pl.DataFrame]] = {}
        for name, table in STORED.items():
            if name == "op_sums" and "op_totals" in self._frames:
                continue  # the stored columns are used in place of the table
            frame = self._frames.get(name)
            if frame is None and name in self._stored:
                frame = self._from_stored(name)
            if frame is not None:
                frame = without_own(name, frame)
                frames[name] = [frame] if table is None else _in_pieces(frame)
        return frames

    def _link(self) -> dict[str, Iterable[pl.DataFrame]]:
        """Return the tables of an attribution that was computed or came with the trace."""
        stored = self.attribution.found if "attribution" in vars(self) else self._found()
        return {} if stored is None else {name: [frame] for name, frame in stored.tables().items()}

    def keep_in(self, path: Path) -> None:
        """Use the results that are kept in the folder of this saved profile, and keep there what is computed.

        ``OPSCOPE_KEEP=0`` in the environment: nothing more is kept.
        """
        try:
            location = Place.of(path, ANALYSIS)
        except OSError:  # the file is gone
            return
        files = location.files()
        if files:
            stored = self._stored
            of = stored if isinstance(stored, Tables) else Tables(FilePath(path), {}, {}, False)
            self._stored, self._kept = of.plus(files), frozenset(files)
        self._place = location

    def _keep_more(self) -> None:
        """Make and keep results that the report does not need: columns of kernels and copies, which advice
        and most questions use, and iterations of processes without marked steps, for advice and differences.
        Of a million kernels the columns take 1.5 s to make, and 0.4 s to read; iterations 0.3 s to find."""
        if self._place is None:
            return
        if not self.cpu_only:
            for name in ("kernels", "memops"):
                stored_frame(self, name)
        if "attribution" in vars(self) and self.of(stepping)[1]:  # otherwise reading takes 2 s
            stored_frame(self, "detected_steps")

    def _opened(self, path: str, older: bool, keep: bool) -> None:
        """Note the profile's path, whether another version saved it (``older``), and whether to keep
        results."""
        self._path = path
        if not keep:
            self._place = None
        can_keep = self._place is not None and self._place.keeps()
        self._older = older
        self._anew = ANEW if older and not can_keep and not self._kept else None


if Profile.diff.__doc__ is not None:  # python -OO
    Profile.diff.__doc__ = documented(Profile.diff.__doc__, DIFFERENCE)


def _in_pieces(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    return (frame[part] for part in pieces(len(frame)))


_show: Callable[[Profile, str], str] | None = None


def show_by(show: Callable[[Profile, str], str]) -> None:
    """Let ``show(profile, words)`` make a notebook's HTML of profiles; ``words``: the profile's own table."""
    global _show
    _show = show

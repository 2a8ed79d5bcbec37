"""What the methods of a Profile share: the trace, its attribution, and the frames made so far."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.ops.devices import trace_device
from opscope.core.analysis.ops.executed import executed_kernels, executed_memops
from opscope.core.analysis.ops.op_frame import ops_frame
from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.ops.selection import Selection, select
from opscope.core.analysis.ops.spans import SELECTED
from opscope.core.analysis.ops.windows import bounds
from opscope.core.analysis.steps.detected_iterations import BY_KEY, UNSURE, by_key, detected, fits
from opscope.core.analysis.steps.key_ops import Key, key_ops, unknown_key
from opscope.core.analysis.steps.step_times import steps_of
from opscope.core.attribution.attribute import Attribution, add_notes, attribute
from opscope.core.attribution.found import NAMES as LINKED
from opscope.core.attribution.found import NOTES, Found, Unfit, notes_of, notes_table
from opscope.core.attribution.inferred_steps import SCHEMA
from opscope.core.attribution.replaced_steps import replaced_steps
from opscope.core.lru_cache import LRUCache
from opscope.core.once import lock_of, once
from opscope.core.perf.devices.peaks import Device
from opscope.core.schema import TABLES
from opscope.core.tables.columns import as_text, distinct_values, hand_back
from opscope.core.tables.mapped import Mapped
from opscope.core.tables.trace import Trace
from opscope.readers.errors import BadInput
from opscope.readers.profile.kept import Place
from opscope.readers.profile.profile_folder import Tables

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

_log = logging.getLogger(__name__)
#: The frames that ``save`` stores with the trace if they were computed, and that are kept in a saved
#: profile's folder once they are. A value names the trace's table whose columns the frame repeats: these
#: columns are stored only once.
STORED: Final[Mapping[str, str | None]] = {
    "kernels": "kernels",
    "memops": "memops",
    "summary": None,
    "op_sums": None,
    "op_totals": None,
    "kernel_totals": None,
    "unattributed": None,
    "kinds": None,
    "gaps": None,
    "range_totals": None,
    "missing_costs": None,
    "communication": None,
    "collectives": None,
    "diagnosis": None,
    "detected_steps": None,
    NOTES: None,
}
#: The schemas of the stored frames that were asked for so far.
_SCHEMAS: Final[dict[str, Mapping[str, pl.DataType]]] = {}


class Where(TypedDict, total=False):
    """The arguments of ``Profile.select``, which every method that returns a frame takes as well."""

    steps: int | tuple[int | None, int | None] | None
    device: int | Sequence[int] | None
    rank: int | Sequence[int] | None
    layer: str | Sequence[str] | None
    range: str | Sequence[str] | None
    key: str | None


#: Of so many calls the names tell whose runtime it is.
_CALLS: Final = 1_000
_WHERE: Final = ("steps", "device", "rank", "layer", "range")
_KEY: Final = "key"
#: How many selections, and how many profiles by a key, a profile keeps: each has tables of its own.
PARTS_KEPT: Final = 8
_Method = TypeVar("_Method", bound=Callable[..., Any])


def selectable(method: _Method) -> _Method:
    """Make a method of a Profile answer for the part of it that the arguments ``Where`` select."""

    @wraps(method)
    def of_selected(self: Base, *args: Any, **given: Any) -> Any:
        where: Any = {name: given.pop(name) for name in (*_WHERE, _KEY) if name in given}
        return method(self.select(**where) if where else self, *args, **given)

    return cast(_Method, of_selected)


class Base:
    """The trace, its attribution and the frames made so far; the methods are in the classes on top of it."""

    def __init__(self, trace: Trace, stored: Mapping[str, pl.DataFrame] | None = None) -> None:
        """``stored``: frames that ``save`` wrote; they are used without being recomputed."""
        self.trace = trace
        self._stored = stored or {}
        self._path: str | None = None
        self._frames: dict[str, pl.DataFrame] = {}
        self._texts: dict[str, tuple[pl.DataFrame, pl.DataFrame]] = {}
        self._selections: LRUCache[Self] = LRUCache(PARTS_KEPT)
        self._keys: LRUCache[Self] = LRUCache(PARTS_KEPT)
        #: Why results are computed anew whenever the profile is opened; None: they are not.
        self._anew: str | None = None
        #: What the critical path takes for granted, and how often; None: the path was not made yet.
        self._inferred: dict[str, int] | None = None
        #: Whether another version saved it, so that the results saved with it are of no use.
        self._older = False
        #: Where results are kept once they are computed; None: nowhere.
        self._place: Place | None = None
        #: The stored results that were kept there before: what is wrong with them is no error.
        self._kept: frozenset[str] = frozenset()
        #: Of a selection: the profile that it is a part of, and which of its kernels are kept.
        self._part_of: tuple[Base, NDArray[np.bool_]] | None = None
        #: The profile whose trace has all columns: this one, unless it is ``_narrow``.
        self._whole: Base = self
        #: Where columns are kept that take much memory; None: there.
        self._mapped: Mapped | None = None
        #: Another reading of the same trace, whose attribution this profile has; None: it makes its own.
        self._reading: Base | None = None

    def _narrow(
        self,
        only: Mapping[str, Collection[str]],
        mapped: Mapped | None = None,
        apart: Collection[tuple[str, str]] = (),
    ) -> Self:
        """Return this profile if any of its tables was read already, else one that reads of the tables in
        ``only`` these columns alone, for whoever shows the trace and gives it up. It keeps the attribution
        in the profile's folder, and no other result. ``mapped``: where tables and attribution are kept that
        take much memory; ``apart``: columns of integers that are kept beside the tables."""
        tables = self.trace.tables
        narrowed = tables.narrowed(only, mapped) if isinstance(tables, Tables) else None
        if narrowed is None or self._part_of is not None or "attribution" in vars(self):
            return self
        beside = {one: narrowed.numbers(*one) for one in apart}
        trace = Trace(narrowed, self.trace.present, self.trace.origin, beside)
        made = type(self)(trace, self._stored)
        made._path, made._place, made._kept = self._path, self._place, self._kept
        made._whole, made._mapped = self, mapped
        return made

    @once
    def attribution(self) -> Attribution:
        """The op to which each kernel and copy belongs."""
        if self._reading is not None:
            shared = self._reading.attribution
            add_notes(self.trace, () if shared.found is None else shared.found.notes)
            return shared
        known = self._found()
        if known is not None:
            try:
                return attribute(self.trace, known, mapped=self._mapped)
            except Unfit as error:
                _log.debug("%s: the stored attribution is not used: %s", self._path, error)
        made = attribute(self.trace, mapped=self._mapped)
        if made.found is not None:
            for name, frame in made.found.tables().items():
                self._keep(name, frame)
        return made

    def _keep(self, name: str, frame: pl.DataFrame) -> None:
        """Keep a result that was computed in the profile's folder, if it has one that is ours."""
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
        """Return what an earlier attribution of the trace found; None if that is not stored, or unfit."""
        tables = {name: self._as_stored(name) for name in LINKED if name in self._stored}
        if len(tables) < len(LINKED):
            return None
        known = {name: frame for name, frame in tables.items() if frame is not None}
        try:
            return Found.of_tables(known, self.trace) if len(known) == len(tables) else None
        except Unfit as error:
            _log.debug("%s: the stored attribution is not used: %s", self._path, error)
            return None

    def _as_stored(self, name: str) -> pl.DataFrame | None:
        """Return a stored table as it is; None if it was kept and is damaged. Raises BadInput."""
        try:
            return self._stored[name]
        except BadInput as error:
            if name not in self._kept:
                raise
            _log.debug("%s: what was kept is not used: %s", self._path, error)
            return None

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
        unknown = set(where) - {*_WHERE, _KEY}
        if unknown:
            raise TypeError(
                f"cannot select by {', '.join(sorted(unknown))}, only by {', '.join((*_WHERE, _KEY))}"
            )
        key = where.get("key")
        if key is not None:
            others: Any = {name: value for name, value in where.items() if name != _KEY}
            return self._by_key(key).select(**others)
        steps = where.get("steps")
        if steps is not None and not self._has_steps and self._iterated[0] is not self:
            iterated: Self = self._iterated[0]
            return iterated.select(**where)
        wanted = Selection(
            (steps, steps) if isinstance(steps, int) else steps,
            *(_each(where.get(name)) for name in _WHERE[1:]),
        )
        if not wanted:
            return self
        with lock_of(self, "selections"):
            return self._selections.get(wanted, lambda: self._selected(wanted))

    def _give_up(self) -> None:
        """Of a selection: let the whole profile forget it; who asks for it again makes it anew."""
        if self._part_of is None:
            return
        whole = self._part_of[0]
        with lock_of(whole, "selections"):
            whole._selections.forget(self)

    def _selected(self, wanted: Selection) -> Self:
        ops, kernels, memops = select(self._ops, wanted)
        part = type(self)(ops.attribution.trace)
        part.attribution, part._ops = ops.attribution, ops
        part._executed = self._executed.filter(kernels)
        part._part_of = self, kernels
        part._anew = self._anew
        part._executed_memops = self._executed_memops.filter(memops)
        return part

    def _by_key(self, key: str) -> Self:
        """Return the profile whose steps are the iterations that the key node ends."""
        with lock_of(self, "keys"):
            return self._keys.get(key, lambda: self._made_by_key(key))

    def _made_by_key(self, key: str) -> Self:
        found = key_ops(self._ops, key) or self._key_by_id(key)
        if found is None:
            raise ValueError(unknown_key(self._ops, key))
        steps = by_key(self._ops, found)
        return self._with_steps(steps, BY_KEY.format(name=found.name), False)

    def _key_by_id(self, key: str) -> Key | None:
        """Return the key node that has the id ``key`` in another tool's reports."""
        return None

    def _with_steps(self, found: pl.DataFrame, note: str, keep: bool) -> Self:
        attribution = replaced_steps(self.attribution, found, note, keep=keep)
        part = type(self)(attribution.trace)
        part.attribution = attribution
        part._path, part._anew = self._path, self._anew
        return part

    @once
    def _found_steps(self) -> pl.DataFrame:
        """The steps that ended, else the run of each process: 0.3 s after a million kernels."""
        return steps_of(self._ops)

    @once
    def _has_steps(self) -> bool:
        """Whether any step ended."""
        return bool(self._found_steps["step"].is_not_null().any())

    @once
    def _stepping(self) -> tuple[set[int], list[int]]:
        """The processes that have steps, and those that have none."""
        stepping = set(self._found_steps.filter(pl.col("step").is_not_null())["process"])
        there: set[int] = set()
        for name in ("ranges", "kernels"):
            there |= set(self.trace[name]["process"].drop_nulls().unique())
        return stepping, sorted(there - stepping)

    def _make_detected_steps(self) -> pl.DataFrame:
        return detected(self._ops, self._stepping[1])

    @once
    def _iterated(self) -> tuple[Any, dict[int, bool], dict[int, str]]:
        """This profile with the iterations of processes that have no steps; per process, whether they are
        steps by themselves, and what is in doubt or why there are none."""
        stepping, others = self._stepping
        found = self._cached("detected_steps")
        if not fits(found, others):  # a stored table of another hand
            found = self._make_detected_steps()
        doubtful = found.filter(pl.col("doubt").is_not_null()).unique(
            "process", maintain_order=True
        )
        doubts = dict(doubtful.select("process", pl.col("doubt").cast(pl.String)).rows())
        every = found.filter(pl.col("step").is_not_null()).select(
            pl.col(name).cast(kind) for name, kind in SCHEMA.items()
        )
        iterating = every["process"].unique().sort().to_list()
        is_step = {**dict.fromkeys(stepping, True), **dict.fromkeys(iterating, False)}
        if not iterating:
            return self, is_step, doubts
        by = ", ".join(every["by"].unique().sort())
        note = UNSURE.format(by=by, confidence=float(every["confidence"].min()))  # type: ignore[arg-type]
        return self._with_steps(every, note, True), is_step, doubts

    @property
    def selected(self) -> str | None:
        """What was selected, in words (``steps 3 to 8, device 0``); None for a whole profile."""
        what: str | None = self.trace.origin.get(SELECTED, {}).get("what")
        return what

    @once
    def _ops(self) -> Ops:
        return Ops(self.attribution) if self._reading is None else self._reading._ops

    @once
    def _ops_frame(self) -> pl.DataFrame:
        return ops_frame(self._ops)

    @once
    def spans(self) -> pl.DataFrame:
        """The first start and the last end (ns) of each process's events."""
        return bounds(self.trace)

    @once
    def _executed(self) -> pl.DataFrame:
        return executed_kernels(self._ops)

    @once
    def _executed_memops(self) -> pl.DataFrame:
        return executed_memops(self._ops)

    def _notes(self) -> pl.DataFrame:
        """The notes of reading, of linking kernels to ops, and of loading."""
        self._note_linking()
        noted = self.trace["notes"]
        if self._anew is None:
            return noted
        row = {"severity": ["warning"], "what": [self._anew], "how_many": [1]}
        return pl.concat([noted, pl.DataFrame(row, schema=noted.schema)])

    def _note_linking(self) -> None:
        """Add to the notes of the trace those of linking, for which a saved profile needs not link."""
        if "attribution" not in vars(self):  # else they are there
            add_notes(self.trace, notes_of(self._cached(NOTES)))

    def _make_linking_notes(self) -> pl.DataFrame:
        linked = self.attribution.found
        return notes_table(() if linked is None else linked.notes)

    @property
    def has_ranges(self) -> bool:
        """Whether the trace has any range: an op, a layer, a step."""
        return len(self.trace["ranges"]) > 0

    @property
    def merged_of(self) -> str | None:
        """Of which part of a job a profile was merged from partials: ``997 of 1,000 ranks``; else None."""
        return None

    @property
    def call_names(self) -> list[str]:
        """The names of the first thousand calls of the runtime, sorted."""
        if not self.trace.has("calls"):
            return []
        names = self.trace["calls"]["name"].head(_CALLS).drop_nulls().cast(pl.String)
        return sorted(names.unique())

    @property
    def domains(self) -> list[str]:
        """The domains of the trace's ranges, sorted."""
        return sorted(distinct_values(self.trace["ranges"]["domain"]).drop_nulls().cast(pl.String))

    @property
    def cpu_only(self) -> bool:
        """Whether the trace shows no use of a GPU, so that the CPU is the device."""
        return not self.trace.used_gpu

    @once
    def device(self) -> tuple[Device | None, str | None]:
        """The device's limits and None, or None and the reason why the limits are not known.

        Limits are dense peaks in FLOP/s and bandwidth in bytes/s; their ``note`` says what in the trace does
        not fit them.
        """
        on_gpu = any(len(self.trace[table]) for table in ("kernels", "memops"))
        return trace_device(self.trace["devices"], on_gpu)

    def _out(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with its texts as String; the conversion is cached."""
        with lock_of(self, f"text of {name}"):
            cached = self._texts.get(name)
            if cached is None or cached[0] is not frame:
                cached = self._texts[name] = frame, as_text(frame)
        return cached[1]

    def _cached(self, name: str) -> pl.DataFrame:
        """Return the frame of the method ``name``, which is in ``STORED``, with texts as categories."""
        return self._frame(name, getattr(self, f"_make_{name}"))

    def _told(self, name: str) -> pl.DataFrame:
        """Return the frame of the method ``name``, which is in ``STORED``, with texts as String."""
        return self._out(name, self._cached(name))

    def _given(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        return self._out(name, self._frame(name, make))

    def _frame(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        with lock_of(self, f"frame of {name}"):
            if name not in self._frames:
                stored = self._from_stored(name) if name in self._stored else None
                self._frames[name] = made = make() if stored is None else stored
                if stored is None and name in STORED:
                    self._keep(name, self._without_own(name, made))
                hand_back()  # of a million kernels, glibc keeps 0.3 GB of what the frame needed
            return self._frames[name]

    def _forget(self) -> None:
        """Forget what is stored, because the trace's devices got other names; who launched what stays."""
        self._stored = {
            name: frame
            for name in LINKED
            if name in self._stored and (frame := self._as_stored(name)) is not None
        }
        self._place = None

    def _without_own(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Return a frame of ``STORED`` without the columns of the trace's table that it repeats."""
        table = STORED[name]
        return frame if table is None else frame.drop(TABLES[table], strict=False)

    def _give_back_stored(self) -> None:
        """Forget the frames that are stored, and those that repeat a table of the trace.

        They are read or made again. Of a million kernels they take 0.35 GB, and half a second to read.
        """
        for name in (*self._stored, *(name for name, table in STORED.items() if table)):
            with lock_of(self, f"frame of {name}"):
                self._frames.pop(name, None)
            with lock_of(self, f"text of {name}"):
                self._texts.pop(name, None)
        hand_back()

    def _passing(self, name: str, columns: Collection[str], row: int | None = None) -> pl.DataFrame:
        """Like ``_cached``, with at least ``columns``, of one ``row`` alone if it is given: of a frame that
        was stored and not yet asked for only these are read, and given up after their use."""
        if name not in self._frames and name in self._stored:
            frame = self._from_stored(name, columns, row)
            if frame is not None:
                return frame
        frame = self._cached(name)
        return frame if row is None else frame[row]

    def _own_columns(
        self, table: str, wanted: Sequence[str], row: int | None = None
    ) -> tuple[pl.DataFrame, int]:
        """Return columns of a trace table, of one ``row`` alone if it is given, and the table's number of
        rows; of a saved table that was not read yet, only these are read."""
        tables = self.trace.tables
        if isinstance(tables, Tables) and (many := tables.unread(table)) is not None:
            if not wanted:
                return pl.DataFrame(), many
            frame, held = tables.part(table, wanted, row)
            if held.issuperset(wanted):
                return frame.select(wanted), many
        whole = self.trace[table]
        some = whole.select(wanted)
        return some if row is None else some[row], len(whole)

    @classmethod
    def _schema(cls, name: str) -> Mapping[str, pl.DataType]:
        """Return the schema of a frame, from a trace in which nothing ran on a GPU."""
        if name not in _SCHEMAS:
            empty = cls(Trace.of({"kernels": pl.DataFrame(schema={"name": pl.Categorical})}))
            _SCHEMAS[name] = empty._cached(name).schema
        return _SCHEMAS[name]

    def _from_stored(
        self, name: str, columns: Collection[str] | None = None, row: int | None = None
    ) -> pl.DataFrame | None:
        """Return the stored frame, of ``columns`` (and of one ``row``) alone if they are given; None if its
        columns or rows are not those of this version and trace, or it was kept and is damaged."""
        try:
            return self._fitting(name, columns, row)
        except BadInput as error:
            if name not in self._kept:
                raise
            _log.debug("%s: what was kept is not used: %s", self._path, error)
            return None

    def _fitting(
        self, name: str, columns: Collection[str] | None, row: int | None
    ) -> pl.DataFrame | None:
        table, schema = STORED[name], self._schema(name)
        if columns is not None and isinstance(self._stored, Tables):
            frame, held = self._stored.part(name, columns, row)
            stored = len(frame) if row is None else self._stored.unread(name)
        else:
            frame = self._stored[name]
            held, stored = set(frame.columns), len(frame)
            frame = frame if row is None else frame[row]
        if table is not None:
            both = [column for column in schema if column in TABLES[table]]
            wanted = both if columns is None else [one for one in both if one in columns]
            rows, many = self._own_columns(table, wanted, row)
            if frame.width and stored is not None and stored != many:
                return None
            frame = pl.concat([rows, frame.drop(both, strict=False)], how="horizontal")
            held |= set(both)
        if held != set(schema):
            return None
        schema = {key: kind for key, kind in schema.items() if key in frame.columns}
        frame = frame.select(list(schema))
        text = (pl.String, pl.Categorical)
        fits = all(
            one == other or (one in text and other in text)
            for one, other in zip(frame.dtypes, schema.values(), strict=True)
        )
        return frame if fits else None


def _each(value: Any) -> tuple[Any, ...]:
    """Return the values of an argument that takes one value or several."""
    if value is None:
        return ()
    return (value,) if isinstance(value, (int, str)) else tuple(value)

"""What the methods of a Profile share: the trace, its attribution, and the frames made so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, cast

import polars as pl

from opscope.core.analysis.devices import trace_device
from opscope.core.analysis.executed import executed_kernels, executed_memops
from opscope.core.analysis.op_frame import ops_frame
from opscope.core.analysis.ops import Ops
from opscope.core.analysis.selection import Selection, select
from opscope.core.analysis.spans import SELECTED
from opscope.core.attribution.attribute import Attribution, attribute
from opscope.core.perf.devices.peaks import Device
from opscope.core.tables.columns import as_text, hand_back
from opscope.core.tables.trace import Trace

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

#: The frames that ``save`` stores with the trace. A value names the trace's table whose columns the frame
#: repeats: these columns are stored only once.
STORED: Final[Mapping[str, str | None]] = {
    "kernels": "kernels",
    "memops": "memops",
    "summary": None,
    "op_totals": None,
    "kernel_totals": None,
    "unattributed": None,
    "kinds": None,
    "gaps": None,
    "range_totals": None,
    "missing_costs": None,
    "communication": None,
    "collectives": None,
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


_WHERE: Final = ("steps", "device", "rank", "layer", "range")
_Method = TypeVar("_Method", bound=Callable[..., Any])


def selectable(method: _Method) -> _Method:
    """Make a method of a Profile answer for the part of it that the arguments ``Where`` select."""

    @wraps(method)
    def of_selected(self: Base, *args: Any, **given: Any) -> Any:
        where: Any = {name: given.pop(name) for name in _WHERE if name in given}
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
        self._selections: dict[Selection, Self] = {}

    @cached_property
    def attribution(self) -> Attribution:
        """The op to which each kernel and copy belongs."""
        return attribute(self.trace)

    def select(self, **where: Unpack[Where]) -> Self:
        """Return the profile of only some steps, devices, ranks, layers or user ranges.

        ``steps``: a step's number, or the first and the last (both included; None: no bound). ``layer``: the
        path of a module, with all inside it, or a pattern (``encoder.*.attention``). ``range``: the text of a
        user range, or a pattern. What is kept satisfies every argument; each kernel keeps the op that it
        has in the whole profile. Every method that returns a frame takes the same arguments:
        ``profile.op_totals(steps=(3, 8))``.

        Raises ValueError if nothing is selected, with what the profile has.
        """
        unknown = set(where) - set(_WHERE)
        if unknown:
            raise TypeError(
                f"cannot select by {', '.join(sorted(unknown))}, only by {', '.join(_WHERE)}"
            )
        steps = where.get("steps")
        wanted = Selection(
            (steps, steps) if isinstance(steps, int) else steps,
            *(_each(where.get(name)) for name in _WHERE[1:]),
        )
        if not wanted:
            return self
        if wanted not in self._selections:
            ops, kernels, memops = select(self._ops, wanted)
            part = type(self)(ops.attribution.trace)
            part.attribution, part._ops = ops.attribution, ops
            part._executed = self._executed.filter(kernels)
            part._executed_memops = self._executed_memops.filter(memops)
            self._selections[wanted] = part
        return self._selections[wanted]

    @property
    def selected(self) -> str | None:
        """What was selected, in words (``steps 3 to 8, device 0``); None for a whole profile."""
        what: str | None = self.trace.origin.get(SELECTED, {}).get("what")
        return what

    @cached_property
    def _ops(self) -> Ops:
        return Ops(self.attribution)

    @cached_property
    def _ops_frame(self) -> pl.DataFrame:
        return ops_frame(self._ops)

    @cached_property
    def _executed(self) -> pl.DataFrame:
        return executed_kernels(self._ops)

    @cached_property
    def _executed_memops(self) -> pl.DataFrame:
        return executed_memops(self._ops)

    @property
    def cpu_only(self) -> bool:
        """Whether the trace shows no use of a GPU, so that the CPU is the device."""
        return not self.trace.used_gpu

    @cached_property
    def device(self) -> tuple[Device | None, str | None]:
        """The device's limits and None, or None and the reason why the limits are not known.

        Limits are dense peaks in FLOP/s and bandwidth in bytes/s; their ``note`` says what in the trace does
        not fit them.
        """
        on_gpu = any(len(self.trace[table]) for table in ("kernels", "memops"))
        return trace_device(self.trace["devices"], on_gpu)

    def _out(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with its texts as String; the conversion is cached."""
        cached = self._texts.get(name)
        if cached is None or cached[0] is not frame:
            cached = self._texts[name] = frame, as_text(frame)
        return cached[1]

    def _cached(self, name: str) -> pl.DataFrame:
        """Return the cached frame of the method ``name``, with texts as categories."""
        getattr(self, name)(**({} if STORED[name] is None else {"categories": True}))
        return self._frames[name]

    def _given(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        return self._out(name, self._frame(name, make))

    def _frame(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        if name not in self._frames:
            stored = self._from_stored(name) if name in self._stored else None
            self._frames[name] = make() if stored is None else stored
            hand_back()  # of a million kernels, glibc keeps 0.3 GB of what the frame needed
        return self._frames[name]

    @classmethod
    def _schema(cls, name: str) -> Mapping[str, pl.DataType]:
        """Return the schema of a frame, from a trace in which nothing ran on a GPU."""
        if name not in _SCHEMAS:
            empty = cls(Trace.of({"kernels": pl.DataFrame(schema={"name": pl.Categorical})}))
            _SCHEMAS[name] = empty._cached(name).schema
        return _SCHEMAS[name]

    def _from_stored(self, name: str) -> pl.DataFrame | None:
        """Return the stored frame; None if its columns or rows are not those of this version and trace."""
        frame, table, schema = self._stored[name], STORED[name], self._schema(name)
        if table is not None:
            rows = self.trace[table]
            if len(rows) != len(frame):
                return None
            both = [column for column in schema if column in rows.columns]
            frame = pl.concat([rows.select(both), frame.drop(both, strict=False)], how="horizontal")
        if set(frame.columns) != set(schema):
            return None
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

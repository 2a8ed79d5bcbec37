"""Profile: what ``opscope.load`` returns; its methods ask the analysis and return Polars frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from html import escape
from os import PathLike, fspath
from pathlib import Path as FilePath
from typing import Final, TypeAlias

import polars as pl

from opscope import readers
from opscope.core.advice.ask import advice
from opscope.core.analysis import distributed, totals
from opscope.core.analysis.by_range import range_totals
from opscope.core.analysis.coverage import missing_costs
from opscope.core.analysis.devices import trace_device
from opscope.core.analysis.efficiency import (
    group_efficiency,
    kernel_efficiency,
    op_efficiency,
    replays,
)
from opscope.core.analysis.executed import executed_kernels, executed_memops
from opscope.core.analysis.gaps import gaps, gaps_on_cpu
from opscope.core.analysis.grouped import BY, kind_totals, totals_by
from opscope.core.analysis.kernels import kernel_pieces, kernels_frame, memops_frame
from opscope.core.analysis.kinds import op_kinds
from opscope.core.analysis.memory import memory_by_op, memory_peaks
from opscope.core.analysis.op_frame import ops_frame
from opscope.core.analysis.ops import Ops
from opscope.core.analysis.regions import compiled_regions
from opscope.core.analysis.summary import ended_steps, summary, unattributed_on_cpu
from opscope.core.analysis.utilization import step_utilization
from opscope.core.analysis.windows import captured_steps
from opscope.core.attribution.attribute import Attribution, attribute
from opscope.core.attribution.capture_traces import without_captures
from opscope.core.cells import replaces
from opscope.core.job.clocks import aligned
from opscope.core.perf.devices.peaks import Device
from opscope.core.perf.devices.unnamed import name_devices
from opscope.core.tables import ranks
from opscope.core.tables.columns import as_text, distinct_values, pieces, renamed
from opscope.core.tables.trace import Trace
from opscope.readers.profile import profile_folder

from .frames import describe
from .profile_html import page

Path: TypeAlias = "str | PathLike[str]"

#: Goes up when the analysis gives other results, so that what an older one left is worked out anew.
ANALYSIS: Final = 11
#: Rows of a trace up to which a notebook shows more than a line: some seconds' work.
_SHOWN: Final = 1_000_000
#: What ``save`` leaves beside the trace, each with the trace's table whose columns it begins with.
_STORED: Final[Mapping[str, str | None]] = {
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


class Profile:
    """A trace whose kernels have their ops; ``opscope.load`` returns it.

    Its methods return Polars frames, each made at the first call and then kept. Times are integer ns, sizes
    bytes, shares fractions of 1; what is not known is null. Text columns are String. Of frames with many
    millions of rows ``categories=True`` gives Categorical text, which takes 4 bytes a value instead of 16.
    """

    def __init__(self, trace: Trace, stored: Mapping[str, pl.DataFrame] | None = None) -> None:
        """``stored``: frames that ``save`` left, which are used as they are."""
        self.trace = trace
        self._stored = stored or {}
        self._path: str | None = None
        self._frames: dict[str, pl.DataFrame] = {}
        self._texts: dict[str, tuple[pl.DataFrame, pl.DataFrame]] = {}

    def __repr__(self) -> str:
        """How much of what it holds, and from where; nothing is worked out for it."""
        counts = {
            name: len(self.trace[name])
            for name in ("kernels", "memops", "ranges", "processes")
            if self.trace.has(name)
        }
        held = [
            f"{many:,} {(name[:-2] if name == 'processes' else name[:-1]) if many == 1 else name}"
            for name, many in counts.items()
        ]
        origin = self.trace.origin
        paths = origin.get("paths") or [
            path for part in origin.get("parts", ()) for path in part.get("paths") or ()
        ]
        if self._path is not None:  # what a saved profile was made of may be gone
            paths = [self._path]
        where = f" from {paths[0]}" if paths else ""
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        return f"<Profile of {', '.join(held) or 'nothing'}; {origin.get('format', 'no format')}{where}{more}>"

    def _repr_html_(self) -> str:
        """For a notebook: what it is, and of a trace that is not large the summary and the first ops."""
        if len(self.trace["kernels"]) > _SHOWN or len(self.trace["ranges"]) > _SHOWN:
            return f"<p>{escape(repr(self))}</p>"
        summary = self.summary().row(0, named=True)
        device = "the CPU" if self.cpu_only else "the GPU"
        return page(repr(self), summary, self.op_totals(), device)

    @cached_property
    def attribution(self) -> Attribution:
        """Which op each kernel and copy belongs to."""
        return attribute(self.trace)

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
        """Whether nothing tells of a GPU, so that the CPU is the device."""
        return not self.trace.used_gpu

    def _out(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """What is handed out: the frame with its texts as String, made once."""
        kept = self._texts.get(name)
        if kept is None or kept[0] is not frame:
            kept = self._texts[name] = frame, as_text(frame)
        return kept[1]

    def ops(self, *, categories: bool = False) -> pl.DataFrame:
        """Every op instance, with its times, layer, source line, shapes and cost.

        FLOPs and bytes stand at one op of each nest (``canonical``), so that columns may be added up.
        """
        return self._ops_frame if categories else self._out("ops", self._ops_frame)

    def kernels(self, *, categories: bool = False) -> pl.DataFrame:
        """Every kernel execution, with the op that launched it; ``reason`` says why one has no op.

        An op's FLOPs and bytes are split over its kernels by duration, so that columns may be added up.
        """
        frame = self._frame("kernels", lambda: kernels_frame(self._ops, self._executed))
        return frame if categories else self._out("kernels", frame)

    def memops(self, *, categories: bool = False) -> pl.DataFrame:
        """Every copy and set, with the op that asked for it; ``reason`` says why one has no op."""
        frame = self._frame("memops", lambda: memops_frame(self._ops))
        return frame if categories else self._out("memops", frame)

    def summary(self) -> pl.DataFrame:
        """The whole profile in one row.

        ``device_attributed_time`` and ``device_unattributed_time`` add up to ``device_time`` exactly. Without
        a GPU the device is the CPU: its time is the ops' self time and thread time inside steps outside any
        op. Where a window of a longer run was captured, times of kernels are the window's.
        """
        return self._frame("summary", self._summary)

    def _summary(self) -> pl.DataFrame:
        ops = self._ops_frame if self.cpu_only else None
        return summary(self.attribution.trace, self._executed, self._executed_memops, ops)

    def op_totals(self) -> pl.DataFrame:
        """Distinct ops by device time, the most first, each distinct call apart.

        A nest's time is counted once. Calls outside the window in which kernels were captured are rows of
        their own, with a device time of null and the reason.
        """
        return self._given("op_totals", lambda: totals.op_totals(self._op_sums))

    @cached_property
    def _op_sums(self) -> pl.DataFrame:
        return totals.op_sums(self._ops)

    @property
    def _summed(self) -> pl.DataFrame:
        """What of ``op_totals`` is there to add up further: not in order unless that was asked for."""
        if "op_totals" in self._frames or "op_totals" in self._stored:
            return self._kept("op_totals")
        return self._op_sums

    def kinds(self) -> pl.DataFrame:
        """Device time by kind of work (matrix products, attention …), op and direction.

        Where an op does not say its kind, the names of its kernels do. The times add up to the device's.
        """
        return self._given("kinds", self._kinds)

    def _kinds(self) -> pl.DataFrame:
        return op_kinds(self._ops, self._summed, self._kept("unattributed"))

    def totals_by(self, by: str, *, layers: Mapping[str, str] | None = None) -> pl.DataFrame:
        """Device time by ``kind``, ``op``, ``layer``, ``source`` or ``dtype``, and what has no op by reason.

        A row that adds up several inputs, layers, source lines or ops shows the one with most of its time
        and counts them. ``layers`` maps layers to names under which they are added up. Raises ValueError for
        another ``by``.
        """
        if by not in BY:
            raise ValueError(f"by {by!r}: it can be {', '.join(BY)}")
        if by == "kind":
            return kind_totals(self._kept("kinds"))
        summed = self._summed
        if layers:
            summed = summed.with_columns(renamed(summed["layer"], layers))
        return totals_by(summed, self._kept("unattributed"), self._kept("kinds"), by)

    def distinct(self, column: str) -> list[str]:
        """The distinct texts of a column of ``op_totals()`` (``layer``, ``direction`` …), sorted."""
        return sorted(distinct_values(self._summed[column]).drop_nulls().cast(pl.String))

    def kernel_totals(self) -> pl.DataFrame:
        """Kernels by name and total time, the most first."""
        return self._given("kernel_totals", lambda: totals.kernel_totals(self._executed))

    def unattributed(self) -> pl.DataFrame:
        """Why device time has no op: one row per reason, from a closed list, by time."""
        return self._given("unattributed", self._unattributed)

    def _unattributed(self) -> pl.DataFrame:
        if self.cpu_only:
            trace = self.attribution.trace  # with steps that were inferred
            return unattributed_on_cpu(trace, self.summary(), lambda: self._ops_frame)
        return totals.unattributed(self._executed, self._executed_memops)

    def gaps(self) -> pl.DataFrame:
        """Device time without an op, as in ``unattributed()``, by user range, phase and thread state too.

        Without a GPU it is thread time inside steps, outside any op.
        """
        return self._given("gaps", self._gaps)

    def _gaps(self) -> pl.DataFrame:
        if self.cpu_only:
            whole = self.summary()["device_time"].item() or 0
            return gaps_on_cpu(self._ops, self._ops_frame, whole)
        return gaps(self._ops)

    def range_totals(self) -> pl.DataFrame:
        """The user's ranges by the device time of what ran in them, innermost."""
        frame = self._ops_frame if self.cpu_only else None
        return self._given("range_totals", lambda: range_totals(self._ops, self._executed, frame))

    def missing_costs(self) -> pl.DataFrame:
        """The ops whose FLOPs or bytes are not known, by device time, and why.

        The shares of those without FLOPs add up to 1 − the summary's ``flops_share``; kernels without a
        launch record are listed besides.
        """
        return self._given(
            "missing_costs",
            lambda: missing_costs(self._ops, self._executed, self._executed_memops),
        )

    @cached_property
    def _exchanged(self) -> pl.DataFrame:
        return distributed.exchanged(self.attribution)

    def communication(self) -> pl.DataFrame:
        """Of each process: communication's share of the time, how much of it other work hides, and how long
        it waited for other ranks.

        Times are those inside the window from the first captured step to the last; on a GPU those of
        kernels, without one those of ops.
        """
        return self._given(
            "communication", lambda: distributed.communication(self.attribution, self._exchanged)
        )

    def collectives(self) -> pl.DataFrame:
        """Collectives by process group, kind, dtype and reduction, all ranks added up, by time.

        The bus bandwidth is defined as by nccl-tests.
        """
        return self._given("collectives", lambda: distributed.collectives(self._exchanged))

    def groups(self) -> pl.DataFrame:
        """The process groups that each process is a member of, and their ranks."""
        return ranks.groups(self.trace)

    def meshes(self) -> pl.DataFrame:
        """The dimensions of each DeviceMesh, and where each process lies along them.

        ``coordinate`` and ``group`` are null where the process is not in the mesh.
        """
        return ranks.meshes(self.trace)

    def clocks(self) -> pl.DataFrame:
        """How each machine's clock was put on the first machine's, and how exactly."""
        return as_text(distributed.clocks(self.trace))

    @cached_property
    def device(self) -> tuple[Device | None, str | None]:
        """The device's limits (dense peaks in FLOP/s, bandwidth in bytes/s) and None, or None and why they
        are not known. Its ``note`` says what about the trace does not fit."""
        on_gpu = any(len(self.trace[table]) for table in ("kernels", "memops"))
        return trace_device(self.trace["devices"], on_gpu)

    def efficiency(self, *by: str) -> pl.DataFrame:
        """The roofline: how near ops come to what the device can do.

        Without ``by``, every execution of an op whose cost counts; with ``op``, ``layer``, ``direction``,
        ``step``, ``range`` or several of these, or ``kernel`` alone, sums of these. Efficiencies are null
        where the device is not known.
        """
        found = self._efficiency
        if by == ("kernel",):
            kernels = self.kernels(categories=True)
            return as_text(kernel_efficiency(self._ops, kernels, found))
        return as_text(group_efficiency(found, *by) if by else found)

    @cached_property
    def _efficiency(self) -> pl.DataFrame:
        return op_efficiency(
            self._ops, self._ops_frame, self.kernels(categories=True), self.device[0]
        )

    def utilization(self) -> pl.DataFrame:
        """Model and hardware FLOPs utilization (MFU, HFU) of each step and process."""
        found = step_utilization(
            # in a step outside the window nobody knows what CUDA graphs replayed
            captured_steps(self.trace, ended_steps(self.attribution.trace["ranges"])),
            self._ops_frame,
            self.device[0],
            again=pl.Series(self._ops.recomputed(self._ops.rows)),
            kernels=None if self.cpu_only else self.kernels(categories=True),
            replays=replays(self._ops),
        )
        return as_text(found)

    def own_costs(self) -> pl.DataFrame:
        """What opscope itself took while it recorded, by process and part."""
        return self.trace["own_costs"]

    def memory(self) -> pl.DataFrame:
        """The most memory in use, by process and device; no row where memory was not recorded."""
        return self._given("memory", lambda: memory_peaks(self.trace))

    def memory_by_op(self) -> pl.DataFrame:
        """The ops that allocated memory, by what of it was in use at the device's peak.

        Over all rows of a device ``at_peak`` adds up to the peak exactly; it is null where the source gives
        no addresses or does not number the device.
        """
        return self._given("memory_by_op", lambda: memory_by_op(self._ops))

    def compiled(self) -> pl.DataFrame:
        """What ran in each region that torch.compile made: its kernels, and the ops that they fuse."""
        return self._given("compiled", lambda: compiled_regions(self._ops))

    def advice(self) -> pl.DataFrame:
        """What to change in the program, by what it would save at most; then what no detector could tell.

        A saving lies between ``saving_least`` and ``saving_most``. Savings overlap: they must not be added
        up. ``outcome`` is ``nothing found`` only where the detector saw all that it needs.
        """
        return self._given("advice", lambda: advice(self))

    def notes(self) -> pl.DataFrame:
        """What the reader of the trace found: what is missing, inferred or wrong in it."""
        return self.trace["notes"]

    def save(self, path: Path, *, force: bool | None = None) -> None:
        """Write the trace and what was made of it as a directory ``NAME.opscope``.

        Raises FileExistsError where there is one, unless ``force``, which IPython and notebooks imply.
        """
        self.save_as(path, force=replaces(force))

    def save_as(
        self,
        path: Path,
        *,
        force: bool = False,
        others: Iterable[Path] = (),
        scratch: Path | None = None,
    ) -> FilePath:
        """``save``, by the first of the names ``others`` that is free where ``path`` is not.

        ``scratch`` is a folder on the same disk in which to make it. Returns the name that it has.
        """
        kept: dict[str, pl.DataFrame | Iterable[pl.DataFrame]] = {}
        # each is made when it is written, what is as long as the trace a piece at a time and last: what that
        # needs is held from then on
        for name, table in sorted(_STORED.items(), key=lambda item: item[1] is not None):
            kept[name] = self._parts(name) if table is None else self._beside(name, table)
        about = {"analysis": ANALYSIS}
        return profile_folder.write(path, self.trace, kept, about, force, others, scratch)

    def _beside(self, name: str, table: str) -> Iterator[pl.DataFrame]:
        """Pieces of the frame ``name``, without the columns that the trace's table has."""
        if name == "kernels" and name not in self._frames and name not in self._stored:
            parts = kernel_pieces(self._ops, self._executed)
        else:
            frame = self._kept(name)
            parts = (frame[part] for part in pieces(len(frame)))
        for part in parts:
            yield part.drop(set(part.columns) & set(self.trace[table].columns))

    def _parts(self, name: str) -> Iterator[pl.DataFrame]:
        """Pieces of the frame ``name``."""
        if name == "op_totals" and name not in self._frames and name not in self._stored:
            yield from totals.op_total_pieces(self._op_sums)
        else:
            yield self._kept(name)

    def _kept(self, name: str) -> pl.DataFrame:
        """The frame of the method ``name`` as it is kept, texts as categories."""
        getattr(self, name)(**({} if _STORED[name] is None else {"categories": True}))
        return self._frames[name]

    def _given(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        return self._out(name, self._frame(name, make))

    def _frame(self, name: str, make: Callable[[], pl.DataFrame]) -> pl.DataFrame:
        if name not in self._frames:
            stored = self._from_stored(name) if name in self._stored else None
            self._frames[name] = make() if stored is None else stored
        return self._frames[name]

    def _from_stored(self, name: str) -> pl.DataFrame | None:
        """What was stored; None where it is not what this version makes, or not of this trace."""
        frame, table, schema = self._stored[name], _STORED[name], _schema(name)
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


describe(Profile)


@cache
def _schema(name: str) -> Mapping[str, pl.DataType]:
    """The columns of a frame: what a trace in which nothing happened on a GPU gives."""
    empty = Profile(Trace.of({"kernels": pl.DataFrame(schema={"name": pl.Categorical})}))
    return empty._kept(name).schema


def load(
    path: Path | Sequence[Path],
    *,
    gpu: str | None = None,
    strict: bool = False,
    lean: bool = False,
) -> Profile:
    """Open a trace or profile of any format, recognised by content; a list is one job's files.

    Where some of several files cannot be read the others are, ``summary()`` says how many, ``notes()``
    which and why; with ``strict``, and where none can be, that is an error.
    ``gpu`` (``"H100 SXM"``) names devices that the trace does not name. ``lean`` leaves out columns of
    which no total is made, how kernels were launched among them (grid, registers …), where that saves
    much: half of what there is to read of an Nsight Systems export's kernels. Raises
    opscope.errors.BadInput, naming the file and what is wrong with it, and
    opscope.errors.UnknownDevice where ``gpu`` is none that is known.
    """
    if isinstance(path, (str, PathLike)) and readers.format_of(path) == "profile":
        trace, stored, meta = profile_folder.read(path)
        profile = Profile(trace, stored if meta.get("analysis") == ANALYSIS else None)
        profile._path = fspath(path)
    else:
        profile = Profile(aligned(without_captures(readers.open(path, strict=strict, lean=lean))))
    if gpu is not None:
        name_devices(profile.trace, gpu)
    return profile

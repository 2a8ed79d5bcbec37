"""Profile, the class that ``opscope.load`` returns: its methods return the results as Polars frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from html import escape
from os import PathLike, fspath
from pathlib import Path as FilePath
from typing import Final, TypeAlias, cast

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
from opscope.core.analysis.engines import engine_layers, engine_runs
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
from opscope.core.attribution.specs import Specs
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

#: Version of the analysis. Increase it when results change, so that saved results are recomputed.
ANALYSIS: Final = 12
#: A notebook shows only one line for a trace with more rows; a summary of so many takes some seconds.
_SHOWN: Final = 1_000_000
#: The frames that ``save`` stores with the trace. A value names the trace's table whose columns the frame
#: repeats: these columns are stored only once.
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
    """A trace whose kernels are linked to their ops; ``opscope.load`` returns it.

    Its methods return Polars frames, each computed at the first call and then cached. Times are integer ns,
    sizes are bytes, shares are fractions of 1; unknown values are null. Text columns are String. For frames
    with many millions of rows, ``categories=True`` gives Categorical text: 4 bytes a value instead of 16.
    """

    def __init__(self, trace: Trace, stored: Mapping[str, pl.DataFrame] | None = None) -> None:
        """``stored``: frames that ``save`` wrote; they are used without being recomputed."""
        self.trace = trace
        self._stored = stored or {}
        self._path: str | None = None
        self._frames: dict[str, pl.DataFrame] = {}
        self._texts: dict[str, tuple[pl.DataFrame, pl.DataFrame]] = {}

    def __repr__(self) -> str:
        """Return the number of kernels, memops, ranges and processes, and the source; computes nothing."""
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
        if self._path is not None:  # the files that a saved profile was made from may be gone
            paths = [self._path]
        where = f" from {paths[0]}" if paths else ""
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        what = ", ".join(held) or "nothing"
        return f"<Profile of {what}; {origin.get('format', 'no format')}{where}{more}>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the repr and, unless the trace is large, the summary and first ops."""
        if len(self.trace["kernels"]) > _SHOWN or len(self.trace["ranges"]) > _SHOWN:
            return f"<p>{escape(repr(self))}</p>"
        summary = self.summary().row(0, named=True)
        device = "the CPU" if self.cpu_only else "the GPU"
        return page(repr(self), summary, self.op_totals(), device)

    @cached_property
    def attribution(self) -> Attribution:
        """The op to which each kernel and copy belongs."""
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
        """Whether the trace shows no use of a GPU, so that the CPU is the device."""
        return not self.trace.used_gpu

    def _out(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the frame with its texts as String; the conversion is cached."""
        cached = self._texts.get(name)
        if cached is None or cached[0] is not frame:
            cached = self._texts[name] = frame, as_text(frame)
        return cached[1]

    def ops(self, *, categories: bool = False) -> pl.DataFrame:
        """Every op instance, with its times, layer, source line, shapes and cost.

        Only one op of each nest (``canonical``) has FLOPs and bytes, so that columns can be added up.
        """
        return self._ops_frame if categories else self._out("ops", self._ops_frame)

    def kernels(self, *, categories: bool = False) -> pl.DataFrame:
        """Every kernel execution, with the op that launched it; ``reason`` says why a kernel has no op.

        An op's FLOPs and bytes are divided among its kernels by duration, so that columns can be added up.
        """
        frame = self._frame("kernels", lambda: kernels_frame(self._ops, self._executed))
        return frame if categories else self._out("kernels", frame)

    def memops(self, *, categories: bool = False) -> pl.DataFrame:
        """Every copy and set, with the op that launched it; ``reason`` says why a copy or set has no op."""
        frame = self._frame("memops", lambda: memops_frame(self._ops))
        return frame if categories else self._out("memops", frame)

    def summary(self) -> pl.DataFrame:
        """The whole profile in one row.

        The columns ``device_attributed_time`` and ``device_unattributed_time`` add up to ``device_time``
        exactly; likewise ``attributed_time`` and ``unattributed_time`` to ``kernel_time``. Without a GPU the
        device is the CPU: its time is the ops' self time plus the threads' time inside steps but outside any
        op. If only a window of the run was captured, kernel times are those of the window.
        """
        return self._frame("summary", self._summary)

    def _summary(self) -> pl.DataFrame:
        ops = self._ops_frame if self.cpu_only else None
        return summary(self.attribution.trace, self._executed, self._executed_memops, ops)

    def op_totals(self) -> pl.DataFrame:
        """Distinct calls of ops, the most device time first.

        The time of nested ops is counted once. Calls outside the window in which kernels were captured are
        separate rows, with null as device time and the reason.
        """
        return self._given("op_totals", lambda: totals.op_totals(self._op_sums))

    @cached_property
    def _op_sums(self) -> pl.DataFrame:
        return totals.op_sums(self._ops)

    @property
    def _summed(self) -> pl.DataFrame:
        """The rows of ``op_totals`` for further sums; sorted only if ``op_totals`` was computed or stored."""
        if "op_totals" in self._frames or "op_totals" in self._stored:
            return self._cached("op_totals")
        return self._op_sums

    def kinds(self) -> pl.DataFrame:
        """Device time by kind of work (matrix products, attention …), op and direction.

        If an op does not give its kind, the names of its kernels do. The times add up to the device time.
        """
        return self._given("kinds", self._kinds)

    def _kinds(self) -> pl.DataFrame:
        return op_kinds(self._ops, self._summed, self._cached("unattributed"))

    def totals_by(self, by: str, *, layers: Mapping[str, str] | None = None) -> pl.DataFrame:
        """Device time by ``kind``, ``op``, ``layer``, ``source`` or ``dtype``; time without an op by reason.

        A row that adds up several inputs, layers, source lines or ops gives their number and shows the one
        with most of the time. ``layers`` maps layers to the names under which they are added up. Raises
        ValueError for any other ``by``.
        """
        if by not in BY:
            raise ValueError(f"unknown by {by!r}; choose one of {', '.join(BY)}")
        if by == "kind":
            return kind_totals(self._cached("kinds"))
        summed = self._summed
        if layers:
            summed = summed.with_columns(renamed(summed["layer"], layers))
        return totals_by(summed, self._cached("unattributed"), self._cached("kinds"), by)

    def distinct(self, column: str) -> list[str]:
        """Return the distinct texts of a column of ``op_totals()`` (``layer``, ``direction`` …), sorted."""
        return sorted(distinct_values(self._summed[column]).drop_nulls().cast(pl.String))

    def kernel_totals(self) -> pl.DataFrame:
        """Kernels added up by name, the most time first."""
        return self._given("kernel_totals", lambda: totals.kernel_totals(self._executed))

    def unattributed(self) -> pl.DataFrame:
        """Device time without an op: one row per reason, from a closed list, by time."""
        return self._given("unattributed", self._unattributed)

    def _unattributed(self) -> pl.DataFrame:
        if self.cpu_only:
            trace = self.attribution.trace  # with steps that were inferred
            return unattributed_on_cpu(trace, self.summary(), lambda: self._ops_frame)
        return totals.unattributed(self._executed, self._executed_memops)

    def gaps(self) -> pl.DataFrame:
        """Device time without an op, by reason as in ``unattributed()``, user range, phase and thread state.

        Without a GPU it is the threads' time inside steps but outside any op.
        """
        return self._given("gaps", self._gaps)

    def _gaps(self) -> pl.DataFrame:
        if self.cpu_only:
            whole = self.summary()["device_time"].item() or 0
            return gaps_on_cpu(self._ops, self._ops_frame, whole)
        return gaps(self._ops)

    def range_totals(self) -> pl.DataFrame:
        """The user's ranges by device time; work counts for the innermost range that it ran in."""
        frame = self._ops_frame if self.cpu_only else None
        return self._given("range_totals", lambda: range_totals(self._ops, self._executed, frame))

    def missing_costs(self) -> pl.DataFrame:
        """The ops whose FLOPs or bytes are not known, with the reason, by device time.

        The shares of ops without FLOPs add up to 1 − the summary's ``flops_share``. Kernels without a
        launch record are listed in addition.
        """
        return self._given(
            "missing_costs",
            lambda: missing_costs(self._ops, self._executed, self._executed_memops),
        )

    @cached_property
    def _exchanged(self) -> pl.DataFrame:
        return distributed.exchanged(self.attribution)

    def communication(self) -> pl.DataFrame:
        """Communication per process: its share of the time, how much of it other work hides, and how long
        the process waited for other ranks.

        Times lie inside the window from the first captured step to the last. They are times of kernels, or
        without a GPU of ops.
        """
        return self._given(
            "communication", lambda: distributed.communication(self.attribution, self._exchanged)
        )

    def collectives(self) -> pl.DataFrame:
        """Collectives by process group, kind, dtype and reduction, all ranks added up, by time.

        The bus bandwidth follows the definition of nccl-tests.
        """
        return self._given("collectives", lambda: distributed.collectives(self._exchanged))

    def groups(self) -> pl.DataFrame:
        """The process groups that each process is a member of, and their ranks."""
        return ranks.groups(self.trace)

    def meshes(self) -> pl.DataFrame:
        """The dimensions of each DeviceMesh, and the coordinate of each process along them.

        If a process is not in the mesh, its ``coordinate`` and ``group`` are null.
        """
        return ranks.meshes(self.trace)

    def clocks(self) -> pl.DataFrame:
        """How each machine's clock was aligned with the first machine's, and how exactly."""
        return as_text(distributed.clocks(self.trace))

    @cached_property
    def device(self) -> tuple[Device | None, str | None]:
        """The device's limits and None, or None and the reason why the limits are not known.

        Limits are dense peaks in FLOP/s and bandwidth in bytes/s; their ``note`` says what in the trace does
        not fit them.
        """
        on_gpu = any(len(self.trace[table]) for table in ("kernels", "memops"))
        return trace_device(self.trace["devices"], on_gpu)

    def efficiency(self, *by: str) -> pl.DataFrame:
        """The roofline: how close ops come to the device's limits.

        Without ``by``: every execution of a canonical op. With ``op``, ``layer``, ``direction``, ``step``
        or ``range``, or several of these: sums over them. With ``kernel`` alone: sums per kernel name.
        Efficiencies are null if the device is not known.
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
            # outside the window, the kernels that CUDA graphs replayed are not known
            captured_steps(self.trace, ended_steps(self.attribution.trace["ranges"])),
            self._ops_frame,
            self.device[0],
            recomputed=pl.Series(self._ops.recomputed(self._ops.rows)),
            kernels=None if self.cpu_only else self.kernels(categories=True),
            replays=replays(self._ops),
        )
        return as_text(found)

    def own_costs(self) -> pl.DataFrame:
        """opscope's own cost while it recorded, by process and part."""
        return self.trace["own_costs"]

    def memory(self) -> pl.DataFrame:
        """The peak of memory in use, by process and device; empty if memory was not recorded."""
        return self._given("memory", lambda: memory_peaks(self.trace))

    def memory_by_op(self) -> pl.DataFrame:
        """The ops that allocated memory, by how much of theirs was in use at the device's peak.

        Over all rows of a device, ``at_peak`` adds up to the peak exactly. It is null if the trace has no
        addresses or no number for the device.
        """
        return self._given("memory_by_op", lambda: memory_by_op(self._ops))

    def compiled(self) -> pl.DataFrame:
        """The regions that torch.compile made: the kernels that ran in each, and the ops that they fuse."""
        return self._given("compiled", lambda: compiled_regions(self._ops))

    @property
    def _specs(self) -> pl.DataFrame:
        return Specs.of(self.attribution.trace, self.attribution.meaning).table

    def engine_layers(self) -> pl.DataFrame:
        """The layers of TensorRT engines: times, precision, formats, tactic, origin and cost of each.

        Times that trtexec exported are means over many runs; else they are of the layer's kernels.
        """
        return self._given(
            "engine_layers",
            lambda: engine_layers(
                self._specs, self.kernels(categories=True), self._ops_frame, self._efficiency
            ),
        )

    def engine_runs(self) -> pl.DataFrame:
        """How long runs of a TensorRT engine took: as trtexec recorded them, and as its summary states it."""
        return self._given("engine_runs", lambda: engine_runs(self._specs, self.trace["samples"]))

    def advice(self) -> pl.DataFrame:
        """What to change in the program, by what it would save at most; then what no detector could tell.

        A saving lies between ``saving_least`` and ``saving_most``. Savings overlap: they must not be added
        up. ``outcome`` is ``nothing found`` only where the detector saw all that it needs.
        """
        return self._given("advice", lambda: advice(self))

    def notes(self) -> pl.DataFrame:
        """The reader's remarks on the trace: what is missing, inferred or wrong."""
        return self.trace["notes"]

    def save(self, path: Path, *, force: bool | None = None) -> None:
        """Write the trace and the results as a directory ``NAME.opscope``.

        Raises FileExistsError if it exists, unless ``force`` is true, the default in IPython and notebooks.
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
        """Like ``save``; if ``path`` is taken, use the first free name of ``others``. Return that path.

        ``scratch`` is a folder on the same disk in which the profile is built.
        """
        frames: dict[str, pl.DataFrame | Iterable[pl.DataFrame]] = {}
        # each frame is made when it is written; those as long as the trace come last and in pieces, because
        # what they need stays in memory
        for name, table in sorted(_STORED.items(), key=lambda item: item[1] is not None):
            frames[name] = self._parts(name) if table is None else self._beside(name, table)
        about = {"analysis": ANALYSIS}
        return profile_folder.write(path, self.trace, frames, about, force, others, scratch)

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
        if name == "op_totals" and name not in self._frames and name not in self._stored:
            yield from totals.op_total_pieces(self._op_sums)
        else:
            yield self._cached(name)

    def _cached(self, name: str) -> pl.DataFrame:
        """Return the cached frame of the method ``name``, with texts as categories."""
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
        """Return the stored frame; None if its columns or rows are not those of this version and trace."""
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
    """Return the schema of a frame, from a trace in which nothing ran on a GPU."""
    empty = Profile(Trace.of({"kernels": pl.DataFrame(schema={"name": pl.Categorical})}))
    return empty._cached(name).schema


def load(
    path: Path | Sequence[Path],
    *,
    gpu: str | None = None,
    strict: bool = False,
    lean: bool = False,
    model: Path | None = None,
) -> Profile:
    """Open a trace or profile of any format, recognised by content; a list is the files of one job.

    If some of several files cannot be read, the others are: ``summary()`` says how many, ``notes()`` which
    files and why. If no file can be read, or with ``strict`` if any cannot, load raises
    opscope.errors.BadInput, which names the file and what is wrong. ``gpu`` (``"H100 SXM"``) names devices
    that the trace does not name; load raises opscope.errors.UnknownDevice if it does not know that GPU.
    ``lean`` leaves out columns that no total needs, such as how kernels were launched (grid, registers …),
    from formats for which this saves much: half of the kernels' data in an Nsight Systems export. ``model``
    is what ran, where the trace only names it: the ONNX model of a profile of ONNX Runtime (best the
    optimised one that it saved; without it a model beside the profile is used if it has all its nodes), or
    the layer info of a TensorRT engine beside a trace of Nsight Systems. Load raises BadInput if it is
    another's.
    """
    saved = isinstance(path, (str, PathLike)) and readers.format_of(path) == "profile"
    if saved and model is None:
        trace, stored, meta = profile_folder.read(cast(Path, path))
        profile = Profile(trace, stored if meta.get("analysis") == ANALYSIS else None)
        profile._path = fspath(cast(Path, path))
    else:
        trace = readers.open(path, strict=strict, lean=lean, model=model)
        profile = Profile(aligned(without_captures(trace)))
    if gpu is not None:
        name_devices(profile.trace, gpu)
    return profile

"""The data of DLProf's reports: the instances of aggregated iterations, their times and their work. Times of
an instance are flattened (``rules``): its CUDA calls on its thread, its kernels, copies and sets on each
device. What the trace does not record is null."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.ops.ops import Ops
from opscope.core.analysis.steps.key_ops import unknown_key
from opscope.core.attribution.attribute import Launched
from opscope.core.dlprof.domains import range_instances, ranges_by_domain
from opscope.core.dlprof.instances import Instances, instances
from opscope.core.dlprof.iterations import DlprofIterations, assign, iterations
from opscope.core.dlprof.names import short_name
from opscope.core.dlprof.rules import Spans, cpu_overhead, grouped_time
from opscope.core.once import once
from opscope.core.perf.devices.peaks import Device
from opscope.core.tables.columns import at, compact, gather, pairs, spread
from opscope.core.tables.intervals import Ints
from opscope.core.tables.trace import Trace

#: The columns of a kernel that the caller supplies.
COSTS: Final = ("tensor_core", "tc_eligible", "matrix_flops", "vector_flops", "bytes")


class Source:
    """An attributed trace, from which models for any key op and range of iterations are made. ``kernels``: a
    row for each kernel of the trace, with the columns ``COSTS``. ``ranges``: the rows of the ranges that
    represent ops; by default, the framework's ops."""

    def __init__(
        self,
        ops: Ops,
        kernels: pl.DataFrame,
        device: Device | None,
        ranges: Ints | None = None,
    ) -> None:
        self.ops = ops
        self._ranges = ranges
        self.trace: Trace = ops.attribution.trace
        self.costs = kernels.select(COSTS)
        self.device = device

    @once
    def instances(self) -> Instances:
        """The instances of the trace's ops."""
        if self._ranges is not None:
            return range_instances(self.ops, self._ranges)
        return instances(self.ops)

    def rows_of(self, key: str) -> Ints | None:
        """Return the range rows of the op whose DLProf name or id is ``key``; None if no op has it."""
        ops, table = self.instances.ops, self.instances.table
        named = (ops["op_id"].str.to_uppercase() == key.upper()) | (
            ops["name"].cast(pl.String) == key
        )
        wanted = np.flatnonzero(named.fill_null(False).to_numpy())
        if not len(wanted):
            return None
        rows = table.filter(pl.col("op").is_in(wanted) & (pl.col("range") >= 0))["range"]
        return np.sort(rows.to_numpy())

    def unknown_key(self, key: str) -> str | None:
        """Return the message for an unknown key op; None if there is such an op."""
        return None if self.iterations(key).found else unknown_key(self.ops, key)

    def iterations(
        self, key: str | None = None, start: int | None = None, stop: int | None = None
    ) -> DlprofIterations:
        """Return the iterations by a key op, given by name or id. Raises BadIterationRange."""
        rows = self.rows_of(key) if key else None
        return iterations(
            self.trace, self.ops.attribution, key=key, start=start, stop=stop, rows=rows
        )

    def model(
        self,
        key: str | None = None,
        start: int | None = None,
        stop: int | None = None,
        domain: str | None = None,
    ) -> Model:
        """Return the data for the reports of the iterations from ``start`` to ``stop``. ``domain``: the
        ranges of this domain of NVTX take the place of ops. Raises BadIterationRange, and KeyError for a
        domain that is not in ``domains``."""
        source = self if domain is None else self._of_domains[domain]
        return Model(source, self.iterations(key, start, stop))

    @property
    def domains(self) -> list[str]:
        """The NVTX domains in which the user, or a library, pushes ranges of its own; sorted."""
        return sorted(self._of_domains)

    @once
    def _of_domains(self) -> dict[str, Source]:
        return {
            name: Source(self.ops, self.costs, self.device, rows)
            for name, rows in ranges_by_domain(self.ops.attribution).items()
        }

    @once
    def times(self) -> pl.DataFrame:
        """One row per instance: op, process, start, end, range, and in ns ``cpu``, ``api``, ``overhead``,
        ``gpu``, ``accumulated``, ``idle``, ``mapped`` (first start to last end of its kernels)."""
        instances, trace = self.instances, self.trace
        table, count = instances.table, len(instances.table)
        cpu = (table["end"] - table["start"] - table["inner"]).clip(0).alias("cpu")
        is_timed = cpu.is_not_null()
        ends = table["end"].fill_null(0).to_numpy()
        calls = trace["calls"]
        ended = np.minimum(
            calls["end"].fill_null(strategy="zero").to_numpy(), at(ends, instances.calls, 0)
        )
        api = grouped_time(instances.calls, calls["start"].to_numpy(), ended, count).flattened
        flattened, accumulated, idle = self._on_devices(count)
        has_calls, on_device = trace.has("calls"), trace.has("kernels") or trace.has("memops")
        seen = table["seen"] & on_device
        overhead = cpu_overhead(cpu.fill_null(0).to_numpy(), api)
        columns = [
            _known("api", api, is_timed & has_calls),
            _known("overhead", overhead, is_timed & has_calls),
            _known("gpu", flattened, seen),
            _known("accumulated", accumulated, seen),
            _known("idle", idle, seen),
            _known("mapped", self._mapped(count), table["seen"] & trace.has("kernels")),
        ]
        return table.with_columns(cpu, *columns)

    def _on_devices(self, count: int) -> tuple[Ints, Ints, Ints]:
        """Return the flattened, accumulated and idle time of each instance, summed over its devices."""
        totals = [np.zeros(count, np.int64) for _ in range(3)]
        group, device, start, end = (
            np.concatenate(parts)
            for parts in zip(
                *(
                    (
                        totals_of_name,
                        *(
                            self.trace[name][column].fill_null(0).to_numpy()
                            for column in ("device", "start", "end")
                        ),
                    )
                    for name, totals_of_name in (
                        ("kernels", self.instances.kernels),
                        ("memops", self.instances.memops),
                    )
                ),
                strict=True,
            )
        )
        owner, _, number = pairs(group, device)
        times = grouped_time(number, start, end, len(owner))
        for total, part in zip(
            totals, (times.flattened, times.accumulated, times.idle), strict=True
        ):
            np.add.at(total, owner, part)
        return totals[0], totals[1], totals[2]

    def _mapped(self, count: int) -> Ints:
        """Return the time (ns) from the first start to the last end of each instance's kernels on all
        devices; 0 without one."""
        kernels = self.trace["kernels"]
        start, end = (kernels[name].fill_null(0).to_numpy() for name in ("start", "end"))
        return grouped_time(self.instances.kernels, start, end, count).spanned

    @once
    def short_names(self) -> tuple[Ints, list[str]]:
        """Return for each kernel the index of its short name in the sorted short names, and those names."""
        code, texts = compact(self.trace["kernels"]["name"])
        short = [short_name(text or "?") for text in texts]
        distinct = sorted(set(short))
        where = {name: number for number, name in enumerate(distinct)}
        return np.array([where[name] for name in short], np.int64)[code], distinct

    @once
    def reasons(self) -> list[str]:
        """Return sentences that say why figures are null; none if the trace records all that DLProf's reports
        need."""
        trace, reasons_listed = self.trace, []
        if not (trace.has("kernels") or trace.has("memops")):
            message = (
                "kernels were not captured" if trace.used_gpu else "the trace shows no use of a GPU"
            )
            reasons_listed.append(f"GPU times are empty: {message}")
        elif not trace.has("memops"):
            reasons_listed.append(
                "copies and sets were not recorded: GPU times are those of kernels alone"
            )
        if not trace.has("calls"):
            reasons_listed.append(
                "API times and CPU overhead are empty: calls of the GPU's API were not recorded"
            )
        if not self.instances.ops["associated"].any():
            reasons_listed.append("no op was recorded: what is listed is unassociated")
        return reasons_listed


class Model:
    """The instances, kernels and copies of the aggregated iterations.

    ``found``: the iterations. ``times``: ``Source.times`` of the aggregated instances, with ``iteration``.
    """

    def __init__(self, source: Source, dlprof_iterations: DlprofIterations) -> None:
        self.source, self.found = source, dlprof_iterations
        self.ops = source.instances.ops
        every = source.times
        # nothing on the CPU starts work without a launch, so its own start counts
        number = assign(dlprof_iterations, every["process"], every["start"])
        wanted = dlprof_iterations.table.filter("aggregated")["iteration"]
        self.kept = number.is_in(wanted.implode()).fill_null(False).to_numpy()
        self.times = every.with_columns(number.alias("iteration")).filter(pl.Series(self.kept))
        self._iteration = number

    @property
    def within(self) -> Spans:
        """The time of the aggregated iterations (ns)."""
        return self.found.within

    @once
    def kernels(self) -> pl.DataFrame:
        """One row per kernel: op, iteration, process, device, start, end, duration, api_start, api_time (ns),
        short (the number of its short name), row (in the trace's table), and ``COSTS``."""
        source = self.source
        short, _ = source.short_names
        frame = self._work("kernels", source.instances.kernels, source.ops.attribution.kernels)
        costs = source.costs[frame["row"].to_numpy()]
        return frame.with_columns(
            pl.Series("short", short[frame["row"].to_numpy()]), *costs.get_columns()
        )

    @once
    def memops(self) -> pl.DataFrame:
        """One row per copy or set: columns as in ``kernels``, and the name of the call."""
        source = self.source
        launched = source.ops.attribution.memops
        frame = self._work("memops", source.instances.memops, launched)
        rows = frame["row"].to_numpy()
        call = gather(source.trace["calls"]["name"], launched.call[rows])
        kind = source.trace["memops"]["kind"].gather(rows)
        return frame.with_columns(
            pl.coalesce(
                pl.lit(call.cast(pl.String)), "memory_" + pl.lit(kind.cast(pl.String))
            ).alias("name"),
            source.trace["memops"]["bytes"].gather(rows),
        )

    def _work(self, name: str, ints: Ints, launched: Launched) -> pl.DataFrame:
        trace = self.source.trace
        rows = np.flatnonzero(self.kept[ints])
        rows_of_ops, call = ints[rows], launched.call[rows]
        calls = trace["calls"]
        start, end = (gather(calls[column], call) for column in ("start", "end"))
        op = self.source.instances.table["op"].to_numpy()
        return (
            trace[name]
            .select("process", "device", "start", "end")[rows]
            .with_columns(
                (pl.col("end") - pl.col("start")).alias("duration"),
                pl.Series("op", op[rows_of_ops]),
                self._iteration.gather(rows_of_ops),
                start.alias("api_start"),
                (end - start).alias("api_time"),
                pl.Series("row", rows),
            )
        )

    def text(self, codes: Ints, texts: list[str]) -> pl.Series:
        """Return texts by their number, as categories."""
        return spread("", texts, codes)


def _known(name: str, values: Ints, known: pl.Series) -> pl.Series:
    column: pl.Series = pl.Series(name, values, pl.Int64).set(~known.fill_null(False), None)
    return column

"""The sections of each report: titled tables with DLProf's columns in its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from opscope.core.dlprof import summary, tables
from opscope.core.dlprof.model import Model
from opscope.profile import Profile
from opscope.version import __version__

from .expert_systems import findings

#: Columns that DLProf writes in quotes.
QUOTED: Final = frozenset(
    {"Op ID", "Op Name", "Op Type", "Kernel Name", "Input Shapes", "Parameters", "Output Shapes",
     "Long Kernel Name", "Stack Trace", "TC Kernel Names", "Non-TC Kernel Names", "Name", "Problem",
     "Recommendation", "Layer", "Framework Op", "Source"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """One titled table of a report, with DLProf's column names in its order.

    ``single``: the frame has one row, whose values DLProf lists one below the other. ``notes``: what the
    reader must know about the section. Times are in ns, sizes in bytes, shares in percent; null is unknown.
    """

    title: str
    frame: pl.DataFrame
    single: bool = False
    notes: Sequence[str] = ()


def _summary(_: Profile, model: Model) -> list[Section]:
    trace = model.source.trace
    machine = {
        **summary.system(trace),
        "DLProf Version": f"opscope {__version__}",
        "DLProf Build": None,
    }
    sections = [
        Section("System Config", _row(machine), single=True),
        Section("Summary Report", _row(summary.figures(model)), single=True),
        Section("Iterations", _row(summary.iteration_figures(model)), single=True),
        Section("All Ops", summary.all_ops(model)),
        Section("All Kernels", summary.all_kernels(model)),
    ]
    devices = summary.devices(model)
    return [*sections, Section("Devices", devices)] if len(devices) > 1 else sections


def _row(values: Mapping[str, object]) -> pl.DataFrame:
    return pl.DataFrame({name: [value] for name, value in values.items()})


def _detail(_: Profile, model: Model) -> list[Section]:
    table = model.found.table
    kept = table.filter("aggregated")["iteration"].to_list()
    title = "All Iterations" if len(kept) == len(table) else f"Iterations {kept[0]} to {kept[-1]}"
    return [Section(title, tables.detail(model))]


def _expert_systems(profile: Profile, model: Model) -> list[Section]:
    frame, notes = findings(profile, model)
    return [Section("Expert Systems Feedback", frame, notes=notes)]


#: Each report's sections, and the name of its files, which is DLProf's.
MAKERS: Final[Mapping[str, tuple[str, Callable[[Profile, Model], list[Section]]]]] = {
    "summary": ("summary", _summary),
    "detail": ("detailed", _detail),
    "iteration": ("iteration", lambda _, m: [Section("Iteration Report", tables.iteration(m))]),
    "kernel": ("kernel", lambda _, m: [Section("Kernel Report", tables.kernel(m))]),
    "tensor": ("tensor_core", lambda _, m: [Section("Tensor Core Report", tables.tensor(m))]),
    "op_type": ("op_type", lambda _, m: [Section("Op Type Summary Report", tables.op_type(m))]),
    "group_node": ("group_op", lambda _, m: [Section("Group Op Report", tables.group_node(m))]),
    "expert_systems": ("expert_systems", _expert_systems),
}

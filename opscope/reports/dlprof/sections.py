"""The sections of each report: titled tables with DLProf's columns in its order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from opscope.core.advice.ask import CANNOT_TELL, FOUND, detectors
from opscope.core.dlprof import summary, tables
from opscope.core.dlprof.model import Model
from opscope.core.tables.trace import PROFILE_NAME
from opscope.profile import Profile
from opscope.version import __version__

#: How a DLProf rule begins in the ``known_as`` of a detector.
_DLPROF: Final = "DLProf: "
#: The detector whose advice is to give a key op.
_ITERATIONS: Final = "no_iterations"


def rules() -> Mapping[str, tuple[str, ...]]:
    """Return DLProf's rules, each with the names of the detectors that check it."""
    names_by_rule: dict[str, tuple[str, ...]] = {}
    for name, detector in detectors().items():
        for alias in detector.known_as:
            if alias.startswith(_DLPROF):
                rule = alias.removeprefix(_DLPROF)
                names_by_rule[rule] = (*names_by_rule.get(rule, ()), name)
    return dict(sorted(names_by_rule.items()))


def findings(profile: Profile, model: Model) -> tuple[pl.DataFrame, list[str]]:
    """Return the findings in DLProf's columns, followed by opscope's detector and times (ns); and notes.

    Notes list undecided rules, and rules that found nothing. The detectors examine the whole profile. If a
    key op defines the iterations, the lack of marked iterations is not reported.
    """
    answers = {name: rule for rule, names in rules().items() for name in names}
    said = profile.advice(detectors=sorted(answers))
    if model.found.found:
        said = said.filter(pl.col("detector") != _ITERATIONS)
    problems = said.filter(pl.col("outcome") == FOUND).select(
        pl.col("finding").alias("Problem"),
        pl.col("recommendation").alias("Recommendation"),
        pl.col("detector").replace_strict(answers, default=None).alias("Expert System"),
        pl.col("detector").alias("Detector"),
        pl.col("confidence").alias("Confidence"),
        pl.col("time").alias("Time (ns)"),
        pl.col("saving").alias("Estimated Saving (ns)"),
        pl.col("saving_least").alias("Least Saving (ns)"),
        pl.col("saving_most").alias("Most Saving (ns)"),
    )
    notes = [
        f"{answers[name]} ({name}) cannot be told: {' '.join((reason or '').split())}"
        for name, outcome, reason in said.select("detector", "outcome", "reason").rows()
        if outcome == CANNOT_TELL
    ]
    asked = set(said["detector"])
    loud = set(said.filter(pl.col("outcome").is_in([FOUND, CANNOT_TELL]))["detector"])
    if quiet := sorted(asked - loud):
        notes.append(
            "nothing found by: " + ", ".join(f"{answers[name]} ({name})" for name in quiet)
        )
    notes.append("detectors that DLProf had no rule for: opscope advise FILE")
    return problems, notes


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


@dataclass(frozen=True, slots=True)
class Wishes:
    """Options of the sections. ``name``: the profile's name in the summary, if any. ``shapes``: whether the
    detailed report has the data type and shapes of inputs."""

    name: str | None = None
    shapes: bool = True


def _summary(_: Profile, model: Model, wishes: Wishes) -> list[Section]:
    trace = model.source.trace
    name = wishes.name or trace.origin.get(PROFILE_NAME)
    machine = {
        **({"Profile Name": name} if name and isinstance(name, str) else {}),
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


def _detail(_: Profile, model: Model, wishes: Wishes) -> list[Section]:
    table = model.found.table
    kept = table.filter("aggregated")["iteration"].to_list()
    title = "All Iterations" if len(kept) == len(table) else f"Iterations {kept[0]} to {kept[-1]}"
    return [Section(title, tables.detail(model, wishes.shapes))]


def _expert_systems(profile: Profile, model: Model, _: Wishes) -> list[Section]:
    frame, notes = findings(profile, model)
    return [Section("Expert Systems Feedback", frame, notes=notes)]


def _of(
    title: str, table: Callable[[Model], pl.DataFrame]
) -> Callable[[Profile, Model, Wishes], list[Section]]:
    return lambda _, model, __: [Section(title, table(model))]


#: Each report's sections, and DLProf's name for its file.
MAKERS: Final[Mapping[str, tuple[str, Callable[[Profile, Model, Wishes], list[Section]]]]] = {
    "summary": ("summary", _summary),
    "detail": ("detailed", _detail),
    "iteration": ("iteration", _of("Iteration Report", tables.iteration)),
    "kernel": ("kernel", _of("Kernel Report", tables.kernel)),
    "tensor": ("tensor_core", _of("Tensor Core Report", tables.tensor)),
    "op_type": ("op_type", _of("Op Type Summary Report", tables.op_type)),
    "group_node": ("group_op", _of("Group Op Report", tables.group_node)),
    "expert_systems": ("expert_systems", _expert_systems),
}

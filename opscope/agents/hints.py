"""Which question has the evidence of a cause, and where in the program the evidence lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from opscope.core.analysis.host.in_words import NEARLY
from opscope.viewer import source_text
from opscope.viewer.lines import frames_of
from opscope.viewer.viewed import Viewed

if TYPE_CHECKING:
    import polars as pl

    from opscope.profile import Profile

    from .answer import Hint
    from .call import Asked

CANNOT_TELL: Final = "cannot tell"
#: For each cause of the diagnosis: the report with its evidence, and what the report shows.
LOOK_AT: Final[Mapping[str, tuple[str, str]]] = {
    "input-bound": ("data_preparation", "each data loader and how long steps wait for it"),
    "compilation": ("wall_time", "what the wall time went into"),
    "slow start": ("steps", "each step's time"),
    "communication-bound": ("communication", "how much of the communication other work hides"),
    "copy-bound": ("bandwidth", "copies by direction and memory"),
    "synchronising calls": ("idle_ops", "what the host did while the device was idle"),
    "host-bound": ("idle_ops", "what the host did while the device was idle"),
    "idle device": ("idle_steps", "idle time by step and what the device waited for"),
    "straggler": ("stragglers", "each rank's lateness"),
    "waiting for other ranks": ("light", "each rank's steps"),
    "compute-bound": ("roofline", "how near each op comes to the device's limits"),
    "memory-bandwidth-bound": ("roofline", "how near each op comes to the device's limits"),
    "memory pressure": ("memory", "peaks and what is in use"),
    "growing memory": ("light_steps", "each step in light mode"),
    "uneven steps": ("light_steps", "each step in light mode"),
    "slow spells": ("light_steps", "each step in light mode"),
    "steps become slower": ("light_steps", "each step in light mode"),
    "time outside of phases": ("light_steps", "each step in light mode"),
    "throttled GPU": ("light_steps", "each step in light mode"),
    "waiting on other streams": ("idle_stream", "what each stream waited for"),
    "small kernels": ("short_kernels", "kernels too short for the device"),
    CANNOT_TELL: ("notes", "what the recording and its reader say"),
}
#: For causes that this table does not know, such as those of another package's detectors.
_ELSE: Final = ("wall_time", "what the wall time went into")
#: In a run on the CPU alone, the host's lines replace the reports of what a device waited for.
_ON_CPU: Final[Mapping[str, tuple[str, str]]] = {
    "host-bound": ("host_lines", "source lines of the time outside any op"),
    "synchronising calls": ("host_lines", "source lines of the time outside any op"),
}
#: The columns that locate something, in the order of an answer.
_WHERE: Final = (
    "rank",
    "step",
    "op",
    "kernel",
    "layer",
    "source",
    "line",
    "inputs",
    "loader",
    "detail",
)


def evidence_of(asked: Asked, profile: Profile, cause: str, detector: str | None) -> Hint:
    """Return the call that has the evidence of a row of the diagnosis."""
    if detector is not None:
        return asked.hint("advise", "the evidence, and what to change", detectors=[detector])
    name = cause.removeprefix(NEARLY)
    question, why = LOOK_AT.get(name, _ELSE)
    if profile.is_light and name != "straggler":
        question, why = LOOK_AT["uneven steps"]
    elif profile.cpu_only and name in _ON_CPU:
        question, why = _ON_CPU[name]
    return asked.hint("ask", why, question=question)


def where(frame: pl.DataFrame, ranks: Mapping[int, int | None] | None = None) -> dict[str, Any]:
    """Return the known columns of the first row of evidence that locate it."""
    if frame.is_empty():
        return {}
    row = frame.row(0, named=True)
    if row.get("rank") is None and ranks is not None:
        row["rank"] = ranks.get(row.get("process"))  # type: ignore[arg-type]
    return {name: row[name] for name in _WHERE if row.get(name) is not None}


def ranks_of(profile: Profile) -> dict[int, int | None]:
    """Return the rank of each process, where a job has several."""
    rows = dict(profile.trace["processes"].select("process", "rank").rows())
    return rows if len({rank for rank in rows.values() if rank is not None}) > 1 else {}


def source_of(asked: Asked, frame: pl.DataFrame) -> list[Hint]:
    """Return the call that shows the first source line of the rows whose text may be shown. Of lines with
    time outside ops, take the line with most of this time in steps, because imports may take longer than all
    steps."""
    names = [name for name in ("source", "line") if name in frame.columns]
    by = [name for name in ("step_time", "time") if name in frame.columns]
    if by and "line" in names:
        frame = frame.sort(by, descending=True, nulls_last=True, maintain_order=True)
    for name in names:
        for text in frame[name].drop_nulls().cast(str).unique(maintain_order=True).head(5):
            for file, line in frames_of(text)[:1]:
                if can_show(asked, file):
                    return [asked.hint("source", "the program's text there", at=f"{file}:{line}")]
    return []


def can_show(asked: Asked, file: str) -> bool:
    """Whether the text of a file exists and may be shown."""
    try:
        source_file(asked, file)
    except source_text.NotShown:
        return False
    return True


def source_file(asked: Asked, file: str) -> source_text.Found:
    """Return the source file to which the run gives this name. Raises NotShown with the reason why its
    text is not shown. For files that the user typed, unchanged sources of opscope's own recordings are
    shown too."""
    runs = asked.runs
    why: source_text.NotShown | None = None
    for root in runs.source_roots or (() if runs.roots is not None else (None,)):
        try:
            return source_text.found(Viewed(asked.entire, asked.run.files, source_root=root), file)
        except source_text.NotShown as error:
            why = error
    raise why or source_text.NotShown("no folder of source files was named: --source-root DIR")

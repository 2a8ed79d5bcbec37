"""A line that names reports of data that the profile has and the first screen does not show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from opscope.core.analysis.ops.grouped_table import WORTH
from opscope.core.schema import CHILDREN_CPU, GPU_ENERGY, GPU_POWER, MACHINE_CPU, PROCESS_CPU

if TYPE_CHECKING:
    from opscope.profile import Profile

#: The report that shows each table of a trace.
SHOWN_BY: Final[Mapping[str, str]] = {
    "allocations": "memory",
    "memory_blocks": "memory_holders",
    "memory_segments": "memory_segments",
    "memops": "bandwidth",
    "calls": "launches",
    "syncs": "idle_ops",
    "counters": "counters",
    "requests": "serving_requests",
    "host_samples": "host_lines",
    "light_steps": "light_steps",
    "own_costs": "own_costs",
    "notes": "notes",
}
#: Tables that the first screen shows, and tables that only describe the rows of others. For ``samples``, the
#: report depends on the names of the sampled values.
ON_SCREEN: Final = frozenset({
    "ranges", "kernels", "process_times", "windows", "processes", "devices", "samples",
    "threads", "clocks", "specs", "graph_nodes", "thread_states", "light", "light_blocks", "light_lengths",
})  # fmt: skip


def unshown(profile: Profile, row: Mapping[str, Any], kinds: Mapping[str, float]) -> str | None:
    """Return a line with the reports of all data that is not on the first screen; None if all of it is shown.

    ``row`` is the row of the summary; ``kinds`` has the share of each kind of work.
    """
    names = list(dict.fromkeys(_reports(profile, row, kinds)))
    if not names:
        return None
    return f"recorded, not shown here: --reports {','.join(names)} (opscope reports: what each answers)"


def _reports(profile: Profile, row: Mapping[str, Any], kinds: Mapping[str, float]) -> Iterator[str]:
    if len(profile.diagnosis()) > 1:
        yield "diagnosis"
    if row["steps"]:
        yield from ("steps", "slow_steps")
        if row["processes"] > 1:
            yield "stragglers"
    if kinds.get("communication", 0) >= WORTH:
        yield "communication"
    if {"matrix products", "attention", "convolution", "elementwise", "normalisation"} & set(kinds):
        yield "roofline"
    for table, report in SHOWN_BY.items():
        if len(profile.trace[table]):
            yield report
    sampled = profile.trace["samples"]["name"].cast(str).unique().to_list()
    if not {MACHINE_CPU, PROCESS_CPU, CHILDREN_CPU}.isdisjoint(sampled):
        yield "cpu_utilization"
    if not {GPU_ENERGY, GPU_POWER}.isdisjoint(sampled):
        yield "energy"

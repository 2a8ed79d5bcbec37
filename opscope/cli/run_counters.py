"""``opscope run --counters``: hardware counters of each kernel, by the first method that works here."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from opscope import backends
from opscope.backends import kineto_counters
from opscope.backends.cupti_counters import ways
from opscope.core.question import units

from . import common

if TYPE_CHECKING:
    from opscope.profile import Profile

#: The backends that may be named beside --counters, and the method that each means.
_BACKENDS = {"auto": ways.AUTO, "kineto": "torch", "cupti": "ranges"}


def settings(names: str | None, by: str | None, backend: str) -> dict[str, str]:
    """Return the settings for the program's processes; ends the command if counters cannot be measured."""
    if names is None:
        if by is not None:
            common.fail("--counters-by needs --counters: which counters are measured")
        return {}
    if backend not in _BACKENDS:
        common.fail(
            f"--counters cannot be measured by --backend {backend}: CUPTI or PyTorch's profiler measure them"
            " (cupti, kineto)"
        )
    meant = _BACKENDS[backend]
    if by not in (None, ways.AUTO, *ways.WAYS):
        common.fail(f"--counters-by {by}: choose one of: {', '.join((ways.AUTO, *ways.WAYS))}")
    if by is not None and meant not in (ways.AUTO, by):
        common.fail(
            f"--backend {backend} measures counters by {meant}, and --counters-by says {by}"
        )
    try:
        chosen = kineto_counters.parse(names)
    except ValueError as error:
        common.fail(f"--counters: {error}")
    return {kineto_counters.WANTED: ",".join(chosen), ways.BY: by or meant}


def tell(profile: Profile | None, names: str) -> None:
    """Print what was measured, by which method, and why by this method; or why nothing was measured.
    ``names``: the counters that the user asked for."""
    trace = None if profile is None else profile.trace
    facts: list[dict[str, Any]] = [] if trace is None else trace.origin.get("backends", [])
    way = ways.told(facts)
    by = "" if way is None else f", by {way[0]} ({way[1]})"
    rows = 0 if trace is None else trace["counters"].select("process", "range_id").unique().height
    sampled = 0 if trace is None else _samples(trace, kineto_counters.parse(names))
    if rows:
        common.say(
            f"hardware counters of {units.counted(rows, 'kernel')}{by}: opscope counters FILE shows them"
        )
    elif sampled:
        common.say(
            f"{units.counted(sampled, 'sample')} of hardware counters{by}: the profile's table samples has"
            " them, and no kernel has its own"
        )
    else:
        common.say(f"no hardware counters{by}: {_why_none(trace, facts)}")


def _samples(trace: Any, names: tuple[str, ...]) -> int:
    """Return how many times a device's counters were sampled."""
    sampled = trace["samples"]["name"].cast(str)
    chosen = [
        kernel
        for kernel in sampled.unique()
        if any(fnmatchcase(kernel or "", name) for name in names)
    ]
    named = sampled.is_in(chosen)
    return int(trace["samples"].filter(named).select("process", "device", "time").unique().height)


def _why_none(trace: Any, facts: list[dict[str, Any]]) -> str:
    refused = ways.refusal(backends.here(in_process=False))
    if refused is not None:
        return refused
    notes = [] if trace is None else trace["notes"]["what"].to_list()
    said = [
        text.partition(mark)[2]
        for text in notes
        for mark in ("hardware counters not measured: ", "hardware counters not captured: ")
        if mark in text
    ]
    return "; ".join(dict.fromkeys(said or ways.failed(facts))) or kineto_counters.why_none()

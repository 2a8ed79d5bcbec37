"""Choose from the requested counters those that a GPU has; ``*`` in a name stands for any letters."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from . import calls
from .calls import CountersRefused, Library
from .host import Host

#: The most counters that all names with ``*`` together may stand for.
_MOST: Final = 64


@dataclass(frozen=True, slots=True)
class Present:
    """``names``: counters to measure; ``left_out``: requested counters that cannot be measured."""

    names: tuple[str, ...]
    left_out: tuple[str, ...]


def present(
    library: Library, kind: int, chip: bytes, availability: Any, names: Sequence[str]
) -> Present:
    """Return which counters of ``names`` the chip has for ``kind`` (``calls.RANGES``, ``calls.SAMPLES``).

    If the library cannot list its counters, all names without ``*`` are taken. Raises CountersRefused if none
    is left.
    """
    bases = listed(library, kind, chip, availability)
    present_names: list[str] = []
    left_out: list[str] = []
    for name in names:
        base, dot, rest = name.partition(".")
        if "*" in base:
            pattern = re.compile(re.escape(base).replace(r"\*", "[A-Za-z0-9_]*"))
            # the variants of a counter by sparsity are parts of the counter
            some = [base for base in bases if pattern.fullmatch(base) and "_sparsity_" not in base]
            if len(some) > _MOST:
                raise CountersRefused(
                    f"{name} stands for {len(some)} counters; {_MOST} is the most"
                )
            present_names += [base + dot + rest for base in some]
        else:
            some = [base] if not bases or base in bases else []
            present_names += [name for _ in some]
        if not some:
            left_out.append(name)
    if not present_names and names:
        raise CountersRefused(f"this GPU has none of these counters: {', '.join(left_out)}")
    return Present(tuple(dict.fromkeys(present_names)), tuple(left_out))


def in_one_pass(library: Library, chip: bytes, availability: Any, names: Sequence[str]) -> Present:
    """Return the counters of ``names`` that can be sampled together, the first ones first.

    Samples have a single pass, because a moment cannot be measured twice. Raises CountersRefused if none can
    be sampled.
    """
    choice = present(library, calls.SAMPLES, chip, availability, names)
    kept: list[str] = []
    left_out = list(choice.left_out)
    why = ""
    for name in choice.names:
        try:
            host = Host(library, calls.SAMPLES, chip, availability, [*kept, name])
        except CountersRefused as error:
            why = str(error)
        else:
            host.close()
            if host.passes == 1:
                kept.append(name)
                continue
            why = f"{name} needs {host.passes} passes, and sampling has one: name others"
        left_out.append(name)
    if not kept:
        raise CountersRefused(why)
    return Present(tuple(kept), tuple(left_out))


def listed(library: Library, kind: int, chip: bytes, availability: Any) -> dict[str, None]:
    """Return the names of the chip's counters, without the part after the dot; empty if it cannot list
    them."""
    begun = library.call(
        calls.HOST_INITIALIZE,
        profilerType=kind,
        pChipName=chip,
        pCounterAvailabilityImage=ctypes.addressof(availability),
    )
    names: dict[str, None] = {}
    try:
        for metric_type in calls.METRIC_TYPES:
            answer = library.call(
                calls.BASE_METRICS, pHostObject=begun.pHostObject, metricType=metric_type
            )
            names |= {
                answer.ppMetricNames[index].decode("utf-8", "replace"): None
                for index in range(answer.numMetrics)
            }
    except CountersRefused:
        return {}
    finally:
        library.call(calls.HOST_DEINITIALIZE, pHostObject=begun.pHostObject)
    return names

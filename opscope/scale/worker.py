"""What a worker does: read a batch of traces, one after the other, and write the partial of each.

Imports nothing heavy: a worker's threads are bounded before Polars is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from .heap import kept

#: Variables that bound the threads of what reads and computes. Polars reads its own once, at its import.
THREADS: Final = (
    "POLARS_MAX_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)
#: ``write(source, parts, **options)`` writes the partial of a source and returns its name.
Write: TypeAlias = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a source: the ``name`` of its partial, or why there is none."""

    source: str
    name: str | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing of the batch can be done on this worker, and ``what`` says why."""

    what: str


def read_batch(
    sources: Sequence[str],
    parts: str,
    options: Mapping[str, Any],
    made_by: tuple[str, int, int],
    write: Write | None = None,
    threads: int | None = None,
) -> list[Outcome] | Refused:
    """Write the partial of each source into ``parts``; return names and complaints, never tables.

    ``made_by`` is what ``version()`` gives where the job was begun: a worker with another one is refused,
    as its partials would not fit. ``threads`` bounds those of a process that has not loaded Polars yet.
    """
    if threads is not None and "polars" not in sys.modules:
        for name, text in bounds(threads).items():
            os.environ[name] = text
    here = version()
    if here != made_by:
        return Refused(
            f"{_host()} has opscope {_word(here)}, and the job was begun with {_word(made_by)}:"
            " install one version on all machines"
        )
    if write is None:
        from .partial import write_partial  # lazy: it loads Polars

        write = write_partial
    with kept():
        return _each(sources, parts, options, write)


def _each(
    sources: Sequence[str], parts: str, options: Mapping[str, Any], write: Write
) -> list[Outcome] | Refused:
    from opscope.readers.errors import BadInput  # lazy: threads are bounded first

    done = []
    for source in sources:
        try:
            done.append(Outcome(source, write(source, parts, **options)))
        except BadInput as error:
            ours = _within(error.path, source)
            if not ours and _within(error.path, parts):
                return Refused(f"{error} ({_host()})")
            done.append(Outcome(source, failed=error.what if ours else str(error)))
    return done


def _within(path: str, folder: str) -> bool:
    from opscope.remote.urls import shown  # lazy: threads are bounded first

    base = shown(folder).rstrip("/")
    return path.rstrip("/") == base or path.startswith(base + "/")


def version() -> tuple[str, int, int]:
    """Return the version of opscope, of its analysis and of a partial's layout, which partials must share."""
    from opscope.profile.profile import ANALYSIS  # lazy: it loads Polars
    from opscope.version import __version__

    from .packed import LAYOUT  # lazy: it loads Polars

    return __version__, ANALYSIS, LAYOUT


def _word(made_by: tuple[str, int] | tuple[str, int, int]) -> str:
    layout = f", layout {made_by[2]}" if len(made_by) > 2 else ""  # earlier versions say none
    return f"{made_by[0]} (analysis {made_by[1]}{layout})"


def bounds(threads: int) -> dict[str, str]:
    """Return the variables that bound a process to so many threads; what is set already stays."""
    return {name: os.environ.get(name, str(threads)) for name in THREADS}


def _host() -> str:
    import platform

    return f"the worker on {platform.node() or 'a nameless host'}"

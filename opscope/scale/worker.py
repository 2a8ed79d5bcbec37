"""The work of a worker: read a batch of traces, one after the other, and write the partial of each.

Imports nothing heavy, because the number of threads must be limited before Polars is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from .heap import kept

#: Environment variables that limit the threads of numeric libraries. Polars reads its own once, at import.
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
    """The outcome for a source: the ``name`` of its partial, or why there is none."""

    source: str
    name: str | None = None
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """This worker can process no part of the batch; ``what`` says why."""

    what: str


def read_batch(
    sources: Sequence[str],
    parts: str,
    options: Mapping[str, Any],
    made_by: tuple[str, int, int],
    write: Write | None = None,
    threads: int | None = None,
) -> list[Outcome] | Refused:
    """Write the partial of each source into ``parts``; return names and errors, never tables.

    ``made_by`` is ``version()`` of the process that began the job: a worker with another version is refused,
    because its partials could not be merged. ``threads`` limits the threads of a process that has not loaded
    Polars yet.
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
    from opscope.readers.errors import BadInput  # lazy: the thread limits must be set first

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
    from opscope.remote.urls import shown  # lazy: the thread limits must be set first

    base = shown(folder).rstrip("/")
    return path.rstrip("/") == base or path.startswith(base + "/")


def version() -> tuple[str, int, int]:
    """Return the versions of opscope, of its analysis and of the partial's layout; partials of a job must
    agree in them."""
    from opscope.profile.profile import ANALYSIS  # lazy: it loads Polars
    from opscope.version import __version__

    from .packed import LAYOUT  # lazy: it loads Polars

    return __version__, ANALYSIS, LAYOUT


def _word(made_by: tuple[str, int] | tuple[str, int, int]) -> str:
    layout = f", layout {made_by[2]}" if len(made_by) > 2 else ""  # earlier versions have none
    return f"{made_by[0]} (analysis {made_by[1]}{layout})"


def bounds(threads: int) -> dict[str, str]:
    """Return the environment variables that limit a process to this many threads; those already set stay."""
    return {name: os.environ.get(name, str(threads)) for name in THREADS}


def _host() -> str:
    import platform

    return f"the worker on {platform.node() or 'a nameless host'}"

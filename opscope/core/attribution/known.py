"""The knowledge that attribution has of a trace so far. It is immutable: each rule returns a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.attribution.cuda_graphs import Replayed
from opscope.core.tables.interpret import Meaning
from opscope.core.tables.intervals import Ints, Nest
from opscope.core.tables.mapped import Mapped
from opscope.core.tables.numbers import Numbers
from opscope.core.tables.trace import Trace

Flags: TypeAlias = NDArray[np.bool_]
#: Row numbers of a table, -1 for none.
Rows: TypeAlias = NDArray[np.int32]
#: (process, thread) with op ranges → their nesting, and the range row of each interval.
Nests: TypeAlias = "Mapping[tuple[int, ...], tuple[Nest, Ints] | None]"


@dataclass(frozen=True, slots=True)
class Note:
    """What the user must know about an inference: a row of the trace's ``notes``."""

    severity: str
    what: str
    how_many: int


@dataclass(frozen=True, slots=True)
class Launched:
    """What launched each row of ``kernels`` or ``memops``.

    ``call``: the launching row of ``calls`` (-1: none). ``op``: the op's row of ``ranges`` (-1: none).
    ``reason``: why there is no op, a place in REASONS. ``inferred``: the op is not given by an identifier
    but, for instance, by the order of events. ``replay``: the call that replayed the CUDA graph which the
    kernel is part of, -1 for other kernels; each replay does all the work of the op that was captured once.
    """

    call: Rows
    op: Rows
    reason: NDArray[np.uint8]
    inferred: Flags
    replay: Rows

    def part(self, rows: slice | Ints) -> Launched:
        """Return this for some rows only, which are a slice or numbers."""
        return Launched(
            self.call[rows],
            self.op[rows],
            self.reason[rows],
            self.inferred[rows],
            self.replay[rows],
        )


@dataclass(frozen=True, slots=True)
class NamedOps:
    """For each kernel, the range row of the op that its name gives (-1: none), and whether the op is
    inferred.

    The ranges from row ``first`` on were made from kernels, copies and sets. ``copied``: the range row for
    each copy or set, without inferred ones; empty if no copy names an op.
    """

    op: Rows
    inferred: Flags
    first: int
    copied: Rows = field(default_factory=lambda: no_rows())


@dataclass(frozen=True, slots=True)
class Known:
    """The results of the rules so far; a field that no rule has filled yet is empty.

    ``links``: for each table (``kernels``, ``memops``), the row of ``calls`` that launched each of its rows,
    -1 for none. ``used``: per call, whether it launched something or was captured into a CUDA graph.
    ``call_op``: per call, the op open at its start; ``why``: per call, the place in REASONS. ``is_op``: per
    range row, whether it is an op; ``nested``: whether it is an op that a thread pushes and pops; ``parent``:
    the op row that encloses it. ``replays``: by table, the rows that CUDA graphs executed. ``steps``: the
    inferred steps. ``mapped``: where rules keep long columns, if not in memory.
    """

    trace: Trace
    meaning: Meaning
    links: Mapping[str, Rows] = field(default_factory=dict)
    named: NamedOps = field(default_factory=lambda: NamedOps(no_rows(), no_flags(), 0))
    is_op: Flags = field(default_factory=lambda: no_flags())
    nested: Flags = field(default_factory=lambda: no_flags())
    replays: Mapping[str, Replayed] = field(default_factory=dict)
    used: Flags = field(default_factory=lambda: no_flags())
    parent: Rows = field(default_factory=lambda: no_rows())
    call_op: Rows = field(default_factory=lambda: no_rows())
    nests: Nests = field(default_factory=dict)
    why: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    launched: Mapping[str, Launched] = field(default_factory=dict)
    steps: pl.DataFrame | None = None
    notes: tuple[Note, ...] = ()
    mapped: Mapped | None = None

    @classmethod
    def of(cls, trace: Trace, mapped: Mapped | None = None) -> Known:
        """Return the initial knowledge: ``trace`` alone."""
        nothing = Numbers.of(pl.Series(dtype=pl.Int64))
        return cls(trace, Meaning((), (), no_rows(), nothing, nothing), mapped=mapped)


def no_rows() -> Rows:
    return np.empty(0, np.int32)


def no_flags() -> Flags:
    return np.empty(0, bool)

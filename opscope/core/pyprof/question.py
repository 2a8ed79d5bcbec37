"""The question of how PyProf would list each kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.executed import kernel_executions
from opscope.core.analysis.ops.ops import op_index
from opscope.core.pyprof.dictionaries import lines
from opscope.core.pyprof.table import COLUMNS, PyprofTable
from opscope.core.question import parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question
from opscope.core.question.words import columns
from opscope.core.tables.columns import pieces
from opscope.core.tables.intervals import Ints

#: Rows that are made at a time: texts of all columns take 0.4 KB a row.
_ROWS: Final = 100_000


def pyprof_table(profile: Answers) -> PyprofTable:
    """PyProf's table of all kernels."""
    return PyprofTable(profile.of(op_index), profile.of(kernel_executions))


def pyprof_pieces(profile: Answers, columns: Collection[str]) -> Iterator[pl.DataFrame]:
    """Yield ``pyprof(columns)`` in pieces, at least one, so that it need not fit in memory."""
    table, rows = _rows(profile)
    for part in pieces(len(rows), _ROWS):
        frame = table.rows(columns, rows[part])
        yield frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def pyprof_dictionaries(profile: Answers) -> Iterator[str]:
    """Yield the line of each kernel in PyProf's intermediate file (``net.dict``), in pieces of many lines."""
    table, rows = _rows(profile)
    for part in pieces(len(rows), _ROWS):
        yield "".join(f"{line}\n" for line in lines(table, rows[part]))


def _rows(profile: Answers) -> tuple[PyprofTable, Ints]:
    """Return the table of the whole profile, and the places of this profile's kernels in it.

    A kernel's number and forward kernel are the same as in the whole profile.
    """
    if profile._part_of is None:
        table = profile.of(pyprof_table)
        return table, np.arange(len(table.order))
    origin, kept = profile._part_of
    table, rows = _rows(origin)
    return table, rows[kept[table.order[rows]]]


def answer(profile: Answers, columns: Collection[str] | None = None) -> pl.DataFrame:
    """Every kernel execution in PyProf's columns, in the order in which they began.

    ``columns`` chooses and orders them; KeyError for an unknown one. FLOPs and bytes are opscope's, not
    PyProf's: docs/from-pyprof.md tells where they differ.
    """
    chosen = COLUMNS if columns is None else columns
    for name in chosen:
        if name not in COLUMNS:
            raise KeyError(f"no column named {name!r}; choose from: {', '.join(COLUMNS)}")
    return pl.concat(pyprof_pieces(profile, chosen))


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "pyprof()",
            "one row per kernel execution, in the order of their starts",
            columns(
                "idx seq altseq tid layer trace dir sub mod op kernel params sil tc device "
                "stream grid block flops bytes",
                """
                idx: number: number of the kernel in the whole profile, from 1, in the order of their
                    starts
                seq: number: PyTorch's sequence number of the op; null where it has none
                altseq: text: other sequence numbers around the launch, comma-separated
                tid: number: the system's number of the launching thread, or the trace's if it has no
                    other
                layer: text: the user's `layer:` ranges around the launch, outermost first, joined by
                    colons; else the module's path
                trace: text: the user's source lines of the call, outermost first, comma-separated
                dir: text: fprop, or bprop inside an autograd node; null for a kernel without an op
                sub: number: number of kernels with the same op and sequence number just before this one
                    on its thread
                mod: text: the Python module or class of the call, or the op's namespace; na if not known
                op: text: the op: the Python call's, the framework's, in the backward the forward's; na if
                    not known
                params: text: sizes and types as PyProf writes them; na=na, if not known
                sil: ns: the kernel's duration
                tc: text: Tensor Cores: 1 used, 0 not used though the op is a product, - not a product, na
                    not known
                flops: FLOP: the kernel's share of its op's floating-point operations
                bytes: bytes: the kernel's share of the bytes that its op must read and write
                """,
            ),
        ),
    ),
    parameters={"columns": parameters.words("only these columns, in this order")},
    kept=False,
    as_text=False,
)

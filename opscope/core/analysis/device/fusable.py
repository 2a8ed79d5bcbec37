"""Chains of pointwise or short kernels, one directly after the other, which a fusion could join.

All savings are estimates and upper bounds: a fusion may be impossible (another op needs the intermediate
tensor, the host decides in between), and then nothing is saved.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.device.device_columns import FORMS
from opscope.core.analysis.device.short_kernels import SHORT
from opscope.core.attribution.compiled_regions import GENERATED
from opscope.core.perf import kinds
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.layout import Table
from opscope.core.question.record import Question, Report, View
from opscope.core.question.tables import listed
from opscope.core.question.words import columns
from opscope.core.tables.columns import compact, matching, pairs
from opscope.core.tables.intervals import NONE, Ints

#: The two kinds of chains. A kernel may be in one chain of each kind.
POINTWISE: Final = "pointwise"
SHORT_ONES: Final = "short"
#: Largest gap (ns) between kernels of a chain: longer gaps have causes other than launches.
FAR: Final = 100_000
#: PyTorch's launchers of elementwise functions, which also make its copies between dtypes and layouts.
_ELEMENTWISE: Final = r"(vectorized|unrolled|legacy|\b)_?elementwise_kernel"
SCHEMA: Final = {
    "chain": pl.String,
    "sequence": pl.String,
    "direction": pl.String,
    "layer": pl.String,
    "layers": pl.Int64,
    "length": pl.Int64,
    "calls": pl.Int64,
    "kernels": pl.Int64,
    "duration": pl.Int64,
    "gap_time": pl.Int64,
    "intermediate_bytes": pl.Int64,
    "saving_most": pl.Int64,
    "share": pl.Float64,
}
_PLACE: Final = ("process", "device", "stream")
#: The columns of ``kernels`` that are needed.
NEEDED: Final = (
    *(*_PLACE, "start", "end", "duration", "name"),
    *("op", "op_type", "direction", "layer", "step", "bytes"),
)
#: Families of elementwise ops: none needs other elements, as the maximum of a row does.
_FAMILIES: Final = ("elementwise", "activation", "dropout")
#: The most runs of equal ops that the text of a chain names.
_NAMED: Final = 12
#: Odd numbers that mix the numbers of a chain's ops and their places into a signature.
_ODD: Final = (
    (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03),
    (0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9),
)
_SAME: Final = ("direction", "step")


def fusable_kernels(
    kernels: pl.DataFrame,
    memops: pl.DataFrame,
    bandwidth: float | None,
    below: int = SHORT,
) -> pl.DataFrame:
    """Return one row per distinct chain of two or more kernels: ``SCHEMA``, by ``saving_most``; times in ns.

    A chain is kernels of one stream, direction and step, of which each starts directly after the one before,
    with no copy or other kernel and less than 100 µs between them. A ``pointwise`` chain computes elements
    from elements; a ``short`` chain is of kernels of less than ``below`` ns, of any kind but communication.
    Kernels that a compiler generated are in no pointwise chain.

    ``saving_most``: the gaps inside the chain and, of the kernels' time, at most what reading and writing
    ``intermediate_bytes`` takes at ``bandwidth`` (bytes/s), and never more than all but the longest kernel.
    Without both figures it is the gaps and all but the longest kernel. ``intermediate_bytes`` sums, over each
    two neighbours, the smaller of the bytes that the two kernels move (read and write), because the
    intermediate tensor is part of both. ``kernels`` and ``memops`` are ``Profile``'s frames.
    """
    if kernels.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    ordered = _order(kernels, memops, below)
    total = int(kernels["duration"].sum())
    changes = _changes(ordered)
    parts = [
        _chains(ordered, chain, changes, bandwidth, total) for chain in (POINTWISE, SHORT_ONES)
    ]
    return pl.concat(parts).sort(
        "saving_most", "chain", "sequence", "direction", descending=[True, False, False, False]
    )


def _order(kernels: pl.DataFrame, memops: pl.DataFrame, below: int) -> pl.DataFrame:
    """Return kernels and copies in the order of each stream, with the values that decide whether a chain
    continues."""
    span = [*_PLACE, "start", "end"]
    communicates = kinds.communicates(kernels["name"], kernels["direction"])
    short = (kernels["duration"] < below) & pl.Series(~communicates)
    mine = kernels.select(
        *span,
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        "duration",
        "bytes",
        "op",
        "name",
        "direction",
        "layer",
        pl.col("step").cast(pl.Int64),
        pl.Series(POINTWISE, pointwise(kernels) & ~communicates),
        short.alias(SHORT_ONES),
    )
    others = memops.select(*span, pl.lit(False).alias(POINTWISE), pl.lit(False).alias(SHORT_ONES))
    both = pl.concat([mine, others], how="diagonal_relaxed")
    on_stream = pl.col("stream").is_not_null()
    return both.filter(on_stream).sort(*span, maintain_order=True)


def pointwise(kernels: pl.DataFrame) -> NDArray[np.bool_]:
    """Return which kernels are elementwise, as proven by their name, else by the op's family."""
    names, texts = compact(kernels["name"])
    families, labels = compact(kernels["op_type"])
    of_name, of_family, row = pairs(names, families)
    by_name = kinds.of_kernels([text or "" for text in texts])
    launcher = matching(pl.Series("name", texts, pl.String).cast(pl.Categorical), _ELEMENTWISE)
    generated = matching(pl.Series("name", texts, pl.String).cast(pl.Categorical), GENERATED)

    def is_pointwise(name: int, family: int) -> bool:
        if generated[name]:
            return False
        if launcher[name]:
            return True
        label = labels[family]
        if label is None or label not in kinds.families():
            return by_name[name] == kinds.ELEMENTWISE
        return label in _FAMILIES and by_name[name] in (kinds.ELEMENTWISE, kinds.UNKNOWN)

    flags = [is_pointwise(*pair) for pair in zip(of_name.tolist(), of_family.tolist(), strict=True)]
    found: NDArray[np.bool_] = np.array(flags, bool)[row]
    return found


def _chains(
    ordered: pl.DataFrame,
    chain: str,
    changes: NDArray[np.bool_],
    bandwidth: float | None,
    total: int,
) -> pl.DataFrame:
    """Return the distinct chains of one kind."""
    member = ordered[chain].to_numpy()
    goes_on = member & np.roll(member, 1) & ~changes
    rows = np.flatnonzero(goes_on | (np.roll(goes_on, -1) & member))
    if not len(rows):
        return pl.DataFrame(schema=SCHEMA)
    frame = ordered[rows]
    first = ~goes_on[rows]
    number = np.cumsum(first) - 1
    begin = np.flatnonzero(first)
    gap = np.where(first, 0, _gaps(frame))
    moved = frame["bytes"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    between = np.where(first, 0, np.minimum(moved, np.roll(moved, 1)))
    duration = frame["duration"].to_numpy()
    lasted = np.add.reduceat(duration, begin)
    rest = lasted - np.maximum.reduceat(duration, begin)
    gaps, moves = np.add.reduceat(gap, begin), np.add.reduceat(between, begin)
    saved = np.minimum(rest, moves / bandwidth * 1e9) if bandwidth else rest.astype(np.float64)
    saved = np.where(np.isnan(saved), rest, saved)
    each = pl.DataFrame(
        {
            "sequence": _signature(frame, number, begin),
            "direction": frame["direction"].gather(begin).cast(pl.String),
            "layer": frame["layer"].gather(begin).cast(pl.String),
            "length": np.diff(np.append(begin, len(rows))),
            "duration": lasted,
            "gap_time": gaps,
            "intermediate_bytes": pl.Series(moves).fill_nan(None),
            "saving_most": gaps + saved,
            "begin": begin,
        }
    )
    keys = ("sequence", "direction")
    unknown = pl.col("intermediate_bytes").is_null().any()
    sums = each.group_by(*keys).agg(
        pl.col("layer").drop_nulls().mode().sort().first(),
        pl.col("layer").drop_nulls().n_unique().cast(pl.Int64).alias("layers"),
        pl.col("length").first(),
        pl.len().cast(pl.Int64).alias("calls"),
        pl.col("length").sum().alias("kernels"),
        pl.col("duration", "gap_time", "saving_most").sum(),
        pl.when(~unknown).then(pl.col("intermediate_bytes").sum()).alias("intermediate_bytes"),
        pl.col("begin").first(),
    )
    share = pl.col("duration") / total if total else pl.lit(None, pl.Float64)
    return sums.with_columns(
        pl.lit(chain).alias("chain"),
        _texts(frame, number, sums["begin"]).alias("sequence"),
        pl.col("saving_most", "intermediate_bytes").round().cast(pl.Int64),
        share.alias("share"),
    ).select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def _changes(ordered: pl.DataFrame) -> NDArray[np.bool_]:
    """Return which rows cannot continue the chain of the previous row."""
    number: Ints | NDArray[np.int32] = np.zeros(len(ordered), np.int32)
    for name in (*_PLACE, *_SAME):
        column = ordered[name]
        values = (
            compact(column)[0]
            if column.dtype == pl.Categorical
            else column.cast(pl.Int64).fill_null(NONE).to_numpy()
        )
        number = pairs(number, values)[2]
    changed: NDArray[np.bool_] = np.concatenate(([True], number[1:] != number[:-1]))[: len(number)]
    return changed | (_gaps(ordered) >= FAR)


def _gaps(frame: pl.DataFrame) -> Ints:
    """Return the time between the end of the previous row and the start of each; 0 if they overlap."""
    end = frame["end"].to_numpy()
    gaps: Ints = np.maximum(frame["start"].to_numpy() - np.roll(end, 1), 0)
    return gaps


def _signature(frame: pl.DataFrame, number: Ints, begin: Ints) -> pl.Series:
    """Return for each chain a 128-bit number, as text, that chains of equal ops share."""
    (ops, known), (names, _) = compact(frame["op"]), compact(frame["name"])
    # as in the text: the op, or the kernel's name where there is none
    code = np.where(frame["op"].is_null().to_numpy(), len(known) + names, ops).astype(np.uint64)
    position = (np.arange(len(number)) - begin[number]).astype(np.uint64)
    columns = []
    for odd, even in _ODD:
        mixed = (code + np.uint64(1)) * np.uint64(odd) + (position + np.uint64(1)) * np.uint64(even)
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(29)
        columns.append(pl.Series(np.add.reduceat(mixed, begin)).cast(pl.String))
    return pl.select(pl.concat_str(*columns, separator=" ")).to_series()


def _texts(frame: pl.DataFrame, number: Ints, begin: pl.Series) -> pl.Series:
    """Return the ops of the chains that begin at these rows: ``aten::mul ×2, aten::add``; the kernel's
    name if there is no op. For a long chain, only the first ones."""
    wanted = number[begin.to_numpy()]
    chosen = np.zeros(int(number.max()) + 1, bool)
    chosen[wanted] = True
    rows = np.flatnonzero(chosen[number])
    part = frame[rows].select(
        pl.Series("chain", number[rows]),
        pl.coalesce(pl.col("op").cast(pl.String), pl.col("name").cast(pl.String))
        .fill_null("?")
        .alias("text"),
    )
    changed = (pl.col("text") != pl.col("text").shift(1)) | (
        pl.col("chain") != pl.col("chain").shift(1)
    )
    runs = (
        part.with_columns(changed.fill_null(True).cum_sum().alias("run"))
        .group_by("chain", "run", maintain_order=True)
        .agg(pl.col("text").first(), pl.len().alias("many"))
    )
    times = pl.when(pl.col("many") > 1).then(pl.format("{} ×{}", "text", "many"))
    more = pl.when(pl.len() > _NAMED).then(pl.format(", … ({} more)", pl.len() - _NAMED))
    text = runs.group_by("chain", maintain_order=True).agg(
        (times.otherwise("text").head(_NAMED).str.join(", ") + more.otherwise(pl.lit(""))).alias(
            "sequence"
        )
    )
    return pl.DataFrame({"chain": wanted}).join(
        text, on="chain", how="left", maintain_order="left"
    )["sequence"]


def answer(profile: Answers, below: int = SHORT) -> pl.DataFrame:
    """Chains of kernels that a fusion would join, by the most that it would save: an estimate.

    A ``pointwise`` chain computes elements from elements; a ``short`` one is of kernels of less than
    ``below`` ns (10 µs) of any kind but communication. They overlap, so their savings do not add up.
    """
    device, _ = profile.device
    return fusable_kernels(
        profile._columns_of("kernels", NEEDED),
        profile.memops(categories=True),
        device.bandwidth if device is not None else None,
        below,
    )


def fusable_table(report: Report, profile: Answers, view: View) -> Table:
    """Return the chains, with notes on the meaning of the estimates."""
    frame = report.frame(profile)
    table = listed(report, frame, view)
    notes = list(table.footnotes)
    if len(frame):
        notes.append(
            "saving_most is an estimate and an upper bound: the gaps inside the chain, and what the tensors "
            "between its kernels take to write and read; a chain that something else must interrupt saves "
            "nothing"
        )
        notes.append("a kernel may be in a pointwise and in a short chain: do not add up the two")
    return Table(table.title, table.columns, table.rows, notes)


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "fusable_kernels()",
            (
                "one row per distinct chain of kernels and direction, by the most that joining "
                "them would save"
            ),
            columns(
                "chain sequence direction layer layers length calls kernels duration "
                "gap_time intermediate_bytes saving_most share",
                """
                chain: text: pointwise: computes elements from elements; short: kernels of less than the
                    given length
                sequence: text: the ops of the chain's kernels in order; a kernel's name if it has no op
                layer: text: the layer in which most of the chains begin
                layers: count: layers in which the chains begin
                length: count: kernels of one chain
                calls: count: how often the chain ran
                kernels: count: kernels of all these chains
                duration: ns: durations of the chains' kernels added up
                gap_time: ns: time between the kernels of these chains, during which their stream ran
                    nothing
                intermediate_bytes: bytes: at most what the chains' kernels write for each other and read
                    again: for each two neighbours the smaller of what they read and write; null if not
                    known
                saving_most: ns: upper bound of what one kernel in place of each chain would save, an
                    estimate: gap_time and, of the kernels' time, what the intermediate bytes take, at
                    most all but the longest kernel
                share: fraction: duration / the time of all kernels
                """,
            ),
        ),
    ),
    parameters={"below": parameters.duration("a kernel that takes less time is short")},
    merged=lacking.PATTERNS,
    reports=(
        Report(
            name="fusable",
            title="Chains of kernels that a fusion would join",
            empty=(
                "no two pointwise or short kernels follow each other directly on a stream whose "
                "number is known"
            ),
            shown=(
                "saving_most chain sequence length calls duration gap_time intermediate_bytes "
                "direction layer"
            ),
            forms=FORMS,
            table=fusable_table,
            sums="",
            gpu_only=True,
        ),
    ),
)

"""Chains of elementwise kernels, each reading what the previous one wrote: a compiler would join each
chain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.advice.changes import Change, Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.advice.work import (
    Tensor,
    and_host,
    device_time,
    edit_of,
    holds,
    size_of,
    tensors,
    work,
)
from opscope.core.analysis.device.fusable import FAR, pointwise
from opscope.core.perf.kinds import UNCLEAR_FAMILIES
from opscope.core.question import parameters, units
from opscope.core.tables.columns import combined, compact, pairs

#: Chains that take less than this part of the device's time are not worth a change.
LEAST: Final = 0.01
_ELEMENTWISE: Final = ("elementwise", "activation", "dropout")
#: Other detectors judge the kernels of these makers.
_OTHERS: Final = ("optimizer", "communication")
#: Ops over lists of tensors are fused already.
_LISTS: Final = ("_foreach_", "_fused_", "_amp_")
_RECOMMENDED: Final[Named] = {
    "torch": (
        Change(
            "Compile the module that holds the chains: model = torch.compile(model)."
            " For a single function: @torch.compile above it.",
            compiled=False,
        ),
        Change(
            "They are outside the compiled code: put the function that holds them under @torch.compile as "
            "well, or look for a graph break before it.",
            compiled=True,
        ),
    ),
    "tensorflow": "Let XLA join them: @tf.function(jit_compile=True), or model.compile(…, jit_compile=True).",
    "keras": "model.compile(…, jit_compile=True).",
    "jax": "Put @jax.jit on the whole step, so that XLA sees all of it in one program.",
    "mindspore": "Run in graph mode with fusion: @mindspore.jit(jit_level='O1') on the cell's construct.",
    "onnxruntime": "session_options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL.",
}
_GENERAL: Final = "Let the framework's compiler join them into one kernel."


@dataclass(frozen=True, slots=True)
class _Chains:
    """The kernels in chains, in order: ``chain`` numbers the chains, ``kept`` is the factor of each
    duration."""

    rows: pl.DataFrame
    first: NDArray[np.bool_]
    between: NDArray[np.int64]
    kept: NDArray[np.float64]
    rest: int
    gaps: int


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for all chains that together take at least LEAST of the device's time."""
    ran = work(answers)
    if ran.is_empty():
        return CannotTell("neither kernels nor ops were recorded")
    ordered, member = _order(answers, ran)
    described = ordered["described"].to_numpy()
    lane, is_next = _runs(ordered)
    here = member & np.roll(member, 1) & is_next
    dark = here & ~(described & np.roll(described, 1))
    unknown = int(ordered["duration"].filter(pl.Series(dark)).sum())
    total = device_time(answers)
    chains = _chains(ran, ordered["at"], here & ~dark, lane)
    if chains is None or int(chains.rows["duration"].sum()) + chains.gaps < least * total:
        if unknown >= least * total and unknown:
            return CannotTell(
                f"the shapes of {int(dark.sum()):,} elementwise kernels that directly follow another"
                f" ({ms(unknown)}) were not recorded: record with shapes (opscope does;"
                " torch.profiler: record_shapes=True)"
            )
        return []
    return [_finding(answers, chains, total, int(dark.sum()), unknown)]


def _order(answers: Answers, ran: pl.DataFrame) -> tuple[pl.DataFrame, NDArray[np.bool_]]:
    """Return the work in the order of each stream or thread, with what may be in a chain: of ``ran`` the row
    (``at``, null for copies) and the columns that say what follows what."""
    family = ran["op_type"]
    if answers.cpu_only:
        elementwise = holds(family, lambda text: text in _ELEMENTWISE)
    else:
        elementwise = pointwise(ran)
    other = holds(ran["direction"], lambda text: text in _OTHERS)
    other |= holds(family, lambda text: text in UNCLEAR_FAMILIES)
    other |= holds(ran["op"], lambda text: any(part in (text or "") for part in _LISTS))
    member = elementwise & ~other
    span = ["process", "device", "lane", "start", "end"]
    rows = ran.select(
        *span, "direction", "step", "duration",
        pl.int_range(pl.len(), dtype=pl.Int64).alias("at"),
        pl.col("inputs").is_not_null().alias("described"),
        pl.Series("member", member),
    )  # fmt: skip
    if not answers.cpu_only:
        copies = answers.memops(categories=True).select(
            "process", "device", pl.col("stream").alias("lane"), "start", "end",
            pl.lit(False).alias("member"), pl.lit(False).alias("described"),
        )  # fmt: skip
        rows = pl.concat([rows, copies], how="diagonal_relaxed")
    rows = rows.filter(pl.col("lane").is_not_null()).sort(*span, maintain_order=True)
    return rows, rows["member"].to_numpy()


def _runs(ordered: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the gap (ns) before each row, and whether the previous row is near and of the same place."""
    same = pl.lit(True)
    for name in ("process", "device", "lane", "direction", "step"):
        same &= pl.col(name).eq_missing(pl.col(name).shift(1))
    gap = (pl.col("start") - pl.col("end").shift(1)).clip(lower_bound=0).fill_null(0)
    gaps = ordered.select(gap.alias("gap"), (same & (gap < FAR)).alias("near"))
    near = gaps["near"].fill_null(False).to_numpy().copy()
    near[:1] = False
    return gaps["gap"].to_numpy(), near


def _chains(
    ran: pl.DataFrame, at: pl.Series, here: NDArray[np.bool_], gap: NDArray[np.int64]
) -> _Chains | None:
    """Return the chains: rows (``here``) that may each continue the previous row and read what it wrote.
    ``at``: the row of ``ran`` of each row."""
    after = np.flatnonzero(here)
    if not len(after):
        return None
    wanted = np.unique(np.concatenate((after, after - 1)))
    codes, kinds = combined([ran[name][at[wanted]] for name in ("op", "inputs", "outputs")])
    chain_codes = np.zeros(len(at), np.int64)
    chain_codes[wanted] = codes
    texts = list(zip(*(kind.cast(pl.String).to_list() for kind in kinds), strict=True))
    before, then, number = pairs(chain_codes[after - 1], chain_codes[after])
    passed = np.array(
        [
            _passed(texts[first], texts[two])
            for first, two in zip(before.tolist(), then.tolist(), strict=True)
        ],
        np.int64,
    )[number]
    after, passed = after[passed > 0], passed[passed > 0]
    if not len(after):
        return None
    rows = np.unique(np.concatenate((after, after - 1)))
    between = np.zeros(len(at), np.int64)
    between[after] = passed
    read = between[rows]
    first = read == 0
    written = np.where(np.roll(first, -1), 0, np.roll(read, -1))
    frame = ran[at[rows]]
    begin = np.flatnonzero(first)
    duration = frame["duration"].to_numpy().astype(np.float64)
    moved = frame["bytes"].cast(pl.Float64).fill_null(np.nan).to_numpy()
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.nan_to_num((read + written) / moved, nan=0.0, posinf=0.0)
    removed = duration * np.minimum(part, 1.0)
    rest = np.add.reduceat(duration, begin) - np.maximum.reduceat(duration, begin)
    # the joined kernel takes at least as long as the chain's longest kernel
    sums = np.add.reduceat(removed, begin)
    scale = np.minimum(1.0, rest / np.where(sums > 0, sums, 1.0))
    removed *= scale[np.cumsum(first) - 1]
    kept = 1 - removed / np.where(duration > 0, duration, 1.0)
    gaps = int(np.where(first, 0, gap[rows]).sum())
    return _Chains(frame, first, read, kept, int(rest.sum()), gaps)


_Text = tuple["str | None", "str | None", "str | None"]


def _passed(former: _Text, latter: _Text) -> int:
    """Return the bytes that the later op reads of the result of the earlier one; 0 if it reads none."""
    op, inputs, outputs = former
    then, reads = latter[0] or "", tensors(latter[1])
    bare, after = (op or "").partition(".")[0], then.partition(".")[0]
    if bare == after and bare.endswith("_"):
        return 0  # a loop over tensors, in place
    result = _result(bare, inputs, outputs)
    if after.endswith("copy_"):
        reads = reads[1:]
    for read in reads:
        if (
            result is not None
            and read[1] == result[1]
            and read[0] in (result[0] or read[0], read[0])
        ):
            if result[0] and result[0] != read[0]:
                continue
            return size_of(read)
    return 0


def _result(op: str, inputs: str | None, outputs: str | None) -> Tensor | None:
    """Return what an elementwise op writes: its first output, else its inputs broadcast (dtype: "")."""
    written, read = tensors(outputs), tensors(inputs)
    if written:
        return written[0]
    if not read:
        return None
    if op.endswith("_"):
        return read[0]
    rank = max(len(dims) for _, dims in read)
    shape = [1] * rank
    for _, dims in read:
        for index, dim in enumerate(dims, rank - len(dims)):
            shape[index] = max(shape[index], dim) if dim != 0 else 0
    return "", tuple(shape)


def _finding(answers: Answers, chains: _Chains, total: int, dark: int, unknown: int) -> Finding:
    rows = chains.rows
    time, chain_count = int(rows["duration"].sum()), int(chains.first.sum())
    moved = int(chains.between.sum())
    unsized = rows["bytes"].null_count()
    noun = "ops" if answers.cpu_only else "kernels"
    removed = time - int((rows["duration"].to_numpy() * chains.kept).sum())
    rest = (
        f"; {noun} whose shapes are unknown and that are not counted: {dark:,} ({ms(unknown)})"
        if dark
        else ""
    )
    edit, gone = edit_of(answers, rows, chains.kept, rows.filter(pl.Series(~chains.first)))
    _, texts = compact(rows["op"])
    said = f" ({len(texts):,} different ops)" if len(texts) > 1 else ""
    return Finding(
        what=f"{len(rows):,} elementwise {noun}{said} run in {chain_count:,}"
        f" chain{'s' * (chain_count != 1)} that"
        f" nothing fused: {ms(time)},"
        f" {share(time, total)} of the device's time; {units.size(2 * moved)} are written by one and"
        " read by the next",
        evidence=places(rows, noun) + rest,
        recommendation=fit(answers, _RECOMMENDED, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=chains.rest + chains.gaps + gone,
        reasoning=f"A chain is {noun} of one stream or thread, direction and step less than"
        f" {FAR // 1000} µs apart, of which each has an input of the shape that the one before writes."
        " Joined, a"
        " chain does not write and read what lies between: of each duration the part that these bytes are of"
        f" the op's bytes, {ms(removed)} in all"
        + (f" (not counted: {unsized:,} without known bytes)" if unsized else "")
        + f". At most all but the longest of each chain, {ms(chains.rest)}, and the gaps between them,"
        f" {ms(chains.gaps)}{and_host(gone)}. At least nothing: an intermediate may be needed elsewhere,"
        " such as in the"
        " backward pass. Columns: start, end, duration, inputs, outputs, bytes.",
        confidence="medium",
        rows=evidence(rows),
        edit=edit,
    )


DETECTOR = Detector(
    name="elementwise_chains",
    question="Do elementwise kernels run one after the other, each reading what the one before wrote?",
    find=find,
    fires="{least} of the device's time",
    needs_all_kernels=True,
    thresholds={"least": parameters.share("the least share of the device time that chains take")},
    looks_at="kernels() (on the CPU: ops()), by stream or thread: elementwise, activation, dropout and"
    " copying"
    " kernels that directly follow each other and whose inputs have the shape of what the one before writes;"
    " and their bytes. Kernels of a compiler, of the optimizer and of communication are left out.",
    abstains="Where elementwise kernels follow each other and their shapes were not recorded.",
)

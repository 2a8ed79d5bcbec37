"""Padded batches of sequences: ops between padded and packed batches show how many elements are padding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.advice.work import Tensor, device_time, numel, tensors, work
from opscope.core.question import parameters
from opscope.core.tables.columns import combined, matching

#: The least part of the device's time that is spent on padding, and the least part of a batch that is
#: padding.
LEAST: Final = 0.05
_PADDED: Final = 0.2
#: Ops that remove or add padding: one side has a row for each element, the other has batch and length.
_OPS: Final = (
    r"\A(aten::(_pack_padded_sequence|_pad_packed_sequence|to_padded_tensor|_nested_from_padded\w*"
    r"|_jagged_to_padded_dense\w*|_padded_dense_to_jagged\w*)|RaggedTensorToTensor)\b"
)
#: Lookups whose indices are tokens.
_TOKENS: Final = r"\A(aten::embedding|GatherV2|ResourceGather|Gather|EmbeddingLookup)\b"
_INDEX: Final = ("i64", "i32")
_RECOMMENDED: Final[Named] = {
    "torch": "Put sequences of like length into one batch (a sampler that sorts by length), or compute"
    " without padding: torch.nested.nested_tensor(…, layout=torch.jagged), or attention with cu_seqlens.",
    "tensorflow": "dataset.bucket_by_sequence_length(…) puts sequences of like length into one batch; layers"
    " that take tf.RaggedTensor need no padding.",
}
_GENERAL: Final = "Put sequences of like length into one batch, or pack several into one row."


@dataclass(frozen=True, slots=True)
class _Batch:
    """The two leading sizes of a padded batch, and how many of its places hold an element."""

    sizes: tuple[int, int]
    filled: int

    @property
    def padded(self) -> float:
        return 1 - self.filled / numel(self.sizes)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for all batches whose padding is known."""
    ran = work(answers)
    if ran.is_empty():
        return CannotTell("neither kernels nor a framework's ops were recorded")
    ops = answers.ops(categories=True) if answers.cpu_only else ran
    batches = list(_batches(ops))
    if not batches:
        return CannotTell(_unknown(ran))
    counted = {batch.sizes: [other.padded for other in batches if other.sizes == batch.sizes]
               for batch in batches}  # fmt: skip
    padded = {sizes: float(np.mean(parts)) for sizes, parts in counted.items()}
    codes, kinds = combined([ran[name] for name in ("inputs", "outputs")])
    texts = zip(*(kind.cast(pl.String).to_list() for kind in kinds), strict=True)
    part = np.array([_part(inputs, outputs, padded) for inputs, outputs in texts])[codes]
    rows = ran.filter(pl.Series(part > 0))
    lost = int((rows["duration"].to_numpy() * part[part > 0]).sum())
    total = device_time(answers)
    if max(padded.values()) < _PADDED or lost < least * total or not lost:
        return []
    return [_finding(answers, rows, batches, lost, total)]


def _batches(ops: pl.DataFrame) -> Iterator[_Batch]:
    """Yield the batches of which an op shows how many places hold an element."""
    shows = ops.filter(pl.Series(matching(ops["op"], _OPS)))
    texts = shows.select(pl.col("inputs", "outputs").cast(pl.String))
    for inputs, outputs in texts.rows():
        read, written = tensors(inputs), tensors(outputs)
        if not read or not written:
            continue
        # the other inputs are lengths, offsets and shapes
        (_, given), (_, made) = (
            max(side, key=lambda tensor: numel(tensor[1])) for side in (read, written)
        )
        for dense, packed in ((given, made), (made, given)):
            # the sizes after batch and length are those after the packed size
            if len(dense) >= 2 and len(dense) == len(packed) + 1 and dense[2:] == packed[1:]:
                if packed[0] <= numel(dense[:2]):
                    yield _Batch((dense[0], dense[1]), packed[0])
                break


def _part(inputs: str | None, outputs: str | None, padded: dict[tuple[int, int], float]) -> float:
    """Return the part of an op's elements that is padding; 0 for an op on no such batch."""
    parts = [
        part
        for tensor in (*tensors(inputs), *tensors(outputs))
        for sizes, part in padded.items()
        if _is_batch(tensor, sizes)
    ]
    return max(parts, default=0.0)


def _is_batch(tensor: Tensor, sizes: tuple[int, int]) -> bool:
    dims = tensor[1]
    if len(dims) < 2:
        return False
    return dims[:2] in (sizes, sizes[::-1]) or dims[0] == numel(sizes)


def _unknown(ran: pl.DataFrame) -> str:
    tokens = ran.filter(pl.Series(matching(ran["op"], _TOKENS)))["inputs"].unique().cast(pl.String)
    batches = sorted(
        {
            f"{dtype}[{','.join(map(str, dims))}]"
            for text in tokens.drop_nulls()
            for dtype, dims in tensors(text)
            if dtype in _INDEX and len(dims) == 2 and dims[1] > 1
        }
    )
    if not batches:
        return "it is about batches of sequences, and no op of the profile shows one"
    return (
        f"which places of the batches of tokens ({', '.join(batches[:3])}) are padding is in their values,"
        " which are not recorded: count them in the loop"
    )


def _finding(
    answers: Answers, rows: pl.DataFrame, batches: list[_Batch], lost: int, total: int
) -> Finding:
    places_of_all = sum(numel(batch.sizes) for batch in batches)
    filled = sum(batch.filled for batch in batches)
    worst = max(batches, key=lambda batch: batch.padded)
    time = int(rows["duration"].sum())
    return Finding(
        what=f"{share(places_of_all - filled, places_of_all)} of the places in padded batches hold no"
        f" element: {ms(lost)}, {share(lost, total)} of the device's time, go into padding",
        evidence=f"of {worst.sizes[0]:,}×{worst.sizes[1]:,} places {worst.filled:,} hold an element; work on"
        f" such batches: {places(rows, 'ops' if answers.cpu_only else 'kernels')}",
        recommendation=fit(answers, _RECOMMENDED, _GENERAL),
        time=lost,
        saving_least=0,
        saving_most=lost,
        reasoning="Ops that pack or pad sequences show how many places of a batch hold an element (inputs and"
        f" outputs). Of all work on tensors of a batch's two leading sizes ({ms(time)}) that part of the time"
        " which is padding; at least nothing, as small batches take no less time for less work.",
        confidence="medium",
        rows=evidence(rows),
    )


DETECTOR = Detector(
    name="padding",
    question="Does much of the time go into padding of sequences?",
    find=find,
    fires="a fifth of a batch's places, and {least} of the device's time",
    thresholds={
        "least": parameters.share("the least share of the device time that goes into padding")
    },
    looks_at="Ops that pack or pad sequences (PyTorch's packed sequences and nested tensors, TensorFlow's"
    " ragged ones): their inputs and outputs show how many places of a batch hold an element; then all work"
    " on tensors of the batch's sizes.",
    abstains="Without such ops: shapes alone, those of attention masks too, do not show which places are"
    " padding.",
)

"""Attention made of two products with a softmax between, which writes and reads S×S matrices."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Change, Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.advice.work import (
    Tensor,
    and_host,
    device_time,
    edit_of,
    holds,
    numel,
    size_of,
    tensors,
    work,
)
from opscope.core.perf.devices.peaks import Device
from opscope.core.perf.kinds import UNCLEAR_FAMILIES
from opscope.core.question import parameters, units
from opscope.core.tables.columns import combined, matching

#: The part of the device's time from which unfused attention is worth a change.
LEAST: Final = 0.01
_PRODUCTS: Final = ("gemm",)
_OTHER_SOFTMAX: Final = r"(?i)log_?softmax|backward|grad"
#: Scores have three dimensions at least: heads, rows and columns.
_RANK: Final = 3
_RECOMMENDED: Final[Named] = {
    "torch": "out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p,"
    " is_causal=…) in place of the two products and the softmax; Hugging Face: from_pretrained(…,"
    " attn_implementation='sdpa').",
    "tensorflow": "@tf.function(jit_compile=True) around the attention, so that XLA fuses it.",
    "keras": Change(
        "keras.config.enable_flash_attention(), or MultiHeadAttention(…, flash_attention=True).",
        on_gpu=True,
    ),
    "jax": (
        Change(
            "out = jax.nn.dot_product_attention(q, k, v, mask=mask, implementation='cudnn')",
            on_gpu=True,
            vendors=("nvidia",),
        ),
        Change("out = jax.nn.dot_product_attention(q, k, v, mask=mask)", on_gpu=False),
    ),
    "mindspore": "mindspore.ops.flash_attention_score(query, key, value, head_num, …)",
    "onnxruntime": "python -m onnxruntime.transformers.optimizer --input model.onnx --output fused.onnx joins"
    " them into one Attention node.",
}
#: The softmax that PyTorch's scaled_dot_product_attention calls where it cannot use a fused form.
_REFUSED: Final = "aten::_safe_softmax"
_WHY_REFUSED: Final[Named] = {
    "torch": "The program calls scaled_dot_product_attention, and PyTorch refused its fused forms. One call"
    " inside `with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):` warns why;"
    " on a CPU dropout_p above 0 is a reason (set the attention's dropout to 0), as is a mask that needs a"
    " gradient.",
}
_GENERAL: Final = (
    "Use one fused attention op (flash attention), which keeps the scores on the chip."
)


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for all attention made of separate products and softmax."""
    ran = work(answers)
    if ran.is_empty():
        return CannotTell("neither kernels nor a framework's ops were recorded")
    softmax = pl.Series(
        holds(ran["op_type"], lambda text: text == "softmax") & ~matching(ran["op"], _OTHER_SOFTMAX)
    )
    total = device_time(answers)
    if not softmax.any():
        unclear = holds(ran["op_type"], lambda text: text in UNCLEAR_FAMILIES)
        bare = ran.filter(pl.col("op").is_null() | pl.Series(unclear))
        hidden = bare.filter(pl.Series(matching(bare["name"], r"(?i)soft_?max")))
        if len(hidden):
            return CannotTell(f"{len(hidden):,} kernels compute a softmax in no op with shapes")
        dark = int(ran["duration"].filter(ran["op"].is_null()).sum())
        if dark > least * total and dark:
            return CannotTell(f"no op has a softmax, and {ms(dark)} of the device's time has no op")
        return []
    shapeless = ran.filter(softmax & pl.col("inputs").is_null())
    scores = _scores(ran, softmax)
    rows, bytes_ = _touching(ran, scores)
    time = int(rows["duration"].sum())
    if not scores or time < least * total:
        took = int(shapeless["duration"].sum())
        if took and took >= least * total / 4:
            return CannotTell(
                f"the shapes of {len(shapeless):,} softmax ops ({ms(took)}) were not recorded: record"
                " with shapes"
            )
        return []
    return [_finding(answers, rows, bytes_, scores, len(shapeless), total)]


_Scores = frozenset[tuple[int, int, int]]


def _scores(ran: pl.DataFrame, softmax: pl.Series) -> _Scores:
    """Return the sizes (elements, rows, columns) of scores: a product writes the scores, a softmax follows,
    and the next product of the same stream or thread reads the softmax's result."""
    product = pl.Series(holds(ran["op_type"], lambda text: text in _PRODUCTS))
    columns = ("process", "device", "lane", "start", "end", "inputs", "outputs")
    part = (
        ran.select(*columns, softmax.alias("softmax"), product.alias("product"))
        .filter(pl.col("softmax") | pl.col("product"), pl.col("lane").is_not_null())
        .sort("process", "device", "lane", "start", "end")
        .select("process", "device", "lane", "softmax", "inputs", "outputs")
    )
    same = [
        pl.col(name).eq_missing(pl.col(name).shift(1)) for name in ("process", "device", "lane")
    ]
    after = [
        pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in ("process", "device", "lane")
    ]
    threes = part.with_columns(
        pl.col("inputs", "outputs").shift(1).name.prefix("before_"),
        pl.col("inputs").shift(-1).alias("then"),
        (~pl.col("softmax").shift(1, fill_value=True) & pl.all_horizontal(*same)).alias("behind"),
        (~pl.col("softmax").shift(-1, fill_value=True) & pl.all_horizontal(*after)).alias("ahead"),
    ).filter(pl.col("softmax"), pl.col("behind"), pl.col("ahead"))
    texts = threes.select("inputs", "before_inputs", "before_outputs", "then").unique()
    sizes = set()
    for inputs, read, written, then in texts.cast(pl.String).rows():
        for _, dims in tensors(inputs)[:1]:
            if len(dims) < _RANK or not numel(dims):
                continue
            size = numel(dims), dims[-2], dims[-1]
            if _writes(tensors(read), tensors(written), size) and any(
                _is_scores(spec, {size}) for spec in tensors(then)
            ):
                sizes.add(size)
    return frozenset(sizes)


def _writes(
    read: tuple[Tensor, ...], written: tuple[Tensor, ...], size: tuple[int, int, int]
) -> bool:
    """Return whether a product of these inputs writes scores of this size."""
    if written:
        return any(numel(dims) == size[0] and dims[-1:] == size[2:] for _, dims in written)
    operands = [dims for _, dims in read if len(dims) >= 2]
    if len(operands) < 2:
        return False
    left, right = operands[-2:]
    batch = max(numel(left[:-2]), numel(right[:-2]))
    return batch * left[-2] * right[-1] == size[0] and right[-1] == size[2]


def _is_scores(tensor: Tensor, sizes: set[tuple[int, int, int]] | _Scores) -> bool:
    """Return whether a tensor is a matrix of scores, transposed or not, its heads folded or not."""
    dims = tensor[1]
    if len(dims) < 2:
        return False
    count = numel(dims)
    return (count, dims[-2], dims[-1]) in sizes or (count, dims[-1], dims[-2]) in sizes


def _touching(ran: pl.DataFrame, scores: _Scores) -> tuple[pl.DataFrame, int]:
    """Return the work that reads or writes scores, with the bytes of scores that it moves."""
    part = ran.filter(
        pl.col("direction").cast(pl.String).is_in(["forward", "backward"])
        | pl.col("direction").is_null()
    )
    if not scores or part.is_empty():
        return part.clear(), 0
    codes, kinds = combined([part[name] for name in ("inputs", "outputs", "op_type")])
    texts = zip(*(kind.cast(pl.String).to_list() for kind in kinds), strict=True)
    moved = np.array([_moves(into, out, kind, scores) for into, out, kind in texts], np.int64)[
        codes
    ]
    return part.filter(pl.Series(moved > 0)), int(moved.sum())


def _moves(inputs: str | None, outputs: str | None, kind: str | None, scores: _Scores) -> int:
    """Return the bytes of scores that an op with these tensors reads and writes; 0 if it touches none."""
    read, written = tensors(inputs), tensors(outputs)
    sizes = [size_of(spec) for spec in (*read, *written) if _is_scores(spec, scores)]
    if sizes and not written and kind not in _PRODUCTS:  # a softmax or a mask writes as much
        sizes.append(max(sizes))
    if not sizes and len(read) >= 2:
        # a product writes the scores
        sizes = [
            size * size_of((read[0][0], (1,)))
            for size, rows, columns in scores
            if _writes(read, written, (size, rows, columns))
        ][:1]
    return sum(sizes)


def _finding(
    answers: Answers, rows: pl.DataFrame, moved: int, scores: _Scores, shapeless: int, total: int
) -> Finding:
    time = int(rows["duration"].sum())
    product = rows["op_type"].cast(pl.String).is_in(_PRODUCTS).fill_null(False)
    between = rows.filter(~product)
    vanishes = int(between["duration"].sum())
    _, most_rows, most_columns = max(scores)
    device, _ = answers.device
    least = _least(rows, device)
    at_rate = (
        f" At the device's {device.bandwidth / 1e9:,.0f} GB/s the scores' bytes take"
        f" {ms(moved / device.bandwidth * 1e9)}."
        if device is not None and device.bandwidth and not answers.cpu_only
        else ""
    )
    rest = f"; softmax ops of unknown shapes: {shapeless:,}" if shapeless else ""
    noun = "ops" if answers.cpu_only else "kernels"
    softmax = rows["op_type"].cast(pl.String) == "softmax"
    count = int((softmax & ~pl.Series(matching(rows["op"], _OTHER_SOFTMAX))).sum())
    refused = (rows["op"].cast(pl.String) == _REFUSED).any()
    factor = np.where(product.to_numpy(), 1.0, 0.0)
    edit, gone = edit_of(answers, rows, factor, between)
    return Finding(
        what=f"attention runs as products with a softmax between ({count:,} softmax {noun}, scores of up to"
        f" {most_rows:,}×{most_columns:,}): {ms(time)}, {share(time, total)} of the device's time, and"
        f" {units.size(moved)} of scores written and read",
        evidence=places(rows, noun) + rest,
        recommendation=fit(answers, _WHY_REFUSED if refused else _RECOMMENDED, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=max(time - least, vanishes) + gone,
        reasoning=f"Fused, the scores never leave the chip: all that only reads and writes them goes"
        f" (softmax, scaling, masks, dropout, copies: {ms(vanishes)}), and the products stay"
        f" ({ms(time - vanishes)}), less what"
        f" they read and write of the scores: at most all of both"
        + (
            f" but the {ms(least)} that the products' FLOPs take at the device's peak"
            if least
            else ""
        )
        + f"{and_host(gone)}.{at_rate} At least nothing: a fused kernel may not support"
        " the mask or the head size. Columns: op_type, inputs, outputs, duration, matrix_flops.",
        confidence="high" if vanishes * 2 > time else "medium",
        rows=evidence(rows),
        edit=edit,
    )


def _least(rows: pl.DataFrame, device: Device | None) -> int:
    """Return the least time (ns) that the products' FLOPs take; 0 where it is not known."""
    peak = None if device is None else max(device.tensor.values(), default=None)
    return int(float(rows["matrix_flops"].sum() or 0) / peak * 1e9) if peak else 0


DETECTOR = Detector(
    name="unfused_attention",
    question="Does attention run as separate products and softmax instead of one fused op?",
    find=find,
    fires="{least} of the device's time",
    thresholds={
        "least": parameters.share("the least share of the device time that attention takes")
    },
    looks_at="kernels() (on the CPU: ops()), by stream or thread: a softmax over at least three"
    " dimensions, where the"
    " product before writes its input and the product after reads its result, by their inputs and"
    " outputs; then all work"
    " on tensors of that size, forward and backward.",
    abstains="Where a softmax has no shapes, or kernels have no op.",
)

"""Strip the numbers that differ with each call from PyTorch's range texts, a column at a time.

``emit_nvtx`` writes each call's numbers into its text (``aten::mm, seq = 5, op_id = 7, sizes = …``), so
thirty million ranges have as many texts. Two regular expressions take 0.4 µs per text, and keeping a text
per range takes 0.33 µs and most of the memory; this module takes 0.25 µs and keeps one text per template.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.dialects import torch_nvtx
from opscope.core.tables.columns import combined

_SEQ: Final = ", seq = "
_OP_ID: Final = ", op_id = "
_SIZES: Final = ", sizes = "
_INPUTS: Final = ", input_op_ids = ["
#: Number of digits that always fit in 64 bits.
_DIGITS: Final = 18
#: Longer than any text: a slice to the end is several times faster if a length is given.
_REST: Final = 1 << 31


def split(texts: pl.Series) -> pl.DataFrame:
    """Return ``text`` (Categorical) and ``seq`` (Int64), row for row, as ``torch_nvtx.strip`` does."""
    seq, identity = (texts.str.find(word, literal=True) for word in (_SEQ, _OP_ID))
    numbered = seq.is_not_null() | identity.is_not_null()
    if not numbered.any():
        return _whole(texts)
    if numbered.all():
        return _numbered(texts, seq, identity)
    mine = _numbered(*(column.filter(numbered) for column in (texts, seq, identity)))
    return _merge(numbered, mine, _whole(texts.filter(~numbered)))


def _whole(texts: pl.Series) -> pl.DataFrame:
    nothing = pl.lit(None, pl.Int64)
    return pl.select(texts.cast(pl.Categorical).alias("text"), nothing.alias("seq"))


def _merge(chosen: pl.Series, first: pl.DataFrame, others: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of ``first`` in the ``chosen`` places and the rows of ``others`` in the remaining
    places."""
    mine = chosen.to_numpy()
    index = np.where(mine, np.cumsum(mine) - 1, len(first) + np.cumsum(~mine) - 1)
    return pl.concat([first, others])[pl.Series(index.astype(np.uint32))]


def _numbered(texts: pl.Series, seq: pl.Series, identity: pl.Series) -> pl.DataFrame:
    """Split texts that contain one of the words, which begin at the bytes ``seq`` and ``identity``.

    Texts that are not in PyTorch's form are split by the slow method.
    """
    size = texts.str.len_bytes()
    sizes = texts.str.find(_SIZES, literal=True).fill_null(size)
    begin = seq.fill_null(identity)
    # a slice of bytes copies nothing; with columns as its ends it takes a third of the time
    marks = pl.DataFrame(
        [column.cast(pl.Int64).alias(name)  # signed: words may be in another order
         for name, column in (("seq", seq), ("id", identity), ("sizes", sizes))]
    ).with_columns(
        (pl.col("seq") + len(_SEQ)).alias("first"),
        (pl.coalesce("id", "sizes") - pl.col("seq") - len(_SEQ)).alias("digits"),
        (pl.col("id") + len(_OP_ID)).alias("second"),
        (pl.col("sizes") - pl.col("id") - len(_OP_ID)).alias("others"),
    )  # fmt: skip
    frame = marks.with_columns(texts.cast(pl.Binary).alias("text"), begin.alias("begin"))
    text = pl.col("text").bin
    parts = frame.select(
        text.head(pl.col("begin")).alias("head"),
        text.slice(pl.col("first"), pl.col("digits").clip(0)).alias("seq"),
        text.slice(pl.col("second"), pl.col("others").clip(0)).alias("id"),
        text.slice(pl.col("sizes"), _REST).alias("tail"),
    )
    number, named = _number(parts["seq"]), _number(parts["id"])
    usual = (
        (number.is_not_null() | seq.is_null())
        & (named.is_not_null() | identity.is_null())
        & (marks["digits"].fill_null(0) >= 0)
        & (marks["others"].fill_null(0) >= 0)
    )
    numbered = pl.DataFrame([_join(parts["head"], _without_inputs(parts["tail"])), number])
    if usual.all():
        return numbered
    odd = torch_nvtx.strip(texts.filter(~usual))
    slow = odd.select(pl.col("text").cast(pl.Categorical), pl.col("seq").cast(pl.Int64))
    return _merge(usual, numbered.filter(usual), slow)


def _number(digits: pl.Series) -> pl.Series:
    """Return texts that are only digits as numbers; others are null."""
    words = digits.cast(pl.String)
    signed = words.str.starts_with("-") | words.str.starts_with("+")
    wrong = (signed | (words.str.len_bytes() > _DIGITS)).fill_null(False)
    number: pl.Series = words.cast(pl.Int64, strict=False)
    return number.set(wrong, None) if wrong.any() else number


def _without_inputs(tails: pl.Series) -> pl.Series:
    """Return the tails without ``input_op_ids``, the list at their end of the ops that made the inputs."""
    words = tails.cast(pl.String)
    at = words.str.find(_INPUTS, literal=True).cast(pl.Int64)
    if at.null_count() == len(at):
        return tails
    frame = pl.DataFrame({"text": tails, "at": at, "first": at + len(_INPUTS)})
    text = pl.col("text").bin
    before, listed = frame.select(
        text.head(pl.col("at")).alias("before"), text.slice(pl.col("first"), _REST).alias("listed")
    ).get_columns()
    closed = listed.cast(pl.String).str.find("]", literal=True).cast(pl.Int64)
    ends = (closed == listed.bin.size().cast(pl.Int64) - 1).fill_null(False)
    cut: pl.Series = before.zip_with(ends, tails)
    return cut


def _join(head: pl.Series, tail: pl.Series) -> pl.Series:
    """Return head and tail, joined by the part that ``strip`` leaves of the numbers between them; each
    distinct pair is joined once."""
    columns = [column.cast(pl.String).cast(pl.Categorical) for column in (head, tail)]
    number, (before, behind) = combined(columns)
    texts = pl.select(pl.concat_str(before, pl.lit(torch_nvtx.STRIPPED), behind).alias("text"))
    joined: pl.Series = texts["text"].cast(pl.Categorical).gather(number)
    return joined

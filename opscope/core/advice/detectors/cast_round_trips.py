"""Tensors that are cast to a wider number format and back again at once: the values stay as they are."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.advice.changes import Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.saying import evidence, ms, places, share
from opscope.core.advice.work import (
    CASTS,
    Cast,
    and_host,
    blind,
    cast_of,
    device_time,
    edit_of,
    work,
)
from opscope.core.question import parameters
from opscope.core.schema import DTYPE_BITS, FLOATS
from opscope.core.tables.columns import combined, matching

#: The part of the device's time from which such casts are worth a change.
LEAST: Final = 0.005
#: Formats that contain all values of another format with fewer bits. (f16 and bf16, both of 16 bits, do not
#: contain each other's.)
_WIDER: Final = {(a, b) for a in FLOATS for b in FLOATS if DTYPE_BITS[a] < DTYPE_BITS[b]}
_RECOMMENDED: Final[Named] = {
    "torch": "Leave both casts out: x.double().float() of a float32 tensor is x itself.",
    "tensorflow": "Leave both tf.cast calls out.",
    "jax": "Leave both astype calls out.",
    "mindspore": "Leave both ops.cast calls out.",
    "onnxruntime": "Remove both Cast nodes; graph_optimization_level = ORT_ENABLE_ALL removes such pairs.",
}
_GENERAL: Final = "Leave both casts out."


def find(answers: Answers, least: float = LEAST) -> Answer:
    """Return one finding for all pairs of casts that undo each other."""
    ran = work(answers)
    if ran.is_empty():
        return CannotTell("neither kernels nor a framework's ops were recorded")
    total = device_time(answers)
    named = matching(ran["op"], CASTS)
    dark = int(ran["duration"].filter(pl.Series(named) & ran["inputs"].is_null()).sum())
    rows = ran.filter(pl.Series(_pairs(ran, named)))
    time = int(rows["duration"].sum())
    if not time or time < least * total:
        if dark > least * total:
            return CannotTell(
                f"the shapes of copies or casts ({ms(dark)}) were not recorded: record with shapes"
            )
        unseen = blind(ran)
        return CannotTell(unseen) if unseen else []
    return [_finding(answers, rows, time, total)]


def _pairs(ran: pl.DataFrame, named: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows are a cast to a wider format, or the cast back right after it in its lane."""
    codes, kinds = combined([ran[name] for name in ("inputs", "outputs", "params")])
    used = np.zeros(len(kinds[0]), bool)
    used[codes[named]] = True
    texts = zip(*(kind.cast(pl.String).to_list() for kind in kinds), strict=True)
    casts = [cast_of(*text) if mine else None for text, mine in zip(texts, used, strict=True)]
    if not any(casts):
        return np.zeros(len(ran), bool)
    numbers: dict[Cast, int] = {}
    # for each text the number of its cast and, if the cast widens, of the cast back
    of_text = [-1 if cast is None else numbers.setdefault(cast, len(numbers)) for cast in casts]
    back = {
        number: numbers.get(Cast(cast.to, cast.source, cast.shape), -2)
        for cast, number in numbers.items()
        if (cast.source, cast.to) in _WIDER
    }
    number = np.where(named, np.array(of_text, np.int64)[codes], -1)
    awaited = np.array([back.get(each, -2) for each in range(len(numbers))] + [-2], np.int64)
    keys = ["process", "device", "lane"]
    order = ran.select(*keys, "start").with_row_index("row").sort(*keys, "start")
    row = order["row"].to_numpy()
    together = (
        order.select(
            pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift(-1)) for name in keys)
        )
        .to_series()
        .fill_null(False)
        .to_numpy()[:-1]
    )
    first = np.flatnonzero(together & (awaited[number[row[:-1]]] == number[row[1:]]))
    flags = np.zeros(len(ran), bool)
    flags[row[first]] = flags[row[first + 1]] = True
    return flags


def _finding(answers: Answers, rows: pl.DataFrame, time: int, total: int) -> Finding:
    steps = rows["step"].drop_nulls().n_unique()
    each = f", {len(rows) / steps:,.0f} a step" if steps else ""
    edit, gone = edit_of(answers, rows, np.zeros(len(rows)), rows)
    return Finding(
        what=f"{len(rows):,} casts go to a wider number format and right back{each}: {ms(time)},"
        f" {share(time, total)} of the device's time for values that stay as they are",
        evidence=places(rows, "casts"),
        recommendation=fit(answers, _RECOMMENDED, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=time + gone,
        reasoning="A pair is two casts one after the other on one stream or thread: from a format to one that"
        " holds all of its values, and back, of one shape (kernels(); on the CPU ops(): op, inputs, outputs,"
        f" params, duration). At most all of their time{and_host(gone)}; at least nothing, where other work"
        " hides them or something else reads the wider tensor as well.",
        confidence="high",
        rows=evidence(rows),
        edit=edit,
    )


DETECTOR = Detector(
    name="cast_round_trips",
    question="Are tensors cast to a wider number format and back again at once?",
    find=find,
    fires="{least} of the device's time",
    thresholds={
        "least": parameters.share("the least share of the device time that such casts take")
    },
    looks_at="Copies and casts between floating-point formats, in the order of each stream or thread: a cast"
    " to a format that holds all values of the one before, and the cast back right after it, of the same"
    " shape. A cast to fewer bits and back changes values, and is never counted.",
    abstains="Where the shapes of copies that take 0.5 % of the device's time were not recorded, or more than"
    " 5 % of the kernels' time has no op.",
)

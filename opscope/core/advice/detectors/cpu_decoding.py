"""Steps that wait for a loader which decodes and augments on the CPU; a GPU could do this work."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.changes import Change, Named, fit
from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Finding
from opscope.core.advice.pace import NO_STEPS
from opscope.core.advice.rest import with_rest
from opscope.core.advice.saying import ms, share
from opscope.core.analysis.host.input_waits import INPUT_BOUND, VERDICTS, loader_waits
from opscope.core.analysis.steps.step_times import covered
from opscope.core.tables.columns import at
from opscope.core.tables.intervals import NONE, Ints, merge

#: Decoding is most of the loader's work from this share of the waits on.
MOST: Final = 0.5
#: Names of ops and ranges that decode or augment images, audio and video.
DECODING: Final = re.compile(
    r"decod|jpe?g|\bpng|im(age)?_?(read|open)|resiz|crop|flip|rotat|affine|perspective|jitter|normali[sz]e?\b"
    r"|augment|to_?tensor|spectrogram|resampl|mel_?(scale|spec)|mfcc|transform|upsample|interpolat|blur|mixup"
    "|augment|to_?tensor|spectrogram|resampl|mel_?(scale|spec)|mfcc|transform|upsample|interpolat|blur|mixup",
    re.IGNORECASE,
)
#: Ranges of the loaders themselves, which do not tell what the loader does.
_LOADER: Final = re.compile(
    r"enumerate\(DataLoader\)|IteratorGetNext|\bdataloader\b", re.IGNORECASE
)
_ADVICE: Final[Named] = {
    "torch": (
        Change(
            "Decode on the GPU: torchvision.io.decode_jpeg(batch, device='cuda') and"
            " torchvision.transforms.v2 on CUDA tensors, or an NVIDIA DALI pipeline"
            " (nvidia.dali.fn.decoders.image(…, device='mixed'), DALIGenericIterator).",
            on_gpu=True,
        ),
    ),
    "tensorflow": (
        Change(
            "Augment on the GPU with layers in the model (tf.keras.layers.RandomFlip, RandomCrop, Resizing).",
            on_gpu=True,
        ),
        Change("Decode with nvidia.dali.plugin.tf.DALIDataset.", on_gpu=True, vendors=("nvidia",)),
    ),
    "jax": (
        Change(
            "Decode with nvidia.dali.plugin.jax.data_iterator, or nvidia-nvimgcodec.",
            on_gpu=True,
            vendors=("nvidia",),
        ),
        Change("Augment under jax.jit.", on_gpu=True),
    ),
}
_GENERAL: Final = (
    "Decode and resize once and store the result; decode at the size that is needed; augment whole"
    " batches."
)


def find(answers: Answers) -> Answer:
    """Return a finding if steps wait for a loader, and most of the waiting is decoding and augmenting."""
    steps = answers.input_waits()
    if steps.is_empty():
        return CannotTell(NO_STEPS)
    if not steps["input_wait"].is_not_null().any():
        return CannotTell(steps["reason"].drop_nulls().mode().sort()[0])
    loaders = answers.data_preparation()
    bound = loaders.filter((pl.col("share") > INPUT_BOUND) & (pl.col("verdict") == VERDICTS[0]))
    if bound.is_empty():
        return []
    return _judge(answers, bound)


def _judge(answers: Answers, bound: pl.DataFrame) -> Answer:
    asked = (
        answers.of(loader_waits)
        .filter("timed")
        .filter(pl.col("process").is_in(bound["process"].implode()))
    )
    decoding = _tell(answers, asked)
    total = known_time = time = 0
    for (process,), part in asked.group_by("process"):
        mine = decoding.filter(pl.col("process").eq_missing(pl.lit(process, pl.Int32)))
        spans = merge(part["start"].to_numpy(), part["end"].to_numpy())
        total += int((spans[1] - spans[0]).sum())
        known_time += _within(mine, spans)
        time += _within(mine.filter("decoding"), spans)
    if time > MOST * total:
        return [_finding(answers, decoding.filter("decoding"), time, total)]
    if time + (total - known_time) > MOST * total:
        return CannotTell(
            f"of the {ms(total)} that the steps wait for their loader, {share(total - known_time, total)} has"
            " no op"
            " and no range that says what the loader does (workers are processes of their own): put"
            " opscope.annotate('decode') around its transforms and load with num_workers=0"
        )
    return []


def _within(rows: pl.DataFrame, spans: tuple[Ints, Ints]) -> int:
    start, end = merge(rows["start"].to_numpy(), rows["end"].to_numpy())
    return int(covered(spans, start, end).sum())


def _tell(answers: Answers, asked: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges within the waits that tell what the loader does: process, start, end (ns), code (of
    the text), decoding."""
    meaning, ranges = answers.attribution.meaning, answers.trace["ranges"]
    useful = np.array(
        [
            reading.role in ("op", "user") and not _LOADER.search(text)
            for reading, text in zip(meaning.readings, meaning.texts, strict=True)
        ],
        bool,
    )
    decodes = np.array([bool(DECODING.search(_name(text))) for text in meaning.texts], bool)
    rows = np.flatnonzero(useful[meaning.reading]) if len(useful) else np.empty(0, np.int64)
    process = ranges["process"].gather(rows).fill_null(NONE).to_numpy()
    start, end = (ranges[name].gather(rows).to_numpy() for name in ("start", "end"))
    inside = np.zeros(len(rows), bool)
    for (number,), part in asked.group_by("process"):
        first, last = merge(part["start"].to_numpy(), part["end"].to_numpy())
        index = np.searchsorted(first, start, side="right") - 1
        inside |= (
            (process == (NONE if number is None else number))
            & (index >= 0)
            & (end <= at(last, index, 0))
        )
    code = meaning.reading[rows[inside]]
    return pl.DataFrame(
        {
            "process": ranges["process"].gather(rows[inside]),
            "start": start[inside],
            "end": end[inside],
            "text": pl.Series(list(meaning.texts), dtype=pl.String).gather(code),
            "decoding": decodes[code] if len(decodes) else np.empty(0, bool),
        }
    )


def _name(text: str) -> str:
    """Return the name in a range's text, without arguments and source lines."""
    return re.split(r"[(@]", text, maxsplit=1)[0]


def _finding(answers: Answers, decoding: pl.DataFrame, time: int, total: int) -> Finding:
    name = pl.col("text").str.split("(").list.first().alias("op")
    rows = (
        decoding.group_by(name, "process")
        .agg(pl.len().alias("count"), (pl.col("end") - pl.col("start")).sum().alias("time"))
        .sort("time", "op", descending=[True, False])
    )
    places = "; ".join(
        f"{op} ({count:,}, {ms(took)})"
        for op, count, took in rows.head(3).select("op", "count", "time").rows()
    )
    return Finding(
        what=f"the loader decodes and augments on the CPU for {ms(time)} of the {ms(total)} that the"
        " steps wait"
        f" for it ({share(time, total)})",
        evidence=places,
        recommendation=fit(answers, _ADVICE, _GENERAL),
        time=time,
        saving_least=0,
        saving_most=time,
        reasoning="Counted is the time in which an op or range that decodes or augments, by its name, was"
        " open"
        " within a wait for the loader (input_waits()). At least nothing: the GPU needs time for it too. At"
        f" most all of it, {ms(time)}. How long the GPU takes is not known, so there is no estimate.",
        confidence="medium",
        rows=with_rest(rows),
    )


DETECTOR = Detector(
    name="cpu_decoding",
    question="Do steps wait while images or audio are decoded and augmented on the CPU?",
    find=find,
    fires="half of the waits for a loader that steps wait for during more than 5 % of their time",
    looks_at="The ops and ranges within the steps' waits for their loader, by name: decoding, resizing,"
    " cropping, flipping, normalising, spectrograms. It fires where these are more than half of the waits of"
    " a loader that does not keep up; a loader that keeps up is never advised to change.",
    abstains="Where `data_loader` does; and where ops and ranges leave open whether decoding is most of the"
    " waiting: workers are other processes, and decoders of other libraries record nothing.",
    known_as=("DLProf: DALI",),
)

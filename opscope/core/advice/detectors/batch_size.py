"""Room for a larger batch: memory is free, and kernels are too small to fill the GPU."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.advice.finding import Answer, Answers, CannotTell, Detector, Edit, Finding
from opscope.core.advice.saying import evidence, framework, ms, places, share
from opscope.core.communication import is_op
from opscope.core.perf.ops.communication import collective
from opscope.core.tables.columns import compact, extents, gather

#: Memory in use below this share of the device's leaves room for twice the batch.
_LITTLE: Final = 0.45
#: The share of the device's memory that a larger batch may use: contexts and libraries need some, too.
_TAKEN: Final = 0.9
#: Larger steps than this are not proposed: what follows changes too much of the training.
_MOST_TIMES: Final = 8
#: Kernels that leave multiprocessors without a block, and steps of the optimizer, must take this share of the
#: time.
_LEAST_SHARE: Final = 0.2
#: Work of data parallelism's exchange, once for each batch whatever its size.
_EXCHANGED: Final = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")


def find(answers: Answers) -> Answer:
    """Return one finding where a batch of twice the size or more fits and would fill the GPU better."""
    if answers.cpu_only:
        return CannotTell("nothing in the profile ran on a GPU")
    device, reason = answers.device
    memory = answers.memory().filter(pl.col("device") >= 0)
    if memory.is_empty():
        return CannotTell("the GPU's memory was not recorded; profile with profile_memory=True")
    sizes = _sizes(answers)
    used = memory.group_by("process", "device").agg(pl.col("peak_memory").max())
    used = used.join(sizes, on=["process", "device"], how="left")
    if device is not None and device.memory:
        used = used.with_columns(pl.col("memory").fill_null(device.memory))
    if used["memory"].null_count():
        return CannotTell(f"the size of the GPU's memory is not known: {reason or 'not recorded'}")
    fullest = used.with_columns((pl.col("peak_memory") / pl.col("memory")).alias("full"))
    fullest = fullest.sort("full", descending=True)
    if not fullest["peak_memory"][0] or fullest["full"][0] > _LITTLE:
        return []  # the fullest device has no room for twice the batch
    kernels = answers.kernels(categories=True)
    if kernels.is_empty():
        return CannotTell("no kernels were recorded; capture with a source of GPU activity")
    judged = _idle(answers, kernels)
    if judged is None:
        return CannotTell(
            "how many blocks the kernels had, or how many multiprocessors the GPU has, is not known"
        )
    times = 2
    while times * 2 <= min(_MOST_TIMES, _TAKEN / fullest["full"][0]):
        times *= 2
    small = judged.filter((pl.col("filled") < 1) | pl.col("fixed"))
    time, total = int(small["duration"].sum()), int(kernels["duration"].sum())
    if time < _LEAST_SHARE * total or not time:
        return []
    placed = len(kernels) == len(answers.trace["kernels"])
    peak, size = fullest.select("peak_memory", "memory").row(0)
    return [_finding(answers, small, times, total, (peak, size), placed)]


def _sizes(answers: Answers) -> pl.DataFrame:
    return answers.trace["devices"].select(
        pl.col("process", "device").cast(pl.Int32), pl.col("memory").cast(pl.Int64)
    ).unique(["process", "device"])  # fmt: skip


def _idle(answers: Answers, kernels: pl.DataFrame) -> pl.DataFrame | None:
    """Return the kernels with ``filled`` (blocks for each multiprocessor) and ``fixed`` (does not grow with
    the batch); None if blocks are known for less than half of the time."""
    device = answers.device[0]
    counts = answers.trace["devices"].select(
        pl.col("process", "device").cast(pl.Int32), pl.col("sm_count").cast(pl.Int64)
    ).unique(["process", "device"])  # fmt: skip
    codes, grids = compact(kernels["grid"])
    blocks = gather(extents(grids), codes)
    judged = kernels.select(
        pl.int_range(pl.len(), dtype=pl.Int64).alias("row"),
        *("process", "device", "duration", "op_id", "op", "op_type", "direction"),
        *("layer", "source", "inputs", "dtypes"),
        blocks.alias("blocks"),
    ).join(counts, on=["process", "device"], how="left", maintain_order="left")
    if device is not None:
        if device.vendor != "nvidia":
            return None  # AMD's tools count a grid in blocks or in threads
        judged = judged.with_columns(pl.col("sm_count").fill_null(device.sm_count))
    fixed = pl.lit(False)
    for column, tells in (("op", _exchanges), ("op_type", _updates), ("direction", _updates)):
        number, words = compact(judged[column])
        flags = [tells(text or "") for text in words]
        is_it = gather(pl.Series(flags, dtype=pl.Boolean), number)
        fixed = fixed | pl.lit(is_it)
    judged = judged.with_columns(
        (pl.col("blocks") / pl.col("sm_count")).alias("filled"), fixed.alias("fixed")
    )
    judged_known = judged.filter(pl.col("filled").is_not_null() | pl.col("fixed"))
    return (
        judged_known
        if int(judged_known["duration"].sum()) * 2 > int(judged["duration"].sum())
        else None
    )


def _exchanges(op: str) -> bool:
    return is_op(op) and collective(op) in _EXCHANGED


def _updates(word: str) -> bool:
    return word == "optimizer"


def _finding(
    answers: Answers,
    small: pl.DataFrame,
    times: int,
    total: int,
    memory: tuple[int, int],
    placed: bool,
) -> Finding:
    time = int(small["duration"].sum())
    # as many samples in fewer, larger kernels: kernels that left multiprocessors idle fill these first
    factor = pl.when("fixed").then(1 / times).otherwise(pl.col("filled").clip(1 / times, 1.0))
    factors = small.select(factor.alias("factor"))["factor"].to_numpy().astype(np.float64)
    most = int(np.floor((small["duration"].to_numpy() * (1 - factors)).sum()))
    per_batch = int(small.filter("fixed")["duration"].sum())
    peak, size = memory
    rows = small["row"].to_numpy().astype(np.int64)
    edit = Edit(kernels=(rows, factors), host=_host(answers, times)) if placed else None
    summary = answers.summary().row(0, named=True)
    wall, busy = int(summary["wall_time"] or 0), int(summary["device_busy"] or 0)
    # the other work of the device stays, and each kernel still runs at least once for each batch
    bound = max(most, wall - max(wall // times, busy - most))
    return Finding(
        what=f"The GPU's memory is {share(peak, size)} full at its peak ({peak / 1e9:.1f} of"
        f" {size / 1e9:.1f} GB),"
        f" and kernels with {ms(time - per_batch)} ({share(time - per_batch, total)} of their time)"
        " have fewer"
        f" blocks than it has multiprocessors; work once for each batch takes {ms(per_batch)}",
        evidence=places(small, "kernels"),
        recommendation=_recommendation(answers, times),
        time=time,
        saving_least=0,
        saving_most=bound,
        reasoning=f"For the same number of samples in batches {times} times as large, which need at most"
        f" {times} times the memory (memory(): peak_memory; at most 90 % of the device's). A kernel"
        " with fewer"
        " blocks than multiprocessors takes blocks / multiprocessors of its time for each sample,"
        " and not less"
        f" than 1/{times} (kernels(): grid, duration); the optimizer, and collectives as data parallelism has"
        f" them, run 1/{times} as often; other kernels take as long. That is {ms(most)} of device"
        " work. At most"
        " the window then lasts as long as the device's other work (summary(): wall_time, device_busy), and"
        f" not less than 1/{times}. In the estimate the host's ops, but those of the input, take 1/{times} of"
        " their own time, as they are called as much less often (ops()).",
        confidence="low",
        rows=evidence(small),
        edit=edit,
    )


def _host(answers: Answers, times: int) -> pl.DataFrame | None:
    """The outermost ops that are called once for each batch, with the factor of their own time."""
    ops = answers.ops(categories=True)
    codes, words = compact(ops["direction"])
    batch = gather(pl.Series([word != "input" for word in words], dtype=pl.Boolean), codes)
    host_ops = ops.filter(
        (pl.col("depth") == 0) & pl.col("thread").is_not_null() & pl.lit(batch),
        pl.col("end") > pl.col("start"),
    )
    spans = host_ops.select("process", "thread", "start", "end", pl.lit(1 / times).alias("factor"))
    return spans.drop_nulls() if len(spans) else None


def _recommendation(answers: Answers, times: int) -> str:
    used = framework(answers)
    code = {
        "torch": "DataLoader(…, batch_size={n} × the present one)",
        "tensorflow": "dataset.batch({n} × the present size)",
        "keras": "model.fit(…, batch_size={n} × the present one)",
        "mindspore": "dataset.batch({n} × the present size)",
    }.get(used or "", "a batch {n} times as large")
    return (
        f"Try {code.format(n=times)}; adapt the learning rate, and check that the loss falls as well for each"
        " sample."
    )


DETECTOR = Detector(
    name="batch_size",
    question="Would a larger batch fit in the GPU's memory and fill the GPU better?",
    find=find,
    fires="a peak of at most 45 % of the memory, and 20 % of the kernels' time in those "
    "that a larger batch shortens",
    looks_at="It looks at memory(): the peak of each GPU against the device's memory, and at"
    " kernels(): blocks (grid)"
    " for each multiprocessor, and the time of the optimizer and of"
    " collectives as data parallelism has them, which run once for each batch. It"
    " proposes 2, 4 or 8 times the batch where that leaves a tenth of the memory, and a fifth of"
    " the kernels' time"
    " would fall for each sample.",
    abstains="It cannot tell where the GPU's memory, its size, or the kernels' blocks were not"
    " recorded, nor on AMD, where"
    " a grid counts blocks or threads. Whether a larger batch trains as well, no profile tells.",
    known_as=("DLProf: Batch Size (GPU memory underutilized)",),
)

"""The roofline of every op that counts: how near each op, kernel, layer or step comes to its roof. An op is
rated as a whole: the time of all its kernels against its FLOPs and bytes, because no trace shows the part of
each kernel. A kernel's roof is its share, by time, of its op's roof."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.analysis.answers import Answers
from opscope.core.analysis.ops.op_frame import op_rows
from opscope.core.analysis.ops.ops import Ops, op_index
from opscope.core.analysis.ops.windows import captured
from opscope.core.analysis.roofline.roofline import roofline, tick
from opscope.core.analysis.roofline.roofs import EMPTY, SHOWN, roofline_table
from opscope.core.attribution.attribute import Launched
from opscope.core.perf import kinds
from opscope.core.perf.devices import kernel_names
from opscope.core.perf.devices.peaks import Device
from opscope.core.question import lacking, parameters
from opscope.core.question.column import Frame
from opscope.core.question.record import Question, Report
from opscope.core.question.words import columns
from opscope.core.tables.columns import compact, gather, known_sum
from opscope.core.tables.impossible import clip_marks
from opscope.core.tables.trace import range_ids

#: The columns of the cost model's catalogue that the roofline needs.
_PRICED: Final = (
    "matrix_flops",
    "vector_flops",
    "masked_flops",
    "bytes",
    "bytes_read",
    "bytes_written",
    "dtype",
    "note",
)
#: The words for the rows of sums.
BY: Final = ("op", "layer", "direction", "step", "range", "kernel")
_ABOUT: Final = ("op_id", "op", "inputs", "direction", "layer", "step", "range")
#: The columns that are null for an op with missing kernels.
_ROOF: Final = ("ideal_time", "efficiency", "attainable_flops", "bound", "over_reason")
#: Ops that wait for other devices: their bytes cross a link of unknown bandwidth.
_COLLECTIVE: Final = "communication"
#: Copies that leave the device's memory.
_LINKS: Final = ("HtoD", "DtoH", "PtoP", "HtoH")
_SUMS: Final = ("matrix_flops", "vector_flops", "bytes")


def op_efficiency(
    ops: Ops, frame: pl.DataFrame, kernels: pl.DataFrame, device: Device | None
) -> pl.DataFrame:
    """Return one row per execution of an op that counts: op_id, op, inputs, direction, layer, step, range,
    duration (ns), the columns of its cost, and the roofline.

    ``frame`` is ``ops_frame(ops)``, ``kernels`` the profile's kernels. An op that a CUDA graph replays
    has a row for each replay (``replay``; -1 for every other op). ``tensor_core`` is whether any of its
    kernels uses Tensor Cores. ``incomplete`` marks executions of which the trace lacks kernels, as sampled
    traces do: no kernel could be the op's product or its main part, or the op beats its roof with fewer
    kernels than equal calls have; or a kernel's time is not known, as it was clipped. They have no roof.
    """
    ran = executions(ops, frame, kernels)
    index = ran["place"].to_numpy()
    priced = ops.costs.place[ops.rows[index]]
    collective = frame["op_type"].gather(index).cast(pl.String).eq_missing(_COLLECTIVE)
    table = frame.select(_ABOUT)[index].with_columns(
        *ran.drop("place", "over_link").get_columns(),
        (ran["over_link"] | collective).alias("over_link"),
        *(gather(ops.costs.catalogue[name], priced) for name in _PRICED),
    )
    known = table.filter(pl.col("matrix_flops").is_not_null())
    rated = roofline(known, device, tick(kernels["duration"]))
    fewer = pl.col("kernels") < pl.col("kernels").max().over("op", "inputs", "direction")
    lacking = (pl.col("main") == 0) & ((pl.col("matrix_flops") > 0) | (pl.col("serving") > 0))
    lost = (
        pl.col("clipped")
        | lacking
        | ((pl.col("efficiency") > 1).fill_null(False) & fewer & ~pl.col("fast_algorithm"))
    )
    rated = rated.with_columns(lost.alias("incomplete")).drop("clipped")
    return rated.with_columns(
        pl.when(~pl.col("incomplete")).then(name).alias(name) for name in _ROOF
    )


def executions(ops: Ops, frame: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Return one row per execution of an op that counts and took device time.

    Its columns: place (in ``ops.rows``), replay, duration (ns), tensor_core (null if a kernel's name does not
    show it), fast_algorithm, over_link (most of the time was collectives, or copies to or from the host or
    another device), kernels (including copies and sets), serving (the kernels that only prepare or finish the
    work of another kernel), main (all other kernels, without copies and sets), clipped (a kernel's time is
    not known).
    """
    if not ops.on_device:
        return _on_the_cpu(frame)
    trace, attribution = ops.attribution.trace, ops.attribution
    ran = pl.concat(
        [
            _ran(ops, trace["kernels"], attribution.kernels).with_columns(_by_name(kernels)),
            _ran(ops, trace["memops"], attribution.memops).with_columns(
                pl.lit(False).alias("tensor_core"),
                pl.lit(False).alias("fast_algorithm"),
                pl.lit(False).alias("serving"),
                pl.lit(False).alias("main"),
                trace["memops"]["kind"].cast(pl.String).is_in(_LINKS).alias("over_link"),
            ),
        ]
    )
    ran = ran.filter(pl.col("row") >= 0)
    within = captured(trace, ran["row"].to_numpy())
    if within is not None:  # an op that is partly outside the window lacks some of its kernels
        ran = ran.filter(pl.Series(within))
    ran = ran.filter(ops.costs.counted(ran["row"].to_numpy()))
    done = (
        ran.group_by("row", "replay")
        .agg(
            pl.col("duration").sum(),
            pl.col("tensor_core").any(ignore_nulls=False),
            pl.col("fast_algorithm", "clipped").any(),
            (pl.col("duration").filter(pl.col("over_link")).sum() * 2 > pl.col("duration").sum())
            .fill_null(False)
            .alias("over_link"),
            pl.len().cast(pl.Int64).alias("kernels"),
            pl.col("serving", "main").sum().cast(pl.Int64),
        )
        .filter(pl.col("duration") > 0)
        .sort("row", "replay")
    )
    index = pl.Series("place", np.searchsorted(ops.rows, done["row"].to_numpy()), dtype=pl.Int64)
    return done.select(index, pl.exclude("row"))


def _on_the_cpu(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the executions if the CPU is the device: each op is one, like an op of one kernel."""
    counted = frame.with_row_index("place").filter(
        pl.col("canonical") & (pl.col("device_time") > 0),
        (pl.col("flops") > 0) | pl.col("bytes").is_not_null(),
    )
    return counted.select(
        pl.col("place").cast(pl.Int64),
        pl.lit(-1, pl.Int32).alias("replay"),
        pl.col("device_time").alias("duration"),
        pl.lit(None, pl.Boolean).alias("tensor_core"),
        pl.lit(False).alias("fast_algorithm"),
        pl.lit(False).alias("clipped"),
        pl.lit(False).alias("over_link"),
        pl.lit(1, pl.Int64).alias("kernels"),
        pl.lit(0, pl.Int64).alias("serving"),
        pl.lit(1, pl.Int64).alias("main"),
    )


def _by_name(kernels: pl.DataFrame) -> list[pl.Series]:
    """Return the facts shown by each kernel's name; each distinct name is read once."""
    codes, names = compact(kernels["name"])
    fast = pl.Series([kernel_names.fast_algorithm(name or "") for name in names], dtype=pl.Boolean)
    serving = pl.Series([kernel_names.helps(name or "") for name in names], dtype=pl.Boolean)
    is_helper = gather(serving, codes).alias("serving")
    return [
        kernels["tensor_core"],
        gather(fast, codes).alias("fast_algorithm"),
        is_helper,
        (~is_helper).alias("main"),
        pl.Series("over_link", kinds.communicates(kernels["name"])),
    ]


def _ran(ops: Ops, table: pl.DataFrame, launched: Launched) -> pl.DataFrame:
    """Return per kernel or copy the row of the op whose cost it shares, its replay and its duration."""
    return pl.DataFrame(
        {
            "row": ops.costs.cost_owners(launched.op.astype(np.int64)),
            "replay": launched.replay,
            "duration": table["end"] - table["start"],
            "clipped": clip_marks(ops.attribution.trace, table),
        }
    )


def replays(ops: Ops) -> pl.DataFrame:
    """Return one row per replay of an op that counts in a CUDA graph: op_id, time (ns) of the call."""
    launched = ops.attribution.kernels
    owners = ops.costs.cost_owners(launched.op.astype(np.int64))
    replayed = np.flatnonzero((launched.replay >= 0) & (owners >= 0))
    pairs = np.unique(np.stack((owners[replayed], launched.replay[replayed])), axis=1)
    trace = ops.attribution.trace
    return pl.DataFrame(
        {
            "op_id": gather(range_ids(trace["ranges"]), pairs[0]),
            "time": gather(trace["calls"]["start"], pairs[1]),
        }
    )


def kernel_efficiency(ops: Ops, kernels: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """Return the roofline by kernel name: the columns of ``group_efficiency``, and the most frequent ``op``.

    ``table`` is ``op_efficiency``. A kernel has its op's efficiency, and its share of the ideal time.
    """
    launched = ops.attribution.kernels
    owners = ops.costs.cost_owners(launched.op.astype(np.int64))
    ids = gather(range_ids(ops.attribution.trace["ranges"]), owners)
    each = kernels.select("name", "duration", *_SUMS).with_columns(
        ids.alias("op_id"), pl.Series("replay", launched.replay)
    )
    masked = pl.col("masked_flops").fill_null(0) / pl.col("matrix_flops")
    rated = table.select(
        "op_id", "replay", "op", "efficiency", "bound", "over_reason", "incomplete", "over_link",
        pl.when(pl.col("matrix_flops") > 0).then(masked).otherwise(0.0).alias("masked_share"),
    )  # fmt: skip
    joined = each.join(rated, on=["op_id", "replay"], how="inner", maintain_order="left")
    joined = joined.with_columns(
        (pl.col("matrix_flops") * pl.col("masked_share")).alias("masked_flops"),
        (pl.col("efficiency") * pl.col("duration")).alias("ideal_time"),
        pl.col("name").cast(pl.String),
    )
    groups = group_efficiency(joined, "name")
    named = joined.group_by("name").agg(
        pl.col("op").drop_nulls().mode(maintain_order=True).first().cast(pl.String)
    )
    return groups.join(named, on="name", how="left", maintain_order="left").select(
        "name", "op", *(column for column in groups.columns if column != "name")
    )


def group_efficiency(table: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Return ``op_efficiency`` by op name, layer, direction, step or user range: sums and their ratios.

    The columns: calls, duration, ideal_time (ns), matrix_flops, vector_flops, bytes; ``attained_flops``
    (FLOP/s, without FLOPs that a mask makes unnecessary) and ``attained_bandwidth`` (bytes/s) of the calls
    whose FLOPs or bytes are known, that lack no kernel and cross no link; ``intensity`` (FLOP/byte, of such
    calls where both are known); ``efficiency`` (time at the roof / time taken); ``rated`` (the share of the
    group's time that has a roof); ``bound`` (the bound of most of its time); ``over`` (the share of the rated
    time in calls above their roof) and ``over_reason`` (the reason of most of that time).
    """
    keys = list(by)
    rated = pl.col("efficiency").is_not_null()
    above = pl.col("over_reason").is_not_null()
    # the time of only some of the kernels gives no rate, and a link's bandwidth is not the memory's
    is_complete = pl.when(~pl.col("incomplete") & ~pl.col("over_link"))
    masked = pl.col("masked_flops").fill_null(0)
    work = is_complete.then(pl.col("matrix_flops") - masked + pl.col("vector_flops"))
    moved = is_complete.then(pl.col("bytes"))
    both = work.is_not_null() & moved.is_not_null()
    duration = pl.col("duration")
    groups = table.group_by(keys).agg(
        pl.len().alias("calls"),
        duration.sum(),
        *map(known_sum, _SUMS),
        (work.sum() / duration.filter(work.is_not_null()).sum() * 1e9).alias("attained_flops"),
        (moved.sum() / duration.filter(moved.is_not_null()).sum() * 1e9).alias(
            "attained_bandwidth"
        ),
        (work.filter(both).sum() / moved.filter(both).sum()).alias("intensity"),
        pl.when(rated.any()).then(pl.col("ideal_time").filter(rated).sum()).alias("ideal_time"),
        pl.when(rated.any())
        .then(pl.col("ideal_time").filter(rated).sum() / duration.filter(rated).sum())
        .alias("efficiency"),
        (duration.filter(rated).sum() / duration.sum()).alias("rated"),
        pl.when(rated.any())
        .then(duration.filter(above).sum() / duration.filter(rated).sum())
        .alias("over"),
    )
    groups = groups.with_columns(
        pl.when(pl.col(name).is_finite()).then(name).alias(name)  # 0 / 0 if nothing is known
        for name in ("attained_flops", "attained_bandwidth", "intensity")
    )
    for name in ("bound", "over_reason"):
        most = (
            table.filter(pl.col(name).is_not_null())
            .group_by([*keys, name])
            .agg(duration.sum().alias("_time"))
            .sort("_time", name, descending=[True, False])
            .group_by(keys, maintain_order=True)
            .agg(pl.col(name).first())
        )
        groups = groups.join(most, on=keys, how="left", nulls_equal=True)
    return groups.sort("duration", *keys, descending=[True, *[False] * len(keys)])


def op_efficiencies(profile: Answers) -> pl.DataFrame:
    """The roofline of every execution of a canonical op."""
    kernels = profile.kernels(categories=True)
    return op_efficiency(profile.of(op_index), profile.of(op_rows), kernels, profile.device[0])


def answer(profile: Answers, *by: str) -> pl.DataFrame:
    """The roofline: how close ops come to the device's limits.

    Without ``by``: every execution of a canonical op. With ``op``, ``layer``, ``direction``, ``step``
    or ``range``, or several of these: sums over them. With ``kernel`` alone: sums per kernel name.
    Efficiencies are null if the device is not known.
    """
    rated = profile.of(op_efficiencies)
    if by == ("kernel",):
        kernels = profile.kernels(categories=True)
        return kernel_efficiency(profile.of(op_index), kernels, rated)
    return group_efficiency(rated, *by) if by else rated


#: Words of this question alone: unit and meaning.
_WORDS: Final = """
attainable_flops: FLOP/s: the roof: the most FLOP/s possible at this intensity on this device
bytes_read: bytes: minimum bytes that must be read
bytes_written: bytes: minimum bytes that must be written
fast_algorithm: yes/no: whether a kernel's name shows Winograd or FFT, which need fewer multiplications
ideal_time: ns: time at the roof: the least time that its FLOPs and bytes take on this device
incomplete: yes/no: whether the trace lacks some of its kernels, so that it has no roof
main: count: kernels that do the op's own work
masked_flops: FLOP: part of matrix_flops that a causal or banded mask makes unnecessary
note: text: the cost model's remark on this call
over: fraction: part of the rated duration in calls above their roof
over_link: yes/no: whether most of its time moved data to or from the host or another device, so that it
    has no roof
over_reason: text: why it, or most of its calls, is above the roof: cache-resident, timer resolution, fast
    algorithm, measured roof, or modelling error
rated: fraction: part of the duration that has a roof
replay: number: the CUDA call that replayed its CUDA graph, by its index among the trace's calls; -1
    outside CUDA graphs
serving: count: kernels that only support another kernel, such as a split-K reduction
"""


def _rate(by: str, row: str, keys: str, *own: str) -> Frame:
    return Frame(
        f'efficiency("{by}")',
        f"one row per {row}, by duration",
        columns(
            f"{keys} calls duration matrix_flops vector_flops bytes attained_flops attained_bandwidth"
            " intensity ideal_time efficiency rated over bound over_reason",
            _WORDS,
            *own,
        ),
    )


QUESTION = Question(
    answer=answer,
    frames=(
        Frame(
            "efficiency()",
            "one row per execution of a canonical op",
            columns(
                "op_id op inputs direction layer step range replay duration tensor_core "
                "fast_algorithm kernels serving main over_link matrix_flops vector_flops "
                "masked_flops bytes bytes_read bytes_written dtype note intensity "
                "attained_flops attained_bandwidth attainable_flops ideal_time efficiency "
                "bound over_reason incomplete",
                _WORDS,
                """
                kernels: count: kernels, copies and sets of this execution
                intensity: FLOP/byte: (matrix_flops - masked_flops + vector_flops) / bytes
                attained_flops: FLOP/s: (matrix_flops - masked_flops + vector_flops) / duration
                attained_bandwidth: bytes/s: bytes / duration
                """,
            ),
        ),
        _rate("op", "op name", "op"),
        _rate(
            "kernel",
            "kernel name",
            "name op",
            "op: text: the op that the kernel most often belongs to",
        ),
        _rate("layer", "layer", "layer"),
        _rate("direction", "direction", "direction"),
        _rate("step", "step", "step"),
        _rate("range", "user range", "range"),
    ),
    parameters={"by": parameters.choice("what a row is", BY, several=True)},
    merged=lacking.EXECUTIONS,
    kept=False,
    reports=(
        Report(
            name="roofline",
            title="Roofline by op",
            empty=EMPTY,
            asked={"by": ("op",)},
            shown=f"op {SHOWN}",
            table=roofline_table,
            aliases=("efficiency",),
        ),
        Report(
            name="roofline_kernel",
            title="Roofline by kernel",
            empty=EMPTY,
            asked={"by": ("kernel",)},
            shown=f"name op {SHOWN}",
            table=roofline_table,
            gpu_only=True,
        ),
        Report(
            name="roofline_layer",
            title="Roofline by layer",
            empty=EMPTY,
            asked={"by": ("layer",)},
            shown=f"layer {SHOWN}",
            table=roofline_table,
        ),
        Report(
            name="roofline_step",
            title="Roofline by step",
            empty=EMPTY,
            asked={"by": ("step",)},
            shown=f"step {SHOWN}",
            table=roofline_table,
        ),
    ),
)

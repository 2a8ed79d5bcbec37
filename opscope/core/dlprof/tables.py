"""The tables of DLProf's reports: its columns in its order, then columns that opscope adds. The columns are
those of DLProf 1.8. Null means that the trace does not show it; texts are yes and no."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from opscope.core.dlprof import costs
from opscope.core.dlprof.groups import CALLED, Groups, statistics, times, yes, yes_or_no
from opscope.core.dlprof.model import Model
from opscope.core.dlprof.names import groups_of
from opscope.core.tables.columns import compact, pairs
from opscope.core.tables.intervals import NONE, Ints

#: The group of all ops.
MODEL: Final = "_CompleteModel_"
#: Times of the device for which DLProf had no column, by their names in ``Source.times``.
_ON_DEVICE: Final = {
    "accumulated": "Accumulated GPU Time (ns)",
    "mapped": "Mapped GPU Time (ns)",
}
#: Columns of the detailed report that DLProf had for TensorFlow only, with ``--detailed_mode=true``.
_DETAILED: Final = ("Data Type", "Input Shapes")
_ABOUT: Final = {
    "inputs": "Input Shapes",
    "outputs": "Output Shapes",
    "parameters": "Parameters",
    "layer": "Layer",
    "call": "Framework Op",
    "source": "Source",
}


def using_tensor_cores(model: Model) -> pl.Series:
    """Return for each op whether one of its kernels uses Tensor Cores; null if unknown. An op without kernels
    uses none, if kernels were captured."""
    captured = model.source.trace.has("kernels")
    using = pl.Series([False if captured else None], dtype=pl.Boolean)
    using = using.new_from_index(0, len(model.ops))
    groups, ops = _of_ops(model.kernels["op"])
    flags: pl.Series = using.scatter(ops, groups.proven(model.kernels["tensor_core"]))
    return flags


def _of_ops(op: pl.Series) -> tuple[Groups, Ints]:
    """Return the groups of rows of the same op, and the op of each group."""
    ops, number = np.unique(op.to_numpy(), return_inverse=True)
    return Groups(number.reshape(-1), len(ops)), ops


def _name(model: Model, ops: Ints) -> dict[str, pl.Series]:
    """Return the columns that name ops."""
    table = model.ops[ops]
    return {
        "Op ID": table["op_id"],
        "Op Name": table["name"],
        "Direction": table["direction"],
        "Op Type": table["type"],
    }


def detail(model: Model, shapes: bool = True) -> pl.DataFrame:
    """One row per op, by op id. ``shapes``: with the data type and the shapes of the inputs."""
    groups, ops = _of_ops(model.times["op"])
    described = model.ops[ops]
    every = np.full(len(model.ops), NONE, np.int64)
    every[ops] = np.arange(len(ops))
    table = pl.DataFrame(
        {
            **_name(model, ops),
            "No. Calls": groups.sizes,
            "TC Eligible": yes_or_no(described["eligible"]),
            "Using TC": yes_or_no(using_tensor_cores(model).gather(ops)),
            **times(groups, model.times),
            "Data Type": described["data_type"],
            "Stack Trace": described["stack"],
            **{called: groups.total(model.times[name]) for name, called in _ON_DEVICE.items()},
            **{called: described[name] for name, called in _ABOUT.items()},
            **costs.of_ops(model, every, len(ops)).to_dict(),
        }
    )
    return (table if shapes else table.drop(_DETAILED)).sort("Op ID")


def op_type(model: Model) -> pl.DataFrame:
    """One row per type of op, by type."""
    code, texts = compact(model.ops["type"])
    of = code[model.times["op"].to_numpy()]
    types, number = np.unique(of, return_inverse=True)
    groups = Groups(number.reshape(-1), len(types))
    every = np.full(len(texts), NONE, np.int64)
    every[types] = np.arange(len(types))
    kinds, ops, _ = pairs(number.reshape(-1), model.times["op"].to_numpy())
    of_kinds = Groups(kinds, len(types))
    eligible, using = (
        yes_or_no(of_kinds.proven(flags.gather(ops)))
        for flags in (model.ops["eligible"], using_tensor_cores(model))
    )
    return pl.DataFrame(
        {
            "Op Type": pl.Series([texts[type_] or "" for type_ in types.tolist()], dtype=pl.String),
            "# Ops": np.bincount(kinds, minlength=len(types)),
            "# Calls": groups.sizes,
            **times(groups, model.times),
            "TC Eligible": eligible,
            "Using TC": using,
            **{called: groups.total(model.times[name]) for name, called in _ON_DEVICE.items()},
            **costs.of_ops(model, every[code], len(types)).to_dict(),
        }
    ).sort("Op Type")


def iteration(model: Model) -> pl.DataFrame:
    """One row per kernel, by iteration, op name, op id, kernel name and start."""
    trace, (_, short) = model.source.trace, model.source.short_names
    frame = model.kernels.with_columns(_by_name(model, model.kernels["op"]))
    frame = frame.sort("iteration", "by_name", "short", "start")
    rows = frame["row"].to_numpy()
    kernels = trace["kernels"]

    def each(name: str) -> pl.Series:
        return _categories(model.ops[name], frame["op"])

    return pl.DataFrame(
        {
            "Iteration": frame["iteration"],
            "Op ID": each("op_id"),
            "Op Name": each("name"),
            "Direction": each("direction"),
            "Op Type": each("type"),
            "Kernel Name": model.text(frame["short"].to_numpy(), short),
            "Device ID": frame["device"],
            "GPU Start Time (ns)": frame["start"],
            "GPU Duration (ns)": frame["duration"],
            "API Call Start (ns)": frame["api_start"],
            "API Call Time (ns)": frame["api_time"],
            "Uses TC": frame.select(yes("tensor_core")).to_series(),
            **_extents(kernels["grid"].gather(rows), "Grid"),
            **_extents(kernels["block"].gather(rows), "Block"),
            "Data Types": each("data_type"),
            "Input Shapes": each("inputs"),
            "Parameters": each("parameters"),
            "Output Shapes": each("outputs"),
            "Long Kernel Name": kernels["name"].gather(rows),
            "Layer": each("layer"),
            "FLOPs": frame["matrix_flops"] + frame["vector_flops"],
            "Bytes": frame["bytes"],
        }
    )


def _by_name(model: Model, ops: pl.Series) -> pl.Series:
    """Return the rank of each op sorted by name and id: numbers sort faster than texts."""
    code, texts = compact(model.ops["name"])
    rank = np.empty(len(texts), np.int64)
    rank[np.argsort(np.array([text or "" for text in texts], object), kind="stable")] = np.arange(
        len(texts)
    )
    keys = pl.DataFrame({"name": rank[code], "op_id": model.ops["op_id"]}).with_row_index()
    order = keys.sort("name", "op_id")["index"]
    ranks = np.empty(len(model.ops), np.int64)
    ranks[order.to_numpy()] = np.arange(len(model.ops))
    return pl.Series("by_name", ranks[ops.to_numpy()])


def _categories(texts: pl.Series, places: pl.Series) -> pl.Series:
    """Return the texts at ``places``, as categories: 4 bytes a row."""
    column: pl.Series = texts.cast(pl.Categorical).gather(places.cast(pl.UInt32))
    return column


def _extents(column: pl.Series, name: str) -> dict[str, pl.Series]:
    """Return the columns X, Y and Z of ``900,1,1``; null if they are not known."""
    codes, texts = compact(column)
    parts: list[list[int | None]] = [[], [], []]
    for text in texts:
        numbers = (text or "").split(",")
        for index, part in enumerate(parts):
            is_number = index < len(numbers) and numbers[index].strip().isdecimal()
            part.append(int(numbers[index]) if is_number else None)
    return {
        f"{name} {axis}": pl.Series(part, dtype=pl.Int64).gather(codes.astype(np.uint32))
        for axis, part in zip("XYZ", parts, strict=True)
    }


def kernel(model: Model) -> pl.DataFrame:
    """One row per kernel name and op, by op name, op id and kernel name."""
    _, short = model.source.short_names
    frame = model.kernels
    # numbering pairs by both keys in order keeps the rows sorted
    by_name = _by_name(model, frame["op"])
    _, names, number = pairs(by_name.to_numpy(), frame["short"].to_numpy())
    groups = Groups(number, len(names))
    ops = frame["op"].gather(groups.first()).to_numpy()
    described = _name(model, ops)
    del described["Op Type"]
    return pl.DataFrame(
        {
            "Kernel Name": model.text(names, short),
            **described,
            "Uses TC": yes_or_no(groups.proven(frame["tensor_core"])),
            **statistics(groups, frame["duration"], "GPU Time (ns)", ""),
            **statistics(groups, frame["api_time"], "API Time (ns)", ""),
            "Kernel Calls": groups.sizes,
            **costs.of_kernels(model, groups).to_dict(),
        }
    )


def tensor(model: Model) -> pl.DataFrame:
    """One row per op that could use Tensor Cores, or uses them, by op id."""
    using = using_tensor_cores(model)
    wanted = (model.ops["eligible"].fill_null(False) | using.fill_null(False)).to_numpy()
    ops = np.unique(model.times["op"].to_numpy())
    ops = ops[wanted[ops]]
    every = np.full(len(model.ops), NONE, np.int64)
    every[ops] = np.arange(len(ops))
    of = every[model.kernels["op"].to_numpy()]
    ran = model.kernels.select("short", "duration", "tensor_core").with_columns(
        pl.Series("of", of), pl.col("tensor_core").fill_null(False).alias("used")
    )
    ran = ran.filter(pl.col("of") >= 0)
    captured = model.source.trace.has("kernels")

    def time(rows: pl.DataFrame) -> pl.Series:
        total = np.zeros(len(ops), np.int64)
        np.add.at(total, rows["of"].to_numpy(), rows["duration"].to_numpy())
        times: pl.Series = pl.Series(total)
        return times if captured else times.set(pl.Series(np.ones(len(ops), bool)), None)

    whole, on_tensor = time(ran), time(ran.filter("used"))
    share = pl.select(
        pl.when(pl.lit(whole) > 0)
        .then(pl.lit(on_tensor) / pl.lit(whole) * 100)
        .otherwise(pl.when(pl.lit(whole) == 0).then(0.0))
    ).to_series()
    counts = {}
    for title, rows in (
        ("Total ", ran), ("TC ", ran.filter("used")), ("Non-TC ", ran.filter(~pl.col("used")))
    ):  # fmt: skip
        many, names = _kernel_names(model, rows, len(ops))
        counts[f"{title}Kernel Count"] = (
            many if captured else pl.Series([None], dtype=pl.Int64).new_from_index(0, len(ops))
        )
        counts[f"{title}Kernel Names"] = names
    del counts["Total Kernel Names"]
    return pl.DataFrame(
        {
            **_name(model, ops),
            "Uses TC": yes_or_no(using.gather(ops)),
            "Total GPU Time (ns)": whole,
            "TC GPU Time (ns)": on_tensor,
            "Non-TC GPU Time (ns)": whole - on_tensor,
            "TC Utilization (%)": share,
            **counts,
            "Undetermined GPU Time (ns)": time(ran.filter(pl.col("tensor_core").is_null())),
            **costs.of_ops(model, every, len(ops)).to_dict(),
        }
    ).sort("Op ID")


def _kernel_names(model: Model, rows: pl.DataFrame, count: int) -> tuple[pl.Series, pl.Series]:
    """Return for each of ``count`` ops how many distinct kernels it has, and their names, joined."""
    _, short = model.source.short_names
    op, name, _ = pairs(rows["of"].to_numpy(), rows["short"].to_numpy())
    joined = (
        pl.DataFrame({"op": op, "name": pl.Series(short, dtype=pl.String).gather(name)})
        .group_by("op", maintain_order=True)
        .agg(pl.col("name").str.join(", "))
    )
    names = pl.Series([""], dtype=pl.String).new_from_index(0, count)
    return (
        pl.Series(np.bincount(op, minlength=count).astype(np.int64)),
        names.scatter(joined["op"], joined["name"]),
    )


def group_node(model: Model) -> pl.DataFrame:
    """One row per group of ops, by name: the levels of the op names, and the whole model.

    Times are accumulated over the ops in each iteration; averages, least and most are of iterations.
    """
    code, texts = compact(model.ops["name"])
    inside = np.zeros(len(texts), bool)
    inside[code[model.ops["associated"].to_numpy()]] = True
    group_numbers: dict[str, int] = {MODEL: 0}
    group_rows: list[
        int
    ] = []  # the groups of each name, as numbers: with a million ops, texts would take seconds
    sizes: list[int] = []
    for text, is_inside in zip(texts, inside.tolist(), strict=True):
        ours = groups_of(text or "") if is_inside else []
        group_rows.extend(group_numbers.setdefault(group, len(group_numbers)) for group in ours)
        group_rows.append(0)
        sizes.append(len(ours) + 1)
    member = pl.DataFrame(
        {
            "name": np.repeat(np.arange(len(texts)), np.array(sizes, np.int64)),
            "group": np.array(group_rows, np.int64),
        }
    )
    of = model.times["op"].to_numpy()
    ran = np.unique(of)
    eligible, using = (
        flags.fill_null(False).to_numpy()[ran]
        for flags in (model.ops["eligible"], using_tensor_cores(model))
    )
    counts = {
        "Num Calls Aggregated": np.bincount(code[of], minlength=len(texts)),
        "Num TC Eligible Ops": np.bincount(code[ran[eligible]], minlength=len(texts)),
        "Num Ops Using TC": np.bincount(code[ran[using]], minlength=len(texts)),
    }
    counted = (
        member.join(pl.DataFrame({"name": np.arange(len(texts)), **counts}), on="name")
        .group_by("group")
        .agg(pl.col(*counts).sum())
        .filter(pl.col("Num Calls Aggregated") > 0)
    )
    name, number, index = pairs(code[of], model.times["iteration"].to_numpy())
    groups = Groups(index, len(name))
    each = pl.DataFrame(
        {
            "name": name,
            "iteration": number,
            **{name_of_time: groups.total(model.times[name_of_time]) for name_of_time in CALLED},
        }
    ).join(member, on="name")
    group, _, index = pairs(each["group"].to_numpy(), each["iteration"].to_numpy())
    inner = Groups(index, len(group))
    by_iteration = pl.DataFrame(
        {name_of_time: inner.total(each[name_of_time]) for name_of_time in CALLED}
    )
    present, number = np.unique(group, return_inverse=True)
    outer = Groups(number.reshape(-1), len(present))
    summed = pl.DataFrame({"group": present, **times(outer, by_iteration)})
    called = pl.Series("Name", list(group_numbers), dtype=pl.String)
    rows_of_groups = counted.join(summed, on="group")
    return rows_of_groups.select(called.gather(rows_of_groups["group"]), pl.exclude("group")).sort(
        "Name"
    )

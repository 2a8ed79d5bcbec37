"""The tree behind a flame graph: paths of names with their time, with a bounded number of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from opscope.core.tables.forest import Forest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from opscope.profile import Profile

#: The kinds of nodes: open ranges (steps, layers, ops, kernels), modules and their ops, or source lines.
BY: Final = ("op", "layer", "source")
#: The most paths that are used; of a profile with more, the call tree gives rows ``(other)``.
_PATHS: Final = 50_000
#: Longer names are cut, because a page never draws more of them.
_LONGEST: Final = 256
_ROOT: Final = -1
_SCHEMA: Final = {
    "number": pl.Int64,
    "parent": pl.Int64,
    "name": pl.String,
    "kind": pl.String,
    "own": pl.Int64,
    "calls": pl.Int64,
    "merged": pl.Int64,
    "link": pl.String,
}


def tree(profile: Profile, by: str) -> tuple[pl.DataFrame, str]:
    """Return the nodes and the kind of their time: ``device``, ``self`` (of ops, without a GPU) or ``host``.

    A node has its number, its parent's number (-1: none), its name and kind, its own time (``own``, ns),
    calls, how many paths it represents (``merged``), and in ``link`` the whole name of a layer or line. The
    own times add up to the device time of the profile; the time is ``host`` where kernels were not captured.
    """
    if by == "layer":
        return _by_layer(profile)
    return _by_source(profile) if by == "source" else _by_op(profile)


def _measure(profile: Profile, is_timed: bool) -> str:
    return "self" if profile.cpu_only else "device" if is_timed else "host"


def _by_op(profile: Profile) -> tuple[pl.DataFrame, str]:
    tree = profile.call_tree(nodes=_PATHS)
    is_timed = not len(tree) or tree["device_total"].null_count() == 0
    measure = _measure(profile, is_timed)
    own = "device_self" if is_timed else "host_self"
    nodes = tree.select(
        number="path_id",
        parent=pl.col("parent_path").fill_null(_ROOT),
        name="frame",
        kind="frame_kind",
        own=own,
        calls="calls",
        merged="merged",
        link=pl.when(pl.col("frame_kind") == "layer").then("frame"),
    )
    return nodes.cast(_SCHEMA), measure  # type: ignore[arg-type]


def _by_layer(profile: Profile) -> tuple[pl.DataFrame, str]:
    """Return the modules of the table of layers, with the ops of each below it."""
    modules = profile.modules()
    is_timed = not len(modules) or modules["device_total"].null_count() == 0
    measure = _measure(profile, is_timed)
    own = "device_self" if is_timed else "host_self"
    nodes = modules.select(
        number="module_id",
        parent=pl.col("parent_module").fill_null(_ROOT),
        name=pl.col("module").fill_null("?"),
        kind=pl.col("row_kind").replace({"module": "layer", "group": "layer"}),
        own=pl.col(own).fill_null(0),
        calls=pl.col("module_calls"),
        merged=pl.lit(1),
        link="layer",
    ).cast(_SCHEMA)  # type: ignore[arg-type]
    # in op_totals() each row's time is that of its own kernels and copies, or without a GPU its self time
    time = "device_time" if measure == "device" else "self_time"
    outside = modules.filter(pl.col("row_kind") == "outside")["module_id"]
    module_of_layer = modules.select("layer", above="module_id").filter(
        pl.col("layer").is_not_null()
    )
    ops = (
        profile.op_totals()
        .select(pl.col("layer").cast(pl.String), pl.col("op").cast(pl.String), "calls", own=time)
        .group_by("layer", "op", maintain_order=True)
        .agg(pl.col("own").sum(), pl.col("calls").sum())
        .join(module_of_layer, on="layer", how="left")
        .with_columns(
            pl.when(pl.col("layer").is_null() & pl.lit(len(outside) == 1))
            .then(outside[0] if len(outside) == 1 else None)
            .otherwise(pl.col("above"))
            .alias("above")
        )
        .filter(pl.col("above").is_not_null() & (pl.col("own") > 0))
        .sort("above", "own", "op", descending=[False, True, False])
    )
    below = pl.select(
        number=pl.int_range(len(nodes), len(nodes) + len(ops)),
        parent=ops["above"],
        name=ops["op"].fill_null("?"),
        kind=pl.lit("op"),
        own=ops["own"],
        calls=ops["calls"],
        merged=pl.lit(1),
        link=pl.lit(None, pl.String),
    ).cast(_SCHEMA)  # type: ignore[arg-type]
    # the ops below a module have its time, so the module itself has no own time
    taken = ops.group_by("above").agg(taken=pl.col("own").sum())
    rest = nodes.join(
        taken, left_on="number", right_on="above", how="left", maintain_order="left"
    ).with_columns(pl.col("own") - pl.col("taken").fill_null(0))
    return pl.concat([rest.drop("taken"), below]), measure


def _by_source(profile: Profile) -> tuple[pl.DataFrame, str]:
    """Return the user's lines, the outermost first, with the ops of each line below it."""
    ops = profile.op_totals()
    is_timed = profile.cpu_only or not len(ops) or ops["device_time"].null_count() < len(ops)
    measure = _measure(profile, is_timed)
    time = "device_time" if measure == "device" else "self_time"
    own = ops.select(
        pl.col("source").cast(pl.String).fill_null("(no source line)").str.split(" < "),
        pl.col("op").cast(pl.String).fill_null("?"),
        pl.col("calls"),
        own=pl.col(time).fill_null(0),
    ).filter(pl.col("own") > 0)
    gaps = profile.unattributed() if is_timed else profile.unattributed().clear()
    depth = int(own["source"].list.len().max() or 0)  # type: ignore[arg-type]
    root = (0, _ROOT, "(all)", "all", 0, None, 1, None)
    tables = [pl.DataFrame([root], schema=_SCHEMA, orient="row")]
    number = 1
    # each row is at a node; level by level, rows with further frames move to a node inside it
    rows = own.with_columns(
        pl.col("source").list.reverse(), at=pl.lit(0, pl.Int64), ends=pl.col("source").list.len()
    )
    for level in range(depth + 1):
        here = rows.with_columns(
            name=pl.when(pl.col("ends") > level)
            .then(pl.col("source").list.get(level, null_on_oob=True))
            .when(pl.col("ends") == level)
            .then("op"),
            leaf=pl.col("ends") == level,
        )
        nodes = (
            here.filter(pl.col("name").is_not_null())
            .group_by("at", "name", "leaf", maintain_order=True)
            .agg(pl.col("own").sum(), pl.col("calls").sum())
        )
        nodes = nodes.with_columns(number=pl.int_range(number, number + len(nodes)))
        number += len(nodes)
        tables.append(
            nodes.select(
                number="number",
                parent="at",
                name="name",
                kind=pl.when("leaf").then(pl.lit("op")).otherwise(pl.lit("source")),
                own=pl.when("leaf").then("own").otherwise(0),
                calls=pl.when("leaf").then("calls"),
                merged=pl.lit(1),
                link=pl.when(~pl.col("leaf") & ~pl.col("name").str.starts_with("(")).then("name"),
            ).cast(_SCHEMA)  # type: ignore[arg-type]
        )
        rows = (
            here.filter(~pl.col("leaf"))
            .join(nodes.select("at", "name", "leaf", to="number"), on=["at", "name", "leaf"])
            .with_columns(at="to")
            .select(rows.columns)
        )
    tables.append(
        gaps.select(
            number=pl.int_range(number, number + len(gaps)),
            parent=pl.lit(0),
            name=pl.format("({})", pl.col("reason").cast(pl.String)),
            kind=pl.lit("reason"),
            own="time",
            calls=pl.lit(None, pl.Int64),
            merged=pl.lit(1),
            link=pl.lit(None, pl.String),
        ).cast(_SCHEMA)  # type: ignore[arg-type]
    )
    return pl.concat(tables), measure


def bounded(nodes: pl.DataFrame, most: int) -> dict[str, Any]:
    """Return at most about twice ``most`` nodes as columns, siblings by time, each after its parent. The
    nodes with the most time are kept. The children of a kept node that are left out become one node of kind
    ``other``, with the sum of their time and their number. Names are in a list of their own."""
    parent = nodes["parent"].to_numpy()
    forest = Forest(parent)
    own = nodes["own"].to_numpy()
    total = forest.with_inside(own)
    merged = nodes["merged"].to_numpy()
    kind = nodes["kind"].to_numpy()
    kept = _keep(forest, total, kind, most)
    above = forest.parent
    cut = np.flatnonzero(~kept & (total > 0) & (above >= 0))
    cut = cut[kept[above[cut]]]
    around, of = np.unique(above[cut], return_inverse=True)
    left = np.zeros((2, len(around)), np.int64)
    standing = forest.with_inside(np.where(total > 0, merged, 0))
    np.add.at(left[0], of, total[cut])
    np.add.at(left[1], of, standing[cut])
    rows = np.flatnonzero(kept)
    index = np.full(len(nodes) + 1, _ROOT, np.int64)
    index[rows] = np.arange(len(rows))
    chosen = nodes[rows]
    columns = {
        "parent": np.concatenate((index[above[rows]], index[around])),
        "time": np.concatenate((total[rows], left[0])),
        "own": np.concatenate((own[rows], left[0])),
        "merged": np.concatenate((merged[rows], left[1])),
    }
    other = np.arange(len(columns["parent"])) >= len(rows)
    order = _in_order(columns["parent"], columns["time"], other)
    moved = np.empty(len(order), np.int64)
    moved[order] = np.arange(len(order))
    count = len(around)
    name = chosen["name"].str.slice(0, _LONGEST).to_list() + ["(other)"] * count
    kinds = chosen["kind"].to_list() + ["other"] * count
    calls = chosen["calls"].to_list() + [None] * count
    link = chosen["link"].to_list() + [None] * count
    names, number = _dictionary([name[at] for at in order.tolist()])
    parents = columns["parent"][order]
    return {
        "names": names,
        "name": number,
        "kind": [kinds[at] for at in order.tolist()],
        "link": [link[at] for at in order.tolist()],
        "parent": np.where(parents < 0, _ROOT, moved[parents]).tolist(),
        "time": columns["time"][order].tolist(),
        "own": columns["own"][order].tolist(),
        "merged": columns["merged"][order].tolist(),
        "calls": [calls[at] for at in order.tolist()],
    }


def _keep(
    forest: Forest, total: NDArray[np.int64], kind: NDArray[Any], most: int
) -> NDArray[np.bool_]:
    """Return which nodes are shown; all ancestors of a shown node are shown."""
    # a node has at least the time of each node inside it, and comes first if they are equal
    order = np.lexsort((forest.level, -total))
    order = order[total[order] > 0]
    order = order[kind[order] != "other"]
    kept = np.zeros(len(total), bool)
    kept[order[:most]] = True
    return kept


def _in_order(
    parent: NDArray[np.int64], time: NDArray[np.int64], other: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return the nodes so that each follows its parent: siblings by time, the node ``other`` last."""
    by_time = np.lexsort((-time, other))
    moved = np.empty(len(parent) + 1, np.int64)
    moved[by_time] = np.arange(len(parent))
    moved[-1] = _ROOT  # the position of -1
    position = Forest(moved[parent[by_time]]).place
    order: NDArray[np.int64] = by_time[np.argsort(position, kind="stable")]
    return order


def _dictionary(texts: list[str]) -> tuple[list[str], list[int]]:
    """Return the distinct texts and the number of each."""
    number_of_text: dict[str, int] = {}
    numbers = [number_of_text.setdefault(text, len(number_of_text)) for text in texts]
    return list(number_of_text), numbers

"""Folded stacks, which flame graph programs read: a line for each path, with its time in nanoseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

import polars as pl

if TYPE_CHECKING:
    from opscope.profile import Profile

#: The kinds of paths that stacks can be made of.
BY: Final = ("op", "layer", "source")
_UNKNOWN: Final = {"layer": "(no layer)", "source": "(no source line)"}


def write(profile: Profile, out: BinaryIO, by: str = "op") -> dict[str, int]:
    """Write the device's time by path; return how many paths, and their time (ns).

    ``by``: ``op`` (steps, layers, ranges, ops, kernels, as ``call_tree()``), ``layer`` (the parts of the
    module's path, then the op) or ``source`` (the user's lines, the outermost first, then the op). Without
    a GPU the time is the ops' self time. Raises ValueError for another ``by``.
    """
    if by not in BY:
        raise ValueError(f"by must be {', '.join(BY)}, not {by!r}")
    stacks = _by_op(profile) if by == "op" else _by_column(profile, by)
    for stack, time in stacks.rows():
        out.write(f"{stack} {time}\n".encode("utf-8", "replace"))
    return {"paths": len(stacks), "time": int(stacks["time"].sum())}


def _by_op(profile: Profile) -> pl.DataFrame:
    """Return the paths of the call tree that have self time; no path is left out."""
    tree = profile.call_tree(nodes=1 << 40, depth=512)
    return tree.filter(pl.col("device_self") > 0).select("stack", time="device_self")


def _by_column(profile: Profile, by: str) -> pl.DataFrame:
    # in op_totals() the time of a row is the time of its own kernels and copies or, without a GPU, its self
    # time
    time = "self_time" if profile.cpu_only else "device_time"
    value = pl.col(by).fill_null(_UNKNOWN[by])
    parts = value.str.split("." if by == "layer" else " < ")
    stack = (parts if by == "layer" else parts.list.reverse()).list.eval(_frame(pl.element()))
    ops = profile.op_totals().select(
        pl.concat_list(stack, _frame(pl.col("op").fill_null("?"))).list.join(";").alias("stack"),
        pl.col(time).alias("time"),
    )
    rest = profile.unattributed().select(
        pl.concat_str(pl.lit("(no op);("), _frame(pl.col("reason")), pl.lit(")")).alias("stack"),
        "time",
    )
    both = pl.concat([ops, rest], how="vertical_relaxed")
    return (
        both.group_by("stack")
        .agg(pl.col("time").sum())
        .filter(pl.col("time") > 0)
        .sort("time", "stack", descending=[True, False])
    )


def _frame(text: pl.Expr) -> pl.Expr:
    """Return a frame's name without semicolons and line ends, which would split the frame."""
    return text.str.replace_all(";", ",", literal=True).str.replace_all(r"\s+", " ")

"""The question of the flame graph: time as a tree, by op, by layer or by source line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from opscope.reports import vendor_words
from opscope.viewer.flame import BY, bounded, tree
from opscope.viewer.question import Asked, BadParameter, Question

if TYPE_CHECKING:
    from opscope.profile import Profile
    from opscope.viewer.viewed import Viewed

#: Number of nodes unless a page asks for another number, and the most it may ask for.
NODES: Final = 1_500
_MOST: Final = 5_000


def answer(asked: Asked) -> dict[str, Any]:
    """Return the nodes as columns, siblings by time; siblings that are left out are one more node.

    ``by``: ``op``, ``layer`` or ``source``; ``nodes``: how many. ``measure`` is the meaning of the time:
    ``device``, ``self`` (the ops' self time, without a GPU) or ``host``; ``total`` is the first node's time
    (ns). ``family`` has the family of each op by its name.
    """
    by = asked.text("by", "op", 10)
    if by not in BY:
        raise BadParameter(f"by is {by!r}; it must be {', '.join(BY)}")
    most = asked.number("nodes", NODES, least=1, most=_MOST)
    profile = asked.profile
    nodes, measure = tree(profile, by)
    found = bounded(nodes, most)
    kinds = list(zip(found["name"], found["kind"], strict=True))
    ops = {found["names"][n] for n, kind in kinds if kind == "op"}
    reasons, of = {n for n, kind in kinds if kind == "reason"}, vendor_words.vendor(profile)
    found["names"] = [
        vendor_words.said(name, of) if n in reasons else name
        for n, name in enumerate(found["names"])
    ]
    return {
        "by": by,
        "measure": measure,
        "total": found["time"][0] if found["time"] else 0,
        "family": _families(profile, ops),
        **found,
    }


def _families(profile: Profile, ops: set[str]) -> dict[str, str]:
    """Return the family (gemm, conv …) of each of these ops that has one."""
    families = (
        profile.op_totals()
        .select(pl.col("op").cast(pl.String), pl.col("op_type").cast(pl.String))
        .drop_nulls()
        .unique("op", keep="first", maintain_order=True)
    )
    return {op: family for op, family in families.rows() if op in ops}


def stored(viewed: Viewed) -> list[dict[str, str]]:
    """Return what a single file holds: the three trees."""
    return [{"by": by} for by in BY]


QUESTION = Question(name="flame", answer=answer, stored=stored)

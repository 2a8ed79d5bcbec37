"""Link all hosts of a job to the first by common collectives, and solve their clocks in one pass.

Hosts and process groups are a graph. A search from the first host, breadth first, gives each host a
parent: of the hosts nearest to the first, the one with most collectives in common. Hosts that share no
collective are linked by messages. Then all links are estimated at once, and summed up along the way to
the first host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opscope.core.job.offsets import Offset, estimates
from opscope.core.tables.intervals import Ints

#: How a clock was aligned.
BY_COLLECTIVES: Final = "ends of collectives"
BY_MESSAGES: Final = "sends and receives"
_TIMES: Final = ("start", "end", "their_start", "their_end")


@dataclass(frozen=True, slots=True)
class Met:
    """Collectives and messages that hosts took part in together.

    ``ends``: per host and synchronising collective, ``node``, ``group``, ``one`` (the collective), ``start``
    (when its last rank entered) and ``end`` (when its first rank left). ``messages``: the messages between
    hosts as ``messages.messages`` returns them, with ``sender_node`` and ``receiver_node``. Times in ns.
    """

    ends: pl.DataFrame
    messages: pl.DataFrame


def solved(met: Met, hosts: int) -> dict[int, tuple[Offset, str]]:
    """Return, for each host that is linked to host 0 (without host 0), the offset of its clock to host
    0's, and the method that linked it to its parent."""
    links = _links(met, hosts)
    if links.is_empty():
        return {}
    entries = pl.concat([_collectives(met, links), _messages(met, links)]).sort("pair", "their_end")
    order, pair = np.unique(entries["pair"].to_numpy(), return_inverse=True)
    start, end, their_start, their_end = (entries[name].to_numpy() for name in _TIMES)
    below, above = (entries[name].to_numpy() for name in ("below", "above"))
    own = estimates(pair.reshape(-1), start, end, their_start, their_end, below, above)
    offset_of_pair = dict(zip(order.tolist(), own, strict=True))
    solutions: dict[int, tuple[Offset, str]] = {}
    for pair_, child, parent, method in links.select("pair", "child", "parent", "method").rows():
        offset = offset_of_pair[pair_]
        solutions[child] = offset.then(solutions[parent][0]) if parent else offset, method
    return solutions


def _links(met: Met, hosts: int) -> pl.DataFrame:
    """Return the links ``child``, ``parent``, ``method`` and ``pair`` (their number): parents come first."""
    sizes = met.ends.group_by("node", "group").len().sort("group", "node")
    host, group, count = (sizes[name].to_numpy().astype(np.int64) for name in sizes.columns)
    neighbours = _neighbours(met.messages)
    placed = np.zeros(hosts, bool)
    placed[0] = True
    frontier = np.zeros(hosts, bool)
    frontier[0] = True
    parts = []
    while not placed.all():
        child, parent = _that_met(
            met.ends, *_by_groups(host, group, count, frontier, placed), frontier
        )
        method = BY_COLLECTIVES
        if not len(child):
            child, parent = _by_messages(neighbours, placed)
            method = BY_MESSAGES
        if not len(child):
            break
        parts.append(
            pl.DataFrame({"child": child, "parent": parent}).with_columns(method=pl.lit(method))
        )
        placed[child] = True
        frontier = np.zeros(hosts, bool)
        frontier[child] = True
    if not parts:
        return pl.DataFrame(
            schema={"child": pl.Int64, "parent": pl.Int64, "method": pl.String, "pair": pl.Int64}
        )
    return pl.concat(parts).with_columns(pair=pl.int_range(pl.len(), dtype=pl.Int64))


def _by_groups(
    host: Ints, group: Ints, count: Ints, frontier: NDArray[np.bool_], placed: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Return the hosts that share a group with a host of ``frontier``, each with its parent.

    The parent is chosen in the group in which the host has most collectives. It is the host of ``frontier``
    with most collectives in this group; of equal ones, the lowest.
    """
    from_here = frontier[host]
    rows = np.flatnonzero(from_here)
    rows = rows[np.lexsort((host[rows], -count[rows], group[rows]))]
    groups, first = np.unique(group[rows], return_index=True)
    best = host[rows[first]]
    there = np.flatnonzero(~placed[host])
    index = np.searchsorted(groups, group[there])
    hit = index < len(groups)
    hit[hit] = groups[index[hit]] == group[there[hit]]
    there, index = there[hit], index[hit]
    shared = np.minimum(count[there], count[rows[first]][index])
    order = np.lexsort((best[index], -shared, host[there]))
    children, chosen = np.unique(host[there][order], return_index=True)
    parents: Ints = best[index][order][chosen]
    return children, parents


def _that_met(
    ends: pl.DataFrame, child: Ints, parent: Ints, frontier: NDArray[np.bool_]
) -> tuple[Ints, Ints]:
    """Return the pairs whose two hosts took part in a common collective.

    If a child and its parent have no collective in common (sibling groups share a name, or the recordings do
    not overlap), the new parent is the host of ``frontier`` with most collectives in common; if there is
    none, the child is left out.
    """
    pairs = pl.DataFrame({"child": child, "parent": parent})
    together = (
        ends.join(pairs, left_on="node", right_on="child")
        .select("parent", "one", child="node")
        .join(ends.select("one", parent="node"), on=["parent", "one"], how="semi")
        .select("child")
    )
    met = np.isin(child, together["child"].unique().to_numpy())
    if met.all():
        return child, parent
    here = pl.Series(np.flatnonzero(frontier))
    others = (
        ends.filter(pl.col("node").is_in(pl.Series(child[~met]).implode()))
        .select("one", child="node")
        .join(
            ends.filter(pl.col("node").is_in(here.implode())).select("one", parent="node"), on="one"
        )
        .group_by("child", "parent")
        .len()
        .sort("child", "len", "parent", descending=[False, True, False])
        .unique("child", keep="first", maintain_order=True)
    )
    both = pl.concat([pairs.filter(pl.Series(met)), others.select("child", "parent")]).sort("child")
    return both["child"].to_numpy(), both["parent"].to_numpy()


def _neighbours(sent: pl.DataFrame) -> pl.DataFrame:
    """Return for each ordered pair of hosts ``one`` and ``other`` the numbers of messages each way:
    ``least`` (of the two ways) and ``all``."""
    ways = sent.group_by("sender_node", "receiver_node").len()
    there = ways.select(
        one="sender_node", other="receiver_node", there="len", back=pl.lit(0, pl.UInt32)
    )
    back = ways.select(
        one="receiver_node", other="sender_node", there=pl.lit(0, pl.UInt32), back="len"
    )
    both = pl.concat([there, back]).group_by("one", "other").agg(pl.col("there", "back").sum())
    return both.select(
        pl.col("one", "other").cast(pl.Int64),
        least=pl.min_horizontal("there", "back").cast(pl.Int64),
        all=(pl.col("there") + pl.col("back")).cast(pl.Int64),
    )


def _by_messages(neighbours: pl.DataFrame, placed: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Return the hosts that exchanged messages with a host that is placed, each with its parent: the host
    with most messages in both directions, because those bound an offset from both sides."""
    side, other = (neighbours[name].to_numpy() for name in ("one", "other"))
    rows = neighbours.filter(pl.Series(placed[side] & ~placed[other], dtype=pl.Boolean)).sort(
        "other", "least", "all", "one", descending=[False, True, True, False]
    )
    rows = rows.unique("other", keep="first", maintain_order=True)
    return rows["other"].to_numpy(), rows["one"].to_numpy()


def _collectives(met: Met, links: pl.DataFrame) -> pl.DataFrame:
    """Return the entries of ``estimates`` for the links by collectives."""
    mine = links.filter(pl.col("method") == BY_COLLECTIVES)
    theirs = met.ends.join(mine, left_on="node", right_on="child").select(
        "pair", "parent", "one", their_start="start", their_end="end"
    )
    ours = met.ends.select("one", "start", "end", parent="node")
    both = theirs.join(ours, on=["parent", "one"])
    return both.select("pair", *_TIMES, below=pl.lit(True), above=pl.lit(True))


def _messages(met: Met, links: pl.DataFrame) -> pl.DataFrame:
    """Return the entries of ``estimates`` for the links by messages; each message bounds one side."""
    mine = links.filter(pl.col("method") == BY_MESSAGES).select("pair", "child", "parent")
    to_child = met.messages.join(
        mine, left_on=["sender_node", "receiver_node"], right_on=["parent", "child"]
    ).select(
        "pair", start="sent", end="sent_end", their_start="received", their_end="received_end",
        below=pl.lit(True), above=pl.lit(False),
    )  # fmt: skip
    to_parent = met.messages.join(
        mine, left_on=["sender_node", "receiver_node"], right_on=["child", "parent"]
    ).select(
        "pair", start="received", end="received_end", their_start="sent", their_end="sent_end",
        below=pl.lit(False), above=pl.lit(True),
    )  # fmt: skip
    return pl.concat([to_child, to_parent])

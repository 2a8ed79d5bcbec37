"""A forest given by its nodes' parents: levels, totals over descendants, ancestors that are alike."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opscope.core.tables.intervals import NONE, Ints, depth


class Forest:
    """Answers questions about all nodes of a forest at once.

    ``parent``: the place of each node's parent, -1 for a root. It must have no circle. The passes are one a
    level, so that 60,000 nested nodes take as long as 60,000 levels of one node each: under a second.
    """

    def __init__(self, parent: NDArray[np.signedinteger[Any]]) -> None:
        self.parent = parent.astype(np.int32)  # half the memory, and it stays with every profile

    def __len__(self) -> int:
        return len(self.parent)

    @cached_property
    def level(self) -> Ints:
        """How many ancestors each node has."""
        return depth(self.parent)

    @cached_property
    def levels(self) -> list[NDArray[np.int32]]:
        """The nodes of each level, in the order of their parents, siblings in their own order."""
        order = _sorted(self.level).astype(np.int32)
        edges = np.flatnonzero(np.diff(self.level[order])) + 1
        found = np.split(order, edges) if len(order) else []
        for number, nodes in enumerate(found):
            above = self.parent[nodes]
            if number and np.any(above[1:] < above[:-1]):
                found[number] = nodes[np.argsort(above, kind="stable")]
        return found

    @cached_property
    def size(self) -> NDArray[np.int32]:
        """How many nodes each node's tree has, itself included."""
        many = np.ones(len(self), np.int32)
        for nodes in self.levels[:0:-1]:
            np.add.at(many, self.parent[nodes], many[nodes])
        return many

    @cached_property
    def place(self) -> NDArray[np.int32]:
        """Each node's place in an order in which its descendants directly follow it."""
        place = np.zeros(len(self), np.int32)
        for number, nodes in enumerate(self.levels):
            before = np.cumsum(self.size[nodes]) - self.size[nodes]  # siblings and cousins
            if not number:
                place[nodes] = before
                continue
            above = self.parent[nodes]
            first = np.concatenate((np.ones(1, bool), above[1:] != above[:-1]))
            begin = np.repeat(before[first], np.diff(np.append(np.flatnonzero(first), len(nodes))))
            place[nodes] = place[above] + 1 + before - begin
        return place

    def with_inside(self, values: Ints) -> Ints:
        """Return each node's value plus the values of all its descendants."""
        if not values.any():
            return np.zeros(len(self), np.int64)
        running = np.zeros(len(self) + 1, np.int64)
        running[self.place + 1] = values
        np.cumsum(running, out=running)
        total: Ints = running[self.place + self.size] - running[self.place]
        return total

    def inside_alike(self, code: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
        """Return whether a strict ancestor of each node has the same ``code`` (a number from 0).

        Of the nodes of one code, in the order of ``place``, one is inside another if an earlier one's
        descendants reach beyond it.
        """
        found = np.zeros(len(self), bool)
        if not len(self) or not (self.parent != NONE).any():
            return found
        node = np.empty(len(self), np.int32)
        node[self.place] = np.arange(len(self))
        by_code = node[_sorted(code[node])]
        wide = len(self) + 1
        base = code[by_code].astype(np.int64) * wide
        reach = np.maximum.accumulate(base + (self.place + self.size)[by_code])
        # the reach of a smaller code is below every place of a larger one
        found[by_code[1:]] = reach[:-1] > (base + self.place[by_code])[1:]
        return found


def _sorted(numbers: NDArray[np.integer[Any]]) -> Ints:
    """Return the stable order of numbers from 0. Of 16 bits, NumPy sorts 3 M in 0.04 s, of 64 in 0.25."""
    small = numbers.astype(np.uint16) if int(numbers.max(initial=0)) < 1 << 16 else numbers
    return np.argsort(small, kind="stable")

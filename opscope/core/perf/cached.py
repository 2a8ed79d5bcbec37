"""The sums over a step's requests from which the cost of attention over a cache is computed.

Each request has q new tokens and k keys, those in the cache and its own. All pairs are Σq·k; a causal mask
leaves Σq·k - (Σq² - Σq)/2, as the last of q queries sees all k keys and each earlier query one key less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from opscope.core.schema import OpCall

#: The parameter with the sums: requests, Σq, Σk, Σq², Σq·k of the prefill, then those of the decode. No
#: parameter in a trace can have this name.
LENGTHS: Final = "~lengths"
#: The parameter that holds the layer's sliding window; 0: it has none.
WINDOW: Final = "~window"
#: The parameter that holds the size of a head.
HEAD: Final = "~head"
_EACH: Final = 5


@dataclass(frozen=True, slots=True)
class Lengths:
    """The sums of one phase's requests."""

    requests: int
    queries: int
    keys: int
    qq: int
    qk: int

    @property
    def live(self) -> int:
        """The number of pairs of a query and a key that a causal mask leaves."""
        return self.qk - (self.qq - self.queries) // 2

    def within(self, window: int) -> int:
        """Return the largest number of pairs that a sliding window of this many keys leaves."""
        return min(self.live, self.queries * window)

    def keys_within(self, window: int) -> int:
        """Return the largest number of keys that a window leaves: each request reads the keys of its first
        query."""
        return min(self.keys, self.requests * (window - 1) + self.queries)

    def __add__(self, other: Lengths) -> Lengths:
        return Lengths(
            self.requests + other.requests,
            self.queries + other.queries,
            self.keys + other.keys,
            self.qq + other.qq,
            self.qk + other.qk,
        )


def lengths_of(call: OpCall) -> tuple[Lengths, Lengths] | None:
    """Return the sums of the prefill and of the decode that complete a call; None if they are unknown."""
    sums = call.param(LENGTHS)
    if not isinstance(sums, tuple) or len(sums) != 2 * _EACH:
        return None
    numbers = [int(value) for value in sums if isinstance(value, int) and value >= 0]
    if len(numbers) != 2 * _EACH:
        return None
    return Lengths(*numbers[:_EACH]), Lengths(*numbers[_EACH:])

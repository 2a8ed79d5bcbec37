"""The timing of probes: calls that recorder and profiler both see, used to align their clocks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import sleep
from typing import Final

#: A generator of our own: drawing from the program's would change its results.
_gaps = random.Random()

#: Number of probes at the beginning and at the end of a capture; in between, two every ``PROBE_NS`` ns.
PROBES: Final = 16
PROBE_NS: Final = 1_000_000_000
#: Bounds of the random gap between probes in seconds. If probes (of 3 to 12 µs) followed each other at an
#: even pace, mistaking each probe for its neighbour would fit equally well; that once shifted kernels by up
#: to 15 µs.
GAP_S: Final = (20e-6, 500e-6)


def paced(times: int) -> Iterator[None]:
    """Yield ``times`` times, with random gaps."""
    for number in range(times):
        if number:
            sleep(_gaps.uniform(*GAP_S))
        yield

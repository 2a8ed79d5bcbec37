"""The pace of probes: calls that a recorder and a profiler both see, by which their clocks are made one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from time import sleep
from typing import Final

#: Not the program's: drawing from that would change what it computes.
_gaps = random.Random()

#: How many begin and end a capture, and ns from then on to the next two.
PROBES: Final = 16
PROBE_NS: Final = 1_000_000_000
#: Seconds between probes, drawn anew each time: at an even pace (they took 3 to 12 µs, a few apart) all
#: of them fit as well when each is taken for its neighbour, which put kernels off by up to 15 µs.
GAP_S: Final = (20e-6, 500e-6)


def paced(times: int) -> Iterator[None]:
    """Yields ``times`` times, at an uneven pace."""
    for number in range(times):
        if number:
            sleep(_gaps.uniform(*GAP_S))
        yield

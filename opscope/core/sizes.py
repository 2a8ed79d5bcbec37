"""The one rule of which numbers are no sizes: what writers put for "none", and what an overflow leaves.

It is of sizes, counts and lengths alike: of tensors (``rangetext``), grids, bytes, registers and counters
(``readers/sound.py``), and times that a tool measured. What is no size is unknown, and counted.
"""

from __future__ import annotations

import re
from typing import Final

#: The largest numbers of 32 and 64 bits, with and without a sign.
NONE_GIVEN: Final = ((1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1)
#: No tensor, copy or grid is so large: 1 PiB of bytes.
LARGEST: Final = 1 << 50
#: No kernel takes longer, ns (``core/tables/impossible.py``).
HOUR: Final = 3_600 * 10**9
#: A range's text with such a size among a tensor's.
_IN_TEXT: Final = re.compile(
    rf"[\[,{{](?:{'|'.join(map(str, NONE_GIVEN))}|[0-9]{{17,}})(?=[\],}}])"
)
NO_SIZES: Final = (
    "ops with sizes that are none (the largest number of 32 or 64 bits, or over 2⁵⁰), not known"
)


def is_size(number: float) -> bool:
    """Whether a number may be a size; one below 0 is none."""
    return 0 <= number <= LARGEST and number not in NONE_GIVEN


def is_kernel_time(ns: float) -> bool:
    """Whether a kernel may have taken so long, as a tool says that measured it alone."""
    return 0 <= ns <= HOUR and round(ns) not in NONE_GIVEN


def has_other(text: str) -> bool:
    """Whether a range's text has a tensor's size that is none."""
    return _IN_TEXT.search(text) is not None


def as_floats() -> tuple[float, ...]:
    """Return ``NONE_GIVEN`` as a counter has them, in double precision."""
    return tuple(map(float, NONE_GIVEN))
